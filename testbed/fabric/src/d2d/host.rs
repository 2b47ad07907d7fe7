//! The host driver's part: carries out the instructions of `dcs_d2d::driver` over the bus.

use dcs_d2d::driver::{Layout, LayoutError, Place, Receive, Report, Send, Write};
use dcs_d2d::register::{GRANT, Status, Times};
use dcs_drivers::bus::Bus;

use crate::fabric::{Fabric, FunctionId, HOST};

/// A D2D function as the host's driver sees it.
#[derive(Clone, Copy, Debug)]
pub struct D2dFunction {
    /// The function.
    pub function: FunctionId,
    /// Bus address of its registers.
    pub registers: u64,
    /// Its features, and their offsets.
    pub layout: Layout,
}

impl D2dFunction {
    /// Opens the function that has its registers in BAR `bar`.
    ///
    /// # Errors
    ///
    /// [`LayoutError`]: the BAR has no such registers, or the function does not answer.
    pub fn new(fabric: &mut Fabric, function: FunctionId, bar: usize) -> Result<D2dFunction, LayoutError> {
        let registers = fabric.bar(function, bar).address;
        let values = read(fabric, registers, Layout::READS);
        Ok(D2dFunction { function, registers, layout: Layout::from_values(values)? })
    }

    /// Writes registers.
    pub fn write(&self, fabric: &mut Fabric, writes: &[Write]) {
        for write in writes {
            fabric.port(HOST).write(self.registers + write.offset, &write.value.to_le_bytes());
        }
    }

    /// Reads registers, and waits for the values. All ones if the function does not answer.
    pub fn read<const N: usize>(&self, fabric: &mut Fabric, offsets: [u64; N]) -> [u64; N] {
        read(fabric, self.registers, offsets)
    }

    /// Returns the state of a stream.
    pub fn report(&self, fabric: &mut Fabric, stream: u16) -> Report {
        Report::from_values(self.read(fabric, self.layout.report_reads(stream)))
    }
}

fn read<const N: usize>(fabric: &mut Fabric, registers: u64, offsets: [u64; N]) -> [u64; N] {
    offsets.map(|offset| match fabric.read(HOST, registers + offset, 8) {
        Ok(bytes) => bytes.try_into().map_or(u64::MAX, u64::from_le_bytes),
        Err(_) => u64::MAX,
    })
}

/// Starts a stream: the receiver first, then the sender, each given as a function and a stream number.
///
/// # Errors
///
/// Returns the receiver's status if it did not start.
pub fn start(
    fabric: &mut Fabric,
    (from, sender): (D2dFunction, u16),
    (to, receiver): (D2dFunction, u16),
    send: &Send,
) -> Result<Place, Status> {
    let grants_to = from.registers + from.layout.register(sender, GRANT);
    let times = Times { stall_us: 0, ..send.times };
    let receive = Receive { bytes: send.bytes, grants_to, times, interrupt: send.interrupt };
    to.write(fabric, &to.layout.receive(receiver, &receive));
    let place = to.layout.place(to.read(fabric, to.layout.place_reads(receiver)))?;
    from.write(fabric, &from.layout.send(sender, &place, send));
    Ok(place)
}
