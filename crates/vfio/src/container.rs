//! An address space of the IOMMU.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{VfioError, at, io};
use crate::ioctl;
use crate::mapping::Mapping;

/// Access of functions to mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read access.
    Read,
    /// Write access.
    Write,
    /// Read and write access.
    Both,
}

/// An address space that functions share. Everything in it was mapped by [`Container::map`], and stays mapped until the container and its
/// functions are gone, or [`Container::unmap`] is called.
#[derive(Clone, Debug)]
pub struct Container(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    /// Set once the IOMMU's kind is chosen, which needs a function.
    chosen: Mutex<bool>,
    mapped: Mutex<Vec<Mapped>>,
}

#[derive(Debug)]
struct Mapped {
    address: u64,
    length: u64,
    /// Keeps the memory mapped as long as a device may reach it.
    _memory: Arc<Mapping>,
}

impl Container {
    /// Makes an empty address space.
    ///
    /// # Errors
    ///
    /// If the kernel has no VFIO, or there is no permission to use it.
    pub fn new() -> Result<Container, VfioError> {
        let path = Path::new("/dev/vfio/vfio");
        let file = File::options().read(true).write(true).open(path).map_err(at(path))?;
        Ok(Container(Arc::new(Inner { file, chosen: Mutex::default(), mapped: Mutex::default() })))
    }

    /// Lets the functions reach a mapping at this bus address: memory of this process, or a BAR. The container must have a function.
    ///
    /// # Errors
    ///
    /// If the kernel refuses: the address is taken or not aligned, or the memory may not be pinned.
    pub fn map(&self, memory: &Arc<Mapping>, address: u64, access: Access) -> Result<(), VfioError> {
        let (read, write) = (access != Access::Write, access != Access::Read);
        let length = memory.length();
        ioctl::map(self.as_fd(), memory.address(), address, length, read, write)
            .map_err(io(format!("mapping {length:#x} bytes at {address:#x}")))?;
        let mapped = Mapped { address, length, _memory: memory.clone() };
        self.mapped().push(mapped);
        Ok(())
    }

    /// Removes the mapping at this address from the functions' reach.
    ///
    /// # Errors
    ///
    /// If nothing is mapped there.
    pub fn unmap(&self, address: u64) -> Result<(), VfioError> {
        let mut mapped = self.mapped();
        let found = mapped.iter().position(|one| one.address == address);
        let what = || io(format!("unmapping {address:#x}"));
        let found = found.ok_or_else(|| what()(io::ErrorKind::NotFound.into()))?;
        ioctl::unmap(self.as_fd(), address, mapped[found].length).map_err(what())?;
        mapped.swap_remove(found);
        Ok(())
    }

    pub(crate) fn add(&self, group: &File) -> io::Result<()> {
        ioctl::set_container(group.as_fd(), self.as_fd())?;
        let mut chosen = self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if !*chosen {
            ioctl::set_iommu(self.as_fd(), ioctl::TYPE1V2_IOMMU)?;
            *chosen = true;
        }
        Ok(())
    }

    fn mapped(&self) -> std::sync::MutexGuard<'_, Vec<Mapped>> {
        self.0.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Container {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

/// Memory of this process that the functions of a container reach.
#[derive(Debug)]
pub struct Buffer {
    memory: Arc<Mapping>,
    address: u64,
    container: Container,
}

impl Buffer {
    /// Allocates zeroed memory at this bus address. `length` is a multiple of the page size.
    ///
    /// # Errors
    ///
    /// As [`Container::map`].
    pub fn new(
        container: &Container,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Buffer, VfioError> {
        let memory = Arc::new(Mapping::anonymous(length).map_err(io("memory for a device"))?);
        container.map(&memory, address, access)?;
        Ok(Buffer { memory, address, container: container.clone() })
    }

    /// Returns its bus address.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Deref for Buffer {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.memory
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // It is mapped: nothing else unmaps it.
        let _ = self.container.unmap(self.address);
    }
}
