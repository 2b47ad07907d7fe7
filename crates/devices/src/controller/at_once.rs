//! Operations on both ends of a command that has no route yet: tried at once. Only where that did not do, a route is made.

use super::Controller;
use crate::attempt::Attempt;
use crate::route::{Ends, Route};
use dcs_abi::descriptor::Pace;
use dcs_engine::{BlockId, Operation, Outcome};

/// The result of an operation that was tried at once.
#[derive(Debug)]
pub struct Tried(Attempt);

impl Tried {
    /// Returns the path that the bytes took, if all that were asked for have moved, and the block is free.
    #[inline]
    pub fn moved(&self, asked: u32) -> Option<u32> {
        match self.0 {
            Attempt::Done(Outcome::Moved { bytes, path, held: false }) if bytes == u64::from(asked) => {
                Some(path)
            }
            _ => None,
        }
    }
}

impl Controller {
    /// Tries to read from the source into the block, from its first byte on. What came of it is to be handed to [`Controller::go_on`] if
    /// not all has moved.
    #[inline]
    pub fn try_read(&mut self, ends: &Ends, offset: u64, block: BlockId, length: u32) -> Tried {
        Tried(self.read_from(&ends.source, &Pace::default(), offset, (block, 0, length)))
    }

    /// Tries to write to the destination, from the block's first byte on; `more`: see [`OperationKind::Write`](dcs_engine::OperationKind).
    #[inline]
    pub fn try_write(&mut self, ends: &Ends, offset: u64, block: BlockId, length: u32, more: bool) -> Tried {
        Tried(self.write_to(&ends.destination, offset, (block, 0, length), more))
    }

    /// Goes on with an operation that was tried, as [`Controller::start`] does.
    pub fn go_on(&mut self, operation: &Operation, route: &mut Route, tried: Tried) -> Option<Outcome> {
        self.settle(operation, route, tried.0)
    }
}
