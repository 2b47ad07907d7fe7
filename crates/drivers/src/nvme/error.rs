//! Failures of a request, of a command, of a controller.

use super::identify::IdentifyError;
use crate::bus::BusError;
use dcs_nvme::Status;

/// Why a request was not taken. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The controller is not up: see [`Nvme::state`](super::Nvme::state).
    #[error("the NVMe controller is not ready")]
    NotReady,
    /// As many commands are outstanding as the queues hold. Reap, then try again.
    #[error("the NVMe queues are full")]
    Full,
    /// A read or write of nothing.
    #[error("a request without data")]
    Empty,
    /// More than [`Namespace::max_transfer`](super::Namespace::max_transfer).
    #[error("a request of more than {max} bytes")]
    TooLong {
        /// Bytes that a request may have.
        max: u64,
    },
    /// Blocks that the namespace doesn't have.
    #[error("logical blocks beyond the end of the namespace, which has {blocks}")]
    OutOfRange {
        /// Blocks of the namespace.
        blocks: u64,
    },
    /// Not a whole number of logical blocks, or addresses that neither a PRP list nor an SGL of this
    /// controller can name.
    #[error("data that are not whole logical blocks, or lie where no PRP list or SGL can name them")]
    Misaligned,
    /// More pieces than the command's list has room for.
    #[error("data in more pieces than a command can name")]
    Pieces,
}

/// The failure of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvmeError {
    /// The controller said so.
    #[error("NVMe status: {0}")]
    Status(Status),
    /// It took too long, and was aborted or ended by a reset.
    #[error("no NVMe completion in time")]
    TimedOut,
    /// Its owner had it aborted.
    #[error("aborted by its owner")]
    Aborted,
    /// The controller was reset, or given up, while the command was outstanding. What the command did is
    /// unknown.
    #[error("ended by the reset of the NVMe controller: {0}")]
    Reset(ResetCause),
}

impl NvmeError {
    /// True if the same command, sent again, may succeed: everything but what the controller marks as final
    /// (DNR). A command that was aborted by its owner is not for sending again.
    pub fn may_retry(self) -> bool {
        match self {
            NvmeError::Status(status) => !status.do_not_retry(),
            NvmeError::TimedOut => true,
            NvmeError::Aborted => false,
            NvmeError::Reset(failure) => failure != ResetCause::Gone,
        }
    }
}

/// Why a controller was reset or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetCause {
    /// Its owner asked for it.
    #[error("asked for")]
    Asked,
    /// Its registers read as all ones, or nobody answers there: it was removed, or its memory space was
    /// switched off.
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
    /// CSTS.RDY did not become 0 in CAP.TO. What commands were outstanding may still run.
    #[error("the controller did not stop (CSTS.RDY)")]
    NeverStopped,
    /// CSTS.RDY became 0 by itself.
    #[error("the controller stopped by itself (CSTS.RDY)")]
    Stopped,
    /// A command was neither completed nor aborted in time.
    #[error("a command was neither completed nor aborted in time")]
    TimedOut,
    /// It says that it fetched entries that were never written.
    #[error("a completion with an impossible submission queue head")]
    Impossible,
    /// The NVM command set, page size or queue size that it has are of no use here.
    #[error("the controller lacks what is needed: {0}")]
    Unsupported(&'static str),
    /// Its identify data make no sense or are of no use.
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    /// A command of the bring-up failed.
    #[error("admin command {opcode:#04x} failed: {status}")]
    Admin {
        /// Its opcode.
        opcode: u8,
        /// Its status.
        status: Status,
    },
    /// The region is too small for this controller's page size.
    #[error("the region is too small for this controller")]
    Region,
}

impl ResetCause {
    /// True if a reset may help.
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
