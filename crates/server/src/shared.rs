//! Settings of a server, and the state that its connections share.

use crate::access::Anonymous;
use crate::connection::newcomers::Newcomers;
use crate::connection::pulse::Pulse;
use crate::status::StatusFor;
use crate::store::Store;
use crate::tls::Tls;
use crate::transfers::DataPath;
use crate::users::Users;
use s3s::service::S3Service;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, watch};

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Users and their rights.
    pub users: Users,
    /// Rights of clients without credentials.
    pub anonymous: Anonymous,
    /// Most connections. For one more, a connection that only waits for a request gives way; others wait in the
    /// kernel's queue.
    pub connections: usize,
    /// Longest wait for a request before the connection ends.
    pub idle: Duration,
    /// Longest time for a request's head, and for a client that takes nothing of a small answer, before the connection
    /// ends.
    pub head_timeout: Duration,
    /// True to check the digest of whole objects that are read, and to cut the answer short if it is wrong.
    pub verify: bool,
    /// TLS for every connection, if wanted.
    pub tls: Option<Tls>,
    /// True to take customers' keys over plain connections from other machines too.
    pub customer_keys_without_tls: bool,
    /// Clients that may see metrics and the status page.
    pub status_for: StatusFor,
}

/// State that the connections of a core share.
pub struct Shared {
    pub(crate) config: Config,
    pub(crate) service: S3Service,
    pub(crate) path: Arc<DataPath>,
    /// Data paths of all cores. The first core uses them for questions about the whole server.
    pub(crate) paths: Arc<[Arc<DataPath>]>,
    pub(crate) store: Arc<Store>,
    /// Lock that lets one health check at a time ask the engines, on any core.
    pub(crate) health_check: Arc<Mutex<()>>,
    pub(crate) newcomers: Arc<Newcomers>,
    pub(crate) pulse: Arc<Pulse>,
    /// Permits for connections, of all cores.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Shared {
    /// Returns the open connections of all cores.
    pub(crate) fn connections(&self) -> usize {
        self.config.connections.saturating_sub(self.permits.available_permits())
    }

    /// Returns true if nobody on the way can read what this peer sends.
    pub(crate) fn is_secure(&self, peer: SocketAddr) -> bool {
        self.config.tls.is_some() || self.config.customer_keys_without_tls || is_this_machine(peer)
    }

    /// Returns true once the server is to stop: connections end after their current answer.
    pub(crate) fn stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the server is to stop.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.clone();
        // If nothing can tell it to stop any more, it stops too.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

fn is_this_machine(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_on_this_machine_is_secure_without_tls() {
        let is = |peer: &str| is_this_machine(peer.parse().unwrap());
        assert!(is("127.0.0.1:1") && is("127.8.9.1:1") && is("[::1]:1") && is("[::ffff:127.0.0.1]:1"));
        assert!(!is("192.0.2.1:1") && !is("10.0.0.1:1") && !is("[::ffff:192.0.2.1]:1") && !is("[fe80::1]:1"));
    }
}
