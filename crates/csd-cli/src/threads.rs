//! Threads beside the loop: those that do operators' work, a slot each, and the one that gives memory back.

use crate::port::uptime;
use dcs_csd::near::Batch;
use dcs_csd::{Waste, Workers};
use dcs_vfio_user::wake::Wake;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Batches that are done, and the slots that did them.
type Done = Mutex<VecDeque<(u16, Batch)>>;

/// A thread for each slot. They end when this is dropped and they have done what they have.
pub struct Threads {
    slots: Vec<Sender<Batch>>,
    done: Arc<Done>,
}

impl Threads {
    /// Starts this many. They wake the loop when they have done something.
    ///
    /// # Errors
    ///
    /// Where there are no threads to be had.
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

/// Starts the thread that gives memory back which the loop has done with, and wakes the loop then.
///
/// # Errors
///
/// Where there is no thread to be had.
pub fn disposal(wake: &Wake) -> io::Result<impl FnMut(Waste) + Send + 'static> {
    let (sender, all) = channel::<Waste>();
    let wake = wake.clone();
    std::thread::Builder::new().name("dcs-free".into()).spawn(move || {
        for waste in all {
            drop(waste);
            wake.notify();
        }
    })?;
    // The thread lives as long as the sender: what it does not take is dropped here.
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
