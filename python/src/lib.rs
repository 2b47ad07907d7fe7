//! The Python package `dcs`: sendfile, recvfile and transfers on the engine, for CPython 3.11 and later.
//!
//! This crate is the package's extension module, `dcs._dcs`. Python programs import `python/dcs`: its stubs
//! (`__init__.pyi`) hold the types, and its docstrings are those of this crate. `docs/python.md` is the manual.
//!
//! # Architecture
//!
//! ```text
//!   Python threads, greenlets, asyncio tasks            the engine's thread (dcs::Engine, Driver::Thread)
//!   dcs.sendfile(...)  ---- Session::request ------->   moves the bytes; knows nothing of Python
//!      ^   ^                                                        |
//!      |   +-- transfer::Transfer: looks (Future::poll) <-- Bell::wake: a condition variable, and an eventfd
//!      |                                                            where somebody asked for one
//!      +------ completion::Completion or dcs.Error
//! ```
//!
//! The interpreter's lock is released while a thread waits, and the engine's thread never takes it. All waiting is on
//! the library's future, with our own waker, so there is one way for threads that block, poll or await.
//!
//! | module | what it holds |
//! |---|---|
//! | `engine` | `Engine`, and the process's default one |
//! | `calls` | `sendfile`, `recvfile`, `transfer`, `prepare` |
//! | `ends` | what can be a source or a destination: descriptors, objects with `fileno()`, memory |
//! | `ops` | `Op` and the functions that make one |
//! | `transfer` | `Transfer`: waiting, the eventfd, cancelling |
//! | `prepared` | `Prepared`: submitting again and again |
//! | `completion` | `Completion` |
//! | `error` | `dcs.Error` out of what the library says |
//!
//! # What it doesn't implement
//!
//! * Engines that their callers drive (`Driver::Caller`), the card backend, several extents of one file: Rust has them.
//! * Sub-interpreters and free-threaded builds of CPython: importing it there fails.
//! * An engine over fork(2): a child makes its own. See [`engine`].

mod calls;
mod completion;
mod ends;
mod engine;
mod error;
mod ops;
mod prepared;
mod transfer;

/// Extension module of the package `dcs`, which programs import instead.
#[pyo3::pymodule]
mod _dcs {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    /// Refuses subinterpreters: the default engine is one object of one interpreter, and PyO3's own check misses some
    /// ways to import.
    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // SAFETY: the calling thread is attached to the interpreter that this returns.
        let id = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
        match id {
            0 => Ok(()),
            _ => {
                Err(PyImportError::new_err("dcs does not support subinterpreters: import it in the main one"))
            }
        }
    }

    #[pymodule_export]
    use super::calls::{prepare, recvfile, sendfile, transfer};
    #[pymodule_export]
    use super::completion::{Completion, Digest};
    #[pymodule_export]
    use super::ends::Memory;
    #[pymodule_export]
    use super::engine::{Engine, default_engine};
    #[pymodule_export]
    use super::ops::{
        Op, aes256_ctr, aes256_xts, aes256_xts_decrypt, aggregate, aws_chunked, bitmap, blowfish_ctr, crc32,
        crc32c, crc64_nvme, filter, grep, gunzip, gzip, knn, md5, module, sha1, sha256, sha512, slice,
        unzstd, zstd,
    };
    #[pymodule_export]
    use super::prepared::Prepared;
    #[pymodule_export]
    use super::transfer::Transfer;
}
