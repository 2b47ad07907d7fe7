//! Timers of a core's event loop. Most timers of a request are stopped long before they are due. One that is due before
//! all others costs more: tokio writes to the loop's eventfd, which then has another round. So while requests come, one
//! timer is always due soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Shorter than all timers of requests.
const BEAT: Duration = Duration::from_millis(100);

/// The timer that is due soon.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beats: AtomicBool,
    /// There was a request since the last beat.
    wanted: AtomicBool,
}

impl Pulse {
    /// Lets it beat for a while. Call it on the core's event loop.
    pub(crate) fn keep(self: &Arc<Pulse>) {
        self.wanted.store(true, Relaxed);
        if !self.beats.swap(true, Relaxed) {
            let pulse = self.clone();
            tokio::spawn(async move {
                while pulse.wanted.swap(false, Relaxed) {
                    tokio::time::sleep(BEAT).await;
                }
                pulse.beats.store(false, Relaxed);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_beats_for_a_while_after_a_request_and_again_after_the_next() {
        let pulse = Arc::<Pulse>::default();
        for _ in 0..2 {
            pulse.keep();
            assert!(pulse.beats.load(Relaxed));
            while pulse.beats.load(Relaxed) {
                tokio::time::sleep(BEAT / 10).await;
            }
        }
    }
}
