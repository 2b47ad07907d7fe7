//! A network namespace for servers and clients, where congestion control is the same for all of them.
//!
//! A server's connections have the machine's congestion control, and BBR, a default on many, costs more on
//! loopback than all the rest. Where this process may (as root), it moves to a namespace of its own, which
//! has only a loopback, with cubic on its route. Nobody else's settings change, and nobody else reaches the
//! servers.

use crate::harness::wire;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::process::{Command, Stdio};

/// Moves the calling thread, and what it starts from now on. What the congestion control then is.
pub fn enter() -> String {
    if let Err(error) = try_enter() {
        let machine = wire::default_congestion().unwrap_or_else(|_| "?".into());
        return format!("{machine}, the machine's: no network namespace of its own ({error})");
    }
    wire::default_congestion().map_or("?".into(), |name| format!("{name}, in a network namespace"))
}

fn try_enter() -> io::Result<()> {
    let before = File::open("/proc/thread-self/ns/net")?;
    unshare(CloneFlags::CLONE_NEWNET)?;
    let result = ip("link set lo up").and_then(|()| {
        ip("route replace local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 congctl cubic")
    });
    if result.is_err() {
        setns(before, CloneFlags::CLONE_NEWNET)?;
    }
    result
}

fn ip(line: &str) -> io::Result<()> {
    let mut command = Command::new("ip");
    command.args(line.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("ip {line}: {status}"))),
        Err(error) => Err(io::Error::new(error.kind(), format!("ip: {error}"))),
    }
}
