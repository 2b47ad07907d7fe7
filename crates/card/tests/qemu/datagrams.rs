//! Tests the card's datagrams in a guest: files of an ext4 that the guest has mounted are sent to a UDP socket of Linux at the other end of
//! the card's cable, and received from it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU16;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use dcs::card::extents;
use dcs::{Engine, Op, Session, Sink, Source, Stage, Status};
use dcs_card::card::Config;
use dcs_card::serve::serve;
use dcs_vm::tools::Flavour;
use dcs_vm::{Initramfs, Machine, Network, Nic, Tools, disk};

use crate::card::md5;
use crate::rig::{LIMIT, MEMORY};
use dcs_testkit::hex;

const CARD: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 1);
const LINUX: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 2);
const PORT: u16 = 4000;
const BYTES: usize = 1_000_000;
/// Payload of a datagram: a block is 64 of these, or 44 and a half of the largest.
const PAYLOAD: u16 = 1024;

fn contents(seed: u64) -> Vec<u8> {
    (0..BYTES as u64).map(|n| (n.wrapping_mul(seed) >> 7 ^ n >> 3) as u8).collect()
}

#[test]
fn linux_and_the_card_exchange_datagrams() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = dcs_vm::turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("files")).unwrap();
    std::fs::write(path("files/blob"), contents(0x9e37_79b9)).unwrap();
    disk::ext4(&tools, &path("disk"), 64 << 20, &path("files")).unwrap();
    let card = serve(&path("card"), MEMORY, Config { key: [3; 16], ..Config::default() }).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["vfio-pci", "vfio_iommu_type1", "virtio_net"]).unwrap();
    initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
    let script = "export DISK=$(disk)\n\
        mkdir -p /mnt; mount -t ext4 $DISK /mnt || echo 'no ext4'\n\
        ip addr add 10.0.3.2/24 dev eth0; ip link set eth0 up\n\
        echo 4194304 > /proc/sys/net/core/rmem_default\n\
        guest-side --ignored --exact datagrams::the_datagrams_in_the_guest --nocapture --test-threads 1";
    let machine = Machine::new().limit(LIMIT).iommu().nvme(&path("disk"));
    let machine = machine.nic(Nic::Virtio, &Network::Cable(1)).nic(Nic::Igb, &Network::Cable(1));
    let machine = machine.card(&path("card"));
    let mut guest = machine.start(&tools, &initramfs.finish(script), folder.path()).unwrap();
    for what in ["@sent ", "@received ", "@refused "] {
        println!("{what}{}", guest.wait_for(what, LIMIT).unwrap());
    }
    guest.wait_for("@guest's end", LIMIT).unwrap();
    drop(card);
}

#[test]
#[ignore = "runs in the guest of linux_and_the_card_exchange_datagrams"]
fn the_datagrams_in_the_guest() {
    let engine = crate::suite::engine_in_the_guest(CARD);
    let session = engine.session().unwrap();
    let socket = UdpSocket::bind((LINUX, PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    to_linux(&engine, &session, &socket);
    from_linux(&engine, &session, &socket);
    refusals(&engine, &session);
    drop((session, engine));
    println!("@guest's end");
}

fn to_linux(engine: &Engine, session: &Session, socket: &UdpSocket) {
    let expected = contents(0x9e37_79b9);
    let file = File::open("/mnt/blob").unwrap();
    let remote = SocketAddrV4::new(LINUX, PORT);
    let datagrams = engine.datagrams(PORT, remote, NonZeroU16::new(PAYLOAD)).unwrap();
    // Linux has room for two blocks' datagrams: the next ones arrive when it has read these.
    let mut got = Vec::new();
    for start in (0..BYTES).step_by(128 << 10) {
        let end = BYTES.min(start + (128 << 10));
        let source = Source::file(&file, start as u64..end as u64);
        let sent = session.transfer(source, [Op::Crc32c], Sink::datagrams(&datagrams)).unwrap();
        assert_eq!(sent.wait().unwrap().bytes_out, (end - start) as u64);
        while got.len() < end {
            let mut bytes = [0; 2048];
            let (count, from) = socket.recv_from(&mut bytes).unwrap();
            assert_eq!(from, (CARD, PORT).into());
            assert_eq!(count, usize::from(PAYLOAD).min(end - got.len()));
            got.extend_from_slice(&bytes[..count]);
        }
    }
    assert!(got == expected, "every byte, in order");
    println!("@sent {}", hex(&md5(&got)));
}

fn from_linux(engine: &Engine, session: &Session, socket: &UdpSocket) {
    let expected = contents(0x85eb_ca6b);
    let remote = SocketAddrV4::new(LINUX, PORT);
    let datagrams = engine.datagrams(PORT + 1, remote, None).unwrap();
    let file = File::options().read(true).write(true).create(true).truncate(false).open("/mnt/in").unwrap();
    extents::prepare(&file, BYTES as u64).unwrap();
    let request = session.request(Source::datagrams(&datagrams), [Op::Md5], Sink::file(&file, 0));
    let transfer = request.length(BYTES as u64).durable().timeout(Duration::from_secs(300)).submit().unwrap();
    // QEMU's NIC drops frames that find no descriptor: allow time to take each few before the next ones.
    for few in expected.chunks(32 << 10) {
        for datagram in few.chunks(1472) {
            socket.send_to(datagram, (CARD, PORT + 1)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = transfer.wait().unwrap();
    assert_eq!((done.bytes_out, datagrams.dropped().unwrap()), (BYTES as u64, 0));
    let mut bytes = vec![0; BYTES];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected, "every byte, in order");
    assert_eq!(done.digests[0].to_string(), hex(&md5(&expected)));
    println!("@received {}", done.digests[0]);
}

fn refusals(engine: &Engine, session: &Session) {
    let remote = SocketAddrV4::new(LINUX, PORT);
    let first = engine.datagrams(PORT, remote, None).expect("the earlier ones are closed");
    assert_eq!(engine.datagrams(PORT, remote, None).unwrap_err().status, Status::InvalidField);
    let too_much = engine.datagrams(PORT + 1, remote, NonZeroU16::new(1473));
    assert_eq!(too_much.unwrap_err().status, Status::InvalidField);
    let endless = session.transfer(Source::datagrams(&first), [], Sink::memory(1000)).unwrap();
    let error = endless.wait().unwrap_err();
    assert_eq!((error.status, error.stage), (Status::InvalidField, Stage::Source), "{error}");
    let silent = session.request(Source::datagrams(&first), [], Sink::memory(1000)).length(1000);
    let error = silent.timeout(Duration::from_millis(100)).submit().unwrap().wait().unwrap_err();
    assert_eq!((error.status, error.stage), (Status::Timeout, Stage::Source), "{error}");
    let nobody = SocketAddrV4::new(Ipv4Addr::new(10, 0, 3, 77), PORT);
    let lost = engine.datagrams(PORT, nobody, None).unwrap();
    let sent = session.transfer(Source::memory(vec![1; 5000]), [], Sink::datagrams(&lost)).unwrap();
    let error = sent.wait().unwrap_err();
    assert_eq!((error.status, error.errno), (Status::WriteError, 113), "{error}");
    println!("@refused all that cannot be");
}
