//! The settings of a server, and the state that its connections share.

use crate::access::Anonymous;
use crate::connection::newcomers::Newcomers;
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

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The users, and the rights of others.
    pub users: Users,
    /// The rights of clients without credentials.
    pub anonymous: Anonymous,
    /// Connections at a time. Where there is one more, one that only waits for a request gives way; others
    /// wait in the kernel's queue.
    pub connections: usize,
    /// Ends a connection on which no request comes for so long.
    pub idle: Duration,
    /// Ends a connection on which a request's head takes longer, or whose client takes nothing of a small
    /// answer for so long.
    pub head_timeout: Duration,
    /// Computes the digest of whole objects that are read, and cuts the answer short where it is wrong.
    pub verify: bool,
    /// TLS in front of every connection.
    pub tls: Option<Tls>,
    /// Takes keys of customers over plain connections from other machines, too.
    pub keys_in_the_open: bool,
    /// Who may see figures and the status page.
    pub status_for: StatusFor,
}

/// The state that the connections of a core share.
pub struct Shared {
    pub(crate) config: Config,
    pub(crate) service: S3Service,
    pub(crate) path: Arc<DataPath>,
    /// Those of all cores, the first of which asks for what is of all.
    pub(crate) paths: Arc<[Arc<DataPath>]>,
    pub(crate) store: Arc<Store>,
    /// Those who ask for the engines' health, on any core.
    pub(crate) asks: Arc<Mutex<()>>,
    pub(crate) newcomers: Arc<Newcomers>,
    /// Permits for connections, on all cores.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Shared {
    /// Connections that are open, on all cores.
    pub(crate) fn connections(&self) -> usize {
        self.config.connections.saturating_sub(self.permits.available_permits())
    }

    /// True if nobody on the way can read what comes from there.
    pub(crate) fn is_secure(&self, peer: SocketAddr) -> bool {
        self.config.tls.is_some() || self.config.keys_in_the_open || is_this_machine(peer)
    }

    /// The server is to stop: connections end after the answer that they are at.
    pub(crate) fn stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until it is to stop.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.clone();
        // If nobody can tell it to stop any more, it stops too.
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
