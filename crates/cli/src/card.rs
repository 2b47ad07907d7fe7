//! Which engine `dcs send`, `dcs recv` and `dcs copy` run on. On a card, where DCS_BACKEND says so,
//! connections are the card's own, on its own address; where a NIC is driven by this process, they are this
//! process's, on the NIC's. In a guest, where DCS_BACKEND says so, chains on files of its virtual drives run
//! beside the disk.

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

/// Which backend transfers run on, and which devices are the card's.
const BACKEND: &str = "DCS_BACKEND";

/// The engines that a transfer's names and the environment ask for: at most one is there.
pub struct Engines {
    /// The card's.
    pub card: Option<Arc<Engine>>,
    /// One that drives SSDs, a NIC or a GPU itself.
    pub drives: Option<Arc<Engine>>,
    /// One that has chains run by virtual drives.
    near: Option<Arc<Engine>>,
}

/// The backends that the environment may ask for, beside the kernel's.
enum Asked {
    Kernel,
    Card,
    Drive,
}

impl Engines {
    /// Those for a transfer between these, by way of that NIC.
    pub fn new(
        names: &[&OsStr],
        nic: Option<dcs::Nic>,
        gpu: Option<Gpu>,
        io: dcs::Io,
        report: &Report,
    ) -> Result<Engines, Failure> {
        let asked = asked()?;
        let near = match asked {
            Asked::Drive => Some(Arc::new(beside_the_disk(names, nic.as_ref(), gpu.as_ref(), io)?)),
            _ => None,
        };
        let card = if let Asked::Card = asked { Some(Arc::new(card()?)) } else { None };
        if let (Some(_), Some(name)) = (&card, names.iter().find(|name| nvme::is_named(name))) {
            return Err(Failure::usage(format!(
                "{}: the card drives the SSDs that DCS_CARD_DISKS names",
                shown(name)
            ))
            .advise(format!("unset {BACKEND} to have it driven by this process")));
        }
        if let (Some(_), Some(nic)) = (&card, &nic) {
            return Err(Failure::usage(format!(
                "--nic {}: the card drives the NICs that DCS_CARD_NIC names",
                nic.function
            ))
            .advise(format!("unset {BACKEND} to have it driven by this process")));
        }
        if let (Some(_), Some(gpu)) = (&card, &gpu) {
            return Err(Failure::usage(format!("{}: the card has no GPU", gpu.operator))
                .advise(format!("unset {BACKEND} to have it done by a GPU of this machine")));
        }
        Ok(Engines { drives: nvme::engine(names, (nic, gpu), io, report)?, card, near })
    }

    /// The one whose NIC makes connections.
    pub fn network(&self) -> Option<&Arc<Engine>> {
        self.card.as_ref().or(self.drives.as_ref().filter(|engine| engine.interface().is_some()))
    }

    /// Whichever is there.
    pub fn any(&self) -> Option<Arc<Engine>> {
        self.card.as_ref().or(self.drives.as_ref()).or(self.near.as_ref()).cloned()
    }
}

/// The backend that the environment asks for.
fn asked() -> Result<Asked, Failure> {
    match std::env::var(BACKEND).as_deref() {
        Ok("card") => Ok(Asked::Card),
        Ok("drive") => Ok(Asked::Drive),
        Ok("" | "kernel") | Err(_) => Ok(Asked::Kernel),
        Ok(other) => {
            let line = format!("{BACKEND} is {other:?}; it may be kernel, card or drive");
            Err(Failure::usage(line).advise("correct the environment variable"))
        }
    }
}

fn card() -> Result<Engine, Failure> {
    let options = Options::from_environment()
        .map_err(|error| Failure::usage(error.to_string()).advise("correct the environment variable"))?;
    let builder = Engine::builder().backend(Backend::Card).card(options);
    let started = builder.start().map_err(|error| Failure::new(Exit::Failed, format!("the card: {error}")));
    started.map_err(|failure| failure.advise("dcs vm shell boots a server that has one"))
}

/// The engine that has chains run by virtual drives: of files, by the kernel's driver.
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

/// From the card's address, or the NIC's, to this one.
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

/// One connection to a port of the card's, or of the NIC's: `9000`, or `10.0.3.15:9000` where it has several
/// addresses.
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
                .advise("give the port: dcs recv 9000 FILE, or dcs recv 10.0.2.15:9000 FILE where there are several NICs"));
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

/// Ends the stream, and waits until the peer has ended its own: connections that the kernel knows nothing of
/// end with this process.
pub fn finish(engine: &Engine, connection: &net::Connection) -> Result<(), Failure> {
    let failed = |error: String| Failure::new(Exit::Peer, format!("ending the connection: {error}"));
    connection.shutdown().map_err(|error| failed(error.to_string()))?;
    let session = engine.session().map_err(|error| failed(error.to_string()))?;
    let rest = session.transfer(Source::connection(connection), [], Sink::memory(1));
    // A peer that resets when it has everything is no failure.
    let _ = rest.map_err(|error| failed(error.to_string()))?.wait();
    Ok(())
}

/// Gives a file the places that the card writes to.
pub fn prepare(sink: &NamedSink, length: Option<u64>) -> Result<(), Failure> {
    let name = &sink.name;
    let Some(file) = sink.file() else { return Ok(()) };
    let length = length.ok_or_else(|| {
        Failure::usage(format!("{name}: a card writes to a file that has its room already"))
            .advise("say how much comes, by --length SIZE; a pipe has no length")
    })?;
    extents::prepare(file, length).map_err(|error| Failure::io(name, &error))
}
