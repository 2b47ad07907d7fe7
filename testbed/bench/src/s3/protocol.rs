//! The request to the load generator, and its answer: one line of JSON each.

use crate::harness::figures::Marks;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    pub address: String,
    pub clients: usize,
    /// Requests, given to the clients in turn, again and again.
    pub requests: Vec<Request>,
    /// Bytes of each object.
    pub size: u64,
    /// File with the bytes of all objects.
    pub pool: PathBuf,
    pub pace: Pace,
    pub warm_s: f64,
    pub measure_s: f64,
    /// Number of requests after which to end, instead of a time.
    pub limit: Option<u64>,
    pub server_pid: u32,
    pub cores: Vec<usize>,
}

/// Speed at which a client moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// At full speed.
    Full,
    /// At the given seconds per object, in equal pieces.
    Slow { object_s: f64 },
}

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub head: String,
    /// Offset in the pool of the bytes to put; `None` for a GET.
    pub put: Option<u64>,
    /// Expected ETag of the answer, if known.
    pub etag: Option<String>,
}

/// Results of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub marks: Marks,
    /// Requests that ended between the marks.
    pub requests: u64,
    /// Latencies of these requests, in milliseconds.
    pub latency_ms: Vec<f32>,
    /// True if the server had refused a wrong signature before.
    pub checks_signatures: bool,
}
