//! Asynchronous events, reported by completing a request that waits for one. [base 5.2]

use std::collections::VecDeque;

use dcs_nvme::command::log;

/// Maximum number of waiting requests.
pub const REQUESTS: u16 = 4;

/// Feature bit with which the guest asks for reports of changed namespaces; the same bit as in OAES.
pub const NAMESPACES_CHANGED: u32 = 1 << 8;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A doorbell that does not exist, or an invalid value. [base figure 145]
    Doorbell { value: bool },
    /// Namespaces were added, removed or resized. [base figure 147]
    Namespaces,
}

impl Kind {
    /// Returns its group: only one event of each is reported until the guest has read its log.
    fn group(self) -> usize {
        match self {
            Kind::Doorbell { .. } => 0,
            Kind::Namespaces => 1,
        }
    }

    fn log(self) -> u8 {
        match self {
            Kind::Doorbell { .. } => log::ERRORS,
            Kind::Namespaces => log::CHANGED_NAMESPACES,
        }
    }

    /// Returns double word 0 of the completion: type, information, log page.
    fn result(self) -> u32 {
        let (kind, information) = match self {
            Kind::Doorbell { value } => (0, u32::from(value)),
            Kind::Namespaces => (2, 0),
        };
        u32::from(self.log()) << 16 | information << 8 | kind
    }
}

/// Events that wait for a request, and requests that wait for an event.
#[derive(Default)]
pub struct Events {
    requests: VecDeque<u16>,
    happened: [Option<Kind>; 2],
    /// Reported, but the log was not read yet.
    told: [bool; 2],
    /// Feature 0Bh: the events that the guest asks for.
    pub wanted: u32,
}

impl Events {
    /// Adds a waiting request; returns false if there are too many.
    pub fn request(&mut self, cid: u16) -> bool {
        let room = self.requests.len() < REQUESTS.into();
        if room {
            self.requests.push_back(cid);
        }
        room
    }

    /// Removes a waiting request.
    pub fn abort(&mut self, cid: u16) -> bool {
        let before = self.requests.len();
        self.requests.retain(|waiting| *waiting != cid);
        self.requests.len() < before
    }

    /// Reports a wrong doorbell: a wrong `value`, or a doorbell that does not exist.
    pub fn doorbell(&mut self, value: bool) {
        self.happen(Kind::Doorbell { value });
    }

    pub fn namespaces(&mut self) {
        if self.wanted & NAMESPACES_CHANGED != 0 {
            self.happen(Kind::Namespaces);
        }
    }

    fn happen(&mut self, kind: Kind) {
        self.happened[kind.group()].get_or_insert(kind);
    }

    /// Returns the next event to report, and the request that waited for it.
    pub fn take(&mut self) -> Option<(u16, u32)> {
        let group = (0..2).find(|group| self.happened[*group].is_some() && !self.told[*group])?;
        let cid = self.requests.pop_front()?;
        let kind = self.happened[group].take()?;
        self.told[group] = true;
        Some((cid, kind.result()))
    }

    /// The guest has read this log: its events are reported again.
    pub fn has_read(&mut self, page: u8) {
        let groups = [log::ERRORS, log::CHANGED_NAMESPACES];
        if let Some(group) = groups.iter().position(|log| *log == page) {
            self.told[group] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_once_until_its_log_is_read() {
        let mut events = Events { wanted: NAMESPACES_CHANGED, ..Events::default() };
        events.namespaces();
        assert_eq!(events.take(), None);
        assert!(events.request(7) && events.request(8));
        assert_eq!(events.take(), Some((7, 0x0004_0002)));
        events.namespaces();
        assert_eq!(events.take(), None);
        events.doorbell(true);
        assert_eq!(events.take(), Some((8, 0x0001_0100)));
        events.has_read(log::CHANGED_NAMESPACES);
        assert!(events.request(9));
        assert_eq!(events.take(), Some((9, 0x0004_0002)));
        assert!((0..4).all(|cid| events.request(cid)) && !events.request(4));
        assert!(events.abort(2) && !events.abort(2));
    }

    #[test]
    fn what_the_guest_does_not_want_is_not_told() {
        let mut events = Events::default();
        assert!(events.request(1));
        events.namespaces();
        assert_eq!(events.take(), None);
    }
}
