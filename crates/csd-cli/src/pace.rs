//! Pace of the loop: when it looks for work again at once, when it sleeps, and for how long.
//!
//! Looking costs CPU time, and a sleep costs the time to wake up. So the loop looks again only
//!
//! - for guests' next commands, if the storage has finished most of its work: until they come, the disk is
//!   idle;
//! - for the storage's answers, if they are few: waiting for several at once gains nothing;
//!
//! and both only while that has paid lately. Otherwise it sleeps until the storage answers. Guests with
//! shadow doorbells are looked at after [`STORAGE_WAIT`] in any case; they have to ring the real ones only if
//! nothing has happened for longer.

use dcs_csd::{Drives, HostPort, Storage};
use std::time::{Duration, Instant};

/// Time to wait for the storage's answers before looking at the guests again.
const STORAGE_WAIT: Duration = Duration::from_micros(50);

/// Number of commands in progress that counts as few.
const FEW_COMMANDS: usize = 4;

/// Remembers what the loop waited for, and for how long.
#[derive(Debug)]
pub struct Pace {
    poll: Duration,
    /// Time at which some work was last done.
    since: Instant,
    guests: Look,
    storage: Look,
    /// Maximum number of commands that the storage had at once since the loop slept.
    most: usize,
    /// [`Drives`]' counters at that time.
    begun: u64,
    answered: u64,
}

impl Pace {
    /// Makes it; the loop looks for `poll` at most before it sleeps.
    pub fn new(poll: Duration) -> Pace {
        let (guests, storage) = (Look::new(poll), Look::new(poll));
        Pace { poll, since: Instant::now(), guests, storage, most: 0, begun: 0, answered: 0 }
    }

    /// Some work was done.
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

    /// There is nothing to do: returns true to look again at once.
    pub fn looks(&mut self, now: Instant, under_way: usize) -> bool {
        let idle = now.saturating_duration_since(self.since);
        if 2 * under_way <= self.most {
            self.guests.look(idle)
        } else {
            under_way <= FEW_COMMANDS && self.storage.look(idle)
        }
    }

    /// Returns the longest time to sleep; `None` if only an answer or a ring is to wake it.
    pub fn nap(&mut self, now: Instant, under_way: usize) -> Option<Duration> {
        self.most = under_way;
        let idle = now.saturating_duration_since(self.since);
        (under_way > 0 && idle < self.poll.max(STORAGE_WAIT)).then_some(STORAGE_WAIT)
    }
}

/// Time for which the loop looks for something before it sleeps: up to `most`, as long as that has paid
/// lately.
#[derive(Debug, PartialEq)]
struct Look {
    now: Duration,
    most: Duration,
    /// The loop was waiting since the last result.
    waited: bool,
}

impl Look {
    fn new(most: Duration) -> Look {
        Look { now: most, most, waited: false }
    }

    /// Returns true to go on looking after this time.
    fn look(&mut self, idle: Duration) -> bool {
        self.waited = true;
        idle < self.now
    }

    /// Learns from the time until there was something to do, if the loop was waiting for it.
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
        // Nothing was waited for.
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
