//! Test of the memory of all senders of a process together. No other test may run in this process.

use dcs_media::clock::Pacing;
use dcs_media::sender::{Error, Sender, Settings};
use dcs_media::ts::{self, PACKET};

/// Most datagrams of one stream that wait for a clock, as docs/stream.md has it.
const LONGEST: usize = 8192;

/// Gives senders packets without a clock, one after the other, until each is refused or has as many as one may have. Returns how many have.
fn fill(senders: &mut [Sender]) -> usize {
    let packets: Vec<u8> = (0..64).flat_map(|counter| ts::make(0x100, counter & 15, None, 0)).collect();
    let has_all = |sender: &mut Sender| {
        sender.begin(Pacing::Pcr);
        (0..LONGEST / 64).all(|_| match sender.push(&packets, 1) {
            Ok(count) => count == packets.len(),
            Err(error) => error != Error::NoClock,
        })
    };
    senders.iter_mut().filter_map(|sender| has_all(sender).then_some(())).count()
}

#[test]
fn streams_without_a_clock_share_what_they_may_take() {
    let settings = Settings { payload: PACKET, ..Settings::default() };
    let mut senders: Vec<Sender> = (0..300).map(|_| Sender::new(settings)).collect();
    assert_eq!(fill(&mut senders), 64);
    // A stream with a clock needs no more than it has.
    let mut other = Sender::new(Settings::default());
    other.begin(Pacing::Constant(8_000_000));
    assert_eq!(other.push(&[7; 1316 * 60], 1), Ok(1316 * 60));
    // What is refused or at its end is sent at once, and its memory is others'.
    for sender in &mut senders {
        let _ = sender.end(false, 2);
        while let Some(batch) = sender.batch(2, 2) {
            let count = batch.count;
            sender.sent(count, 2);
        }
        assert!(sender.is_empty());
    }
    let mut later: Vec<Sender> = (0..60).map(|_| Sender::new(settings)).collect();
    assert_eq!(fill(&mut later), 60, "the memory is there again, though the first senders are too");
    drop(later);
    senders.truncate(60);
    assert_eq!(fill(&mut senders), 60);
}
