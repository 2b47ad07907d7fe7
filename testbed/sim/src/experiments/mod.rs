//! The papers' experiments. Each returns rows; showing them is left to the caller.
//!
//! | module | contents |
//! |---|---|
//! | `balancer` | the HDFS balancer (dissertation, figure 3.12b) |
//! | `contention` | bandwidth and CPU beside other processes (figures 2.9 and 2.10) |
//! | `d2d` | D2D streams (Larsen et al.) |
//! | `drives` | FlexCSV's experiments (ATC 2021) |
//! | `encrypted` | an object of 512 MiB, encrypted and sent (figure 2.12) |
//! | `faults` | transfers while devices fail, which is not one of the papers' |
//! | `figure` | figures compared with the papers', and targets |
//! | `latency` | the latency of 4 KiB by component (figures 2.8 and 3.11) |
//! | `load` | many transfers: arrivals, connections, faults, outcomes |
//! | `object` | an object server (figure 3.12a) |
//! | `projection` | faster devices (figures 2.2, 2.8 and 3.13) |
//! | `rtl` | the engine in SystemVerilog beside the papers' hardware |
//! | `scaling` | one to four sets of an SSD and a NIC (figure 2.14) |

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
pub mod rtl;
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
