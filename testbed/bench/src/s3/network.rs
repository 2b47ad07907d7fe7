//! A network namespace for servers and clients, where all use the same congestion control.
//!
//! A server's connections use the machine's congestion control, and BBR, a default on many, costs more on loopback than all the
//! rest. If permitted (as root), this process moves to a namespace of its own, which has only a loopback, with cubic on its
//! route. No other process's settings change, and no other process reaches the servers.

use crate::harness::connections;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::process::{Command, Stdio};

/// Moves the calling thread, and all that it starts from now on. Returns the resulting congestion control.
pub fn enter() -> String {
    if let Err(error) = try_enter() {
        let machine = connections::default_congestion().unwrap_or_else(|_| "?".into());
        return format!("{machine}, the machine's default: no separate network namespace ({error})");
    }
    connections::default_congestion().map_or("?".into(), |name| format!("{name}, in a network namespace"))
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
