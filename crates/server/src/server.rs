//! Listens, and serves connections within limits until it is told to stop.

use crate::api::Api;
use crate::connection;
use crate::path::DataPath;
use crate::rest::Keys;
use crate::status::StatusFor;
use crate::store::Store;
use crate::tls::{self, Tls};
use crate::users::{Anonymous, Users};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, watch};

/// How a server serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who may come.
    pub users: Users,
    /// What those may do who don't say who they are.
    pub anonymous: Anonymous,
    /// Connections at a time; others wait in the kernel's queue.
    pub connections: usize,
    /// Ends a connection on which no request comes for so long.
    pub idle: Duration,
    /// Ends a connection on which a request's head, or a small answer, takes longer.
    pub head_timeout: Duration,
    /// Computes the digest of whole objects that are read, and cuts the answer short where it is wrong.
    pub verify: bool,
    /// TLS in front of every connection.
    pub tls: Option<Tls>,
    /// Who may see figures and the status page.
    pub status_for: StatusFor,
}

/// What all connections share.
pub struct Shared {
    pub(crate) config: Config,
    pub(crate) service: S3Service,
    pub(crate) path: Arc<DataPath>,
    pub(crate) store: Arc<Store>,
    /// Whoever asks for the engine's health.
    pub(crate) asks: Mutex<()>,
    places: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

impl Shared {
    /// Connections that are open.
    pub(crate) fn connections(&self) -> usize {
        // The place for the next one is taken before it comes.
        self.config.connections.saturating_sub(self.places.available_permits()).saturating_sub(1)
    }

    /// The server is to stop: connections end after the answer that they are at.
    pub(crate) fn stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until it is to stop.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.clone();
        // Where nobody can say it any more, it is to stop too.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

/// What s3s may keep in memory of a request. The longest body that is no object's data completes an upload of 10000 parts, or
/// deletes 1000 objects of the longest names. Forms are refused, though s3s reads them first.
fn limits() -> S3Config {
    let mut limits = S3Config::default();
    limits.xml_max_body_size = 8 << 20;
    limits.post_object_max_file_size = 64 << 10;
    limits.form_max_field_size = 16 << 10;
    limits.form_max_fields_size = 64 << 10;
    limits.form_max_parts = 64;
    limits
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
}

impl Server {
    /// Listens there. `stop` says when to stop.
    ///
    /// # Errors
    ///
    /// The address can't be had.
    pub async fn bind(
        address: SocketAddr,
        config: Config,
        store: Arc<Store>,
        path: Arc<DataPath>,
        keys: Keys,
        stop: watch::Receiver<bool>,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address).await?;
        let mut builder = S3ServiceBuilder::new(Api {
            store: store.clone(),
            path: path.clone(),
            keys,
            verify: config.verify,
        });
        builder.set_auth(config.users.clone());
        builder.set_access(config.anonymous);
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits()))));
        let places = Arc::new(Semaphore::new(config.connections));
        let service = builder.build();
        let (asks, of_shared) = (Mutex::new(()), places.clone());
        let shared = Arc::new(Shared { config, service, path, store, asks, places: of_shared, stop });
        Ok(Server { listener, shared, places })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is to stop, and then until the answers under way are sent, at most for `grace`.
    pub async fn run(self, grace: Duration) {
        loop {
            let place = self.places.clone().acquire_owned().await.expect("it is never closed");
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = self.shared.stopped() => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, or the peer is gone already: the others go on.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            // Answers are whole when they are written.
            let _ = stream.set_nodelay(true);
            let shared = self.shared.clone();
            tokio::spawn(async move {
                match shared.config.tls.clone() {
                    Some(tls) => tls::serve(stream, peer, &tls, shared).await,
                    None => connection::serve(stream, peer, shared).await,
                }
                drop(place);
            });
        }
        let all = u32::try_from(self.shared.config.connections).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(grace, self.places.acquire_many(all)).await;
    }
}
