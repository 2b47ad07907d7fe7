//! Operations on both ends of a command that has no route yet: tried at once. A route is made only if that
//! fails.

use super::Controller;
use crate::attempt::Attempt;
use crate::endpoint::Object;
use crate::route::{Ends, Route};
use crate::{file, flow};
use dcs_abi::descriptor::Pace;
use dcs_abi::result::{PATH_SOURCE_CACHED, PATH_SYSCALL};
use dcs_engine::{BlockId, Operation, Outcome};

/// The result of an operation that was tried at once, and did not move all that was asked for or left the block with a device.
#[derive(Debug)]
pub struct Incomplete(Box<Attempt>);

impl Incomplete {
    /// Returns the path that the bytes took, if all that were asked for have moved, and the block is free.
    #[inline(always)]
    fn moved(attempt: Attempt, asked: u32) -> Result<u32, Incomplete> {
        match attempt {
            Attempt::Done(Outcome::Moved { bytes, path, held: false }) if bytes == u64::from(asked) => {
                Ok(path)
            }
            attempt => Err(Incomplete::other(attempt)),
        }
    }

    #[cold]
    fn other(attempt: Attempt) -> Incomplete {
        Incomplete(Box::new(attempt))
    }
}

impl Controller {
    /// Tries to read from the source into the block, from its first byte on. Returns the path that the bytes took.
    ///
    /// # Errors
    ///
    /// If not all has moved: [`Controller::go_on`] takes what came of it.
    pub fn try_read(
        &mut self,
        ends: &Ends,
        offset: u64,
        block: BlockId,
        length: u32,
    ) -> Result<u32, Incomplete> {
        if let Object::File(file) = &ends.source.endpoint.object
            && file::has_cache(file, ends.source.direct_io)
            && let Some(buffer) = self.pool.get_mut(block)
        {
            let read = file::read_cached(file, &mut buffer.bytes_mut()[..length as usize], offset);
            return match read {
                Ok(bytes) if bytes == length as usize => Ok(PATH_SOURCE_CACHED | PATH_SYSCALL),
                read => Err(Incomplete::other(file::after_short_read(file, read, offset, length))),
            };
        }
        Incomplete::moved(self.read_from(&ends.source, &Pace::default(), offset, (block, 0, length)), length)
    }

    /// Tries to write to the destination, from the block's first byte on; `more`: see [`OperationKind::Write`](dcs_engine::OperationKind).
    ///
    /// # Errors
    ///
    /// As [`Controller::try_read`].
    pub fn try_write(
        &mut self,
        ends: &Ends,
        offset: u64,
        block: BlockId,
        length: u32,
        more: bool,
    ) -> Result<u32, Incomplete> {
        if let Object::Flow(flow) = &ends.destination.endpoint.object
            && flow::copies(length as usize, ends.destination.zero_copy)
            && let Some(buffer) = self.pool.get(block)
        {
            return match flow::send_now(flow, &buffer.bytes()[..length as usize], more) {
                Ok(bytes) if bytes == length as usize => Ok(PATH_SYSCALL),
                result => Err(Incomplete::other(flow::sent(flow, result))),
            };
        }
        Incomplete::moved(self.write_to(&ends.destination, offset, (block, 0, length), more), length)
    }

    /// Goes on with an operation that was tried, as [`Controller::start`] does.
    pub fn go_on(&mut self, operation: &Operation, route: &mut Route, tried: Incomplete) -> Option<Outcome> {
        self.settle(operation, route, *tried.0)
    }
}
