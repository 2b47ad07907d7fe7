//! Tests the whole card in QEMU, through an IOMMU: a driver in the guest has it move data between QEMU's SSD, the guest's memory and,
//! through QEMU's NIC, a client outside with its own TCP.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dcs_abi::admin::{AdminCompletion, AdminCompletionPacket, AdminEntry, GRANT_READ, GRANT_WRITE, opcode};
use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent};
use dcs_abi::entry::{CompletionEntry, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::operator::Operator;
use dcs_abi::register::{cq_head_doorbell, sq_tail_doorbell};
use dcs_abi::result::{ResultArea, ResultPacket};
use dcs_abi::status::Status;
use dcs_card::card::Config;
use dcs_card::serve::serve;
use dcs_ndp::parameter;
use dcs_testkit::hex;
use dcs_vfio::{Access, Buffer, Container, Function, Mapping};
use dcs_vm::machine::Forward;
use dcs_vm::tools::Flavour;
use dcs_vm::{Initramfs, Machine, Network, Nic, Tools};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::core;
use crate::rig::{LIMIT, MEMORY};

/// Bus address of the driver's memory.
const BUFFER: u64 = 0x1_0000_0000;
const LENGTH: u64 = 8 << 20;
const ADMIN_CQ: u64 = 0x1000;
const SQ: u64 = 0x2000;
const CQ: u64 = 0x3000;
const DESCRIPTOR: u64 = 0x4000;
const RESULT: u64 = 0x5000;
const DATA: u64 = 1 << 20;
/// The card's own address on QEMU's network.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// QEMU's router.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const PORT: u16 = 80;
const DEPTH: u16 = 64;
/// Bytes of one transfer.
const BYTES: u64 = 1 << 20;
/// Places on the SSD: what came over the network through MD5 and through CRC-32C, and what was encrypted.
const RECEIVED: u64 = 8 << 20;
const CODED: u64 = 9 << 20;
const ENCRYPTED: u64 = 10 << 20;
const KEY: [u8; 32] = [0x5a; 32];
const COUNTER: [u8; 16] = [0xff; 16];

#[test]
fn a_guest_has_the_card_move_data_between_ssd_memory_and_network() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = dcs_vm::turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (socket, image) = (folder.path().join("card"), folder.path().join("disk.img"));
    let bytes: Vec<u8> = (0..16u64 << 20).map(|n| (n ^ n >> 9 ^ n >> 17) as u8).collect();
    std::fs::write(&image, &bytes).unwrap();
    let card = serve(&socket, MEMORY, core::of(Config::default())).unwrap();
    let mut initramfs = Initramfs::new(&tools).unwrap();
    initramfs.modules(&["vfio-pci", "vfio_iommu_type1"]).unwrap();
    initramfs.program("bin/guest-side", &std::env::current_exe().unwrap()).unwrap();
    let script = "guest-side --ignored --exact card::the_driver_in_the_guest --nocapture --test-threads 1";
    // A port that was free just now.
    let from = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let network = Network::User(vec![Forward { tcp: true, from, to: (ADDRESS, PORT).into() }]);
    let machine = Machine::new().limit(LIMIT).iommu().nvme(&image).nic(Nic::Igb, &network).card(&socket);
    let mut guest = machine.start(&tools, &initramfs.finish(script), folder.path()).unwrap();
    for turn in 0..4u64 {
        let read = &bytes[(turn * BYTES) as usize..][..BYTES as usize];
        let digest = guest.wait_for(&format!("@digest {turn}"), LIMIT).unwrap();
        assert_eq!(digest, hex(&md5(read)));
    }
    println!("{}", guest.wait_for("@times", LIMIT).unwrap());
    guest.wait_for("@encrypted", LIMIT).unwrap();
    assert!(on_disk(&image, ENCRYPTED) == openssl(&bytes[..BYTES as usize]), "SSD -> aes256-ctr -> SSD");
    guest.wait_for("@listening", LIMIT).unwrap();
    let (received, coded) = flows(&from, &bytes, &mut guest);
    guest.wait_for("@guest's end", LIMIT).unwrap();
    assert!(on_disk(&image, RECEIVED) == received, "NIC -> md5 -> SSD");
    assert!(on_disk(&image, CODED) == coded, "NIC -> crc32c -> SSD");
    // All other bytes of the disk are as they were.
    let (now, all) = (std::fs::read(&image).unwrap(), bytes.len());
    let changed = [RECEIVED, CODED, ENCRYPTED].map(|at| at as usize..(at + BYTES) as usize);
    let same = |range: std::ops::Range<usize>| now[range.clone()] == bytes[range];
    assert!(now.len() == all && same(0..changed[0].start) && same(changed[2].end..all));
    drop(card);
}

fn on_disk(image: &Path, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    File::open(image).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Connects a client on this machine, with this machine's own TCP: it receives what the SSD has, and sends what is to be on the SSD then.
fn flows(to: &SocketAddr, bytes: &[u8], guest: &mut dcs_vm::Guest) -> (Vec<u8>, Vec<u8>) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut got = vec![0; BYTES as usize];
    stream.read_exact(&mut got).unwrap();
    assert!(got == bytes[..BYTES as usize], "SSD -> md5 -> NIC");
    assert_eq!(guest.wait_for("@sent", LIMIT).unwrap(), hex(&md5(&got)));
    let sent: Vec<u8> = got.iter().rev().copied().collect();
    stream.write_all(&sent).unwrap();
    assert_eq!(guest.wait_for("@received", LIMIT).unwrap(), hex(&md5(&sent)));
    assert_eq!(guest.wait_for("@written", LIMIT).unwrap(), hex(&md5(&sent)));
    let coded: Vec<u8> = sent.iter().map(|byte| byte.wrapping_mul(5) ^ 0x33).collect();
    stream.write_all(&coded).unwrap();
    assert_eq!(guest.wait_for("@coded", LIMIT).unwrap(), hex(&crc32c(&coded).to_be_bytes()));
    (sent, coded)
}

/// Computes CRC-32C bit by bit, as RFC 3720 defines it.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |code, byte| {
        (0..8)
            .fold(code ^ u32::from(*byte), |code, _| code >> 1 ^ if code & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// Encrypts by another program.
fn openssl(bytes: &[u8]) -> Vec<u8> {
    piped(
        Command::new("openssl").args(["enc", "-aes-256-ctr", "-K", &hex(&KEY), "-iv", &hex(&COUNTER)]),
        bytes,
    )
}

/// Returns the MD5 computed by another program: coreutils outside, busybox in the guest.
pub fn md5(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(piped(&mut Command::new("md5sum"), bytes)).unwrap();
    (0..16).map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap()).collect()
}

/// Runs a program and returns what it makes of these bytes.
fn piped(program: &mut Command, bytes: &[u8]) -> Vec<u8> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().expect("asked for");
    // It may write before it has read all.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(bytes).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{program:?}: {}", output.status);
    output.stdout
}

/// A transfer's source or destination: its kind, its handle, and the position.
type End = (EndpointKind, u32, Option<u64>);

/// A minimal driver: one command at a time.
struct Driver {
    registers: Mapping,
    memory: Buffer,
    events: Vec<OwnedFd>,
    admin: Ring,
    commands: Ring,
    ssd: u32,
    nic: u32,
    _functions: Vec<Function>,
}

#[derive(Default)]
struct Ring {
    tail: u16,
    head: u16,
    turned: bool,
}

impl Ring {
    fn next(at: &mut u16) -> bool {
        *at = (*at + 1) % DEPTH;
        *at == 0
    }
}

impl Driver {
    fn new() -> Driver {
        let last = |found: Vec<String>| found.last().expect("the device").clone();
        let card = last(dcs_vfio::functions(Some(0xdc51), None, None));
        let ssd = last(dcs_vfio::functions(None, None, Some(0x01_0802)));
        let nic = last(dcs_vfio::functions(Some(0x8086), Some(0x10c9), None));
        let open = |container: &Container, address: &str| {
            dcs_vfio::bind(address).unwrap();
            let function = Function::open(container, address).unwrap();
            function.enable(true).unwrap();
            function
        };
        // The card reaches the driver's memory and the devices; they reach the card's memory and nothing else.
        let (ours, theirs) = (Container::new().unwrap(), Container::new().unwrap());
        let (card, ssd, nic) = (open(&ours, &card), open(&theirs, &ssd), open(&theirs, &nic));
        let memory = Buffer::new(&ours, BUFFER, LENGTH, Access::Both).unwrap();
        // BARs keep their addresses on the bus: so the card knows its own.
        let map = |container: &Container, function: &Function, bar: usize| {
            let mapping = Arc::new(function.bar(bar as u32).unwrap());
            container.map(&mapping, function.bar_address(bar).unwrap(), Access::Both).unwrap();
        };
        map(&ours, &ssd, 0);
        map(&ours, &nic, 0);
        map(&theirs, &card, 2);
        // The place where it tests how its messages are delivered.
        map(&ours, &card, 2);
        let events: Vec<_> = (0..2).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        card.interrupts(&events.iter().map(|event| event.as_fd()).collect::<Vec<_>>()).unwrap();
        let [ssd_bar, nic_bar] = [&ssd, &nic].map(|function| function.bar_address(0).unwrap());
        let (registers, _functions) = (card.bar(0).unwrap(), vec![ssd, nic, card]);
        let (admin, commands, ssd, nic) = Default::default();
        let mut driver = Driver { registers, memory, events, admin, commands, ssd, nic, _functions };
        driver.start();
        let words = [LENGTH as u32, 0, GRANT_READ | GRANT_WRITE, 0, 0, 0];
        assert_eq!(driver.admin(opcode::GRANT_MEMORY, BUFFER, words), 1);
        let size = 1 | u32::from(DEPTH - 1) << 16;
        driver.admin(opcode::CREATE_CQ, BUFFER + CQ, [size, 3 | 1 << 16, 0, 0, 0, 0]);
        driver.admin(opcode::CREATE_SQ, BUFFER + SQ, [size, 1 | 1 << 16, 0, 0, 0, 0]);
        driver.ssd = driver.admin(opcode::ATTACH_SSD, ssd_bar, [0x4000, 0, 0, 0, 0, 0]);
        let words = [0x2_0000, 0x10c9, ADDRESS.to_bits(), 24 | 1500 << 16, GATEWAY.to_bits(), 0];
        driver.nic = driver.admin(opcode::ATTACH_NIC, nic_bar, words);
        driver
    }

    fn start(&self) {
        let depth = u32::from(DEPTH - 1);
        self.registers.write32(0x24, depth | depth << 16);
        self.registers.write64(0x28, BUFFER);
        self.registers.write64(0x30, BUFFER + ADMIN_CQ);
        self.registers.write32(0x14, 0x0046_0001);
        while self.registers.read32(0x1c) & 1 == 0 {
            assert_eq!(self.registers.read32(0x1c) & 2, 0, "CSTS.CFS");
        }
    }

    fn admin(&mut self, opcode: u8, data_address: u64, words: [u32; 6]) -> u32 {
        let entry = AdminEntry { opcode, cid: 1, data_address, words };
        self.memory.store(u64::from(self.admin.tail) * 64, &entry.to_bytes());
        Ring::next(&mut self.admin.tail);
        self.registers.write32(sq_tail_doorbell(0) as u64, self.admin.tail.into());
        let found = loop {
            let mut bytes = [0; 16];
            self.memory.load(ADMIN_CQ + u64::from(self.admin.head) * 16, &mut bytes);
            let packet = AdminCompletionPacket::new_checked(&bytes[..]).unwrap();
            let found = AdminCompletion::parse(&packet).unwrap();
            if (found.status & 1 == 1) != self.admin.turned {
                break found;
            }
        };
        self.admin.turned ^= Ring::next(&mut self.admin.head);
        self.registers.write32(cq_head_doorbell(0) as u64, self.admin.head.into());
        assert_eq!(Status::from_code(found.status >> 1), Status::Success);
        found.value
    }

    /// Reads from the SSD through MD5 into memory.
    fn read(&mut self, offset: u64) -> Vec<u8> {
        let source = (EndpointKind::Block, self.ssd, Some(offset));
        self.transfer(source, (EndpointKind::Memory, 1, Some(BUFFER + DATA)), (Operator::Md5, &[]))
    }

    /// Does a transfer through an operator with this parameter block; waits for the interrupt. Returns the digest.
    fn transfer(
        &mut self,
        source: End,
        destination: End,
        (operator, parameter): (Operator, &[u8]),
    ) -> Vec<u8> {
        let mut bytes = [0; 0x1000];
        let mut builder = Builder::new(&mut bytes).unwrap();
        for (role, (kind, handle, offset)) in
            [(EndpointRole::Source, source), (EndpointRole::Destination, destination)]
        {
            let endpoint = Endpoint { kind: kind as u8, handle, ..Default::default() };
            let extents: Vec<_> = offset.map(|offset| Extent { offset, length: BYTES }).into_iter().collect();
            builder.endpoint(role, endpoint, &extents).unwrap();
        }
        builder.parameter(0, parameter).unwrap();
        let length = builder.finish();
        self.memory.store(DESCRIPTOR, &bytes[..length]);
        let entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            cid: 7,
            descriptor_length: length as u32,
            descriptor_address: BUFFER + DESCRIPTOR,
            result_address: BUFFER + RESULT,
            op_chain: [operator as u8, 0, 0, 0, 0, 0, 0, 0],
            length: BYTES,
            ..Default::default()
        };
        self.memory.store(SQ + u64::from(self.commands.tail) * 64, &entry.to_bytes());
        Ring::next(&mut self.commands.tail);
        self.registers.write32(sq_tail_doorbell(1) as u64, self.commands.tail.into());
        self.interrupted();
        let mut bytes = [0; 16];
        self.memory.load(CQ + u64::from(self.commands.head) * 16, &mut bytes);
        let found = CompletionEntry::if_new(&bytes, !self.commands.turned).unwrap();
        let entry = found.expect("an interrupt follows its completion");
        self.commands.turned ^= Ring::next(&mut self.commands.head);
        self.registers.write32(cq_head_doorbell(1) as u64, self.commands.head.into());
        assert_eq!((entry.status(), entry.delivered.value()), (Status::Success, BYTES));
        let mut result = vec![0; ResultArea::SIZE];
        self.memory.load(RESULT, &mut result);
        let result = ResultArea::parse(&ResultPacket::new_checked(&result[..]).unwrap()).unwrap();
        let digest = &result.digests[0];
        digest.value[..usize::from(digest.size)].to_vec()
    }

    fn interrupted(&self) {
        let limit = Timespec::try_from(Duration::from_secs(300)).unwrap();
        let mut wait = [PollFd::new(&self.events[1], PollFlags::IN)];
        assert_eq!(poll(&mut wait, Some(&limit)), Ok(1), "no interrupt");
        let mut count = [0; 8];
        rustix::io::read(&self.events[1], &mut count).unwrap();
        assert_eq!(u64::from_le_bytes(count), 1, "one interrupt a transfer");
    }
}

/// Runs in the guest.
#[test]
#[ignore = "the guest's side of the test above"]
fn the_driver_in_the_guest() {
    let mut driver = Driver::new();
    for turn in 0..4 {
        let digest = driver.read(turn * BYTES);
        println!("@digest {turn} {}", hex(&digest));
        let mut data = vec![0; BYTES as usize];
        driver.memory.load(DATA, &mut data);
        assert_eq!(hex(&md5(&data)), hex(&digest), "the received bytes match the digest");
    }
    let start = std::time::Instant::now();
    (0..32).for_each(|turn| _ = driver.read(turn % 8 * BYTES));
    println!("@times SSD -> md5 -> memory: {:?} for 1 MiB", start.elapsed() / 32);
    let ssd = driver.ssd;
    let disk = |offset| (EndpointKind::Block, ssd, Some(offset));
    let key = parameter::aes256_ctr(&KEY, &COUNTER);
    driver.transfer(disk(0), disk(ENCRYPTED), (Operator::Aes256Ctr, &key));
    println!("@encrypted");
    let listener = driver.admin(opcode::LISTEN, 0, [driver.nic, PORT.into(), 0, 0, 0, 0]);
    println!("@listening");
    let flow = driver.admin(opcode::ACCEPT, 0, [listener, 0, 0, 0, 0, 0]);
    let flow = (EndpointKind::Flow, flow, None);
    let digest = driver.transfer(disk(0), flow, (Operator::Md5, &[]));
    println!("@sent {}", hex(&digest));
    let digest = driver.transfer(flow, disk(RECEIVED), (Operator::Md5, &[]));
    println!("@received {}", hex(&digest));
    println!("@written {}", hex(&driver.read(RECEIVED)));
    let digest = driver.transfer(flow, disk(CODED), (Operator::Crc32c, &[]));
    println!("@coded {}", hex(&digest));
    println!("@guest's end");
}
