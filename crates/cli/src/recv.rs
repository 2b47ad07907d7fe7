//! `dcs recv`: receives one connection into a file.

use crate::address::{Connection, Listener};
use crate::args;
use crate::card::{self, Engines};
use crate::chain::Chain;
use crate::deadline;
use crate::expect::Expected;
use crate::failure::Failure;
use crate::interrupt;
use crate::keys::{Counters, Keys};
use crate::names::{add_name, shown};
use crate::nic;
use crate::nvme;
use crate::progress::Watch;
use crate::report::Report;
use crate::sink::{NamedSink, Options};
use crate::summary::Summary;
use crate::transfer::{self, Job};
use dcs::net;
use dcs::{Engine, Source};
use serde_json::json;
use std::ffi::OsStr;

/// Source of the bytes.
enum From {
    Connection(Connection),
    /// A connection of the card, or of a NIC that this process drives.
    Card(net::Connection),
}

pub fn run(recv: &args::Recv, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let moving = &recv.moving;
    let counters = Counters::new(&moving.ciphers);
    let chain = Chain::new(&moving.through, &Keys::new(&moving.ciphers), counters)?;
    let expected = Expected::new(&recv.sink.expect, &chain.names)?;
    let engines = Engines::new(
        &[&recv.file],
        nic::requested(&recv.nic)?,
        chain.gpu(moving.gpu, moving.gpu_storage),
        moving.io.into(),
        report,
    )?;
    let to = match nvme::destination(engines.drives.as_ref(), &recv.file)? {
        Some(range) => NamedSink::ssd(&recv.file, range),
        None => {
            let options = Options { file: &recv.sink, no_clobber: false, mode: 0o666, source: None };
            NamedSink::open(&recv.file, &options)?
        }
    };
    if engines.card.is_some() {
        card::prepare(&to, recv.length)?;
    }
    deadline::free();
    let from = From::accept(recv, engines.network().map(|engine| &**engine), report)?;
    let job = Job {
        name: format!("{} -> {}", shown(&recv.from), to.name),
        source: from.source(),
        sink: to.sink(moving.cache.into()),
        watch: from.watch(),
        ops: chain.ops,
        length: recv.length,
        total: recv.length,
        timeout: moving.timeout,
        durable: recv.sink.durable,
        io: moving.io.into(),
        engine: engines.any(),
    };
    let done = transfer::run(job, report)?;
    from.finish();
    expected.check(&done.completion, &to)?;
    to.commit(done.completion.bytes_out)?;
    Summary {
        source: &recv.from,
        destination: &recv.file,
        file: &shown(&recv.file).to_string(),
        chain: &chain.names,
        counters: &chain.counters,
        done: &done,
    }
    .report(report);
    Ok(())
}

impl From {
    fn accept(recv: &args::Recv, engine: Option<&Engine>, report: &Report) -> Result<From, Failure> {
        let listening = |address: &OsStr| {
            report.remark(format_args!("dcs: listening on {}", shown(address)));
            let mut object = json!({ "event": "listening", "command": "recv" });
            add_name(&mut object, "address", address);
            report.object(&object);
        };
        if let Some(engine) = engine {
            return card::accept(engine, &recv.from, recv.accept_timeout, |at| listening(at.as_ref()))
                .map(From::Card);
        }
        let listener = Listener::bind(&recv.from)?;
        listening(&listener.address());
        listener.accept(recv.accept_timeout).map(From::Connection)
    }

    fn source(&self) -> Source {
        match self {
            From::Connection(connection) => Source::socket(connection),
            From::Card(connection) => Source::connection(connection),
        }
    }

    /// Tells the peer that all was received, and that nothing comes back. Dropping a connection resets it, except the
    /// kernel's, which knows better.
    fn finish(&self) {
        match self {
            From::Connection(_) => {}
            // A peer that is already gone needs no message.
            From::Card(connection) => _ = connection.shutdown(),
        }
    }

    fn watch(&self) -> Watch {
        match self {
            From::Connection(connection) => Watch::received(connection),
            From::Card(_) => Watch::Nothing,
        }
    }
}
