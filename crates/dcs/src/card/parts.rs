//! Parts of SSDs between a card's functions. Function 0's host lends a range of a block device to another function
//! ([`Engine::lend`]); that function's host opens it by its number ([`Engine::open_part`]), and then it is a source
//! and a destination of its transfers ([`Source::part`], [`Sink::part`]). The hosts tell each other the number in
//! their own way. docs/server.md, *Several functions*, says what the functions share.

use super::extents::ExtentError;
use super::lending::{Access, PartError};
use super::range::HeldRange;
use crate::endpoint::{Range, Sink, Source};
use crate::engine::Engine;
use crate::engine::shared::Shared;
use crate::net;
use dcs_abi::admin::{AdminEntry, LentPart, opcode};
use dcs_abi::status::Status;
use dcs_devices::{Endpoint, endpoint};
use std::io;
use std::ops::RangeBounds;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A part of an SSD that function 0 lends to another function of the card, until this is dropped or
/// [taken back](Lent::take_back). Meanwhile nobody on this host may claim or mount its block device, and it is no
/// endpoint of this engine's transfers; other parts of it may be lent.
///
/// It ends with the engine too.
#[derive(Debug)]
pub struct Lent {
    engine: Arc<Shared>,
    handle: u32,
    /// The SSD's handle.
    ssd: u32,
    function: u16,
    number: u32,
    bytes: u64,
    /// The claim; `None` once it is taken back.
    held: Option<HeldRange>,
}

impl Lent {
    /// The function that it is lent to.
    pub fn function(&self) -> u16 {
        self.function
    }

    /// The number by which that function's host opens it: [`Engine::open_part`].
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if the card and the SSD are there: without them nothing is lent.
    pub fn is_there(&self) -> bool {
        self.engine.identity(self.ssd).is_ok()
    }

    /// Takes it back: waits until the SSD has ended what the function began on it. Its later transfers fail with
    /// [`Status::DeviceReset`]. What the function wrote is what readers of the block device get from then on.
    ///
    /// # Errors
    ///
    /// [`PartError::Refused`]: the card is gone, and with it what it lent. [`PartError::Device`]: somebody has the
    /// block device mapped, and may read there what it had before. [`PartError::Forked`]: the process that lent it still does.
    pub fn take_back(mut self) -> Result<(), PartError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), PartError> {
        // There nothing of the engine may be touched.
        if self.engine.is_foreign() {
            return Err(PartError::Forked);
        }
        let Some(held) = self.held.take() else { return Ok(()) };
        let answer = self.engine.admin(entry(opcode::RELEASE, self.handle));
        let dropped = held.finish();
        answer.map_err(|status| refused("take the part back", "the card is gone, or was reset", status))?;
        Ok(dropped?)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // An error says that nothing is lent any more, or not by this process.
        let _ = self.end();
    }
}

/// A part of an SSD that function 0 lends to the function that this engine drives. It is open until this and all
/// transfers that name it are gone.
#[derive(Clone, Debug)]
pub struct Part {
    endpoint: Arc<Endpoint>,
    number: u32,
    block_size: u32,
    bytes: u64,
}

impl Part {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes of a logical block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Engine {
    /// Lends a range of a block device to another function of the card, whose function 0 this engine drives: a whole disk
    /// that the card drives, or a partition of one. It must be open for all that is lent, and neither mounted nor claimed
    /// by another.
    ///
    /// # Errors
    ///
    /// [`PartError`]; then nothing is lent.
    pub fn lend(
        &self,
        function: u16,
        device: &impl AsFd,
        range: impl RangeBounds<u64>,
        access: Access,
    ) -> Result<Lent, PartError> {
        let engine = Arc::clone(self.first());
        if engine.is_foreign() {
            return Err(PartError::Forked);
        }
        let lending = engine.info.lending.as_ref().ok_or(PartError::NoCard)?;
        let endpoint = Endpoint::from_fd(device.as_fd());
        let endpoint = endpoint.map_err(|error| ExtentError::Unheld(io::Error::other(error)))?;
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let (part, held) = lending.claim(&endpoint, range, access)?;
        let answer = engine.admin(LentPart { function, ..part }.entry());
        let (handle, number) =
            answer.map_err(|status| refused("lend the part", why_not_lent(status, function), status))?;
        let LentPart { ssd, length: bytes, .. } = part;
        Ok(Lent { engine, handle, ssd, function, number, bytes, held: Some(held) })
    }

    /// Opens the part with this number that function 0 lends to the function that this engine drives. A function's parts
    /// are numbered from 0.
    ///
    /// # Errors
    ///
    /// [`PartError::NoCard`], [`PartError::Forked`], [`PartError::Refused`].
    pub fn open_part(&self, number: u32) -> Result<Part, PartError> {
        const WHAT: &str = "open the part";
        let engine = self.first();
        if engine.is_foreign() {
            return Err(PartError::Forked);
        }
        let lending = engine.info.lending.as_ref().ok_or(PartError::NoCard)?;
        let failed = |status| refused(WHAT, why_not_opened(status, number), status);
        let (handle, block_size) = engine.admin(entry(opcode::OPEN_PART, number)).map_err(failed)?;
        let held = Arc::new(net::OwnedHandle::new(engine, handle));
        let identity = engine.identity(handle).map_err(failed)?;
        let bytes = identity.blocks.saturating_mul(identity.block_size.into());
        let part = endpoint::Part { backend: lending.number(), handle, bytes, held };
        Ok(Part { endpoint: Arc::new(Endpoint::part(part)), number, block_size, bytes })
    }
}

fn entry(opcode: u8, word: u32) -> AdminEntry {
    let mut entry = AdminEntry { opcode, ..Default::default() };
    entry.words[0] = word;
    entry
}

fn refused(what: &'static str, why: impl Into<String>, status: Status) -> PartError {
    PartError::Refused { what, why: why.into(), status }
}

fn why_not_lent(status: Status, function: u16) -> String {
    match status {
        Status::InvalidOpcode => "function 0 alone lends, and this engine drives another one".into(),
        Status::InvalidField if function == 0 => "function 0 lends, to functions from 1 on".into(),
        Status::InvalidField => format!("it has no function {function}"),
        Status::OutOfResources => {
            format!("function {function} has 64 parts, or no handle is left: take one back first")
        }
        status => status.to_string(),
    }
}

fn why_not_opened(status: Status, number: u32) -> String {
    match status {
        Status::InvalidField => {
            format!("function 0 has lent no part {number} to this function: lend it there first")
        }
        Status::DeviceReset => {
            format!("part {number} was taken back, or its SSD is gone: have function 0 lend it again")
        }
        status => status.to_string(),
    }
}

fn span(range: impl RangeBounds<u64>) -> Range {
    Range::Span(range.start_bound().cloned(), range.end_bound().cloned())
}

impl Source {
    /// Bytes of a part of an SSD that the engine's function of a card was lent. They need not be whole logical
    /// blocks.
    pub fn part(part: &Part, range: impl RangeBounds<u64>) -> Source {
        Source::endpoint(Arc::clone(&part.endpoint), span(range))
    }
}

impl Sink {
    /// Bytes of a part of an SSD, from the beginning of a logical block. Bytes after the last one written are
    /// unchanged.
    pub fn part(part: &Part, range: impl RangeBounds<u64>) -> Sink {
        Sink::endpoint(Arc::clone(&part.endpoint), span(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Driver;
    use dcs_abi::status::Stage;

    #[test]
    fn an_engine_without_a_card_lends_and_opens_nothing() {
        let engine = Engine::builder().start().unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(engine.lend(1, &file, .., Access::Read), Err(PartError::NoCard)));
        assert!(matches!(engine.open_part(0), Err(PartError::NoCard)));
    }

    /// Requests to an engine that has ended fail; they do not wait for a thread that is gone.
    #[test]
    fn who_asks_an_engine_that_has_ended_is_answered() {
        for driver in [Driver::Thread, Driver::Caller] {
            let engine = Engine::builder().driver(driver).start().unwrap();
            let shared = Arc::clone(engine.first());
            drop(engine);
            assert_eq!(shared.identity(1), Err(Status::QueueDeleted));
            assert_eq!(shared.admin(entry(opcode::RELEASE, 1)), Err(Status::QueueDeleted));
        }
    }

    #[test]
    fn an_engine_of_the_kernel_has_no_part_of_a_card_s() {
        let part = endpoint::Part { backend: 7, handle: 1, bytes: 8192, held: Arc::new(()) };
        let (endpoint, bytes) = (Arc::new(Endpoint::part(part)), 8192);
        let part = Part { endpoint, number: 0, block_size: 512, bytes };
        let engine = Engine::builder().start().unwrap();
        let session = engine.session().unwrap();
        let error =
            session.transfer(Source::part(&part, ..), [], Sink::memory(8192)).unwrap().wait().unwrap_err();
        assert_eq!((error.status, error.stage), (Status::UnsupportedEndpoint, Stage::Source), "{error}");
        let source = Source::memory(vec![0; 512]);
        let error = session.transfer(source, [], Sink::part(&part, 512..1024)).unwrap().wait().unwrap_err();
        assert_eq!((error.status, error.stage), (Status::UnsupportedEndpoint, Stage::Destination), "{error}");
    }
}
