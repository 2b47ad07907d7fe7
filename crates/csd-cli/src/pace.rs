//! How the loop waits: when it looks again at once, when it sleeps, and for how long.
//!
//! A look costs the processor's time, a sleep costs the way back from it. So it looks only
//!
//! - for guests' next commands, when the storage has run out of most of what it had: until they come, the disk
//!   does nothing;
//! - for the storage's answers, when they are few: nothing is gained from waiting for several at once;
//!
//! and both only as long as that has paid lately. Otherwise it sleeps until the storage answers. Guests whose
//! doorbells are in their own memory are looked at after [`STORAGE_WAIT`] all the same; they have to ring the real ones
//! only when nothing has happened for longer.

use dcs_csd::{Drives, HostPort, Storage};
use std::time::{Duration, Instant};

/// The storage's answers are waited for so long before the guests are looked at.
const STORAGE_WAIT: Duration = Duration::from_micros(50);

/// Commands under way that are few.
const FEW_COMMANDS: usize = 4;

/// The loop's memory of what it waited for, and how long.
#[derive(Debug)]
pub struct Pace {
    poll: Duration,
    /// When something was last done.
    since: Instant,
    guests: Look,
    storage: Look,
    /// The most commands that the storage had at once since the loop slept.
    most: usize,
    /// As [`Drives`] counted them then.
    begun: u64,
    answered: u64,
}

impl Pace {
    /// It looks for `poll` at most before it sleeps.
    pub fn new(poll: Duration) -> Pace {
        let (guests, storage) = (Look::new(poll), Look::new(poll));
        Pace { poll, since: Instant::now(), guests, storage, most: 0, begun: 0, answered: 0 }
    }

    /// Something was done.
    pub fn worked<P: HostPort, S: Storage>(&mut self, now: Instant, drives: &Drives<P, S>) {
        let idle = now.saturating_duration_since(self.since);
        self.since = now;
        let begun = std::mem::replace(&mut self.begun, drives.begun()) != drives.begun();
        let answered = std::mem::replace(&mut self.answered, drives.answered()) != drives.answered();
        if begun {
            self.guests.learn(idle);
        }
        if answered {
            self.storage.learn(idle);
        }
        self.most = self.most.max(drives.under_way());
    }

    /// Nothing is to do: true if it is to look again at once.
    pub fn looks(&mut self, now: Instant, under_way: usize) -> bool {
        let idle = now.saturating_duration_since(self.since);
        if 2 * under_way <= self.most {
            self.guests.look(idle)
        } else {
            under_way <= FEW_COMMANDS && self.storage.look(idle)
        }
    }

    /// How long it sleeps at most; nothing where only an answer, or somebody who rings, is to wake it.
    pub fn nap(&mut self, now: Instant, under_way: usize) -> Option<Duration> {
        self.most = under_way;
        let idle = now.saturating_duration_since(self.since);
        (under_way > 0 && idle < self.poll.max(STORAGE_WAIT)).then_some(STORAGE_WAIT)
    }
}

/// How long the loop looks for something before it sleeps: up to `most`, as long as that has paid lately.
#[derive(Debug, PartialEq)]
struct Look {
    now: Duration,
    most: Duration,
    /// Somebody waited for it since it was last learned from.
    waited: bool,
}

impl Look {
    fn new(most: Duration) -> Look {
        Look { now: most, most, waited: false }
    }

    /// True if it is to look on after so long.
    fn look(&mut self, idle: Duration) -> bool {
        self.waited = true;
        idle < self.now
    }

    /// Learns from how long it took until there was something to do: only if somebody waited for it.
    fn learn(&mut self, idle: Duration) {
        if std::mem::take(&mut self.waited) {
            self.now = match idle <= self.most {
                true => self.now.max(2 * idle).min(self.most),
                false if self.now > Duration::from_micros(1) => self.now / 2,
                false => Duration::ZERO,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn looking_goes_on_where_it_pays() {
        let mut look = Look::new(50 * US);
        let learn = |look: &mut Look, idle| {
            look.look(idle);
            look.learn(idle);
        };
        (0..10).for_each(|_| learn(&mut look, 500 * US));
        assert_eq!(look.now, Duration::ZERO);
        learn(&mut look, 4 * US);
        assert_eq!(look.now, 8 * US);
        (0..3).for_each(|_| learn(&mut look, 49 * US));
        learn(&mut look, 2 * US);
        assert_eq!(look.now, 50 * US);
        // Nobody waited.
        look.learn(500 * US);
        assert_eq!(look.now, 50 * US);
    }

    #[test]
    fn guests_are_looked_for_when_the_storage_runs_out() {
        let mut pace = Pace::new(50 * US);
        let start = pace.since;
        pace.most = 32;
        assert!(!pace.looks(start, 32) && !pace.looks(start, 17));
        assert!(pace.looks(start, 16) && pace.looks(start + 49 * US, 0));
        assert!(!pace.looks(start + 50 * US, 16));
        assert_eq!(pace.nap(start, 17), Some(STORAGE_WAIT));
        assert!(!pace.looks(start, 16), "it has slept");
        assert!(pace.looks(start, 0));
        pace.nap(start, 3);
        assert!(pace.looks(start, 3), "few");
    }

    #[test]
    fn only_who_has_commands_under_way_naps() {
        let mut pace = Pace::new(50 * US);
        assert_eq!(pace.nap(pace.since, 0), None);
        assert_eq!(pace.nap(pace.since, 1), Some(STORAGE_WAIT));
        assert_eq!(pace.nap(pace.since + STORAGE_WAIT, 1), None);
    }
}
