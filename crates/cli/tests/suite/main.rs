//! The `dcs` command as users have it: the built program, real files, pipes and sockets, with Python as the judge.

mod card;
mod clients;
mod companion;
mod copy;
mod d2d;
mod d2d_wire;
mod devices;
mod documents;
mod endings;
mod failures;
mod files;
mod gpu;
mod guest;
mod help;
mod interrupt;
mod keys;
mod lend;
#[cfg(feature = "wasm")]
mod modules;
mod names;
mod network;
mod nics;
mod odd;
mod preload;
mod run;
mod scrub;
mod serve_full;
mod serve_killed;
mod serve_log;
mod serve_start;
mod serve_stop;
mod setup;
mod stream;
mod stream_nic;
mod stream_peers;
mod stream_wrong;
mod stuck;

/// Path of the command under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_dcs");

#[path = "../../../devices/tests/cuda/stand_in.rs"]
mod stand_in;
