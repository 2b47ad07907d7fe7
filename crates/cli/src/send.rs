//! `dcs send`: sends a file to a socket.

use crate::args;
use crate::card::{self, Engines};
use crate::chain::Chain;
use crate::deadline;
use crate::failure::Failure;
use crate::interrupt;
use crate::keys::{Counters, Keys};
use crate::names::shown;
use crate::nic;
use crate::outgoing::Outgoing;
use crate::progress::Watch;
use crate::report::Report;
use crate::sink::{NamedSink, Options};
use crate::source::NamedSource;
use crate::summary::Summary;
use crate::transfer::{self, Done, Job};
use dcs::net;
use dcs::{Engine, Sink};
use std::sync::Arc;
use std::time::Duration;

/// Destination: a connection, or standard output.
enum To {
    Connection(Outgoing),
    /// A connection of the card, or of a NIC that this process drives.
    Card(Arc<Engine>, net::Connection),
    Stdout(Box<NamedSink>),
}

pub fn run(send: &args::Send, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let moving = &send.moving;
    let counters = Counters::new(&moving.ciphers);
    let chain = Chain::new(&moving.through, &Keys::new(&moving.ciphers), counters)?;
    let engines = Engines::new(
        &[&send.file],
        nic::requested(&send.nic)?,
        chain.gpu(moving.gpu, moving.gpu_storage),
        moving.io.into(),
        report,
    )?;
    let mut from = NamedSource::open(&send.file, send.offset, send.length, engines.drives.as_ref())?;
    deadline::free();
    let to = To::open(send, engines.network(), &from)?;
    let zero_copy = send.zero_copy.into();
    let job = Job {
        name: format!("{} -> {}", shown(&send.file), shown(&send.to)),
        source: from.source(moving.cache.into(), zero_copy),
        total: from.length().or(send.length).filter(|_| chain.keeps_length()),
        length: send.length.filter(|_| from.length().is_none()),
        sink: to.sink().zero_copy(zero_copy),
        watch: to.watch(),
        ops: chain.ops,
        timeout: moving.timeout,
        durable: false,
        io: moving.io.into(),
        engine: engines.any(),
    };
    let done = transfer::run(job, report)?;
    from.advance(done.completion.bytes_in);
    to.finish(&done, moving.timeout)?;
    Summary {
        source: &send.file,
        destination: &send.to,
        file: &shown(&send.file).to_string(),
        chain: &chain.names,
        counters: &chain.counters,
        done: &done,
    }
    .report(report);
    Ok(())
}

impl To {
    fn open(send: &args::Send, engine: Option<&Arc<Engine>>, from: &NamedSource) -> Result<To, Failure> {
        if let Some(engine) = engine {
            return Ok(To::Card(Arc::clone(engine), card::connect(engine, &send.to, send.connect_timeout)?));
        }
        if send.to != "-" {
            return Outgoing::connect(&send.to, send.connect_timeout).map(To::Connection);
        }
        let file = &args::SinkOptions { in_place: true, durable: false, expect: Vec::new() };
        NamedSink::open("-".as_ref(), &Options { file, no_clobber: false, mode: 0, source: from.identity })
            .map(|sink| To::Stdout(Box::new(sink)))
    }

    fn sink(&self) -> Sink {
        match self {
            To::Connection(connection) => Sink::socket(connection),
            To::Card(_, connection) => Sink::connection(connection),
            To::Stdout(sink) => sink.sink(dcs::Mode::Auto),
        }
    }

    fn watch(&self) -> Watch {
        match self {
            To::Connection(connection) => Watch::sent(connection.connection()),
            To::Card(..) | To::Stdout(_) => Watch::Nothing,
        }
    }

    /// Tells the peer that the stream is complete.
    fn finish(self, done: &Done, timeout: Option<Duration>) -> Result<(), Failure> {
        match self {
            To::Connection(connection) => {
                let left = timeout.map(|timeout| timeout.saturating_sub(done.elapsed));
                connection.finish(done.completion.bytes_out, left)
            }
            To::Card(engine, connection) => card::finish(&engine, &connection),
            To::Stdout(sink) => sink.commit(done.completion.bytes_out),
        }
    }
}
