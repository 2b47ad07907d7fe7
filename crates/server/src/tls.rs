//! TLS in front of a connection.
//!
//! The engine moves bytes between a plain socket and a file. So TLS is a task of its own, which copies between the
//! client's stream and a pair of sockets in this machine. The pair's other end is served like any connection:
//!
//! ```text
//!   client ==TLS==> this task --loopback--> connection, engine
//! ```
//!
//! This path is slower: each byte is encrypted on the server's thread, and copied twice more.

use crate::connection;
use crate::shared::Shared;
use crate::transfers::{Patience, TICK};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// Bytes buffered between TLS and the connection, each way. Small, so that what the engine has sent is nearly what the
/// client has.
const BUFFER: usize = 256 << 10;

/// Most bytes in a TLS record (RFC 8446 section 5.1).
const RECORD: usize = 16 << 10;

/// Reason why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read, or holds no certificate or key in PEM (RFC 7468).
    #[error("{path}: {error}")]
    Pem {
        /// Path of the file.
        path: String,
        /// Error of the system or the PEM parser.
        error: pem::Error,
    },
    /// Users other than its owner and group may read the key.
    #[error(transparent)]
    Open(#[from] crate::secrets::OpenToOthers),
    /// The certificate file has no certificate.
    #[error("{0}: no certificate in PEM")]
    Empty(String),
    /// Certificate and key don't match, or can't be used.
    #[error("the certificate and its key: {0}")]
    Unfit(#[from] rustls::Error),
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads a certificate chain, the server's own first, and its key, both in PEM. Allows TLS 1.2 and 1.3.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if they can't be read or used.
    pub fn read(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let named = |path: &Path| path.display().to_string();
        let failed = |path: &Path| {
            let path = named(path);
            move |error| TlsError::Pem { path, error }
        };
        let chain = CertificateDer::pem_file_iter(certificate).map_err(failed(certificate))?;
        let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(failed(certificate))?;
        if chain.is_empty() {
            return Err(TlsError::Empty(named(certificate)));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
        crate::secrets::check(key)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = builder.with_single_cert(chain, secret)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Serves a connection over TLS until one side ends it.
pub(crate) async fn serve(stream: TcpStream, peer: SocketAddr, tls: &Tls, shared: Arc<Shared>) {
    let (newcomer, away) = shared.newcomers.enter();
    let accepted = tokio::select! {
        accepted = timeout(shared.config.head_timeout, tls.0.accept(stream)) => accepted,
        () = away.notified() => return tracing::debug!(%peer, "a connection without TLS gives way to a new one"),
    };
    drop(newcomer);
    let accepted = match accepted {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(error)) => return tracing::debug!(%error, %peer, "no TLS"),
        Err(_) => return tracing::debug!(%peer, "no TLS in time"),
    };
    let (inside, outside) = match pair().await {
        Ok(pair) => pair,
        Err(error) => return tracing::warn!(%error, "no sockets for a connection over TLS"),
    };
    let patience = shared.path.patience();
    let served = connection::serve(inside, peer, shared);
    let (mut from_client, to_client) = tokio::io::split(accepted);
    let (from_server, mut to_server) = outside.into_split();
    let moved = AtomicU64::new(0);
    let inward = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
        // The server sees the end; the rest of its answer still goes to the client.
        let _ = to_server.shutdown().await;
        std::future::pending::<()>().await;
    };
    let outward = pass(from_server, to_client, &moved);
    // The connection closes its end of the pair when it is done, so that the last bytes go out, followed by an end. A
    // client that keeps its side open is not waited for.
    let answered = async {
        tokio::pin!(served, outward);
        tokio::select! {
            // If the connection broke or gave way, the rest is not sent.
            ended = &mut served => {
                if ended.is_ok() && !while_it_moves(outward, &moved, patience).await {
                    tracing::debug!(%peer, "the client does not take the end of its answer");
                }
            }
            _ = &mut outward => drop(served.await),
        }
    };
    tokio::select! {
        () = answered => {}
        () = inward => {}
    }
}

/// Copies bytes and counts those that were taken, then the end.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut room = vec![0; RECORD];
    loop {
        let read = from.read(&mut room).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&room[..read]).await?;
        to.flush().await?;
        moved.fetch_add(read as u64, Ordering::Relaxed);
    }
}

/// Sends the last bytes while the client takes them. Returns true if all were sent.
async fn while_it_moves<T>(work: impl Future<Output = T>, moved: &AtomicU64, mut patience: Patience) -> bool {
    let mut work = std::pin::pin!(work);
    let mut before = moved.load(Ordering::Relaxed);
    while timeout(TICK, &mut work).await.is_err() {
        let now = moved.load(Ordering::Relaxed);
        patience.moved(now - std::mem::replace(&mut before, now));
        patience.waited(TICK);
        if patience.is_over() {
            return false;
        }
    }
    true
}

/// Makes two connected sockets. They are TCP because the server's connections are.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let outside = TcpStream::connect(listener.local_addr()?).await?;
    let ours = outside.local_addr()?;
    loop {
        let (inside, from) = listener.accept().await?;
        // Another process of this machine may have connected first.
        if from != ours {
            continue;
        }
        for socket in [&inside, &outside] {
            socket.set_nodelay(true)?;
            set_socket_send_buffer_size(socket, BUFFER)?;
            set_socket_recv_buffer_size(socket, BUFFER)?;
        }
        return Ok((inside, outside));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_last_answer_is_waited_for_while_it_is_taken() {
        let moved = AtomicU64::new(0);
        let patience = || Patience::new(2 * TICK, 1);
        assert!(!while_it_moves(std::future::pending::<()>(), &moved, patience()).await, "nobody takes it");
        let slowly = async {
            for _ in 0..8 {
                tokio::time::sleep(TICK / 2).await;
                moved.fetch_add(1000, Ordering::Relaxed);
            }
        };
        assert!(while_it_moves(slowly, &moved, patience()).await, "it takes longer than the patience alone");
    }
}
