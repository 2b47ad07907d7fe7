//! An NVMe host (an initiator): starts a controller and has it read, write and flush, all over a [`Bus`].
//!
//! It is a state machine. It owns no thread and no clock, never waits, and never reads a register on the data path: queues, lists and
//! identify data are in the card's own memory, doorbells are posted writes, and completions are found by their phase bit. Registers are
//! read only to start the controller, to reset it, and to check it when a command takes too long.
//!
//! # Architecture
//!
//! ```text
//!   submit --> data (PRP list or SGL) --> queue: entry, tail doorbell ---> controller ---> DMA
//!                                                                              |
//!   finished <-- retire <-- queue: slot by cid <-- completion, phase bit <-----+
//!
//!   deadline passed --> read CSTS --> Abort --> reset: CC.EN = 0, CSTS.RDY = 0 --> freed, up again
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | sizes, timeouts; the layout of the region |
//! | `error` | refusals of requests, failures of commands, reasons for resets |
//! | [`identify`] | identify data, checked |
//! | [`dcs_nvme`] | the wire: registers, entries, statuses |
//! | `slots`, `queue`, `data` | outstanding commands by cid; rings and doorbells; PRP lists and SGLs |
//! | `host` | [`Nvme`]: submit, reap, retire |
//! | `lend` | a queue pair that somebody else uses |
//! | `pmr` | the persistent memory region, as a place for data |
//! | `start` | from CAP to the last I/O queue; also the way out of a reset |
//! | `recover` | timeouts, Abort, reset, giving up |
//!
//! # Ownership of memory
//!
//! A command that ended with a completion is done, and its data's memory is its owner's again. A command that failed because its controller
//! had to be reset is *done* at once too, but the controller may still write to its memory: [`Finished::memory`] is [`Memory::Held`], and
//! [`Nvme::freed`] names the command when the controller has shown CSTS.RDY = 0. That answer pushes all the controller's writes ahead of it
//! [PCIe 5.0, 2.4]. If a controller is gone or will not stop, held memory stays held until the owner knows that it is free and says so
//! ([`Nvme::on_reset`]).
//!
//! # Trust
//!
//! Nothing that the controller wrote is used before it is checked. A completion counts only with the expected phase, submission queue and
//! cid. A cid is reused only after some 65,000 other commands. Doorbells outside of [`Config::registers`] are never written.
//!
//! # What it doesn't implement
//!
//! * Splitting: a request beyond [`Namespace::max_transfer`] is refused. Its owner has smaller blocks.
//! * Retries: [`NvmeError::may_retry`] says when one may help.
//! * Interrupts other than one MSI-X vector for all queues ([`Config::interrupts`]). With interrupts off, MSI-X must be left off, and INTx
//!   is masked.
//! * Metadata and protection information, more than one namespace per host, command sets other than NVM, asynchronous events, power states,
//!   persistence of the persistent memory region, weighted arbitration.
//! * PCI: memory space and bus mastering must be on. The owner of the configuration space also does a function level reset if a controller
//!   won't stop.

mod config;
mod data;
mod error;
mod host;
pub mod identify;
mod lend;
mod pmr;
mod queue;
mod recover;
mod slots;
mod start;
#[cfg(test)]
mod tests;

pub use config::{CmbBar, Config, ConfigError, PmrBar, SglUse};
pub use error::{NvmeError, ResetCause, SubmitError};
pub use host::{Counters, Finished, Memory, Nvme, Request, State};
pub use identify::{IdentifyError, Namespace};
pub use lend::QueuePair;

pub use dcs_nvme::Status;

#[cfg(doc)]
use crate::bus::Bus;
