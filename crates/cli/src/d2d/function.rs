//! A D2D function served to QEMU: passes the guest's register accesses and the switch's writes to the state machine, and performs its
//! actions.
//!
//! ```text
//!   a guest's loads and stores -- socket -- a thread --+
//!   writes of other functions -- switch -- a thread ---+--> the state machine, under its lock
//!                                                      |        | actions
//!   medium, wire <-------------------------------------+--- the loop, on the command's thread
//! ```
//!
//! The loop never waits for a peer or the medium while it holds the lock, so writers to the function wait only for the state machine. A
//! listener's loop never waits for a peer.

use super::args::Served;
use crate::failure::{Exit, Failure};
use crate::interrupt::{self, Leftover};
use crate::names::{add_name, shown};
use crate::report::Report;
use dcs_d2d::{Action, Origin};
use dcs_vfio_user::pci::{Function, Identity, Interrupts, NoRegisters, Region, Registers, Setup};
use dcs_vfio_user::switch::{Batch, Switch, Take};
use dcs_vfio_user::wake::Wake;
use dcs_vfio_user::{Port, Running, Server};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Actions that are taken at a time.
const BATCH: usize = 256;
/// Shortest sleep of the loop: slots of many streams that begin close together are served together.
const NAP: Duration = Duration::from_micros(200);
/// Largest write to another function, in bytes.
pub const PAYLOAD: u32 = 4096;

/// The state machine of an SSD or a NIC.
pub trait Machine: Send + 'static {
    fn read(&self, offset: u64, bytes: &mut [u8]);
    fn write(&mut self, offset: u64, bytes: &[u8], now: u64);
    fn data(&mut self, offset: u64, bytes: &[u8], now: u64);
    fn reset(&mut self);
    fn write_failed(&mut self, origin: Origin);
    fn poll(&mut self, now: u64) -> Option<Action>;
    fn next_deadline(&self) -> Option<u64>;
}

macro_rules! machine {
    ($($function:ty),*) => {$(
        impl Machine for $function {
            fn read(&self, offset: u64, bytes: &mut [u8]) {
                self.read(offset, bytes);
            }
            fn write(&mut self, offset: u64, bytes: &[u8], now: u64) {
                self.write(offset, bytes, now);
            }
            fn data(&mut self, offset: u64, bytes: &[u8], now: u64) {
                self.data(offset, bytes, now);
            }
            fn reset(&mut self) {
                self.reset();
            }
            fn write_failed(&mut self, origin: Origin) {
                self.write_failed(origin);
            }
            fn poll(&mut self, now: u64) -> Option<Action> {
                self.poll(now)
            }
            fn next_deadline(&self) -> Option<u64> {
                self.next_deadline()
            }
        }
    )*};
}
machine!(dcs_d2d::Ssd, dcs_d2d::Nic);

/// The state machine, and the loop's wake-up.
pub struct Shared<M> {
    machine: Mutex<M>,
    touched: AtomicBool,
    wake: Wake,
    began: Instant,
}

impl<M: Machine> Shared<M> {
    pub fn lock(&self) -> MutexGuard<'_, M> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the function's time.
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Changes the state machine, and wakes the loop.
    pub fn touch(&self, with: impl FnOnce(&mut M, u64)) {
        with(&mut self.lock(), self.now());
        self.touched.store(true, Ordering::SeqCst);
        self.wake.notify();
    }
}

/// The registers and the aperture for the guest's processor.
struct SharedRegisters<M>(Arc<Shared<M>>);

impl<M: Machine> Registers for SharedRegisters<M> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) {
        self.0.lock().read(offset, bytes);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0.touch(|machine, now| machine.write(offset, bytes, now));
    }

    fn write_aperture(&mut self, offset: u64, bytes: &[u8]) {
        self.0.touch(|machine, now| machine.data(offset, bytes, now));
    }

    fn reset(&mut self) {
        self.0.touch(|machine, _| machine.reset());
    }
}

/// A function in service.
pub struct Serving<M> {
    pub shared: Arc<Shared<M>>,
    port: Port,
    switch: Arc<Switch>,
    _running: Running,
    _leftovers: Vec<Leftover>,
}

/// The identity and sizes of a function on the bus.
pub struct Kind {
    pub name: &'static str,
    pub identity: Identity,
    /// Size of BAR0 in bytes.
    pub registers: u64,
    /// Size of the aperture in bytes.
    pub aperture: u64,
    /// Bytes that it keeps for a slow SSD, if it listens at the switch; `None` if it joins.
    pub keeps: Option<usize>,
}

/// Starts to serve a function, and reports it.
pub fn serve<M: Machine>(
    machine: M,
    kind: &Kind,
    served: &Served,
    report: &Report,
) -> Result<Serving<M>, Failure> {
    interrupt::install();
    let failed = |error: std::io::Error| Failure::io(shown(&served.socket), &error);
    let wake = Wake::new().map_err(failed)?;
    let (touched, began) = (AtomicBool::new(false), Instant::now());
    let shared = Arc::new(Shared { machine: Mutex::new(machine), touched, wake: wake.clone(), began });
    let setup = Setup {
        identity: kind.identity,
        registers: kind.registers.next_power_of_two().max(4096),
        memory: 0,
        aperture: kind.aperture.next_power_of_two().max(4096),
        interrupts: Interrupts::MsiX(1),
    };
    let function = Function::new(setup, Box::new(NoRegisters)).map_err(failed)?;
    let bind = || Server::bind_port(&served.socket, function, wake);
    let ((mut server, port), leftover) = interrupt::leftover_of(&served.socket, bind).map_err(failed)?;
    server.function().set_registers(Box::new(SharedRegisters(shared.clone())));
    let mut leftovers = vec![leftover];
    let take = take(shared.clone(), port.clone());
    let switch = match kind.keeps {
        Some(kept) => {
            let listen = || Switch::listen(&served.switch, kept, take);
            let failed = |error| Failure::io(shown(&served.switch), &error);
            let (switch, leftover) = interrupt::leftover_of(&served.switch, listen).map_err(failed)?;
            leftovers.push(leftover);
            switch
        }
        None => Switch::join(&served.switch, take).map_err(failed)?,
    };
    let running = server.start().map_err(failed)?;
    let (name, socket) = (kind.name, shown(&served.socket));
    let mut object =
        json!({ "event": "listening", "command": "d2d", "function": name, "streams": served.streams });
    add_name(&mut object, "socket", &served.socket);
    report.object(&object);
    report.remark(format_args!(
        "dcs: a D2D {name} with {} streams at {socket}; QEMU attaches it by\n\
         -device '{{\"driver\":\"vfio-user-pci\",\"socket\":{{\"type\":\"unix\",\"path\":\"{socket}\"}},\"rombar\":0}}'",
        served.streams
    ));
    Ok(Serving { shared, port, switch, _running: running, _leftovers: leftovers })
}

/// Returns the handler of other functions' writes. Writes outside the BARs are dropped.
fn take<M: Machine>(shared: Arc<Shared<M>>, port: Port) -> Take {
    Arc::new(move |address, bytes| match port.bar(address, bytes.len() as u64) {
        Some((Region::Bar0, offset)) => shared.touch(|machine, now| machine.write(offset, bytes, now)),
        Some((Region::Bar2, offset)) => shared.touch(|machine, now| machine.data(offset, bytes, now)),
        _ => {}
    })
}

impl<M: Machine> Serving<M> {
    /// Runs the function until a signal ends the process. `carry` performs reads and stores of the medium. `wire` sends frames that are
    /// ready, and returns true if there were any.
    pub fn run(&self, mut carry: impl FnMut(Action), mut wire: impl FnMut() -> bool) -> ! {
        let (mut batch, mut origins, mut actions) = (Batch::default(), Vec::new(), Vec::new());
        loop {
            let is_master = self.port.is_master();
            if !is_master {
                self.switch.drop_late();
            }
            {
                let mut machine = self.shared.lock();
                let now = self.shared.now();
                actions.extend(std::iter::from_fn(|| machine.poll(now)).take(BATCH));
            }
            let mut worked = !actions.is_empty();
            for action in actions.drain(..) {
                match action {
                    Action::Write { origin, address, data } => {
                        batch.add(address, &data);
                        origins.push(origin);
                    }
                    Action::Interrupt { .. } => self.port.interrupt(0),
                    // There is no legacy function.
                    Action::Legacy { .. } => {}
                    action @ (Action::Read { .. } | Action::Store { .. }) => carry(action),
                }
            }
            self.write(&mut batch, &mut origins);
            worked |= wire();
            if !worked {
                self.sleep(is_master);
            }
        }
    }

    /// Writes to other functions, if this one is bus master.
    fn write(&self, batch: &mut Batch, origins: &mut Vec<Origin>) {
        if batch.is_empty() {
            return;
        }
        let hold = self.port.hold_mastering();
        if hold.is_some() && self.switch.write(batch, hold).is_ok() {
            return origins.clear();
        }
        *batch = Batch::default();
        let mut machine = self.shared.lock();
        origins.drain(..).for_each(|origin| machine.write_failed(origin));
    }

    /// Sleeps until there is something to do, or bus mastering has changed: its user then waits for late
    /// writes.
    fn sleep(&self, is_master: bool) {
        let touched =
            || self.shared.touched.swap(false, Ordering::SeqCst) || self.port.is_master() != is_master;
        let (deadline, now) = (self.shared.lock().next_deadline(), self.shared.now());
        let limit = deadline.map(|at| Duration::from_nanos(at.saturating_sub(now)).max(NAP));
        self.shared.wake.sleep(limit, touched);
    }
}

/// Reports a failure of the medium or the wire once: each is in a stream's registers.
pub fn report_once(reported: &OnceLock<()>, report: &Report, what: &str, error: &std::io::Error) {
    if reported.set(()).is_ok() {
        report.failure(&Failure::new(Exit::Failed, format!("{what}: {error}; other streams go on")));
    }
}
