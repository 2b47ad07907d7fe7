//! An NVMe controller for an owner that has a driver of its own: the function, its bus, and memory that it reaches.

#![forbid(unsafe_code)]

use super::bus::VfioBus;
use super::error::DriveError;
use super::memory::Memory;
use super::{NVME, check, take};
use dcs_drivers::bus::{Bus, ReadDone, Window};
use dcs_vfio::{Container, Function};
use rustix::fd::BorrowedFd;

/// An NVMe controller that was taken, and does nothing yet. It reaches this memory and nothing else. When it is dropped, it is stopped and
/// reset.
#[derive(Debug)]
pub struct OpenSsd {
    // Dropped in this order: the kernel resets the function before its memory is anybody else's.
    function: Function,
    bus: VfioBus,
    registers: Window,
}

impl OpenSsd {
    /// Takes a controller, with this many bytes of memory for its queues and data. Its interrupts signal `wake`.
    ///
    /// # Errors
    ///
    /// [`DriveError`] if it cannot be taken; then it is untouched.
    pub fn open(address: &str, memory: u64, wake: BorrowedFd<'_>) -> Result<OpenSsd, DriveError> {
        check(address, Some(NVME))?;
        let container = Container::new()?;
        let function = take(&container, address)?;
        let memory = Memory::new(&container, (memory, 0), None)?;
        let (registers, bar) = (function.bar(0)?, function.bar_address(0)?);
        let window = Window { address: bar, length: registers.length() };
        function.interrupts(&[wake])?;
        Ok(OpenSsd { bus: memory.bus(registers, bar), registers: window, function })
    }

    /// Returns the address of its registers on its bus.
    pub fn registers(&self) -> Window {
        self.registers
    }

    /// Returns its bus.
    pub fn bus(&self) -> &dyn Bus {
        &self.bus
    }

    /// Returns its bus, for writes and reads.
    pub fn bus_mut(&mut self) -> &mut dyn Bus {
        &mut self.bus
    }

    /// Returns the next answer to a read of its registers.
    pub fn answer(&mut self) -> Option<ReadDone> {
        self.bus.answer()
    }
}

impl Drop for OpenSsd {
    fn drop(&mut self) {
        // Without bus mastering it reaches nothing, whatever it is at.
        let _ = self.function.enable(false);
        let _ = self.function.reset();
    }
}
