//! The PCI function that a host sees: configuration space, BARs, MSI-X. [`Registers`] implements the registers of BAR0.
//!
//! | BAR | content |
//! |---|---|
//! | 0 | registers and doorbells: each access is trapped and handed to [`Registers`] |
//! | 2 | the function's own memory, if it has any, prefetchable: mapped by the host, reached by the other devices, never trapped. Or an
//! aperture: no memory, each store is trapped |
//! | 4 | MSI-X table and pending bits, if it has MSI-X |
//!
//! # What it doesn't implement
//!
//! * INTx. A function has MSI-X or MSI: a host without either polls.
//! * Power states, except that D1 to D3 stop the function's own accesses, as the specification requires.
//! * Extended capabilities (AER, ATS, SR-IOV).

mod config;
mod function;

pub use config::{Config, Effect, Identity, Interrupts};
pub(crate) use function::State;
pub use function::{Function, NoRegisters, Region, Registers, Setup};
