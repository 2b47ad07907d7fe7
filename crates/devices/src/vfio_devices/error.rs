//! Why an SSD or a NIC cannot be driven.

use dcs_drivers::nvme::ResetCause;
use dcs_vfio::VfioError;
use std::net::Ipv4Addr;

/// Why an SSD or a NIC cannot be driven. Nothing was done to it, but for a start that failed.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The text is no address.
    #[error("{0:?} is not the address of a PCI function; one is 0000:01:00.0")]
    Address(String),
    /// Nothing is there.
    #[error("there is no PCI function {0}")]
    Missing(String),
    /// It is something else.
    #[error("{0} is no NVMe controller: its class is {1:06x}")]
    Class(String, u32),
    /// It is something else.
    #[error("{0} is no NIC that can be driven ({1:04x}:{2:04x}): Intel's 82574 and 82576 are")]
    NoDriver(String, u16, u16),
    /// The address cannot be a host's.
    #[error("{0}/{1} is no address that a host can have")]
    Host(Ipv4Addr, u8),
    /// The kernel has no randomness.
    #[error("no randomness: {0}")]
    Random(std::io::Error),
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
    /// Its BAR is none of an NVMe controller's, or of such a NIC's.
    #[error("{0} has no registers that can be driven")]
    Registers(String),
    /// There is no memory for queues and blocks.
    #[error("{0} bytes of memory for queues and blocks: {1}")]
    Memory(u64, std::io::Error),
    /// Memory that devices reach has to stay where it is, and there is a limit to that (RLIMIT_MEMLOCK).
    #[error("{0} bytes of memory for queues and blocks may not be locked (RLIMIT_MEMLOCK)")]
    Pinned(u64),
    /// It has no memory for the blocks.
    #[error("{0} has no persistent memory region: it holds no blocks")]
    NoMemory(String),
    /// It has too little of it.
    #[error("{0} has a persistent memory region of {1} bytes: the blocks take {2}")]
    LittleMemory(String, u64, u64),
    /// It did not come up.
    #[error("{0} does not come up: {1}")]
    Start(String, ResetCause),
    /// It did not come up.
    #[error("{0} does not come up: {1}")]
    StartNic(String, dcs_drivers::nic::ResetCause),
    /// Nothing is at the other end.
    #[error("{0} has no link")]
    NoLink(String),
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
