//! An integrated device: an SSD and a NIC with a TCP in one function (QuickSAN, BlueDBM). One command sends a
//! file's bytes.
//!
//! Its SSD is as fast as the others' ([`Media`]), its NIC sends on the same wires, and its TCP is the card's ([`dcs_net`]); there
//! is no bus between the two. It has only its built-in function: no operators, no receiving except acknowledgements, and no
//! cooperation with other devices. A command is 64 bytes in host memory, announced by a doorbell; its completion is 16 bytes
//! there, and an interrupt.

use crate::server::PORT;
use dcs_drivers::bus::BusError;
use dcs_engine::Nanos;
use dcs_fabric::nvme::{Media, Namespace};
use dcs_fabric::{Context, Device};
use dcs_net::{Chunk, Event, Flow, Frame, Piece, ReceivedFrame, Stack, Verdict, checksum::Sum};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Offset to which the bus address of a command is written.
pub const DOORBELL: u64 = 0x1000;
/// Bytes of a block of its memory.
const BLOCK: u64 = 64 << 10;
/// Blocks of its memory.
const BLOCKS: u64 = 64;
/// Time that its controller takes for a command: the same as the SSD model.
const FIRMWARE: Duration = Duration::from_micros(1);

/// Data to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Number of the connection, in the order of their creation.
    pub connection: u64,
    /// Position of the first byte on its SSD.
    pub position: u64,
    /// Length in bytes.
    pub length: u64,
    /// Address of the completion, and its contents.
    pub completion: (u64, u64),
}

impl Command {
    /// Encodes the command as in host memory.
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let words = [self.connection, self.position, self.length, self.completion.0, self.completion.1];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Command> {
        let bytes: &[u8; 64] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        Some(Command {
            connection: word(0),
            position: word(1),
            length: word(2),
            completion: (word(3), word(4)),
        })
    }
}

/// A command in progress.
struct Sending {
    command: Command,
    flow: Flow,
    read: u64,
    given: u64,
    /// Its end in the connection's stream, once all data are queued.
    end: Option<u64>,
}

#[derive(Debug)]
enum Wait {
    /// A command's bytes.
    Entry,
    /// The controller has parsed it.
    Understood(Command),
    /// A block of this command has been read.
    Read { name: u64, block: u64, length: u64 },
    /// The line is free.
    Line,
    /// A TCP timer is due.
    Tcp,
}

/// The device.
pub struct Integrated {
    namespace: Namespace,
    media: Media,
    rate: u64,
    stack: Stack,
    memory: Vec<u8>,
    free: Vec<u64>,
    media_free: Duration,
    flows: Vec<Flow>,
    sent: HashMap<Flow, u64>,
    sending: Vec<(u64, Sending)>,
    /// Blocks that were read and must be sent in order, by command.
    ready: HashMap<u64, VecDeque<(u64, u64)>>,
    waits: HashMap<u64, Wait>,
    next: u64,
    line_busy: bool,
    armed: Option<Nanos>,
}

impl Integrated {
    /// Returns a device with this SSD, at this address, that sends this many bits per second.
    pub fn new(namespace: Namespace, media: Media, rate: u64, config: dcs_net::Config) -> Integrated {
        let mut stack = Stack::new(config);
        stack.listen(PORT).expect("nobody has the port");
        Integrated {
            namespace,
            media,
            rate,
            stack,
            memory: vec![0; (BLOCK * BLOCKS) as usize],
            free: (0..BLOCKS).collect(),
            media_free: Duration::ZERO,
            flows: Vec::new(),
            sent: HashMap::new(),
            sending: Vec::new(),
            ready: HashMap::new(),
            waits: HashMap::new(),
            next: 0,
            line_busy: false,
            armed: None,
        }
    }

    /// Returns the number of connections made to it.
    pub fn connections(&self) -> usize {
        self.flows.len()
    }

    fn token(&mut self, wait: Wait) -> u64 {
        self.next += 1;
        self.waits.insert(self.next, wait);
        self.next
    }

    fn begin(&mut self, command: Command, cx: &mut Context<'_>) {
        let Some(flow) = self.flows.get(command.connection as usize).copied() else { return };
        self.next += 1;
        self.sending.push((self.next, Sending { command, flow, read: 0, given: 0, end: None }));
        self.go_on(cx);
    }

    /// Reads as long as there are free blocks, sends, and completes what was sent.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        self.read(cx);
        self.give();
        self.events(cx);
        self.complete(cx);
        self.transmit(cx);
        self.arm(cx);
    }

    fn read(&mut self, cx: &mut Context<'_>) {
        for at in 0..self.sending.len() {
            loop {
                let (name, sending) = &mut self.sending[at];
                let length = BLOCK.min(sending.command.length - sending.read);
                if length == 0 {
                    break;
                }
                let Some(block) = self.free.pop() else { return };
                let (name, position) = (*name, sending.command.position + sending.read);
                sending.read += length;
                let place = (block * BLOCK) as usize;
                self.namespace.load(position, &mut self.memory[place..place + length as usize]);
                // The medium's latency, and its rate for all.
                let moved = Duration::from_nanos(length * 1_000_000_000 / self.media.rate);
                self.media_free = self.media_free.max(cx.now() + self.media.read) + moved;
                let token = self.token(Wait::Read { name, block, length });
                cx.after(self.media_free - cx.now(), token);
            }
        }
    }

    /// Passes blocks that were read to TCP.
    fn give(&mut self) {
        for (name, sending) in &mut self.sending {
            let Some(ready) = self.ready.get_mut(name) else { continue };
            while let Some((block, length)) = ready.pop_front() {
                let piece = Piece { offset: block * BLOCK, length: length as u32 };
                let chunk = Chunk { piece, block, more: false };
                let Ok(start) = self.stack.send(sending.flow, chunk) else {
                    ready.push_front((block, length));
                    break;
                };
                sending.given += length;
                if sending.given == sending.command.length {
                    sending.end = Some(start + length);
                }
            }
        }
    }

    fn events(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
        while let Some(event) = self.stack.next_event() {
            match event {
                Event::Accepted { flow, .. } => self.flows.push(flow),
                Event::Sent { flow, offset } => _ = self.sent.insert(flow, offset),
                Event::Free { block, .. } => self.free.push(block),
                _ => {}
            }
        }
    }

    fn complete(&mut self, cx: &mut Context<'_>) {
        let sent = &self.sent;
        let done = |sending: &Sending| {
            sending.end.is_some_and(|end| sent.get(&sending.flow).is_some_and(|sent| *sent >= end))
        };
        let (over, left) =
            std::mem::take(&mut self.sending).into_iter().partition(|(_, sending)| done(sending));
        self.sending = left;
        let over: Vec<(u64, Sending)> = over;
        for (name, Sending { command, .. }) in over {
            self.ready.remove(&name);
            let mut completion = [0; 16];
            completion[..8].copy_from_slice(&command.completion.1.to_le_bytes());
            cx.write(command.completion.0, completion.to_vec());
            cx.interrupt(0);
        }
    }

    /// Sends one frame at a time, as the line takes them.
    fn transmit(&mut self, cx: &mut Context<'_>) {
        if self.line_busy {
            return;
        }
        let Some(frame) = self.stack.next_frame(cx.now().as_nanos() as Nanos) else { return };
        let bytes = self.assemble(&frame);
        self.line_busy = true;
        let bits = (bytes.len().max(60) as u64 + 24) * 8;
        let token = self.token(Wait::Line);
        cx.after(Duration::from_nanos(bits * 1_000_000_000 / self.rate), token);
        cx.send(bytes);
        self.stack.frame_sent(frame.id);
        self.events(cx);
        self.complete(cx);
    }

    /// Assembles a frame: headers, payload, checksum.
    fn assemble(&self, frame: &Frame) -> Vec<u8> {
        let mut bytes = frame.header.to_vec();
        for piece in &frame.payload {
            let at = piece.offset as usize;
            bytes.extend_from_slice(&self.memory[at..at + piece.length as usize]);
        }
        if let Some(checksum) = frame.checksum {
            let start = usize::from(checksum.start);
            let mut sum = Sum::new();
            // The field already holds the pseudo header's sum.
            sum.add(&bytes[start..]);
            let at = start + usize::from(checksum.offset);
            bytes[at..at + 2].copy_from_slice(&(!sum.value()).to_be_bytes());
        }
        bytes.resize(bytes.len().max(60), 0);
        bytes
    }

    fn arm(&mut self, cx: &mut Context<'_>) {
        let Some(at) = self.stack.deadline() else { return };
        let now = cx.now().as_nanos() as Nanos;
        if self.armed.is_none_or(|armed| armed > at || armed <= now) {
            self.armed = Some(at.max(now + 1));
            let token = self.token(Wait::Tcp);
            cx.after(Duration::from_nanos(at.saturating_sub(now).max(1)), token);
        }
    }
}

impl Device for Integrated {
    fn bars(&self) -> Vec<u64> {
        vec![0x4000]
    }

    fn read(&mut self, _: usize, _: u64, _: &mut [u8], _: &mut Context<'_>) {}

    fn write(&mut self, _: usize, offset: u64, bytes: &[u8], cx: &mut Context<'_>) {
        if let (DOORBELL, Ok(address)) = (offset, <[u8; 8]>::try_from(bytes)) {
            let token = self.token(Wait::Entry);
            cx.read(u64::from_le_bytes(address), 64, token);
        }
    }

    fn read_done(&mut self, token: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>) {
        let entry = matches!(self.waits.remove(&token), Some(Wait::Entry));
        let command = data.ok().filter(|_| entry).and_then(|bytes| Command::parse(&bytes));
        if let Some(command) = command {
            let token = self.token(Wait::Understood(command));
            cx.after(FIRMWARE, token);
        }
    }

    fn timer(&mut self, token: u64, cx: &mut Context<'_>) {
        match self.waits.remove(&token) {
            Some(Wait::Understood(command)) => return self.begin(command, cx),
            Some(Wait::Read { name, block, length }) => {
                self.ready.entry(name).or_default().push_back((block, length));
            }
            Some(Wait::Line) => self.line_busy = false,
            Some(Wait::Tcp) => {
                self.armed = None;
                self.stack.poll(cx.now().as_nanos() as Nanos);
            }
            Some(Wait::Entry) | None => {}
        }
        self.go_on(cx);
    }

    fn frame(&mut self, frame: Vec<u8>, cx: &mut Context<'_>) {
        let head = &frame[..frame.len().min(dcs_net::HEAD)];
        self.next += 1;
        let arrived = ReceivedFrame {
            buffer: self.next,
            head,
            length: frame.len() as u32,
            offset: 0,
            split: None,
            checksum: Verdict::Good,
        };
        self.stack.receive(&arrived, cx.now().as_nanos() as Nanos);
        self.events(cx);
        self.go_on(cx);
    }

    fn hang(&mut self, _: bool) {}

    fn reset(&mut self) {}
}
