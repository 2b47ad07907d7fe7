//! Listens, and serves connections within limits until it is told to stop.

use crate::access::Access;
use crate::api::Api;
use crate::connection::xml_body::XML_MAX;
use crate::cores::Core;
use crate::encryption::Keys;
use crate::shared::Shared;
use crate::store::Store;
use crate::transfers::DataPath;
use rustix::net::sockopt::set_tcp_user_timeout;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};

pub use crate::shared::Config;

/// Returns the limits of what s3s may keep in memory of a request. Forms are refused, but s3s reads them first.
fn limits() -> S3Config {
    let mut limits = S3Config::default();
    limits.xml_max_body_size = XML_MAX as usize;
    limits.post_object_max_file_size = 64 << 10;
    limits.form_max_field_size = 16 << 10;
    limits.form_max_fields_size = 64 << 10;
    limits.form_max_parts = 64;
    limits
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    /// One core at least. The first has the event loop that accepts.
    cores: Vec<Core>,
    permits: Arc<Semaphore>,
}

impl Server {
    /// Listens on an address, with a data path for each core. `stop` tells the server to stop.
    ///
    /// # Errors
    ///
    /// Fails if the address is not available, or as [`Server::on`] does.
    pub async fn bind(
        address: SocketAddr,
        config: Config,
        store: Arc<Store>,
        paths: Vec<Arc<DataPath>>,
        keys: Keys,
        stop: watch::Receiver<bool>,
    ) -> io::Result<Server> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Server::on(listener, config, store, paths, keys, stop)
    }

    /// Serves on a socket that listens already and does not block, with a data path for each core. The calling event
    /// loop is the first core's; each other core gets a thread.
    ///
    /// # Errors
    ///
    /// Fails if the runtime refuses the socket, there is no path, or a thread can't be started.
    pub fn on(
        listener: std::net::TcpListener,
        config: Config,
        store: Arc<Store>,
        paths: Vec<Arc<DataPath>>,
        keys: Keys,
        stop: watch::Receiver<bool>,
    ) -> io::Result<Server> {
        if paths.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a server needs at least one core"));
        }
        let listener = TcpListener::from_std(listener)?;
        let access = Access::new(config.users.clone(), config.anonymous, store.clone());
        let (permits, health_check) =
            (Arc::new(Semaphore::new(config.connections)), Arc::new(Mutex::new(())));
        let paths: Arc<[_]> = paths.into();
        let shared = |path: &Arc<DataPath>| {
            let mut builder = S3ServiceBuilder::new(Api {
                access: access.clone(),
                store: store.clone(),
                path: path.clone(),
                keys: keys.clone(),
                verify: config.verify,
            });
            builder.set_auth(config.users.clone());
            builder.set_access(access.clone());
            builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits()))));
            Arc::new(Shared {
                config: config.clone(),
                service: builder.build(),
                path: path.clone(),
                paths: paths.clone(),
                store: store.clone(),
                health_check: health_check.clone(),
                newcomers: Arc::default(),
                pulse: Arc::default(),
                permits: permits.clone(),
                stop: stop.clone(),
            })
        };
        let mut cores = vec![Core::on_this_thread(shared(&paths[0]))];
        for path in &paths[1..] {
            cores.push(Core::on_new_thread(shared(path))?);
        }
        Ok(Server { listener, cores, permits })
    }

    /// Returns the state of the first core.
    fn shared(&self) -> &Shared {
        &self.cores[0].shared
    }

    /// Returns the address that the server listens on.
    ///
    /// # Errors
    ///
    /// Returns the socket's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until told to stop, then at most `grace` longer until the answers under way are sent.
    pub async fn run(self, grace: Duration) {
        tokio::select! {
            () = self.accept() => {}
            () = self.shared().stopped() => {}
        }
        let all = u32::try_from(self.shared().config.connections).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(grace, self.permits.acquire_many(all)).await;
    }

    /// Accepts connections, without end. Each goes to the core that serves fewest.
    async fn accept(&self) {
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, or the peer is gone already; other connections are not affected.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let permit = self.permit().await;
            // Answers are complete when they are written.
            let _ = stream.set_nodelay(true);
            // The kernel drops the connection if data stay unacknowledged for this long.
            let untaken = u32::try_from(self.shared().path.patience().most().as_millis() * 2);
            let _ = set_tcp_user_timeout(&stream, untaken.unwrap_or(u32::MAX));
            let core = self.cores.iter().min_by_key(|core| core.open()).expect("there is a first one");
            if let Err(error) = core.serve(stream, peer, permit) {
                tracing::warn!(%error, "a connection could not be handed to its core");
            }
        }
    }

    /// Tells the connection that has waited longest for a request, on any core, to go.
    fn send_one_away(&self) {
        let newcomers = self.cores.iter().map(|core| &core.shared.newcomers);
        let first = newcomers.filter_map(|newcomers| Some((newcomers.since()?, newcomers)));
        if let Some((_, newcomers)) = first.min_by_key(|(since, _)| *since) {
            newcomers.evict_oldest();
        }
    }

    /// Waits for a permit for a connection. If there is none, a connection that only waits for a request gives way; if
    /// there is none of those either, the server waits less long for slow clients.
    async fn permit(&self) -> OwnedSemaphorePermit {
        const RETRY: Duration = Duration::from_millis(50);
        /// Time after which an idle connection, if there is one, has given way.
        const CALL_AFTER: Duration = Duration::from_secs(2);
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return permit;
        }
        let (begun, mut call) = (Instant::now(), None);
        loop {
            self.send_one_away();
            if begun.elapsed() >= CALL_AFTER {
                call.get_or_insert_with(|| self.shared().path.call());
            }
            if let Ok(permit) = tokio::time::timeout(RETRY, self.permits.clone().acquire_owned()).await {
                return permit.expect("it is never closed");
            }
        }
    }
}
