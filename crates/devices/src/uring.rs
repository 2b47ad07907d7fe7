//! io_uring: requests that the kernel carries out asynchronously.
//!
//! This module lends buffers to the kernel. The rule that makes this sound: a request owns its buffer (taken out of the pool) from its
//! submission until its last completion. If the ring must go before that, the buffers are leaked, never freed while the kernel may use
//! them.

use crate::attempt::{DiskRequest, Interest};
use crate::buffer::{BlockPool, Buffer};
use crate::fork::Process;
use dcs_engine::{BlockId, OperationId};
use io_uring::types::Fd;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::fd::{AsRawFd, RawFd};
use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// user_data of the wake-up's poll; no operation has this value (generations start at 1 and an index is below 2^24).
const WAKE: u64 = u64::MAX;
/// user_data of requests whose completion is ignored (cancels).
const IGNORE: u64 = u64::MAX - 1;
/// user_data of the poll for edges.
const EDGES: u64 = u64::MAX - 2;

const ENTRIES: u32 = 256;
/// Most threads that the kernel makes for requests that wait for files.
const WORKERS: u32 = 1024;

/// IORING_SEND_ZC_REPORT_USAGE: the notification tells whether the kernel had to copy.
const SEND_ZC_REPORT_USAGE: u16 = 1 << 3;
/// IORING_NOTIF_USAGE_ZC_COPIED.
const NOTIF_COPIED: i32 = i32::MIN;

const POLLIN: u32 = 0x1;
const POLLOUT: u32 = 0x4;
const POLLERR: u32 = 0x8;
const POLLHUP: u32 = 0x10;

/// The result of a completed request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A poll: the descriptor is ready (or the poll was cancelled); or it is only in error, perhaps permanently.
    Ready { operation: OperationId, only_error: bool },
    /// Something has happened to a descriptor of [`Edges`](crate::edge::Edges).
    Edges,
    /// A disk request: its result, and its block's buffer. For a zero-copy send the buffer comes later.
    Done { operation: OperationId, result: i32, buffer: Option<(BlockId, Buffer)>, held: bool },
    /// The kernel has released a zero-copy send's buffer; `copied` if it had to copy.
    Released { operation: OperationId, block: BlockId, buffer: Buffer, copied: bool },
}

struct Lent {
    block: Option<(BlockId, Buffer)>,
    /// File that it writes to.
    writes: Option<RawFd>,
    /// Set when the send is done and its notification is awaited.
    awaits_release: bool,
}

/// The writes to one file that are not done. While the kernel has some, further ones are collected and submitted together: the kernel
/// merges adjacent ones, and each request that reaches a disk costs processor time (in a virtual machine, an exit).
#[derive(Default)]
struct Writes {
    in_kernel: usize,
    gathered: Vec<squeue::Entry>,
}

impl Writes {
    /// Writes that are submitted at once: the fewest that the kernel merges.
    const BATCH_MIN: usize = 3;

    fn are_due(&self) -> bool {
        self.gathered.len() >= Writes::BATCH_MIN || self.in_kernel == 0
    }
}

/// Most bytes of blocks that are registered, and so pinned: with blocks of 128 KiB, as many as io_uring's index has always had room for.
const PINNED_MAX: usize = 64 << 20;

pub(crate) struct Uring {
    // A forked child has neither the ring's memory nor its requests, and must not unmap what is in their place.
    ring: ManuallyDrop<IoUring>,
    process: Process,
    lent: HashMap<u64, Lent>,
    /// Writes, by file.
    writes: HashMap<RawFd, Writes>,
    /// Completions that had to be taken while requests were submitted.
    early: Vec<(u64, i32, u32)>,
    /// Requests in the kernel that will be answered.
    in_flight: usize,
    wake_armed: bool,
    edges_armed: bool,
    /// Set while the poll for edges is being cancelled.
    edges_ending: bool,
    /// Number of registered blocks, the first ones: the index is the block's number.
    fixed: usize,
    pub zero_copy: bool,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uring({} in flight)", self.in_flight)
    }
}

impl Uring {
    /// Sets a ring up. Fails if the kernel has none, or forbids it (sysctl, seccomp), or lacks an operation. `by_many`: several threads use
    /// it in turn.
    pub fn new(by_many: bool) -> io::Result<Uring> {
        let plain = || IoUring::builder().dontfork().build(ENTRIES);
        let ring = if by_many {
            // A thread that has gone on to compute must be interrupted for other threads' completions.
            plain()?
        } else {
            // Kernels before 5.19 do not know the flag.
            IoUring::builder().dontfork().setup_coop_taskrun().build(ENTRIES).or_else(|_| plain())?
        };
        // Requests that are stuck in one file system must not keep others waiting for a worker. Refused before 5.15.
        let _ = ring.submitter().register_iowq_max_workers(&mut [WORKERS, 0]);
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        let has_all = needed.iter().all(|code| probe.is_supported(*code));
        if !has_all || !ring.params().is_feature_nodrop() || !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let zero_copy = probe.is_supported(opcode::SendZc::CODE);
        Ok(Uring {
            ring: ManuallyDrop::new(ring),
            process: Process::current(),
            lent: HashMap::new(),
            writes: HashMap::new(),
            early: Vec::new(),
            in_flight: 0,
            wake_armed: false,
            edges_armed: false,
            edges_ending: false,
            fixed: 0,
            zero_copy,
        })
    }

    /// Registers blocks, so that the kernel need not look up their pages for each request. Registering pins them, so only the first ones
    /// are registered, which are used first. If RLIMIT_MEMLOCK forbids it, requests go without. Returns true on success.
    pub fn register(&mut self, pool: &BlockPool) -> bool {
        let Some(regions) = pool.regions() else { return false };
        let vector = |(start, length): &(*const u8, usize)| libc::iovec {
            iov_base: start.cast_mut().cast(),
            iov_len: *length,
        };
        let mut room = PINNED_MAX;
        let fits = |(_, length): &&(*const u8, usize)| {
            let left = room.checked_sub(*length);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let vectors: Vec<libc::iovec> = regions.iter().take_while(fits).map(vector).collect();
        // SAFETY: the regions are the pool's blocks. They are freed only when the pool is dropped; the
        // controller drops the ring, and with it the registration, before.
        let registered = unsafe { self.ring.submitter().register_buffers(&vectors) }.is_ok();
        self.fixed = if registered { vectors.len() } else { 0 };
        registered
    }

    /// Starts a disk request that reads into `buffer` or writes from it.
    pub fn start(&mut self, id: OperationId, request: DiskRequest, buffer: Option<(BlockId, Buffer)>) {
        let mut block = buffer;
        let (pointer, index) = match &mut block {
            Some((block, buffer)) => (buffer.bytes_mut().as_mut_ptr(), block.index() as u16),
            None => (std::ptr::null_mut(), 0),
        };
        let fixed = block.as_ref().is_some_and(|(block, _)| block.index() < self.fixed);
        let at = |start: u32| pointer.wrapping_add(start as usize);
        let entry = match request {
            DiskRequest::Read { fd, offset, start, length, .. } if fixed => {
                opcode::ReadFixed::new(Fd(fd), at(start), length, index).offset(offset).build()
            }
            DiskRequest::Read { fd, offset, start, length, .. } => {
                opcode::Read::new(Fd(fd), at(start), length).offset(offset).build()
            }
            DiskRequest::Write { fd, offset, start, length, .. } if fixed => {
                opcode::WriteFixed::new(Fd(fd), at(start), length, index).offset(offset).build()
            }
            DiskRequest::Write { fd, offset, start, length, .. } => {
                opcode::Write::new(Fd(fd), at(start), length).offset(offset).build()
            }
            DiskRequest::SendZeroCopy { fd, start, length, more, .. } => {
                let mut flags = rustix::net::SendFlags::NOSIGNAL;
                flags.set(rustix::net::SendFlags::MORE, more);
                opcode::SendZc::new(Fd(fd), at(start), length)
                    .buf_index(fixed.then_some(index))
                    .flags(flags.bits() as i32)
                    .zc_flags(SEND_ZC_REPORT_USAGE)
                    .build()
            }
            DiskRequest::Sync { fd, .. } => {
                opcode::Fsync::new(Fd(fd)).flags(types::FsyncFlags::DATASYNC).build()
            }
        };
        let writes = match request {
            DiskRequest::Write { fd, .. } => Some(fd),
            _ => None,
        };
        self.lent.insert(id.to_bits(), Lent { block, writes, awaits_release: false });
        let entry = entry.user_data(id.to_bits());
        self.in_flight += 1;
        let Some(fd) = writes else { return self.push(entry) };
        let writes = self.writes.entry(fd).or_default();
        writes.gathered.push(entry);
        if writes.are_due() {
            self.hand_over(fd);
        }
    }

    /// Submits the writes collected for a file.
    fn hand_over(&mut self, fd: RawFd) {
        let Some(writes) = self.writes.get_mut(&fd) else { return };
        let gathered = std::mem::take(&mut writes.gathered);
        writes.in_kernel += gathered.len();
        if writes.in_kernel == 0 {
            self.writes.remove(&fd);
        }
        for entry in gathered {
            self.push(entry);
        }
    }

    /// Handles the end of a write to a file.
    fn written(&mut self, fd: RawFd) {
        let Some(writes) = self.writes.get_mut(&fd) else { return };
        writes.in_kernel -= 1;
        if writes.are_due() {
            self.hand_over(fd);
        }
    }

    /// Requests a reply when a descriptor is ready.
    pub fn poll(&mut self, id: OperationId, fd: RawFd, interest: Interest) {
        let flags = match interest {
            Interest::Readable => POLLIN,
            Interest::Writable => POLLOUT,
        };
        self.push(opcode::PollAdd::new(Fd(fd), flags).build().user_data(id.to_bits()));
        self.in_flight += 1;
    }

    /// Requests a reply when `event`, that of [`Edges`](crate::edge::Edges), reports something.
    pub fn poll_edges(&mut self, event: RawFd) {
        if !std::mem::replace(&mut self.edges_armed, true) {
            self.push(opcode::PollAdd::new(Fd(event), POLLIN).build().user_data(EDGES));
        }
    }

    /// Stops polling for edges; returns false if that takes until the reply.
    pub fn stop_edges(&mut self) -> bool {
        if self.edges_armed && !std::mem::replace(&mut self.edges_ending, true) {
            self.push(opcode::AsyncCancel::new(EDGES).build().user_data(IGNORE));
            self.in_flight += 1;
        }
        !self.edges_armed
    }

    /// Cancels a request; its reply still comes.
    pub fn cancel(&mut self, id: OperationId) {
        // The kernel can only cancel what it has.
        if let Some(fd) = self.lent.get(&id.to_bits()).and_then(|lent| lent.writes) {
            self.hand_over(fd);
        }
        self.push(opcode::AsyncCancel::new(id.to_bits()).build().user_data(IGNORE));
        self.in_flight += 1;
    }

    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: the buffer of the entry, if it has one, is owned by `self.lent` until the kernel's last
            // word; its descriptor is kept open by the operation's route.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full, so submit at once. The kernel may refuse before completions are taken (EBUSY), or before it has memory
            // again (EAGAIN).
            if self.ring.submit().is_err() {
                self.drain();
                std::thread::yield_now();
            }
        }
    }

    /// Submits requests to the kernel without waiting.
    pub fn submit(&mut self) {
        if !self.ring.submission().is_empty() {
            // A failure (EAGAIN, EBUSY, EINTR) is retried with the next call.
            let _ = self.ring.submit();
        }
    }

    /// Submits requests and waits until something is done, `wake` is written to, or the timeout expires.
    pub fn wait(&mut self, wake: RawFd, timeout: Option<Duration>) {
        if !self.wake_armed {
            self.push(opcode::PollAdd::new(Fd(wake), POLLIN).build().user_data(WAKE));
            self.wake_armed = true;
        }
        let timespec = timeout.map(types::Timespec::from);
        let mut arguments = types::SubmitArgs::new();
        if let Some(timespec) = &timespec {
            arguments = arguments.timespec(timespec);
        }
        if !self.early.is_empty() {
            return self.submit();
        }
        // ETIME and EINTR mean that nothing completed: the caller checks for itself.
        let _ = self.ring.submitter().submit_with_args(1, &arguments);
    }

    /// Takes completions from the kernel; returns whether the waker was used.
    pub fn reap(&mut self, replies: &mut Vec<Reply>) -> bool {
        let mut woken = false;
        self.drain();
        let mut early = std::mem::take(&mut self.early);
        for (bits, result, flags) in early.drain(..) {
            match bits {
                WAKE => (self.wake_armed, woken) = (false, true),
                IGNORE => self.in_flight -= 1,
                EDGES => {
                    (self.edges_armed, self.edges_ending) = (false, false);
                    replies.push(Reply::Edges);
                }
                _ => {
                    if let Some(fd) = self.lent.get(&bits).and_then(|lent| lent.writes) {
                        self.written(fd);
                    }
                    replies.extend(reply(&mut self.lent, &mut self.in_flight, bits, result, flags));
                }
            }
        }
        // Requests that were submitted in between may have completed something.
        if self.early.is_empty() {
            self.early = early;
        }
        woken
    }

    fn drain(&mut self) {
        let entry = |entry: io_uring::cqueue::Entry| (entry.user_data(), entry.result(), entry.flags());
        self.early.extend(self.ring.completion().map(entry));
    }

    /// Returns the descriptor that becomes readable when a request completes.
    pub fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Returns true if any request awaits its completion.
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0
    }

    /// Returns true if the kernel has nothing of this ring's, not even a wait for the waker, and nothing is queued.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        let waits = self.wake_armed || self.edges_armed || self.edges_ending;
        self.in_flight == 0
            && !waits
            && self.early.is_empty()
            && self.lent.is_empty()
            && self.writes.is_empty()
    }
}

fn reply(
    lent: &mut HashMap<u64, Lent>,
    in_flight: &mut usize,
    bits: u64,
    result: i32,
    flags: u32,
) -> Option<Reply> {
    let operation = OperationId::from_bits(bits);
    let more = io_uring::cqueue::more(flags);
    *in_flight -= usize::from(!more);
    let Some(mut request) = lent.remove(&bits) else {
        let only_error = result >= 0 && result as u32 & (POLLERR | POLLIN | POLLOUT | POLLHUP) == POLLERR;
        return Some(Reply::Ready { operation, only_error });
    };
    if io_uring::cqueue::notif(flags) {
        let (block, buffer) = request.block.take()?;
        return Some(Reply::Released { operation, block, buffer, copied: result & NOTIF_COPIED != 0 });
    }
    if more {
        request.awaits_release = true;
        lent.insert(bits, request);
        return Some(Reply::Done { operation, result, buffer: None, held: true });
    }
    Some(Reply::Done { operation, result, buffer: request.block, held: false })
}

impl Drop for Uring {
    /// Cancels requests in flight and waits a while for their last completions. The buffer of a request that does not complete is leaked.
    fn drop(&mut self) {
        if !self.process.is_current() {
            return self.lent.drain().for_each(|(_, request)| std::mem::forget(request));
        }
        self.take_all_back();
        // SAFETY: nothing uses it any more.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}

impl Uring {
    fn take_all_back(&mut self) {
        let requests: Vec<u64> = self.lent.keys().copied().collect();
        for bits in requests {
            self.cancel(OperationId::from_bits(bits));
        }
        let mut replies = Vec::new();
        for _ in 0..100 {
            if self.lent.is_empty() {
                return;
            }
            let timespec = types::Timespec::from(Duration::from_millis(20));
            let _ = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&timespec));
            self.reap(&mut replies);
        }
        for (_, request) in self.lent.drain() {
            std::mem::forget(request);
        }
    }
}
