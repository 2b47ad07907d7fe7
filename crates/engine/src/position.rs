//! A transfer's position in its extents.

use crate::EndpointRole;
use crate::transfer::{EndpointSpec, TransferSpec};

/// A place in the bytes of prefix and source, or of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub role: EndpointRole,
    /// The extent,
    extent: u32,
    /// and which byte of it.
    offset: u64,
}

impl Position {
    pub const START: Position = Position { role: EndpointRole::Source, extent: 0, offset: 0 };

    /// The first byte that comes in.
    #[inline]
    pub fn first_in(spec: &TransferSpec) -> Position {
        // A prefix may be empty; its end is the source's start.
        let prefixed = spec.prefix.as_ref().is_some_and(|prefix| prefix.length() > 0);
        let role = if prefixed { EndpointRole::Prefix } else { EndpointRole::Source };
        Position { role, extent: 0, offset: 0 }
    }

    /// The first byte that goes out.
    pub fn first_out() -> Position {
        Position { role: EndpointRole::Destination, extent: 0, offset: 0 }
    }

    /// Position on the device, and how many bytes follow it without a gap. A stream is at 0 and never ends.
    #[inline]
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

    /// Returns the position `bytes` further on; it stays at the end of the extents.
    #[inline]
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
        if self.role == EndpointRole::Prefix && self.extent as usize == endpoint.extents.len() {
            self = Position::START;
        }
        self
    }

    fn endpoint<'a>(&self, spec: &'a TransferSpec) -> &'a EndpointSpec {
        match self.role {
            EndpointRole::Prefix => spec.prefix.as_ref().unwrap_or(&spec.source),
            EndpointRole::Source => &spec.source,
            EndpointRole::Destination => &spec.destination,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use dcs_abi::descriptor::{EndpointKind, Extent, Mode};

    fn endpoint(kind: EndpointKind, extents: &[(u64, u64)]) -> EndpointSpec {
        let extents = extents.iter().map(|(offset, length)| Extent { offset: *offset, length: *length });
        EndpointSpec {
            kind,
            cache: Mode::Auto,
            zero_copy: Mode::Auto,
            extents: extents.collect(),
            ..Default::default()
        }
    }

    fn spec(prefix: Option<EndpointSpec>, source: EndpointSpec, destination: EndpointSpec) -> TransferSpec {
        let (chain, durable, acknowledged, more) = (Vec::new(), false, false, false);
        TransferSpec { prefix, source, destination, chain, length: 0, durable, acknowledged, more }
    }

    /// Walks on by `step` until the end; tells each place and how many bytes follow.
    fn walk(spec: &TransferSpec, mut at: Position, step: u64) -> Vec<(EndpointRole, u64, u64)> {
        let mut walked = Vec::new();
        loop {
            let (offset, run) = at.run(spec);
            walked.push((at.role, offset, run));
            if run == 0 {
                return walked;
            }
            at = at.advance(spec, step.min(run));
        }
    }

    #[test]
    fn prefix_then_extents_in_their_order() {
        let prefix = endpoint(EndpointKind::Memory, &[(7, 3)]);
        let source = endpoint(EndpointKind::File, &[(100, 5), (0, 1)]);
        let spec = spec(Some(prefix), source, endpoint(EndpointKind::Flow, &[]));
        let (prefix, source) = (EndpointRole::Prefix, EndpointRole::Source);
        let all = [(prefix, 7, 3), (source, 100, 5), (source, 0, 1), (source, 0, 0)];
        assert_eq!(walk(&spec, Position::first_in(&spec), 10), all);
        let twos = [(prefix, 7, 3), (prefix, 9, 1), (source, 100, 5), (source, 102, 3), (source, 104, 1)];
        assert_eq!(walk(&spec, Position::first_in(&spec), 2)[..5], twos);
        let at_once = Position::first_in(&spec).advance(&spec, 9);
        assert_eq!(at_once.run(&spec), (0, 0), "over all of them in one step");
    }

    #[test]
    fn an_empty_prefix_is_passed_over_and_a_stream_never_ends() {
        let prefix = endpoint(EndpointKind::Memory, &[(7, 0)]);
        let flow = || endpoint(EndpointKind::Flow, &[]);
        let spec = spec(Some(prefix), flow(), flow());
        let first = Position::first_in(&spec);
        assert_eq!((first.role, first.run(&spec)), (EndpointRole::Source, (0, u64::MAX)));
        assert_eq!(first.advance(&spec, 12345), first);
    }
}
