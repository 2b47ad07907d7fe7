//! Failures of transfers.

use dcs_abi::status::{Stage, Status};
use dcs_drivers::nvme::NvmeError;

/// Reason for the failure of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// A command of the SSD failed.
    #[error("the SSD: {0}")]
    Ssd(NvmeError),
    /// The connection failed.
    #[error("the connection: {0}")]
    Connection(Status),
    /// The card's command failed.
    #[error("the card: {status}, {}", .stage.name())]
    Card {
        /// Status of the command.
        status: Status,
        /// Stage that failed.
        stage: Stage,
    },
    /// The time limit passed before the end, or before the peer had received everything.
    #[error("not over in time")]
    Late,
    /// The earlier connection had failed, and there was no new one.
    #[error("no connection")]
    Unconnected,
}
