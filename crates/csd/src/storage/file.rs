//! Volumes on files and block devices, by io_uring: straight from and into the guests' memory if O_DIRECT
//! allows it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::rc::Rc;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::uring::{Answer, Opened, Operation, Part, Uring};
use super::{Action, Buffer, Data, Request, Response, Storage, Ticket, VolumeError, VolumeId, VolumeInfo};

/// Alignment of memory and offsets for O_DIRECT if the kernel does not report it.
const USUAL_ALIGNMENT: u64 = 4096;

/// Bytes of zeros that are written at a time if a file system cannot zero a range itself.
const ZEROS: usize = 1 << 20;

/// Volumes on files and block devices.
pub struct FileStorage {
    volumes: BTreeMap<u32, Volume>,
    next_volume: u32,
    requests: Vec<InProgress>,
    free: Vec<u32>,
    ring: Uring,
    answers: Vec<Answer>,
    done: Vec<Response>,
    zeros: Option<Buffer>,
}

struct Volume {
    slices: Vec<Slice>,
    /// Bytes in one slice before the next one's turn.
    stripe: u64,
    info: VolumeInfo,
}

struct Slice {
    file: Rc<Opened>,
    offset: u64,
}

/// A request in progress.
struct InProgress {
    ticket: Ticket,
    data: Data,
    volume: VolumeId,
    parts: u32,
    result: Result<(), VolumeError>,
    /// Bytes of zeros written because the file system cannot zero the range.
    written: u64,
}

impl FileStorage {
    /// Makes it without volumes. The kernel gets this many parts of requests at once, a power of two.
    ///
    /// # Errors
    ///
    /// Fails if the kernel has no io_uring, or does not allow it.
    pub fn new(entries: u32) -> io::Result<FileStorage> {
        let entries = entries.clamp(8, 4096).next_power_of_two();
        Ok(FileStorage {
            volumes: BTreeMap::new(),
            next_volume: 0,
            requests: Vec::new(),
            free: Vec::with_capacity(entries as usize),
            ring: Uring::new(entries)?,
            answers: Vec::with_capacity(entries as usize),
            done: Vec::with_capacity(entries as usize),
            zeros: None,
        })
    }

    /// Adds a volume of `length` bytes on files or block devices, which must be open for reading, and for
    /// writing unless it is `read_only`, each with the offset of its slice. With several, `stripe` bytes (a
    /// multiple of 4,096) are on each in turn. A file that is too short is extended.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` for invalid sizes; errors of the system calls.
    pub fn add(
        &mut self,
        files: Vec<(File, u64)>,
        length: u64,
        stripe: u64,
        read_only: bool,
    ) -> io::Result<VolumeId> {
        let count = files.len() as u64;
        let stripe = if count == 1 { u64::MAX } else { stripe };
        let striped = count == 1
            || (stripe > 0
                && stripe.is_multiple_of(4096)
                && stripe.checked_mul(count).is_some_and(|row| length.is_multiple_of(row)));
        if count == 0 || length == 0 || !length.is_multiple_of(512) || !striped {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut info = VolumeInfo {
            length,
            alignment: 1,
            memory_alignment: 1,
            // Of the page cache or of the disk: neither can be ruled out.
            volatile_cache: true,
            thin: !read_only,
            takes_hints: false,
            read_only,
            writes_zeros: false,
        };
        let mut opened = Vec::with_capacity(files.len());
        for (file, offset) in files {
            fit(&file, offset, length / count, read_only)?;
            let (direct, alignment, memory_alignment) = reopen(&file, read_only)?;
            info.alignment = info.alignment.max(alignment);
            info.memory_alignment = info.memory_alignment.max(memory_alignment);
            info.thin &= can_punch(&file)?;
            if !offset.is_multiple_of(alignment) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            opened.push((direct, file, offset));
        }
        let slices = opened
            .into_iter()
            .map(|(direct, file, offset)| Slice { file: self.ring.open(direct, file), offset });
        let slices = slices.collect();
        let id = self.next_volume;
        self.next_volume += 1;
        self.volumes.insert(id, Volume { slices, stripe, info });
        Ok(VolumeId(id))
    }

    /// Removes a volume. Its files are closed when its last request has ended.
    pub fn remove(&mut self, volume: VolumeId) {
        for slice in self.volumes.remove(&volume.0).into_iter().flat_map(|held| held.slices) {
            self.ring.close(slice.file);
        }
    }

    /// Changes a volume's length. A file that is too short is extended; none is truncated.
    ///
    /// # Errors
    ///
    /// Those of [`FileStorage::add`]; `NotFound` if there is no such volume.
    pub fn resize(&mut self, volume: VolumeId, length: u64) -> io::Result<()> {
        let held = self.volumes.get_mut(&volume.0).ok_or(io::ErrorKind::NotFound)?;
        let count = held.slices.len() as u64;
        let row = if count == 1 { 512 } else { held.stripe * count };
        if length == 0 || !length.is_multiple_of(row) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for slice in &held.slices {
            fit(&slice.file.given, slice.offset, length / count, held.info.read_only)?;
        }
        held.info.length = length;
        Ok(())
    }

    /// Keeps these, one for each of a volume's files, until the requests that it has now have ended; if there
    /// are no descriptors to track that, until the volume is removed.
    pub fn keep<T: Send + 'static>(&mut self, volume: VolumeId, kept: Vec<T>) {
        let Some(held) = self.volumes.get_mut(&volume.0) else { return };
        for (slice, kept) in held.slices.iter_mut().zip(kept) {
            slice.file.keep(Box::new(kept));
            // Later requests use another descriptor.
            let again =
                slice.file.direct.try_clone().and_then(|direct| Ok((direct, slice.file.given.try_clone()?)));
            if let Ok((direct, given)) = again {
                let again = self.ring.open(direct, given);
                self.ring.close(std::mem::replace(&mut slice.file, again));
            }
        }
    }

    /// Watches a descriptor, an eventfd: [`FileStorage::sleep`] ends when something is written to it.
    pub fn watch(&mut self, event: OwnedFd) {
        self.ring.watch(event);
    }

    /// Sleeps until a request is answered or the watched descriptor is written to, at most this long.
    pub fn sleep(&mut self, limit: Option<std::time::Duration>) {
        if self.done.is_empty() {
            self.ring.submit();
            self.ring.wait(limit);
        }
    }

    /// Returns true if requests are in progress.
    pub fn is_busy(&self) -> bool {
        self.ring.is_busy() || !self.done.is_empty()
    }

    /// Waits until a request is answered, or the time is over.
    pub fn wait(&mut self, timeout: std::time::Duration) {
        self.ring.submit();
        if self.ring.is_busy() && self.done.is_empty() {
            self.ring.wait(Some(timeout));
        }
    }

    /// Returns a request's data as the kernel takes them: pieces of memory in order.
    fn memory(data: &mut Data) -> Vec<libc::iovec> {
        let piece = |base: *mut u8, length| libc::iovec { iov_base: base.cast(), iov_len: length };
        match data {
            Data::None => Vec::new(),
            Data::Buffer(buffer) => {
                let bytes = buffer.bytes_mut();
                vec![piece(bytes.as_mut_ptr(), bytes.len())]
            }
            Data::Pieces(pieces) => {
                pieces.iter().map(|one| piece(one.pointer().as_ptr(), one.length())).collect()
            }
        }
    }

    /// Makes the parts of a request: one for each slice that it touches.
    fn cut(&mut self, request: &mut Request) -> Result<(), VolumeError> {
        let volume = self.volumes.get(&request.volume.0).ok_or(VolumeError::Refused)?;
        let info = &volume.info;
        let end = request.offset.checked_add(request.length);
        let aligned = (request.offset | request.length) & (info.alignment - 1) == 0;
        let writes = !matches!(request.action, Action::Read | Action::Flush);
        if !aligned || end.is_none_or(|end| end > info.length) || (writes && info.read_only) {
            return Err(VolumeError::Refused);
        }
        let held = self.free.pop().unwrap_or_else(|| {
            let (ticket, volume) = (request.ticket, request.volume);
            self.requests.push(InProgress {
                ticket,
                volume,
                data: Data::None,
                parts: 0,
                result: Ok(()),
                written: 0,
            });
            self.requests.len() as u32 - 1
        });
        let operation = match request.action {
            Action::Read => Operation::Read,
            Action::Write { durable } => Operation::Write { durable },
            Action::Flush => Operation::Sync,
            Action::Deallocate => Operation::Allocate { mode: PUNCH, durable: false },
            Action::Zero { deallocate, durable } => {
                Operation::Allocate { mode: if deallocate { PUNCH } else { ZERO }, durable }
            }
        };
        let parts = match &volume.slices[..] {
            [slice] => whole(&mut self.ring, slice, (held, operation), request),
            _ => each(&mut self.ring, volume, (held, operation), request),
        };
        let (ticket, volume) = (request.ticket, request.volume);
        let data = std::mem::take(&mut request.data);
        self.requests[held as usize] = InProgress { ticket, volume, data, parts, result: Ok(()), written: 0 };
        if parts == 0 {
            self.end(held);
        }
        Ok(())
    }

    fn end(&mut self, request: u32) {
        let held = &mut self.requests[request as usize];
        let data = std::mem::take(&mut held.data);
        self.done.push(Response { ticket: held.ticket, data, result: held.result, written: held.written });
        self.free.push(request);
    }

    /// Takes the kernel's answer to a part: it goes on, or is done.
    fn answer(&mut self, answer: &Answer) {
        let part = self.ring.part(answer.part);
        let request = part.request;
        let next = match progress(part, answer.result) {
            Progress::Again => true,
            Progress::Done => false,
            Progress::WriteZeros => {
                let held = &mut self.requests[request as usize];
                held.written += part.length;
                if let Some(volume) = self.volumes.get_mut(&held.volume.0) {
                    volume.info.writes_zeros = true;
                }
                let zeros = self.zeros.get_or_insert_with(|| Buffer::new(ZEROS));
                write_zeros(part, zeros);
                true
            }
            Progress::Failed(error) => {
                let held = &mut self.requests[request as usize];
                held.result = held.result.and(Err(error));
                false
            }
        };
        if next {
            return self.ring.start(answer.part);
        }
        self.ring.give(answer.part);
        let held = &mut self.requests[request as usize];
        held.parts -= 1;
        if held.parts == 0 {
            self.end(request);
        }
    }
}

const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
const PUNCH: i32 = FallocateFlags::PUNCH_HOLE.union(KEEP).bits() as i32;
const ZERO: i32 = FallocateFlags::ZERO_RANGE.union(KEEP).bits() as i32;

/// The progress of a part.
enum Progress {
    Done,
    /// The rest of it is tried again.
    Again,
    /// The file system cannot zero the range: zeros are written.
    WriteZeros,
    Failed(VolumeError),
}

fn progress(part: &mut Part, result: i32) -> Progress {
    let is = |errors: &[Errno]| errors.iter().any(|error| error.raw_os_error() == result.saturating_neg());
    match part.operation {
        _ if is(&[Errno::INTR, Errno::AGAIN]) => Progress::Again,
        Operation::Allocate { .. } if is(&[Errno::OPNOTSUPP, Errno::INVAL]) => Progress::WriteZeros,
        _ if is(&[Errno::NOSPC, Errno::DQUOT]) => Progress::Failed(VolumeError::Full),
        _ if result < 0 => Progress::Failed(VolumeError::Medium(-result)),
        Operation::Read | Operation::Write { .. } => {
            let done = u64::from(result.unsigned_abs());
            part.length = part.length.saturating_sub(done);
            if part.length == 0 {
                return Progress::Done;
            }
            if done == 0 {
                // The file was truncated.
                return Progress::Failed(VolumeError::Medium(Errno::IO.raw_os_error()));
            }
            part.offset += done;
            skip(&mut part.pieces, done as usize);
            Progress::Again
        }
        Operation::Allocate { durable: true, .. } => {
            part.operation = Operation::Sync;
            Progress::Again
        }
        Operation::Sync | Operation::Allocate { .. } => Progress::Done,
    }
}

/// Makes the only part of a request whose volume is one slice; the number of parts.
fn whole(ring: &mut Uring, slice: &Slice, kind: (u32, Operation), request: &mut Request) -> u32 {
    if request.length == 0 && request.action != Action::Flush {
        return 0;
    }
    let index = ring.take();
    let part = ring.part(index);
    (part.request, part.operation) = kind;
    (part.offset, part.length) = (slice.offset + request.offset, request.length);
    part.file = Some(slice.file.clone());
    match &mut request.data {
        Data::None => {}
        Data::Buffer(buffer) => part.pieces.push(libc::iovec {
            iov_base: buffer.bytes_mut().as_mut_ptr().cast(),
            iov_len: request.length as usize,
        }),
        Data::Pieces(pieces) => {
            part.pieces.extend(pieces.iter().map(|piece| libc::iovec {
                iov_base: piece.pointer().as_ptr().cast(),
                iov_len: piece.length(),
            }))
        }
    }
    ring.start(index);
    1
}

/// Makes a part of a request for each slice of its volume that it touches; the number of parts.
fn each(ring: &mut Uring, volume: &Volume, kind: (u32, Operation), request: &mut Request) -> u32 {
    let memory = FileStorage::memory(&mut request.data);
    let mut parts = 0;
    for (number, slice) in (0u64..).zip(&volume.slices) {
        let (offset, length) = match request.action {
            Action::Flush => (0, 0),
            _ => volume.range(number, request.offset, request.length),
        };
        if length == 0 && request.action != Action::Flush {
            continue;
        }
        let index = ring.take();
        let part = ring.part(index);
        (part.request, part.operation) = kind;
        (part.offset, part.length) = (slice.offset + offset, length);
        part.file = Some(slice.file.clone());
        if length > 0 {
            gather(part, &memory, request.offset, volume.stripe, |at| volume.slice_of(at) == number);
        }
        ring.start(index);
        parts += 1;
    }
    parts
}

/// Removes this many bytes from the front.
fn skip(pieces: &mut Vec<libc::iovec>, mut bytes: usize) {
    let whole = pieces.iter().take_while(|piece| {
        let fits = piece.iov_len <= bytes;
        bytes -= if fits { piece.iov_len } else { 0 };
        fits
    });
    let whole = whole.count();
    pieces.drain(..whole);
    if let Some(first) = pieces.first_mut() {
        first.iov_base = first.iov_base.cast::<u8>().wrapping_add(bytes).cast();
        first.iov_len -= bytes;
    }
}

/// Makes the part write zeros instead.
fn write_zeros(part: &mut Part, zeros: &mut Buffer) {
    let base = zeros.bytes_mut().as_mut_ptr();
    let mut left = part.length as usize;
    while left > 0 {
        let length = left.min(ZEROS);
        part.pieces.push(libc::iovec { iov_base: base.cast(), iov_len: length });
        left -= length;
    }
    part.operation = Operation::Write { durable: true };
}

/// Returns the pieces of memory whose place in the volume is on one slice.
fn gather(part: &mut Part, memory: &[libc::iovec], mut at: u64, stripe: u64, within: impl Fn(u64) -> bool) {
    for piece in memory {
        let mut done = 0;
        while done < piece.iov_len {
            let room = stripe - at % stripe;
            let length = (piece.iov_len - done).min(usize::try_from(room).unwrap_or(usize::MAX));
            if within(at) {
                let base = piece.iov_base.cast::<u8>().wrapping_add(done);
                part.pieces.push(libc::iovec { iov_base: base.cast(), iov_len: length });
            }
            done += length;
            at += length as u64;
        }
    }
}

impl Volume {
    /// Returns the slice with a byte of the volume.
    fn slice_of(&self, at: u64) -> u64 {
        at / self.stripe % self.slices.len() as u64
    }

    /// Returns the number of bytes of a slice that are before this place of the volume.
    fn before(&self, slice: u64, at: u64) -> u64 {
        let (count, row) = (self.slices.len() as u64, at / self.stripe);
        let whole = row / count * self.stripe;
        whole
            + match (row % count).cmp(&slice) {
                std::cmp::Ordering::Greater => self.stripe,
                std::cmp::Ordering::Equal => at % self.stripe,
                std::cmp::Ordering::Less => 0,
            }
    }

    /// Returns the range of a slice for a range of the volume: it is contiguous.
    fn range(&self, slice: u64, offset: u64, length: u64) -> (u64, u64) {
        let start = self.before(slice, offset);
        (start, self.before(slice, offset + length) - start)
    }
}

/// Extends a file if necessary.
fn fit(file: &File, offset: u64, length: u64, read_only: bool) -> io::Result<()> {
    let end = offset.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
    let metadata = file.metadata()?;
    let there = match metadata.file_type().is_block_device() {
        true => rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?,
        false => metadata.len(),
    };
    match there {
        there if there >= end => Ok(()),
        _ if read_only || !metadata.is_file() => Err(io::ErrorKind::InvalidInput.into()),
        _ => file.set_len(end),
    }
}

/// Opens the same file with O_DIRECT, if possible, and returns its alignments of offsets and memory.
fn reopen(file: &File, read_only: bool) -> io::Result<(OwnedFd, u64, u64)> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let access = OFlags::CLOEXEC | if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let open = |flags| rustix::fs::open(&path, access | OFlags::DIRECT | flags, Mode::empty());
    // Nobody asks when a guest last read, and to note it takes time. Only a file's owner may leave it out.
    let direct = match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        opened => opened,
    };
    match direct {
        Ok(direct) => {
            let (offset, memory) = alignment(direct.as_fd());
            Ok((direct, offset, memory))
        }
        // The file system does not support O_DIRECT.
        Err(Errno::INVAL) => Ok((file.try_clone()?.into(), 1, 1)),
        Err(error) => Err(error.into()),
    }
}

fn alignment(file: BorrowedFd<'_>) -> (u64, u64) {
    let known = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let known = known.filter(|known| known.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    match known.map(|known| (known.stx_dio_offset_align, known.stx_dio_mem_align)) {
        Some((offset, memory)) if offset > 0 => (offset.into(), memory.max(4).into()),
        _ => (USUAL_ALIGNMENT, USUAL_ALIGNMENT),
    }
}

/// Returns true if ranges of it can be deallocated: only a file's, by punching a hole. Tried beyond its end,
/// where there are no data.
fn can_punch(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let beyond = metadata.len().next_multiple_of(USUAL_ALIGNMENT);
    Ok(metadata.is_file() && rustix::fs::fallocate(file, mode, beyond, USUAL_ALIGNMENT).is_ok())
}

impl Storage for FileStorage {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.volumes.get(&volume.0).map(|held| held.info)
    }

    fn submit(&mut self, mut request: Request) {
        if let Err(error) = self.cut(&mut request) {
            self.done.push(Response::refused(request, error));
        }
    }

    fn commit(&mut self) {
        self.ring.submit();
    }

    fn reap(&mut self, responses: &mut Vec<Response>) {
        let mut answers = std::mem::take(&mut self.answers);
        self.ring.reap(&mut answers);
        for answer in answers.drain(..) {
            self.answer(&answer);
        }
        self.answers = answers;
        if self.ring.has_ready() {
            self.ring.submit();
        }
        responses.append(&mut self.done);
    }
}

impl Drop for FileStorage {
    /// Waits for the kernel's last answer for a while; parts that it still has after that are leaked.
    fn drop(&mut self) {
        if !self.ring.settle() {
            std::mem::forget(std::mem::take(&mut self.requests));
            std::mem::forget(self.zeros.take());
        }
    }
}
