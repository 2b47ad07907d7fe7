//! Signals of eventfds that other processes hold too.
//!
//! write(2) may block: O_NONBLOCK belongs to the open file, and every holder of a descriptor of it can clear the flag and fill the counter.
//! A completed operation of Linux AIO signals an eventfd without waiting, whatever its flags and its counter are. The operation here, a
//! poll of an event of our own, completes within the call that submits it. [io_submit(2), IOCB_FLAG_RESFD and IOCB_CMD_POLL in
//! linux/aio_abi.h]
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

const CMD_POLL: u16 = 5;
const FLAG_RESFD: u32 = 1;
/// Completions that are taken at once.
const ENDS: usize = 64;
/// Attempts at a submission that finds the queue of completions full, since other threads fill it too.
const TRIES: usize = 16;

/// `struct iocb`, little-endian.
#[repr(C)]
#[derive(Default)]
struct Operation {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct End([u64; 4]);

/// A signaller of eventfds that never waits. There is one per process.
#[derive(Debug)]
pub struct Signals {
    context: libc::c_ulong,
    /// Event that is always writable, as nothing else has it.
    ready: OwnedFd,
}

impl Signals {
    /// Requests that a process takes of the system's limit (fs.aio-max-nr).
    pub const REQUESTS: u64 = ENDS as u64;

    /// Returns this process's signaller.
    ///
    /// # Errors
    ///
    /// Those of eventfd(2) and io_setup(2): the system has no AIO, or its limit (fs.aio-max-nr) is reached.
    pub fn get() -> io::Result<&'static Signals> {
        static SIGNALS: OnceLock<Result<Signals, Errno>> = OnceLock::new();
        SIGNALS.get_or_init(Signals::new).as_ref().map_err(|errno| {
            let errno = io::Error::from(*errno);
            let line = format!("interrupts need Linux AIO (see fs.aio-max-nr in sysctl): {errno}");
            io::Error::new(errno.kind(), line)
        })
    }

    fn new() -> Result<Signals, Errno> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup(2) writes the context's number there, and maps separate memory.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, ENDS, &raw mut context) })?;
        Ok(Signals { context, ready })
    }

    /// Adds 1 to an eventfd. A full one stays full.
    ///
    /// # Errors
    ///
    /// Those of io_submit(2): it is not an eventfd, or the kernel has no memory left.
    pub fn signal(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        let mut operation = Operation {
            opcode: CMD_POLL,
            fd: self.ready.as_raw_fd() as u32,
            buffer: libc::POLLOUT as u64,
            flags: FLAG_RESFD,
            signalled: event.as_raw_fd() as u32,
            ..Operation::default()
        };
        for _ in 0..TRIES {
            let mut list = [&raw mut operation];
            // SAFETY: one operation, which the kernel copies; it has no memory of ours for its result.
            let done =
                checked(unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) });
            if done != Err(Errno::AGAIN) {
                return Ok(done?);
            }
            self.forget_ends()?;
        }
        Err(Errno::AGAIN.into())
    }

    /// Makes room in the queue of completions.
    fn forget_ends(&self) -> Result<(), Errno> {
        let (mut ends, no_limit) = ([End::default(); ENDS], std::ptr::null::<libc::timespec>());
        // SAFETY: there is room for that many completions, and none is waited for.
        checked(unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, 0, ENDS, ends.as_mut_ptr(), no_limit)
        })
    }
}

fn checked(result: libc::c_long) -> Result<(), Errno> {
    let failed = || Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO);
    if result < 0 { Err(failed()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn count(event: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(event, &mut count).unwrap();
        u64::from_ne_bytes(count)
    }

    #[test]
    fn more_signals_than_the_queue_has_room_for_all_arrive_from_several_threads() {
        let signals = Signals::get().unwrap();
        let events = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        std::thread::scope(|scope| {
            for event in &events {
                scope.spawn(move || (0..5000).for_each(|_| signals.signal(event.as_fd()).unwrap()));
            }
        });
        assert_eq!(events.each_ref().map(count), [5000; 2]);
    }

    #[test]
    fn an_event_that_is_full_is_not_waited_for_and_another_file_is_refused() {
        let signals = Signals::get().unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        (0..2).for_each(|_| signals.signal(event.as_fd()).unwrap());
        assert_eq!(count(&event), u64::MAX);
        let (_reader, pipe) = std::io::pipe().unwrap();
        assert!(signals.signal(pipe.as_fd()).is_err());
    }
}
