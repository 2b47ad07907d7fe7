//! The order to the load generator, and its answer: one line of JSON each.

use crate::harness::figures::Marks;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    pub address: String,
    pub clients: usize,
    /// Dealt out to the clients in turn, again and again.
    pub requests: Vec<Request>,
    /// Bytes of each object.
    pub size: u64,
    /// The bytes of all objects.
    pub pool: PathBuf,
    pub pace: Pace,
    pub warm_s: f64,
    pub measure_s: f64,
    /// Ends after this many requests instead of a time.
    pub limit: Option<u64>,
    pub server_pid: u32,
    pub cores: Vec<usize>,
}

/// The speed at which a client moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// As fast as it can.
    Full,
    /// This many seconds an object, in equal pieces.
    Slow { object_s: f64 },
}

/// One request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub head: String,
    /// Where the bytes that it puts begin in the pool; none for one that gets.
    pub put: Option<u64>,
    /// The ETag that its answer must have, where that is known.
    pub etag: Option<String>,
}

/// The results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub marks: Marks,
    /// Those that ended between the marks.
    pub requests: u64,
    /// Of these, in milliseconds.
    pub latency_ms: Vec<f32>,
    /// The server had refused a wrong signature before.
    pub checks_signatures: bool,
}
