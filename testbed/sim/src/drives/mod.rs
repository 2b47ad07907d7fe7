//! Servers with guests that have virtual computational drives, in virtual time (FlexCSV, ATC 2021).
//!
//! # Architecture
//!
//! ```text
//!   design     programs: steps of guests, hypervisor, host and engine for one request, in each design
//!      |
//!   steps      cost and effect of each step: exits, interrupts, stacks, commands, DMA
//!      |
//!   machine    cores; fabric: SSDs (NVMe models), an FPGA card with memory; operator slots (dcs_slots)
//! ```
//!
//! The steps are real where possible: [`dcs_drivers::nvme`] drives the SSDs, from the host or the card, over the fabric, with the
//! data in guests' memory or in the card's; [`dcs_slots`] assigns the slots; the cipher is the engine's own. Every byte that
//! reaches an operator, and every byte that is written to an SSD, is compared.
//!
//! # What it doesn't implement
//!
//! * Configuration of virtual functions, and their memory protection: a guest's memory is part of the host's.
//! * The work of the query operators: their blocks take the time given in the paper's table 3, and stay unchanged.

pub mod design;
pub mod machine;
pub mod parameters;
mod steps;

pub use design::{Design, Server};
pub use parameters::{Operator, Timings};
