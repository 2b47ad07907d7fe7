//! The card as a part of a server next to QEMU: its functions' registers behind vfio-user sockets, and the thread that owns the
//! buses.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dcs_abi::register::DOORBELL_BASE;

use dcs_drivers::bus::{Bus, BusError, Buses, ReadDone, Tag, Window};
use dcs_vfio_user::pci::{Function, Identity, Interrupts, NoRegisters, Setup};
use dcs_vfio_user::wake::{Idle, Wake, Watch};
use dcs_vfio_user::{Port, Running, Server, VfioUserBus};

use crate::card::{Card, CardError, Config};

/// The reason why a card is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The card's sizes are refused.
    #[error(transparent)]
    Card(#[from] CardError),
    /// A function's socket could not be made.
    #[error("{}: {error}", socket.display())]
    Socket {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Memory or a thread could not be made.
    #[error("the card cannot be served: {0}")]
    Io(#[from] io::Error),
}

/// A card that is served. Dropping it removes it from the bus, as if it were unplugged.
#[derive(Debug)]
pub struct Served {
    stop: Arc<AtomicBool>,
    wake: Wake,
    thread: Option<JoinHandle<()>>,
    _servers: Vec<Running>,
}

/// The sides of a card's functions that face their hosts: function 0's bus, and the ports of the others.
#[derive(Debug)]
struct Hosts {
    bus: VfioUserBus,
    ports: Vec<Port>,
    /// Answers to reads by ports, which come at once.
    done: VecDeque<ReadDone>,
    /// Accesses by ports.
    accesses: u64,
}

impl Bus for Hosts {
    fn window(&self) -> Window {
        self.bus.window()
    }
    fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.bus.load(offset, bytes);
    }
    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.bus.store(offset, bytes);
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.bus.write(address, bytes);
    }
    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        self.bus.read(address, length, tag);
    }
    fn interrupt(&mut self, vector: u16) {
        self.bus.interrupt(vector);
    }
}

impl Hosts {
    /// Returns the port of a function other than 0.
    fn port(&mut self, function: usize) -> Option<&mut Port> {
        let port = self.ports.get_mut(function.checked_sub(1)?)?;
        self.accesses += 1;
        Some(port)
    }
}

impl Buses for Hosts {
    fn write_host(&mut self, function: usize, address: u64, bytes: &[u8]) {
        match self.port(function) {
            // As for every write, a failure is not reported.
            Some(port) => _ = port.write(address, bytes),
            None => self.bus.write(address, bytes),
        }
    }

    fn read_host(&mut self, function: usize, address: u64, length: u32, tag: Tag) {
        let Some(port) = self.port(function) else { return self.bus.read(address, length, tag) };
        let mut bytes = vec![0; length as usize];
        let data = match port.read(address, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(_) => Err(BusError::Unsupported),
        };
        self.done.push_back(ReadDone { tag, data });
    }

    fn interrupt_host(&mut self, function: usize, vector: u16) {
        match self.port(function) {
            Some(port) => port.interrupt(vector),
            None => self.bus.interrupt(vector),
        }
    }
}

/// Serves a card with this much own memory (a power of two) at a socket, as described for [`Server::bind`].
///
/// # Errors
///
/// If the card or the socket cannot be made.
pub fn serve(socket: &Path, memory: u64, config: Config) -> Result<Served, ServeError> {
    serve_functions(&[socket], memory, config)
}

/// Serves a card with a function for each of these sockets, to a host each. The first one is function 0, which has the card's own memory as
/// a BAR, and its devices; the others reach their hosts' memory alone.
///
/// # Errors
///
/// As [`serve`].
pub fn serve_functions(sockets: &[&Path], memory: u64, config: Config) -> Result<Served, ServeError> {
    let made = Made::new(sockets, memory, Config { functions: sockets.len(), ..config })?;
    made.start(|mut card, bus, ports, stop| {
        let mut hosts = Hosts { bus, ports, done: VecDeque::new(), accesses: 0 };
        run(&mut card, &mut hosts, stop);
    })
}

/// Serves a card with one function as [`serve`] does, but `run` runs the card on its thread: until the flag is set and its [`Wake`] is
/// called.
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
    let made = Made::new(&[socket], memory, Config { functions: 1, ..config })?;
    made.start(|mut card, mut bus, _, stop| run(&mut card, &mut bus, stop))
}

/// Sockets that were made for a card. They are removed if the card cannot be.
struct Sockets(Vec<PathBuf>);

impl Sockets {
    /// Keeps a socket that was bound, or says which one could not be.
    fn bind<T>(&mut self, socket: &Path, bound: io::Result<T>) -> Result<T, ServeError> {
        let bound = bound.map_err(|error| ServeError::Socket { socket: socket.to_path_buf(), error })?;
        self.0.push(socket.to_path_buf());
        Ok(bound)
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.0.iter().for_each(|socket| _ = std::fs::remove_file(socket));
    }
}

/// A card, and the servers of its functions.
struct Made {
    card: Card,
    bus: VfioUserBus,
    ports: Vec<Port>,
    servers: Vec<Server>,
    wake: Wake,
}

impl Made {
    fn new(sockets: &[&Path], memory: u64, config: Config) -> Result<Made, ServeError> {
        let wake = Wake::new()?;
        let (first, others) =
            sockets.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let queues = config.queue_pairs().unwrap_or(config.engine.queues) + 1;
        let function = |memory| {
            let setup = Setup {
                identity: Identity::ACCELERATOR,
                registers: (DOORBELL_BASE as u64 + 8 * u64::from(queues)).next_power_of_two(),
                memory,
                aperture: 0,
                interrupts: Interrupts::MsiX(queues),
            };
            Function::new(setup, Box::new(NoRegisters))
        };
        let mut sockets = Sockets(Vec::new());
        let (server, bus) = sockets.bind(first, Server::bind(first, function(memory)?, wake.clone()))?;
        let card = Card::new(config, &bus, Some(wake.clone()))?;
        let (mut servers, mut ports) = (vec![server], Vec::new());
        for socket in others {
            let (server, port) =
                sockets.bind(socket, Server::bind_port(socket, function(0)?, wake.clone()))?;
            servers.push(server);
            ports.push(port);
        }
        sockets.0.clear();
        for (server, registers) in servers.iter_mut().zip(card.all_registers()) {
            server.function().set_registers(Box::new(registers));
        }
        Ok(Made { card, bus, ports, servers, wake })
    }

    /// Runs the card on a thread of its own.
    fn start(
        self,
        run: impl FnOnce(Card, VfioUserBus, Vec<Port>, &AtomicBool) + Send + 'static,
    ) -> Result<Served, ServeError> {
        let Made { card, bus, ports, servers, wake } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("dcs-card".into())
            .spawn(move || run(card, bus, ports, &stopped))?;
        let mut served = Served { stop, wake, thread: Some(thread), _servers: Vec::new() };
        for server in servers {
            served._servers.push(server.start()?);
        }
        Ok(served)
    }
}

/// Runs a card on this thread, until `stop` is set and its [`Wake`] is called.
fn run(card: &mut Card, hosts: &mut Hosts, stop: &AtomicBool) {
    let (start, mut idle, mut done) = (Instant::now(), Idle::default(), (0, 0));
    let now = || start.elapsed().as_nanos() as u64;
    while !stop.load(Ordering::Acquire) {
        hosts.bus.acknowledge_resets();
        hosts.ports.iter_mut().for_each(Port::acknowledge_resets);
        while let Some(answer) = hosts.done.pop_front().or_else(|| hosts.bus.answer()) {
            card.read_done(hosts, now(), answer);
        }
        if card.poll(hosts, now()) || !hosts.done.is_empty() {
            continue;
        }
        // Everything that the card does is done over the buses.
        let accesses = (hosts.bus.accesses(), hosts.accesses);
        if accesses != done {
            done = accesses;
            idle.worked();
            continue;
        }
        let watch = if card.is_busy() { Watch::Memory } else { Watch::Host };
        let until = card.deadline().map(|at| start + Duration::from_nanos(at));
        let registers = card.all_registers();
        let has_requests = || registers.iter().any(|registers| registers.lock().has_requests());
        hosts.bus.wait(&mut idle, watch, until, || stop.load(Ordering::Acquire) || has_requests());
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
