//! Failures of transfers.

use dcs_abi::status::{Stage, Status};
use dcs_drivers::nvme::NvmeError;

/// The reason why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// A command of the SSD's failed.
    #[error("the SSD: {0}")]
    Ssd(NvmeError),
    /// The connection failed.
    #[error("the connection: {0}")]
    Connection(Status),
    /// The card's command failed.
    #[error("the card: {status}, {}", .stage.name())]
    Card {
        /// Its status.
        status: Status,
        /// The stage that failed.
        stage: Stage,
    },
    /// It was not done, or the peer had not got all of it, when its time was over.
    #[error("not over in time")]
    Late,
    /// The connection of before had failed, and no other came.
    #[error("no connection")]
    Unconnected,
}
