//! A core, and processing units, as their owner calls them: this crate's core or one in hardware, units in software or hardware.

use crate::config::{Config, QueueConfig};
use crate::engine::{Counters, Engine};
use crate::interface::{Action, CommandId, Event, Failure, Nanos, Operation, Outcome, QueueId};
use crate::transfer::TransferSpec;
use alloc::boxed::Box;
use dcs_abi::result::ResultArea;

/// A core, as an owner calls it: [`Engine`], whose documentation has the contract, or one in hardware.
pub trait Core: core::fmt::Debug + Send {
    /// [`Engine::config`].
    fn config(&self) -> &Config;
    /// [`Engine::counters`].
    fn counters(&self) -> Counters;
    /// [`Engine::add_queue`].
    fn add_queue(&mut self, config: QueueConfig) -> Option<QueueId>;
    /// [`Engine::handle`].
    fn handle(&mut self, now: Nanos, event: Event<'_>);
    /// [`Engine::handle_idle`].
    fn handle_idle(&mut self, now: Nanos);
    /// [`Engine::poll_action`].
    fn poll_action(&mut self) -> Option<Action>;
    /// [`Engine::next_timeout`].
    fn next_timeout(&self) -> Option<Nanos>;
    /// [`Engine::handle_timeout`].
    fn handle_timeout(&mut self, now: Nanos);
    /// [`Engine::blocks_free`].
    fn blocks_free(&self) -> u32;
    /// [`Engine::is_short_of_blocks`].
    fn is_short_of_blocks(&self) -> bool;
    /// [`Engine::is_idle`].
    fn is_idle(&self) -> bool;
    /// [`Engine::recycle`].
    fn recycle(&mut self, area: Box<ResultArea>);
}

/// Processing units: the operators of all commands of a core, which the core's owner has work on blocks.
pub trait Units: core::fmt::Debug + Send {
    /// Loads a command's operators, before the owner answers [`Action::Bind`].
    ///
    /// # Errors
    ///
    /// The place of an operator that cannot be made of its parameter block, and the reason.
    fn load(&mut self, command: CommandId, spec: &TransferSpec) -> Result<(), (u8, Failure)>;
    /// Performs an [`OperationKind::Process`](crate::OperationKind::Process) on the bytes of its block, which a cipher changes. An owner gives
    /// a copy: devices may write to the block meanwhile.
    fn process(&mut self, operation: &Operation, bytes: &mut [u8]) -> Outcome;
    /// Performs an [`OperationKind::Resize`](crate::OperationKind::Resize), from bytes of one block to bytes of another.
    fn resize(&mut self, operation: &Operation, input: &[u8], output: &mut [u8]) -> Outcome;
    /// Performs an [`OperationKind::Snapshot`](crate::OperationKind::Snapshot): tells the value of a digest.
    fn snapshot(&mut self, operation: &Operation) -> Outcome;
    /// Unloads a command's operators: it is over.
    fn unload(&mut self, command: CommandId);
}

impl Core for Engine {
    fn config(&self) -> &Config {
        self.config()
    }
    fn counters(&self) -> Counters {
        self.counters()
    }
    fn add_queue(&mut self, config: QueueConfig) -> Option<QueueId> {
        self.add_queue(config)
    }
    fn handle(&mut self, now: Nanos, event: Event<'_>) {
        self.handle(now, event);
    }
    fn handle_idle(&mut self, now: Nanos) {
        self.handle_idle(now);
    }
    fn poll_action(&mut self) -> Option<Action> {
        self.poll_action()
    }
    fn next_timeout(&self) -> Option<Nanos> {
        self.next_timeout()
    }
    fn handle_timeout(&mut self, now: Nanos) {
        self.handle_timeout(now);
    }
    fn blocks_free(&self) -> u32 {
        self.blocks_free()
    }
    fn is_short_of_blocks(&self) -> bool {
        self.is_short_of_blocks()
    }
    fn is_idle(&self) -> bool {
        self.is_idle()
    }
    fn recycle(&mut self, area: Box<ResultArea>) {
        self.recycle(area);
    }
}
