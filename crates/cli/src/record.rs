//! `dcs record`: records a video that comes in datagrams into a file.

use crate::args::SinkOptions;
use crate::card;
use crate::chain::Chain;
use crate::failure::Failure;
use crate::interrupt;
use crate::keys::{Counters, Keys};
use crate::names::{add_name, shown};
use crate::report::{Report, add_completion};
use crate::sink::{NamedSink, Options};
use crate::stream::args::Record;
use crate::units;
use dcs::media::{Receiver, Receiving};
use dcs::{Completion, Engine, Session, Status, Transfer, TransferError};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde_json::json;
use std::time::{Duration, Instant};

/// Interval of checks whether it must stop.
const TICK: Duration = Duration::from_millis(50);

pub fn run(record: &Record, report: &Report) -> Result<(), Failure> {
    card::records_by_kernel(record.nic.as_deref())?;
    interrupt::install();
    let counters = Counters::new(&record.ciphers);
    let chain = Chain::new(&record.through, &Keys::new(&record.ciphers), counters)?;
    let refused = |error| Failure::refused("record", error);
    let engine = Engine::builder().io(record.io.into()).start().map_err(refused)?;
    let session = engine.session().map_err(refused)?;
    session.event_fd().map_err(refused)?;
    let socket = record.from.listen(record.interface.as_ref())?;
    let receiver = Receiver::new(&socket, record.from.framing).map_err(refused)?;
    // Received bytes stay, however the recording ends.
    let file = SinkOptions { in_place: true, durable: record.durable, expect: Vec::new() };
    let to = NamedSink::open(
        &record.file,
        &Options { file: &file, no_clobber: false, mode: 0o666, source: None },
    )?;
    let mut request = session.request(receiver.source(record.window), chain.ops, to.sink(dcs::Mode::Auto));
    if let Some(length) = record.length {
        request = request.length(length);
    }
    if record.durable {
        request = request.durable();
    }
    let guard = interrupt::transferring();
    let start = Instant::now();
    let transfer = request.submit().map_err(refused)?;
    report.remark(format_args!("dcs: recording {}", record.from));
    report.object(&json!({ "event": "recording", "command": "record", "from": record.from.to_string() }));
    let why = await_end(record, &session, &transfer, &receiver, start);
    receiver.stop();
    let ended = ended(transfer.wait(), why.is_some());
    let name = format!("{} -> {}", record.from, to.name);
    let completion = ended.map_err(|error| Failure::transfer(&name, error, false))?;
    to.commit(completion.bytes_out)?;
    report_end(record, &chain.names, &completion, &receiver.state(), why, start.elapsed(), report);
    // A first signal that comes now does not suppress the report.
    drop(guard);
    Ok(())
}

/// Waits until the transfer is done, or returns the reason to stop it.
fn await_end(
    record: &Record,
    session: &Session,
    transfer: &Transfer,
    receiver: &Receiver,
    start: Instant,
) -> Option<&'static str> {
    let (mut seen, mut last) = (0, start);
    while !transfer.is_done() {
        let came = receiver.state().datagrams;
        if came != seen {
            (seen, last) = (came, Instant::now());
        }
        if interrupt::pressed() {
            return Some("interrupted");
        }
        if record.time.is_some_and(|time| start.elapsed() >= time) {
            return Some("its time is over");
        }
        if record.idle.is_some_and(|idle| last.elapsed() >= idle) {
            return Some("no more datagrams came");
        }
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        fds.extend(session.event_fd().ok().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(interrupt::event().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // The session has this one transfer: its event is never reset, and nothing is waited for after it.
        let _ = nix::poll::poll(&mut fds, PollTimeout::try_from(TICK).unwrap_or(PollTimeout::MAX));
    }
    None
}

/// Counts a recording that was stopped before its requested length as complete.
fn ended(result: Result<Completion, TransferError>, stopped: bool) -> Result<Completion, TransferError> {
    match result {
        Err(error) if stopped && error.status == Status::EndOfSource => Ok(*error.completion),
        result => result,
    }
}

fn report_end(
    record: &Record,
    chain: &[&'static str],
    completion: &Completion,
    came: &Receiving,
    why: Option<&'static str>,
    elapsed: Duration,
    report: &Report,
) {
    for digest in &completion.digests {
        report.text(format_args!("{}  {digest}  {}", digest.operator.name(), shown(&record.file)));
    }
    report.remark(format_args!(
        "{} in {:.1} s ({}): {} datagrams, {} lost, {} reordered, {} surplus, {} foreign, {} restarts",
        units::human(completion.bytes_out),
        elapsed.as_secs_f64(),
        why.unwrap_or("it has the requested length"),
        came.datagrams,
        came.lost,
        came.reordered,
        came.surplus,
        came.foreign,
        came.restarts,
    ));
    let mut object = json!({
        "event": "done", "ok": true, "command": "record", "from": record.from.to_string(), "chain": chain,
        "stopped": why, "seconds": elapsed.as_secs_f64(), "datagrams": came.datagrams, "lost": came.lost,
        "reordered": came.reordered, "surplus": came.surplus, "foreign": came.foreign, "restarts": came.restarts,
    });
    add_name(&mut object, "destination", &record.file);
    add_completion(&mut object, completion);
    report.object(&object);
}
