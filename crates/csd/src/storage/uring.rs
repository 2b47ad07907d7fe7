//! io_uring: parts of requests that the kernel carries out.
//!
//! The rule that makes it sound: from submission until the kernel's answer a part owns its list of pieces,
//! and its request the memory that they name. If the ring is dropped before that, both are leaked: they are
//! never freed while the kernel may use them.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Number of pieces of a part for which memory is allocated in advance.
const USUAL: usize = 8;

/// An operation of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write {
        durable: bool,
    },
    Sync,
    /// With the mode of fallocate(2).
    Allocate {
        mode: i32,
        durable: bool,
    },
}

/// `RWF_DSYNC`: as if the file were open with O_DSYNC. [pwritev2(2)]
const RWF_DSYNC: i32 = 2;

/// User data of the watched descriptor's entry.
const WATCH: u64 = u64::MAX;

/// Maximum number of files registered with the ring, which saves the kernel a look-up in the process's table
/// for each part. Further ones are named by their descriptors.
const FILES: u32 = 1024;

/// A file of a volume. It is closed when the volume is removed and its last request has ended.
pub struct Opened {
    /// For data: with O_DIRECT if possible.
    pub direct: OwnedFd,
    /// As it was given: closing it releases its locks.
    pub given: File,
    /// The index at which `direct` is registered.
    number: Option<u32>,
    /// Kept while it is open.
    kept: RefCell<Vec<Box<dyn Any>>>,
}

impl Opened {
    /// Keeps something until nothing uses the file through this handle any more.
    pub fn keep(&self, kept: Box<dyn Any>) {
        self.kept.borrow_mut().push(kept);
    }
}

/// A part of a request: one file, one range of it.
pub struct Part {
    pub request: u32,
    pub file: Option<Rc<Opened>>,
    pub operation: Operation,
    pub offset: u64,
    pub length: u64,
    pub pieces: Vec<libc::iovec>,
    /// The part uses the request's memory.
    pub lent: bool,
}

/// The kernel's answer to a part: bytes, or a negative errno.
pub struct Answer {
    pub part: u32,
    pub result: i32,
}

/// Number of parts that the kernel may have at once, for each that it takes in one call.
const ANSWERS: u32 = 16;

/// A ring.
pub struct Uring {
    ring: ManuallyDrop<IoUring>,
    parts: ManuallyDrop<Vec<Part>>,
    free: Vec<u32>,
    /// Free indexes for registered files.
    numbers: Vec<u32>,
    /// A descriptor that ends a sleep when it becomes readable.
    watched: Option<OwnedFd>,
    /// The kernel watches it.
    watching: bool,
    /// Parts that wait for room.
    backlog: VecDeque<u32>,
    in_flight: usize,
    most: usize,
}

impl Uring {
    /// Makes a ring that takes this many parts in one call, a power of two up to 4,096, and has up to
    /// [`ANSWERS`] times as many at once: disks that hang keep theirs. It belongs to this thread.
    pub fn new(entries: u32) -> io::Result<Uring> {
        let most = entries * ANSWERS;
        let plain = || IoUring::builder().dontfork().setup_cqsize(most).build(entries);
        let quiet = || {
            let mut quiet = IoUring::builder();
            quiet.dontfork().setup_cqsize(most).setup_coop_taskrun().setup_taskrun_flag().build(entries)
        };
        // The kernel does not interrupt the owner for answers, but sets a flag; the owner takes them with its
        // next call, from 6.1 on all at once. Kernels before 5.19 support neither.
        let mut own = IoUring::builder();
        own.dontfork().setup_cqsize(most).setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let ring = own.build(entries).or_else(|_| quiet()).or_else(|_| plain())?;
        let parameters = ring.params();
        // 5.13 was the last to add an operation that `watch` needs.
        if !parameters.is_feature_nodrop()
            || !parameters.is_feature_ext_arg()
            || !parameters.is_feature_resource_tagging()
        {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let known = ring.submitter().register_files_sparse(FILES).is_ok();
        let numbers = if known { (0..FILES).rev().collect() } else { Vec::new() };
        Ok(Uring {
            ring: ManuallyDrop::new(ring),
            parts: ManuallyDrop::new(Vec::new()),
            numbers,
            watched: None,
            watching: false,
            free: Vec::with_capacity(entries as usize),
            backlog: VecDeque::with_capacity(entries as usize),
            in_flight: 0,
            most: most as usize,
        })
    }

    /// Returns the number of a free part, whose list of pieces is empty.
    pub fn take(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        self.parts.push(Part {
            request: 0,
            file: None,
            operation: Operation::Sync,
            offset: 0,
            length: 0,
            pieces: Vec::with_capacity(USUAL),
            lent: false,
        });
        self.parts.len() as u32 - 1
    }

    pub fn part(&mut self, index: u32) -> &mut Part {
        &mut self.parts[index as usize]
    }

    pub fn give(&mut self, index: u32) {
        let part = self.part(index);
        part.pieces.clear();
        if let Some(file) = part.file.take() {
            self.close(file);
        }
        self.free.push(index);
    }

    /// Adds a file for parts; `direct` is used for data.
    pub fn open(&mut self, direct: OwnedFd, given: File) -> Rc<Opened> {
        let mut number = self.numbers.pop();
        if let Some(wanted) = number
            && self.ring.submitter().register_files_update(wanted, &[direct.as_raw_fd()]).is_err()
        {
            self.numbers.push(wanted);
            number = None;
        }
        Rc::new(Opened { direct, given, number, kept: RefCell::default() })
    }

    /// Releases a file: it is closed if nothing else uses it.
    pub fn close(&mut self, file: Rc<Opened>) {
        if let Some(Opened { number: Some(number), .. }) = Rc::into_inner(file)
            && self.ring.submitter().register_files_update(number, &[-1]).is_ok()
        {
            self.numbers.push(number);
        }
    }

    /// Watches a descriptor, an eventfd: a sleep ends when something is written to it.
    pub fn watch(&mut self, event: OwnedFd) {
        self.watched = Some(event);
    }

    fn look_at_watched(&mut self) {
        let Some(event) = self.watched.as_ref().filter(|_| !self.watching) else { return };
        let poll = opcode::PollAdd::new(Fd(event.as_raw_fd()), libc::POLLIN as u32).multi(true);
        // SAFETY: the entry names a descriptor that is open as long as the ring exists, and no memory.
        self.watching = unsafe { self.ring.submission().push(&poll.build().user_data(WATCH)) }.is_ok();
    }

    /// Gets a part ready, now or when there is room: the kernel has it after the next [`Uring::submit`].
    pub fn start(&mut self, index: u32) {
        if !self.backlog.is_empty() || !self.push(index) {
            self.backlog.push_back(index);
        }
    }

    /// Adds a part to those that the kernel gets next. Returns false if there is no room.
    fn push(&mut self, index: u32) -> bool {
        let part = &mut self.parts[index as usize];
        // SAFETY: the part and its request own everything that the entry names until the kernel's answer;
        // so does the file.
        let pushed = self.in_flight < self.most
            && unsafe { self.ring.submission().push(&entry(part).user_data(index.into())) }.is_ok();
        part.lent |= pushed;
        self.in_flight += usize::from(pushed);
        pushed
    }

    /// Submits the parts that are ready.
    pub fn submit(&mut self) {
        while let Some(index) = self.backlog.front().copied()
            && self.push(index)
        {
            self.backlog.pop_front();
        }
        if !self.ring.submission().is_empty() {
            // A call that fails (EAGAIN, EBUSY, EINTR) is repeated next time.
            let _ = self.ring.submit();
        }
    }

    /// Takes the kernel's answers.
    pub fn reap(&mut self, answers: &mut Vec<Answer>) {
        if self.ring.submission().taskrun() {
            // The kernel has answers, and delivers them when it is called.
            let _ = self.ring.submit();
        }
        for entry in self.ring.completion() {
            if entry.user_data() == WATCH {
                self.watching = cqueue::more(entry.flags());
                continue;
            }
            let part = entry.user_data() as u32;
            self.parts[part as usize].lent = false;
            self.in_flight -= 1;
            answers.push(Answer { part, result: entry.result() });
        }
    }

    /// Returns true if parts are in progress or wait.
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0 || !self.backlog.is_empty()
    }

    /// Returns true if parts wait to be submitted.
    pub fn has_ready(&mut self) -> bool {
        !self.backlog.is_empty() || !self.ring.submission().is_empty()
    }

    /// Waits for an answer or for the watched descriptor, with or without a time limit. With a limit it waits
    /// for several answers if many parts are in progress: they are taken together.
    pub fn wait(&mut self, limit: Option<Duration>) {
        // This pays only for a short time: a wake-up by the watched descriptor counts as one answer.
        let short = limit.is_some_and(|limit| limit < Duration::from_millis(1));
        let least = if short { (self.in_flight / 8).clamp(1, 8) } else { 1 };
        self.look_at_watched();
        let limit = limit.map(Timespec::from);
        let arguments = limit.as_ref().map_or(SubmitArgs::new(), |limit| SubmitArgs::new().timespec(limit));
        // A call that fails is repeated next time.
        let _ = self.ring.submitter().submit_with_args(least, &arguments);
    }

    /// Waits for all of the kernel's answers, for a while. Returns false if it still has parts: everything
    /// that they name must stay.
    pub fn settle(&mut self) -> bool {
        self.backlog.clear();
        let mut answers = Vec::new();
        for _ in 0..500 {
            self.reap(&mut answers);
            if self.in_flight == 0 {
                return true;
            }
            self.wait(Some(Duration::from_millis(20)));
        }
        false
    }
}

fn entry(part: &Part) -> squeue::Entry {
    let file = part.file.as_ref();
    match file.and_then(|file| file.number) {
        Some(number) => entry_on(part, Fd(number as i32)).flags(squeue::Flags::FIXED_FILE),
        None => entry_on(part, Fd(file.map_or(-1, |file| file.direct.as_raw_fd()))),
    }
}

fn entry_on(part: &Part, fd: Fd) -> squeue::Entry {
    let (list, count) = (part.pieces.as_ptr(), part.pieces.len() as u32);
    match part.operation {
        Operation::Read => match &part.pieces[..] {
            [one] => {
                opcode::Read::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(part.offset).build()
            }
            _ => opcode::Readv::new(fd, list, count).offset(part.offset).build(),
        },
        Operation::Write { durable } => {
            let flags = if durable { RWF_DSYNC } else { 0 };
            match &part.pieces[..] {
                [one] => {
                    let write = opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32);
                    write.offset(part.offset).rw_flags(flags).build()
                }
                _ => opcode::Writev::new(fd, list, count).offset(part.offset).rw_flags(flags).build(),
            }
        }
        Operation::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Operation::Allocate { mode, .. } => {
            opcode::Fallocate::new(fd, part.length).offset(part.offset).mode(mode).build()
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.settle() {
            // SAFETY: the kernel has none of them any more, and nothing uses them after this.
            unsafe {
                ManuallyDrop::drop(&mut self.ring);
                ManuallyDrop::drop(&mut self.parts);
            }
        }
    }
}
