//! From a session's command to the card's: files become extents of an SSD, memory becomes a part of the buffer, connections
//! become the card's handles.

use super::extents::{self, DiskMap, ExtentError, Purpose};
use super::hardware::{DESCRIPTOR, Hardware};
use super::room::{Part, Room};
use dcs_abi::descriptor::{self, Builder, Descriptor, EndpointKind, EndpointView, Extent, Place};
use dcs_abi::entry::{CompletionEntry, LENGTH_TO_END, SubmissionEntry};
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::status::{Stage, Status};
use dcs_devices::Endpoint;
use std::sync::Arc;

/// Most extents of an endpoint: as many as a descriptor has room for, with parameters, twice.
const EXTENTS_MAX: usize = (DESCRIPTOR as usize - 256 - 8 * 80) / 16 / 2;

/// Why a command is not the card's: stage, status, errno. With [`LATER`] as status it may be, once others are done.
pub(super) type Refusal = (Stage, Status, i32);

/// There is no room in the buffer now. Nobody outside of this backend sees it.
pub(super) const LATER: Status = Status::Unknown(0);

/// Makes the card's commands.
#[derive(Debug)]
pub(super) struct Translator {
    disks: Vec<DiskMap>,
    /// The card's handle for the buffer.
    buffer: u32,
}

/// What a command holds until it is done.
#[derive(Debug, Default)]
pub(super) struct Translated {
    parts: Vec<Part>,
    /// A memory destination: where the bytes are, and to whom they go.
    to_memory: Option<(Part, Arc<Endpoint>, u64)>,
    /// Files whose extents must be the same when it is done.
    files: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    file: Arc<Endpoint>,
    stage: Stage,
    purpose: Purpose,
    offset: u64,
    length: u64,
    extents: Vec<Extent>,
}

/// An endpoint as the card's descriptor has it.
struct End {
    endpoint: descriptor::Endpoint,
    extents: Vec<Extent>,
}

impl Translator {
    pub fn new(disks: Vec<DiskMap>, buffer: u32) -> Translator {
        Translator { disks, buffer }
    }

    /// Makes the card's command of a session's. What it takes of `room` is in what comes back.
    pub fn translate(
        &self,
        entry: &SubmissionEntry,
        bytes: &[u8],
        room: &mut Room,
        hardware: &Hardware,
        find: impl Fn(u32) -> Option<Arc<Endpoint>>,
    ) -> Result<(Translated, SubmissionEntry, Vec<u8>), Refusal> {
        let mut translated = Translated::default();
        match self.build(entry, bytes, room, hardware, find, &mut translated) {
            Ok((entry, descriptor)) => Ok((translated, entry, descriptor)),
            Err(refusal) => {
                translated.release(room);
                Err(refusal)
            }
        }
    }

    fn build(
        &self,
        entry: &SubmissionEntry,
        bytes: &[u8],
        room: &mut Room,
        hardware: &Hardware,
        find: impl Fn(u32) -> Option<Arc<Endpoint>>,
        translated: &mut Translated,
    ) -> Result<(SubmissionEntry, Vec<u8>), Refusal> {
        let frontend = |status| (Stage::Frontend, status, 0);
        let given = Descriptor::parse(bytes).map_err(|_| frontend(Status::InvalidField))?;
        let mut context = Context { translator: self, room, hardware, translated };
        let (source, destination) = (given.source(), given.destination());
        let length = length(entry, &given);
        let find = |view: &EndpointView<'_>, stage| find(view.handle).ok_or((stage, Status::BadHandle, 0));
        let prefix = match given.prefix().kind {
            EndpointKind::None => None,
            _ => {
                let endpoint = find(&given.prefix(), Stage::Source)?;
                Some(context.source(&given.prefix(), &endpoint)?)
            }
        };
        let from = context.source(&source, &find(&source, Stage::Source)?)?;
        let to = context.destination(&destination, &find(&destination, Stage::Destination)?, length)?;
        let mut made = vec![0; DESCRIPTOR as usize];
        let mut builder = Builder::new(&mut made).map_err(|_| frontend(Status::OutOfResources))?;
        let ends = [(Place::Prefix, prefix), (Place::Source, Some(from)), (Place::Destination, Some(to))];
        for (place, end) in ends {
            if let Some(End { endpoint, extents }) = end {
                builder.endpoint(place, endpoint, &extents).map_err(|_| frontend(Status::OutOfResources))?;
            }
        }
        for at in 0..given.parameters() {
            builder.parameter(at, given.parameter(at)).map_err(|_| frontend(Status::OutOfResources))?;
        }
        let used = builder.finish();
        made.truncate(used);
        Ok((SubmissionEntry { length: entry.length, ..*entry }, made))
    }
}

/// Bytes that the destination gets at most, where that is known: no operator changes the length of the data.
fn length(entry: &SubmissionEntry, given: &Descriptor<'_>) -> Option<u64> {
    let resizes = |number: &u8| {
        Operator::from_number(*number).is_some_and(|operator| operator.kind() == OperatorKind::Resize)
    };
    if entry.op_chain.iter().any(resizes) {
        return None;
    }
    let there = given.prefix().length().saturating_add(given.source().length());
    Some(entry.length.min(there)).filter(|length| *length != LENGTH_TO_END)
}

/// What is needed to translate one command's endpoints.
struct Context<'a> {
    translator: &'a Translator,
    room: &'a mut Room,
    hardware: &'a Hardware,
    translated: &'a mut Translated,
}

impl Context<'_> {
    fn source(&mut self, view: &EndpointView<'_>, endpoint: &Arc<Endpoint>) -> Result<End, Refusal> {
        let refuse = |status| (Stage::Source, status, 0);
        if !endpoint.readable() {
            return Err(refuse(Status::AccessDenied));
        }
        if let Some(handle) = endpoint.device_handle() {
            return Ok(flow(handle));
        }
        let extents: Vec<Extent> = view.extents().collect();
        if endpoint.file().is_some() {
            return self.file(endpoint, &extents, Stage::Source, Purpose::Read);
        }
        let length = extents.iter().map(|extent| extent.length).sum();
        let part = self.part(length, Stage::Source)?;
        let mut at = part.offset;
        for extent in &extents {
            let mut bytes = vec![0; extent.length as usize];
            let read = endpoint.read_memory(extent.offset, &mut bytes);
            if read != Some(bytes.len()) {
                let status = read.map_or(Status::UnsupportedEndpoint, |_| Status::OutOfRange);
                return Err(refuse(status));
            }
            self.hardware.buffer().store(at, &bytes);
            at += extent.length;
        }
        Ok(self.memory(part, length))
    }

    fn destination(
        &mut self,
        view: &EndpointView<'_>,
        endpoint: &Arc<Endpoint>,
        length: Option<u64>,
    ) -> Result<End, Refusal> {
        let refuse = |status| (Stage::Destination, status, 0);
        if !endpoint.writable() {
            return Err(refuse(Status::AccessDenied));
        }
        if let Some(handle) = endpoint.device_handle() {
            return Ok(flow(handle));
        }
        let mut extents: Vec<Extent> = view.extents().collect();
        if endpoint.file().is_some() {
            if let [only] = &mut extents[..] {
                // A file grows under the kernel; here it is as long as it is.
                let size = endpoint.size().map_err(|error| errno(Stage::Destination, &error))?.unwrap_or(0);
                // The rest of its last logical block would become zeros: right behind the end of a file, and nowhere else.
                let inside =
                    length.and_then(|length| only.offset.checked_add(length)).filter(|end| *end < size);
                if inside.is_some_and(|end| !end.is_multiple_of(4096)) {
                    return Err((Stage::Destination, Status::PathUnavailable, libc::EINVAL));
                }
                let there = size.next_multiple_of(4096).saturating_sub(only.offset);
                let wanted = length.map_or(there, |length| length.next_multiple_of(4096));
                only.length = only.length.min(wanted);
                if only.length > there {
                    return Err(refuse(Status::CapacityExceeded));
                }
            }
            return self.file(endpoint, &extents, Stage::Destination, Purpose::Write);
        }
        let capacity: u64 = extents.iter().map(|extent| extent.length).sum();
        let wanted = length.map_or(capacity, |length| length.min(capacity));
        let part = self.part(wanted, Stage::Destination)?;
        let offset = extents.first().map_or(0, |extent| extent.offset);
        self.translated.to_memory = Some((part, Arc::clone(endpoint), offset));
        Ok(self.memory(part, wanted))
    }

    fn part(&mut self, length: u64, stage: Stage) -> Result<Part, Refusal> {
        let status = if self.room.could_hold(length) { LATER } else { Status::OutOfResources };
        let part = self.room.take(length).ok_or((stage, status, 0))?;
        self.translated.parts.push(part);
        Ok(part)
    }

    fn memory(&self, part: Part, length: u64) -> End {
        let kind = EndpointKind::Memory as u8;
        let endpoint = descriptor::Endpoint { kind, handle: self.translator.buffer, ..Default::default() };
        End { endpoint, extents: vec![Extent { offset: self.hardware.address(part.offset), length }] }
    }

    /// A file, or a block device, on a disk that the card drives.
    fn file(
        &mut self,
        endpoint: &Arc<Endpoint>,
        ranges: &[Extent],
        stage: Stage,
        purpose: Purpose,
    ) -> Result<End, Refusal> {
        let (Some(file), Some(device)) = (endpoint.file(), endpoint.disk()) else {
            return Err((stage, Status::UnsupportedEndpoint, 0));
        };
        let whole = endpoint.kind() == EndpointKind::Block;
        let disk = self.translator.disks.iter().find_map(|disk| Some((disk.handle, disk.start_of(device)?)));
        let (handle, start) = disk.ok_or_else(|| {
            let missing = ExtentError::Disk(rustix::fs::major(device), rustix::fs::minor(device));
            refusal(stage, &missing)
        })?;
        let mut places = Vec::new();
        for range in ranges {
            if whole {
                // Behind a partition's end lies somebody else's.
                let size = endpoint.size().map_err(|error| errno(stage, &error))?.unwrap_or(0);
                let end = range.offset.checked_add(range.length);
                end.filter(|end| *end <= size).ok_or((stage, Status::OutOfRange, 0))?;
                places.push(*range);
                continue;
            }
            let found = extents::of(&file, range.offset, range.length, purpose, EXTENTS_MAX);
            let found = found.map_err(|error| refusal(stage, &error))?;
            self.translated.files.push(Watched {
                file: Arc::clone(endpoint),
                stage,
                purpose,
                offset: range.offset,
                length: range.length,
                extents: found.clone(),
            });
            places.extend(found);
        }
        places.iter_mut().for_each(|place| place.offset += start);
        if places.is_empty() {
            places.push(Extent { offset: start, length: 0 });
        }
        let endpoint = descriptor::Endpoint { kind: EndpointKind::Block as u8, handle, ..Default::default() };
        Ok(End { endpoint, extents: places })
    }
}

fn flow(handle: u32) -> End {
    let endpoint = descriptor::Endpoint { kind: EndpointKind::Flow as u8, handle, ..Default::default() };
    End { endpoint, extents: Vec::new() }
}

fn errno(stage: Stage, error: &std::io::Error) -> Refusal {
    let status = if stage == Stage::Source { Status::ReadError } else { Status::WriteError };
    (stage, status, error.raw_os_error().unwrap_or(0))
}

/// What a completion says of extents that the card cannot have: there is no path here; errno tells which.
fn refusal(stage: Stage, error: &ExtentError) -> Refusal {
    let errno = match error {
        ExtentError::Disk(..) => libc::EXDEV,
        ExtentError::Unknown(error) => error.raw_os_error().unwrap_or(libc::EOPNOTSUPP),
        ExtentError::Hole(_) | ExtentError::Unwritten(_) => libc::ENODATA,
        ExtentError::Inline(_) | ExtentError::Encoded(_) => libc::EOPNOTSUPP,
        ExtentError::Delayed(_) => libc::EAGAIN,
        ExtentError::Shared(_) => libc::ETXTBSY,
        ExtentError::Pieces(_) => libc::E2BIG,
    };
    (stage, Status::PathUnavailable, errno)
}

impl Translated {
    /// The card is done: what is in the buffer goes to its memory, what the kernel has cached of files that were written is
    /// dropped, and files must be where they were.
    pub fn finish(&self, hardware: &Hardware, completion: &CompletionEntry) -> Result<(), (Stage, Status)> {
        if let Some((part, memory, offset)) = &self.to_memory {
            let delivered = completion.delivered.value().min(part.length);
            let mut bytes = vec![0; delivered as usize];
            hardware.buffer().load(part.offset, &mut bytes);
            if memory.write_memory(*offset, &bytes) != Some(bytes.len()) {
                return Err((Stage::Destination, Status::CapacityExceeded));
            }
        }
        for watched in &self.files {
            let Watched { file, stage, purpose, offset, length, extents } = watched;
            let Some(file) = file.file() else { continue };
            if *purpose == Purpose::Write {
                extents::forget(file, *offset, *length);
            }
            let now = extents::of(&file, *offset, *length, *purpose, EXTENTS_MAX);
            if !now.is_ok_and(|now| now == *extents) {
                let status = if *stage == Stage::Source { Status::ReadError } else { Status::WriteError };
                return Err((*stage, status));
            }
        }
        Ok(())
    }

    /// Gives back what it held.
    pub fn release(self, room: &mut Room) {
        self.parts.into_iter().for_each(|part| room.give(part));
    }
}
