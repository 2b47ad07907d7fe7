//! Event loops: a thread for each core beside the first, to which connections are handed when they have been
//! accepted.

use crate::shared::Shared;
use crate::{connection, tls};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A core: the connections that it serves, and its event loop.
pub(crate) struct Core {
    pub shared: Arc<Shared>,
    open: Arc<AtomicUsize>,
    /// That of another thread; the first core has the one that accepts.
    beside: Option<EventLoop>,
}

/// An event loop on a thread of its own. When it is dropped, connections that are left are cut.
struct EventLoop {
    handed: Option<UnboundedSender<Accepted>>,
    thread: Option<JoinHandle<()>>,
}

/// A connection on its way to its core.
struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    permit: Permit,
}

/// A connection's permit among all, and its count in its core. It is given back when dropped.
struct Permit {
    open: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

impl Core {
    /// The core of the calling thread's event loop.
    pub fn here(shared: Arc<Shared>) -> Core {
        Core { shared, open: Arc::default(), beside: None }
    }

    /// A core with a thread of its own.
    pub fn beside(shared: Arc<Shared>) -> io::Result<Core> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handed, connections) = unbounded_channel();
        let of_loop = shared.clone();
        let run = move || runtime.block_on(take(connections, of_loop));
        let thread = Some(thread::Builder::new().name("serve".into()).spawn(run)?);
        let beside = Some(EventLoop { handed: Some(handed), thread });
        Ok(Core { shared, open: Arc::default(), beside })
    }

    /// Connections that it serves.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Serves a connection, to its end.
    pub fn serve(&self, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) -> io::Result<()> {
        self.open.fetch_add(1, Relaxed);
        let permit = Permit { open: self.open.clone(), _permit: permit };
        let Some(beside) = &self.beside else {
            spawn(stream, peer, permit, self.shared.clone());
            return Ok(());
        };
        // Its own loop waits for it from now on.
        let accepted = Accepted { stream: stream.into_std()?, peer, permit };
        let handed = beside.handed.as_ref().and_then(|handed| handed.send(accepted).ok());
        handed.ok_or_else(|| io::Error::other("the event loop has ended"))
    }
}

/// Serves what is handed over, until nothing can be any more.
async fn take(mut connections: UnboundedReceiver<Accepted>, shared: Arc<Shared>) {
    while let Some(Accepted { stream, peer, permit }) = connections.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => spawn(stream, peer, permit, shared.clone()),
            Err(error) => tracing::warn!(%error, "a connection could not be taken in"),
        }
    }
}

fn spawn(stream: TcpStream, peer: SocketAddr, permit: Permit, shared: Arc<Shared>) {
    tokio::spawn(async move {
        match shared.config.tls.clone() {
            Some(tls) => tls::serve(stream, peer, &tls, shared).await,
            None => drop(connection::serve(stream, peer, shared).await),
        }
        drop(permit);
    });
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.handed = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("an event loop panicked");
        }
    }
}
