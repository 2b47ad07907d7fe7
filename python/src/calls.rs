//! `sendfile`, `recvfile`, `transfer`, `prepare`.

use crate::completion::Completion;
use crate::ends::{self, Lent};
use crate::engine::{Engine, default_engine};
use crate::error::refused;
use crate::ops::chain;
use crate::prepared::Prepared;
use crate::transfer::Transfer;
use dcs::{Mode, Sink, Source, Stage};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

/// Arguments of all three functions, except their ends.
struct Options<'a, 'py> {
    through: Option<&'a Bound<'py, PyAny>>,
    count: Option<i64>,
    prefix: Option<&'a Bound<'py, PyAny>>,
    timeout: Option<f64>,
    durable: bool,
    more: bool,
    rid: u32,
    engine: Option<&'a Bound<'py, Engine>>,
}

fn not_negative(value: i64, what: &str) -> PyResult<u64> {
    u64::try_from(value).map_err(|_| PyValueError::new_err(format!("{what} is negative: {value}")))
}

fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    const TIMEOUT_MAX: f64 = u32::MAX as f64 / 1000.0;
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds > 0.0 && seconds <= TIMEOUT_MAX {
        return Ok(Some(Duration::from_secs_f64(seconds)));
    }
    let line = format!(
        "timeout must be a number of seconds over 0 and at most {TIMEOUT_MAX} (None: no timeout), not {seconds}"
    );
    Err(PyValueError::new_err(line))
}

/// Makes a transfer of the arguments, and submits it.
fn submit(
    py: Python<'_>,
    source: Lent<Source>,
    sink: Lent<Sink>,
    options: Options<'_, '_>,
) -> PyResult<Transfer> {
    let chain = chain(options.through)?;
    let count = options.count.map(|count| not_negative(count, "count")).transpose()?;
    let timeout = timeout(options.timeout)?;
    let prefix = options.prefix.map(ends::copied).transpose()?.unwrap_or_default();
    if count.is_some_and(|count| count < prefix.len() as u64) {
        let line = format!("count includes the prefix, which alone has {} bytes", prefix.len());
        return Err(PyValueError::new_err(line));
    }
    let engine = match options.engine {
        Some(engine) => engine.clone().unbind(),
        None => default_engine(py)?,
    };
    let held = engine.get().held()?;
    let mut request = held.spread.request(source.end, chain, sink.end).rid(options.rid);
    if let Some(count) = count {
        request = request.length(count);
    }
    if let Some(timeout) = timeout {
        request = request.timeout(timeout);
    }
    if !prefix.is_empty() {
        request = request.prefix(prefix);
    }
    if options.durable {
        request = request.durable();
    }
    if options.more {
        request = request.more();
    }
    let transfer = request.submit().map_err(|error| match error {
        dcs::Error::ChainTooLong => PyValueError::new_err(error.to_string()),
        error => refused(py, &error, Stage::Queue),
    })?;
    let lent = [source.buffer, sink.buffer].into_iter().flatten().collect();
    Ok(Transfer::new(transfer, lent, engine))
}

/// Sends bytes of a file to a socket through operators, and waits until that is done.
///
/// `sock` and `file`: descriptors, or objects with fileno(). `sock` may be an asyncio transport or StreamWriter without
/// TLS. TLS sockets are refused. `offset`: first byte in the file; the file's own position is neither used nor moved.
/// `count`: bytes to move in all, prefix included (default: to the end of the file). A file with fewer bytes is an
/// error. `through`: operators on the way, a list of names and Op objects.
///
/// `prefix`: bytes that come first, and go through the operators too. `timeout`: seconds for all of it, after which it
/// fails with dcs.Timeout; the socket's own timeout is not used, and a non-blocking socket is waited for. `more`: more
/// data follow soon (MSG_MORE). `durable`: fdatasync of the destination, if it is a file. `immutable`: a promise that
/// nobody writes to the file before the peer has read the bytes, which is later than the end of the transfer. If all
/// operators are digests and the socket is non-blocking, the bytes then go without a copy, and the peer gets other
/// bytes if somebody does write. `engine`: None for the process's default.
///
/// Returns a Completion. Raises dcs.Error, which tells what had been done by then. Releases the interpreter's lock;
/// Ctrl-C cancels it.
#[pyfunction]
#[pyo3(signature = (sock, file, offset=0, count=None, through=None, *, prefix=None, timeout=None, more=false, durable=false, immutable=false, engine=None))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub fn sendfile(
    py: Python<'_>,
    sock: &Bound<'_, PyAny>,
    file: &Bound<'_, PyAny>,
    offset: i64,
    count: Option<i64>,
    through: Option<&Bound<'_, PyAny>>,
    prefix: Option<&Bound<'_, PyAny>>,
    timeout: Option<f64>,
    more: bool,
    durable: bool,
    immutable: bool,
    engine: Option<&Bound<'_, Engine>>,
) -> PyResult<Py<Completion>> {
    let offset = not_negative(offset, "offset")?;
    ends::check_open(sock, "sock", Stage::Destination)?;
    let mut source = ends::source(file, "file", offset, false)?;
    if immutable {
        source.end = source.end.immutable();
    }
    let sink = ends::sink(sock, "sock", 0, false)?;
    let options = Options { through, count, prefix, timeout, durable, more, rid: 0, engine };
    submit(py, source, sink, options)?.finish(py)
}

/// Receives bytes from a socket into a file through operators, and waits until that is done.
///
/// `offset`: first byte in the file; the file grows as needed and is not truncated, and its own position is neither
/// used nor moved. `count`: bytes to receive in all, prefix included. A peer that stops sending earlier is an error
/// (END_OF_SOURCE), but what came is written; with `near_storage`, what `bytes_out` says. None: until the peer stops sending.
///
/// `prefix`: bytes that were already read from the socket and come first. `durable`: fdatasync of the file before it is
/// done. `near_storage`: the virtual drive that has the file takes the bytes through the operators and writes what comes
/// out (`Engine(backend="drive")`); that goes to bytes of the file that were written before, of a file that nobody else has
/// open, from a logical block on, and has to fit into it. All other arguments, the result and the errors are those of sendfile.
#[pyfunction]
#[pyo3(signature = (sock, file, offset=0, count=None, through=None, *, prefix=None, durable=false, timeout=None, near_storage=false, engine=None))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub fn recvfile(
    py: Python<'_>,
    sock: &Bound<'_, PyAny>,
    file: &Bound<'_, PyAny>,
    offset: i64,
    count: Option<i64>,
    through: Option<&Bound<'_, PyAny>>,
    prefix: Option<&Bound<'_, PyAny>>,
    durable: bool,
    timeout: Option<f64>,
    near_storage: bool,
    engine: Option<&Bound<'_, Engine>>,
) -> PyResult<Py<Completion>> {
    let offset = not_negative(offset, "offset")?;
    ends::check_open(file, "file", Stage::Destination)?;
    let source = ends::source(sock, "sock", 0, false)?;
    let mut sink = ends::sink(file, "file", offset, false)?;
    if near_storage {
        sink.end = sink.end.near_storage();
    }
    let options = Options { through, count, prefix, timeout, durable, more: false, rid: 0, engine };
    submit(py, source, sink, options)?.finish(py)
}

/// Parses a cache or zero-copy mode.
pub fn mode(name: &str, what: &str) -> PyResult<Mode> {
    match name {
        "auto" => Ok(Mode::Auto),
        "on" => Ok(Mode::On),
        "off" => Ok(Mode::Off),
        _ => Err(PyValueError::new_err(format!("{what} must be auto, on or off, not {name:?}"))),
    }
}

/// Starts a transfer and returns it. Wait for it, await it, or poll its descriptor.
///
/// `source`: a descriptor, an object with fileno(), or bytes-like. `destination`: a descriptor, an object with
/// fileno(), an asyncio transport or StreamWriter without TLS, a writable buffer such as a bytearray, or
/// dcs.Memory(capacity). Descriptors are duplicated and may be closed; memory is not copied, so leave it alone until
/// the transfer is done.
///
/// `offset` and `destination_offset`: first byte in source and destination, if they are files, block devices or memory.
/// `count`, `prefix`, `timeout`, `more`, `durable`, `immutable`, `engine`: as for sendfile and recvfile. `rid`: a
/// transfer does not start before earlier ones with the same number, other than 0, are done. `source_cache`,
/// `destination_cache`: "on" goes through the page cache, "off" bypasses it (O_DIRECT). `zero_copy`: "on" demands
/// zero-copy send, "off" forbids it. `near_storage`: the virtual drive that has the destination writes it, as for recvfile; of
/// a source that is a file of the same drive no byte is read by this machine.
///
/// Raises dcs.Error if it cannot be submitted (EAGAIN: as many transfers as Engine(depth=...) are in flight). The
/// transfer reports later errors.
#[pyfunction]
#[pyo3(signature = (source, destination, through=None, *, offset=0, destination_offset=0, count=None, prefix=None, timeout=None, more=false, durable=false, immutable=false, rid=0, source_cache="auto", destination_cache="auto", zero_copy="auto", near_storage=false, engine=None))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub fn transfer(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    destination: &Bound<'_, PyAny>,
    through: Option<&Bound<'_, PyAny>>,
    offset: i64,
    destination_offset: i64,
    count: Option<i64>,
    prefix: Option<&Bound<'_, PyAny>>,
    timeout: Option<f64>,
    more: bool,
    durable: bool,
    immutable: bool,
    rid: u32,
    source_cache: &str,
    destination_cache: &str,
    zero_copy: &str,
    near_storage: bool,
    engine: Option<&Bound<'_, Engine>>,
) -> PyResult<Transfer> {
    let offset = not_negative(offset, "offset")?;
    let destination_offset = not_negative(destination_offset, "destination_offset")?;
    let source_cache = mode(source_cache, "source_cache")?;
    let destination_cache = mode(destination_cache, "destination_cache")?;
    let zero_copy = mode(zero_copy, "zero_copy")?;
    ends::check_open(destination, "destination", Stage::Destination)?;
    let mut source = ends::source(source, "source", offset, true)?;
    let mut sink = ends::sink(destination, "destination", destination_offset, true)?;
    source.end = source.end.cache(source_cache);
    if immutable {
        source.end = source.end.immutable();
    }
    sink.end = sink.end.cache(destination_cache).zero_copy(zero_copy);
    if near_storage {
        sink.end = sink.end.near_storage();
    }
    let options = Options { through, count, prefix, timeout, durable, more, rid, engine };
    submit(py, source, sink, options)
}

/// Prepares a transfer that is to be submitted often, each time with other offsets and another count.
///
/// `source`, `destination`: descriptors, or objects with fileno(), of which it has duplicates: what becomes of the
/// caller's later changes nothing. The other arguments are those of transfer. Returns a Prepared, whose
/// `submit(offset, destination_offset, count=...)` starts one, and `result()` waits for it; one submission is under way at
/// a time.
#[pyfunction]
#[pyo3(signature = (source, destination, through=None, *, timeout=None, more=false, durable=false, immutable=false, rid=0, engine=None))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub fn prepare(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    destination: &Bound<'_, PyAny>,
    through: Option<&Bound<'_, PyAny>>,
    timeout: Option<f64>,
    more: bool,
    durable: bool,
    immutable: bool,
    rid: u32,
    engine: Option<&Bound<'_, Engine>>,
) -> PyResult<Prepared> {
    ends::check_open(destination, "destination", Stage::Destination)?;
    let source = ends::source(source, "source", 0, false)?.end;
    let sink = ends::sink(destination, "destination", 0, false)?.end;
    let source = if immutable { source.immutable() } else { source };
    let engine = match engine {
        Some(engine) => engine.clone().unbind(),
        None => default_engine(py)?,
    };
    let held = engine.get().held()?;
    let mut request = held.spread.request(source, chain(through)?, sink).rid(rid);
    if let Some(timeout) = self::timeout(timeout)? {
        request = request.timeout(timeout);
    }
    if durable {
        request = request.durable();
    }
    if more {
        request = request.more();
    }
    let prepared = request.prepare().map_err(|error| match error {
        dcs::Error::ChainTooLong | dcs::Error::NotPrepared(_) => PyValueError::new_err(error.to_string()),
        error => refused(py, &error, Stage::Queue),
    })?;
    Ok(Prepared::new(prepared, engine))
}
