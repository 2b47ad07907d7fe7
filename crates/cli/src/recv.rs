//! `dcs recv`: one connection into a file.

use crate::address::{Connection, Listener};
use crate::args;
use crate::chain::Chain;
use crate::expect::Expected;
use crate::failure::Failure;
use crate::interrupt;
use crate::keys::{Counters, Keys, Missing};
use crate::report::{Finished, Report};
use crate::target::{Options, Target};
use crate::transfer::{self, Job};
use crate::watch::Watch;
use dcs::Source;
use serde_json::json;

pub fn run(recv: &args::Recv, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let moving = &recv.moving;
    let counters = Counters::new(&moving.ciphers, Missing::Refuse);
    let chain = Chain::new(&moving.through, &Keys::new(&moving.ciphers), counters)?;
    let expected = Expected::new(&recv.target.expect, &chain.names)?;
    let target = Target::open(&recv.file, &Options { file: &recv.target, no_clobber: false, mode: 0o666 })?;
    let connection = accept(recv, report)?;
    let job = Job {
        name: format!("{} -> {}", recv.from, target.name),
        source: Source::socket(&connection),
        sink: target.sink(moving.cache.into()),
        watch: Watch::received(&connection),
        ops: chain.ops,
        length: recv.length,
        total: recv.length,
        timeout: moving.timeout,
        durable: recv.target.durable,
        io: moving.io.into(),
    };
    let done = transfer::run(job, report)?;
    expected.check(&done.completion, &target)?;
    let destination = recv.file.as_str();
    target.commit(done.completion.bytes_out)?;
    report.finished(&Finished {
        source: &recv.from,
        destination,
        file: destination,
        chain: &chain.names,
        counters: &chain.counters,
        done: &done,
    });
    Ok(())
}

fn accept(recv: &args::Recv, report: &Report) -> Result<Connection, Failure> {
    let listener = Listener::bind(&recv.from)?;
    let address = listener.address();
    report.remark(format_args!("dcs: listening on {address}"));
    report.object(&json!({ "event": "listening", "command": "recv", "address": address }));
    listener.accept(recv.accept_timeout)
}
