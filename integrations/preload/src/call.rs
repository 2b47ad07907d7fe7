//! One call: finds what applies to it, and has the engine or the kernel carry it.

use crate::process;
use crate::setup::{self, Setup};
use crate::stream::{Cipher, Stop, Stream, StreamOptions};
use crate::streams::{Open, State};
use crate::sys::{self, Errno, Identity};
use dcs_preload_rules::{Counter, FirstCounter, Rule, key};
use libc::{c_int, off_t, ssize_t};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Arguments of the program's call.
struct Call {
    out_fd: c_int,
    in_fd: c_int,
    offset: *mut off_t,
    count: usize,
}

/// Result of the library's part in a call.
enum Verdict {
    /// The kernel must carry it; calls and bytes are counted under these.
    Kernel(Counter, Counter),
    Sent(usize),
    Failed(Errno),
}

/// Verdict if no chain applies.
const PLAIN: Verdict = Verdict::Kernel(Counter::KernelCalls, Counter::KernelBytes);

/// Verdict if a chain applies but is not available.
const FALLBACK: Verdict = Verdict::Kernel(Counter::FallbackCalls, Counter::FallbackBytes);

thread_local! {
    /// True while this thread is in a call: then another call is a signal handler's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Implements sendfile(2) for programs.
pub fn sendfile(out_fd: c_int, in_fd: c_int, offset: *mut off_t, count: usize) -> ssize_t {
    let Some(setup) = setup::active() else { return sys::sendfile(out_fd, in_fd, offset, count) };
    let before = sys::put_off_cancellation();
    let sent = Call { out_fd, in_fd, offset, count }.answer(setup);
    sys::restore_cancellation(before);
    sent
}

impl Call {
    /// Returns the result of sendfile, with errno set.
    fn answer(&self, setup: &'static Setup) -> ssize_t {
        let verdict = if INSIDE.replace(true) {
            self.inside(setup)
        } else {
            let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.run(setup)));
            INSIDE.set(false);
            // How far the call came is unknown: bytes that the kernel sent now could be sent twice.
            verdict.unwrap_or(Verdict::Failed(libc::EIO))
        };
        match verdict {
            Verdict::Kernel(calls, bytes) => {
                let sent = sys::sendfile(self.out_fd, self.in_fd, self.offset, self.count);
                process::count(calls, 1);
                process::count(bytes, u64::try_from(sent).unwrap_or(0));
                sent
            }
            Verdict::Sent(sent) => {
                process::count(Counter::EngineCalls, 1);
                process::count(Counter::EngineBytes, sent as u64);
                sent as ssize_t
            }
            Verdict::Failed(errno) => {
                sys::set_errno(errno);
                -1
            }
        }
    }

    /// Handles a signal handler's call that interrupts one of the same thread: it must not wait for a lock or allocate
    /// memory.
    fn inside(&self, setup: &Setup) -> Verdict {
        match self.ends() {
            _ if setup.rules.is_empty() || self.count == 0 => PLAIN,
            None => PLAIN,
            Some(_) if setup.keeps_data() => FALLBACK,
            Some(_) => failed(),
        }
    }

    /// Returns the socket and the regular file, if the call is between these.
    fn ends(&self) -> Option<(libc::stat, libc::stat)> {
        let socket = sys::stat(self.out_fd).filter(|stat| sys::is_kind(stat, libc::S_IFSOCK))?;
        let file = sys::stat(self.in_fd).filter(|stat| sys::is_kind(stat, libc::S_IFREG))?;
        Some((socket, file))
    }

    fn run(&self, setup: &'static Setup) -> Verdict {
        if setup.rules.is_empty() || self.count == 0 {
            return PLAIN;
        }
        let Some((socket, file)) = self.ends() else { return PLAIN };
        let found = process::existing().and_then(|state| Some((state, state.find(sys::identity(&socket))?)));
        if let Some((state, slot)) = found {
            let mut open = slot.hold();
            if open.is_some() {
                let at = match self.position() {
                    Ok(at) => at,
                    Err(errno) => return Verdict::Failed(errno),
                };
                if let Some(open) = &mut *open
                    && open.stream.goes_on(sys::identity(&file), at)
                {
                    open.socket = self.out_fd;
                } else if let Some(open) = open.take() {
                    state.end(setup, open, "left");
                }
                if open.is_some() {
                    return self.carry(setup, state, &mut open, at);
                }
            }
        }
        self.begin(setup, &socket, sys::identity(&file))
    }

    /// Begins a stream if a rule applies.
    fn begin(&self, setup: &'static Setup, socket: &libc::stat, file: Identity) -> Verdict {
        let (rule, path) = match self.choose(setup) {
            Choice::Rule(rule, path) if !setup.rules[rule].chain.is_empty() => (rule, path),
            Choice::Unknown if setup.keeps_data() => return FALLBACK,
            Choice::Unknown => {
                trouble(setup, "the path of the file cannot be found out (no /proc)");
                return failed();
            }
            _ => return PLAIN,
        };
        if !sys::is_stream(self.out_fd) {
            return PLAIN;
        }
        let at = match self.position() {
            Ok(at) => at,
            Err(errno) => return Verdict::Failed(errno),
        };
        let chain = &setup.rules[rule].chain;
        let end = match self.file_end(at) {
            Ok(FileEnd::At(end)) => end,
            // Not even the kernel sends: the file may have grown since.
            Ok(FileEnd::Reached) => return Verdict::Sent(0),
            Ok(FileEnd::Unknown) if chain.keeps_data() => return FALLBACK,
            Ok(FileEnd::Unknown) => {
                trouble(setup, "the size of the file can't be found out");
                return failed();
            }
            Err(errno) => return Verdict::Failed(errno),
        };
        let Some(state) = process::state() else {
            trouble(setup, "there was no memory when the library was loaded");
            return if chain.keeps_data() { FALLBACK } else { failed() };
        };
        let slot = state.slot(sys::identity(socket));
        let mut open = slot.hold();
        let begun = self.cipher(setup, rule).and_then(|cipher| {
            if chain.resizes() && at != 0 {
                return Err("a compressed stream begins where the file begins".to_string());
            }
            let about = self.about(setup, rule, path);
            let beginning = StreamOptions { file, at, end, chain, cipher, about };
            Stream::begin(&state.units, beginning)
        });
        // Another thread's stream, which began meanwhile.
        if let Some(other) = open.take() {
            state.end(setup, other, "left");
        }
        match begun {
            Ok(stream) => *open = Some(Open { stream, socket: self.out_fd }),
            Err(why) => {
                trouble(setup, &why);
                return if chain.keeps_data() { FALLBACK } else { failed() };
            }
        }
        self.carry(setup, state, &mut open, at)
    }

    /// Returns the end of the file, for a stream that begins at `at`.
    fn file_end(&self, at: u64) -> Result<FileEnd, Errno> {
        let size = || sys::stat(self.in_fd).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        let before = size();
        if at < before {
            return Ok(FileEnd::At(before));
        }
        match sys::has_byte(self.in_fd, at) {
            Ok(true) => {}
            // The file was opened with O_DIRECT, and such a file has a size.
            Ok(false) | Err(libc::EINVAL) => return Ok(FileEnd::Reached),
            Err(errno) => return Err(errno),
        }
        // The file has grown, or its size means nothing (/proc).
        let now = size();
        Ok(if at < now { FileEnd::At(now) } else { FileEnd::Unknown })
    }

    /// Returns the first rule that applies.
    fn choose(&self, setup: &Setup) -> Choice {
        let (mut port, mut path) = (None, None);
        for (at, rule) in setup.rules.iter().enumerate() {
            if rule.asks_port() {
                let local = || sys::local_address(self.out_fd).map(|local| local.port());
                if !rule.takes_port(*port.get_or_insert_with(local)) {
                    continue;
                }
            }
            if !rule.asks_path() {
                return Choice::Rule(at, path.flatten());
            }
            match path.get_or_insert_with(|| setup.path(self.in_fd)) {
                Some(found) if rule.takes_path(&*found) => return Choice::Rule(at, path.flatten()),
                Some(_) => {}
                None => return Choice::Unknown,
            }
        }
        Choice::None
    }

    /// Returns key and counter for the file.
    fn cipher(&self, setup: &Setup, rule: usize) -> Result<Option<Cipher>, String> {
        let Some(key) = setup.keys[rule].clone()? else { return Ok(None) };
        let Rule { cipher: Some((_, first)), .. } = &setup.rules[rule] else { return Ok(None) };
        let counter = match first {
            FirstCounter::Fixed(counter) => *counter,
            FirstCounter::Attribute(name) => {
                let value = sys::attribute(self.in_fd, name).map_err(|errno| {
                    format!("attribute {name}: {}", std::io::Error::from_raw_os_error(errno))
                })?;
                key::counter(&value).ok_or_else(|| format!("attribute {name} is not a counter block"))?
            }
        };
        Ok(Some((key, counter)))
    }

    /// Returns the log's fields about a stream.
    fn about(&self, setup: &Setup, rule: usize, path: Option<OsString>) -> Map<String, Value> {
        let mut about = Map::new();
        about.insert("rule".into(), setup.rules[rule].name.clone().into());
        let path = path.or_else(|| setup.path(self.in_fd));
        about.insert("path".into(), path.as_ref().map(|path| path.to_string_lossy()).into());
        // JSON holds only text.
        if let Some(path) = path.filter(|path| path.to_str().is_none()) {
            about.insert("path_hex".into(), hex(path.as_bytes()).into());
        }
        let text = |address: Option<std::net::SocketAddr>| address.map(|address| address.to_string());
        about.insert("local".into(), text(sys::local_address(self.out_fd)).into());
        about.insert("peer".into(), text(sys::peer_address(self.out_fd)).into());
        about
    }

    /// Has the stream carry the call.
    fn carry(&self, setup: &Setup, state: &State, slot: &mut Option<Open>, at: u64) -> Verdict {
        let Some(open) = slot else { return failed() };
        let mut carried =
            open.stream.carry(&state.units, self.out_fd, self.in_fd, self.count.min(sys::COUNT_MAX));
        // Programs take these errors as a hint to read and write instead, past the chain.
        if let Stop::Errno(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) = carried.stop {
            carried.stop = Stop::Engine;
        }
        let (keeps_data, resizes) = (!open.stream.changes(), open.stream.resizes());
        let ended = open.stream.is_complete() || carried.stop == Stop::Engine;
        let mut good = carried.stop != Stop::Engine;
        if ended && let Some(open) = slot.take() {
            good &= state.end(setup, open, if good { "end" } else { "failed" });
        }
        // The bytes before a failure were right; but a broken compressed stream is of no use.
        if carried.bytes > 0 && (good || !resizes) {
            self.advance(at + carried.bytes as u64);
            return Verdict::Sent(carried.bytes);
        }
        match carried.stop {
            _ if !good && keeps_data => FALLBACK,
            _ if !good => failed(),
            Stop::Errno(errno) => {
                if errno == libc::EAGAIN {
                    process::count(Counter::EngineFull, 1);
                }
                Verdict::Failed(errno)
            }
            _ => Verdict::Sent(0),
        }
    }

    /// Returns the first offset in the file. The kernel checks the arguments, by a call for no bytes.
    fn position(&self) -> Result<u64, Errno> {
        if sys::sendfile(self.out_fd, self.in_fd, self.offset, 0) < 0 {
            return Err(sys::errno());
        }
        let at = match self.offset.is_null() {
            true => sys::position(self.in_fd)?,
            // SAFETY: the kernel has just read and written it.
            false => u64::try_from(unsafe { self.offset.read_unaligned() }).map_err(|_| libc::EINVAL)?,
        };
        // The call for no bytes can't show a range that no file can have.
        let end = at.checked_add(self.count as u64).filter(|end| off_t::try_from(*end).is_ok());
        end.map(|_| at).ok_or(libc::EINVAL)
    }

    fn advance(&self, to: u64) {
        if self.offset.is_null() {
            sys::set_position(self.in_fd, to);
        } else {
            // SAFETY: the kernel had read and written it when the call began.
            unsafe { self.offset.write_unaligned(to as off_t) };
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// End of a file.
enum FileEnd {
    /// At this offset, which is ahead.
    At(u64),
    Reached,
    /// Unknown: there are bytes, but the file does not tell how many.
    Unknown,
}

/// Rule for a call.
enum Choice {
    /// One rule, with the file's path if it was needed.
    Rule(usize, Option<OsString>),
    None,
    /// Unknown: it depends on a path that can't be found out.
    Unknown,
}

/// Returns the verdict if a chain applies but is not available, and the bytes would be wrong without it.
fn failed() -> Verdict {
    process::count(Counter::Failed, 1);
    Verdict::Failed(libc::EIO)
}

/// Logs why a chain could not be applied, at most once a second: the counters count each.
fn trouble(setup: &Setup, why: &str) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    if LAST.swap(now, Ordering::Relaxed) != now {
        let mut fields = Map::new();
        fields.insert("why".into(), why.into());
        setup.record.line("trouble", fields);
    }
}
