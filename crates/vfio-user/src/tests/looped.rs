//! Tests of a drive whose doorbells a loop takes itself.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Client, LIMIT, Stores};
use crate::inbox::Inbox;
use crate::pci::{Function, Identity, Interrupts, Registers, Setup};
use crate::wake::Wake;
use crate::wire::{Access, Header, Payload, command, reply};
use crate::{Running, Server};

/// A drive whose doorbells a loop takes, and all that was written to its registers.
struct Looped {
    inbox: Inbox,
    wake: Wake,
    seen: Stores,
    path: PathBuf,
    running: Option<Running>,
    _folder: tempfile::TempDir,
}

/// Records stores to BAR0.
struct Doorbells(Stores);

impl Registers for Doorbells {
    fn read(&mut self, _offset: u64, bytes: &mut [u8]) {
        bytes.fill(self.0.lock().unwrap().len() as u8);
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0.lock().unwrap().push((offset, bytes.to_vec()));
    }
    fn reset(&mut self) {
        self.0.lock().unwrap().clear();
    }
}

fn looped() -> Looped {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let (registers, interrupts) = (0x4000, Interrupts::Msi(4));
    let setup = Setup { identity: Identity::NVME, registers, memory: 0, aperture: 0, interrupts };
    let (seen, wake) = (Stores::default(), Wake::new().unwrap());
    let function = Function::new(setup, Box::new(Doorbells(seen.clone()))).unwrap();
    let inbox = Inbox::new(&wake).unwrap();
    let (server, _port) = Server::bind_port(&path, function, wake.clone()).unwrap();
    let running = Some(server.start_lending(inbox.lender()).unwrap());
    Looped { inbox, wake, seen, path, running, _folder: folder }
}

impl Looped {
    /// Runs the loop until this many stores have come.
    fn await_stores(&mut self, count: usize) {
        let end = Instant::now() + LIMIT;
        while self.seen.lock().unwrap().len() < count {
            assert!(Instant::now() < end, "{} of {count}", self.seen.lock().unwrap().len());
            self.pass();
        }
    }

    /// One pass of the loop: it looks, and sleeps if there is nothing.
    fn pass(&mut self) {
        let sleep = |inbox: &mut Inbox| inbox.sleep(Some(Duration::from_millis(1)));
        self.wake.clone().sleep_by(&mut self.inbox, Inbox::take, sleep);
    }

    /// Runs the loop while another thread does this.
    fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            while !work.is_finished() {
                self.pass();
            }
            work.join().unwrap()
        })
    }
}

/// A message that stores a byte in BAR0, and wants no answer.
fn ring(byte: u8) -> Vec<u8> {
    let body = [reply::access(&Access { offset: 0x1000, region: 0, count: 1 }), vec![byte]].concat();
    [&Header::request(byte.into(), command::REGION_WRITE, body.len(), true).to_bytes()[..], &body].concat()
}

/// Whoever takes a message, all come in their order.
#[test]
fn a_loop_takes_the_doorbells_and_the_thread_the_rest() {
    let mut drive = looped();
    let path = drive.path.clone();
    let mut client = drive.during(|| Client::connect(&path, Payload::At32));
    for round in 0..20u8 {
        let mut first = client.socket.as_ref();
        for byte in 0..10 {
            first.write_all(&ring(byte)).unwrap();
        }
        if round % 2 == 0 {
            drive.await_stores(10);
        }
        let client = &mut client;
        assert_eq!(drive.during(|| client.read(0, 0x20, 1)), Ok(vec![10]));
        let seen: Vec<u8> = drive.seen.lock().unwrap().iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        drive.during(|| client.ask(command::RESET, &[], &[])).unwrap();
    }
    // A doorbell in pieces, and one with a message behind it.
    let (half, mut socket) = (ring(7), client.socket.as_ref());
    socket.write_all(&ring(6)).unwrap();
    drive.await_stores(1);
    socket.write_all(&half[..20]).unwrap();
    (0..3).for_each(|_| drive.pass());
    socket.write_all(&half[20..]).unwrap();
    drive.await_stores(2);
    // A message that is longer than what is read at once.
    let long = &[1; 10_000];
    assert_eq!(drive.during(|| client.write(0, 0x1000, long)).map(|_| ()), Ok(()));
    assert_eq!(drive.seen.lock().unwrap()[2].1, long);
}

/// A client that floods one drive with doorbells, and never stops, leaves the loop to another one's.
#[test]
fn a_flood_of_doorbells_takes_a_bounded_part_of_a_pass() {
    let mut drive = looped();
    let path = drive.path.clone();
    let client = drive.during(|| Client::connect(&path, Payload::At32));
    (client.socket.as_ref()).write_all(&ring(0)).unwrap();
    drive.await_stores(1);
    (0..3).for_each(|_| drive.pass());
    let flood: Vec<u8> = (0..1000).flat_map(|_| ring(1)).collect();
    client.socket.set_nonblocking(true).unwrap();
    let filled = (client.socket.as_ref()).write(&flood).unwrap();
    assert!(filled > 20_000);
    let before = drive.seen.lock().unwrap().len();
    drive.inbox.take();
    let taken = drive.seen.lock().unwrap().len() - before;
    assert!((1..=4096 / ring(1).len() + 1).contains(&taken), "{taken} in one pass");
}

#[test]
fn a_lent_session_ends_with_its_client_its_server_or_its_loop() {
    let mut drive = looped();
    let path = drive.path.clone();
    for round in 0..6 {
        let client = drive.during(|| Client::connect(&path, Payload::At32));
        (client.socket.as_ref()).write_all(&ring(1)).unwrap();
        drive.await_stores(1);
        match round {
            // A client that breaks the protocol, in the loop.
            0..3 => (client.socket.as_ref()).write_all(&[0; 64]).unwrap(),
            _ => client.socket.shutdown(std::net::Shutdown::Both).unwrap(),
        }
        let end = Instant::now() + LIMIT;
        while !drive.seen.lock().unwrap().is_empty() {
            assert!(Instant::now() < end, "the function is reset");
            drive.pass();
        }
    }
    let client = drive.during(|| Client::connect(&path, Payload::At32));
    (client.socket.as_ref()).write_all(&ring(1)).unwrap();
    drive.await_stores(1);
    (0..3).for_each(|_| drive.pass());
    let running = drive.running.take();
    drive.during(|| drop(running));

    let mut drive = looped();
    let path = drive.path.clone();
    let mut client = drive.during(|| Client::connect(&path, Payload::At32));
    (client.socket.as_ref()).write_all(&ring(1)).unwrap();
    drive.await_stores(1);
    drop(drive.inbox);
    // The thread goes on by itself.
    assert_eq!(client.read(0, 0x20, 1), Ok(vec![1]));
    (client.socket.as_ref()).write_all(&ring(2)).unwrap();
    assert_eq!(client.read(0, 0x20, 1), Ok(vec![2]));
}
