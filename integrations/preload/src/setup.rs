//! What happens when the library is loaded, and when the process ends.
//!
//! Configuration, keys, log and counters are opened when it is loaded: later the program may have given up
//! its rights, or changed its root. What cannot be opened is said on standard error, and the rules apply
//! without it: a file that is to be decrypted must not go as it is because there is no log.

use crate::process;
use crate::record::Record;
use crate::sys::{self, Identity};
use dcs_preload_rules::{Config, Counter, Rule};
use libc::c_int;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// What is the same for all calls.
pub struct Setup {
    pub rules: Vec<Rule>,
    /// The key of each rule.
    pub keys: Vec<Result<Option<[u8; 32]>, String>>,
    pub record: Record,
    /// /proc, which a changed root hides.
    proc: AtomicI32,
}

/// How the kernel marks the path of a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

static ACTIVE: AtomicPtr<Setup> = AtomicPtr::new(null_mut());

/// The setup, where the environment asked for one.
pub fn active() -> Option<&'static Setup> {
    // SAFETY: NULL, or a Setup that was leaked to stay.
    unsafe { ACTIVE.load(Ordering::Acquire).as_ref() }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOADED: extern "C" fn() = unloaded;

extern "C" fn loaded() {
    let prepared = std::panic::catch_unwind(|| match Config::from_environment() {
        Ok(None) => Ok(()),
        Ok(Some(config)) => {
            prepare(config);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    });
    let said = match prepared {
        Ok(Ok(())) => return,
        Ok(Err(said)) => said,
        Err(_) => "a defect of the library".into(),
    };
    say(&format!("dcs-preload: {said}; no rule applies in process {}\n", std::process::id()));
}

/// A line for whoever started the program.
fn say(line: &str) {
    sys::write(libc::STDERR_FILENO, line.as_bytes());
}

fn prepare(config: Config) {
    if let Err(errno) = process::prepare() {
        let error = std::io::Error::from_raw_os_error(errno);
        say(&format!("dcs-preload: no memory: {error}; files that a rule changes are not sent\n"));
    }
    let record = Record::new(config.log);
    if let Err(error) = record.open() {
        say(&format!("dcs-preload: log {error}; the rules apply without it\n"));
    }
    if let Some(path) = &config.counters
        && let Err(error) = process::share_counters(path)
    {
        say(&format!("dcs-preload: counters {}: {error}; the rules apply without them\n", path.display()));
    }
    let keys: Vec<_> = config.rules.iter().map(Rule::key).collect();
    for error in keys.iter().filter_map(|key| key.as_ref().err()) {
        // What the rule takes fails, which is better than to send it as it is.
        say(&format!("dcs-preload: {error}\n"));
    }
    // Without it no path is found out: where the rules ask for one, what they may change fails.
    let proc = open_proc().unwrap_or_else(|error| {
        say(&format!("dcs-preload: /proc: {error}; rules with a path cannot be applied\n"));
        -1
    });
    let setup = Setup { rules: config.rules, keys, record, proc: AtomicI32::new(proc) };
    ACTIVE.store(Box::leak(Box::new(setup)), Ordering::Release);
}

fn open_proc() -> std::io::Result<c_int> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open("/proc")?;
    Ok(sys::out_of_the_way(file.into()).into_raw_fd())
}

impl Setup {
    /// No rule changes data, so the kernel can stand in for each.
    pub fn only_looks(&self) -> bool {
        self.rules.iter().all(|rule| rule.chain.only_looks())
    }

    /// The open sockets of this process, each with a number that it has.
    pub fn sockets(&self) -> HashMap<Identity, c_int> {
        self.ask_proc(sys::sockets).unwrap_or_default()
    }

    /// The path of an open file; of one that was removed the path that it had.
    pub fn path(&self, fd: c_int) -> Option<OsString> {
        let path = self.ask_proc(|proc| sys::path(proc, fd))?;
        match path.as_bytes().strip_suffix(REMOVED) {
            // It may be a part of the name.
            Some(before) if !is_at(fd, &path) => Some(OsStr::from_bytes(before).to_os_string()),
            _ => Some(path),
        }
    }

    fn ask_proc<T>(&self, ask: impl Fn(c_int) -> Option<T>) -> Option<T> {
        ask(self.proc.load(Ordering::Relaxed)).or_else(|| {
            // The program may have closed it, and opened something else in its place: that is not to be
            // closed.
            let opened = open_proc().ok()?;
            self.proc.store(opened, Ordering::Relaxed);
            ask(opened)
        })
    }
}

/// Whether the path leads to the open file.
fn is_at(fd: c_int, path: &OsStr) -> bool {
    let identity = sys::stat(fd).map(|stat| sys::identity(&stat));
    identity.is_some() && sys::identity_of(path) == identity
}

/// When the process ends by exit: what is under way is logged, and what was counted.
extern "C" fn unloaded() {
    let _ = std::panic::catch_unwind(|| {
        let Some(setup) = active() else { return };
        if let Some(state) = process::existing() {
            state.end_all(setup);
        }
        let counted = Counter::ALL.map(|counter| (counter.name(), process::counted(counter)));
        if counted.iter().any(|(_, value)| *value > 0) {
            let mut fields: Map<String, Value> =
                counted.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
            fields.insert("program".into(), program().into());
            setup.record.line("summary", fields);
        }
    });
}

fn program() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim().to_string()
}
