//! From a session's command to the card's: files become extents of an SSD, memory becomes a part of the
//! buffer, connections become the card's handles.

use super::disks::DiskMap;
use super::extents::{ExtentError, Purpose};
use super::hardware::{DESCRIPTOR, Hardware};
use super::lease::{Holds, Unheld};
use super::page_allocator::{PageAllocator, Pages};
use super::range::HeldRange;
use dcs_abi::descriptor::{
    self, Builder, Descriptor, EndpointKind, EndpointRole, EndpointView, Extent, OPEN_END, Pace,
};
use dcs_abi::entry::{CompletionEntry, LENGTH_TO_END, SubmissionEntry};
use dcs_abi::operator::{Operator, OperatorKind};
use dcs_abi::status::{Stage, Status};
use dcs_devices::Endpoint;
use dcs_devices::endpoint::Part;
use std::sync::Arc;
use std::time::Instant;

/// Most extents of an endpoint: as many as a descriptor has room for, with parameters, twice.
const EXTENTS_MAX: usize = (DESCRIPTOR as usize - 256 - 8 * 80) / 16 / 2;

/// The reason for which a command is not given to the card, or has failed here. With [`LATER`] as status it
/// may be given once others are done.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub stage: Stage,
    pub status: Status,
    pub errno: i32,
    /// In words, where status and errno do not say enough.
    pub reason: Option<Box<str>>,
}

impl Refusal {
    pub fn new(stage: Stage, status: Status, errno: i32) -> Refusal {
        Refusal { stage, status, errno, reason: None }
    }

    /// The refusal of a file that the card cannot have, as a completion reports it.
    pub fn of_file(stage: Stage, status: Status, error: &ExtentError) -> Refusal {
        Refusal { stage, status, errno: error.errno(), reason: Some(error.to_string().into()) }
    }
}

impl From<(Stage, Status, i32)> for Refusal {
    fn from((stage, status, errno): (Stage, Status, i32)) -> Refusal {
        Refusal::new(stage, status, errno)
    }
}

/// There is no room in the buffer now, or another transfer has a file. Internal to this backend.
pub(super) const LATER: Status = Status::Unknown(0);

/// Makes the card's commands.
#[derive(Debug)]
pub(super) struct Translator {
    disks: Vec<DiskMap>,
    /// The backend's number, by which it knows its parts of SSDs.
    number: u64,
    /// The card's handle for the buffer.
    buffer: u32,
    holds: Holds,
}

/// The resources that a command holds until it is done.
#[derive(Debug, Default)]
pub(super) struct Translated {
    pages: Vec<Pages>,
    /// A memory destination: where the bytes are, to whom they go, and to which places.
    to_memory: Option<(Pages, Arc<Endpoint>, Vec<Extent>)>,
    /// Files and block devices that stay as they are until this is dropped.
    held: Vec<HeldRange>,
}

/// An endpoint as the card's descriptor has it.
struct End {
    endpoint: descriptor::Endpoint,
    extents: Vec<Extent>,
}

impl Translator {
    pub fn new(disks: Vec<DiskMap>, number: u64, buffer: u32) -> Translator {
        Translator { disks, number, buffer, holds: Holds::default() }
    }

    /// Makes the card's command of a session's. The pages that it allocates are in the [`Translated`].
    pub fn translate(
        &mut self,
        entry: &SubmissionEntry,
        bytes: &[u8],
        memory: &mut PageAllocator,
        hardware: &Hardware,
        find: impl Fn(u32) -> Option<Arc<Endpoint>>,
    ) -> Result<(Translated, SubmissionEntry, Vec<u8>), Refusal> {
        let mut translated = Translated::default();
        match self.build(entry, bytes, memory, hardware, find, &mut translated) {
            Ok((entry, descriptor)) => Ok((translated, entry, descriptor)),
            Err(refusal) => {
                translated.release(memory);
                Err(refusal)
            }
        }
    }

    fn build(
        &mut self,
        entry: &SubmissionEntry,
        bytes: &[u8],
        memory: &mut PageAllocator,
        hardware: &Hardware,
        find: impl Fn(u32) -> Option<Arc<Endpoint>>,
        translated: &mut Translated,
    ) -> Result<(SubmissionEntry, Vec<u8>), Refusal> {
        let frontend = |status| Refusal::new(Stage::Frontend, status, 0);
        let given = Descriptor::parse(bytes).map_err(|_| frontend(Status::InvalidField))?;
        let mut context = Context { translator: self, allocator: memory, hardware, translated };
        let (source, destination) = (given.source(), given.destination());
        let length = length(entry, &given);
        let find = |view: &EndpointView<'_>, stage| {
            find(view.handle).ok_or(Refusal::new(stage, Status::BadHandle, 0))
        };
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
        let ends = [
            (EndpointRole::Prefix, prefix),
            (EndpointRole::Source, Some(from)),
            (EndpointRole::Destination, Some(to)),
        ];
        for (role, end) in ends {
            if let Some(End { endpoint, extents }) = end {
                builder.endpoint(role, endpoint, &extents).map_err(|_| frontend(Status::OutOfResources))?;
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

/// Maximum number of bytes that the destination gets, if known: no operator changes the length of the data.
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

/// The context in which one command's endpoints are translated.
struct Context<'a> {
    translator: &'a mut Translator,
    allocator: &'a mut PageAllocator,
    hardware: &'a Hardware,
    translated: &'a mut Translated,
}

impl Context<'_> {
    fn source(&mut self, view: &EndpointView<'_>, endpoint: &Arc<Endpoint>) -> Result<End, Refusal> {
        let refuse = |status| Refusal::new(Stage::Source, status, 0);
        if view.kind == EndpointKind::Paced {
            return Err(refuse(Status::UnsupportedEndpoint));
        }
        if !endpoint.readable() {
            return Err(refuse(Status::AccessDenied));
        }
        if let Some(handle) = endpoint.device_handle() {
            return Ok(flow(handle));
        }
        let mut extents: Vec<Extent> = view.extents().collect();
        if let Some(part) = endpoint.as_part() {
            return self.part(part, extents, Stage::Source);
        }
        if endpoint.file().is_some() {
            // It has no bytes that the card could find, whatever it would give to a read.
            extents
                .iter_mut()
                .filter(|extent| extent.offset + extent.length == OPEN_END)
                .for_each(|extent| extent.length = 0);
            return self.file(endpoint, &extents, Stage::Source, Purpose::Read);
        }
        let length = extents.iter().map(|extent| extent.length).sum();
        let pages = self.allocate(length, Stage::Source)?;
        let mut at = pages.offset;
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
        Ok(self.memory(pages, length))
    }

    fn destination(
        &mut self,
        view: &EndpointView<'_>,
        endpoint: &Arc<Endpoint>,
        length: Option<u64>,
    ) -> Result<End, Refusal> {
        let refuse = |status| Refusal::new(Stage::Destination, status, 0);
        if !endpoint.writable() {
            return Err(refuse(Status::AccessDenied));
        }
        if view.kind == EndpointKind::Paced {
            let handle = endpoint.device_handle().ok_or(refuse(Status::UnsupportedEndpoint))?;
            return Ok(paced(handle, view.pace));
        }
        if let Some(handle) = endpoint.device_handle() {
            return Ok(flow(handle));
        }
        let mut extents: Vec<Extent> = view.extents().collect();
        if let Some(part) = endpoint.as_part() {
            if let ([only], Some(length)) = (&mut extents[..], length) {
                only.length = only.length.min(length);
            }
            return self.part(part, extents, Stage::Destination);
        }
        if endpoint.file().is_some() {
            if let [only] = &mut extents[..] {
                // A file grows under the kernel; here it is as long as it is.
                let size = endpoint.size().map_err(|error| errno(Stage::Destination, &error))?.unwrap_or(0);
                let wanted = length.unwrap_or(size.saturating_sub(only.offset));
                only.length = only.length.min(wanted);
            }
            return self.file(endpoint, &extents, Stage::Destination, Purpose::Write);
        }
        let capacity: u64 = extents.iter().map(|extent| extent.length).sum();
        let wanted = length.map_or(capacity, |length| length.min(capacity));
        let pages = self.allocate(wanted, Stage::Destination)?;
        self.translated.to_memory = Some((pages, Arc::clone(endpoint), extents));
        Ok(self.memory(pages, wanted))
    }

    fn allocate(&mut self, length: u64, stage: Stage) -> Result<Pages, Refusal> {
        let status = if self.allocator.could_hold(length) { LATER } else { Status::OutOfResources };
        let pages = self.allocator.allocate(length).ok_or(Refusal::new(stage, status, 0))?;
        self.translated.pages.push(pages);
        Ok(pages)
    }

    fn memory(&self, pages: Pages, length: u64) -> End {
        let kind = EndpointKind::Memory as u8;
        let endpoint = descriptor::Endpoint { kind, handle: self.translator.buffer, ..Default::default() };
        End { endpoint, extents: vec![Extent { offset: self.hardware.address(pages.offset), length }] }
    }

    /// A part of an SSD that function 0 lends to this one.
    fn part(&self, part: &Part, extents: Vec<Extent>, stage: Stage) -> Result<End, Refusal> {
        if part.backend != self.translator.number {
            return Err(Refusal::new(stage, Status::UnsupportedEndpoint, 0));
        }
        let (kind, handle) = (EndpointKind::Block as u8, part.handle);
        Ok(End { endpoint: descriptor::Endpoint { kind, handle, ..Default::default() }, extents })
    }

    /// A file, or a block device, on a disk that the card drives.
    fn file(
        &mut self,
        endpoint: &Arc<Endpoint>,
        ranges: &[Extent],
        stage: Stage,
        purpose: Purpose,
    ) -> Result<End, Refusal> {
        let (Some(given), Some(device)) = (endpoint.file(), endpoint.disk()) else {
            return Err(Refusal::new(stage, Status::UnsupportedEndpoint, 0));
        };
        let disk = self.translator.disks.iter().find_map(|disk| Some((disk.handle, disk.start_of(device)?)));
        let (handle, start) = disk.ok_or_else(|| {
            let missing = ExtentError::Disk(rustix::fs::major(device), rustix::fs::minor(device));
            refusal(stage, &missing)
        })?;
        // Bytes beyond a partition's end belong to others; bytes beyond a file's end do not exist.
        let outside = if stage == Stage::Source { Status::OutOfRange } else { Status::CapacityExceeded };
        let size = endpoint.size().map_err(|error| errno(stage, &error))?.unwrap_or(0);
        let end = |range: &Extent| range.offset.checked_add(range.length);
        if !ranges.iter().all(|range| end(range).is_some_and(|end| end <= size)) {
            return Err(Refusal::new(stage, outside, 0));
        }
        let block = endpoint.kind() == EndpointKind::Block;
        let mut places = Vec::new();
        for range in ranges.iter().filter(|range| range.length > 0) {
            let held = match block {
                true => self.translator.holds.held_device(given, *range, stage, purpose),
                false => self.translator.holds.held_file(given, *range, stage, purpose, EXTENTS_MAX),
            };
            let held = held.map_err(|unheld| match unheld {
                Unheld::Busy => Refusal::new(stage, LATER, 0),
                Unheld::Refused(error) => refusal(stage, &error),
            })?;
            places.extend(held.places());
            self.translated.held.push(held);
        }
        places.iter_mut().for_each(|place| place.offset += start);
        if places.is_empty() {
            places.push(Extent { offset: start, length: 0 });
        }
        let endpoint = descriptor::Endpoint { kind: EndpointKind::Block as u8, handle, ..Default::default() };
        Ok(End { endpoint, extents: places })
    }
}

fn paced(handle: u32, Pace { pacing, rate, window_us }: Pace) -> End {
    let (kind, pacing) = (EndpointKind::Paced as u8, pacing as u8);
    let endpoint = descriptor::Endpoint { kind, handle, pacing, rate, window_us, ..Default::default() };
    End { endpoint, extents: Vec::new() }
}

fn flow(handle: u32) -> End {
    let endpoint = descriptor::Endpoint { kind: EndpointKind::Flow as u8, handle, ..Default::default() };
    End { endpoint, extents: Vec::new() }
}

fn errno(stage: Stage, error: &std::io::Error) -> Refusal {
    Refusal::new(stage, failed(stage), error.raw_os_error().unwrap_or(0))
}

/// The refusal for an end that failed after the card had it.
fn failed(stage: Stage) -> Status {
    if stage == Stage::Source { Status::ReadError } else { Status::WriteError }
}

/// The refusal of a file that the card cannot have: there is no path here; errno and the reason tell why.
fn refusal(stage: Stage, error: &ExtentError) -> Refusal {
    Refusal::of_file(stage, Status::PathUnavailable, error)
}

impl Translated {
    /// Returns the time since which another program waits for one of its files, and the stage, if one does.
    pub fn wanted(&self) -> Option<(Stage, Instant)> {
        let wanted = self.held.iter().filter_map(|held| Some((held.stage(), held.is_wanted()?)));
        wanted.min_by_key(|(_, since)| *since)
    }

    /// Returns true if another program could wait for one of its files.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends the command: bytes in the buffer go to their memory, cached pages of files that
    /// were written are dropped, and files must be where they were.
    pub fn finish(&self, hardware: &Hardware, completion: &CompletionEntry) -> Result<(), Refusal> {
        if let Some((pages, memory, places)) = &self.to_memory {
            let delivered = completion.delivered.value().min(pages.length);
            let mut bytes = vec![0; delivered as usize];
            hardware.buffer().load(pages.offset, &mut bytes);
            scatter(&bytes, places, memory).ok_or(Refusal::new(
                Stage::Destination,
                Status::CapacityExceeded,
                0,
            ))?;
        }
        let mut result = Ok(());
        for held in &self.held {
            let done = held.finish();
            result = result
                .and(done.map_err(|error| Refusal::of_file(held.stage(), failed(held.stage()), &error)));
        }
        result
    }

    /// Gives back what it held.
    pub fn release(self, memory: &mut PageAllocator) {
        self.pages.into_iter().for_each(|pages| memory.free(pages));
    }
}

/// Puts bytes where a destination in memory wants them, one extent after the other.
fn scatter(bytes: &[u8], places: &[Extent], memory: &Endpoint) -> Option<()> {
    let mut rest = bytes;
    for place in places {
        let (now, later) = rest.split_at(rest.len().min(usize::try_from(place.length).unwrap_or(usize::MAX)));
        (memory.write_memory(place.offset, now) == Some(now.len())).then_some(())?;
        rest = later;
    }
    rest.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_destination_of_several_extents_gets_its_bytes_in_each() {
        let memory = Arc::new(Mutex::new(vec![0; 10]));
        let endpoint = Endpoint::sink(Arc::clone(&memory));
        let places = [Extent { offset: 6, length: 3 }, Extent { offset: 1, length: 4 }];
        assert!(scatter(&[1, 2, 3, 4, 5], &places, &endpoint).is_some());
        assert_eq!(*memory.lock().unwrap(), [0, 4, 5, 0, 0, 0, 1, 2, 3, 0]);
        assert!(scatter(&[1; 8], &places, &endpoint).is_none());
    }
}
