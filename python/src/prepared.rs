//! `Prepared`: a transfer that is bound once and submitted often.

use crate::completion::Completion;
use crate::engine::{Engine, check_owner};
use crate::error::{failed, refused};
use crate::transfer::{Bell, wait_for};
use dcs::{Stage, TransferError};
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use rustix::process::{Pid, getpid};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// State: the library's object, and its last submission.
struct State {
    prepared: Option<dcs::Prepared>,
    last: Submission,
}

/// The last submission: none at first, which counts as one whose result was handed out.
struct Submission {
    number: u64,
    bell: Arc<Bell>,
    ended: Option<Result<dcs::Completion, TransferError>>,
    /// `result` returned or raised how it ended.
    is_handed_out: bool,
}

/// A transfer that is prepared once, to be submitted often: made by `prepare`.
#[pyclass(frozen, module = "dcs")]
pub struct Prepared {
    owner: Pid,
    /// State, never locked while Python code runs, as a transfer's.
    state: Mutex<State>,
    /// Engine, kept so that dropping it in Python does not abort what is under way.
    _engine: Py<Engine>,
}

impl Prepared {
    pub fn new(prepared: dcs::Prepared, engine: Py<Engine>) -> Prepared {
        let last = Submission { number: 0, bell: Arc::default(), ended: None, is_handed_out: true };
        let state = State { prepared: Some(prepared), last };
        Prepared { owner: engine.get().owner(), state: Mutex::new(state), _engine: engine }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls. Returns true if nothing is under way any more; if not, the bell will ring.
    fn look(&self) -> bool {
        let mut state = self.state();
        let State { prepared, last } = &mut *state;
        let Some(prepared) = prepared.as_mut().filter(|prepared| prepared.is_under_way()) else {
            return true;
        };
        let waker = Waker::from(Arc::clone(&last.bell));
        let Poll::Ready(outcome) = prepared.poll(&mut Context::from_waker(&waker)) else { return false };
        last.ended = Some(outcome.cloned());
        true
    }

    /// Submits it, without Python's help.
    fn start(&self, offset: u64, destination_offset: u64, count: u64) -> Result<(), Refusal> {
        let mut state = self.state();
        let State { prepared, last } = &mut *state;
        let prepared = prepared.as_mut().ok_or(Refusal::Closed)?;
        if last.ended.is_some() && !last.is_handed_out {
            return Err(Refusal::NotAsked);
        }
        prepared.submit(offset, destination_offset, count).map_err(Refusal::Library)?;
        let number = last.number + 1;
        *last = Submission { number, bell: Arc::default(), ended: None, is_handed_out: false };
        Ok(())
    }

    /// Lets go of the library's object; whoever waits for a submission is woken. Its last close may wait for a peer or a
    /// disk: other Python threads run meanwhile.
    fn let_go(&self, py: Python<'_>) {
        let mut state = self.state();
        let prepared = state.prepared.take();
        let bell = Arc::clone(&state.last.bell);
        drop(state);
        bell.ring();
        py.detach(|| drop(prepared));
    }
}

/// A submission that was not made.
enum Refusal {
    Closed,
    /// The result of the previous submission was not read.
    NotAsked,
    Library(dcs::Error),
}

#[pymethods]
impl Prepared {
    /// Submits it: `count` bytes from `offset` on, to `destination_offset` on. Raises ValueError if the last submission's
    /// result was not asked for with `result` (`done` alone is not enough: a failure would be lost), or if an offset is given for a stream.
    #[pyo3(signature = (offset=0, destination_offset=0, *, count))]
    fn submit(&self, py: Python<'_>, offset: u64, destination_offset: u64, count: u64) -> PyResult<()> {
        check_owner(self.owner, "prepared transfer")?;
        match self.start(offset, destination_offset, count) {
            Ok(()) => Ok(()),
            Err(Refusal::Closed) => Err(closed()),
            Err(Refusal::NotAsked) => Err(PyValueError::new_err(
                "the last submission's result was not asked for: call result() first",
            )),
            Err(Refusal::Library(
                error @ (dcs::Error::UnderWay | dcs::Error::NoOffset | dcs::Error::Range),
            )) => Err(PyValueError::new_err(error.to_string())),
            Err(Refusal::Library(error)) => Err(refused(py, &error, Stage::Queue)),
        }
    }

    /// Waits for the last submission, and returns its Completion, or raises its dcs.Error. `timeout`: seconds to wait,
    /// after which TimeoutError is raised and it goes on. Further calls give the same Completion; a failure is raised once.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<Completion>> {
        check_owner(self.owner, "prepared transfer")?;
        let limit = timeout.map(|timeout| Duration::try_from_secs_f64(timeout.max(0.0))).transpose();
        let limit = limit.map_err(|_| PyValueError::new_err("timeout must be a number of seconds"))?;
        let (number, bell) = {
            let state = self.state();
            (state.last.number, Arc::clone(&state.last.bell))
        };
        // Another thread may take this submission's result, and submit again.
        let look = || {
            let current = self.state().last.number;
            current != number || self.look()
        };
        if !wait_for(py, &bell, limit, look)? {
            return Err(PyTimeoutError::new_err("the submission is not done yet"));
        }
        let mut state = self.state();
        let is_open = state.prepared.is_some();
        let last = &mut state.last;
        if last.number != number {
            drop(state);
            return Err(PyRuntimeError::new_err("another thread took the result, and submitted again"));
        }
        last.is_handed_out = true;
        match last.ended.take() {
            Some(Ok(done)) => {
                last.ended = Some(Ok(done.clone()));
                drop(state);
                Py::new(py, Completion::new(py, done))
            }
            Some(Err(error)) => {
                drop(state);
                Err(failed(py, error))
            }
            None if is_open => {
                Err(PyRuntimeError::new_err("nothing was submitted, or its failure was raised before"))
            }
            None => Err(closed()),
        }
    }

    /// True if nothing is under way.
    fn done(&self) -> PyResult<bool> {
        check_owner(self.owner, "prepared transfer")?;
        Ok(self.look())
    }

    /// Aborts what is under way. It is done soon afterwards, with dcs.Cancelled unless it was faster.
    fn cancel(&self) -> PyResult<()> {
        check_owner(self.owner, "prepared transfer")?;
        if let Some(prepared) = &self.state().prepared {
            prepared.cancel();
        }
        Ok(())
    }

    /// Lets go of its ends; what is under way is cancelled. Submitting it later raises RuntimeError.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        check_owner(self.owner, "prepared transfer")?;
        self.let_go(py);
        Ok(())
    }
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("the prepared transfer is closed")
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.owner != getpid() {
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(state.prepared.take());
        } else {
            // Without an interpreter the field's own drop does it.
            Python::try_attach(|py| self.let_go(py));
        }
    }
}
