//! Datagrams of one peer to one port as a source of transfers, and their distribution among commands.
//!
//! The payloads of datagrams are appended to the blocks of a command's reads until the command has the length that it requested; then it is
//! the next command's turn. A datagram belongs to one command: one that is too long for it fails the command and stays for the next.
//! Datagrams that arrive while no command waits are held, up to a bound, and dropped beyond it.

use crate::bus::Bus;
use dcs_abi::status::Status;
use dcs_engine::{CommandId, DeviceEvent, Failure, OperationId, Outcome};
use std::collections::VecDeque;

/// errno for a datagram that is longer than the command's remaining length (EMSGSIZE).
const TOO_LONG: u32 = 90;

/// Most datagrams held for one endpoint.
pub const DATAGRAMS_MAX: usize = 256;

/// A read of the command named `C`.
#[derive(Clone, Copy, Debug)]
pub struct Read<C = CommandId> {
    /// Command that reads.
    pub command: C,
    /// Operation of the command.
    pub operation: OperationId,
    /// Offset in own memory of the next byte.
    pub memory: u64,
    /// Bytes to read.
    pub length: u32,
    /// Bytes that the command still lacks when its earlier reads are done, including those of this read.
    pub missing: u64,
}

/// The command that currently receives datagrams.
#[derive(Debug)]
struct Turn<C> {
    command: C,
    /// End of its last datagram, for which its reads so far had no room.
    rest: VecDeque<u8>,
}

/// The datagrams of one endpoint, and the reads that wait for them.
#[derive(Debug)]
pub struct Datagrams<C = CommandId> {
    /// Payload of each datagram that is sent, except the last one of a block, in bytes.
    pub payload: u16,
    /// `PATH_*` of the command set, reported for the endpoint's bytes.
    path: u32,
    /// Reads in the order in which they were submitted, with the bytes that each has so far.
    reads: VecDeque<(Read<C>, u32)>,
    turn: Option<Turn<C>>,
    held: VecDeque<Vec<u8>>,
    /// Datagrams that were dropped for lack of room.
    pub dropped: u64,
}

impl<C: Copy + PartialEq> Datagrams<C> {
    /// Makes an endpoint without datagrams and reads. Its bytes are reported as `path`.
    pub fn new(payload: u16, path: u32) -> Datagrams<C> {
        let (reads, held) = Default::default();
        Datagrams { payload, path, reads, turn: None, held, dropped: 0 }
    }

    /// Returns the number of datagrams held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Queues a command's read.
    pub fn read(&mut self, read: Read<C>) {
        self.reads.push_back((read, 0));
    }

    /// Processes a datagram that has arrived; `room`: one more may be held.
    pub fn arrived(&mut self, bytes: Vec<u8>, room: bool) {
        // A datagram that a read takes at once needs no room.
        if (room && self.held.len() < DATAGRAMS_MAX) || (self.held.is_empty() && !self.reads.is_empty()) {
            self.held.push_back(bytes);
        } else {
            self.dropped += 1;
        }
    }

    /// Ends a command's turn: it is over, or will read no more. The rest of its datagram is dropped.
    pub fn forget(&mut self, command: C) {
        self.turn.take_if(|turn| turn.command == command);
    }

    /// Fails a read that was aborted; returns false if there is no such read.
    pub fn abort(&mut self, operation: OperationId, events: &mut VecDeque<DeviceEvent>) -> bool {
        let Some(at) = self.reads.iter().position(|(read, _)| read.operation == operation) else {
            return false;
        };
        if let Some((read, _)) = self.reads.remove(at) {
            events.push_back(failed(&read, Failure::new(Status::Cancelled)));
        }
        true
    }

    /// Fails all reads: the host closes the endpoint, or the NIC is gone.
    pub fn close(&mut self, events: &mut VecDeque<DeviceEvent>) {
        let failure = Failure::new(Status::PeerReset);
        events.extend(self.reads.drain(..).map(|(read, _)| failed(&read, failure)));
    }

    /// Copies datagrams to the reads of the current command.
    pub fn settle(&mut self, bus: &mut dyn Bus, events: &mut VecDeque<DeviceEvent>) {
        while let Some(at) = self.next_read() {
            let read = self.reads[at].0;
            if self.turn.as_ref().is_none_or(|turn| turn.rest.is_empty()) {
                let Some(next) = self.held.front() else { return };
                if next.len() as u64 > read.missing {
                    self.refuse(read.command, events);
                    continue;
                }
                let rest = self.held.pop_front().unwrap_or_default().into();
                self.turn = Some(Turn { command: read.command, rest });
            }
            self.fill(at, bus, events);
        }
    }

    /// Returns the index of the current command's first read.
    fn next_read(&self) -> Option<usize> {
        match &self.turn {
            Some(turn) => self.reads.iter().position(|(read, _)| read.command == turn.command),
            None => (!self.reads.is_empty()).then_some(0),
        }
    }

    fn fill(&mut self, at: usize, bus: &mut dyn Bus, events: &mut VecDeque<DeviceEvent>) {
        let (Some(turn), Some((read, filled))) = (&mut self.turn, self.reads.get_mut(at)) else { return };
        let count = turn.rest.len().min((read.length - *filled) as usize);
        let bytes: Vec<u8> = turn.rest.drain(..count).collect();
        bus.store(read.memory + u64::from(*filled), &bytes);
        *filled += count as u32;
        read.missing -= count as u64;
        if *filled < read.length {
            return;
        }
        let moved = Outcome::Moved { bytes: read.length.into(), path: self.path, held: false };
        events.push_back(DeviceEvent::Done(read.operation, moved));
        if read.missing == 0 {
            self.turn = None;
        }
        self.reads.remove(at);
    }

    /// Fails a command for which the next datagram is too long.
    fn refuse(&mut self, command: C, events: &mut VecDeque<DeviceEvent>) {
        let failure = Failure { status: Status::ReadError, errno: TOO_LONG };
        let of_it = self.reads.iter().filter(|(read, _)| read.command == command);
        events.extend(of_it.map(|(read, _)| failed(read, failure)));
        self.reads.retain(|(read, _)| read.command != command);
        self.forget(command);
    }
}

fn failed<C>(read: &Read<C>, failure: Failure) -> DeviceEvent {
    DeviceEvent::Done(read.operation, Outcome::Failed(failure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbus::TestBus;

    struct Rig {
        datagrams: Datagrams<char>,
        bus: TestBus,
        events: VecDeque<DeviceEvent>,
        /// Next byte to arrive.
        next: u8,
    }

    impl Rig {
        fn new() -> Rig {
            Rig {
                datagrams: Datagrams::new(100, 0),
                bus: TestBus::memory(1000),
                events: VecDeque::new(),
                next: 0,
            }
        }

        fn read(&mut self, command: char, operation: u64, memory: u64, length: u32, missing: u64) {
            let operation = OperationId::from_bits(operation);
            self.datagrams.read(Read { command, operation, memory, length, missing });
            self.datagrams.settle(&mut self.bus, &mut self.events);
        }

        /// Delivers a datagram: the stream of all of them is 0, 1, 2, ...
        fn arrive(&mut self, length: u8) {
            self.datagrams.arrived((self.next..self.next + length).collect(), true);
            self.next += length;
            self.datagrams.settle(&mut self.bus, &mut self.events);
        }

        /// Returns the ends of operations so far: operation, and bytes or status.
        fn ended(&mut self) -> Vec<(u64, Result<u64, Status>)> {
            let ended = |event| match event {
                DeviceEvent::Done(operation, Outcome::Moved { bytes, .. }) => {
                    (operation.to_bits(), Ok(bytes))
                }
                DeviceEvent::Done(operation, Outcome::Failed(failure)) => {
                    (operation.to_bits(), Err(failure.status))
                }
                other => panic!("{other:?}"),
            };
            self.events.drain(..).map(ended).collect()
        }

        fn has(&self, at: usize, first: u8, length: u8) -> bool {
            self.bus.memory[at..][..length.into()].iter().copied().eq(first..first + length)
        }
    }

    #[test]
    fn payloads_are_put_one_behind_the_other_whatever_the_blocks() {
        let mut rig = Rig::new();
        rig.arrive(10);
        rig.read('a', 1, 0, 16, 30);
        assert_eq!(rig.ended(), []);
        rig.arrive(12);
        assert_eq!(rig.ended(), [(1, Ok(16))]);
        assert!(rig.has(0, 0, 16));
        // Another command's reads get neither the rest of a datagram nor the next one.
        rig.read('b', 2, 500, 10, 10);
        rig.arrive(8);
        assert_eq!(rig.ended(), []);
        rig.read('a', 3, 100, 14, 14);
        assert_eq!(rig.ended(), [(3, Ok(14))]);
        assert!(rig.has(100, 16, 14));
        rig.arrive(10);
        assert_eq!(rig.ended(), [(2, Ok(10))]);
        assert!(rig.has(500, 30, 10));
    }

    #[test]
    fn a_datagram_that_is_too_long_fails_a_command_and_is_the_next_one_s() {
        let mut rig = Rig::new();
        rig.read('a', 1, 0, 10, 15);
        rig.read('a', 2, 10, 5, 5);
        rig.read('b', 3, 100, 8, 8);
        rig.arrive(9);
        rig.arrive(8);
        assert_eq!(rig.ended(), [(1, Err(Status::ReadError)), (2, Err(Status::ReadError)), (3, Ok(8))]);
        assert!(rig.has(100, 9, 8));
        // One that fits exactly ends it.
        rig.read('c', 4, 0, 8, 8);
        rig.arrive(8);
        assert_eq!(rig.ended(), [(4, Ok(8))]);
    }

    #[test]
    fn what_a_command_had_is_gone_with_it_and_no_more() {
        let mut rig = Rig::new();
        rig.read('a', 1, 0, 10, 40);
        rig.arrive(15);
        assert_eq!(rig.ended(), [(1, Ok(10))]);
        rig.read('b', 2, 500, 7, 7);
        rig.arrive(7);
        rig.read('a', 3, 100, 30, 30);
        assert!(rig.datagrams.abort(OperationId::from_bits(3), &mut rig.events));
        assert!(!rig.datagrams.abort(OperationId::from_bits(3), &mut rig.events));
        assert_eq!(rig.ended(), [(3, Err(Status::Cancelled))]);
        rig.datagrams.forget('x');
        rig.datagrams.settle(&mut rig.bus, &mut rig.events);
        assert_eq!(rig.ended(), [], "it is not over");
        rig.bus.memory.fill(0xee);
        rig.datagrams.forget('a');
        rig.datagrams.settle(&mut rig.bus, &mut rig.events);
        // The first command took the second datagram, since there was room.
        assert_eq!(rig.ended(), []);
        rig.arrive(7);
        assert_eq!(rig.ended(), [(2, Ok(7))]);
        assert!(rig.has(500, 22, 7) && rig.bus.memory[..500].iter().all(|byte| *byte == 0xee));
        rig.read('c', 4, 0, 7, 7);
        rig.datagrams.close(&mut rig.events);
        assert_eq!(rig.ended(), [(4, Err(Status::PeerReset))]);
    }

    #[test]
    fn what_nobody_waits_for_is_held_up_to_a_bound() {
        let mut rig = Rig::new();
        for at in 0..DATAGRAMS_MAX + 5 {
            rig.datagrams.arrived(vec![at as u8], true);
        }
        assert_eq!((rig.datagrams.held(), rig.datagrams.dropped), (DATAGRAMS_MAX, 5));
        rig.datagrams.arrived(vec![1], false);
        assert_eq!(rig.datagrams.dropped, 6);
        rig.read('a', 1, 0, 256, 257);
        rig.read('a', 2, 256, 1, 1);
        assert_eq!((rig.ended(), rig.datagrams.held()), (vec![(1, Ok(256))], 0));
        // A read that waits needs no room.
        rig.datagrams.arrived(vec![1], false);
        rig.datagrams.settle(&mut rig.bus, &mut rig.events);
        assert_eq!((rig.ended(), rig.datagrams.dropped), (vec![(2, Ok(1))], 6));
    }
}
