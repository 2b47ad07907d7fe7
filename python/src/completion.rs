//! Results of a transfer, for Python.

use dcs::completion::StageTime;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// Result of a transfer, or what it had done when it failed (`dcs.Error.completion`).
#[pyclass(frozen, module = "dcs")]
pub struct Completion {
    done: dcs::Completion,
    memory: Option<Py<PyBytes>>,
}

/// Value of one digest operator, or of the checksum that `aws-chunked` found in a trailer.
#[pyclass(frozen, module = "dcs")]
pub struct Digest {
    digest: dcs::Digest,
}

impl Completion {
    pub fn new(py: Python<'_>, mut done: dcs::Completion) -> Completion {
        let memory = done.memory.take().map(|bytes| PyBytes::new(py, &bytes).unbind());
        Completion { done, memory }
    }

    fn first(&self, name: &str) -> Option<&dcs::Digest> {
        self.done.digests.iter().find(|digest| digest.operator.name() == name)
    }
}

fn stage<'py>(py: Python<'py>, time: &StageTime) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", time.name)?;
    dict.set_item("first", time.first.as_secs_f64())?;
    dict.set_item("last", time.last.as_secs_f64())?;
    dict.set_item("busy", time.busy.as_secs_f64())?;
    dict.set_item("operations", time.operations)?;
    Ok(dict)
}

#[pymethods]
impl Completion {
    /// Bytes that came from prefix and source.
    #[getter]
    fn bytes_in(&self) -> u64 {
        self.done.bytes_in
    }

    /// Bytes that the destination took, in order from the first one.
    #[getter]
    fn bytes_out(&self) -> u64 {
        self.done.bytes_out
    }

    /// Digests by the names of their operators: `{"md5": b"..."}`. CRCs have the most significant byte first. If the
    /// chain has an operator twice, this has the first; `values` has all.
    #[getter]
    fn digests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for digest in self.done.digests.iter().rev() {
            dict.set_item(digest.operator.name(), PyBytes::new(py, digest.bytes()))?;
        }
        Ok(dict)
    }

    /// All digests, in the order of their operators: a list of `Digest`.
    #[getter]
    fn values(&self) -> Vec<Digest> {
        self.done.digests.iter().map(|digest| Digest { digest: *digest }).collect()
    }

    /// A digest in hexadecimal, as md5sum(1) prints it. KeyError if the chain has no such digest.
    fn hexdigest(&self, name: &str) -> PyResult<String> {
        let digest = self.first(name).ok_or_else(|| {
            let names: Vec<_> = self.done.digests.iter().map(|digest| digest.operator.name()).collect();
            PyKeyError::new_err(format!(
                "no digest {name:?} in this completion; it has: {}",
                names.join(", ")
            ))
        })?;
        Ok(digest.to_string())
    }

    /// Paths that the bytes took, in words.
    #[getter]
    fn path(&self) -> Vec<&'static str> {
        self.done.path.names().collect()
    }

    /// Times in seconds: a dict with `queued` (until the start), `run` (from there to the end) and `stages`, a list of
    /// dicts: `name`, `first` and `last` (from the start to its first and last operation), `busy` (the sum over its
    /// operations, which may overlap), `operations`.
    #[getter]
    fn breakdown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let breakdown = &self.done.breakdown;
        let dict = PyDict::new(py);
        dict.set_item("queued", breakdown.queued.as_secs_f64())?;
        dict.set_item("run", breakdown.run.as_secs_f64())?;
        let stages: PyResult<Vec<_>> = breakdown.stages.iter().map(|time| stage(py, time)).collect();
        dict.set_item("stages", PyList::new(py, stages?)?)?;
        Ok(dict)
    }

    /// The bytes, if the destination was `dcs.Memory`; else None.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.memory.as_ref().map(|memory| memory.bind(py).clone())
    }

    fn __repr__(&self) -> String {
        let digests: Vec<_> =
            self.done.digests.iter().map(|digest| format!(" {} {digest}", digest.operator.name())).collect();
        let (bytes_in, bytes_out) = (self.done.bytes_in, self.done.bytes_out);
        format!("<dcs.Completion: {bytes_in} bytes in, {bytes_out} bytes out{}>", digests.join(""))
    }
}

#[pymethods]
impl Digest {
    /// Name of the operator.
    #[getter]
    fn name(&self) -> &'static str {
        self.digest.operator.name()
    }

    /// Place of the operator in the chain, from 0.
    #[getter]
    fn place(&self) -> usize {
        self.digest.place
    }

    /// Bytes that it covers: after a failure, perhaps more than were delivered.
    #[getter]
    fn covered(&self) -> u64 {
        self.digest.covered
    }

    /// Bytes of the value.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.digest.bytes())
    }

    /// The value in hexadecimal.
    fn hexdigest(&self) -> String {
        self.digest.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<dcs.Digest: {:?}>", self.digest)
    }
}
