//! `Transfer`: waiting, the eventfd, cancelling.
//!
//! The library's future is polled with our own waker, the [`Bell`]. Threads wait on its condition variable, event loops
//! on its eventfd, which is made on demand.

use crate::completion::Completion;
use crate::engine::{Engine, check_owner};
use crate::error::failed;
use dcs::TransferError;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rustix::event::EventfdFlags;
use rustix::process::{Pid, getpid};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Interval at which the main thread checks for signals while it waits.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// Interval for other threads, which get no signals.
const ANYTHING: Duration = Duration::from_secs(3600);

/// Rings when a transfer is done, and stays rung.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
    event: OnceLock<OwnedFd>,
}

impl Bell {
    fn rung(&self) -> MutexGuard<'_, bool> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn ring(&self) {
        *self.rung() = true;
        self.changed.notify_all();
        self.signal();
    }

    fn signal(&self) {
        if let Some(event) = self.event.get() {
            // The write can't block: at most two ever write to it.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    fn wait(&self, limit: Duration) {
        let wait = self.changed.wait_timeout_while(self.rung(), limit, |rung| !*rung);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns an eventfd that is readable once the bell was rung, and stays so.
    fn event(&self) -> std::io::Result<RawFd> {
        if self.event.get().is_none() {
            let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let _ = self.event.set(event);
            // A thread that rang before did not see the eventfd; one that rings now does.
            if *self.rung() {
                self.signal();
            }
        }
        self.event.get().map(AsRawFd::as_raw_fd).ok_or_else(|| std::io::ErrorKind::Other.into())
    }
}

/// Waits for a bell until `look` says that it is done, or up to `limit` (`None`: without limit). Returns true if it is
/// done.
pub fn wait_for(
    py: Python<'_>,
    bell: &Bell,
    limit: Option<Duration>,
    look: impl Fn() -> bool,
) -> PyResult<bool> {
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    // Python handles signals in its main thread, which is the process's, except where Python is embedded.
    let is_main = rustix::thread::gettid() == getpid();
    let slice = if is_main { SIGNALS_EVERY } else { ANYTHING };
    while !look() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        py.detach(|| bell.wait(left.unwrap_or(slice).min(slice)));
        if is_main {
            py.check_signals()?;
        }
    }
    Ok(true)
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

type TransferResult = Result<dcs::Completion, TransferError>;

enum State {
    /// In flight, with the memory that Python lends, which stays valid until the transfer is done.
    Running(dcs::Transfer, Vec<PyUntypedBuffer>),
    /// Done; the result stays until it is asked for.
    Done(Option<TransferResult>),
}

/// A transfer in flight, or done: made by `transfer`. Dropping it cancels it.
///
/// Wait for it (`result`), ask it (`done`), await it in asyncio, or poll its descriptor (`fileno`).
#[pyclass(frozen, module = "dcs", weakref)]
pub struct Transfer {
    owner: Pid,
    bell: Arc<Bell>,
    /// State, never locked while Python code runs: so no thread waits for it with the interpreter's lock, and no fork
    /// finds it locked.
    state: Mutex<State>,
    outcome: PyOnceLock<Result<Py<Completion>, PyErr>>,
    /// Engine, kept so that dropping it in Python does not abort its transfers.
    _engine: Py<Engine>,
}

impl Transfer {
    pub fn new(transfer: dcs::Transfer, lent: Vec<PyUntypedBuffer>, engine: Py<Engine>) -> Transfer {
        Transfer {
            owner: engine.get().owner(),
            bell: Arc::new(Bell::default()),
            state: Mutex::new(State::Running(transfer, lent)),
            outcome: PyOnceLock::new(),
            _engine: engine,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls. Returns true if the transfer is done; if not, the bell will ring.
    fn look(&self) -> bool {
        let mut state = self.state();
        let State::Running(transfer, lent) = &mut *state else { return true };
        let waker = Waker::from(Arc::clone(&self.bell));
        let Poll::Ready(outcome) = Pin::new(transfer).poll(&mut Context::from_waker(&waker)) else {
            return false;
        };
        let lent = std::mem::take(lent);
        *state = State::Done(Some(outcome));
        drop(state);
        self.bell.ring();
        // Python code may run here.
        drop(lent);
        true
    }

    /// Waits until it is done, or up to `limit` (`None`: without limit). Returns true if it is done.
    fn wait(&self, py: Python<'_>, limit: Option<Duration>) -> PyResult<bool> {
        wait_for(py, &self.bell, limit, || self.look())
    }

    fn outcome(&self, py: Python<'_>) -> PyResult<Py<Completion>> {
        let outcome = self.outcome.get_or_init(py, || {
            let outcome = match &mut *self.state() {
                State::Done(outcome) => outcome.take(),
                State::Running(..) => None,
            };
            match outcome {
                Some(Ok(done)) => Py::new(py, Completion::new(py, done)),
                Some(Err(error)) => Err(failed(py, error)),
                None => Err(pyo3::exceptions::PyRuntimeError::new_err("the transfer is not done")),
            }
        });
        match outcome {
            Ok(completion) => Ok(completion.clone_ref(py)),
            Err(error) => Err(error.clone_ref(py)),
        }
    }

    /// Waits to the end, and returns the result. A signal's exception (KeyboardInterrupt) cancels the transfer.
    pub fn finish(&self, py: Python<'_>) -> PyResult<Py<Completion>> {
        if let Err(interrupted) = self.wait(py, None) {
            self.abort();
            while !self.look() {
                py.detach(|| self.bell.wait(ANYTHING));
            }
            return Err(interrupted);
        }
        self.outcome(py)
    }

    fn abort(&self) {
        if let State::Running(transfer, _) = &*self.state() {
            transfer.cancel();
        }
    }
}

#[pymethods]
impl Transfer {
    /// True if it is done, successfully or not.
    fn done(&self) -> PyResult<bool> {
        check_owner(self.owner, "transfer")?;
        Ok(self.look())
    }

    /// Waits for it and returns its Completion, or raises its dcs.Error.
    ///
    /// `timeout`: seconds to wait, after which TimeoutError is raised and the transfer goes on. Further calls give the
    /// same result.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<Completion>> {
        check_owner(self.owner, "transfer")?;
        let limit = timeout.map(|timeout| Duration::try_from_secs_f64(timeout.max(0.0))).transpose();
        let limit = limit.map_err(|_| PyValueError::new_err("timeout must be a number of seconds"))?;
        if !self.wait(py, limit)? {
            return Err(PyTimeoutError::new_err("the transfer is not done yet"));
        }
        self.outcome(py)
    }

    /// Aborts it. It is done soon afterwards, with dcs.Cancelled unless it was faster.
    fn cancel(&self) -> PyResult<()> {
        check_owner(self.owner, "transfer")?;
        self.abort();
        Ok(())
    }

    /// A descriptor that becomes readable once it is done, and stays so: for select, poll, epoll, and the loops of
    /// eventlet and gevent. Do not read from it. It is closed with this object.
    fn fileno(&self) -> PyResult<RawFd> {
        check_owner(self.owner, "transfer")?;
        let event = self.bell.event()?;
        // Makes sure that the bell will ring.
        self.look();
        Ok(event)
    }

    /// Waits for it in an asyncio task, and returns its Completion. Cancelling the task cancels the transfer.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let coroutine = slf.py().import("dcs._aio")?.getattr("wait")?.call1((slf,))?;
        coroutine.call_method0("__await__")
    }

    fn __repr__(&self) -> &'static str {
        match self.owner == getpid() {
            false => "<dcs.Transfer of another process>",
            true if self.look() => "<dcs.Transfer, done>",
            true => "<dcs.Transfer, running>",
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let State::Running(transfer, lent) = std::mem::replace(state, State::Done(None)) else { return };
        if self.owner != getpid() {
            std::mem::forget((transfer, lent));
            return;
        }
        if lent.is_empty() {
            return;
        }
        // The memory stays lent until the engine has released it.
        transfer.cancel();
        let mut wait = Some(|| drop(transfer.wait()));
        if Python::try_attach(|py| wait.take().map(|wait| py.detach(wait))).is_none() {
            // The interpreter is ending: its lock is not waited for.
            if let Some(wait) = wait.take() {
                wait();
            }
        }
    }
}
