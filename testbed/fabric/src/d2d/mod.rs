//! D2D streams: functions of `dcs-d2d` on the fabric, in an SSD and a NIC. docs/d2d.md has the protocol.
//!
//! Each runs the crate's state machine and carries out its actions: writes go to the bus, frames to the wire, reads and stores to
//! a medium that takes time. The legacy functions next to them, an NVMe controller on the same namespace and a NIC on the same
//! wire, are the existing models, unchanged.

mod host;
mod nic;
mod ssd;

use std::time::Duration;

pub use host::{D2dFunction, start};
pub use nic::{Nic, NicConfig};
pub use ssd::{Ssd, SsdConfig};

use crate::device::Context;

/// Bytes of writes that are given to the link in one call.
const CHUNK: usize = 4096;
/// Backlog of the link above which it is given no more, so that other writes of the function come between.
const AHEAD: Duration = Duration::from_micros(1);

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A timer that follows its owner's deadline. The fabric's timers cannot be cancelled: one that fires early is ignored.
#[derive(Debug, Default)]
struct Alarm {
    at: Option<u64>,
}

impl Alarm {
    fn set(&mut self, at: Option<u64>, token: u64, cx: &mut Context<'_>) {
        if let Some(at) = at.filter(|at| self.at.is_none_or(|set| *at < set)) {
            self.at = Some(at);
            cx.after(Duration::from_nanos(at.saturating_sub(nanos(cx.now()))), token);
        }
    }

    fn rang(&mut self, cx: &Context<'_>) {
        self.at = self.at.filter(|at| *at > nanos(cx.now()));
    }
}
