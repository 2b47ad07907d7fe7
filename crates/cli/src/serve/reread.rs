//! SIGHUP: reads the file of users again. Its users are the server's from then on.

use crate::failure::{Exit, Failure};
use crate::names::shown;
use dcs_server::users::Users;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Reads the file again at each SIGHUP, without end. A file with an error changes nothing. The signal is caught from
/// the call on, before the first await: without this it would end the process.
pub fn on_hangup(file: PathBuf, users: Users) -> Result<impl Future<Output = ()> + Send, Failure> {
    let hangup = signal(SignalKind::hangup());
    let mut hangup = hangup.map_err(|error| Failure::new(Exit::Failed, format!("signals: {error}")))?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            match Users::read(&file) {
                Ok(read) => {
                    users.replace(&read);
                    tracing::info!(file = %shown(&file), users = users.access_keys().len(), "users were read again");
                }
                Err(error) => {
                    tracing::error!(file = %shown(&file), %error, "users could not be read again: the old ones stay");
                }
            }
        }
    })
}
