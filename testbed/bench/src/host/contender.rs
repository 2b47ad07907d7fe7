//! Contenders: their names, and the jobs that each can do.

use super::job::Job;
use crate::harness::contender::Named;
use crate::harness::data::Direction;
use serde::{Deserialize, Serialize};

/// A way to do a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    Engine,
    EngineDirect,
    EngineNice,
    Lanes,
    Loop,
    LoopLarge,
    LoopDirect,
    Python,
    Sendfile,
}

impl Named for Contender {
    const ALL: &'static [(Contender, &'static str, &'static str)] = &[
        (Contender::Loop, "loop", "a thread for each stream: read, OpenSSL or zlib, send; 64 KiB buffers"),
        (Contender::LoopLarge, "loop-1m", "the same with 1 MiB buffers"),
        (Contender::LoopDirect, "loop-direct", "the same with O_DIRECT and aligned 1 MiB buffers"),
        (Contender::Engine, "engine", "one dcs engine for all streams"),
        (Contender::EngineDirect, "engine-direct", "the same past the page cache (O_DIRECT)"),
        (Contender::EngineNice, "engine-nice", "the engine with its thread at nice -20, if permitted"),
        (
            Contender::Lanes,
            "lanes",
            "one thread without an engine, MD5 in lanes, small objects: the engine's floor",
        ),
        (Contender::Python, "python", "hashlib or zlib and a socket, a thread for each stream"),
        (Contender::Sendfile, "sendfile", "sendfile(2) without any operator: the floor, not the job"),
    ];
}

/// Operators of CPython's standard library.
const PYTHON: [&str; 6] = ["md5", "sha1", "sha256", "sha512", "crc32", "gzip"];

impl Contender {
    /// Returns true if the contender can do this job at all.
    pub fn can(self, job: &Job) -> bool {
        let name = |word: &String| word.split(':').next().unwrap_or_default().to_string();
        match self {
            Contender::Python => {
                job.chain.iter().all(|word| PYTHON.contains(&name(word).as_str()))
                    && job.chain.iter().rev().skip(1).all(|word| name(word) != "gzip")
            }
            Contender::Sendfile => job.direction == Direction::Send,
            Contender::Lanes => job.name() == "file>md5>socket",
            // The output must be whole blocks, except for the last.
            Contender::LoopDirect => job.direction == Direction::Send || job.keeps_length(),
            _ => true,
        }
    }

    /// Returns the bytes of a loop's buffer.
    pub fn buffer(self) -> usize {
        match self {
            Contender::LoopLarge | Contender::LoopDirect => 1 << 20,
            _ => 64 << 10,
        }
    }

    /// Returns true for a dcs engine.
    pub fn is_engine(self) -> bool {
        matches!(self, Contender::Engine | Contender::EngineDirect | Contender::EngineNice)
    }

    /// Returns true if the contender runs the chain: the floor leaves the operators out.
    pub fn does_the_chain(self) -> bool {
        self != Contender::Sendfile
    }

    /// Returns true if cold data bypass the page cache; other contenders drop them from it.
    pub fn is_direct(self, cold: bool) -> bool {
        match self {
            Contender::EngineDirect | Contender::LoopDirect => true,
            Contender::Engine | Contender::EngineNice => cold,
            _ => false,
        }
    }

    /// Returns the contenders that run by default.
    pub fn usual(job: &Job, cold: bool, small: bool) -> Vec<Contender> {
        let direct = cold || job.direction == Direction::Receive;
        let is_usual = |contender: &Contender| match contender {
            Contender::LoopDirect => direct && !small,
            Contender::EngineDirect => direct && !cold && !small,
            Contender::LoopLarge | Contender::Sendfile => !small,
            Contender::EngineNice | Contender::Lanes => false,
            _ => true,
        };
        Contender::ALL
            .iter()
            .map(|(contender, ..)| *contender)
            .filter(is_usual)
            .filter(|one| one.can(job))
            .collect()
    }
}
