//! Failures that tests ask for. In other builds there are none.

/// A place where a test's process kills itself if it was told to.
#[cfg(not(test))]
pub(super) fn point(_place: &str) {}

#[cfg(test)]
pub(super) use injected::*;

#[cfg(test)]
mod injected {
    /// The environment variable with the place at which the process dies.
    pub(in super::super) const DIE_AT: &str = "DCS_STORE_DIE_AT";

    pub(in super::super) fn point(place: &str) {
        if std::env::var(DIE_AT).is_ok_and(|at| at == place) {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    }
}
