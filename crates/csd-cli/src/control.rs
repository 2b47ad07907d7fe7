//! The management socket: a line of JSON for a request, one for its answer.
//!
//! Only the user of the process may connect (mode 0600). A request is copied, checked, and then carried out,
//! or refused without any change.

use crate::process::Process;
use crate::refused::Refused;
use dcs_csd_cli::request::{Answer, REQUEST_MAX, Rates, Request};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Name of the socket in the folder of the sockets.
pub const NAME: &str = "csd.control";
/// Maximum number of connections at once.
const CONNECTIONS: usize = 16;
/// Time for which a connection may send nothing or take nothing.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Listens in the folder and answers on threads of its own while the process lives.
pub fn listen(folder: &Path, process: Arc<Process>) -> io::Result<()> {
    let path = folder.join(NAME);
    let listener = dcs_vfio_user::listen_with_mode(&path, 0o600)?;
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new().name("dcs-csd-control".into()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // For example out of descriptors: that may pass.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let Some(counted) = Counted::new(&open) else { continue };
            let process = process.clone();
            // A connection for which there is no thread is closed.
            let _ = std::thread::Builder::new().name("dcs-csd-request".into()).spawn(move || {
                let _counted = counted;
                // A peer that breaks off is no error.
                let _ = serve(stream, &process);
            });
        }
    })?;
    Ok(())
}

/// A connection, which counts until this is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Returns `None` if there are as many as there may be.
    fn new(open: &Arc<AtomicUsize>) -> Option<Counted> {
        let counted = Counted(open.clone());
        (open.fetch_add(1, Ordering::AcqRel) < CONNECTIONS).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(stream: UnixStream, process: &Process) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut reader = BufReader::new(&stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = (&mut reader).take(REQUEST_MAX).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(());
        }
        let is_whole = line.last() == Some(&b'\n');
        let answer = if is_whole { answer(&line, process) } else { too_long() };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        (&stream).write_all(&text)?;
        if !is_whole {
            return Ok(());
        }
    }
}

fn too_long() -> Answer {
    let error = format!("a request is one line of at most {REQUEST_MAX} bytes");
    Answer::Refused { error, advice: None }
}

fn answer(line: &[u8], process: &Process) -> Answer {
    let request = match Request::parse(line) {
        Ok(request) => request,
        Err(error) => return Answer::Refused { error, advice: None },
    };
    let done = match request {
        Request::Add { drive } => process.add(drive),
        Request::Remove { name, nsid } => process.remove(&name, nsid),
        Request::Resize { name, nsid, size } => process.resize(&name, nsid, size),
        Request::Set { name, weight, iops, bytes_per_s } => {
            process.set(&name, Rates { weight, iops, bytes_per_s })
        }
        Request::Load { module } => process.load(&module),
        Request::List {} => Ok(()),
    };
    match done {
        Ok(()) => Answer::Done { drives: process.state(), slots: process.slots() },
        Err(Refused { error, advice }) => Answer::Refused { error, advice },
    }
}

/// Sends a request to the process whose sockets are in this folder.
pub fn ask(folder: &Path, request: &Request) -> io::Result<Answer> {
    let stream = UnixStream::connect(folder.join(NAME))?;
    // Adding a drive may wait for a disk.
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    (&stream).write_all(&request.line()?)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(io::Error::other)
}
