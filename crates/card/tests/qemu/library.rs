//! Tests the library in the guest, on the card: files of an ext4 that the guest has mounted are sent to a client of this machine and
//! received from it, over the card's own TCP.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dcs::card::{Disk, Nic as CardNic, Options, extents};
use dcs::{Backend, Engine, Op, Session, Sink, Source, Stage, Status};
use dcs_card::card::Config;
use dcs_card::serve::serve;
use dcs_vm::machine::Forward;
use dcs_vm::tools::Flavour;
use dcs_vm::{Initramfs, Machine, Network, Nic, Tools, disk};

use crate::card::md5;
use crate::rig::{LIMIT, MEMORY};
use dcs_testkit::hex;

const BYTES: usize = 5_000_000;
const PORT: u16 = 80;

fn contents(seed: u64) -> Vec<u8> {
    (0..BYTES as u64).map(|n| (n.wrapping_mul(seed) >> 7 ^ n >> 3) as u8).collect()
}

#[test]
fn an_application_in_the_guest_uses_the_card_as_it_uses_the_kernel() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = dcs_vm::turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (socket, image, files) =
        (folder.path().join("card"), folder.path().join("disk"), folder.path().join("files"));
    std::fs::create_dir(&files).unwrap();
    let (sent, received) = (contents(0x9e37_79b9), contents(0x85eb_ca6b));
    std::fs::write(files.join("blob"), &sent).unwrap();
    disk::ext4(&tools, &image, 256 << 20, &files).unwrap();
    let card = serve(&socket, MEMORY, Config { key: [9; 16], ..Config::default() }).unwrap();
    let here = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let forward = Forward { tcp: true, from: here, to: format!("10.0.2.15:{PORT}").parse().unwrap() };
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["vfio-pci", "vfio_iommu_type1"]).unwrap();
    initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!(
        "export DISK=$(disk) OTHER=10.0.3.2:{}\n\
        mkdir -p /mnt; mount -t ext4 $DISK /mnt || echo 'no ext4'\n\
        guest-side --ignored --exact library::the_application_in_the_guest --nocapture --test-threads 1",
        other.local_addr().unwrap().port()
    );
    let machine = Machine::new().limit(LIMIT).iommu().nvme(&image);
    let machine = machine.nic(Nic::Igb, &Network::User(vec![forward])).nic(Nic::Igb, &Network::Subnet(3));
    let machine = machine.card(&socket);
    let mut guest = machine.start(&tools, &initramfs.finish(&script), folder.path()).unwrap();
    guest.wait_for("@listening", LIMIT).unwrap();
    let mut stream = TcpStream::connect(here).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let mut got = vec![0; BYTES];
    stream.read_exact(&mut got).unwrap();
    assert!(got == sent, "every byte of the file");
    assert_eq!(guest.wait_for("@md5 ", LIMIT).unwrap(), hex(&md5(&sent)));
    stream.write_all(&received).unwrap();
    assert_eq!(guest.wait_for("@received ", LIMIT).unwrap(), hex(&md5(&received)));
    println!("{}", guest.wait_for("@times ", LIMIT).unwrap());
    for _ in WAYS {
        let (mut stream, _) = other.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == sent[..100_000], "every byte, by the other NIC");
    }
    guest.wait_for("@pull the card", LIMIT).unwrap();
    drop(card);
    guest.wait_for("@told of it", LIMIT).unwrap();
    guest.wait_for("@guest's end", LIMIT).unwrap();
}

/// Addresses of the card.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 2, 15), Ipv4Addr::new(10, 0, 3, 15)];
/// Addresses by which the other NIC is found: by its network, or by the given one.
const WAYS: [Option<Ipv4Addr>; 2] = [None, Some(ADDRESSES[1])];

/// Returns the function that the card may have: the last of its class.
fn function(class: u32) -> String {
    dcs_vfio::functions(None, None, Some(class)).last().expect("there is one").clone()
}

#[test]
#[ignore = "runs in the guest of an_application_in_the_guest_uses_the_card_as_it_uses_the_kernel"]
fn the_application_in_the_guest() {
    let disk = Disk {
        function: function(0x01_0802),
        device: Some(PathBuf::from(std::env::var_os("DISK").expect("the script says"))),
    };
    let nics = dcs_vfio::functions(Some(0x8086), None, Some(0x02_0000)).into_iter().zip(ADDRESSES);
    let nic = |(function, address)| CardNic { function, address, prefix: 24, gateway: None };
    let nics = nics.map(nic).collect();
    let options = Options { card: None, disks: vec![disk], nics };
    let engine = Engine::builder().backend(Backend::Card).card(options).start().unwrap();
    assert!(engine.addresses().eq(ADDRESSES));
    let session = engine.session().unwrap();
    let error = engine.listen(PORT).unwrap_err().to_string();
    assert!(error.contains("at which address"), "{error}");
    let error = engine.listen_at("10.0.2.16:80".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("none of the engine's NICs"), "{error}");
    let listener = engine.listen_at(SocketAddrV4::new(ADDRESSES[0], PORT)).unwrap();
    println!("@listening");
    let connection = listener.accept().unwrap();
    assert_eq!(connection.local(), ADDRESSES[0]);
    let file = File::open("/mnt/blob").unwrap();
    let done = session.transfer(Source::file(&file, ..), [Op::Md5], Sink::connection(&connection)).unwrap();
    let done = done.wait().unwrap();
    assert_eq!(done.bytes_out, BYTES as u64);
    println!("@md5 {}", done.digests[0]);
    // Memory is an endpoint too, and its content is the file's.
    let some = Sink::memory(100_000);
    let done =
        session.transfer(Source::file(&file, 1234..101_234), [Op::Crc32c], some).unwrap().wait().unwrap();
    let mut plain = vec![0; 100_000];
    file.read_exact_at(&mut plain, 1234).unwrap();
    assert!(done.memory.unwrap() == plain);
    // Bytes not written back yet are sent as they are.
    std::fs::write("/mnt/dirty", [0x5a; 70_000]).unwrap();
    let dirty = File::open("/mnt/dirty").unwrap();
    let done = session.transfer(Source::file(&dirty, ..), [], Sink::memory(70_000)).unwrap().wait().unwrap();
    assert!(done.memory.unwrap() == [0x5a; 70_000]);
    // A file that another descriptor has open is not written.
    let open = session.transfer(Source::memory(vec![1; 1000]), [], Sink::file(&file_rw(), 0)).unwrap();
    let error = open.wait().unwrap_err();
    assert_eq!((error.status, error.errno), (Status::PathUnavailable, 26), "{error}");
    assert!(error.to_string().contains("somebody else has the file open"), "{error}");
    // A file that is not on one of the card's disks.
    let elsewhere =
        File::options().read(true).write(true).create(true).truncate(true).open("/tmp-file").unwrap();
    elsewhere.write_all_at(&[1; 5000], 0).unwrap();
    let error =
        session.transfer(Source::file(&elsewhere, ..), [], Sink::memory(5000)).unwrap().wait().unwrap_err();
    assert_eq!((error.status, error.errno), (Status::PathUnavailable, 18), "{error}");
    // From the wire into a file, which the kernel then reads.
    let written =
        File::options().read(true).write(true).create(true).truncate(false).open("/mnt/in").unwrap();
    extents::prepare(&written, BYTES as u64).unwrap();
    let mut before = [1; 16];
    written.read_exact_at(&mut before, 0).unwrap();
    assert_eq!(before, [0; 16], "the page cache has something old");
    let request = session.request(Source::connection(&connection), [Op::Md5], Sink::file(&written, 0));
    let done = request.length(BYTES as u64).durable().submit().unwrap().wait().unwrap();
    let mut bytes = vec![0; BYTES];
    written.read_exact_at(&mut bytes, 0).unwrap();
    println!("@received {}", hex(&md5(&bytes)));
    assert_eq!(done.digests[0].to_string(), hex(&md5(&bytes)));
    println!("@times {done:?}");
    by_the_other_nic(&engine, &session, &file);
    pulled_out(&engine, &session, &file);
    drop((listener, connection, session, engine));
    println!("@guest's end");
}

fn by_the_other_nic(engine: &Engine, session: &Session, file: &File) {
    let to = std::env::var("OTHER").expect("the script says").parse().unwrap();
    for way in WAYS {
        let connection = match way {
            None => engine.connect(to).unwrap(),
            Some(local) => engine.connect_from(local, to, Some(LIMIT)).unwrap(),
        };
        assert_eq!(connection.local(), ADDRESSES[1]);
        let (source, sink) = (Source::file(file, ..100_000), Sink::connection(&connection));
        session.transfer(source, [], sink).unwrap().wait().unwrap();
        connection.shutdown().unwrap();
        // Until the peer has it, and ends its own stream.
        let rest = session.transfer(Source::connection(&connection), [], Sink::memory(1)).unwrap().wait();
        assert_eq!(rest.unwrap().bytes_out, 0);
    }
}

/// Checks that no transfer waits forever after the card is unplugged.
fn pulled_out(engine: &Engine, session: &Session, file: &File) {
    let other = engine.connect(std::env::var("OTHER").expect("the script says").parse().unwrap()).unwrap();
    let never = || session.transfer(Source::connection(&other), [], Sink::memory(1)).unwrap();
    let waiting = [never(), never()];
    println!("@pull the card");
    let later = session.transfer(Source::file(file, ..), [], Sink::memory(BYTES));
    let told = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // However often other calls wake the engine meanwhile.
        scope.spawn(|| {
            while !told.load(Ordering::SeqCst) {
                engine.statistics();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        for transfer in waiting.into_iter().chain([never()]) {
            let error = transfer.wait().unwrap_err();
            assert_eq!((error.status, error.stage), (Status::DeviceReset, Stage::Frontend), "{error}");
        }
        told.store(true, Ordering::SeqCst);
    });
    // The last one that it may have done.
    let _ = later.unwrap().wait();
    assert!(engine.connect("10.0.3.2:1".parse().unwrap()).is_err());
    assert!(engine.statistics().is_idle);
    println!("@told of it");
}

fn file_rw() -> File {
    File::options().read(true).write(true).open("/mnt/blob").unwrap()
}
