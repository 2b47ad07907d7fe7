//! A function.

use std::ffi::CString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::bind;
use crate::container::Container;
use crate::error::{VfioError, at, io};
use crate::ioctl;
use crate::mapping::Mapping;

const MAPPABLE: u32 = 1 << 2;
const COMMAND: u64 = 4;

/// Message for a function that is already in use through VFIO.
const TAKEN: &str = "another process, or another engine of this one, drives it: end that first";

/// A function bound to vfio-pci ([`bind`](crate::bind)), in a container, for exclusive use. When it is dropped, the kernel resets it.
#[derive(Debug)]
pub struct Function {
    address: String,
    device: File,
    config: u64,
    _group: File,
    _container: Container,
}

impl Function {
    /// Opens a function in a container.
    ///
    /// # Errors
    ///
    /// If it has no IOMMU, is not bound to vfio-pci, is taken already, or shares its group with a function in use.
    pub fn open(container: &Container, address: &str) -> Result<Function, VfioError> {
        let path = Path::new("/dev/vfio").join(bind::group(address)?);
        let group =
            File::options().read(true).write(true).open(&path).map_err(|error| match error.kind() {
                // Only one process can have a group at a time.
                ErrorKind::ResourceBusy => {
                    VfioError::InUse(address.to_owned(), format!("{TAKEN} ({})", path.display()))
                }
                _ => at(&path)(error),
            })?;
        if !ioctl::group_is_viable(group.as_fd()).map_err(at(&path))? {
            return Err(VfioError::Group(address.to_owned()));
        }
        container.add(&group).map_err(at(&path))?;
        let name = CString::new(address).map_err(|error| io(address)(error.into()))?;
        let device = ioctl::device(group.as_fd(), &name).map_err(io(address))?;
        let config = ioctl::region(device.as_fd(), ioctl::CONFIG).map_err(io(address))?.offset;
        let (address, device) = (address.to_owned(), File::from(device));
        Ok(Function { address, device, config, _group: group, _container: container.clone() })
    }

    /// Returns its address: `0000:00:03.0`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the address of a BAR in the machine's address space. The driver may choose any IOMMU address: this one is as good as
    /// another, and the function knows it.
    ///
    /// # Errors
    ///
    /// If it has no BAR of this number.
    pub fn bar_address(&self, index: usize) -> Result<u64, VfioError> {
        bind::resource(&self.address, index)
            .ok_or(VfioError::Missing(self.address.clone(), "BAR of this number"))
    }

    /// Maps a BAR.
    ///
    /// # Errors
    ///
    /// If it has no BAR of this number, or one that cannot be mapped.
    pub fn bar(&self, index: u32) -> Result<Mapping, VfioError> {
        let what = || io(format!("BAR {index} of {}", self.address));
        let info = ioctl::region(self.device.as_fd(), index).map_err(what())?;
        if index > 5 || info.size == 0 || info.flags & MAPPABLE == 0 {
            return Err(VfioError::Missing(self.address.clone(), "BAR of this number that can be mapped"));
        }
        Mapping::bar(self.device.as_fd(), info.offset, info.size).map_err(what())
    }

    /// Reads its configuration space.
    ///
    /// # Errors
    ///
    /// If the range exceeds its end.
    pub fn read_config(&self, offset: u64, bytes: &mut [u8]) -> Result<(), VfioError> {
        self.device.read_exact_at(bytes, self.config + offset).map_err(io(&self.address))
    }

    /// Writes its configuration space.
    ///
    /// # Errors
    ///
    /// If the range exceeds its end.
    pub fn write_config(&self, offset: u64, bytes: &[u8]) -> Result<(), VfioError> {
        self.device.write_all_at(bytes, self.config + offset).map_err(io(&self.address))
    }

    /// Enables its BARs, and bus mastering if `master` is set.
    ///
    /// # Errors
    ///
    /// If the configuration space cannot be written.
    pub fn enable(&self, master: bool) -> Result<(), VfioError> {
        let mut command = [0; 2];
        self.read_config(COMMAND, &mut command)?;
        command[0] = command[0] & !0b110 | 0b010 | u8::from(master) << 2;
        self.write_config(COMMAND, &command)
    }

    /// Returns the number of its MSI-X vectors.
    ///
    /// # Errors
    ///
    /// If the kernel does not report it.
    pub fn vectors(&self) -> Result<u32, VfioError> {
        ioctl::vectors(self.device.as_fd()).map_err(io(&self.address))
    }

    /// Has its MSI-X vectors signal these eventfds, in order, instead of the previous ones; no eventfds: no interrupts.
    ///
    /// # Errors
    ///
    /// If it has fewer vectors.
    pub fn interrupts(&self, events: &[BorrowedFd<'_>]) -> Result<(), VfioError> {
        ioctl::set_vectors(self.device.as_fd(), events).map_err(io(format!("interrupts of {}", self.address)))
    }

    /// Resets it.
    ///
    /// # Errors
    ///
    /// If it cannot be reset alone.
    pub fn reset(&self) -> Result<(), VfioError> {
        ioctl::reset(self.device.as_fd()).map_err(io(format!("reset of {}", self.address)))
    }
}
