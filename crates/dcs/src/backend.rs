//! What every backend is to the engine's handle: a loop that somebody drives.

use crate::queue::QueuePair;
use dcs_abi::admin::AdminEntry;
use dcs_abi::status::Status;
use dcs_engine::QueueId;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// What sessions and the engine's handle ask of a backend, beside commands.
#[derive(Debug)]
pub(crate) enum Control {
    AddQueue(Arc<QueuePair>),
    DeleteQueue(QueueId),
    Cancel(Arc<QueuePair>, u16),
    /// An admin command for a card. Its answer: two words, or why not.
    Admin(AdminEntry, Sender<Result<(u32, u32), Status>>),
    /// Statistics are wanted that cost something to find out.
    Look(Sender<()>),
    Stop,
}

/// A backend's loop. One thread at a time drives it.
pub(crate) trait Core: std::fmt::Debug + Send {
    /// The calling thread drives from now on. `gets_signals`: it is the application's own.
    fn begin_turn(&mut self, gets_signals: bool);
    /// The calling thread no longer drives.
    fn end_turn(&mut self);
    /// No queue is open.
    fn is_empty(&self) -> bool;
    /// Commands are under way.
    fn is_busy(&self) -> bool;
    /// Nothing is done any more.
    fn close(&mut self);
    /// Gives everything up: whoever waits for a transfer is told that the queue is gone.
    fn abandon(&mut self);
    /// Does what is asked.
    fn control(&mut self, control: Control);
    /// One round; false where there was nothing to do.
    fn step(&mut self) -> bool;
    /// True where a session has rung since the last round.
    fn has_doorbell(&self) -> bool;
    /// Sleeps until a device, a session or a deadline has something to do.
    fn sleep(&mut self);
}
