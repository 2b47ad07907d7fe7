//! The fault injector.

use dcs_abi::operator::Operator;
use dcs_abi::result::DigestSlot;
use dcs_abi::status::Status;
use dcs_engine::{Failure, OperationKind, Outcome, QueueId};
use dcs_testkit::Random;

/// Whose operations go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Source,
    Operator(u8),
    Destination,
    Direct,
    Flush,
    Snapshot(u8),
}

impl Where {
    pub fn of(kind: &OperationKind) -> Where {
        match kind {
            OperationKind::Read { .. } => Where::Source,
            OperationKind::Write { .. } => Where::Destination,
            OperationKind::Direct { .. } => Where::Direct,
            OperationKind::Process { operator, .. } | OperationKind::Resize { operator, .. } => {
                Where::Operator(*operator)
            }
            OperationKind::Flush => Where::Flush,
            OperationKind::Snapshot { operator } => Where::Snapshot(*operator),
        }
    }
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never answers, not even when aborted; until much later.
    Drop,
    /// Answers late.
    Delay,
    /// Answers twice, at once and again later.
    Duplicate,
    /// Fails.
    BadStatus,
    /// Fails, and is at its block for a while still.
    Stuck,
    /// Fails, and says that this is success.
    FalseSuccess,
    /// Moves less than it could.
    Short,
    /// Says that it moved more than it was asked for, or something else that cannot be.
    Lie,
    /// The device is reset: all its operations fail.
    Reset,
    /// The file is cut off at the operation's position.
    Truncate,
    /// One read finds the end of the file; those of later bytes do not (it was cut off and has grown again).
    Hole,
}

/// Every kind.
pub const KINDS: [Kind; 11] = [
    Kind::Drop,
    Kind::Delay,
    Kind::Duplicate,
    Kind::BadStatus,
    Kind::Stuck,
    Kind::FalseSuccess,
    Kind::Short,
    Kind::Lie,
    Kind::Reset,
    Kind::Truncate,
    Kind::Hole,
];

/// The `nth` operation (from 0) of that stage of that queue's commands goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub queue: QueueId,
    pub place: Where,
    pub nth: u32,
    pub kind: Kind,
    /// Operations of the stage so far.
    pub seen: u32,
    /// It has happened.
    pub struck: bool,
}

impl Fault {
    pub fn new(queue: QueueId, place: Where, nth: u32, kind: Kind) -> Fault {
        Fault { queue, place, nth, kind, seen: 0, struck: false }
    }

    /// Counts an operation; true where this is the one.
    pub fn strikes(&mut self, queue: QueueId, place: Where) -> bool {
        if self.queue != queue || place != self.place {
            return false;
        }
        let now = self.seen == self.nth;
        self.seen += 1;
        self.struck |= now;
        now
    }
}

/// An answer that cannot be.
pub fn lie(kind: &OperationKind, operator: Option<Operator>, random: &mut Random) -> Outcome {
    let moved = |bytes| Outcome::Moved { bytes, path: 0, held: false };
    match kind {
        OperationKind::Read { length, .. } | OperationKind::Write { length, .. } => {
            moved(u64::from(*length) + random.range(1, 5000))
        }
        OperationKind::Direct { length, .. } => moved(*length + random.range(1, 5000)),
        // A value where none is due, or one of the wrong size where one is.
        OperationKind::Process { length, last, .. } => match operator {
            Some(operator) if operator.digest_size() > 0 => {
                let size = operator.digest_size() as u8 + u8::from(*last);
                Outcome::Digest(DigestSlot { operator: operator as u8, size, ..Default::default() })
            }
            _ => Outcome::Processed { consumed: length + 1, produced: 0, finished: false },
        },
        OperationKind::Resize { length, output_length, .. } => match random.range(0, 4) {
            0 => Outcome::Processed { consumed: length + 1, produced: 0, finished: false },
            1 => Outcome::Processed { consumed: 0, produced: output_length + 1, finished: false },
            2 => Outcome::Processed { consumed: 0, produced: 0, finished: false },
            // No operator tells a value of no bytes.
            3 => Outcome::Concluded {
                produced: 0,
                value: DigestSlot { operator: operator.map_or(0, |it| it as u8), ..Default::default() },
            },
            _ => Outcome::Flushed,
        },
        OperationKind::Snapshot { .. } => {
            Outcome::Digest(DigestSlot { operator: 99, size: 64, ..Default::default() })
        }
        OperationKind::Flush => moved(1),
    }
}

/// The status of a plain failure at that place.
pub fn failure(place: Where) -> Failure {
    let status = match place {
        Where::Source => Status::ReadError,
        Where::Operator(_) | Where::Snapshot(_) => Status::CorruptData,
        Where::Destination | Where::Direct | Where::Flush => Status::WriteError,
    };
    Failure { status, errno: 5 }
}
