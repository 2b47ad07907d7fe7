//! The hidden subcommand that serves the card to QEMU, as `dcs card` does, until its parent ends.

use crate::failure::{Exit, Failure};
use crate::harness::wire::say;
use dcs_card::card::Config;
use dcs_card::serve::serve;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The card's own memory.
const MEMORY: u64 = 16 << 20;

/// What it says once it listens.
#[derive(Deserialize, Serialize)]
pub struct Listening {}

pub fn run(socket: &Path) -> Result<(), Failure> {
    // No card is left over where its server was killed.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let failed = |error: String| Failure::new(Exit::Failed, format!("the card's process: {error}"));
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| failed(error.to_string()))?;
    let _served = serve(socket, MEMORY, Config { key, ..Config::default() })
        .map_err(|error| failed(error.to_string()))?;
    say(&Listening {}).map_err(|error| failed(error.to_string()))?;
    loop {
        std::thread::park();
    }
}
