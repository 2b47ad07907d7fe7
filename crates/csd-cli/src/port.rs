//! A drive's controller behind its vfio-user function: registers in one direction, the guest's memory and
//! interrupts in the other.

use dcs_csd::{Controller, Direction, HostError, HostPort, Piece};
use dcs_vfio_user::Port;
use dcs_vfio_user::pci::Registers;
use dcs_vfio_user::wake::Wake;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The registers, which a guest's processor reads and writes.
pub struct DriveRegisters {
    controller: Arc<Mutex<Controller>>,
    /// Wakes the loop.
    wake: Wake,
}

impl DriveRegisters {
    /// Makes the registers of a controller that a loop drives; `wake` wakes the loop.
    pub fn new(controller: Arc<Mutex<Controller>>, wake: Wake) -> DriveRegisters {
        DriveRegisters { controller, wake }
    }

    fn lock(&self) -> MutexGuard<'_, Controller> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registers for DriveRegisters {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        self.lock().register_read(offset, bytes);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let wanted = self.lock().register_write(offset, bytes);
        if wanted {
            self.wake.notify();
        }
    }

    fn reset(&mut self) {
        self.lock().reset();
        self.wake.notify();
    }
}

/// The first use starts the clock of all ports.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the nanoseconds since then.
pub fn uptime() -> u64 {
    BEGAN.elapsed().as_nanos() as u64
}

/// The guest.
pub struct GuestPort {
    port: Port,
}

impl GuestPort {
    /// Makes the guest behind this port.
    pub fn new(port: Port) -> GuestPort {
        GuestPort { port }
    }
}

impl HostPort for GuestPort {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), HostError> {
        self.port.read(address, bytes).map_err(|_| HostError)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), HostError> {
        self.port.write(address, bytes).map_err(|_| HostError)
    }

    fn direct(&mut self, address: u64, length: u64, direction: Direction) -> Option<Piece> {
        let found = self.port.direct(address, length, direction == Direction::ToGuest)?;
        Some(Piece::new(found.memory, found.offset, length)?.held(found.hold))
    }

    fn uptime(&mut self) -> u64 {
        uptime()
    }

    fn interrupt(&mut self, vector: u16) {
        self.port.interrupt(vector);
    }
}
