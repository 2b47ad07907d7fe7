//! Runs one transfer on its own engine: progress, Ctrl-C, the result.

use crate::deadline;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Watch;
use crate::report::Report;
use dcs::{Completion, Engine, Io, Op, Session, Sink, Source, Transfer};
use indicatif::{ProgressBar, ProgressStyle};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval at which the progress bar is updated.
const TICK: Duration = Duration::from_millis(100);

/// A transfer, as a subcommand describes it.
pub struct Job {
    /// Name in messages: `a -> b`.
    pub name: String,
    pub source: Source,
    pub ops: Vec<Op>,
    pub sink: Sink,
    pub length: Option<u64>,
    pub timeout: Option<Duration>,
    pub durable: bool,
    pub io: Io,
    /// Engine of the endpoints; `None` to start one.
    pub engine: Option<Arc<Engine>>,
    pub watch: Watch,
    /// Bytes that the watch will have seen at the end, if known.
    pub total: Option<u64>,
}

/// Result of a transfer.
pub struct Done {
    pub completion: Completion,
    pub elapsed: Duration,
}

/// Runs a transfer to its end.
pub fn run(job: Job, report: &Report) -> Result<Done, Failure> {
    let Job { name, source, ops, sink, watch, .. } = job;
    let refused = |error| Failure::refused(&name, error);
    let engine = match job.engine {
        Some(engine) => engine,
        None => Arc::new(Engine::builder().io(job.io).start().map_err(refused)?),
    };
    let session = engine.session().map_err(refused)?;
    // Made before the transfer, so that its end can't be missed.
    session.event_fd().map_err(refused)?;
    let mut request = session.request(source, ops, sink);
    if let Some(length) = job.length {
        request = request.length(length);
    }
    if let Some(timeout) = job.timeout {
        request = request.timeout(timeout);
    }
    if job.durable {
        request = request.durable();
    }
    deadline::transfer(job.timeout, &name);
    let guard = interrupt::transferring();
    let start = Instant::now();
    let transfer = request.submit().map_err(refused)?;
    let bar = report.shows_progress().then(|| bar(&name, job.total));
    await_end(&session, &transfer, || {
        // Read only if it is shown, because a file system may take long to answer.
        if let Some(bar) = &bar
            && let Some(bytes) = watch.bytes()
        {
            bar.set_position(bytes);
        }
    });
    let result = transfer.wait();
    let elapsed = start.elapsed();
    drop(guard);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    match result {
        Ok(completion) => {
            if let Some(trouble) = engine.gpu_trouble() {
                report.remark(format_args!("dcs: {trouble}; files were read by the host"));
            }
            deadline::delivered(&name);
            Ok(Done { completion, elapsed })
        }
        Err(error) => {
            let trouble = engine.gpu_trouble().filter(|_| error.on_gpu);
            let failure = Failure::transfer(&name, error, interrupt::pressed());
            let failure = trouble.into_iter().fold(failure, Failure::advise);
            deadline::failed(&failure);
            Err(failure)
        }
    }
}

/// Waits for the end. A signal cancels the transfer, which then ends soon.
fn await_end(session: &Session, transfer: &Transfer, tick: impl Fn()) {
    let mut cancelled = false;
    while !transfer.is_done() {
        if interrupt::pressed() && !cancelled {
            transfer.cancel();
            cancelled = true;
        }
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        fds.extend(session.event_fd().ok().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(interrupt::event().filter(|_| !cancelled).map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // The session has this one transfer: its event is never reset, and nothing else is waited for.
        let _ = nix::poll::poll(&mut fds, PollTimeout::try_from(TICK).unwrap_or(PollTimeout::MAX));
        tick();
    }
}

fn bar(name: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => {
            (ProgressBar::new(total), "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        }
        None => (ProgressBar::new_spinner(), "{msg} {spinner} {bytes} {bytes_per_sec} {elapsed}"),
    };
    let style = ProgressStyle::with_template(template);
    let bar = bar.with_message(name.to_string());
    bar.enable_steady_tick(TICK);
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
