//! A core as its owner calls it, whether it is this crate's or one in hardware.

use crate::config::{Config, QueueConfig};
use crate::engine::{Counters, Engine};
use crate::interface::{Action, Event, Nanos, QueueId};
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
