//! The order of received datagrams: a window of sequence numbers, within which late ones are waited for.

use crate::Nanos;
use std::collections::VecDeque;

/// Datagrams that a window holds at most.
pub const WINDOW_MAX: usize = 4096;

/// A window over sequence numbers of 16 bits.
#[derive(Debug)]
pub struct Window<T> {
    /// How long a missing one is waited for, in nanoseconds.
    patience: u64,
    /// The number that comes next.
    next: Option<u16>,
    /// What has come, from `next` on: the time when it came.
    held: VecDeque<Option<(Nanos, T)>>,
    /// Datagrams in `held`.
    count: usize,
    /// Numbers that never came.
    pub lost: u64,
    /// Datagrams that came a second time, or after they were given up.
    pub surplus: u64,
    /// Datagrams that came after one with a greater number, and in time.
    pub reordered: u64,
    /// Times that the sender began anew.
    pub restarts: u64,
    /// Datagrams that were too old in a row: the sender has perhaps begun anew.
    old: u32,
}

impl<T> Window<T> {
    /// An empty window.
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

    /// Takes a datagram in; tells whether it is held.
    pub fn put(&mut self, sequence: u16, item: T, now: Nanos) -> bool {
        let next = *self.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(next);
        if ahead >= 0x8000 {
            // RFC 3550, A.1: two in a row that are far off are another beginning; here a few more, since
            // what is late is no beginning.
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

    /// Another beginning: what was waited for is lost, what is held is behind it no more.
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

    /// The next datagram in order: at once where it is there, else when what is missing was waited for long
    /// enough. `all`: nothing is waited for.
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

    /// When the next one is given though what comes before it is missing.
    pub fn deadline(&self) -> Option<Nanos> {
        let first = self.held.iter().position(Option::is_some)?;
        let came = self.held[first].as_ref().map_or(0, |(came, _)| *came);
        Some(if first > 0 { came.saturating_add(self.patience) } else { came })
    }

    /// Another stream follows: what is held of this one is given to `each`.
    pub fn renew(&mut self, mut each: impl FnMut(T)) {
        while let Some(item) = self.take(0, true) {
            each(item);
        }
        self.next = None;
        self.held.clear();
        self.old = 0;
        self.restarts += 1;
    }

    /// Nothing is held.
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
        /// Whatever is lost, doubled and mixed up within the window: what comes out is in order, each once,
        /// and what did not come was counted.
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
            // What came before the first arrival's number is not the stream's; nothing else is missing.
            prop_assert_eq!(out.len() as u64 + window.surplus, came);
            if let (Some(first), Some(last)) = (out.first(), out.last()) {
                prop_assert_eq!(window.lost, last - first + 1 - out.len() as u64);
                let after: Vec<u64> = expected.iter().copied().filter(|number| number >= first).collect();
                prop_assert_eq!(out, after);
            }
        }
    }
}
