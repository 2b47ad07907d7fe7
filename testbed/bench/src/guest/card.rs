//! The hidden subcommand that serves the card to QEMU, as `dcs card` does, until its parent ends; it can inject faults into the
//! card's SSDs.

use crate::failure::{Exit, Failure};
use crate::guest::engine::CardEngine;
use crate::harness::connections::say;
use crate::harness::faults::{Faults, Strikes};
use dcs_card::card::{Card, Config};
use dcs_card::serve::{serve, serve_by};
use dcs_drivers::ssd::Ssd;
use dcs_fabric::Interposer;
use dcs_vfio_user::VfioUserBus;
use dcs_vfio_user::wake::{Idle, Watch};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The card's own memory.
const MEMORY: u64 = 16 << 20;

/// The message that the process prints once it listens.
#[derive(Deserialize, Serialize)]
pub struct Listening {}

/// A request for the number of times each fault struck, on a line of its own. The answer is a list of [`Strikes`].
#[derive(Deserialize, Serialize)]
pub struct Asked {}

pub fn run(socket: &Path, engine: CardEngine, faults: &Faults) -> Result<(), Failure> {
    // The card ends if its server is killed.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let failed = |error: String| Failure::new(Exit::Failed, format!("the card's process: {error}"));
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| failed(error.to_string()))?;
    let config = Config { key, hardware: engine.make()?, ..Config::default() };
    let interposer = interposer(faults)?;
    let interposer = Arc::new(Mutex::new(interposer));
    let served = if faults.plans.is_empty() {
        serve(socket, MEMORY, config)
    } else {
        let interposer = Arc::clone(&interposer);
        serve_by(socket, MEMORY, config, move |card, bus, stop| work(card, bus, stop, &interposer))
    };
    let _served = served.map_err(|error| failed(error.to_string()))?;
    say(&Listening {}).map_err(|error| failed(error.to_string()))?;
    for line in std::io::stdin().lock().lines() {
        line.and_then(|line| Ok(serde_json::from_str::<Asked>(&line)?))
            .map_err(|error| failed(error.to_string()))?;
        let struck: Vec<Strikes> = lock(&interposer).struck().into_iter().map(Strikes::from).collect();
        say(&struck).map_err(|error| failed(error.to_string()))?;
    }
    loop {
        std::thread::park();
    }
}

/// Returns an interposer with the SSDs' faults.
pub fn interposer(faults: &Faults) -> Result<Interposer, Failure> {
    Interposer::new(&faults.plans, faults.seed)
        .map_err(|error| Failure::usage(error.to_string()).advise("dcs vm demo --help says what can fail"))
}

fn lock(interposer: &Mutex<Interposer>) -> MutexGuard<'_, Interposer> {
    interposer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the card as the library does, with the interposer between it and its SSDs.
fn work(card: &mut Card, bus: &mut VfioUserBus, stop: &AtomicBool, interposer: &Mutex<Interposer>) {
    let (start, mut idle, mut done) = (Instant::now(), Idle::default(), 0);
    let now = || start.elapsed().as_nanos() as u64;
    while !stop.load(Ordering::Acquire) {
        bus.acknowledge_resets();
        let mut faults = lock(interposer);
        while let Some(answer) = bus.answer() {
            let answer = faults.answered(answer);
            card.read_done(&mut faults.on(bus), now(), answer);
        }
        faults.poll(bus, now());
        let again = card.poll(&mut faults.on(bus), now());
        for ssd in card.ssds() {
            faults.attach(ssd.registers(), block_size(ssd));
        }
        let due = faults.deadline();
        drop(faults);
        if again {
            continue;
        }
        // All that the card does shows as accesses to the bus.
        if bus.accesses() != done {
            done = bus.accesses();
            idle.worked();
            continue;
        }
        let watch = if card.is_busy() { Watch::Memory } else { Watch::Host };
        let until = [card.deadline(), due].into_iter().flatten().min();
        let until = until.map(|at| start + Duration::from_nanos(at));
        let registers = card.registers();
        bus.wait(&mut idle, watch, until, || stop.load(Ordering::Acquire) || registers.lock().has_requests());
    }
}

fn block_size(ssd: &Ssd) -> Option<u32> {
    ssd.host().namespace().map(|namespace| namespace.block_size)
}
