//! The processor's part in many videos: software's time for each packet that it handles, and for each interrupt. D2D is compared
//! with a router, as in the paper's figure 11.

use super::latency::{Design, software};
use super::streams::{PACKET, PACKETS_A_SECOND, Pace};
use crate::parameters::Parameters;

/// Share of a core that software takes.
#[derive(Clone, Copy, Debug)]
pub struct Utilization {
    /// Path of the packets.
    pub design: Design,
    /// Videos of 7.82 Mb/s.
    pub streams: u16,
    /// Share of a core; more than 1 means several cores.
    pub share: f64,
}

/// Returns the share for the videos measured, with each packet handled separately: not merged by generic receive offload, which
/// is off by default for UDP.
pub fn of(parameters: &Parameters, design: Design, pace: &Pace) -> Utilization {
    let packet: u64 = software(parameters, design, PACKET).iter().map(|(_, time)| time).sum();
    let packets = f64::from(pace.streams) * PACKETS_A_SECOND;
    // D2D uses software only in interrupts.
    let interrupts = pace.interrupts as f64 / pace.seconds;
    let share = match design {
        Design::D2d => interrupts * (parameters.interrupt + parameters.wake) as f64 / 1e9,
        Design::Application | Design::Routed => packets * packet as f64 / 1e9,
    };
    Utilization { design, streams: pace.streams, share }
}
