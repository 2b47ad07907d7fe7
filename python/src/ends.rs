//! Sources and destinations: descriptors, objects with `fileno()`, memory.

use crate::error::refused;
use dcs::{Handle, Sink, Source, Stage};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use rustix::fs::{FileType, fstat};
use std::os::fd::{BorrowedFd, RawFd};

/// A destination in memory: up to this many bytes, returned in `Completion.memory`.
#[pyclass(frozen, module = "dcs")]
pub struct Memory {
    capacity: usize,
}

#[pymethods]
impl Memory {
    #[new]
    fn new(capacity: i64) -> PyResult<Memory> {
        let capacity = usize::try_from(capacity).ok().filter(|capacity| isize::try_from(*capacity).is_ok());
        let capacity = capacity.ok_or_else(|| PyValueError::new_err("capacity must not be negative"))?;
        Ok(Memory { capacity })
    }

    /// Bytes that fit.
    #[getter]
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn __repr__(&self) -> String {
        format!("dcs.Memory({})", self.capacity)
    }
}

/// An end of a transfer, with the memory that Python lends it.
pub struct Lent<T> {
    pub end: T,
    pub buffer: Option<PyUntypedBuffer>,
}

/// Returns the memory of a bytes-like object. It stays where it is, and the object keeps its size, as long as this
/// lives.
fn buffer(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the memory must be in one piece (C-contiguous)"));
    }
    Ok(buffer)
}

fn is_bytes_like(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive and the interpreter's lock is held.
    unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

/// Copies the bytes of a bytes-like object.
pub fn copied(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let buffer = buffer(object)?;
    let mut bytes = vec![0; buffer.len_bytes()];
    let from = buffer.buf_ptr().cast::<u8>().cast_const();
    if !bytes.is_empty() {
        // SAFETY: as many bytes are valid at that address as long as `buffer` lives; the interpreter's lock is held.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
    Ok(bytes)
}

/// Returns the descriptor of an object: itself, or its `fileno()`; `None` if it is neither.
fn descriptor(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<RawFd>> {
    // Bytes that bypass a TLS socket's encryption would be sent in the clear.
    let tls = object.py().import("dcs._tls")?;
    let number = if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() {
        object.extract()
    } else {
        let Ok(fileno) = object.getattr("fileno") else { return Ok(None) };
        tls.getattr("check")?.call1((object, what))?;
        fileno.call0()?.extract()
    };
    let number: RawFd = number.map_err(|error: PyErr| {
        if error.is_instance_of::<PyTypeError>(object.py()) {
            PyTypeError::new_err(format!("{what}.fileno() must be a number"))
        } else if error.is_instance_of::<PyOverflowError>(object.py()) {
            PyValueError::new_err(format!("{what} is not a descriptor: the number is too large"))
        } else {
            error
        }
    })?;
    if number < 0 {
        // The fileno() of a closed socket is -1.
        return Err(PyValueError::new_err(format!("{what} is closed, or not a descriptor: {number}")));
    }
    tls.getattr("check_number")?.call1((number, what))?;
    Ok(Some(number))
}

/// Returns the descriptor of an asyncio transport or StreamWriter: its socket's, if nothing is in between.
fn transport(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<RawFd>> {
    let tls = object.py().import("dcs._tls")?;
    tls.getattr("transport_number")?.call1((object, what))?.extract()
}

/// Checks what a descriptor is. `offset` may be other than 0 only if it has positions.
fn handle(py: Python<'_>, number: RawFd, offset: u64, stage: Stage) -> PyResult<Handle> {
    // SAFETY: not negative. It is used at once, for system calls that return EBADF if it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let handle = Handle::new(&fd).map_err(|error| refused(py, &error, stage))?;
    let has_positions = |stat: rustix::fs::Stat| {
        matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::BlockDevice)
    };
    if offset != 0 && !fstat(fd).is_ok_and(has_positions) {
        let line = format!("offset is {offset}, but the {} is a stream: it has no offsets", stage.name());
        return Err(PyValueError::new_err(line));
    }
    Ok(handle)
}

fn none_of(object: &Bound<'_, PyAny>, what: &str, kinds: &str) -> PyErr {
    let name = object.get_type().name().map_or_else(|_| "that".into(), |name| name.to_string());
    let hint = if matches!(name.as_str(), "str" | "PosixPath") { ": open the file first" } else { "" };
    PyTypeError::new_err(format!("{what} must be {kinds}, not {name}{hint}"))
}

/// Fails if a descriptor is not open. Call it before duplicating another: the duplicate may get the number of a closed
/// one, which would then look open.
pub fn check_open(object: &Bound<'_, PyAny>, what: &str, stage: Stage) -> PyResult<()> {
    if let Some(number) = descriptor(object, what)? {
        // SAFETY: not negative, and used for a system call that returns EBADF if it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_getfd(fd).is_err() {
            let error = dcs::Error::Endpoint(dcs::EndpointError::NotOpen);
            return Err(refused(object.py(), &error, stage));
        }
    }
    Ok(())
}

/// Makes a source: a descriptor from `offset` on or, if `memory` is allowed, the bytes of a bytes-like object.
pub fn source(object: &Bound<'_, PyAny>, what: &str, offset: u64, memory: bool) -> PyResult<Lent<Source>> {
    if memory && is_bytes_like(object) {
        let buffer = buffer(object)?;
        let (address, length) = (buffer.buf_ptr().cast::<u8>().cast_const(), buffer.len_bytes());
        let skip = usize::try_from(offset).ok().filter(|offset| *offset <= length);
        let skip = skip.ok_or_else(|| PyValueError::new_err("offset is after the end of the source"))?;
        // SAFETY: the bytes are valid as long as `buffer` lives, which `Transfer` keeps until the transfer is done. A
        // program that changes them meanwhile breaks the manual's rule, like one that changes a bytearray that hashlib
        // reads without the interpreter's lock; the engine copies each byte once and trusts none.
        let end = unsafe { Source::raw(address.add(skip), length - skip) };
        return Ok(Lent { end, buffer: Some(buffer) });
    }
    let kinds = "a descriptor, an object with fileno()";
    let number = descriptor(object, what)?.ok_or_else(|| {
        let kinds = if memory {
            format!("{kinds}, or bytes-like")
        } else {
            format!("{kinds} such as a socket or file")
        };
        none_of(object, what, &kinds)
    })?;
    let handle = handle(object.py(), number, offset, Stage::Source)?;
    Ok(Lent { end: Source::handle(&handle, offset..), buffer: None })
}

/// Makes a destination: a descriptor from `offset` on or, if `memory` is allowed, a writable buffer or a [`Memory`].
pub fn sink(object: &Bound<'_, PyAny>, what: &str, offset: u64, memory: bool) -> PyResult<Lent<Sink>> {
    if memory && let Ok(memory) = object.cast::<Memory>() {
        if offset != 0 {
            return Err(PyValueError::new_err("dcs.Memory has no offsets"));
        }
        let capacity = memory.get().capacity;
        // Reserved here first: the library's own allocation, which comes next, would abort the process for lack of
        // memory.
        let room = Vec::<u8>::new().try_reserve_exact(capacity);
        room.map_err(|_| PyMemoryError::new_err(format!("no memory for {capacity} bytes")))?;
        return Ok(Lent { end: Sink::memory(capacity), buffer: None });
    }
    if memory && is_bytes_like(object) {
        let buffer = buffer(object)?;
        if buffer.readonly() {
            return Err(PyTypeError::new_err(format!(
                "{what} can't be written: use a bytearray or dcs.Memory"
            )));
        }
        let (address, length) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
        let skip = usize::try_from(offset).ok().filter(|offset| *offset <= length);
        let skip =
            skip.ok_or_else(|| PyValueError::new_err("the offset is after the end of the destination"))?;
        // SAFETY: as for sources; and the memory is writable.
        let end = unsafe { Sink::raw(address.add(skip), length - skip) };
        return Ok(Lent { end, buffer: Some(buffer) });
    }
    let kinds = "a descriptor, an object with fileno(), a transport";
    let number = match descriptor(object, what)? {
        Some(number) => Some(number),
        None => transport(object, what)?,
    };
    let number = number.ok_or_else(|| {
        let kinds = if memory {
            format!("{kinds}, a writable buffer, or dcs.Memory")
        } else {
            format!("{kinds} such as a socket or file")
        };
        none_of(object, what, &kinds)
    })?;
    let handle = handle(object.py(), number, offset, Stage::Destination)?;
    Ok(Lent { end: Sink::handle(&handle, offset), buffer: None })
}
