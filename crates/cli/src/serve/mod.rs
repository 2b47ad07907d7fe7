//! `dcs serve`: runs an object server on a folder until a signal stops it.
//!
//! | module | contents |
//! |---|---|
//! | `args` | the command line of `dcs serve` |
//! | `descriptors` | as many file descriptors as connections and transfers may need |
//! | `listen` | the address that `dcs serve` listens on, as users name it |
//! | `reread` | the file of users, read again on SIGHUP |
//! | `scrubbing` | the server's own slow scrub |

mod args;
mod descriptors;
mod listen;
mod reread;
mod scrubbing;

pub use args::Serve;

use crate::failure::{Exit, Failure};
use crate::names::shown;
use crate::report::Report;
use args::{Log, WriteCache};
use dcs::Engine;
use dcs_server::encryption::Keys;
use dcs_server::server::{Config, Server};
use dcs_server::store::{Durability, Options, PACK_MAX, Recovery, Store};
use dcs_server::tls::Tls;
use dcs_server::transfers::{DataPath, Settings, can_go_direct};
use dcs_server::users::Users;
use nix::sched::sched_getaffinity;
use nix::unistd::Pid;
use std::io::{IsTerminal, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Serves. All errors in the options are found before anything is made in the folder.
pub fn run(serve: &Serve, report: &Report) -> Result<(), Failure> {
    log(serve.log);
    let named = |what: &Path| shown(what).to_string();
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
    let (connections, transfers) =
        descriptors::room_for(serve.connections, serve.transfers, tls.is_some(), serve.cores.count())?;
    let given_users = serve.users.as_deref().map(read_users).transpose()?;
    let paths = data_paths(serve, transfers, direct(serve)?)?;
    let listener = serve.listen.bind()?;
    let options = Options { durability: serve.durability, pack: pack(serve)? };
    let (store, recovery) = Store::open(&serve.folder, options)
        .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", named(&serve.folder))))?;
    let Recovery { crashed, unfinished, garbage } = recovery;
    tracing::info!(folder = named(&serve.folder), crashed, unfinished, garbage, "opened");
    if nix::unistd::geteuid().is_root() {
        tracing::warn!(
            "this runs as root, which can do more than an object server needs: a user of its own is safer"
        );
    }
    let users = match given_users {
        Some(users) => users,
        None => own_users(serve, report)?,
    };
    let config = Config {
        users,
        anonymous: serve.anonymous.into(),
        connections,
        idle: serve.idle,
        head_timeout: serve.head_timeout,
        verify: serve.verify,
        tls,
        customer_keys_without_tls: serve.customer_keys_without_tls,
        status_for: serve.status_for.into(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("the runtime", &error))?;
    runtime.block_on(serve_on(serve, report, listener, config, (store, paths, keys)))
}

/// Returns the largest size of objects that share files.
fn pack(serve: &Serve) -> Result<u64, Failure> {
    if serve.pack > PACK_MAX {
        let line = format!("--pack {}: objects of at most {PACK_MAX} bytes can share files", serve.pack);
        return Err(Failure::usage(line).advise("give 128K or less; larger objects have a file each"));
    }
    Ok(serve.pack)
}

/// Returns true if large objects bypass the page cache.
fn direct(serve: &Serve) -> Result<bool, Failure> {
    let durable = serve.durability == Durability::Full;
    // A folder that does not exist yet will be on the file system of its nearest existing parent.
    let there = serve.folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    match serve.write_cache {
        WriteCache::Auto => Ok(durable && can_go_direct(there)),
        WriteCache::On => Ok(false),
        WriteCache::Off if can_go_direct(there) => Ok(true),
        WriteCache::Off => {
            let line = format!("{}: files here can't be written past the page cache", shown(&serve.folder));
            Err(Failure::usage(line).advise("leave --write-cache to the server (auto)"))
        }
    }
}

/// Starts the engine of each core, each with room for all transfers at once.
fn data_paths(serve: &Serve, transfers: u16, direct: bool) -> Result<Vec<Arc<DataPath>>, Failure> {
    let cores = serve.cores.count();
    if !serve.core.is_empty() && serve.core.len() != cores {
        let line = format!("--core names {} processors, but --cores is {cores}", serve.core.len());
        return Err(Failure::usage(line).advise("name one for each: --cores 2 --core 0,1"));
    }
    let builder = |at: usize| match serve.core.get(at) {
        Some(core) => processor(*core).map(|core| Engine::builder().core(core)),
        None => Ok(Engine::builder()),
    };
    let Serve { min_rate, patience, .. } = *serve;
    let durable = serve.durability == Durability::Full;
    let settings = Settings { transfers, min_rate, patience, durable, direct };
    let started = |path: Result<DataPath, dcs::Error>| {
        path.map(Arc::new).map_err(|error| Failure::new(Exit::Failed, format!("the engine: {error}")))
    };
    let first = started(DataPath::start(builder(0)?, settings))?;
    let mut paths = vec![first.clone()];
    for at in 1..cores {
        paths.push(started(first.for_another_core(builder(at)?))?);
    }
    Ok(paths)
}

/// Checks that this process may use the processor.
fn processor(core: usize) -> Result<usize, Failure> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).and_then(|allowed| allowed.is_set(core));
    if allowed.unwrap_or(false) {
        return Ok(core);
    }
    Err(Failure::usage(format!("--core {core}: this process has no such processor"))
        .advise("they are numbered from 0; nproc --all counts them, taskset -p $$ shows which are allowed"))
}

async fn serve_on(
    serve: &Serve,
    report: &Report,
    listener: TcpListener,
    config: Config,
    (store, paths, keys): (Arc<Store>, Vec<Arc<DataPath>>, Keys),
) -> Result<(), Failure> {
    let signal = |kind| signal(kind).map_err(|error| Failure::io("signals", &error));
    let (stop, stopped) = watch::channel(false);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let scrubbing = serve.scrub_every.map(|every| scrubbing::Plan {
        folder: serve.folder.clone(),
        every,
        rate: serve.scrub_rate,
        store: store.clone(),
        path: paths[0].clone(),
        keys: keys.clone(),
    });
    // The task ends with the runtime.
    tokio::spawn(reread::on_hangup(users_file(serve), config.users.clone())?);
    let server = Server::on(listener, config, store, paths, keys, stopped);
    let server = server.map_err(|error| Failure::io(serve.listen, &error))?;
    let address = server.address().map_err(|error| Failure::io(serve.listen, &error))?;
    let scheme = if serve.tls_cert.is_some() { "https" } else { "http" };
    if scheme == "http" && listen::is_open(address.ip()) {
        tracing::warn!(
            %address,
            "other machines can connect, and nothing is encrypted on the way: --tls-cert and --tls-key change that"
        );
    }
    report.line(format_args!("serving {} at {scheme}://{address}", shown(&serve.folder)));
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
        _ = terminate.recv() => Err(Failure::new(Exit::Interrupted, "terminated again: transfers were cut")),
    }
}

/// Returns the path of the file of users.
fn users_file(serve: &Serve) -> PathBuf {
    serve.users.clone().unwrap_or_else(|| serve.folder.join("users"))
}

fn read_users(path: &Path) -> Result<Users, Failure> {
    Users::read(path).map_err(|error| Failure::usage(format!("{}: {error}", shown(&path))))
}

/// Reads the users of the folder. The first start makes one.
fn own_users(serve: &Serve, report: &Report) -> Result<Users, Failure> {
    let path = users_file(serve);
    if !path.exists() {
        let (access, secret) = (random_word(20)?, random_word(40)?);
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let text = format!("# access key, secret key, rights\n{access} {secret} admin\n");
        let written =
            file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| Failure::io(shown(&path), &error))?;
        report.line(format_args!("a user was made, and is in {}:", shown(&path)));
        report.line(format_args!("  access key {access}\n  secret key {secret}"));
    }
    read_users(&path)
}

/// Makes a word of random letters and digits.
fn random_word(length: usize) -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Failed, format!("random bytes: {error}")))?;
    Ok(bytes.into_iter().map(|byte| LETTERS[usize::from(byte % 32)] as char).collect())
}

/// Sets up logs on standard error. s3s reports each refused request as an error of its own; these are in the access
/// log.
fn log(format: Log) {
    let wanted = std::env::var("DCS_LOG").ok().and_then(|wanted| wanted.parse::<Targets>().ok());
    let ordinary = || Targets::new().with_default(LevelFilter::INFO).with_target("s3s", LevelFilter::OFF);
    // Colours are for terminals only, not for files, the journal or a container's log.
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    let lines = match format {
        Log::Text => lines.boxed(),
        Log::Json => lines.json().boxed(),
    };
    let lines = lines.with_filter(wanted.unwrap_or_else(ordinary));
    // Another subscriber, as in tests, stays.
    let _ = tracing_subscriber::registry().with(lines).try_init();
}
