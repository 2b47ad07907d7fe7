//! Target of `dcs-vfio-user`: messages of a vfio-user client.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use dcs_drivers::bus::{Bus, Tag};
use dcs_vfio_user::pci::{Function, Identity, Interrupts, Registers, Setup};
use dcs_vfio_user::switch::{Batch, HEAD as HEAD_OF_POSTED, LARGEST, Posted};
use dcs_vfio_user::wake::Wake;
use dcs_vfio_user::wire::{HEADER, Header, MAX_MESSAGE, Request};
use dcs_vfio_user::{Server, VfioUserBus};

/// Sends a client's stream. Each message in it is also parsed separately. Checks that a server survives the stream and answers
/// the next client, and passes the same bytes to the switch as those of another function.
pub fn vfio_user(data: &[u8]) {
    switch(data);
    let mut left = data;
    while let Some((head, body)) = left.split_first_chunk::<HEADER>() {
        let Ok(header) = Header::parse(head) else { break };
        assert_eq!(header.to_bytes(), *head);
        assert!(header.body() + HEADER <= MAX_MESSAGE);
        let body = &body[..header.body().min(body.len())];
        parse(header.command, body);
        left = &left[HEADER + body.len()..];
    }
    CARD.with_borrow_mut(|card| card.get_or_insert_with(Card::new).serve(data));
}

/// Checks that writes are contiguous, each within its bounds, and that the rest is an incomplete write or nothing.
fn switch(mut data: &[u8]) {
    let mut again = Batch::default();
    while let Ok(Some(posted)) = Posted::parse(data) {
        assert!((1..=LARGEST).contains(&posted.data.len()) && posted.size() <= data.len());
        again.add(posted.address, posted.data);
        data = &data[posted.size()..];
    }
    assert!(Posted::parse(data).is_err() || data.len() < HEAD_OF_POSTED + LARGEST);
}

fn parse(command: u16, body: &[u8]) {
    match Request::parse(command, body) {
        Ok(Request::Write(access, data)) => assert_eq!(access.count as usize, data.len()),
        Ok(Request::WriteMulti(writes)) => {
            assert!(
                writes.iter().all(|(access, data)| access.count as usize == data.len() && data.len() <= 8)
            );
        }
        Ok(_) | Err(_) => {}
    }
}

thread_local! {
    static CARD: RefCell<Option<Card>> = const { RefCell::new(None) };
}

struct Card {
    server: Server,
    bus: VfioUserBus,
    _folder: tempfile::TempDir,
}

/// Registers that check that offsets are in BAR0.
struct Bounded;

impl Registers for Bounded {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) {
        assert!(offset + bytes.len() as u64 <= 0x2000);
        bytes.fill(0);
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= 0x2000);
    }
    fn reset(&mut self) {}
}

impl Card {
    fn new() -> Card {
        let setup = Setup {
            identity: Identity::NVME,
            registers: 0x2000,
            memory: 0x4000,
            aperture: 0,
            interrupts: Interrupts::MsiX(3),
        };
        let function = Function::new(setup, Box::new(Bounded)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (server, bus) =
            Server::bind(&folder.path().join("card"), function, Wake::new().unwrap()).unwrap();
        Card { server, bus, _folder: folder }
    }

    fn serve(&mut self, data: &[u8]) {
        let (mut client, socket) = UnixStream::pair().unwrap();
        let data = data.to_vec();
        let thread = std::thread::spawn(move || {
            // The server may close before it has read everything.
            let _ = client.write_all(&data);
            let _ = client.shutdown(Shutdown::Write);
            let _ = client.read_to_end(&mut Vec::new());
        });
        let resets = self.bus.resets();
        self.server.serve(socket);
        thread.join().unwrap();
        assert!(self.bus.resets() > resets, "the client is gone");
        assert!(!self.bus.is_master() && self.bus.window().address == 0, "nothing is left of it");
        self.bus.read(0, 8, Tag(1));
        assert!(self.bus.answer().unwrap().data.is_err());
    }
}
