//! Errors of SSDs and NICs that cannot be driven.

use dcs_drivers::nvme::ResetCause;
use dcs_vfio::VfioError;
use std::net::Ipv4Addr;

/// The reason why an SSD or a NIC cannot be driven. The device is untouched, except after a failed start.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The text is not a PCI address.
    #[error("{0:?} is not the address of a PCI function; one is 0000:01:00.0")]
    Address(String),
    /// There is no function at the address.
    #[error("there is no PCI function {0}")]
    Missing(String),
    /// The function is not an NVMe controller.
    #[error("{0} is not an NVMe controller: its class is {1:06x}")]
    Class(String, u32),
    /// The function is not a NIC with a driver here.
    #[error("{0} is not a NIC that can be driven ({1:04x}:{2:04x}): only Intel's 82574 and 82576 are")]
    NoDriver(String, u16, u16),
    /// The address cannot belong to a host.
    #[error("{0}/{1} is not an address that a host can have")]
    Host(Ipv4Addr, u8),
    /// The kernel has no randomness.
    #[error("no randomness: {0}")]
    Random(std::io::Error),
    /// Another driver, or none, has the function.
    #[error("{0} is not bound to vfio-pci: {1} has it")]
    NotBound(String, String),
    /// A VFIO call failed.
    #[error(transparent)]
    Vfio(#[from] VfioError),
    /// The SSD is named twice.
    #[error("{0} is named twice: an engine drives one namespace of an SSD")]
    Twice(String),
    /// The function has no MSI-X.
    #[error("{0} has no MSI-X vectors")]
    NoInterrupts(String),
    /// The BAR is not that of an NVMe controller or a supported NIC.
    #[error("{0} has no registers that can be driven")]
    Registers(String),
    /// No memory could be mapped for queues and blocks.
    #[error("{0} bytes of memory for queues and blocks: {1}")]
    Memory(u64, std::io::Error),
    /// Memory that devices reach must be locked, which exceeds the limit (RLIMIT_MEMLOCK).
    #[error("{0} bytes of memory for queues and blocks may not be locked (RLIMIT_MEMLOCK)")]
    Pinned(u64),
    /// The SSD has no memory for the blocks.
    #[error("{0} has no persistent memory region: it cannot hold blocks")]
    NoMemory(String),
    /// The SSD has too little memory for the blocks.
    #[error("{0} has a persistent memory region of {1} bytes: the blocks need {2}")]
    LittleMemory(String, u64, u64),
    /// The SSD did not start.
    #[error("{0} did not start: {1}")]
    Start(String, ResetCause),
    /// The NIC did not start.
    #[error("{0} did not start: {1}")]
    StartNic(String, dcs_drivers::nic::ResetCause),
    /// The NIC has no link.
    #[error("{0} has no link")]
    NoLink(String),
    /// The device did not start in time.
    #[error("{0} did not start in time")]
    Slow(String),
    /// The SSD has no such namespace.
    #[error("{0} has no namespace {1}")]
    Namespace(String, u32),
    /// The namespace's logical blocks are too large.
    #[error("{0} has logical blocks of {1} bytes; at most 4096 are supported")]
    BlockSize(String, u32),
}
