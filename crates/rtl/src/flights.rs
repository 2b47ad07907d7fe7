//! The operations with devices: the numbers by which the core and its owner know them.

use crate::model::{self, BLOCKS, COMMANDS};
use dcs_engine::{CommandId, OperationId};

/// Places of a command's operations without a block: a snapshot of each operator, and the flush.
const BLOCKLESS: u64 = 9;
const FLUSH: u64 = 8;

/// An operation with its device.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// Its number in the core.
    pub id: u64,
    /// Its command, and the operator where it is one's.
    pub command: CommandId,
    pub at: u8,
}

/// A place for each operation that may be in flight, and which of all that had the place it is.
#[derive(Debug)]
pub struct Flights {
    places: Vec<(u32, Option<Flight>)>,
}

impl Flights {
    pub fn new() -> Flights {
        Flights { places: vec![(0, None); (BLOCKS + COMMANDS * BLOCKLESS) as usize] }
    }

    fn place(id: &model::OperationId, is_flush: bool) -> usize {
        let at = if is_flush { FLUSH } else { id.at };
        (if id.blockless == 0 { id.row } else { BLOCKS + id.command * BLOCKLESS + at }) as usize
    }

    /// An operation begins; gives its owner's number for it.
    pub fn begin(&mut self, id: &model::OperationId, is_flush: bool, command: CommandId) -> OperationId {
        let place = Flights::place(id, is_flush);
        let (generation, flight) = &mut self.places[place];
        assert!(flight.is_none(), "the core has one operation of a row in flight");
        *generation = generation.wrapping_add(1);
        *flight = Some(Flight { id: id.pack(), command, at: id.at as u8 });
        number(place, *generation)
    }

    /// The owner's number of an operation that the core wants stopped, and its command.
    pub fn find(&self, id: &model::OperationId) -> Option<(OperationId, CommandId)> {
        let place = Flights::place(id, id.blockless != 0);
        let (generation, flight) = self.places[place];
        flight.map(|flight| (number(place, generation), flight.command))
    }

    /// An operation is answered; nothing where it is not in flight.
    pub fn end(&mut self, operation: OperationId) -> Option<Flight> {
        let (generation, flight) = self.places.get_mut(operation.slot())?;
        if number(operation.slot(), *generation) != operation {
            return None;
        }
        flight.take()
    }

    pub fn is_empty(&self) -> bool {
        self.places.iter().all(|(_, flight)| flight.is_none())
    }
}

fn number(place: usize, generation: u32) -> OperationId {
    OperationId::from_bits(u64::from(generation) << 32 | place as u64)
}
