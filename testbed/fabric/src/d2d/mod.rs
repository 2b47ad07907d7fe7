//! D2D streams: functions of `dcs-d2d` on the fabric, an SSD's and a NIC's. docs/d2d.md has the protocol.
//!
//! Each runs the crate's state machine and carries out what it says: writes go to the bus, frames to the
//! wire, reads and stores to a medium that takes its time. The legacy functions beside them, an NVMe
//! controller on the same namespace and a NIC on the same wire, are the models that there are, unchanged.

mod host;
mod nic;
mod ssd;

use std::time::Duration;

pub use host::{D2dFunction, start};
pub use nic::{Nic, NicConfig};
pub use ssd::{Ssd, SsdConfig};

use crate::device::Context;

/// Bytes of writes that are given to the link in one call; and the time for which it may be busy before it is
/// given more, so that other writes of the function come between.
const CHUNK: usize = 4096;
const AHEAD: Duration = Duration::from_micros(1);

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A timer that is set anew as its owner's deadline moves. The fabric's timers cannot be taken back: one that
/// is too early rings in vain.
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
