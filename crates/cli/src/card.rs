//! `dcs send`, `dcs recv` and `dcs copy` on a card, where DCS_BACKEND says so: connections are the card's own, on its own address.

use crate::failure::{Exit, Failure};
use dcs::card::{Options, extents, net};
use dcs::{Backend, Engine, Sink, Source};
use std::net::SocketAddrV4;

/// Which backend transfers run on, and which devices are the card's.
const BACKEND: &str = "DCS_BACKEND";

/// The card's engine, where the environment asks for it.
pub fn engine() -> Result<Option<Engine>, Failure> {
    match std::env::var(BACKEND).as_deref() {
        Ok("card") => {}
        Ok("" | "kernel") | Err(_) => return Ok(None),
        Ok(other) => {
            let line = format!("{BACKEND} is {other:?}; it may be kernel or card");
            return Err(Failure::usage(line).advise("correct the environment variable"));
        }
    }
    let options = Options::from_environment()
        .map_err(|error| Failure::usage(error.to_string()).advise("correct the environment variable"))?;
    let builder = Engine::builder().backend(Backend::Card).card(options);
    let started = builder.start().map_err(|error| Failure::new(Exit::Failed, format!("the card: {error}")));
    started.map(Some).map_err(|failure| failure.advise("dcs server shell boots a server that has one"))
}

/// From the card's address to this one.
pub fn connect(engine: &Engine, to: &str) -> Result<net::Connection, Failure> {
    let address: SocketAddrV4 = to.parse().map_err(|_| {
        Failure::usage(format!("{to}: the card connects to an IPv4 address and a port"))
            .advise("for example 10.0.2.2:9000")
    })?;
    engine.connect(address).map_err(|error| {
        Failure::new(Exit::Peer, format!("{to}: {error}"))
            .advise("start the receiver first: dcs recv PORT FILE")
    })
}

/// One connection to a port of the card's.
pub fn accept(engine: &Engine, at: &str, listening: impl FnOnce()) -> Result<net::Connection, Failure> {
    let failed = |error: net::NetError| Failure::new(Exit::Peer, format!("{at}: {error}"));
    let port: u16 = at.parse().map_err(|_| {
        Failure::usage(format!("{at}: the card listens at a port of its own address"))
            .advise("give the port alone: dcs recv 9000 FILE --length SIZE")
    })?;
    let listener = engine.listen(port).map_err(failed)?;
    listening();
    listener.accept().map_err(failed)
}

/// Ends the stream, and waits until the peer has ended its own: the card's connections end with this process.
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
pub fn prepare(name: &str, file: &std::fs::File, length: Option<u64>) -> Result<(), Failure> {
    let length = length.ok_or_else(|| {
        Failure::usage(format!("{name}: a card writes to a file that has its room already"))
            .advise("say how much comes, by --length SIZE; a pipe has no length")
    })?;
    extents::prepare(file, length).map_err(|error| Failure::io(name, &error))
}
