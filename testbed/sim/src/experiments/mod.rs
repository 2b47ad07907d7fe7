//! The papers' experiments. Each returns rows; showing them is left to the caller.

pub mod balancer;
pub mod contention;
pub mod d2d;
pub mod drives;
pub mod encrypted;
pub mod faults;
pub mod figure;
pub mod latency;
pub mod load;
pub mod object;
pub mod projection;
pub mod scaling;

use load::{Direction, Request};

/// Repeats a transfer, each at once when a connection is free.
pub(crate) fn repeated(count: u64, request: Request) -> Vec<Request> {
    (0..count).map(|_| request).collect()
}

/// Returns a transfer at the start.
pub(crate) fn at_once(direction: Direction, length: u64) -> Request {
    Request { at: 0, direction, length, operator: None }
}
