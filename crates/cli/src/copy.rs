//! `dcs copy`: a file to a file.

use crate::args;
use crate::card::{self, Engines};
use crate::chain::Chain;
use crate::expect::Expected;
use crate::failure::Failure;
use crate::interrupt;
use crate::keys::{Counters, Keys};
use crate::names::shown;
use crate::nvme;
use crate::progress::Watch;
use crate::report::Report;
use crate::sink::{NamedSink, Options};
use crate::source::NamedSource;
use crate::sparse;
use crate::summary::Summary;
use crate::transfer::{self, Done, Job};
use dcs::{Completion, Engine, Sink, Source};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn run(copy: &args::Copy, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let moving = &copy.moving;
    let counters = Counters::new(&moving.ciphers);
    let chain = Chain::new(&moving.through, &Keys::new(&moving.ciphers), counters)?;
    let expected = Expected::new(&copy.sink.expect, &chain.names)?;
    let engines = Engines::new(
        &[&copy.from, &copy.to],
        None,
        chain.gpu(moving.gpu, moving.gpu_storage),
        moving.io.into(),
        report,
    )?;
    let mut from = NamedSource::open(&copy.from, 0, None, engines.drives.as_ref())?;
    let mode = from.mode.unwrap_or(0o666);
    let destination = into_folder(copy)?;
    let options = Options { file: &copy.sink, no_clobber: copy.no_clobber, mode, source: from.identity };
    let to = match nvme::destination(engines.drives.as_ref(), &destination)? {
        Some(range) => NamedSink::ssd(&destination, range),
        None => NamedSink::open(&destination, &options)?,
    };
    if engines.card.is_some() {
        card::prepare(&to, from.length())?;
    }
    let name = format!("{} -> {}", shown(&copy.from), to.name);
    let holes = Holes::of(&from, &to, &engines).map_err(|error| Failure::io(shown(&copy.from), &error))?;
    let job = |source, sink, engine| Job {
        name: name.clone(),
        source,
        sink,
        watch: to.growing().and_then(Result::ok).map_or(Watch::Nothing, Watch::Growing),
        total: from.length().filter(|_| chain.keeps_length()),
        ops: chain.ops.clone(),
        length: None,
        timeout: moving.timeout,
        durable: copy.sink.durable,
        io: moving.io.into(),
        engine,
    };
    let done = match &holes {
        // The zeros need not be read.
        Some(holes) if chain.ops.is_empty() => holes.copy_data(&from, &to, moving, job, report)?,
        _ => {
            let source = from.source(moving.cache.into(), dcs::Mode::Auto);
            transfer::run(job(source, to.sink(moving.cache.into()), engines.any()), report)?
        }
    };
    if let Some(holes) = &holes {
        let digs = !chain.ops.is_empty() && chain.keeps_data();
        holes.finish(&to, digs, copy.sink.durable).map_err(|error| Failure::io(&to.name, &error))?;
    }
    from.advance(done.completion.bytes_in);
    expected.check(&done.completion, &to)?;
    to.commit(done.completion.bytes_out)?;
    Summary {
        source: &copy.from,
        destination: &destination,
        file: &from.name,
        chain: &chain.names,
        counters: &chain.counters,
        done: &done,
    }
    .report(report);
    Ok(())
}

/// Holes of a file that is copied to a file.
struct Holes {
    /// Ranges between them, as (offset, length).
    data: Vec<(u64, u64)>,
    start: u64,
    end: u64,
}

impl Holes {
    /// Most runs of data in one command, by the size of its descriptor.
    const RUNS: usize = 64;

    /// Returns `None` if there are no holes, or the copy can't have any.
    fn of(from: &NamedSource, to: &NamedSink, engines: &Engines) -> io::Result<Option<Holes>> {
        let (Some(length), Some(_)) = (from.length(), to.growing()) else { return Ok(None) };
        if engines.card.is_some() {
            return Ok(None);
        }
        let (start, end) = (from.start(), from.start() + length);
        let data = from.data()?;
        Ok(data.filter(|data| !sparse::holes(data, start, end).is_empty()).map(|data| Holes {
            data,
            start,
            end,
        }))
    }

    /// Copies the data between the holes.
    fn copy_data(
        &self,
        from: &NamedSource,
        to: &NamedSink,
        moving: &args::Moving,
        job: impl Fn(Source, Sink, Option<Arc<Engine>>) -> Job,
        report: &Report,
    ) -> Result<Done, Failure> {
        let begun = Instant::now();
        let engine = Engine::builder().io(moving.io.into()).start();
        let engine = Arc::new(engine.map_err(|error| Failure::refused(&to.name, error))?);
        let mut completion = Completion::default();
        for data in self.data.chunks(Holes::RUNS) {
            let there: Vec<_> = data.iter().map(|(at, length)| (at - self.start, *length)).collect();
            let (source, sink) = (from.runs(data, moving.cache.into()), to.runs(&there, moving.cache.into()));
            let (Some(source), Some(sink)) = (source, sink) else { break };
            let mut job = job(source, sink, Some(Arc::clone(&engine)));
            job.timeout = moving
                .timeout
                .map(|timeout| timeout.saturating_sub(begun.elapsed()).max(Duration::from_millis(1)));
            completion = transfer::run(job, report)?.completion;
        }
        let bytes = self.end - self.start;
        to.set_length(bytes).map_err(|error| Failure::io(&to.name, &error))?;
        (completion.bytes_in, completion.bytes_out) = (bytes, bytes);
        Ok(Done { completion, elapsed: begun.elapsed() })
    }

    /// Makes the holes in the copy that has zeros there, if it `digs`, and makes it durable.
    fn finish(&self, to: &NamedSink, digs: bool, durable: bool) -> io::Result<()> {
        let Some(file) = to.file() else { return Ok(()) };
        if digs {
            let holes = sparse::holes(&self.data, self.start, self.end);
            holes.iter().try_for_each(|(at, length)| sparse::dig(file, at - self.start, *length))?;
        }
        if durable { file.sync_all() } else { Ok(()) }
    }
}

/// Returns the destination. Like cp, a folder stands for the file of the same name in it.
fn into_folder(copy: &args::Copy) -> Result<OsString, Failure> {
    let to = Path::new(&copy.to);
    if copy.to == "-" || nvme::is_named(&copy.to) || !to.is_dir() {
        return Ok(copy.to.clone());
    }
    match Path::new(&copy.from).file_name().filter(|_| copy.from != "-" && !nvme::is_named(&copy.from)) {
        Some(name) => Ok(to.join(name).into_os_string()),
        None => Err(Failure::usage(format!("{} is a folder: name a file in it", shown(to)))),
    }
}
