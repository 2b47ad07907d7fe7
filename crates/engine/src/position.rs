//! Where in its extents a transfer is.

use crate::message::Place;
use crate::spec::{EndpointSpec, TransferSpec};

/// A place in the bytes of prefix and source, or of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub place: Place,
    /// Which extent,
    extent: u32,
    /// and which byte of it.
    offset: u64,
}

impl Position {
    pub const START: Position = Position { place: Place::Source, extent: 0, offset: 0 };

    /// The first byte that comes in.
    pub fn first_in(spec: &TransferSpec) -> Position {
        // A prefix may be empty; its end is the source's start.
        let prefixed = spec.prefix.as_ref().is_some_and(|prefix| prefix.length() > 0);
        let place = if prefixed { Place::Prefix } else { Place::Source };
        Position { place, extent: 0, offset: 0 }
    }

    /// The first byte that goes out.
    pub fn first_out() -> Position {
        Position { place: Place::Destination, extent: 0, offset: 0 }
    }

    /// Position on the device, and how many bytes follow it without a gap. A stream is at 0 and never ends.
    pub fn run(&self, spec: &TransferSpec) -> (u64, u64) {
        let endpoint = self.endpoint(spec);
        if !endpoint.kind.is_positional() {
            return (0, u64::MAX);
        }
        match endpoint.extents.get(self.extent as usize) {
            Some(extent) => (extent.offset + self.offset, extent.length - self.offset),
            None => (0, 0),
        }
    }

    /// The position `bytes` further on; it stays where the extents end.
    pub fn advance(mut self, spec: &TransferSpec, mut bytes: u64) -> Position {
        while bytes > 0 {
            let endpoint = self.endpoint(spec);
            if !endpoint.kind.is_positional() {
                break;
            }
            let Some(extent) = endpoint.extents.get(self.extent as usize) else { break };
            let step = bytes.min(extent.length - self.offset);
            self.offset += step;
            bytes -= step;
            if self.offset == extent.length {
                self = self.next_extent(endpoint);
            }
        }
        self
    }

    fn next_extent(mut self, endpoint: &EndpointSpec) -> Position {
        self.extent += 1;
        self.offset = 0;
        if self.place == Place::Prefix && self.extent as usize == endpoint.extents.len() {
            self = Position::START;
        }
        self
    }

    fn endpoint<'a>(&self, spec: &'a TransferSpec) -> &'a EndpointSpec {
        match self.place {
            Place::Prefix => spec.prefix.as_ref().unwrap_or(&spec.source),
            Place::Source => &spec.source,
            Place::Destination => &spec.destination,
        }
    }
}
