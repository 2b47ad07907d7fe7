//! A bounded set of byte ranges.

use core::ops::Range;

/// Ranges that neither touch nor overlap, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Returns the range that contains `at`.
    pub(crate) fn around(&self, at: u64) -> Option<Range<u64>> {
        let index = self.0.partition_point(|range| range.end <= at);
        self.0.get(index).filter(|range| range.start <= at).cloned()
    }

    /// Adds a range, and merges it with those that it touches.
    pub(crate) fn insert(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let first = self.0.partition_point(|range| range.end < new.start);
        let last = self.0.partition_point(|range| range.start <= new.end);
        let merged = match self.0.get(first..last) {
            Some([only]) => only.start.min(new.start)..only.end.max(new.end),
            Some([from, .., to]) => from.start.min(new.start)..to.end.max(new.end),
            _ => new,
        };
        self.0.splice(first..last, [merged]);
    }

    /// Removes a range.
    pub(crate) fn remove(&mut self, old: Range<u64>) {
        if old.is_empty() {
            return;
        }
        let first = self.0.partition_point(|range| range.end <= old.start);
        let last = self.0.partition_point(|range| range.start < old.end);
        if first >= last {
            return;
        }
        let left = self.0[first].start..old.start;
        let right = old.end..self.0[last - 1].end;
        let rest = [left, right].into_iter().filter(|range| range.start < range.end);
        self.0.splice(first..last, rest);
    }

    /// Returns the parts of `range` that are not in the set, in order.
    pub(crate) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let first = self.0.partition_point(|present| present.end <= range.start);
        for present in self.0[first..].iter().take_while(|present| present.start < range.end) {
            if at < present.start {
                gaps.push(at..present.start);
            }
            at = at.max(present.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(set: &[bool]) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for at in (0..set.len()).filter(|at| set[*at]) {
            match ranges.last_mut() {
                Some(last) if last.end == at as u64 => last.end += 1,
                _ => ranges.push(at as u64..at as u64 + 1),
            }
        }
        ranges
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..20), 0..40)) {
            let (mut ranges, mut set) = (Ranges::default(), [false; 96]);
            for (add, start, length) in steps {
                let range = start..start + length;
                let gaps = ranges.missing(range.clone());
                let missing = range.clone().filter(|at| !set[*at as usize]);
                prop_assert_eq!(gaps.into_iter().flatten().collect::<Vec<_>>(), missing.collect::<Vec<_>>());
                if add { ranges.insert(range.clone()) } else { ranges.remove(range.clone()) }
                set[range.start as usize..range.end as usize].fill(add);
                prop_assert_eq!(&ranges.0, &naive(&set));
            }
        }
    }
}
