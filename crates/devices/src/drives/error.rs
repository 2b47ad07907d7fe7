//! Why an SSD cannot be driven.

use crate::nvme::Failure;
use dcs_vfio::VfioError;

/// Why an SSD cannot be driven. Nothing was done to it, but for a start that failed.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// That is no address.
    #[error("{0:?} is no address of a PCI function, as 0000:01:00.0 is one")]
    Address(String),
    /// Nothing is there.
    #[error("there is no PCI function {0}")]
    Missing(String),
    /// It is something else.
    #[error("{0} is no NVMe controller: its class is {1:06x}")]
    Class(String, u32),
    /// The kernel's driver has it, or none.
    #[error("{0} is not bound to vfio-pci: {1} has it")]
    NotBound(String, String),
    /// VFIO refuses.
    #[error(transparent)]
    Vfio(#[from] VfioError),
    /// It is wanted twice.
    #[error("{0} is named twice: an engine drives one namespace of an SSD")]
    Twice(String),
    /// It can raise no MSI-X.
    #[error("{0} has no MSI-X vectors")]
    NoInterrupts(String),
    /// Its BAR is none of an NVMe controller's.
    #[error("{0} has no registers of an NVMe controller")]
    Registers(String),
    /// There is no memory for queues and blocks.
    #[error("{0} bytes of memory for queues and blocks: {1}")]
    Memory(u64, std::io::Error),
    /// Memory that devices reach has to stay where it is, and there is a limit to that (RLIMIT_MEMLOCK).
    #[error("{0} bytes of memory for queues and blocks may not be locked (RLIMIT_MEMLOCK)")]
    Pinned(u64),
    /// It did not come up.
    #[error("{0} does not come up: {1}")]
    Start(String, Failure),
    /// It did not come up in time.
    #[error("{0} does not come up in time")]
    Slow(String),
    /// There is no such namespace.
    #[error("{0} has no namespace {1}")]
    Namespace(String, u32),
    /// Its logical blocks are too large.
    #[error("{0} has logical blocks of {1} bytes; up to 4096 are driven")]
    BlockSize(String, u32),
}
