//! File descriptors: as many as connections and transfers may need.

use crate::failure::Failure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors of the store, the engine, the runtime, logs, and the server's own transfers.
const BASE: u64 = 512;

/// Descriptors of each core after the first: its ring, its events, its event loop.
const OF_CORE: u64 = 16;

/// Descriptors of a transfer: its file, and the engine's own of both ends.
const OF_TRANSFER: u64 = 3;

/// Raises the limit of descriptors as far as possible. Returns the connections and transfers that it allows: those
/// requested, or fewer.
pub fn room_for(
    connections: usize,
    transfers: u16,
    tls: bool,
    cores: usize,
) -> Result<(usize, u16), Failure> {
    let of_connection = if tls { 3 } else { 1 };
    let base = BASE + (cores as u64 - 1) * OF_CORE;
    // A connection has at most one transfer at a time.
    let transfers = transfers.min(u16::try_from(connections).unwrap_or(u16::MAX));
    let needed = base + connections as u64 * of_connection + u64::from(transfers) * OF_TRANSFER;
    let limit = raise(needed);
    if limit >= needed {
        return Ok((connections, transfers));
    }
    let (fewer, fewer_transfers) = share(limit, base, of_connection, (connections, transfers));
    if fewer == 0 || fewer_transfers == 0 {
        let line = format!("only {limit} files may be open at once, which is too few to serve anybody");
        return Err(Failure::usage(line).advise(format!("raise the limit: ulimit -n {needed}")));
    }
    tracing::warn!(
        limit,
        needed,
        connections = fewer,
        transfers = fewer_transfers,
        "the limit of open files is too low for the requested connections and transfers: there will be fewer (ulimit -n)"
    );
    Ok((fewer, fewer_transfers))
}

/// Returns limits that fit, in the same proportion.
fn share(limit: u64, base: u64, of_connection: u64, (connections, transfers): (usize, u16)) -> (usize, u16) {
    let all = connections as u64 * of_connection + u64::from(transfers) * OF_TRANSFER;
    let left = limit.saturating_sub(base.min(limit / 2));
    let part = |wanted: u64| (u128::from(wanted) * u128::from(left) / u128::from(all.max(1))) as u64;
    (part(connections as u64) as usize, part(transfers.into()) as u16)
}

/// Returns the limit after raising it to what is needed, or as far as possible.
fn raise(needed: u64) -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    if soft >= needed {
        return soft;
    }
    let wanted = needed.min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map_or(soft, |()| wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_made_fewer_in_proportion() {
        let (connections, transfers) = share(1024, BASE, 1, (2048, 512));
        assert!(connections as u64 + u64::from(transfers) * OF_TRANSFER <= 1024 - BASE);
        assert!((1..2048).contains(&connections) && (1..512).contains(&transfers));
        assert_eq!(share(0, BASE, 1, (2048, 512)), (0, 0));
    }
}
