//! Transfers of every design while devices fail: none of the papers' experiments. Each transfer ends right,
//! or fails and says how.

use super::load::{Attempt, Direction, Fate, Load, Request, attempt};
use crate::design::Design;
use crate::parameters::Parameters;
use dcs_abi::operator::Operator;
use dcs_fabric::{FaultPlan, FaultPlanError};

/// Connections side by side.
const CONNECTIONS: usize = 2;

/// The designs that are compared.
pub const DESIGNS: [Design; 4] =
    [Design::HostCentric, Design::Software { gpu: true }, Design::PeerToPeer, Design::Card];

/// One design.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub design: Design,
    /// Its transfers.
    pub attempt: Attempt,
}

impl Row {
    /// Transfers that ended so.
    pub fn count(&self, of: impl Fn(&Fate) -> bool) -> usize {
        self.attempt.transfers.iter().filter(|(_, fate)| of(fate)).count()
    }

    /// The end of the first transfer that did not end right.
    pub fn first(&self) -> Option<String> {
        self.attempt.transfers.iter().find_map(|(_, fate)| match fate {
            Fate::Right => None,
            Fate::Failed(failed) => Some(failed.to_string()),
            Fate::Wrong(what) => Some(format!("WRONG: {what}")),
        })
    }
}

/// `count` transfers of `length` bytes in every design: in turn SSD to MD5 to NIC, and NIC to CRC32 to SSD.
///
/// # Errors
///
/// Where a fault is for a device that is not there: there are an SSD and a NIC.
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
