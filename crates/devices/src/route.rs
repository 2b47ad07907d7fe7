//! A route: one command's endpoints, checked, with the paths that were chosen between them.

use crate::acknowledged::{self, Awaited};
use crate::attempt::Attempt;
use crate::endpoint::{Endpoint, Object};
use crate::failure;
use crate::vfio_devices::{DriveWork, Driven};
use dcs_abi::descriptor::{Extent, Mode, Pace};
use dcs_abi::operator::OperatorKind;
use dcs_abi::status::{Stage, Status};
use dcs_engine::{Binding, EndpointRole, EndpointSpec, Failure, OperationKind, OperatorSpec, TransferSpec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// The reason why a route is refused: the stage, and the failure.
pub type Refusal = (Stage, Failure);

/// A command's endpoints, checked, with the path between them.
#[derive(Debug)]
pub struct Route {
    prefix: Option<Side>,
    source: Side,
    destination: Side,
    pub(crate) kernel_copy: Option<KernelCopy>,
    /// Set if bytes that were read may be sent from the source itself.
    pub(crate) sends_again: bool,
    pub(crate) staging: Option<Staging>,
    /// Set if the source may be read to the GPU.
    pub(crate) to_gpu: Option<ToGpu>,
    /// Error of the source socket in a direct copy: the next read reports it.
    pub(crate) source_error: Option<Errno>,
    /// Set if a flush waits for the peer's acknowledgements.
    pub(crate) acknowledged: bool,
    /// Acknowledgements that it waits for, if the kernel has the connection.
    awaited: Option<Awaited>,
    /// Set if a flush makes the destination durable.
    pub(crate) durable: bool,
    /// Error of a direct copy that belongs to the source or the destination: a write that fails after it reports it.
    pub(crate) copy_error: Option<Errno>,
    /// Set if a direct copy moved nothing though both ends were ready: once may be chance.
    pub(crate) futile: bool,
    /// Pace, if the source or the destination has one.
    pub(crate) pace: Pace,
    /// Set once the destination's stream knows of the transfer.
    pub(crate) begun: bool,
    /// Set if another transfer follows at the destination without a pause.
    pub(crate) more: bool,
}

/// An endpoint with the options that the command set for it.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub endpoint: Arc<Endpoint>,
    pub direct_io: bool,
    pub zero_copy: Mode,
}

/// A way for the kernel to move bytes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelCopy {
    /// sendfile(2): file to a socket.
    SendFile,
    /// copy_file_range(2): file to file.
    CopyFileRange,
    /// splice(2) from or to a pipe that is an endpoint itself.
    Splice,
    /// splice(2) twice, through the engine's own pipe: from a socket.
    StagedSplice,
}

/// The GPU's first use of a source's bytes, which permits reading them to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToGpu {
    /// The GPU only reads them, and the host needs them too.
    Looks,
    /// The GPU changes them before anything else reads them.
    Changes,
}

/// The pipe of a staged splice, and the number of bytes in it.
#[derive(Debug)]
pub(crate) struct Staging {
    pub reader: OwnedFd,
    pub writer: OwnedFd,
    pub held: u64,
}

/// Source and destination of a command, checked.
#[derive(Debug)]
pub struct Ends {
    pub(crate) source: Side,
    pub(crate) destination: Side,
}

impl Ends {
    /// Finds both ends and checks them: kind, access, range. Whether a source that is a file has the range is left to
    /// [`Ends::check_size`], which may ask its file system.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing is bound then.
    #[inline(always)]
    pub fn bind(
        spec: &TransferSpec,
        [source, destination]: [Option<Arc<Endpoint>>; 2],
    ) -> Result<Ends, Refusal> {
        let source = checked(&spec.source, source, Stage::Source)?;
        let destination = checked(&spec.destination, destination, Stage::Destination)?;
        let sized = check_size(&spec.destination, &destination, Stage::Destination);
        sized.map_err(|failure| (Stage::Destination, failure))?;
        Ends { source, destination }.apart(spec)
    }

    /// Refuses ends of which one overwrites what is still to be read from the other.
    #[inline(always)]
    fn apart(self, spec: &TransferSpec) -> Result<Ends, Refusal> {
        match overwrites_itself(spec, &self.source, &self.destination) {
            true => Err((Stage::Destination, Failure::new(Status::Overlap))),
            false => Ok(self),
        }
    }

    /// Checks that the source has the bytes that the command names, if it is a file.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub fn check_size(&self, spec: &TransferSpec) -> Result<(), Refusal> {
        check_size(&spec.source, &self.source, Stage::Source).map_err(|failure| (Stage::Source, failure))
    }

    /// Returns the paths between them.
    #[inline]
    pub fn binding(&self, spec: &TransferSpec) -> Binding {
        let flush = match &self.destination.endpoint.object {
            Object::File(file) => file.reports_at_close,
            // Done when its last datagram was sent, or when its end finds that nothing told its pace.
            Object::Paced(_) => true,
            _ => false,
        };
        let direct =
            spec.chain.is_empty() && KernelCopy::choose(spec, &self.source, &self.destination).is_some();
        Binding { direct, flush }
    }

    /// Makes a route of them.
    pub fn into_route(self, spec: &TransferSpec) -> Route {
        Route::new(spec, None, self)
    }

    /// Returns true if writing to the destination may raise a signal on the thread that does it: SIGPIPE of a pipe, SIGXFSZ of a file.
    pub fn may_signal(&self) -> bool {
        matches!(self.destination.endpoint.object, Object::File(_) | Object::Stream(_))
    }

    /// Returns the endpoints, to be released.
    pub fn into_endpoints(self) -> [Arc<Endpoint>; 2] {
        [self.source.endpoint, self.destination.endpoint]
    }
}

impl Route {
    /// Finds a command's endpoints and checks them: kind, access, range.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing is bound then.
    pub fn bind(
        spec: &TransferSpec,
        find: impl Fn(u32) -> Option<Arc<Endpoint>>,
    ) -> Result<(Route, Binding), Refusal> {
        let sized = |spec: &EndpointSpec, stage| sized(spec, find(spec.handle), stage);
        let prefix = spec.prefix.as_ref().map(|prefix| sized(prefix, Stage::Source)).transpose()?;
        let source = sized(&spec.source, Stage::Source)?;
        let destination = sized(&spec.destination, Stage::Destination)?;
        let ends = Ends { source, destination }.apart(spec)?;
        let is_supported = match &ends.destination.endpoint.object {
            Object::Device(_) => true,
            Object::Flow(flow) => spec.acknowledged && acknowledged::is_supported(flow),
            _ => false,
        };
        if spec.acknowledged && !is_supported {
            return Err((Stage::Destination, Failure::new(Status::PathUnavailable)));
        }
        let binding = ends.binding(spec);
        Ok((Route::new(spec, prefix, ends), binding))
    }

    fn new(spec: &TransferSpec, prefix: Option<Side>, ends: Ends) -> Route {
        let Ends { source, destination } = ends;
        let is_source = matches!(source.endpoint.object, Object::Paced(_));
        let pace = if is_source { spec.source.pace } else { spec.destination.pace };
        let sends_again = sends_again(spec, &source, &destination);
        Route {
            prefix,
            kernel_copy: KernelCopy::choose(spec, &source, &destination),
            source,
            destination,
            sends_again,
            staging: None,
            to_gpu: ToGpu::choose(spec),
            source_error: None,
            acknowledged: spec.acknowledged,
            awaited: None,
            durable: spec.durable,
            copy_error: None,
            futile: false,
            pace,
            begun: false,
            more: spec.more,
        }
    }

    /// Returns true if a system call for this operation may raise a signal on the thread that makes it: SIGPIPE of a pipe or of a copy
    /// within the kernel (including sendfile), SIGXFSZ of a file. Other sends to sockets use MSG_NOSIGNAL.
    pub fn may_signal(&self, kind: &OperationKind) -> bool {
        match kind {
            OperationKind::Read { .. } => false,
            OperationKind::Write { .. } => {
                self.sends_again
                    || matches!(self.destination.endpoint.object, Object::File(_) | Object::Stream(_))
            }
            _ => true,
        }
    }

    /// Returns the stage of the command that an engine whose blocks are in an SSD's memory cannot do: the processor would have to process
    /// or copy what is there. Receiving from a peer is allowed. `processed`: there are operators.
    pub fn stage_not_peer_to_peer(&self, processed: bool) -> Option<Stage> {
        if processed {
            return Some(Stage::Operator);
        }
        match (&self.prefix, &self.source.endpoint.object, &self.destination.endpoint.object) {
            (None, Object::Namespace(_), Object::Device(_))
            | (None, Object::Device(_), Object::Memory(_)) => None,
            (Some(_), ..) => Some(Stage::Source),
            (None, Object::Namespace(_) | Object::Device(_), _) => Some(Stage::Destination),
            _ => Some(Stage::Source),
        }
    }

    /// Returns true if a copy of this many bytes within the kernel may wait for a disk.
    pub(crate) fn copy_may_wait(&self, source: u64, length: u64) -> bool {
        match &self.source.endpoint.object {
            _ if matches!(&self.destination.endpoint.object, Object::File(file) if !file.in_memory) => true,
            Object::File(file) if !file.in_memory => !file.is_all_cached(source, length),
            _ => false,
        }
    }

    /// Lends a route to another thread for a copy within the kernel. [`Route::take_back`] returns what the copy changes.
    pub(crate) fn lend(&mut self) -> Route {
        Route {
            prefix: None,
            source: self.source.clone(),
            destination: self.destination.clone(),
            kernel_copy: self.kernel_copy,
            sends_again: false,
            staging: self.staging.take(),
            to_gpu: None,
            source_error: None,
            acknowledged: false,
            awaited: None,
            durable: false,
            copy_error: None,
            futile: self.futile,
            pace: self.pace,
            begun: self.begun,
            more: self.more,
        }
    }

    /// Takes back a lent route.
    pub(crate) fn take_back(&mut self, lent: &mut Route) {
        self.staging = lent.staging.take();
        self.source_error = lent.source_error;
        self.copy_error = lent.copy_error;
        self.futile = lent.futile;
    }

    /// Checks whether the destination's peer has acknowledged everything that was sent to it.
    pub(crate) fn poll_acknowledged(&mut self) -> Attempt {
        match &self.destination.endpoint.object {
            Object::Flow(flow) => acknowledged::look(flow, &mut self.awaited),
            _ => self.destination.driven(DriveWork::Flush),
        }
    }

    /// Returns its endpoints, to be released.
    pub fn into_endpoints(self) -> impl Iterator<Item = Arc<Endpoint>> {
        let Route { prefix, source, destination, .. } = self;
        prefix.into_iter().chain([source, destination]).map(|side| side.endpoint)
    }

    pub(crate) fn side(&self, role: EndpointRole) -> &Side {
        match role {
            EndpointRole::Prefix => self.prefix.as_ref().unwrap_or(&self.source),
            EndpointRole::Source => &self.source,
            EndpointRole::Destination => &self.destination,
        }
    }
}

impl Side {
    /// Returns the work for a device that the engine drives directly.
    pub fn driven(&self, work: DriveWork) -> Attempt {
        match &self.endpoint.object {
            Object::Namespace(namespace) => Attempt::Drive(Driven::Namespace(Arc::clone(namespace)), work),
            Object::Device(flow) => Attempt::Drive(Driven::Flow(flow.handle), work),
            _ => Attempt::failed(Failure::new(Status::UnsupportedEndpoint)),
        }
    }
}

/// Finds and checks an end.
fn sized(spec: &EndpointSpec, found: Option<Arc<Endpoint>>, stage: Stage) -> Result<Side, Refusal> {
    let side = checked(spec, found, stage)?;
    check_size(spec, &side, stage).map_err(|failure| (stage, failure))?;
    Ok(side)
}

/// Checks an end that was found, all but what [`check_size`] does.
#[inline(always)]
fn checked(spec: &EndpointSpec, found: Option<Arc<Endpoint>>, stage: Stage) -> Result<Side, Refusal> {
    let Some(endpoint) = found else { return Err((stage, Failure::new(Status::BadHandle))) };
    match check(spec, &endpoint, stage) {
        Ok(direct_io) => Ok(Side { endpoint, direct_io, zero_copy: spec.zero_copy }),
        Err(failure) => Err((stage, failure)),
    }
}

/// Checks an end, all but what [`check_size`] does. Returns true if it is read or written past the page cache.
#[inline(always)]
fn check(spec: &EndpointSpec, endpoint: &Endpoint, stage: Stage) -> Result<bool, Failure> {
    if spec.kind != endpoint.kind() {
        return Err(Failure::new(Status::UnsupportedEndpoint));
    }
    let is_source = stage == Stage::Source;
    if !(if is_source { endpoint.readable() } else { endpoint.writable() }) {
        return Err(Failure::new(Status::AccessDenied));
    }
    let mut direct_io = false;
    if spec.zero_copy == Mode::On
        && !is_source
        && !matches!(endpoint.object, Object::Flow(_) | Object::Device(_))
    {
        return Err(Failure::new(Status::PathUnavailable));
    }
    match &endpoint.object {
        Object::File(file) => {
            if !is_source && file.appends().map_err(failure::writing)? {
                return Err(Failure::new(Status::UnsupportedEndpoint));
            }
            // Offsets of files must fit off_t.
            if end(spec) > i64::MAX as u64 {
                return Err(Failure::new(Status::OutOfRange));
            }
            direct_io = match spec.cache {
                Mode::On => false,
                Mode::Off => {
                    file.direct().map_err(|errno| failure::with_errno(Status::PathUnavailable, errno))?;
                    true
                }
                // Follows the caller's own descriptor.
                Mode::Auto => file.is_direct() && file.direct().is_ok(),
            };
        }
        Object::Memory(memory) => {
            if end(spec) > memory.length_u64() {
                return Err(Failure::new(Status::OutOfRange));
            }
        }
        Object::Namespace(namespace) => {
            let size = u64::from(namespace.block_size);
            let whole = |extent: &Extent| (extent.offset | extent.length).is_multiple_of(size);
            if end(spec) > namespace.bytes() {
                return Err(Failure::new(Status::OutOfRange));
            }
            // Bytes read in excess of the request are discarded; bytes written in excess would be lost.
            if !is_source && !spec.extents.iter().all(whole) {
                return Err(Failure::new(Status::InvalidField));
            }
            if spec.cache == Mode::On {
                return Err(Failure::new(Status::PathUnavailable));
            }
        }
        Object::Part(_) => return Err(Failure::new(Status::UnsupportedEndpoint)),
        // Its own NIC's engine checks whether it knows the connection.
        Object::Flow(_) | Object::Stream(_) | Object::Device(_) | Object::Paced(_) => {}
    }
    Ok(direct_io)
}

/// Returns the end of the last of its extents on the device.
#[inline]
fn end(spec: &EndpointSpec) -> u64 {
    if let [extent] = spec.extents.as_slice() {
        return extent.offset + extent.length;
    }
    spec.extents.iter().map(|extent| extent.offset + extent.length).max().unwrap_or(0)
}

/// Checks that a file has the bytes that are named.
#[inline]
fn check_size(spec: &EndpointSpec, side: &Side, stage: Stage) -> Result<(), Failure> {
    let Object::File(file) = &side.endpoint.object else { return Ok(()) };
    let (end, is_source) = (end(spec), stage == Stage::Source);
    // A regular file grows as it is written; everything else has a fixed end, if it reports one.
    if (is_source || file.is_block_device) && !file.surely_has(end) {
        let size = file.size().map_err(failure::reading)?;
        if end > size && !(is_source && file.hides_size(size)) {
            return Err(Failure::new(Status::OutOfRange));
        }
    }
    Ok(())
}

/// Returns true if sendfile(2) may repeat what a block holds: from the page cache, to a socket that does not make it wait.
fn sends_again(spec: &TransferSpec, source: &Side, destination: &Side) -> bool {
    let allowed = spec.source.zero_copy != Mode::Off && spec.destination.zero_copy == Mode::Auto;
    let Object::Flow(to) = &destination.endpoint.object else { return false };
    let from_cache = matches!(source.endpoint.object, Object::File(_)) && !source.direct_io;
    spec.source.immutable && allowed && from_cache && to.nonblocking
}

/// Returns true if bytes would be written to a part of the same file that is still to be read. Writing each byte where it was read
/// (encryption in place, say) is sound.
#[inline]
fn overwrites_itself(spec: &TransferSpec, source: &Side, destination: &Side) -> bool {
    let same = match (&source.endpoint.object, &destination.endpoint.object) {
        (Object::File(from), Object::File(to)) => from.identity == to.identity,
        (Object::Namespace(from), Object::Namespace(to)) => Arc::ptr_eq(from, to),
        _ => false,
    };
    same && overlaps(spec)
}

/// Returns true if bytes would be written that are still to be read, both ends being the same.
fn overlaps(spec: &TransferSpec) -> bool {
    let (read, written) = (&spec.source.extents, &spec.destination.extents);
    let starts = |extents: &[Extent]| extents.first().map(|extent| extent.offset);
    let in_place = spec.prefix.is_none()
        && !spec.resizes()
        && (read == written || read.len() == 1 && written.len() == 1 && starts(read) == starts(written));
    // The end of the bytes, if that is known: a file that is written has no end.
    let mut left = if spec.resizes() { u64::MAX } else { spec.length };
    let mut overlaps = false;
    for extent in written {
        let length = extent.length.min(left);
        left -= length;
        let end = extent.offset + length;
        overlaps |= read.iter().any(|read| extent.offset < read.offset + read.length && read.offset < end);
    }
    overlaps && !in_place
}

impl ToGpu {
    /// Chooses whether the source is read to the GPU. A command that demands the page cache, or forbids transfers past the host, gets
    /// neither.
    fn choose(spec: &TransferSpec) -> Option<ToGpu> {
        let forbidden = spec.source.cache == Mode::On || spec.source.zero_copy == Mode::Off;
        if forbidden || !spec.chain.first()?.on_gpu {
            return None;
        }
        let is_digest =
            |operator: &&OperatorSpec| matches!(operator.operator.kind(), OperatorKind::Digest { .. });
        let first = spec.chain.iter().find(|operator| !operator.on_gpu || !is_digest(operator));
        let changes = first.is_some_and(|operator| operator.on_gpu);
        Some(if changes { ToGpu::Changes } else { ToGpu::Looks })
    }
}

impl KernelCopy {
    fn choose(spec: &TransferSpec, source: &Side, destination: &Side) -> Option<KernelCopy> {
        let forbidden = [&spec.source, &spec.destination].iter().any(|spec| spec.zero_copy == Mode::Off);
        if !spec.chain.is_empty() || forbidden || source.direct_io || destination.direct_io {
            return None;
        }
        match (&source.endpoint.object, &destination.endpoint.object) {
            // A socket that blocks would have the kernel wait for the peer (SPLICE_F_NONBLOCK has no effect on sockets), and the engine
            // with it: such a socket is sent to by blocks.
            (_, Object::Flow(to)) if !to.nonblocking => None,
            // These lend out pages of the page cache: a write to the file before the reader has read them changes what the reader gets.
            (Object::File(_), Object::Flow(_) | Object::Stream(_)) if !spec.source.immutable => None,
            (Object::File(_), Object::File(to)) if !to.is_block_device => Some(KernelCopy::CopyFileRange),
            (Object::File(_), Object::Flow(_)) => Some(KernelCopy::SendFile),
            (Object::Stream(from), Object::File(_) | Object::Flow(_)) if from.is_pipe => {
                Some(KernelCopy::Splice)
            }
            (Object::File(_) | Object::Flow(_), Object::Stream(to)) if to.is_pipe => Some(KernelCopy::Splice),
            (Object::Stream(from), Object::Stream(to)) if from.is_pipe && to.is_pipe => {
                Some(KernelCopy::Splice)
            }
            (Object::Flow(_), Object::File(_) | Object::Flow(_)) => Some(KernelCopy::StagedSplice),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_devices::Namespace;
    use std::sync::Mutex;

    #[test]
    fn peer_to_peer_is_from_an_ssd_to_a_nic_and_what_a_peer_says() {
        let function = "0000:01:00.0".into();
        let ssd = Namespace { function, number: 1, block_size: 512, blocks: 8, huge_pages: false };
        let endpoints = [
            Arc::new(Endpoint::namespace(&Arc::new(ssd))),
            Arc::new(Endpoint::device_flow(7, Arc::new(()))),
            Arc::new(Endpoint::sink(Arc::new(Mutex::new(vec![0; 16])))),
            Arc::new(Endpoint::shared(Arc::new([0; 16]))),
        ];
        let side = |at: usize| EndpointSpec {
            kind: endpoints[at].kind(),
            handle: at as u32,
            ..EndpointSpec::default()
        };
        let stage_not_peer_to_peer = |prefix: Option<usize>, from, to, processed| {
            let spec = TransferSpec {
                prefix: prefix.map(side),
                source: side(from),
                destination: side(to),
                ..TransferSpec::default()
            };
            let bound = Route::bind(&spec, |handle| endpoints.get(handle as usize).cloned());
            bound.expect("they can be bound").0.stage_not_peer_to_peer(processed)
        };
        let [ssd, nic, memory, bytes] = [0, 1, 2, 3];
        for (prefix, from, to, processed, expected) in [
            (None, ssd, nic, false, None),
            (None, nic, memory, false, None),
            (None, ssd, nic, true, Some(Stage::Operator)),
            (None, nic, memory, true, Some(Stage::Operator)),
            (Some(bytes), ssd, nic, false, Some(Stage::Source)),
            (None, bytes, nic, false, Some(Stage::Source)),
            (None, nic, ssd, false, Some(Stage::Destination)),
            (None, ssd, memory, false, Some(Stage::Destination)),
            (None, nic, nic, false, Some(Stage::Destination)),
        ] {
            assert_eq!(
                stage_not_peer_to_peer(prefix, from, to, processed),
                expected,
                "{prefix:?} {from} {to} {processed}"
            );
        }
    }
}
