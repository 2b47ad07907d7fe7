//! Outstanding commands by command identifier (cid).
//!
//! A cid is a slot's number and, above it, a count of the slot's uses. Slots are reused in the order in which they became free, so that a
//! cid is reused only after about 65,536 further commands: a completion that is repeated, or late, finds no command to complete. Slots
//! start counting at different numbers, so that a cid with one wrong bit is rarely that of another command.

use std::collections::VecDeque;

/// Most slots: four bits of the cid are left to count.
pub const SLOTS_MAX: u16 = 1 << 12;

#[derive(Debug)]
struct Slot<T> {
    cid: u16,
    command: Option<T>,
}

/// Commands of one queue.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u16>,
    shift: u32,
}

/// Returns the first cid of a slot. With up to 256 slots no two of them differ in one bit.
fn first_cid(slot: u16, shift: u32) -> u16 {
    match slot | slot.wrapping_mul(3).wrapping_shl(shift) {
        u16::MAX => slot,
        cid => cid,
    }
}

impl<T> Slots<T> {
    /// Makes `count` slots, but at least one and at most [`SLOTS_MAX`].
    pub fn new(count: u16) -> Slots<T> {
        let count = count.clamp(1, SLOTS_MAX);
        let shift = count.next_power_of_two().trailing_zeros();
        Slots {
            slots: (0..count).map(|slot| Slot { cid: first_cid(slot, shift), command: None }).collect(),
            free: (0..count).collect(),
            shift,
        }
    }

    /// Returns the number of outstanding commands.
    pub fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the slot and the cid of the next command.
    pub fn next(&self) -> Option<(u16, u16)> {
        let slot = *self.free.front()?;
        Some((slot, self.slots.get(usize::from(slot))?.cid))
    }

    /// Puts a command into the slot that [`Slots::next`] named.
    pub fn insert(&mut self, command: T) {
        if let Some(slot) = self.free.pop_front() {
            self.slots[usize::from(slot)].command = Some(command);
        }
    }

    fn index(&self, cid: u16) -> usize {
        usize::from(cid) & ((1 << self.shift) - 1)
    }

    /// Returns true if there is a command with this cid.
    pub fn has(&self, cid: u16) -> bool {
        self.slots.get(self.index(cid)).is_some_and(|slot| slot.cid == cid && slot.command.is_some())
    }

    /// Takes out the command with this cid.
    pub fn take(&mut self, cid: u16) -> Option<T> {
        let index = self.index(cid);
        let shift = self.shift;
        let slot = self.slots.get_mut(index).filter(|slot| slot.cid == cid)?;
        let command = slot.command.take()?;
        slot.cid = slot.cid.wrapping_add(1 << shift);
        if slot.cid == u16::MAX {
            // The error log's value for "no command". [base 3.3.3.1]
            slot.cid = slot.cid.wrapping_add(1 << shift);
        }
        self.free.push_back(index as u16);
        Some(command)
    }

    /// Takes all commands out.
    pub fn take_all(&mut self) -> Vec<T> {
        let cids: Vec<u16> = self.iter().map(|(cid, _)| cid).collect();
        cids.into_iter().filter_map(|cid| self.take(cid)).collect()
    }

    /// Returns all commands, with their cids.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.cid, slot.command.as_ref()?)))
    }

    /// Returns all commands, mutable, with their cids.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        self.slots.iter_mut().filter_map(|slot| Some((slot.cid, slot.command.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cid_comes_again_only_after_all_others() {
        for count in [1, 2, 3, 7, 64, 4095] {
            let mut slots = Slots::new(count);
            let mut seen = std::collections::HashSet::new();
            for turn in 0u32.. {
                let (_, cid) = slots.next().unwrap();
                assert_ne!(cid, u16::MAX);
                if !seen.insert(cid) {
                    let rounds = (1 << 16) / u32::from(count.next_power_of_two()) - 1;
                    assert!(turn >= rounds * u32::from(count), "{count}: again after {turn}");
                    break;
                }
                slots.insert(turn);
                assert_eq!(slots.take(cid), Some(turn));
                assert_eq!(slots.take(cid), None, "a second completion finds nothing");
            }
        }
    }

    #[test]
    fn no_two_cids_differ_in_one_bit() {
        for count in [2, 31, 127, 255] {
            let mut slots = Slots::new(count);
            for _ in 0..count {
                slots.insert(());
            }
            let cids: Vec<u16> = slots.iter().map(|(cid, ())| cid).collect();
            for cid in &cids {
                assert!((0..16).all(|bit| !cids.contains(&(cid ^ 1 << bit))), "{count}: {cid:#x}");
            }
        }
    }

    #[test]
    fn no_cid_is_out_of_bounds() {
        let mut slots = Slots::new(5);
        while slots.next().is_some() {
            slots.insert(());
        }
        assert_eq!(slots.used(), 5);
        let mut found = 0;
        for cid in 0..=u16::MAX {
            found += usize::from(slots.has(cid));
        }
        assert_eq!(found, 5);
        assert_eq!(slots.take_all().len(), 5);
        assert_eq!(slots.used(), 0);
    }
}
