//! Continuity counters that continue where one file follows another.
//!
//! Within a file each PID's counters are shifted by the same number, so that the receiver still detects the file's own gaps.

use crate::ts::{self, Packet};

/// The counters of every PID.
#[derive(Debug)]
pub(crate) struct Continuity {
    /// State of each PID: bits 3:0 the last counter that was sent, 7:4 the shift, 15:8 the file, 0 for none yet.
    pids: Box<[u16]>,
    /// Number of the current file, 1 to 255, in turn.
    file: u8,
}

impl Continuity {
    pub fn new() -> Continuity {
        Continuity { pids: vec![0; ts::NULL as usize + 1].into(), file: 1 }
    }

    /// Begins another file.
    pub fn join(&mut self) {
        self.file = self.file.checked_add(1).unwrap_or(1);
    }

    /// Makes a packet's counter follow the one sent before.
    pub fn adjust(&mut self, packet: &Packet, bytes: &mut [u8]) {
        if packet.pid == ts::NULL {
            return;
        }
        let state = &mut self.pids[packet.pid as usize];
        let (last, shift, file) = (*state as u8 & 15, (*state >> 4) as u8 & 15, (*state >> 8) as u8);
        let shift = match file {
            0 => 0,
            file if file == self.file => shift,
            _ => (last + u8::from(packet.has_payload)).wrapping_sub(packet.counter) & 15,
        };
        let counter = (packet.counter + shift) & 15;
        *state = u16::from(counter) | u16::from(shift) << 4 | u16::from(self.file) << 8;
        if shift != 0 {
            ts::set_counter(bytes, counter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn through(continuity: &mut Continuity, pid: u16, counter: u8, pcr: Option<u64>) -> u8 {
        let mut bytes = ts::make(pid, counter, pcr, 0);
        let packet = Packet::parse(&bytes).unwrap();
        continuity.adjust(&packet, &mut bytes);
        Packet::parse(&bytes).unwrap().counter
    }

    #[test]
    fn a_file_s_own_gap_stays_and_a_join_makes_none() {
        let mut counters = Continuity::new();
        let first = [3, 4, 6, 6].map(|counter| through(&mut counters, 9, counter, None));
        assert_eq!(first, [3, 4, 6, 6], "as the file has them");
        counters.join();
        assert_eq!(through(&mut counters, 9, 0, Some(1)), 6, "without payload it is not counted");
        assert_eq!([1, 2, 4].map(|counter| through(&mut counters, 9, counter, None)), [7, 8, 10]);
        assert_eq!(through(&mut counters, ts::NULL, 5, None), 5);
    }

    proptest! {
        #[test]
        fn any_number_of_joins_leaves_no_gap(files in prop::collection::vec((0u8..16, 1usize..40), 1..600)) {
            let mut counters = Continuity::new();
            let mut next = files[0].0;
            for (first, length) in files {
                for at in 0..length {
                    let counter = ((first as usize + at) & 15) as u8;
                    prop_assert_eq!(through(&mut counters, 77, counter, None), next);
                    next = (next + 1) & 15;
                }
                counters.join();
            }
        }
    }
}
