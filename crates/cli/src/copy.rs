//! `dcs copy`: a file to a file.

use crate::args;
use crate::card::{self, Engines};
use crate::chain::Chain;
use crate::expect::Expected;
use crate::failure::Failure;
use crate::input::Input;
use crate::interrupt;
use crate::keys::{Counters, Keys, Missing};
use crate::nvme;
use crate::report::{Finished, Report};
use crate::target::{Options, Target};
use crate::transfer::{self, Job};
use crate::watch::Watch;
use std::path::Path;

pub fn run(copy: &args::Copy, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let moving = &copy.moving;
    let counters = Counters::new(&moving.ciphers, Missing::Random);
    let chain = Chain::new(&moving.through, &Keys::new(&moving.ciphers), counters)?;
    let expected = Expected::new(&copy.target.expect, &chain.names)?;
    let engines = Engines::new(
        &[&copy.from, &copy.to],
        None,
        chain.gpu(moving.gpu, moving.gpu_storage),
        moving.io.into(),
        report,
    )?;
    let mut input = Input::open(&copy.from, 0, None, engines.drives.as_ref())?;
    let mode = input.mode.unwrap_or(0o666);
    let destination = into_folder(copy)?;
    let options = Options { file: &copy.target, no_clobber: copy.no_clobber, mode };
    let target = match nvme::destination(engines.drives.as_ref(), &destination)? {
        Some(range) => Target::ssd(&destination, range),
        None => Target::open(&destination, &options)?,
    };
    if engines.card.is_some() {
        card::prepare(&target, input.length())?;
    }
    let job = Job {
        name: format!("{} -> {}", copy.from, target.name),
        source: input.source(moving.cache.into(), dcs::Mode::Auto),
        sink: target.sink(moving.cache.into()),
        watch: target.growing().and_then(Result::ok).map_or(Watch::Nothing, Watch::Growing),
        total: input.length().filter(|_| chain.keeps_length()),
        ops: chain.ops,
        length: None,
        timeout: moving.timeout,
        durable: copy.target.durable,
        io: moving.io.into(),
        engine: engines.any(),
    };
    let done = transfer::run(job, report)?;
    input.advance(done.completion.bytes_in);
    expected.check(&done.completion, &target)?;
    target.commit(done.completion.bytes_out)?;
    report.finished(&Finished {
        source: &copy.from,
        destination: &destination,
        file: &input.name,
        chain: &chain.names,
        counters: &chain.counters,
        done: &done,
    });
    Ok(())
}

/// As cp: a folder means the file of the same name in it.
fn into_folder(copy: &args::Copy) -> Result<String, Failure> {
    let to = Path::new(&copy.to);
    if copy.to == "-" || nvme::is_named(&copy.to) || !to.is_dir() {
        return Ok(copy.to.clone());
    }
    match Path::new(&copy.from).file_name().filter(|_| copy.from != "-" && !nvme::is_named(&copy.from)) {
        Some(name) => Ok(to.join(name).to_string_lossy().into_owned()),
        None => Err(Failure::usage(format!("{} is a folder: name the file in it", copy.to))),
    }
}
