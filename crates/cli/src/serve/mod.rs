//! `dcs serve`: an object server on a folder, until a signal stops it.

mod args;
mod scrubbing;

pub use args::Serve;

use crate::failure::{Exit, Failure};
use crate::report::Report;
use args::{Log, WriteCache};
use dcs::Engine;
use dcs_server::path::{DataPath, Settings, can_go_direct};
use dcs_server::rest::Keys;
use dcs_server::server::{Config, Server};
use dcs_server::store::{Options, Store};
use dcs_server::tls::Tls;
use dcs_server::users::Users;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

/// Serves.
pub fn run(serve: &Serve, report: &Report) -> Result<(), Failure> {
    log(serve.log);
    let named = |what: &Path| what.display().to_string();
    let options = Options { durability: serve.durability };
    let (store, recovery) = Store::open(&serve.folder, options)
        .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", named(&serve.folder))))?;
    tracing::info!(folder = named(&serve.folder), ?recovery, "opened");
    let users = users(serve, report)?;
    let keys = match &serve.master_key {
        Some(path) => Keys::read(path).map_err(|error| Failure::usage(error.to_string()))?,
        None => Keys::default(),
    };
    let tls = match (&serve.tls_cert, &serve.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Tls::read(certificate, key).map_err(|error| Failure::usage(error.to_string()))?)
        }
        _ => None,
    };
    let config = Config {
        users,
        anonymous: serve.anonymous.into(),
        connections: serve.connections,
        idle: serve.idle,
        head_timeout: serve.head_timeout,
        verify: serve.verify,
        tls,
        status_for: serve.status_for.into(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("the runtime", &error))?;
    runtime.block_on(serve_on(serve, report, config, store, keys))
}

async fn serve_on(
    serve: &Serve,
    report: &Report,
    config: Config,
    store: Arc<Store>,
    keys: Keys,
) -> Result<(), Failure> {
    let failed =
        |what: &str, error: &dyn std::fmt::Display| Failure::new(Exit::Failed, format!("{what}: {error}"));
    let (stop, stopped) = watch::channel(false);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed("signals", &error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| failed("signals", &error))?;
    let mut builder = Engine::builder().commands(serve.transfers);
    if let Some(core) = serve.core {
        builder = builder.core(core);
    }
    let engine = builder.start().map_err(|error| failed("the engine", &error))?;
    let durable = serve.durability == dcs_server::store::Durability::Full;
    let direct = match serve.write_cache {
        WriteCache::Auto => durable && can_go_direct(&serve.folder),
        WriteCache::On => false,
        WriteCache::Off if can_go_direct(&serve.folder) => true,
        WriteCache::Off => {
            let line = format!("{}: files here can't be written past the page cache", serve.folder.display());
            return Err(Failure::usage(line).advise("leave --write-cache to the server (auto)"));
        }
    };
    let settings = Settings { transfers: serve.transfers, min_rate: serve.min_rate, durable, direct };
    let path = DataPath::new(engine, settings);
    let path = Arc::new(path.map_err(|error| failed("the engine", &error))?);
    let scrubbing = serve.scrub_every.map(|every| scrubbing::Plan {
        folder: serve.folder.clone(),
        every,
        rate: serve.scrub_rate,
        store: store.clone(),
        path: path.clone(),
        keys: keys.clone(),
    });
    let server = Server::bind(serve.listen, config, store, path, keys, stopped).await;
    let server = server.map_err(|error| Failure::io(serve.listen, &error))?;
    let address = server.address().map_err(|error| Failure::io(serve.listen, &error))?;
    let scheme = if serve.tls_cert.is_some() { "https" } else { "http" };
    report.line(format_args!("serving {} at {scheme}://{address}", serve.folder.display()));
    let scrubbing = scrubbing.map(|plan| tokio::spawn(plan.follow()));
    let running = tokio::spawn(server.run(serve.grace));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping: answers under way are finished first");
    scrubbing.inspect(tokio::task::JoinHandle::abort);
    let _ = stop.send(true);
    tokio::select! {
        _ = running => Ok(()),
        // A second signal does not wait.
        _ = interrupt.recv() => Err(Failure::new(Exit::Interrupted, "interrupted again: transfers were cut")),
    }
}

/// The users of a file; without one those of the folder, which has one made for it at the first start.
fn users(serve: &Serve, report: &Report) -> Result<Users, Failure> {
    let read = |path: &Path| {
        let failed = |error| Failure::usage(format!("{}: {error}", path.display()));
        Users::read(path).map_err(failed)
    };
    if let Some(path) = &serve.users {
        return read(path);
    }
    let path = serve.folder.join("users");
    if !path.exists() {
        let (access, secret) = (random_word(20)?, random_word(40)?);
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let text = format!("# access key, secret key\n{access} {secret}\n");
        let written =
            file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| Failure::io(path.display(), &error))?;
        report.line(format_args!("a user was made, and is in {}:", path.display()));
        report.line(format_args!("  access key {access}\n  secret key {secret}"));
    }
    read(&path)
}

/// Letters and digits, at random.
fn random_word(length: usize) -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Failed, format!("random bytes: {error}")))?;
    Ok(bytes.into_iter().map(|byte| LETTERS[usize::from(byte % 32)] as char).collect())
}

/// Logs go to standard error. s3s reports each refused request as an error of its own; the access log has them.
fn log(format: Log) {
    let filter = EnvFilter::try_from_env("DCS_LOG").unwrap_or_else(|_| EnvFilter::new("info,s3s=off"));
    // A file, the journal and a container's log have no colours.
    let colours = std::io::stderr().is_terminal();
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    // Somebody else's subscriber, as in tests, stays.
    let _ = match format {
        Log::Text => builder.try_init(),
        Log::Json => builder.json().try_init(),
    };
}
