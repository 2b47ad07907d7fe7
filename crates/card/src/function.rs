//! A function of the card: all that one host has of it. The devices, the engine and the card's own memory are on the other side, shared by
//! all functions.

use crate::admin::Admin;
use crate::handles::{HandleTarget, Handles};
use crate::part::Part;
use crate::registers::{AdminQueues, SharedRegisters};
use crate::rings::Pair;
use dcs_drivers::bus::{Bus, Window};
use dcs_engine::{OperationId, QueueId};

/// Most parts of SSDs that a function may be lent.
const PARTS_MAX: usize = 64;

/// One function.
#[derive(Debug)]
pub(crate) struct Function {
    pub registers: SharedRegisters,
    pub admin: Option<Admin>,
    pub handles: Handles,
    /// Queue pairs by the host's queue number, less 1.
    pub pairs: Vec<Option<Pair>>,
    /// Queues of the engine that a reset has yet to delete.
    pub leaving: Vec<QueueId>,
    /// Operations at SSDs from before a reset, on the function's parts: the SSD and the operation.
    pub ending: Vec<(usize, OperationId)>,
    /// Admin queues to start after that.
    pub starting: Option<AdminQueues>,
    /// Parts of SSDs that it is lent, by number; `None` where one was taken back. A reset of the function leaves them.
    parts: Vec<Option<Part>>,
}

impl Function {
    /// Makes a function with room for this many queue pairs and handles.
    pub fn new(registers: SharedRegisters, pairs: u16, handles: usize) -> Function {
        Function {
            registers,
            admin: None,
            handles: Handles::new(handles),
            pairs: (0..pairs).map(|_| None).collect(),
            leaving: Vec::new(),
            ending: Vec::new(),
            starting: None,
            parts: Vec::new(),
        }
    }

    /// Lends it a part, and returns the part's number; `None` if it has as many as it may have.
    pub fn lend(&mut self, part: Part) -> Option<u32> {
        let free = self.parts.iter().position(Option::is_none).unwrap_or(self.parts.len());
        if free == self.parts.len() && free < PARTS_MAX {
            self.parts.push(None);
        }
        *self.parts.get_mut(free)? = Some(part);
        Some(free as u32)
    }

    /// Returns a part that it is lent; `None` inside if that was taken back.
    pub fn part(&self, number: u32) -> Option<Option<Part>> {
        self.parts.get(number as usize).copied()
    }

    /// Returns the parts that it is lent.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().flatten()
    }

    /// Takes a part back: its handles name nothing any more.
    pub fn take_back(&mut self, number: u32) {
        if let Some(part) = self.parts.get_mut(number as usize) {
            *part = None;
        }
        self.handles.forget(|target| matches!(target, HandleTarget::Part(other, _) if *other == number));
    }

    /// Takes all parts back.
    pub fn take_all_back(&mut self) {
        (0..self.parts.len() as u32).for_each(|number| self.take_back(number));
        self.parts.clear();
    }
}

/// Returns the card's own memory as a function's host sees it: only function 0's does, which has it as a BAR.
pub(crate) fn own_memory(bus: &dyn Bus, function: usize) -> Window {
    if function == 0 { bus.window() } else { Window { address: 0, length: 0 } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::Registers;

    fn function() -> Function {
        Function::new(SharedRegisters::new(Registers::new(Default::default(), 2), None), 1, 8)
    }

    #[test]
    fn parts_are_bounded_and_their_handles_go_with_them() {
        let part = Part { ssd: 0, first: 4096, length: 8192, block_size: 512, grants: 3 };
        let mut function = function();
        let numbers: Vec<_> = (0..=PARTS_MAX).map(|_| function.lend(part)).collect();
        assert_eq!((numbers[1], numbers[PARTS_MAX - 1], numbers[PARTS_MAX]), (Some(1), Some(63), None));
        let handles = [1, 2].map(|number| function.handles.add(HandleTarget::Part(number, part)).unwrap());
        function.take_back(1);
        assert_eq!(
            (function.part(1), function.part(2), function.part(64)),
            (Some(None), Some(Some(part)), None)
        );
        assert_eq!(function.handles.get(handles[0]), Some(HandleTarget::Gone));
        assert_eq!(function.handles.get(handles[1]), Some(HandleTarget::Part(2, part)));
        assert_eq!(function.lend(part), Some(1), "its number is free");
        function.take_all_back();
        assert_eq!((function.part(0), function.handles.get(handles[1])), (None, Some(HandleTarget::Gone)));
    }

    #[test]
    fn a_part_has_its_own_bytes_alone() {
        let part = Part { ssd: 0, first: 4096, length: 8192, block_size: 512, grants: 3 };
        assert_eq!((part.place(0, 8192), part.place(8191, 1)), (Some(4096), Some(4096 + 8191)));
        assert_eq!(
            [part.place(0, 8193), part.place(8192, 1), part.place(u64::MAX, 2), part.place(1, u64::MAX)],
            [None; 4]
        );
    }
}
