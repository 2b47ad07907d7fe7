//! Tests of the server and the bus with a client that plays QEMU, and with some that break the rules.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dcs_drivers::bus::{Bus, BusError, Tag};
use rustix::event::{EventfdFlags, eventfd};

use crate::memory::Memory;
use crate::pci::{Function, Identity, Interrupts, NoRegisters, Region, Registers, Setup};
use crate::socket::{self, Message, Reader};
use crate::wake::Wake;
use crate::wire::{Access, Header, Payload, command, reply};
use crate::{Port, Running, Server, Unreachable, VfioUserBus};

const LIMIT: Duration = Duration::from_secs(20);
const BAR2: u64 = 0x8000_0000;
const PEER: u64 = 0xfe00_0000;
const RAM: u64 = 0x10_0000;

/// Registers that are memory.
struct Plain([u8; 4096]);

impl Registers for Plain {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0[offset as usize..offset as usize + bytes.len()]);
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }
    fn reset(&mut self) {
        self.0.fill(0);
    }
}

struct Card {
    _running: Running,
    bus: VfioUserBus,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn card() -> Card {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let setup = Setup {
        identity: Identity::ACCELERATOR,
        registers: 4096,
        memory: 0x1_0000,
        aperture: 0,
        interrupts: Interrupts::MsiX(4),
    };
    let function = Function::new(setup, Box::new(Plain([0; 4096]))).unwrap();
    let (server, bus) = Server::bind(&path, function, Wake::new().unwrap()).unwrap();
    Card { _running: server.start().unwrap(), bus, path, _folder: folder }
}

type Answers = Receiver<(Header, Vec<u8>, Vec<OwnedFd>)>;

/// A client with a peer device of 4 KiB behind [`PEER`], and, once it is mapped, the card's own BAR2.
struct Client {
    socket: Arc<UnixStream>,
    answers: Answers,
    peer: Arc<Mutex<Vec<u8>>>,
    id: u16,
}

impl Client {
    fn connect(path: &Path, payload: Payload) -> Client {
        let socket = Arc::new(UnixStream::connect(path).unwrap());
        let (sender, answers) = channel();
        let peer = Arc::new(Mutex::new(vec![0; 4096]));
        let mut side = Side { socket: socket.clone(), peer: peer.clone(), bar2: None, payload };
        std::thread::spawn(move || {
            let mut reader = Reader::new();
            while let Ok(Some(Message { header, body, fds })) = reader.receive(side.socket.as_fd()) {
                if !header.is_reply() {
                    side.answer(&header, &body);
                } else {
                    // The first descriptor that comes is BAR2's.
                    if let Some(file) = fds.first() {
                        side.bar2 = Some(Memory::of(file.as_fd(), true, u64::MAX).unwrap());
                    }
                    let _ = sender.send((header, body, fds));
                }
            }
        });
        let mut client = Client { socket, answers, peer, id: 0x8000 };
        client.ask(command::VERSION, &[0, 0, 1, 0], &[]).unwrap();
        client
    }

    /// Makes a client in the state after boot: regions are known, addresses set, memory and bus mastering on.
    fn boot(card: &Card, payload: Payload) -> Client {
        let mut client = Client::connect(&card.path, payload);
        let (body, fds) = client.ask(command::GET_REGION_INFO, &words(&[32, 0, 2, 0]), &[]).unwrap();
        assert_eq!((&body[4..8], fds), (&[7, 0, 0, 0][..], 1));
        client.config(0x18, &BAR2.to_le_bytes());
        client.config(4, &[6, 0]);
        client
    }

    fn config(&mut self, offset: u64, bytes: &[u8]) {
        self.write(7, offset, bytes).unwrap();
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(Vec<u8>, usize), u32> {
        let body = [reply::access(&Access { offset, region, count: bytes.len() as u32 }), bytes.to_vec()];
        self.ask(command::REGION_WRITE, &body.concat(), &[])
    }

    fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let body = reply::access(&Access { offset, region, count });
        Ok(self.ask(command::REGION_READ, &body, &[])?.0.split_off(16))
    }

    fn map(&mut self, address: u64, length: u64, file: Option<BorrowedFd<'_>>) -> Result<(), u32> {
        let body = [words(&[32, 3]), wide(&[0, address, length])].concat();
        self.ask(command::DMA_MAP, &body, file.as_slice()).map(|_| ())
    }

    /// Sends a request and returns the answer: a body and a number of descriptors, or an errno.
    fn ask(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(Vec<u8>, usize), u32> {
        self.id += 1;
        let header = Header::request(self.id, command, body.len(), false);
        let message = [&header.to_bytes()[..], body].concat();
        socket::send(self.socket.as_fd(), &message, fds.first().copied()).unwrap();
        let (answer, body, fds) = self.answers.recv_timeout(LIMIT).unwrap();
        assert_eq!((answer.id, answer.command), (self.id, command));
        answer.failure().map_or(Ok((body, fds.len())), Err)
    }

    fn irqs(&mut self, start: u32, count: u32, fd: Option<BorrowedFd<'_>>) -> Result<(), u32> {
        self.irqs_of(2, start, count, fd)
    }

    fn irqs_of(&mut self, kind: u32, start: u32, count: u32, fd: Option<BorrowedFd<'_>>) -> Result<(), u32> {
        self.ask(command::SET_IRQS, &words(&[20, 4 | 32, kind, start, count]), fd.as_slice()).map(|_| ())
    }

    fn unmap(&mut self, address: u64, length: u64) -> Result<(), u32> {
        self.ask(command::DMA_UNMAP, &[words(&[24, 0]), wide(&[address, length])].concat(), &[]).map(|_| ())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// The half of the client that answers requests.
struct Side {
    socket: Arc<UnixStream>,
    peer: Arc<Mutex<Vec<u8>>>,
    bar2: Option<Memory>,
    payload: Payload,
}

impl Side {
    fn answer(&mut self, header: &Header, body: &[u8]) {
        let start = if self.payload == Payload::At32 { 16 } else { 12 };
        let address = u64::from_le_bytes(body[..8].try_into().unwrap());
        let count = u32::from_le_bytes(body[8..12].try_into().unwrap()) as usize;
        let mut bytes = body.get(start..start + count).map(<[u8]>::to_vec).unwrap_or(vec![0; count]);
        let write = header.command == command::DMA_WRITE;
        let found = self.access(address, &mut bytes, write);
        if header.is_posted() {
            return;
        }
        let mut answer = body[..start].to_vec();
        answer.extend(&bytes);
        answer.resize(16 + count, 0);
        let head = if found { Header::reply(header, answer.len()) } else { Header::refusal(header, 22) };
        let message = [&head.to_bytes()[..], if found { &answer } else { &[] }].concat();
        let _ = socket::send(self.socket.as_fd(), &message, None);
    }

    fn access(&mut self, address: u64, bytes: &mut [u8], write: bool) -> bool {
        let mut peer = self.peer.lock().unwrap();
        if let Some(at) = address.checked_sub(PEER).map(|at| at as usize)
            && at + bytes.len() <= peer.len()
        {
            let there = &mut peer[at..at + bytes.len()];
            if write {
                there.copy_from_slice(bytes)
            } else {
                bytes.copy_from_slice(there)
            }
            return true;
        }
        match (&self.bar2, address.checked_sub(BAR2)) {
            (Some(memory), Some(at)) if write && at < memory.length() => memory.store(at, bytes),
            (Some(memory), Some(at)) if at < memory.length() => memory.load(at, bytes),
            _ => return false,
        }
        true
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn wide(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn fetch(bus: &mut VfioUserBus, address: u64, length: u32) -> Result<Vec<u8>, BusError> {
    bus.read(address, length, Tag(7));
    bus.wait_for(Tag(7), LIMIT)
}

#[test]
fn a_peer_is_reached_wherever_the_payload_is() {
    for payload in [Payload::At32, Payload::At28] {
        let mut card = card();
        let client = Client::boot(&card, payload);
        let before = [7; 16];
        card.bus.store(0x100, &before);
        card.bus.write(PEER + 8, &[1, 2, 3, 4]);
        card.bus.write(PEER + 12, &[5, 6, 7, 8]);
        assert_eq!(fetch(&mut card.bus, PEER + 8, 8), Ok(vec![1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(fetch(&mut card.bus, PEER + 4090, 8), Err(BusError::Unsupported));
        assert_eq!(client.peer.lock().unwrap()[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut after = [0; 16];
        card.bus.load(0x100, &mut after);
        assert_eq!(before, after);
    }
}

#[test]
fn memory_is_reached_in_place() {
    let mut card = card();
    let mut client = Client::boot(&card, Payload::At32);
    let (ram, file) = Memory::create("ram", 0x1_0000).unwrap();
    client.map(RAM, 0x1_0000, Some(file.as_fd())).unwrap();
    ram.store(0x100, b"from the guest");
    assert_eq!(fetch(&mut card.bus, RAM + 0x100, 14), Ok(b"from the guest".to_vec()));
    card.bus.write(RAM + 0x200, b"from the card");
    let mut seen = [0; 13];
    ram.load(0x200, &mut seen);
    assert_eq!(&seen, b"from the card");
    // The own memory by its bus address.
    card.bus.write(BAR2 + 64, &[9; 8]);
    assert_eq!(fetch(&mut card.bus, BAR2 + 64, 8), Ok(vec![9; 8]));
    // Unmapped memory is no longer reached: it is gone, and the client knows nothing there.
    client.unmap(RAM, 0x1_0000).unwrap();
    card.bus.write(RAM + 0x200, b"too late     ");
    assert_eq!(fetch(&mut card.bus, RAM + 0x200, 13), Err(BusError::Unsupported));
    ram.load(0x200, &mut seen);
    assert_eq!(&seen, b"from the card");
}

#[test]
fn a_read_over_several_pieces_is_one_answer() {
    let mut card = card();
    let mut client = Client::boot(&card, Payload::At32);
    let (ram, file) = Memory::create("ram", 0x1000).unwrap();
    client.map(PEER + 0x1000, 0x1000, Some(file.as_fd())).unwrap();
    ram.store(0, &[2; 4]);
    client.peer.lock().unwrap()[0xffc..].fill(1);
    assert_eq!(fetch(&mut card.bus, PEER + 0xffc, 8), Ok(vec![1, 1, 1, 1, 2, 2, 2, 2]));
    card.bus.write(PEER + 0xffc, &[3, 3, 3, 3, 4, 4, 4, 4]);
    assert_eq!(fetch(&mut card.bus, PEER + 0xffc, 8), Ok(vec![3, 3, 3, 3, 4, 4, 4, 4]));
    assert_eq!(fetch(&mut card.bus, PEER + 0x1ffc, 8), Err(BusError::Unsupported));
}

#[test]
fn without_bus_mastering_nothing_leaves() {
    let mut card = card();
    let mut client = Client::boot(&card, Payload::At32);
    let (ram, file) = Memory::create("ram", 0x1000).unwrap();
    client.map(RAM, 0x1000, Some(file.as_fd())).unwrap();
    client.config(4, &[2, 0]);
    card.bus.write(RAM, &[1; 8]);
    card.bus.write(PEER, &[1; 8]);
    assert_eq!(fetch(&mut card.bus, RAM, 8), Err(BusError::Unsupported));
    client.config(4, &[6, 0]);
    assert_eq!(fetch(&mut card.bus, RAM, 8), Ok(vec![0; 8]));
    assert_eq!(fetch(&mut card.bus, PEER, 8), Ok(vec![0; 8]));
    client.ask(command::RESET, &[], &[]).unwrap();
    card.bus.write(RAM, &[1; 8]);
    let mut seen = [9; 8];
    ram.load(0, &mut seen);
    assert_eq!(seen, [0; 8]);
}

/// Checks that a copy into the client's memory that has begun is over before a reset is answered, and none begins after that, even if the
/// client re-enables bus mastering at once.
#[test]
fn a_reset_waits_for_copies_and_ends_those_to_come() {
    let mut card = card();
    let mut client = Client::boot(&card, Payload::At32);
    let (ram, file) = Memory::create("ram", 0x1000).unwrap();
    client.map(RAM, 0x1000, Some(file.as_fd())).unwrap();
    for reset in [true, false] {
        card.bus.acknowledge_resets();
        let state = card.bus.state().clone();
        let copying = state.maps.read().unwrap();
        std::thread::scope(|scope| {
            let client = &mut client;
            let answered = scope.spawn(move || match reset {
                true => _ = client.ask(command::RESET, &[], &[]).unwrap(),
                false => client.config(4, &[2, 0]),
            });
            while state.master.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            assert!(!answered.is_finished(), "a copy is in progress");
            drop(copying);
        });
        client.config(4, &[6, 0]);
        card.bus.write(RAM, &[1; 8]);
        let mut seen = [9; 8];
        ram.load(0, &mut seen);
        let late = if reset { [0; 8] } else { [1; 8] };
        assert_eq!(seen, late, "nothing arrives from before the reset");
    }
}

/// Checks that data sent by message arrive before a completion that is written in place.
#[test]
fn who_sees_a_completion_sees_its_data() {
    let mut card = card();
    let mut client = Client::boot(&card, Payload::At32);
    let (ram, file) = Memory::create("ram", 0x1000).unwrap();
    client.map(RAM, 0x1000, Some(file.as_fd())).unwrap();
    assert!(fetch(&mut card.bus, PEER, 4).is_ok());
    let bus = &mut card.bus;
    let completion = || {
        let mut seen = [0];
        ram.load(0, &mut seen);
        seen[0]
    };
    std::thread::scope(|scope| {
        // The client takes no data as long as this is held.
        let data = client.peer.lock().unwrap();
        scope.spawn(move || {
            bus.write(PEER, &[7; 512]);
            bus.write(RAM, &[1]);
        });
        // Allow time for the completion to come too early.
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!((completion(), data[0]), (0, 0));
    });
    assert_eq!((completion(), client.peer.lock().unwrap()[511]), (1, 7));
}

#[test]
fn interrupts_go_where_the_client_says() {
    let mut card = card();
    let mut client = Client::boot(&card, Payload::At32);
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    client.irqs(3, 1, Some(event.as_fd())).unwrap();
    card.bus.interrupt(2);
    card.bus.interrupt(3);
    card.bus.interrupt(3);
    card.bus.interrupt(99);
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), 2);
    client.irqs(3, 1, None).unwrap();
    card.bus.interrupt(3);
    assert_eq!(rustix::io::read(&event, &mut count), Err(rustix::io::Errno::AGAIN), "nothing");
    for (start, count) in [(4, 1), (3, 2), (u32::MAX, 2), (0, u32::MAX), (0, 2)] {
        assert_eq!(client.irqs(start, count, Some(event.as_fd())), Err(22), "{start} {count}");
    }
    let file = File::open("/dev/null").unwrap();
    assert_eq!(client.irqs(0, 1, Some(file.as_fd())), Err(22), "a write to it might wait");
}

#[test]
fn the_next_client_finds_a_function_as_new() {
    let mut card = card();
    let (resets, (ram, file)) = (card.bus.resets(), Memory::create("ram", 0x1000).unwrap());
    let mut first = Client::boot(&card, Payload::At28);
    first.map(RAM, 0x1000, Some(file.as_fd())).unwrap();
    first.write(0, 16, &[1; 4]).unwrap();
    assert!(fetch(&mut card.bus, PEER, 4).is_ok());
    drop(first);
    while card.bus.resets() == resets {
        std::thread::yield_now();
    }
    assert_eq!(fetch(&mut card.bus, RAM, 4), Err(BusError::Unsupported));
    let mut second = Client::boot(&card, Payload::At32);
    assert_eq!(
        fetch(&mut card.bus, PEER, 4),
        Err(BusError::Unsupported),
        "the owner is still at what was before"
    );
    card.bus.acknowledge_resets();
    assert_eq!(second.read(0, 16, 4), Ok(vec![0; 4]));
    assert_eq!(fetch(&mut card.bus, RAM, 4), Err(BusError::Unsupported), "the first client's");
    assert!(fetch(&mut card.bus, PEER, 4).is_ok());
    ram.store(0, &[0; 4]);
}

#[test]
fn a_client_that_leaves_ends_the_reads() {
    let mut card = card();
    let client = Client::boot(&card, Payload::At32);
    assert!(fetch(&mut card.bus, PEER, 4).is_ok());
    // The client no longer answers.
    let held = client.peer.lock().unwrap();
    card.bus.read(PEER, 4, Tag(1));
    card.bus.read(PEER, 4, Tag(2));
    client.socket.shutdown(std::net::Shutdown::Both).unwrap();
    for tag in [Tag(1), Tag(2)] {
        assert_eq!(card.bus.wait_for(tag, LIMIT), Err(BusError::Unsupported));
    }
    drop(held);
}

#[test]
fn a_client_that_asks_for_nonsense_is_refused_and_may_go_on() {
    let card = card();
    let mut client = Client::connect(&card.path, Payload::At32);
    let access = |region, offset, count| reply::access(&Access { offset, region, count });
    let map =
        |flags, offset, address, length| [words(&[32, flags]), wide(&[offset, address, length])].concat();
    let refused: &[(u16, Vec<u8>)] = &[
        (command::VERSION, vec![0, 0, 0, 0]),
        (command::VERSION, vec![1, 0, 0, 0]),
        (command::GET_REGION_INFO, words(&[32, 0, 9])),
        (command::GET_REGION_INFO, words(&[32, 0])),
        (command::GET_IRQ_INFO, words(&[16, 0, 5])),
        (command::REGION_READ, access(0, 4093, 4)),
        (command::REGION_READ, access(0, u64::MAX, 4)),
        (command::REGION_READ, access(1, 0, 4)),
        (command::REGION_READ, access(0, 0, u32::MAX)),
        (command::REGION_WRITE, access(0, 0, 4)),
        (command::DMA_MAP, map(3, 0, 0, 0)),
        (command::DMA_MAP, map(3, 0, u64::MAX, 2)),
        (command::DMA_UNMAP, [words(&[24, 0]), wide(&[0, 0])].concat()),
        (command::SET_IRQS, words(&[20, 8, 2, 0, 1])),
        (6, vec![]),
        (14, vec![]),
        (u16::MAX, vec![]),
    ];
    for (command, body) in refused {
        assert!(client.ask(*command, body, &[]).is_err(), "{command} {body:?}");
    }
    let short = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&short, 4096).unwrap();
    assert_eq!(client.map(RAM, 0x2000, Some(short.as_fd())), Err(22));
    client.map(RAM, 0x1000, Some(short.as_fd())).unwrap();
    assert!(rustix::fs::ftruncate(&short, 0).is_err(), "sealed before it was mapped");
    assert_eq!(client.read(7, 0, 2), Ok(Identity::ACCELERATOR.vendor.to_le_bytes().to_vec()));
}

#[test]
fn nothing_is_answered_before_the_version() {
    let card = card();
    let socket = UnixStream::connect(&card.path).unwrap();
    socket::send(socket.as_fd(), &Header::request(1, command::GET_INFO, 0, false).to_bytes(), None).unwrap();
    let answer = Reader::new().receive(socket.as_fd()).unwrap().unwrap();
    assert_eq!(answer.header.failure(), Some(71));
}

#[test]
fn a_stream_that_cannot_be_followed_is_hung_up_on() {
    let card = card();
    for bytes in [[0xff; 16], [0; 16]] {
        let mut socket = UnixStream::connect(&card.path).unwrap();
        socket.write_all(&bytes).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(socket.read(&mut [0; 16]).unwrap_or(0), 0);
    }
    Client::boot(&card, Payload::At32);
}

#[test]
fn answers_that_nobody_waits_for_are_dropped() {
    let mut card = card();
    let mut client = Client::boot(&card, Payload::At32);
    for id in 0..64 {
        let header = Header::reply(&Header::request(id, command::DMA_READ, 0, false), 3);
        let message = [&header.to_bytes()[..], &[1, 2, 3]].concat();
        socket::send(client.socket.as_fd(), &message, None).unwrap();
    }
    // A request behind them is answered when they are gone: from then on their numbers may be reused for reads.
    assert!(client.read(7, 0, 4).is_ok());
    assert_eq!(fetch(&mut card.bus, PEER, 4), Ok(vec![0; 4]));
}

#[test]
fn many_reads_at_once_are_each_answered() {
    let mut card = card();
    let client = Client::boot(&card, Payload::At32);
    for (at, byte) in client.peer.lock().unwrap().iter_mut().enumerate() {
        *byte = (at / 16) as u8;
    }
    let mut left: BTreeMap<u64, u8> = (0..256).map(|n| (n, n as u8)).collect();
    for n in 0..256 {
        card.bus.read(PEER + n * 16, 16, Tag(n));
    }
    for n in 0..256 {
        let byte = left.remove(&n).unwrap();
        assert_eq!(card.bus.wait_for(Tag(n), LIMIT), Ok(vec![byte; 16]));
    }
    assert!(card.bus.answer().is_none());
}

/// An NVMe controller: no own memory, no bus, and MSI.
struct Drive {
    _running: Running,
    port: Port,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn drive() -> Drive {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let setup = Setup {
        identity: Identity::NVME,
        registers: 0x4000,
        memory: 0,
        aperture: 0,
        interrupts: Interrupts::Msi(4),
    };
    let function = Function::new(setup, Box::new(NoRegisters)).unwrap();
    let (server, port) = Server::bind_port(&path, function, Wake::new().unwrap()).unwrap();
    Drive { _running: server.start().unwrap(), port, path, _folder: folder }
}

#[test]
fn a_port_reaches_memory_with_a_descriptor_and_nothing_else() {
    let drive = drive();
    let mut client = Client::connect(&drive.path, Payload::At32);
    let (ram, file) = Memory::create("ram", 0x2000).unwrap();
    client.map(RAM, 0x1000, Some(file.as_fd())).unwrap();
    let second = [words(&[32, 3]), wide(&[0x1000, RAM + 0x1000, 0x1000])].concat();
    client.ask(command::DMA_MAP, &second, &[file.as_fd()]).unwrap();
    client.map(RAM + 0x2000, 0x1000, None).unwrap();
    assert_eq!(drive.port.read(RAM, &mut [0; 4]), Err(Unreachable::Off));
    assert!(drive.port.direct(RAM, 4, false).is_none());
    client.config(4, &[6, 0]);
    ram.store(0xffc, b"two pieces");
    let mut seen = [0; 10];
    drive.port.read(RAM + 0xffc, &mut seen).unwrap();
    assert_eq!(&seen, b"two pieces");
    drive.port.write(RAM + 0xffe, &[7; 4]).unwrap();
    ram.load(0xffc, &mut seen);
    assert_eq!(&seen, b"tw\x07\x07\x07\x07eces");
    // Not all of it is mapped: nothing is written.
    assert_eq!(drive.port.write(RAM + 0x1fff, &[9; 2]), Err(Unreachable::Unmapped));
    ram.load(0x1ff6, &mut seen);
    assert_eq!(seen, [0; 10]);
    let direct = drive.port.direct(RAM + 0x800, 0x800, true).unwrap();
    direct.memory.store(direct.offset, &[5]);
    ram.load(0x800, &mut seen[..1]);
    assert_eq!(seen[0], 5);
    assert!(drive.port.direct(RAM + 0x800, 0x801, true).is_none(), "in two pieces");
    assert!(drive.port.direct(RAM + 0x2000, 4, true).is_none(), "without a descriptor");
}

/// Checks that requests to unmap memory, reset the function or end bus mastering are answered when nothing is in use any more.
#[test]
fn memory_that_is_in_use_is_waited_for() {
    let drive = drive();
    let mut client = Client::connect(&drive.path, Payload::At32);
    let (_ram, file) = Memory::create("ram", 0x1000).unwrap();
    let ends: [fn(&mut Client); 4] = [
        |client| client.unmap(RAM, 0x1000).unwrap(),
        |client| _ = client.ask(command::RESET, &[], &[]).unwrap(),
        |client| client.config(4, &[2, 0]),
        |client| client.config(0x69, &[0x80]),
    ];
    for end in ends {
        client.map(RAM, 0x1000, Some(file.as_fd())).unwrap();
        client.config(4, &[6, 0]);
        let direct = drive.port.direct(RAM, 0x1000, true).unwrap();
        std::thread::scope(|scope| {
            let client = &mut client;
            let answered = scope.spawn(move || end(client));
            while drive.port.read(RAM, &mut [0]).is_ok() {
                std::thread::yield_now();
            }
            assert!(!answered.is_finished(), "the memory is in use");
            drop(direct);
        });
        client.config(4, &[6, 0]);
        let _ = client.unmap(RAM, 0x1000);
    }
}

#[test]
fn who_ends_bus_mastering_waits_for_what_is_being_written() {
    let drive = drive();
    let mut client = Client::connect(&drive.path, Payload::At32);
    assert!(drive.port.hold_mastering().is_none());
    client.config(4, &[6, 0]);
    let writing = drive.port.hold_mastering().expect("it is a bus master");
    std::thread::scope(|scope| {
        let answered = scope.spawn(|| client.config(4, &[2, 0]));
        while drive.port.is_master() {
            std::thread::yield_now();
        }
        assert!(drive.port.hold_mastering().is_none());
        assert!(!answered.is_finished(), "a write is in progress");
        drop(writing);
    });
}

/// Stores: addresses and bytes.
type Stores = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// Records stores to the aperture.
struct Aperture(Stores);

impl Registers for Aperture {
    fn read(&mut self, _offset: u64, bytes: &mut [u8]) {
        bytes.fill(1);
    }
    fn write(&mut self, _offset: u64, _bytes: &[u8]) {}
    fn write_aperture(&mut self, offset: u64, bytes: &[u8]) {
        self.0.lock().unwrap().push((offset, bytes.to_vec()));
    }
    fn reset(&mut self) {}
}

#[test]
fn a_function_is_found_by_the_addresses_of_its_bars_while_it_answers_to_them() {
    const BAR0: u64 = 0xfe00_0000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("function");
    let setup = Setup {
        identity: Identity::ACCELERATOR,
        registers: 0x2000,
        memory: 0,
        aperture: 0x10_0000,
        interrupts: Interrupts::MsiX(1),
    };
    let seen = Stores::default();
    let function = Function::new(setup, Box::new(Aperture(seen.clone()))).unwrap();
    let (server, port) = Server::bind_port(&path, function, Wake::new().unwrap()).unwrap();
    let _running = server.start().unwrap();
    let mut client = Client::connect(&path, Payload::At32);
    client.config(0x10, &BAR0.to_le_bytes());
    client.config(0x18, &BAR2.to_le_bytes());
    assert_eq!(port.bar(BAR0, 8), None, "memory space is off");
    client.config(4, &[2, 0]);
    assert!(!port.is_master());
    for (address, length, found) in [
        (BAR0, 8, Some((Region::Bar0, 0))),
        (BAR0 + 0x1ff8, 8, Some((Region::Bar0, 0x1ff8))),
        (BAR0 + 0x1ff9, 8, None),
        (BAR0 - 1, 8, None),
        (BAR2 + 0xf_f000, 0x1000, Some((Region::Bar2, 0xf_f000))),
        (BAR2 + 0xf_f001, 0x1000, None),
        (u64::MAX, 8, None),
        (BAR2, u64::MAX, None),
    ] {
        assert_eq!(port.bar(address, length), found, "{length:#x} bytes at {address:#x}");
    }
    client.write(2, 0x8_0000, &[1, 2, 3, 4]).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(0x8_0000, vec![1, 2, 3, 4])]);
    assert_eq!(client.read(2, 0x8_0000, 4), Ok(vec![0; 4]), "it is not memory");
    assert!(client.write(2, 0xf_fffe, &[0; 4]).is_err(), "beyond its end");
    client.ask(command::RESET, &[], &[]).unwrap();
    assert_eq!(port.bar(BAR2, 8), None);
}

/// Accesses that were begun before a reset fail until the owner says that it knows of the reset.
#[test]
fn a_port_reaches_nothing_between_a_reset_and_its_owner_s_word() {
    let mut drive = drive();
    let mut client = Client::connect(&drive.path, Payload::At32);
    let (_ram, file) = Memory::create("ram", 0x2000).unwrap();
    client.map(RAM, 0x1000, Some(file.as_fd())).unwrap();
    client.config(4, &[6, 0]);
    drive.port.acknowledge_resets();
    assert_eq!(drive.port.write(RAM, b"now"), Ok(()));
    client.ask(command::RESET, &[], &[]).unwrap();
    client.config(4, &[6, 0]);
    assert!(drive.port.is_master());
    assert_eq!(drive.port.write(RAM, b"old"), Err(Unreachable::Off));
    assert_eq!(drive.port.read(RAM, &mut [0; 3]), Err(Unreachable::Off));
    assert!(drive.port.direct(RAM, 3, true).is_none());
    drive.port.acknowledge_resets();
    assert_eq!(drive.port.write(RAM, b"new"), Ok(()));
}

/// Has the client, which shares the event's file, make writers block and fill the counter.
#[test]
fn a_client_that_fills_its_event_does_not_stop_who_interrupts_it() {
    let drive = drive();
    let mut client = Client::connect(&drive.path, Payload::At32);
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    client.irqs_of(1, 3, 1, Some(event.as_fd())).unwrap();
    let flags = rustix::fs::fcntl_getfl(&event).unwrap();
    rustix::fs::fcntl_setfl(&event, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let (told, done) = std::sync::mpsc::channel();
    let port = drive.port.clone();
    std::thread::spawn(move || {
        port.interrupt(3);
        told.send(()).unwrap();
    });
    let done = done.recv_timeout(LIMIT);
    // Releases a writer that blocks.
    rustix::io::read(&event, &mut [0; 8]).unwrap();
    done.expect("it is not waited for");
    // A file with such a name is not an eventfd.
    let named = File::create(drive.path.with_file_name("[eventfd]")).unwrap();
    assert_eq!(client.irqs_of(1, 3, 1, Some(named.as_fd())), Err(22));
}

#[test]
fn a_function_with_msi_has_no_other_interrupts_and_no_memory() {
    let drive = drive();
    let mut client = Client::connect(&drive.path, Payload::At32);
    for (kind, count) in [(0, 0), (1, 4), (2, 0)] {
        let (body, _) = client.ask(command::GET_IRQ_INFO, &words(&[16, 0, kind, 0]), &[]).unwrap();
        assert_eq!(body[12..16], [count, 0, 0, 0]);
    }
    for region in [1, 2, 3, 4, 5, 6, 8] {
        let (body, fds) = client.ask(command::GET_REGION_INFO, &words(&[32, 0, region, 0]), &[]).unwrap();
        assert_eq!((&body[16..24], fds), (&[0; 8][..], 0), "region {region}");
    }
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    assert_eq!(client.irqs_of(2, 0, 1, Some(event.as_fd())), Err(22));
    client.irqs_of(1, 3, 1, Some(event.as_fd())).unwrap();
    drive.port.interrupt(3);
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), 1);
    assert!(client.read(2, 0, 4).is_err() && client.read(4, 0, 4).is_err());
}
