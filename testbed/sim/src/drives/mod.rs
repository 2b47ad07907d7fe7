//! Servers with guests that have virtual computational drives, in virtual time (FlexCSV, ATC 2021).
//!
//! # Architecture
//!
//! ```text
//!   design     programs: what guests, hypervisor, host and engine do for one request, in each design
//!      |
//!   steps      what each step costs, and does: exits, interrupts, stacks, commands, DMA
//!      |
//!   machine    cores; fabric: SSDs (NVMe models), an FPGA card with memory; operator slots (dcs_slots)
//! ```
//!
//! The steps are real where they can be: SSDs are driven by [`dcs_drivers::nvme`], by the host or by the card,
//! over the fabric, with the data in guests' memory or in the card's; slots are given away by [`dcs_slots`]; the
//! cipher is the engine's own. Every byte that reaches an operator, and every one that is written to an SSD, is
//! compared.
//!
//! # What it doesn't implement
//!
//! * Configuration of virtual functions, and their memory protection: a guest's memory is part of the host's.
//! * Of the query operators the work itself: their blocks take the time that the paper's table 3 says, and
//!   come out as they went in.

pub mod design;
pub mod machine;
pub mod parameters;
mod steps;

pub use design::{Design, Server};
pub use parameters::{Operator, Timings};
