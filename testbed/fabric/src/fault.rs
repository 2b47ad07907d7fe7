//! Faults: what goes wrong, where and how often. This module decides; the fabric and the models carry it out.

use std::ops::Range;
use std::time::Duration;

use dcs_drivers::bus::Window;
use dcs_testkit::Random;

/// A fault.
///
/// | strikes | faults |
/// |---|---|
/// | an NVMe command ([`When::Command`], [`When::Io`], [`When::Blocks`]) | `DropCompletion` to `StallCommand`, `Hang` to `Remove` |
/// | a transaction that the function makes ([`When::Write`], [`When::Read`]) | `DropTransaction` to `AbortTransaction`, `HangBus`, `Remove` |
/// | a frame in a NIC's rings ([`When::Fetch`], [`When::Store`]) | `DropCompletion` to `DuplicateCompletion`, `ShortDma` to `CorruptDma`, `WrongLength`, `ReceiveError`, `Hang` to `Remove` |
/// | a frame on the wire ([`When::Transmit`], [`When::Receive`]) | `DropFrame` to `CorruptFrame`, `Hang` to `Remove` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The command is done, but no completion is written. (In a NIC: no write-back to the descriptor.)
    DropCompletion,
    /// The completion comes this much later.
    DelayCompletion(Duration),
    /// The completion is written a second time, in the next entry of the queue. (In a NIC: to the next descriptor, which is not
    /// done.)
    DuplicateCompletion,
    /// The completion has the phase bit of the round before.
    WrongPhase,
    /// The completion names the command identifier of the command xor this.
    WrongCid(u16),
    /// The completion names the submission queue of the command xor this.
    WrongQueue(u16),
    /// The completion gives a submission queue head this many entries too far.
    WrongHead(u16),
    /// The command is not carried out: the completion has this status (SCT and SC, without the phase bit).
    BadStatus(u16),
    /// The command is carried out, but the completion has this status.
    FalseStatus(u16),
    /// The given number of bytes at the end are not moved; the completion is a success.
    ShortDma(u64),
    /// The data are moved to or from addresses this much higher; the completion is a success.
    MisdirectedDma(u64),
    /// One data bit is corrupted in transit; the completion is a success.
    CorruptDma,
    /// The command is lost in the device. An abort does not find it; other commands continue.
    LoseCommand,
    /// The command stays in the device until it is aborted; other commands continue.
    StallCommand,

    /// A receive descriptor's write-back gives this length.
    WrongLength(u16),
    /// A receive descriptor's write-back reports a line error for the frame.
    ReceiveError,

    /// A transaction vanishes. A read then ends with [`dcs_drivers::bus::BusError::Timeout`].
    DropTransaction,
    /// A transaction is delayed by this much. Those that must not pass it are delayed too: all after a write, none after a read.
    DelayTransaction(Duration),
    /// A transaction goes to an address this much higher.
    MisdirectTransaction(u64),
    /// A read ends with [`dcs_drivers::bus::BusError::Aborted`]; a write vanishes.
    AbortTransaction,

    /// A frame is lost between device and wire.
    DropFrame,
    /// A frame comes twice.
    DuplicateFrame,
    /// A frame arrives this much later: others pass it.
    DelayFrame(Duration),
    /// A bit of a frame is corrupted. The NIC drops it on receive, since the frame check sequence no longer matches, unless
    /// `undetected`.
    CorruptFrame {
        /// Recomputes the frame check sequence, as for a bit corrupted in a switch's memory.
        undetected: bool,
    },

    /// The device only answers register reads. A controller reset, or a reset of the function, recovers it.
    Hang,
    /// Like `Hang`, but only a reset of the function recovers it.
    HangHard,
    /// The function answers no reads: each ends with [`dcs_drivers::bus::BusError::Timeout`]. A reset of the function recovers
    /// it.
    HangBus,
    /// The function is pulled out: its reads get no answer or all ones (see [`crate::Fabric::absent`]), writes vanish.
    Remove,
}

/// The operations that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Commands of a queue (all queues if `None`) with an opcode (all if `None`).
    Command {
        /// Submission queue; 0 is the admin queue.
        queue: Option<u16>,
        /// Opcode, the command's first byte.
        opcode: Option<u8>,
    },
    /// Commands of I/O queues with an opcode (all if `None`).
    Io(Option<u8>),
    /// Commands of I/O queues that touch one of these logical blocks.
    Blocks(Range<u64>),
    /// Writes by the function to these of its addresses.
    Write(Window),
    /// Reads by the function from these of its addresses.
    Read(Window),
    /// Frames that a NIC takes from a transmit ring, before segmentation.
    Fetch,
    /// Frames that a NIC stores in a receive ring.
    Store,
    /// Frames that the function sends.
    Transmit,
    /// Frames that arrive at the function.
    Receive,
}

impl When {
    /// Returns the commands with this opcode in I/O queues or the admin queue.
    pub fn opcode(opcode: u8) -> When {
        When::Command { queue: None, opcode: Some(opcode) }
    }

    fn meets(&self, operation: &Operation) -> bool {
        let overlaps = |window: &Window, address: u64, length: u64| {
            let end = window.address.saturating_add(window.length);
            address < end && window.address < address.saturating_add(length)
        };
        match (self, operation) {
            (When::Command { queue, opcode }, Operation::Command { queue: q, opcode: o, .. }) => {
                queue.is_none_or(|queue| queue == *q) && opcode.is_none_or(|opcode| opcode == *o)
            }
            (When::Io(opcode), Operation::Command { queue, opcode: o, .. }) => {
                *queue != 0 && opcode.is_none_or(|opcode| opcode == *o)
            }
            (When::Blocks(range), Operation::Command { queue, blocks, .. }) => {
                *queue != 0 && range.start < blocks.end && blocks.start < range.end
            }
            (When::Write(window), Operation::Write { address, length })
            | (When::Read(window), Operation::Read { address, length }) => {
                overlaps(window, *address, *length)
            }
            (When::Transmit, Operation::Transmit)
            | (When::Receive, Operation::Receive)
            | (When::Fetch, Operation::Fetch)
            | (When::Store, Operation::Store) => true,
            _ => false,
        }
    }

    fn allows(&self, fault: Fault) -> bool {
        use Fault::*;
        let everywhere = matches!(fault, HangBus | Remove);
        let hang = matches!(fault, Hang | HangHard);
        let transaction = matches!(
            fault,
            DropTransaction | DelayTransaction(_) | MisdirectTransaction(_) | AbortTransaction
        );
        let frame = matches!(fault, DropFrame | DuplicateFrame | DelayFrame(_) | CorruptFrame { .. });
        let received = matches!(fault, WrongLength(_) | ReceiveError);
        let told = matches!(fault, DropCompletion | DelayCompletion(_) | DuplicateCompletion);
        let moved = matches!(fault, ShortDma(_) | MisdirectedDma(_) | CorruptDma);
        everywhere
            || match self {
                When::Command { .. } | When::Io(_) | When::Blocks(_) => !transaction && !frame && !received,
                When::Fetch => told || moved || hang,
                When::Store => told || moved || received || hang,
                When::Write(_) | When::Read(_) => transaction,
                When::Transmit | When::Receive => frame || hang,
            }
    }
}

/// A fault, its place, and its frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    when: When,
    fault: Fault,
    skip: u64,
    times: u64,
    met: u64,
    struck: u64,
    /// Chance out of 1,000, and the generator for the draws.
    chance: Option<(u16, Random)>,
}

impl Rule {
    /// Strikes the first matching operation.
    ///
    /// # Panics
    ///
    /// If the fault has no meaning for such operations.
    pub fn once(when: When, fault: Fault) -> Rule {
        assert!(when.allows(fault), "{fault:?} has no meaning for {when:?}");
        Rule { when, fault, skip: 0, times: 1, met: 0, struck: 0, chance: None }
    }

    /// Strikes every matching operation.
    ///
    /// # Panics
    ///
    /// The same as [`Rule::once`].
    pub fn always(when: When, fault: Fault) -> Rule {
        Rule { times: u64::MAX, ..Rule::once(when, fault) }
    }

    /// Strikes this many matching operations out of 1,000, drawn from a seed.
    ///
    /// # Panics
    ///
    /// The same as [`Rule::once`].
    pub fn sometimes(when: When, fault: Fault, out_of_1000: u16, seed: u64) -> Rule {
        Rule { chance: Some((out_of_1000, Random(seed))), ..Rule::always(when, fault) }
    }

    /// Lets the first `count` matching operations pass.
    pub fn after(self, count: u64) -> Rule {
        Rule { skip: count, ..self }
    }

    /// Limits the number of strikes.
    pub fn times(self, count: u64) -> Rule {
        Rule { times: count, ..self }
    }

    /// Returns the number of matching operations so far.
    pub fn met(&self) -> u64 {
        self.met
    }

    /// Returns the number of operations struck.
    pub fn struck(&self) -> u64 {
        self.struck
    }

    /// Counts an operation. Returns true if it is struck.
    fn strikes(&mut self, operation: &Operation) -> bool {
        if !self.when.meets(operation) {
            return false;
        }
        self.met += 1;
        let drawn = match &mut self.chance {
            Some((limit, random)) => random.chance((*limit).into()),
            None => true,
        };
        drawn && self.met > self.skip && self.met - self.skip <= self.times
    }
}

/// An operation, as the rules see it.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Command { queue: u16, opcode: u8, blocks: Range<u64> },
    Write { address: u64, length: u64 },
    Read { address: u64, length: u64 },
    Fetch,
    Store,
    Transmit,
    Receive,
}

/// The rules of one function.
#[derive(Debug, Default)]
pub(crate) struct Injector {
    rules: Vec<Rule>,
    struck: u64,
}

impl Injector {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn struck(&self) -> u64 {
        self.struck
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Counts the operation in every rule, and returns the fault of the first that strikes.
    pub(crate) fn strike(&mut self, operation: &Operation) -> Option<Fault> {
        self.strike_by(operation).map(|(_, fault)| fault)
    }

    /// Like [`Injector::strike`], and returns the rule's number.
    pub(crate) fn strike_by(&mut self, operation: &Operation) -> Option<(usize, Fault)> {
        let mut found = None;
        for (at, rule) in self.rules.iter_mut().enumerate() {
            if rule.strikes(operation) && found.is_none() {
                found = Some((at, rule.fault));
                rule.struck += 1;
            }
        }
        self.struck += u64::from(found.is_some());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lba: u64) -> Operation {
        Operation::Command { queue: 1, opcode: 2, blocks: lba..lba + 8 }
    }

    #[test]
    fn a_rule_strikes_the_nth_operation_and_as_often_as_it_says() {
        let mut injector = Injector::default();
        injector.add(Rule::once(When::opcode(2), Fault::WrongPhase).after(1).times(2));
        let struck: Vec<bool> = (0..5).map(|lba| injector.strike(&read(lba)).is_some()).collect();
        assert_eq!(struck, [false, true, true, false, false]);
        assert_eq!(injector.struck(), 2);
    }

    #[test]
    fn a_rule_strikes_only_what_it_describes() {
        let mut injector = Injector::default();
        injector.add(Rule::always(When::Blocks(100..101), Fault::Hang));
        assert_eq!(injector.strike(&read(92)), None);
        assert_eq!(injector.strike(&read(93)), Some(Fault::Hang));
        let admin = Operation::Command { queue: 0, opcode: 2, blocks: 100..101 };
        assert_eq!(injector.strike(&admin), None);
        injector.clear();
        injector
            .add(Rule::always(When::Write(Window { address: 0x1000, length: 4 }), Fault::DropTransaction));
        assert_eq!(injector.strike(&Operation::Write { address: 0x1004, length: 4 }), None);
        assert_eq!(injector.strike(&Operation::Read { address: 0x1000, length: 4 }), None);
        assert!(injector.strike(&Operation::Write { address: 0xffe, length: 4 }).is_some());
    }

    #[test]
    fn a_chance_is_met_about_as_often_as_it_says_and_is_the_seeds() {
        let struck = |seed| {
            let mut injector = Injector::default();
            injector.add(Rule::sometimes(When::opcode(2), Fault::WrongPhase, 100, seed));
            (0..1000).map(|lba| injector.strike(&read(lba)).is_some()).collect::<Vec<bool>>()
        };
        let count = struck(1).iter().filter(|struck| **struck).count();
        assert!((60..150).contains(&count), "{count}");
        assert_eq!(struck(1), struck(1));
        assert_ne!(struck(1), struck(2));
    }

    #[test]
    #[should_panic(expected = "no meaning")]
    fn a_fault_without_a_meaning_there_is_refused() {
        let _ = Rule::once(When::Transmit, Fault::WrongPhase);
    }
}
