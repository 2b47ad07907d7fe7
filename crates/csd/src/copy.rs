//! Small data of commands, which are copied at once through the data pointer.

use dcs_nvme::{DataPointer, Status, Walk};

use crate::controller::Controller;
use crate::host::{HostError, HostPort};

/// Called with the address and length of each piece of a command's data.
type Each<'a> = dyn FnMut(&mut dyn HostPort, u64, usize) -> Result<(), HostError> + 'a;

impl Controller {
    /// Copies to the guest's memory at a command's data pointer.
    pub(crate) fn copy_out(&self, port: &mut dyn HostPort, pointer: &DataPointer, data: &[u8]) -> Status {
        let mut done = 0;
        self.walk(port, pointer, data.len() as u64, &mut |port, address, length| {
            let part = &data[done..done + length];
            done += length;
            port.write(address, part)
        })
    }

    /// Copies from the guest's memory at a command's data pointer.
    pub(crate) fn copy_in(&self, port: &mut dyn HostPort, pointer: &DataPointer, data: &mut [u8]) -> Status {
        let mut done = 0;
        self.walk(port, pointer, data.len() as u64, &mut |port, address, length| {
            let part = &mut data[done..done + length];
            done += length;
            port.read(address, part)
        })
    }

    /// Calls `each` for each piece of a command's data.
    fn walk(
        &self,
        port: &mut dyn HostPort,
        pointer: &DataPointer,
        length: u64,
        each: &mut Each<'_>,
    ) -> Status {
        let mut walk = match Walk::new(pointer, length, self.registers.page()) {
            Ok(walk) => walk,
            Err(status) => return status.with_do_not_retry(),
        };
        loop {
            match walk.next(&mut |address, bytes| port.read(address, bytes).is_ok()) {
                Ok(None) => return Status::SUCCESS,
                Ok(Some(place)) => {
                    if each(port, place.address, place.length as usize).is_err() {
                        return Status::DATA_TRANSFER_ERROR;
                    }
                }
                Err(status) => return status.with_do_not_retry(),
            }
        }
    }
}
