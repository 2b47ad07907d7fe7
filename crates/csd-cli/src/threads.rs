//! Threads outside the loop: those that do operators' work, one for each slot, and the one that frees memory.

use crate::port::uptime;
use dcs_csd::near::Batch;
use dcs_csd::{Waste, Workers};
use dcs_vfio_user::wake::Wake;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Finished batches, and their slots.
type Done = Mutex<VecDeque<(u16, Batch)>>;

/// A thread for each slot. When this is dropped, they finish their work and end.
pub struct Threads {
    slots: Vec<Sender<Batch>>,
    done: Arc<Done>,
}

impl Threads {
    /// Starts this many threads. They wake the loop when they have done something.
    ///
    /// # Errors
    ///
    /// Fails if threads cannot be created.
    pub fn start(count: u16, wake: &Wake) -> io::Result<Threads> {
        let done = Arc::<Done>::default();
        let slot = |slot| {
            let (sender, batches) = channel();
            let (done, wake) = (Arc::clone(&done), wake.clone());
            let thread = std::thread::Builder::new().name(format!("dcs-slot-{slot}"));
            thread.spawn(move || work(slot, &batches, &done, &wake))?;
            Ok(sender)
        };
        let slots = (0..count).map(slot).collect::<io::Result<_>>()?;
        Ok(Threads { slots, done })
    }
}

/// Starts the thread that frees memory which the loop does not use any more; it wakes the loop then.
///
/// # Errors
///
/// Fails if the thread cannot be created.
pub fn disposal(wake: &Wake) -> io::Result<impl FnMut(Waste) + Send + 'static> {
    let (sender, all) = channel::<Waste>();
    let wake = wake.clone();
    std::thread::Builder::new().name("dcs-free".into()).spawn(move || {
        for waste in all {
            drop(waste);
            wake.notify();
        }
    })?;
    // The thread lives as long as the sender: what it has not taken is dropped here.
    Ok(move |waste| drop(sender.send(waste)))
}

fn work(slot: u16, batches: &Receiver<Batch>, done: &Done, wake: &Wake) {
    for mut batch in batches {
        batch.run(&mut uptime);
        done.lock().unwrap_or_else(PoisonError::into_inner).push_back((slot, batch));
        wake.notify();
    }
}

impl Workers for Threads {
    fn count(&self) -> usize {
        self.slots.len()
    }

    fn run(&mut self, slot: u16, batch: Batch) {
        if let Err(lost) = self.slots[usize::from(slot)].send(batch) {
            let mut batch = lost.0;
            batch.fail();
            self.done.lock().unwrap_or_else(PoisonError::into_inner).push_back((slot, batch));
        }
    }

    fn done(&mut self) -> Option<(u16, Batch)> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
