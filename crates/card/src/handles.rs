//! Handles: the numbers by which commands name memory, SSDs, NICs, connections, datagrams and media streams; and the memory that the host
//! has granted. Each function has its own.
//!
//! Each access to host memory is checked here first: released memory is out of reach from then on.

use crate::part::Part;
use dcs_abi::admin::{GRANT_READ, GRANT_WRITE};
use dcs_drivers::bus::Window;
use dcs_drivers::network::Ends;

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A read by the card.
    Read,
    /// A write by the card.
    Write,
}

impl Access {
    /// Returns the right that it takes: `GRANT_*`.
    pub fn bit(self) -> u32 {
        match self {
            Access::Read => GRANT_READ,
            Access::Write => GRANT_WRITE,
        }
    }
}

/// The target that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleTarget {
    /// Host memory.
    Memory {
        /// Place of the memory on the bus.
        window: Window,
        /// Rights: `GRANT_*`.
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
    /// A media stream of a NIC.
    Paced(usize, u32),
    /// A part of an SSD that function 0 lends to this function, with its number.
    Part(u32, Part),
    /// A part of an SSD that function 0 lends: to that function, under that number.
    Lent(usize, u32),
    /// A port, a connection, datagrams or a media stream of a NIC that was attached again since, or a part that was taken back: only
    /// the handle is left.
    Gone,
}

/// The reason why memory is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The memory is empty, wraps around, or is in the card's own memory.
    Place,
    /// No handle is free.
    Full,
}

/// The handles of a card. Number 0 is never a handle.
#[derive(Debug)]
pub(crate) struct Handles {
    targets: Vec<Option<HandleTarget>>,
    /// Count of handles issued, at the time when each handle was last issued.
    given: Vec<u64>,
    count: u64,
    most: usize,
}

impl Handles {
    /// Makes room for `most` handles.
    pub fn new(most: usize) -> Handles {
        Handles { targets: Vec::new(), given: Vec::new(), count: 0, most }
    }

    /// Removes all handles.
    pub fn clear(&mut self) {
        self.targets.clear();
    }

    /// Issues a handle for a target.
    pub fn add(&mut self, target: HandleTarget) -> Option<u32> {
        let free = self.targets.iter().position(Option::is_none);
        let at = free.or_else(|| (self.targets.len() < self.most).then_some(self.targets.len()))?;
        if at == self.targets.len() {
            self.targets.push(None);
            self.given.resize(self.targets.len(), 0);
        }
        self.count += 1;
        (self.targets[at], self.given[at]) = (Some(target), self.count);
        Some(at as u32 + 1)
    }

    /// Grants memory. `own` is the card's own, which is never granted.
    pub fn grant(&mut self, window: Window, grants: u32, own: Window) -> Result<u32, Refusal> {
        let end = window.address.checked_add(window.length).ok_or(Refusal::Place)?;
        let apart = end <= own.address || window.address >= own.address.saturating_add(own.length);
        if window.length == 0 || !apart {
            return Err(Refusal::Place);
        }
        self.add(HandleTarget::Memory { window, grants }).ok_or(Refusal::Full)
    }

    /// Returns the target of a handle.
    pub fn get(&self, handle: u32) -> Option<HandleTarget> {
        *self.targets.get((handle as usize).checked_sub(1)?)?
    }

    /// Returns a name that distinguishes a handle from an earlier or later use of the same number; `None` if there is no such handle.
    pub fn name(&self, handle: u32) -> Option<u64> {
        self.get(handle)?;
        self.given.get(handle as usize - 1).copied()
    }

    /// Removes a handle.
    pub fn remove(&mut self, handle: u32) -> Option<HandleTarget> {
        self.targets.get_mut((handle as usize).checked_sub(1)?)?.take()
    }

    /// Marks the targets of a NIC that is attached again as gone: ports, connections, datagrams and media streams. No new one is mistaken for
    /// one of them.
    pub fn forget_network(&mut self, nic: usize) {
        self.forget(|target| match target {
            HandleTarget::Listener(at, _)
            | HandleTarget::Flow(at, _)
            | HandleTarget::Datagrams(at, _)
            | HandleTarget::Paced(at, _) => *at == nic,
            _ => false,
        });
    }

    /// Marks targets as gone.
    pub fn forget(&mut self, is_gone: impl Fn(&HandleTarget) -> bool) {
        for target in self.targets.iter_mut().flatten().filter(|target| is_gone(target)) {
            *target = HandleTarget::Gone;
        }
    }

    /// Returns true if this memory is inside the memory that the handle names.
    pub fn allows(&self, handle: u32, window: Window, access: Access) -> bool {
        self.get(handle).is_some_and(|target| target.allows(window, access))
    }

    /// Returns true if this memory is inside any memory that was granted.
    pub fn any_allows(&self, window: Window, access: Access) -> bool {
        self.targets.iter().flatten().any(|target| target.allows(window, access))
    }
}

impl HandleTarget {
    fn allows(&self, wanted: Window, access: Access) -> bool {
        let bit = access.bit();
        matches!(self, HandleTarget::Memory { window, grants }
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
        assert_eq!(
            (handles.add(HandleTarget::Ssd(0)), handles.add(HandleTarget::Ssd(1))),
            (Some(1), Some(2))
        );
        assert_eq!(handles.add(HandleTarget::Ssd(2)), None);
        let name = handles.name(1);
        handles.remove(1);
        assert_eq!((handles.name(1), handles.name(9)), (None, None));
        assert_eq!(handles.add(HandleTarget::Ssd(0)), Some(1));
        assert!(name.is_some() && handles.name(1) != name, "the same number, but not the same name");
    }
}
