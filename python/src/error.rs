//! Makes `dcs.Error` from the library's errors. The classes themselves are in Python: `dcs/_errors.py`.

use crate::completion::Completion;
use dcs::{Error, Stage, Status, TransferError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustix::io::Errno;

/// Parts of a `dcs.Error`.
struct Parts<'a> {
    errno: i32,
    sentence: String,
    status: Status,
    stage: Stage,
    /// Place in the chain, and name.
    operator: Option<(u8, &'static str)>,
    advice: &'static str,
    completion: Completion,
    kind: &'a str,
}

impl Parts<'_> {
    fn raise(self, py: Python<'_>) -> PyErr {
        let make = || {
            let class = py.import("dcs._errors")?.getattr(self.kind)?.cast_into::<PyType>()?;
            let error = class.call1((self.errno, self.sentence))?;
            error.setattr("status", self.status.name())?;
            error.setattr("stage", self.stage.name())?;
            error.setattr("operator", self.operator)?;
            error.setattr("advice", self.advice)?;
            error.setattr("completion", Py::new(py, self.completion)?)?;
            Ok(PyErr::from_value(error))
        };
        make().unwrap_or_else(|error: PyErr| error)
    }
}

/// Makes the error of a failed transfer.
pub fn failed(py: Python<'_>, error: TransferError) -> PyErr {
    let errno = error.nearest_errno();
    let disconnected = [Errno::CONNRESET, Errno::PIPE, Errno::CONNABORTED, Errno::SHUTDOWN];
    let kind = match error.status {
        Status::Timeout => "Timeout",
        Status::Cancelled => "Cancelled",
        Status::PeerReset => "Disconnected",
        // The engine itself stopped, not a peer.
        Status::QueueDeleted => "Error",
        _ if disconnected.iter().any(|reset| reset.raw_os_error() == errno) => "Disconnected",
        _ => "Error",
    };
    Parts {
        errno,
        sentence: error.to_string(),
        status: error.status,
        stage: error.stage,
        operator: error.operator.map(|(at, operator)| {
            (at, operator.info().gpu.filter(|_| error.on_gpu).unwrap_or(operator.name()))
        }),
        advice: error.advice(),
        completion: Completion::new(py, *error.completion),
        kind,
    }
    .raise(py)
}

/// Makes the error of a transfer that was not submitted, so that nothing was moved.
pub fn refused(py: Python<'_>, error: &Error, stage: Stage) -> PyErr {
    let errno_of = |error: &std::io::Error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    let (status, errno) = match error {
        Error::Endpoint(endpoint) => match endpoint {
            dcs::EndpointError::NotOpen | dcs::EndpointError::Closed => {
                (Status::BadHandle, Errno::BADF.raw_os_error())
            }
            dcs::EndpointError::Unsupported(_) => (Status::UnsupportedEndpoint, Errno::INVAL.raw_os_error()),
            dcs::EndpointError::System(error) => (Status::OutOfResources, errno_of(error)),
        },
        Error::Size(error) => (Status::ReadError, errno_of(error)),
        Error::Start(error) | Error::IoUring(error) => (Status::OutOfResources, errno_of(error)),
        Error::Gpu(_) => (Status::OutOfResources, Errno::NODEV.raw_os_error()),
        Error::NoGpu(..) => (Status::UnknownOperator, Errno::NODEV.raw_os_error()),
        Error::Range => (Status::OutOfRange, Errno::RANGE.raw_os_error()),
        Error::SessionFull => (Status::OutOfResources, Errno::AGAIN.raw_os_error()),
        Error::Stopped => (Status::QueueDeleted, Errno::SHUTDOWN.raw_os_error()),
        _ => (Status::InvalidField, Errno::INVAL.raw_os_error()),
    };
    let sentence = match error {
        Error::SessionFull => {
            "as many transfers are in flight as the engine was made for (Engine(depth=...)): take \
                               the results of some first"
                .to_string()
        }
        Error::NotNear => {
            "near_storage needs operators, and an engine of a guest with virtual drives: Engine(backend=\"drive\")"
                .to_string()
        }
        Error::NoGpu(name, _) => {
            format!("{name}: this engine has no GPU: make one that has, by Engine(gpu=0)")
        }
        other => other.to_string(),
    };
    let advice = "nothing was moved";
    let completion = Completion::new(py, dcs::Completion::default());
    Parts { errno, sentence, status, stage, operator: None, advice, completion, kind: "Error" }.raise(py)
}
