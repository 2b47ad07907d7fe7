//! The `dcs` command set: what an application and an engine say to each other, byte for byte.
//!
//! A command is a 64-byte submission entry in a queue; it points to a descriptor (where the bytes are, where
//! they go, the parameters of the operators); the engine answers with a 16-byte completion entry and, where
//! the command gave an address for it, a result area with digests and times. All of it is little-endian and
//! shaped like NVMe (NVM Express Base Specification 2.1), so that a stock NVMe driver can carry it.
//!
//! # Architecture
//!
//! Every structure is defined once, by the [`wire_struct!`] macro, which makes three things of it: a *packet*
//! (a checked view of bytes, after smoltcp's habit), a *repr* (a plain Rust value with `parse` and `emit`),
//! and a [`layout::Layout`] table. Generators walk the tables: `dcs.h` and the tables of `docs/abi.md` come
//! from them today, a SystemVerilog package later. Nothing is written down twice.
//!
//! | module | contents |
//! |---|---|
//! | [`entry`] | submission entry, completion entry with its phase bit, opcodes |
//! | [`inline`] | submission entries that need no descriptor |
//! | [`admin`] | admin commands: queues, memory, devices, connections of an engine that is a card |
//! | [`descriptor`] | descriptor header, endpoints, extents, parameters; the parser that trusts nothing |
//! | [`result`] | result area: digests, byte counts, times by stage |
//! | [`operator`] | the operators: numbers, names, kinds, parameter layouts |
//! | [`status`] | status codes (NVMe's where NVMe has one) and stages |
//! | [`register`] | registers, doorbells |
//! | [`layout`] | the tables that generators read |
//! | `wire` | little-endian fields; one definition becomes packet, repr and table |
//!
//! # Example
//!
//! An application builds an entry; an engine copies its bytes and reads them.
//!
//! ```
//! use dcs_abi::entry::{LENGTH_TO_END, OPCODE_TRANSFER, SubmissionEntry, SubmissionPacket};
//! use dcs_abi::operator::Operator;
//!
//! let mut op_chain = [0; dcs_abi::CHAIN_MAX];
//! op_chain[0] = Operator::Md5 as u8;
//! let opcode = OPCODE_TRANSFER;
//! let entry = SubmissionEntry { opcode, cid: 7, op_chain, length: LENGTH_TO_END, ..Default::default() };
//! let bytes = entry.to_bytes();
//!
//! let read = SubmissionEntry::parse(&SubmissionPacket::new_checked(&bytes)?)?;
//! assert_eq!(read, entry);
//!
//! // A reserved byte that is not zero is refused: it may have a meaning one day.
//! let mut reserved = bytes;
//! reserved[63] = 1;
//! assert!(SubmissionEntry::parse(&SubmissionPacket::new_checked(&reserved)?).is_err());
//! # Ok::<(), dcs_abi::WireError>(())
//! ```
//!
//! # What it doesn't implement
//!
//! * No queues, no memory access, no ordering: these are the engine's and its host's.
//! * No semantic checks that need a device (is this handle open, is the range inside the file).
//! * No SGL or PRP walking: a descriptor is parsed from bytes that were already copied to one place.
#![no_std]
#![forbid(unsafe_code)]

pub mod admin;
pub mod descriptor;
pub mod entry;
pub mod inline;
pub mod layout;
pub mod operator;
pub mod register;
pub mod result;
pub mod status;
mod wire;

pub use wire::{U48, Wire, WireError};

/// Most operators in one chain (design: FlexCSV's `op_chain` carries up to eight).
pub const CHAIN_MAX: usize = 8;

/// The version of this command set, as the `version` field of a descriptor carries it.
pub const ABI_VERSION: u16 = 2;

/// Every structure of the command set, nested ones before those that hold them.
pub const STRUCTURES: &[&layout::Layout] = &[
    &entry::SUBMISSION,
    &inline::INLINE,
    &entry::COMPLETION,
    &descriptor::EXTENT,
    &descriptor::ENDPOINT,
    &descriptor::PARAMETER,
    &descriptor::DESCRIPTOR,
    &result::DIGEST_SLOT,
    &result::STAGE_TIMES,
    &result::RESULT,
    &admin::ADMIN,
    &admin::ADMIN_COMPLETION,
    &admin::SSD_IDENTITY,
    &admin::PACED_SENDING,
];
