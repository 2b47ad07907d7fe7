//! Counters of the library, and the file in which all processes of a program count together.
//!
//! The file is 16 bytes of [`MAGIC`] and a u64 in this machine's byte order for each [`Counter`]. Processes map it, so
//! that the counts survive however they end.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// First bytes of the file.
pub const MAGIC: [u8; 16] = *b"dcs-preload/1\n\0\0";

/// Bytes of the file.
pub const FILE_SIZE: usize = MAGIC.len() + Counter::ALL.len() * 8;

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Calls whose bytes the engine processed.
    EngineCalls,
    /// Bytes of files that these calls reported as sent.
    EngineBytes,
    /// Calls with a chain that found the socket full (EAGAIN).
    EngineFull,
    /// Calls without a chain.
    KernelCalls,
    /// Bytes that these calls sent.
    KernelBytes,
    /// Calls with a chain of digests that the kernel carried.
    FallbackCalls,
    /// Bytes that these calls sent.
    FallbackBytes,
    /// Calls with a chain that failed inside the library.
    Failed,
    /// Ranges of files that went through a chain and were logged.
    Objects,
    /// Lines that could not be written to the log.
    LogLost,
}

impl Counter {
    /// All counters, in the order of the file.
    pub const ALL: [Counter; 10] = [
        Counter::EngineCalls,
        Counter::EngineBytes,
        Counter::EngineFull,
        Counter::KernelCalls,
        Counter::KernelBytes,
        Counter::FallbackCalls,
        Counter::FallbackBytes,
        Counter::Failed,
        Counter::Objects,
        Counter::LogLost,
    ];

    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Counter::EngineCalls => "engine_calls",
            Counter::EngineBytes => "engine_bytes",
            Counter::EngineFull => "engine_full",
            Counter::KernelCalls => "kernel_calls",
            Counter::KernelBytes => "kernel_bytes",
            Counter::FallbackCalls => "fallback_calls",
            Counter::FallbackBytes => "fallback_bytes",
            Counter::Failed => "failed",
            Counter::Objects => "objects",
            Counter::LogLost => "log_lost",
        }
    }

    /// Describes it for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Counter::EngineCalls => "calls that the engine carried",
            Counter::EngineBytes => "bytes of files in those calls",
            Counter::EngineFull => "calls with a chain that found the socket full",
            Counter::KernelCalls => "calls without a rule: the kernel's own sendfile",
            Counter::KernelBytes => "bytes in those calls",
            Counter::FallbackCalls => "calls with a rule that the kernel had to carry",
            Counter::FallbackBytes => "bytes in these: no digest was computed",
            Counter::Failed => "calls with a rule that failed (EIO)",
            Counter::Objects => "ranges of files that were logged",
            Counter::LogLost => "lines that could not be logged",
        }
    }
}

/// Returns the reason why a process of this user must not count in the file; `None` if it may. Anyone who can truncate
/// the file can kill every process that has it mapped.
pub fn refusal(file: &Metadata, user: u32) -> Option<&'static str> {
    match file.uid() {
        _ if !file.is_file() => Some("it is not a regular file"),
        owner if owner != 0 && owner != user => Some("it belongs to another user"),
        _ if file.mode() & 0o022 != 0 => Some("other users may write it (chmod go-w)"),
        _ => None,
    }
}

/// Reads the file: each counter with its value.
///
/// # Errors
///
/// Fails if it can't be read; InvalidData if it is not such a file.
pub fn read(path: &Path) -> std::io::Result<Vec<(Counter, u64)>> {
    let refused =
        || std::io::Error::new(std::io::ErrorKind::InvalidData, "not a file of dcs-preload's counters");
    parse(&std::fs::read(path)?).ok_or_else(refused)
}

/// Parses the counters with their values; `None` if the bytes are not such a file. A file of zeros is one that is just
/// being made.
pub fn parse(bytes: &[u8]) -> Option<Vec<(Counter, u64)>> {
    let begins_well = bytes.starts_with(&MAGIC) || bytes.iter().all(|byte| *byte == 0);
    let values = bytes.get(MAGIC.len()..).filter(|_| begins_well && bytes.len() == FILE_SIZE)?;
    let value = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    Some(Counter::ALL.into_iter().zip(values.chunks_exact(8).map(value)).collect())
}
