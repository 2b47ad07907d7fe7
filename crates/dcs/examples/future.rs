//! sha256sum(1) with async and await: a transfer is a future.
//!
//!     cargo run --example future -- FILE...
//!
//! Any executor will do, none is needed: `block_on` below is all that there is to one.

use dcs::{Digest, Engine, Op, Session, Sink, Source};
use std::error::Error;
use std::fs::File;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread, which sleeps meanwhile.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// file -> sha256 -> nowhere
async fn sha256(session: &Session, name: &str) -> Result<Digest, Box<dyn Error>> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    let file = File::open(name)?;
    let done = session.transfer(Source::fd(&file), [Op::Sha256], Sink::fd(&nowhere))?.await?;
    Ok(done.digests[0])
}

async fn run(names: &[String]) -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start()?;
    let session = engine.session()?;
    for name in names {
        let digest = sha256(&session, name).await.map_err(|error| format!("{name}: {error}"))?;
        println!("{digest}  {name}");
    }
    Ok(())
}

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    match block_on(run(&names)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("future: {error}");
            ExitCode::FAILURE
        }
    }
}
