//! The card as a part of a server next to QEMU: its registers behind a vfio-user socket, and the thread that owns the bus.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dcs_abi::register::DOORBELL_BASE;

use dcs_vfio_user::pci::{Function, Identity, Interrupts, NoRegisters, Setup};
use dcs_vfio_user::wake::{Idle, Wake, Watch};
use dcs_vfio_user::{Running, Server, VfioUserBus};

use crate::card::{Card, CardError, Config};

/// The reason why a card is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The card's sizes are refused.
    #[error(transparent)]
    Card(#[from] CardError),
    /// Memory, socket or thread could not be made.
    #[error("the card cannot be served: {0}")]
    Io(#[from] io::Error),
}

/// A card that is served. Dropping it removes it from the bus, as if it were unplugged.
#[derive(Debug)]
pub struct Served {
    stop: Arc<AtomicBool>,
    wake: Wake,
    thread: Option<JoinHandle<()>>,
    _server: Running,
}

/// Serves a card with this much own memory (a power of two) at a socket, as described for [`Server::bind`].
///
/// # Errors
///
/// If the card or the socket cannot be made.
pub fn serve(socket: &Path, memory: u64, config: Config) -> Result<Served, ServeError> {
    serve_by(socket, memory, config, run)
}

/// Serves as [`serve`] does, but `run` runs the card on its thread, as [`run`] does.
///
/// # Errors
///
/// As [`serve`].
pub fn serve_by(
    socket: &Path,
    memory: u64,
    config: Config,
    run: impl FnOnce(&mut Card, &mut VfioUserBus, &AtomicBool) + Send + 'static,
) -> Result<Served, ServeError> {
    let wake = Wake::new()?;
    let queues = config.engine.queues + 1;
    let registers = (DOORBELL_BASE as u64 + 8 * u64::from(queues)).next_power_of_two();
    let setup = Setup {
        identity: Identity::ACCELERATOR,
        registers,
        memory,
        aperture: 0,
        interrupts: Interrupts::MsiX(queues),
    };
    let function = Function::new(setup, Box::new(NoRegisters))?;
    let (mut server, mut bus) = Server::bind(socket, function, wake.clone())?;
    let mut card = Card::new(config, &bus, Some(wake.clone()))?;
    server.function().set_registers(Box::new(card.registers()));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::Builder::new()
        .name("dcs-card".into())
        .spawn(move || run(&mut card, &mut bus, &stopped))?;
    Ok(Served { stop, wake, thread: Some(thread), _server: server.start()? })
}

/// Runs a card on this thread, until `stop` is set and its [`Wake`] is called.
pub fn run(card: &mut Card, bus: &mut VfioUserBus, stop: &AtomicBool) {
    let (start, mut idle, mut done) = (Instant::now(), Idle::default(), 0);
    let now = || start.elapsed().as_nanos() as u64;
    while !stop.load(Ordering::Acquire) {
        bus.acknowledge_resets();
        while let Some(answer) = bus.answer() {
            card.read_done(bus, now(), answer);
        }
        if card.poll(bus, now()) {
            continue;
        }
        // Everything that the card does is done over the bus.
        if bus.accesses() != done {
            done = bus.accesses();
            idle.worked();
            continue;
        }
        let watch = if card.is_busy() { Watch::Memory } else { Watch::Host };
        let until = card.deadline().map(|at| start + Duration::from_nanos(at));
        let registers = card.registers();
        bus.wait(&mut idle, watch, until, || stop.load(Ordering::Acquire) || registers.lock().has_requests());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake.notify();
        if let Some(thread) = self.thread.take() {
            // A panic on that thread was reported already.
            let _ = thread.join();
        }
    }
}
