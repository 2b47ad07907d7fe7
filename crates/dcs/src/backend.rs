//! The interface of a backend to the engine's handle: a loop that one thread at a time drives.

use crate::queue::QueuePair;
use dcs_abi::admin::{AdminEntry, Answer};
use dcs_engine::QueueId;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A request of a session or of the engine's handle to a backend, beside commands.
#[derive(Debug)]
pub(crate) enum Control {
    AddQueue(Arc<QueuePair>),
    DeleteQueue(QueueId),
    Cancel(Arc<QueuePair>, u16),
    /// An admin command for a card or a NIC, and where its answer goes.
    Admin(AdminEntry, Sender<Answer>),
    /// Brings the statistics up to date where that costs something; then says so.
    UpdateStatistics(Sender<()>),
    Stop,
}

/// A backend's loop. One thread at a time drives it.
pub(crate) trait BackendLoop: std::fmt::Debug + Send {
    /// Says that the calling thread drives from now on. `gets_signals`: it is the application's own.
    fn begin_turn(&mut self, gets_signals: bool);
    /// Says that the calling thread no longer drives.
    fn end_turn(&mut self);
    /// True if no queue is open.
    fn is_empty(&self) -> bool;
    /// True if commands are under way.
    fn is_busy(&self) -> bool;
    /// Stops: nothing is done any more.
    fn close(&mut self);
    /// Gives everything up: transfers that are waited for end with a deleted queue.
    fn abandon(&mut self);
    /// Carries out a request.
    fn control(&mut self, control: Control);
    /// Makes one round; false if there was nothing to do.
    fn step(&mut self) -> bool;
    /// True if a session has rung since the last round.
    fn has_doorbell(&self) -> bool;
    /// Sleeps until a device, a session or a deadline has something to do.
    fn sleep(&mut self);
}
