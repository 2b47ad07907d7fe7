//! Transfers of every design while devices fail, which is not one of the papers' experiments. Each transfer ends correctly, or
//! fails and reports how.

use super::load::{Attempt, Direction, Fate, Load, Request, attempt};
use crate::design::Design;
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;
use dcs_fabric::{FaultPlan, FaultPlanError};

/// Concurrent connections.
const CONNECTIONS: usize = 2;

/// Designs to compare.
pub const DESIGNS: [Design; 4] =
    [Design::HostCentric, Design::Software { gpu: true }, Design::PeerToPeer, Design::Card];

/// One design.
#[derive(Clone, Debug)]
pub struct Row {
    /// Design.
    pub design: Design,
    /// Transfers of the design.
    pub attempt: Attempt,
}

impl Row {
    /// Counts the transfers with such an end.
    pub fn count(&self, of: impl Fn(&Fate) -> bool) -> usize {
        self.attempt.transfers.iter().filter(|(_, fate)| of(fate)).count()
    }

    /// Returns the end of the first transfer that did not end correctly.
    pub fn first(&self) -> Option<String> {
        self.attempt.transfers.iter().find_map(|(_, fate)| match fate {
            Fate::Right => None,
            Fate::Failed(failed) => Some(failed.to_string()),
            Fate::Wrong(what) => Some(format!("WRONG: {what}")),
        })
    }
}

/// Runs `count` transfers of `length` bytes in every design, alternating SSD to MD5 to NIC, and NIC to CRC32 to SSD.
///
/// # Errors
///
/// If a fault is for a device that does not exist: there is one SSD and one NIC.
pub fn measure(
    parameters: Parameters,
    (plans, seed): (&[FaultPlan], u64),
    (count, length): (u64, u64),
) -> Result<Vec<Row>, FaultPlanError> {
    let request = |at: u64| {
        let (direction, operator) = match at % 2 {
            0 => (Direction::Send, Operator::Md5),
            _ => (Direction::Receive, Operator::Crc32),
        };
        Request { at: 0, direction, length, operator: Some(operator) }
    };
    let requests: Vec<Request> = (0..count).map(request).collect();
    let of = |design: &Design| {
        let load = Load {
            connections: CONNECTIONS,
            parameters,
            faults: plans.to_vec(),
            seed,
            ..Load::new(*design, requests.clone())
        };
        Ok(Row { design: *design, attempt: attempt(&load)? })
    };
    DESIGNS.iter().map(of).collect()
}
