//! Chooses the engine for `dcs send`, `dcs recv` and `dcs copy`, and what sends the datagrams of `dcs stream`. With
//! DCS_BACKEND=card, connections are the card's own,
//! on its own address; with a NIC that this process drives, they are this process's, on the NIC's address. With
//! DCS_BACKEND=drive, in a guest, virtual drives run chains on their files, next to the disk.

use crate::chain::Gpu;
use crate::failure::{Exit, Failure};
use crate::names::shown;
use crate::nvme;
use crate::report::Report;
use crate::sink::NamedSink;
use dcs::card::{Options, extents};
use dcs::net;
use dcs::{Backend, Engine, Sink, Source, Status};
use std::ffi::OsStr;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

/// Environment variables: the backend that transfers run on, and the card's devices.
const BACKEND: &str = "DCS_BACKEND";

/// Engines that a transfer's names and the environment ask for, at most one.
pub struct Engines {
    /// Engine on a card.
    pub card: Option<Arc<Engine>>,
    /// Engine that drives SSDs, a NIC or a GPU itself.
    pub drives: Option<Arc<Engine>>,
    /// Engine that has virtual drives run chains.
    near: Option<Arc<Engine>>,
}

/// Backends other than the kernel's that the environment may ask for.
enum RequestedBackend {
    Kernel,
    Card,
    Drive,
}

impl Engines {
    /// Starts the engine for a transfer between these endpoints, over that NIC.
    pub fn new(
        names: &[&OsStr],
        nic: Option<dcs::Nic>,
        gpu: Option<Gpu>,
        io: dcs::Io,
        report: &Report,
    ) -> Result<Engines, Failure> {
        let asked = requested()?;
        let near = match asked {
            RequestedBackend::Drive => {
                Some(Arc::new(beside_the_disk(names, nic.as_ref(), gpu.as_ref(), io)?))
            }
            _ => None,
        };
        let card = if let RequestedBackend::Card = asked { Some(Arc::new(card()?)) } else { None };
        if let (Some(_), Some(name)) = (&card, names.iter().find(|name| nvme::is_named(name))) {
            return Err(Failure::usage(format!(
                "{}: the card drives the SSDs that DCS_CARD_DISKS names",
                shown(name)
            ))
            .advise(format!("unset {BACKEND} to have it driven by this process")));
        }
        if let (Some(_), Some(nic)) = (&card, &nic) {
            return Err(of_card(nic));
        }
        if let (Some(_), Some(gpu)) = (&card, &gpu) {
            return Err(Failure::usage(format!("{}: the card has no GPU", gpu.operator))
                .advise(format!("unset {BACKEND} to have it done by a GPU of this machine")));
        }
        Ok(Engines { drives: nvme::engine(names, (nic, gpu), io, report)?, card, near })
    }

    /// Returns the engine whose NIC makes connections.
    pub fn network(&self) -> Option<&Arc<Engine>> {
        self.card.as_ref().or(self.drives.as_ref().filter(|engine| engine.interface().is_some()))
    }

    /// Returns the engine, if there is one.
    pub fn any(&self) -> Option<Arc<Engine>> {
        self.card.as_ref().or(self.drives.as_ref()).or(self.near.as_ref()).cloned()
    }
}

/// Returns the backend that the environment asks for.
fn requested() -> Result<RequestedBackend, Failure> {
    match std::env::var(BACKEND).as_deref() {
        Ok("card") => Ok(RequestedBackend::Card),
        Ok("drive") => Ok(RequestedBackend::Drive),
        Ok("" | "kernel") | Err(_) => Ok(RequestedBackend::Kernel),
        Ok(other) => {
            let line = format!("{BACKEND} is {other:?}; expected kernel, card or drive");
            Err(Failure::usage(line).advise("correct the environment variable"))
        }
    }
}

/// The sender of a stream's datagrams.
pub enum Device {
    /// Sockets of the kernel.
    Kernel,
    /// A NIC that this process drives.
    Nic(dcs::Nic),
    /// A NIC of a card.
    Card,
}

impl Device {
    /// Returns what the options and the environment ask for.
    pub fn new(nic: Option<dcs::Nic>) -> Result<Device, Failure> {
        match (nic, requested()?) {
            (None, RequestedBackend::Kernel) => Ok(Device::Kernel),
            (Some(nic), RequestedBackend::Kernel) => Ok(Device::Nic(nic)),
            (None, RequestedBackend::Card) => Ok(Device::Card),
            (Some(nic), RequestedBackend::Card) => Err(of_card(&nic)),
            (_, RequestedBackend::Drive) => {
                let line = format!("{BACKEND}=drive: a virtual drive has no streams in datagrams");
                Err(Failure::usage(line).advise(format!("unset {BACKEND}, or name a NIC: --nic")))
            }
        }
    }
}

fn of_card(nic: &dcs::Nic) -> Failure {
    let line = format!("--nic {}: the card drives the NICs that DCS_CARD_NIC names", nic.function);
    Failure::usage(line).advise(format!("unset {BACKEND} to have it driven by this process"))
}

/// Refuses what streams cannot be recorded by: they are received by sockets of the kernel.
pub fn records_by_kernel(nic: Option<&str>) -> Result<(), Failure> {
    let by = match (nic, requested()?) {
        (None, RequestedBackend::Kernel) => return Ok(()),
        (Some(nic), _) => format!("--nic {nic}: a NIC that this process drives"),
        (None, RequestedBackend::Card) => format!("{BACKEND}=card: a card"),
        (None, RequestedBackend::Drive) => format!("{BACKEND}=drive: a virtual drive"),
    };
    let advice = match nic {
        Some(_) => "leave out --nic".to_string(),
        None => format!("unset {BACKEND}"),
    };
    Err(Failure::usage(format!("{by} joins no groups; only sockets of the kernel receive streams"))
        .advise(advice))
}

pub fn card() -> Result<Engine, Failure> {
    let options = Options::from_environment()
        .map_err(|error| Failure::usage(error.to_string()).advise("correct the environment variable"))?;
    let builder = Engine::builder().backend(Backend::Card).card(options);
    let started = builder.start().map_err(|error| Failure::new(Exit::Failed, format!("the card: {error}")));
    started.map_err(|failure| failure.advise("dcs vm shell boots a server that has one"))
}

/// Starts the engine that has virtual drives run chains, on files by the kernel's driver.
fn beside_the_disk(
    names: &[&OsStr],
    nic: Option<&dcs::Nic>,
    gpu: Option<&Gpu>,
    io: dcs::Io,
) -> Result<Engine, Failure> {
    let named = names.iter().find(|name| nvme::is_named(name)).map(|name| shown(name).to_string());
    let nic = nic.map(|nic| format!("--nic {}", nic.function));
    if let Some(other) = named.or(nic).or(gpu.map(|gpu| gpu.operator.to_string())) {
        let line = format!(
            "{other}: with {BACKEND}=drive virtual drives run the operators, and this process drives no device"
        );
        return Err(Failure::usage(line).advise(format!("unset {BACKEND} to have it driven by this process")));
    }
    let started = Engine::builder().backend(Backend::Drive).io(io).start();
    started.map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// Connects from the card's address, or the NIC's.
pub fn connect(engine: &Engine, to: &OsStr, limit: Duration) -> Result<net::Connection, Failure> {
    let to = &*to.to_string_lossy();
    let address: SocketAddrV4 = to.parse().map_err(|_| {
        Failure::usage(format!("{to}: the NIC connects to an IPv4 address and a port"))
            .advise("for example 10.0.2.2:9000")
    })?;
    engine
        .connect_timeout(address, limit)
        .map_err(|error| failed(to, &error).advise("start the receiver first: dcs recv PORT FILE"))
}

/// Accepts one connection to a port of the card or the NIC: `9000`, or `10.0.3.15:9000` if it has several addresses.
pub fn accept(
    engine: &Engine,
    at: &OsStr,
    limit: Option<Duration>,
    listening: impl FnOnce(&str),
) -> Result<net::Connection, Failure> {
    let at = &*at.to_string_lossy();
    let listener = match (at.parse::<u16>(), at.parse::<SocketAddrV4>()) {
        (Ok(port), _) if port > 0 => engine.listen(port),
        (_, Ok(local)) if local.port() > 0 => engine.listen_at(local),
        _ => {
            return Err(Failure::usage(format!("{at}: the NIC listens at a port of its own address"))
                .advise("give the port: dcs recv 9000 FILE, or dcs recv 10.0.2.15:9000 FILE if there are several NICs"));
        }
    };
    let listener = listener.map_err(|error| {
        let addresses: Vec<String> = engine.addresses().map(|address| address.to_string()).collect();
        failed(at, &error).advise(format!("addresses here: {}", addresses.join(", ")))
    })?;
    let port = at.rsplit(':').next().unwrap_or(at);
    listening(&format!("{}:{port}", listener.local()));
    let accepted = match limit {
        Some(limit) => listener.accept_timeout(limit),
        None => listener.accept(),
    };
    accepted.map_err(|error| failed(at, &error))
}

fn failed(what: &str, error: &net::NetError) -> Failure {
    let exit = if error.status == Status::Timeout { Exit::Timeout } else { Exit::Peer };
    Failure::new(exit, format!("{what}: {error}"))
}

/// Ends the stream, and waits until the peer has ended its own. The kernel does not know these connections, so they end
/// with this process.
pub fn finish(engine: &Engine, connection: &net::Connection) -> Result<(), Failure> {
    let failed = |error: String| Failure::new(Exit::Peer, format!("ending the connection: {error}"));
    connection.shutdown().map_err(|error| failed(error.to_string()))?;
    let session = engine.session().map_err(|error| failed(error.to_string()))?;
    let rest = session.transfer(Source::connection(connection), [], Sink::memory(1));
    // A peer that resets after it has everything has not failed.
    let _ = rest.map_err(|error| failed(error.to_string()))?.wait();
    Ok(())
}

/// Allocates the file that the card writes to.
pub fn prepare(sink: &NamedSink, length: Option<u64>) -> Result<(), Failure> {
    let name = &sink.name;
    let Some(file) = sink.file() else { return Ok(()) };
    let length = length.ok_or_else(|| {
        Failure::usage(format!("{name}: a card writes only to allocated space"))
            .advise("give --length SIZE; a pipe has no length")
    })?;
    extents::prepare(file, length).map_err(|error| Failure::io(name, &error))
}
