//! Event loops: a thread for each core after the first. Accepted connections are handed to them.

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

/// A core: its connections and its event loop.
pub(crate) struct Core {
    pub shared: Arc<Shared>,
    open: Arc<AtomicUsize>,
    /// Event loop of another thread; `None` for the first core, which uses the loop that accepts.
    beside: Option<EventLoop>,
}

/// Event loop on its own thread. Dropping it cuts the connections that are left.
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

/// A connection's permit, and its count in its core. Both are given back when it is dropped.
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
    /// Makes a core of the calling thread's event loop.
    pub fn on_this_thread(shared: Arc<Shared>) -> Core {
        Core { shared, open: Arc::default(), beside: None }
    }

    /// Makes a core with its own thread.
    pub fn on_new_thread(shared: Arc<Shared>) -> io::Result<Core> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handed, connections) = unbounded_channel();
        let of_loop = shared.clone();
        let run = move || runtime.block_on(take(connections, of_loop));
        let thread = Some(thread::Builder::new().name("serve".into()).spawn(run)?);
        let beside = Some(EventLoop { handed: Some(handed), thread });
        Ok(Core { shared, open: Arc::default(), beside })
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Serves a connection to its end.
    pub fn serve(&self, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) -> io::Result<()> {
        self.open.fetch_add(1, Relaxed);
        let permit = Permit { open: self.open.clone(), _permit: permit };
        let Some(beside) = &self.beside else {
            spawn(stream, peer, permit, self.shared.clone());
            return Ok(());
        };
        // The core's own loop polls the socket from now on.
        let accepted = Accepted { stream: stream.into_std()?, peer, permit };
        let handed = beside.handed.as_ref().and_then(|handed| handed.send(accepted).ok());
        handed.ok_or_else(|| io::Error::other("the event loop has ended"))
    }
}

/// Serves connections as they are handed over, until no more can come.
async fn take(mut connections: UnboundedReceiver<Accepted>, shared: Arc<Shared>) {
    while let Some(Accepted { stream, peer, permit }) = connections.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => spawn(stream, peer, permit, shared.clone()),
            Err(error) => tracing::warn!(%error, "a connection could not be taken over"),
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
