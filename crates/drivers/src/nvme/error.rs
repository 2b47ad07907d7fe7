//! Failures of a request, of a command, of a controller.

use super::identify::IdentifyError;
use crate::bus::BusError;
use dcs_nvme::Status;

/// The reason why a request was refused. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The controller is not up; see [`Nvme::state`](super::Nvme::state).
    #[error("the NVMe controller is not ready")]
    NotReady,
    /// The queues hold no more outstanding commands. Reap, then try again.
    #[error("the NVMe queues are full")]
    Full,
    /// The request reads or writes nothing.
    #[error("the request has no data")]
    Empty,
    /// The request is longer than [`Namespace::max_transfer`](super::Namespace::max_transfer).
    #[error("the request has more than {max} bytes")]
    TooLong {
        /// Most bytes of a request.
        max: u64,
    },
    /// The request names blocks that the namespace doesn't have.
    #[error("the logical blocks are beyond the end of the namespace, which has {blocks}")]
    OutOfRange {
        /// Number of blocks of the namespace.
        blocks: u64,
    },
    /// The data are not a whole number of logical blocks, or have addresses that neither a PRP list nor an SGL of this controller can name.
    #[error("the data are not whole logical blocks, or are at addresses that no PRP list or SGL can name")]
    Misaligned,
    /// The data have more pieces than the command's list has room for.
    #[error("the data are in more pieces than a command can name")]
    Pieces,
}

/// The failure of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvmeError {
    /// The controller reported it.
    #[error("NVMe status: {0}")]
    Status(Status),
    /// The command took too long, and was aborted or ended by a reset.
    #[error("no NVMe completion in time")]
    TimedOut,
    /// The owner aborted the command.
    #[error("aborted by its owner")]
    Aborted,
    /// The controller was reset, or given up, while the command was outstanding. The command's effect is unknown.
    #[error("ended by the reset of the NVMe controller: {0}")]
    Reset(ResetCause),
}

impl NvmeError {
    /// Returns true if the same command, sent again, may succeed: everything except what the controller marks as final (DNR). A command
    /// that its owner aborted must not be sent again.
    pub fn may_retry(self) -> bool {
        match self {
            NvmeError::Status(status) => !status.do_not_retry(),
            NvmeError::TimedOut => true,
            NvmeError::Aborted => false,
            NvmeError::Reset(failure) => failure != ResetCause::Gone,
        }
    }
}

/// The reason why a controller was reset or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetCause {
    /// The owner requested it.
    #[error("requested by the owner")]
    Asked,
    /// The registers read as all ones, or nothing answers there: the controller was removed, or its memory space was switched off.
    #[error("the controller is gone")]
    Gone,
    /// A register could not be read.
    #[error("a register could not be read: {0}")]
    Register(BusError),
    /// A register read was never answered.
    #[error("a register read was not answered")]
    NoAnswer,
    /// CSTS.CFS: the controller gave up.
    #[error("the controller reports a fatal error (CSTS.CFS)")]
    Fatal,
    /// CSTS.RDY did not become 1 in CAP.TO.
    #[error("the controller did not become ready (CSTS.RDY)")]
    NeverReady,
    /// PMRSTS.NRDY did not become 0 in PMRCAP.PMRTO.
    #[error("the controller's persistent memory region did not become ready (PMRSTS.NRDY)")]
    MemoryNeverReady,
    /// CSTS.RDY did not become 0 in CAP.TO. Commands that were outstanding may still run.
    #[error("the controller did not stop (CSTS.RDY)")]
    NeverStopped,
    /// CSTS.RDY became 0 by itself.
    #[error("the controller stopped by itself (CSTS.RDY)")]
    Stopped,
    /// A command was neither completed nor aborted in time.
    #[error("a command was neither completed nor aborted in time")]
    TimedOut,
    /// The controller reports having fetched entries that were never written.
    #[error("a completion with an impossible submission queue head")]
    Impossible,
    /// The controller's NVM command set, page size or queue size does not suffice.
    #[error("the controller lacks what is needed: {0}")]
    Unsupported(&'static str),
    /// The identify data make no sense or are unusable.
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    /// A command of the start failed.
    #[error("admin command {opcode:#04x} failed: {status}")]
    Admin {
        /// Opcode of the command.
        opcode: u8,
        /// Status of the command.
        status: Status,
    },
    /// The region is too small for this controller's page size.
    #[error("the region is too small for this controller")]
    Region,
}

impl ResetCause {
    /// Returns true if a reset may help.
    pub(super) fn may_pass(self) -> bool {
        match self {
            ResetCause::Gone | ResetCause::Unsupported(_) | ResetCause::Identify(_) | ResetCause::Region => {
                false
            }
            ResetCause::Admin { status, .. } => !status.do_not_retry(),
            _ => true,
        }
    }
}
