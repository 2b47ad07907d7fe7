//! Bodies of the fuzz targets: each takes bytes, and panics if a promise is broken.
//!
//! ```text
//! cargo +nightly fuzz run entry -- -max_total_time=60
//! cargo +nightly fuzz run descriptor -- -max_total_time=60 -max_len=4096
//! ```
//!
//! | target | input | replayed by |
//! |---|---|---|
//! | `entry` | an entry of a submission or completion queue | `crates/abi/tests/corpus.rs` |
//! | `descriptor` | a descriptor | `crates/abi/tests/corpus.rs` |
//! | `engine` | events for the core, from hosts and devices that may lie | `crates/engine/tests/suite/garbage.rs` |
//! | `operators` | an operator, its parameters, data, and how they are cut | `crates/ndp/tests/corpus.rs` |
//! | `card` | actions of a guest with the card, and of a peer with its NIC | `crates/card/tests/corpus.rs` |
//! | `vfio_user` | messages of a client to the process that serves a function | `crates/vfio-user/tests/corpus.rs` |
//! | `csd` | actions of a guest with a virtual drive | `crates/csd/tests/corpus.rs` |
//! | `control` | input of `dcs-csd`: requests of its management socket, drives as options, a configuration | `crates/csd-cli/tests/corpus.rs` |
//! | `d2d` | register accesses, data, frames and answers for an SSD and a NIC that stream to each other | `crates/d2d/tests/corpus.rs` |
//! | `media` | bytes for the sender of a media stream, datagrams for a receiver, and times | `crates/media/tests/corpus.rs` |
//! | `net` | frames from a peer that sends anything, calls of the stack's owner | `crates/net/tests/corpus.rs` |
//! | `head` | the head of a request to the object server | `crates/server/tests/corpus.rs` |
//! | `connection` | everything that a client sends on a connection to the object server | `crates/server/tests/corpus.rs` |
//! | `chunks` | a body in the chunked coding, and how it is cut | `crates/server/tests/corpus.rs` |
//! | `users` | a list of users | `crates/server/tests/corpus.rs` |
//! | `ssd` | answers, completions and memory writes of an SSD; requests of its host's owner | `crates/drivers/tests/corpus.rs` |
//! | `wasm` | a module as an operator, or such a module's answers about its memory and its steps | `crates/wasm/tests/corpus.rs` |
//! | `preload` | rules of the preload library and a path; a key; a file of counters | `integrations/preload-rules/tests/corpus.rs` |
//!
//! A module holds the targets of one crate and uses only what that crate's tests have, so that these can include the module and
//! replay `corpus/` on a stable toolchain (`replay.rs`). A new target is a function here, four lines in `fuzz_targets/`, a
//! `[[bin]]`, and seeds. `tools/abi-gen` makes the seeds of the command set.
#![forbid(unsafe_code)]

mod abi;
mod connection;
mod control;
mod csd;
mod d2d;
mod engine;
mod guest;
mod media;
mod ndp;
mod net;
mod preload;
mod server;
mod ssd;
mod vfio_user;
mod wasm;

pub use abi::{descriptor, entry};
pub use connection::connection;
pub use control::control;
pub use csd::csd;
pub use d2d::d2d;
pub use engine::engine;
pub use guest::card as guest;
pub use media::media;
pub use ndp::operators;
pub use net::net;
pub use preload::preload;
pub use server::{chunks, head, users};
pub use ssd::ssd;
pub use vfio_user::vfio_user;
pub use wasm::wasm;
