//! sha256sum(1) of many files at once: many transfers, one eventfd, one poll(2) loop.
//!
//!     cargo run --example eventfd_loop -- FILE...
//!
//! A server's loop has the eventfd among its sockets; here it is alone. No thread of this program ever waits
//! for a transfer: the engine's own thread runs them all.

use dcs::{Completion, Engine, Op, Session, Sink, Source, Transfer, TransferError};
use rustix::event::{PollFd, PollFlags, poll};
use std::error::Error;
use std::fs::File;
use std::process::ExitCode;

struct Job {
    name: String,
    transfer: Transfer,
}

/// file -> sha256 -> nowhere
fn start(session: &Session, name: &str, nowhere: &File) -> Result<Job, Box<dyn Error>> {
    // The transfer has its own duplicate of the descriptor: this one may be closed.
    let file = File::open(name)?;
    let transfer = session.transfer(Source::fd(&file), [Op::Sha256], Sink::fd(nowhere))?;
    Ok(Job { name: name.to_string(), transfer })
}

fn report(name: &str, outcome: Result<Completion, TransferError>) -> bool {
    match &outcome {
        Ok(done) => println!("{}  {name}", done.digests[0]),
        Err(error) => eprintln!("{name}: {error}; {}", error.advice()),
    }
    outcome.is_ok()
}

fn run(names: &[String]) -> Result<bool, Box<dyn Error>> {
    const AT_ONCE: usize = 32;
    let engine = Engine::builder().start()?;
    let session = engine.session_with_depth(AT_ONCE as u16)?;
    let event = session.event_fd()?;
    let nowhere = File::options().write(true).open("/dev/null")?;

    let (mut all_well, mut next, mut jobs) = (true, names.iter(), Vec::new());
    loop {
        while jobs.len() < AT_ONCE
            && let Some(name) = next.next()
        {
            match start(&session, name, &nowhere) {
                Ok(job) => jobs.push(job),
                Err(error) => {
                    eprintln!("{name}: {error}");
                    all_well = false;
                }
            }
        }
        if jobs.is_empty() {
            return Ok(all_well);
        }
        poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], None)?;
        // Read before the transfers are asked: what is done later makes it readable again.
        let _ = rustix::io::read(event, &mut [0; 8]);
        let mut waiting = Vec::new();
        for Job { name, transfer } in jobs {
            match transfer.try_wait() {
                Ok(outcome) => all_well &= report(&name, outcome),
                Err(transfer) => waiting.push(Job { name, transfer }),
            }
        }
        jobs = waiting;
    }
}

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    match run(&names) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("eventfd_loop: {error}");
            ExitCode::FAILURE
        }
    }
}
