//! The server's own scrub: periodic, slow, while clients are served.
//!
//! `DIR/scrubbed` records when the last pass ended, so that a server that is restarted more often than it scrubs still
//! scrubs.

use crate::names::shown;
use dcs_server::encryption::Keys;
use dcs_server::scrub::{Action, Checked, Scrub, Tally};
use dcs_server::store::Store;
use dcs_server::transfers::DataPath;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Store to scrub, and the interval and rate.
pub struct Plan {
    /// Folder of the store.
    pub folder: PathBuf,
    /// Time from the end of a pass to the next one.
    pub every: Duration,
    /// Most bytes read a second.
    pub rate: u64,
    pub store: Arc<Store>,
    pub path: Arc<DataPath>,
    pub keys: Keys,
}

/// Objects checked at the same time: few, so that clients find room in the engine.
const IN_FLIGHT: usize = 2;

impl Plan {
    /// Scrubs the objects again and again, without end.
    pub async fn follow(self) {
        let file = self.folder.join("scrubbed");
        let mut wait = self.every.saturating_sub(since(&file));
        loop {
            tokio::time::sleep(wait).await;
            wait = self.every;
            let pass = Scrub {
                store: self.store.clone(),
                path: self.path.clone(),
                keys: self.keys.clone(),
                in_flight: IN_FLIGHT,
                rate: Some(self.rate),
                dry_run: false,
            };
            tracing::info!("a scrub begins");
            match pass.run(log).await {
                Ok(Tally { objects, bytes, unchecked, bad, quarantined, released }) => {
                    tracing::info!(
                        objects,
                        bytes,
                        unchecked,
                        bad,
                        quarantined,
                        released,
                        "a scrub has ended"
                    );
                }
                Err(error) => {
                    tracing::error!(%error, "a scrub failed");
                    continue;
                }
            }
            let written = std::fs::write(&file, format!("{}\n", now().as_secs()));
            if let Err(error) = written {
                tracing::warn!(%error, file = %shown(&file), "the time at which the scrub ended could not be recorded");
            }
        }
    }
}

fn log(checked: &Checked) {
    let Checked { bucket, key, verdict, action, .. } = checked;
    if checked.is_bad() {
        tracing::error!(
            bucket,
            key,
            verdict = verdict.name(),
            reason = verdict.reason(),
            action = action.name(),
            "scrub"
        );
    } else if *action == Action::Released {
        tracing::info!(bucket, key, "scrub: the object is sound again, and no longer quarantined");
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time since the last pass ended. An unreadable file counts as no pass.
fn since(file: &Path) -> Duration {
    let last = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    now().saturating_sub(Duration::from_secs(last.unwrap_or(0)))
}
