//! Failures that tests inject. Other builds have none.

/// Kills a test's process at this place if the test asked for it.
#[cfg(not(test))]
pub(super) fn point(_place: &str) {}

#[cfg(test)]
pub(super) use injected::*;

#[cfg(test)]
mod injected {
    /// Environment variable with the place at which the process dies.
    pub(in super::super) const DIE_AT: &str = "DCS_STORE_DIE_AT";

    pub(in super::super) fn point(place: &str) {
        if std::env::var(DIE_AT).is_ok_and(|at| at == place) {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    }
}
