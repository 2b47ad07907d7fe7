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

/// State: the library's object, and the result of its last submission.
struct State {
    prepared: Option<dcs::Prepared>,
    ended: Option<Result<dcs::Completion, TransferError>>,
    bell: Arc<Bell>,
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
        let state = State { prepared: Some(prepared), ended: None, bell: Arc::default() };
        Prepared { owner: engine.get().owner(), state: Mutex::new(state), _engine: engine }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls. Returns true if nothing is under way any more; if not, the bell will ring.
    fn look(&self) -> bool {
        let mut state = self.state();
        let State { prepared, ended, bell } = &mut *state;
        let Some(prepared) = prepared.as_mut().filter(|prepared| prepared.is_under_way()) else {
            return true;
        };
        let waker = Waker::from(Arc::clone(bell));
        let Poll::Ready(outcome) = prepared.poll(&mut Context::from_waker(&waker)) else { return false };
        *ended = Some(outcome.cloned());
        true
    }
}

#[pymethods]
impl Prepared {
    /// Submits it: `count` bytes from `offset` on, to `destination_offset` on. Raises ValueError if the last submission
    /// was not waited for with `result`, or if an offset is given for a stream.
    #[pyo3(signature = (offset=0, destination_offset=0, *, count))]
    fn submit(&self, py: Python<'_>, offset: u64, destination_offset: u64, count: u64) -> PyResult<()> {
        check_owner(self.owner, "prepared transfer")?;
        let mut state = self.state();
        let State { prepared, ended, bell } = &mut *state;
        let Some(prepared) = prepared else {
            return Err(PyRuntimeError::new_err("the prepared transfer is closed"));
        };
        match prepared.submit(offset, destination_offset, count) {
            Ok(()) => {
                (*ended, *bell) = (None, Arc::default());
                Ok(())
            }
            Err(error @ (dcs::Error::UnderWay | dcs::Error::NoOffset | dcs::Error::Range)) => {
                Err(PyValueError::new_err(error.to_string()))
            }
            Err(error) => Err(refused(py, &error, Stage::Queue)),
        }
    }

    /// Waits for the last submission, and returns its Completion, or raises its dcs.Error. `timeout`: seconds to wait,
    /// after which TimeoutError is raised and it goes on. Further calls give the same Completion; a failure is raised once.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<Completion>> {
        check_owner(self.owner, "prepared transfer")?;
        let limit = timeout.map(|timeout| Duration::try_from_secs_f64(timeout.max(0.0))).transpose();
        let limit = limit.map_err(|_| PyValueError::new_err("timeout must be a number of seconds"))?;
        let bell = Arc::clone(&self.state().bell);
        if !wait_for(py, &bell, limit, || self.look())? {
            return Err(PyTimeoutError::new_err("the submission is not done yet"));
        }
        let mut state = self.state();
        match &state.ended {
            Some(Ok(done)) => {
                let done = done.clone();
                drop(state);
                Py::new(py, Completion::new(py, done))
            }
            Some(Err(_)) => match state.ended.take() {
                Some(Err(error)) => {
                    drop(state);
                    Err(failed(py, error))
                }
                _ => Err(PyRuntimeError::new_err("nothing was submitted")),
            },
            None => Err(PyRuntimeError::new_err("nothing was submitted, or its failure was raised before")),
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
    fn close(&self) -> PyResult<()> {
        check_owner(self.owner, "prepared transfer")?;
        let prepared = self.state().prepared.take();
        drop(prepared);
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let prepared = state.prepared.take();
        if self.owner != getpid() {
            std::mem::forget(prepared);
        }
    }
}
