//! Work at the library's loading, and at the end of the process.
//!
//! Configuration, keys, log and counters are opened at loading: later the program may have given up its rights, or
//! changed its root. Anything that can't be opened is reported on standard error, and the rules apply without it: a
//! file to decrypt must not be sent undecrypted because there is no log.

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

/// Data that all calls share.
pub struct Setup {
    pub rules: Vec<Rule>,
    /// Key of each rule.
    pub keys: Vec<Result<Option<[u8; 32]>, String>>,
    pub record: Record,
    /// Descriptor of /proc, which a changed root hides.
    proc: AtomicI32,
}

/// Suffix that the kernel adds to the path of a removed file.
const REMOVED: &[u8] = b" (deleted)";

static ACTIVE: AtomicPtr<Setup> = AtomicPtr::new(null_mut());

/// Returns the setup, if the environment has a configuration.
pub fn active() -> Option<&'static Setup> {
    // SAFETY: NULL, or a Setup that was leaked.
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
        Err(_) => "a bug in the library".into(),
    };
    say(&format!("dcs-preload: {said}; no rule applies in process {}\n", std::process::id()));
}

/// Prints a line for the user who started the program.
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
        // Calls that the rule applies to fail, which is better than sending the file unchanged.
        say(&format!("dcs-preload: {error}\n"));
    }
    // Without it no path can be found out. If a rule needs one, calls that it may change fail.
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
    Ok(sys::move_to_high_number(file.into()).into_raw_fd())
}

impl Setup {
    /// Returns true if no rule changes data, so that the kernel can always stand in.
    pub fn keeps_data(&self) -> bool {
        self.rules.iter().all(|rule| rule.chain.keeps_data())
    }

    /// Returns the open sockets of this process, each with one of its numbers.
    pub fn sockets(&self) -> HashMap<Identity, c_int> {
        self.ask_proc(sys::sockets).unwrap_or_default()
    }

    /// Returns the path of an open file; for a removed one, its former path.
    pub fn path(&self, fd: c_int) -> Option<OsString> {
        let path = self.ask_proc(|proc| sys::path(proc, fd))?;
        match path.as_bytes().strip_suffix(REMOVED) {
            // The suffix may be part of the name.
            Some(before) if !is_at(fd, &path) => Some(OsStr::from_bytes(before).to_os_string()),
            _ => Some(path),
        }
    }

    fn ask_proc<T>(&self, ask: impl Fn(c_int) -> Option<T>) -> Option<T> {
        ask(self.proc.load(Ordering::Relaxed)).or_else(|| {
            // The program may have closed the descriptor, and opened something else with its number, which must not be
            // closed.
            let opened = open_proc().ok()?;
            self.proc.store(opened, Ordering::Relaxed);
            ask(opened)
        })
    }
}

/// Returns true if the path leads to the open file.
fn is_at(fd: c_int, path: &OsStr) -> bool {
    let identity = sys::stat(fd).map(|stat| sys::identity(&stat));
    identity.is_some() && sys::identity_of(path) == identity
}

/// Ends streams and logs counters when the process exits.
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
