//! Pages for operators, next to S3: `/_dcs/health`, `/_dcs/metrics`, `/_dcs/status.json`, and a page at `/_dcs/`.
//!
//! No bucket's name begins with `_`, so none of these hides an object. `/metrics`, where Prometheus looks
//! first, is the same as `/_dcs/metrics` for a request that is not signed while no bucket has that name.

use crate::metrics::{Now, TEXT};
use crate::shared::Shared;
use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, FORWARDED, LOCATION,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use s3s::Body;
use std::net::SocketAddr;
use std::time::Duration;

const PAGE: &str = include_str!("page.html");

/// Policy of the page: it loads nothing from elsewhere, and no other page may frame it.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                           img-src data:; frame-ancestors 'none'";

const TEXT_PLAIN: &str = "text/plain; charset=utf-8";

/// Clients that may see metrics and the status page. Everybody may ask for health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusFor {
    /// Clients on this machine, unless a proxy says that it asks for another.
    #[default]
    Loopback,
    /// Everybody.
    All,
}

impl StatusFor {
    fn may(self, peer: SocketAddr, request: &Request<()>) -> bool {
        let proxied = request.headers().contains_key(FORWARDED)
            || request.headers().contains_key("x-forwarded-for")
            || request.headers().contains_key("x-real-ip");
        self == StatusFor::All || peer.ip().to_canonical().is_loopback() && !proxied
    }
}

/// Answers a request that is not one of S3; `None` for one of S3.
pub(crate) async fn answer(
    request: &Request<()>,
    peer: SocketAddr,
    shared: &Shared,
) -> Option<Response<Body>> {
    let path = request.uri().path();
    let what = match path.strip_prefix("/_dcs") {
        Some(what) if what.is_empty() || what.starts_with('/') => what,
        _ if path == "/metrics" && asks_for_metrics(request, shared) => "/metrics",
        _ => return None,
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n".into());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(refused);
    }
    if what == "/health" {
        return Some(match health(shared).await {
            Ok(()) => plain(StatusCode::OK, "ok\n".into()),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        });
    }
    if !shared.config.status_for.may(peer, request) {
        return Some(plain(
            StatusCode::FORBIDDEN,
            "only for clients on this machine: start the server with --status-for all to show it to others\n"
                .into(),
        ));
    }
    Some(match what {
        "" => {
            let mut there = plain(StatusCode::PERMANENT_REDIRECT, String::new());
            there.headers_mut().insert(LOCATION, HeaderValue::from_static("/_dcs/"));
            there
        }
        "/" => {
            let mut page = response(StatusCode::OK, "text/html; charset=utf-8", PAGE.into());
            let policy = HeaderValue::from_static(PAGE_POLICY);
            page.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            page
        }
        "/metrics" => response(StatusCode::OK, TEXT, shared.path.metrics.text(&now(shared).await).into()),
        "/status.json" => {
            let figures = shared.path.metrics.json(&now(shared).await).to_string();
            response(StatusCode::OK, "application/json", figures.into())
        }
        _ => plain(
            StatusCode::NOT_FOUND,
            "not found: the pages are health, metrics, status.json and /_dcs/\n".into(),
        ),
    })
}

/// Returns true if a request for `/metrics` is Prometheus's, and not one for a bucket.
fn asks_for_metrics(request: &Request<()>, shared: &Shared) -> bool {
    let unsigned = !request.headers().contains_key(AUTHORIZATION) && request.uri().query().is_none();
    unsigned && *request.method() == Method::GET && matches!(shared.store.bucket("metrics"), Ok(None))
}

/// Longest wait of a transfer for its place in a healthy server.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Checks that store and engine answer, that no transfer waits too long, and that new objects have room. Otherwise
/// returns the reason.
async fn health(shared: &Shared) -> Result<(), String> {
    if shared.stopping() {
        return Err("stopping".into());
    }
    let usage = shared.store.settle().await.and_then(|()| shared.store.usage());
    usage.map_err(|error| format!("the store does not answer: {error}"))?;
    if !shared.store.takes_changes() {
        return Err(
            "the store takes no changes any more: its thread has ended; start the server again".into()
        );
    }
    match shared.store.free() {
        Ok((_, true)) => {}
        Ok((free, false)) => return Err(format!("the file system is full: {free} bytes are free")),
        Err(error) => return Err(format!("the store's file system: {error}")),
    }
    if let Some(wait) = shared.path.longest_wait().filter(|wait| *wait >= WAIT_MAX) {
        return Err(format!("a transfer has been waiting for its place for {} s", wait.as_secs()));
    }
    // One check asks at a time; others wait for it.
    let _health_check = shared.health_check.lock().await;
    for path in shared.paths.iter() {
        path.check_health().await.map_err(|error| format!("the engine does not answer: {error}"))?;
    }
    Ok(())
}

/// Returns the state at the moment.
async fn now(shared: &Shared) -> Now {
    let engine = shared.paths.iter().map(|path| path.statistics()).reduce(std::ops::Add::add);
    Now {
        connections: shared.connections(),
        connections_max: shared.config.connections,
        transfers_max: shared.path.transfers_max(),
        longest_wait: shared.path.longest_wait().unwrap_or_default(),
        engine: engine.unwrap_or_default(),
        usage: shared.store.settle().await.and_then(|()| shared.store.usage()).ok(),
        free: shared.store.free().ok().map(|(free, _)| free),
        quarantined: shared.store.quarantined(),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Body> {
    response(status, TEXT_PLAIN, text.into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_from_elsewhere_sees_no_figures_unless_everybody_may() {
        let plain = Request::new(());
        let proxied = Request::builder().header("X-Forwarded-For", "192.0.2.1").body(()).unwrap();
        let here = ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"];
        let there = ["192.0.2.1:1", "[2001:db8::1]:1"];
        for peer in here.map(|peer| peer.parse().unwrap()) {
            assert!(StatusFor::Loopback.may(peer, &plain) && !StatusFor::Loopback.may(peer, &proxied));
            assert!(StatusFor::All.may(peer, &proxied));
        }
        for peer in there.map(|peer| peer.parse().unwrap()) {
            assert!(!StatusFor::Loopback.may(peer, &plain) && StatusFor::All.may(peer, &plain));
        }
    }
}
