//! The processor's part in many videos: what software takes for each packet that it is handed, and for each
//! interrupt. Beside D2D stands a router, as in the paper's figure 11.

use super::latency::{Design, software};
use super::streams::{PACKET, PACKETS_A_SECOND, Pace};
use crate::parameters::Parameters;

/// The share of a core that software takes.
#[derive(Clone, Copy, Debug)]
pub struct Utilization {
    /// The way of the packets.
    pub design: Design,
    /// Videos of 7.82 Mb/s.
    pub streams: u16,
    /// More than 1: of several cores.
    pub share: f64,
}

/// The share of the videos that were measured, each packet handled by itself: without the merging of several
/// (generic receive offload), of which UDP has none by default.
pub fn of(parameters: &Parameters, design: Design, pace: &Pace) -> Utilization {
    let packet: u64 = software(parameters, design, PACKET).iter().map(|(_, time)| time).sum();
    let packets = f64::from(pace.streams) * PACKETS_A_SECOND;
    // What D2D has of software comes by interrupts.
    let interrupts = pace.interrupts as f64 / pace.seconds;
    let share = match design {
        Design::D2d => interrupts * (parameters.interrupt + parameters.wake) as f64 / 1e9,
        Design::Application | Design::Routed => packets * packet as f64 / 1e9,
    };
    Utilization { design, streams: pace.streams, share }
}
