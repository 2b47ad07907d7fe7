//! NIC of the guest's kernel.

use clap::ValueEnum;
use dcs_vm::Nic;
use dcs_vm::tools::Flavour;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelNic {
    Virtio,
    E1000e,
    Igb,
}

impl KernelNic {
    /// Returns the kernel that has its driver.
    pub fn flavour(self) -> Flavour {
        match self {
            KernelNic::Virtio => Flavour::Cloud,
            KernelNic::E1000e | KernelNic::Igb => Flavour::Full,
        }
    }

    /// Returns the kernel's module.
    pub fn module(self) -> &'static str {
        match self {
            KernelNic::Virtio => "virtio_net",
            KernelNic::E1000e => "e1000e",
            KernelNic::Igb => "igb",
        }
    }
}

impl From<KernelNic> for Nic {
    fn from(nic: KernelNic) -> Nic {
        match nic {
            KernelNic::Virtio => Nic::Virtio,
            KernelNic::E1000e => Nic::E1000e,
            KernelNic::Igb => Nic::Igb,
        }
    }
}
