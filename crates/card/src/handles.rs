//! Handles: the numbers by which commands name memory, SSDs, NICs, connections and datagrams; and what memory the host has granted.
//!
//! Whoever reaches for host memory asks here first, each time: what was released is out of reach from then on.

use dcs_abi::admin::{GRANT_READ, GRANT_WRITE};
use dcs_drivers::bus::Window;
use dcs_drivers::network::Ends;

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The card reads it.
    Read,
    /// The card writes it.
    Write,
}

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// Host memory.
    Memory {
        /// Where.
        window: Window,
        /// `GRANT_*`.
        grants: u32,
    },
    /// An SSD, by its place in the card's list.
    Ssd(usize),
    /// A NIC, by its place in the card's list.
    Nic(usize),
    /// A port of a NIC that waits for connections.
    Listener(usize, u16),
    /// A connection of a NIC.
    Flow(usize, dcs_net::Flow),
    /// Datagrams between a port of a NIC and a peer.
    Datagrams(usize, Ends),
    /// A port, a connection or datagrams of a NIC that was attached anew since: nothing is left of it but the handle.
    Gone,
}

/// Why memory is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is empty, wraps around, or lies in the card's own memory.
    Place,
    /// There are as many handles as there may be.
    Full,
}

/// All handles. Number 0 is none.
#[derive(Debug)]
pub struct Handles {
    things: Vec<Option<Thing>>,
    /// Of each handle: how many were given out when it last was.
    given: Vec<u64>,
    count: u64,
    most: usize,
}

impl Handles {
    /// Room for so many.
    pub fn new(most: usize) -> Handles {
        Handles { things: Vec::new(), given: Vec::new(), count: 0, most }
    }

    /// All handles are gone.
    pub fn clear(&mut self) {
        self.things.clear();
    }

    /// A handle for something.
    pub fn add(&mut self, thing: Thing) -> Option<u32> {
        let free = self.things.iter().position(Option::is_none);
        let at = free.or_else(|| (self.things.len() < self.most).then_some(self.things.len()))?;
        if at == self.things.len() {
            self.things.push(None);
            self.given.resize(self.things.len(), 0);
        }
        self.count += 1;
        (self.things[at], self.given[at]) = (Some(thing), self.count);
        Some(at as u32 + 1)
    }

    /// Grants memory. `own` is the card's: nobody has the card write to itself.
    pub fn grant(&mut self, window: Window, grants: u32, own: Window) -> Result<u32, Refusal> {
        let end = window.address.checked_add(window.length).ok_or(Refusal::Place)?;
        let apart = end <= own.address || window.address >= own.address.saturating_add(own.length);
        if window.length == 0 || !apart {
            return Err(Refusal::Place);
        }
        self.add(Thing::Memory { window, grants }).ok_or(Refusal::Full)
    }

    /// What a handle stands for.
    pub fn get(&self, handle: u32) -> Option<Thing> {
        *self.things.get((handle as usize).checked_sub(1)?)?
    }

    /// What tells a handle from the same number that was given out again. None where there is no such handle.
    pub fn name(&self, handle: u32) -> Option<u64> {
        self.get(handle)?;
        self.given.get(handle as usize - 1).copied()
    }

    /// Takes a handle back.
    pub fn remove(&mut self, handle: u32) -> Option<Thing> {
        self.things.get_mut((handle as usize).checked_sub(1)?)?.take()
    }

    /// A NIC is attached anew: its ports, connections and datagrams are gone, and no new one is taken for one of them.
    pub fn forget_network(&mut self, nic: usize) {
        for thing in self.things.iter_mut().flatten() {
            if matches!(thing, Thing::Listener(at, _) | Thing::Flow(at, _) | Thing::Datagrams(at, _) if *at == nic)
            {
                *thing = Thing::Gone;
            }
        }
    }

    /// Whether this memory lies in what that handle stands for.
    pub fn allows(&self, handle: u32, window: Window, access: Access) -> bool {
        self.get(handle).is_some_and(|thing| thing.allows(window, access))
    }

    /// Whether this memory lies in any memory that was granted.
    pub fn any_allows(&self, window: Window, access: Access) -> bool {
        self.things.iter().flatten().any(|thing| thing.allows(window, access))
    }
}

impl Thing {
    fn allows(&self, wanted: Window, access: Access) -> bool {
        let bit = match access {
            Access::Read => GRANT_READ,
            Access::Write => GRANT_WRITE,
        };
        matches!(self, Thing::Memory { window, grants }
            if grants & bit != 0 && window.contains(wanted.address, wanted.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Window = Window { address: 0x10_0000, length: 0x1000 };

    fn window(address: u64, length: u64) -> Window {
        Window { address, length }
    }

    #[test]
    fn memory_is_what_was_granted_and_no_more() {
        let mut handles = Handles::new(4);
        let handle = handles.grant(window(0x1000, 0x1000), GRANT_READ, OWN).unwrap();
        assert_eq!(handle, 1);
        assert!(handles.allows(handle, window(0x1fff, 1), Access::Read));
        assert!(!handles.allows(handle, window(0x1fff, 2), Access::Read));
        assert!(!handles.allows(handle, window(0x1000, 1), Access::Write));
        assert!(!handles.allows(0, window(0x1000, 1), Access::Read));
        assert!(!handles.allows(9, window(0x1000, 1), Access::Read));
        assert!(!handles.allows(handle, window(u64::MAX, 2), Access::Read));
        assert!(handles.any_allows(window(0x1800, 8), Access::Read));
        assert!(handles.remove(handle).is_some() && handles.remove(handle).is_none());
        assert!(!handles.any_allows(window(0x1800, 8), Access::Read));
    }

    #[test]
    fn the_card_s_own_memory_is_granted_to_nobody() {
        let mut handles = Handles::new(4);
        for (address, length) in [(0xf_f000, 0x1001), (0x10_0fff, 1), (0, u64::MAX), (5, 0), (u64::MAX, 2)] {
            assert_eq!(handles.grant(window(address, length), GRANT_WRITE, OWN), Err(Refusal::Place));
        }
        assert!(handles.grant(window(0xf_f000, 0x1000), GRANT_WRITE, OWN).is_ok());
        assert!(handles.grant(window(0x10_1000, 1), GRANT_WRITE, OWN).is_ok());
    }

    #[test]
    fn handles_are_bounded_and_used_again() {
        let mut handles = Handles::new(2);
        assert_eq!((handles.add(Thing::Ssd(0)), handles.add(Thing::Ssd(1))), (Some(1), Some(2)));
        assert_eq!(handles.add(Thing::Ssd(2)), None);
        let name = handles.name(1);
        handles.remove(1);
        assert_eq!((handles.name(1), handles.name(9)), (None, None));
        assert_eq!(handles.add(Thing::Ssd(0)), Some(1));
        assert!(name.is_some() && handles.name(1) != name, "the same number, and not the same");
    }
}
