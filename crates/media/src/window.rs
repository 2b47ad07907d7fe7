//! The order of received datagrams: a window of sequence numbers in which late ones are awaited.

use crate::Nanos;
use std::collections::VecDeque;

/// Most datagrams that a window holds.
pub const WINDOW_MAX: usize = 4096;

/// A window over sequence numbers of 16 bits.
#[derive(Debug)]
pub struct Window<T> {
    /// Time to wait for a missing datagram, in nanoseconds.
    patience: u64,
    /// Next number in order.
    next: Option<u16>,
    /// Received datagrams from `next` on, with their arrival times.
    held: VecDeque<Option<(Nanos, T)>>,
    /// Number of datagrams in `held`.
    count: usize,
    /// Numbers that never arrived.
    pub lost: u64,
    /// Datagrams that arrived a second time, or after they were given up.
    pub surplus: u64,
    /// Datagrams that arrived after one with a greater number, but in time.
    pub reordered: u64,
    /// Number of times that the sender restarted.
    pub restarts: u64,
    /// Datagrams in a row that were too old: the sender may have restarted.
    old: u32,
}

impl<T> Window<T> {
    /// Makes an empty window.
    pub fn new(patience: u64) -> Window<T> {
        Window {
            patience,
            next: None,
            held: VecDeque::new(),
            count: 0,
            lost: 0,
            surplus: 0,
            reordered: 0,
            restarts: 0,
            old: 0,
        }
    }

    /// Takes a datagram; returns true if it is held.
    pub fn put(&mut self, sequence: u16, item: T, now: Nanos) -> bool {
        let next = *self.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(next);
        if ahead >= 0x8000 {
            // RFC 3550, A.1: two in a row that are far off are a restart; here a few more, since late ones are not a restart.
            self.old += 1;
            self.surplus += 1;
            let far = next.wrapping_sub(sequence) as usize > WINDOW_MAX;
            if !far || self.old < 3 {
                return false;
            }
            self.surplus -= 1;
            self.restart(sequence, item, now);
            return true;
        }
        self.old = 0;
        let at = usize::from(ahead);
        if at >= WINDOW_MAX {
            self.restart(sequence, item, now);
            return true;
        }
        if at < self.held.len() && self.held[at].is_some() {
            self.surplus += 1;
            return false;
        }
        self.reordered += u64::from(at < self.held.len());
        while self.held.len() <= at {
            self.held.push_back(None);
        }
        self.held[at] = Some((now, item));
        self.count += 1;
        true
    }

    /// Restarts the window: missing datagrams are lost, and held ones no longer follow them.
    fn restart(&mut self, sequence: u16, item: T, now: Nanos) {
        self.restarts += 1;
        self.old = 0;
        self.lost += (self.held.len() - self.count) as u64;
        let kept: VecDeque<_> = self.held.drain(..).filter(Option::is_some).collect();
        // They come out first, under the numbers before the new one.
        self.next = Some(sequence.wrapping_sub(kept.len() as u16));
        self.count = kept.len() + 1;
        self.held = kept;
        self.held.push_back(Some((now, item)));
    }

    /// Returns the next datagram in order: at once if it is there, otherwise when the missing ones were waited for long enough. `all`:
    /// don't wait.
    pub fn take(&mut self, now: Nanos, all: bool) -> Option<T> {
        let first = self.held.iter().position(Option::is_some)?;
        if first > 0 {
            let came = self.held[first].as_ref().map_or(0, |(came, _)| *came);
            if !all && now < came.saturating_add(self.patience) {
                return None;
            }
            self.lost += first as u64;
            self.held.drain(..first);
        }
        let (_, item) = self.held.pop_front().flatten()?;
        self.next = self.next.map(|next| next.wrapping_add(first as u16 + 1));
        self.count -= 1;
        Some(item)
    }

    /// Returns the time at which the next datagram is passed on although an earlier one is missing.
    pub fn deadline(&self) -> Option<Nanos> {
        let first = self.held.iter().position(Option::is_some)?;
        let came = self.held[first].as_ref().map_or(0, |(came, _)| *came);
        Some(if first > 0 { came.saturating_add(self.patience) } else { came })
    }

    /// Prepares for another stream: passes the held datagrams of this one to `each`.
    pub fn renew(&mut self, mut each: impl FnMut(T)) {
        while let Some(item) = self.take(0, true) {
            each(item);
        }
        self.next = None;
        self.held.clear();
        self.old = 0;
        self.restarts += 1;
    }

    /// Returns true if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(window: &mut Window<u64>, now: Nanos, all: bool) -> Vec<u64> {
        std::iter::from_fn(|| window.take(now, all)).collect()
    }

    #[test]
    fn a_late_one_is_waited_for_and_a_lost_one_no_longer_than_that() {
        let mut window = Window::new(100);
        window.put(65_534, 0, 0);
        window.put(0, 2, 5);
        assert_eq!(drain(&mut window, 104, false), [0]);
        assert_eq!(window.deadline(), Some(105));
        window.put(65_535, 1, 90);
        window.put(65_535, 1, 91);
        assert_eq!(drain(&mut window, 104, false), [1, 2]);
        window.put(3, 5, 200);
        assert_eq!(drain(&mut window, 299, false), []);
        assert_eq!(drain(&mut window, 300, false), [5]);
        window.put(2, 4, 301);
        assert_eq!((window.lost, window.surplus, window.reordered, window.restarts), (2, 2, 1, 0));
    }

    #[test]
    fn another_beginning_is_found() {
        let mut window = Window::new(100);
        window.put(7, 1, 0);
        assert_eq!(drain(&mut window, 0, false), [1]);
        window.put(30_000, 2, 0);
        assert_eq!(drain(&mut window, 0, false), [2]);
        for (sequence, item) in [(20_000, 3), (20_001, 4), (20_002, 5)] {
            window.put(sequence, item, 0);
        }
        assert_eq!(drain(&mut window, 0, false), [5]);
        assert_eq!((window.restarts, window.surplus), (2, 2));
    }

    proptest! {
        /// Checks that with any loss, duplication and reordering within the window, datagrams come out in order, each once, and the missing
        /// ones are counted.
        #[test]
        fn what_comes_out_is_in_order(
            first: u16, fates in prop::collection::vec((0u8..10, 0u64..40), 1..400),
        ) {
            let mut arrivals: Vec<(u64, u64)> = Vec::new();
            for (number, (fate, delay)) in fates.iter().enumerate() {
                let number = number as u64;
                let copies = match fate { 0 => 0, 1 => 2, _ => 1 };
                for copy in 0..copies {
                    arrivals.push((number + delay * (copy + 1), number));
                }
            }
            arrivals.sort();
            let mut window = Window::new(90);
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            for (time, number) in &arrivals {
                window.put(first.wrapping_add(*number as u16), *number, *time);
                out.extend(drain(&mut window, *time, false));
                expected.push(*number);
            }
            out.extend(drain(&mut window, 0, true));
            prop_assert!(window.is_empty() && out.is_sorted_by(|one, other| one < other));
            expected.sort();
            let came = expected.len() as u64;
            expected.dedup();
            // Datagrams before the first arrival's number do not belong to the stream; nothing else is missing.
            prop_assert_eq!(out.len() as u64 + window.surplus, came);
            if let (Some(first), Some(last)) = (out.first(), out.last()) {
                prop_assert_eq!(window.lost, last - first + 1 - out.len() as u64);
                let after: Vec<u64> = expected.iter().copied().filter(|number| number >= first).collect();
                prop_assert_eq!(out, after);
            }
        }
    }
}
