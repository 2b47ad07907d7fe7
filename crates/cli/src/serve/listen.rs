//! The address that `dcs serve` listens on, as users name it.

use crate::failure::Failure;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// One address, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    At(SocketAddr),
    Everywhere(u16),
}

/// Parses `ADDR:PORT`; `PORT`, which only this machine can reach; or `:PORT`, at all addresses.
pub fn parse(text: &str) -> Result<Listen, String> {
    if let Ok(address) = text.parse() {
        return Ok(Listen::At(address));
    }
    if let Ok(port) = text.parse() {
        return Ok(Listen::At(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
    }
    if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse) {
        return Ok(Listen::Everywhere(port));
    }
    Err("it may be ADDR:PORT, as in 10.0.0.1:9000 or [::1]:9000; PORT for this machine only; :PORT for all its addresses".into())
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::At(address) => address.fmt(f),
            Listen::Everywhere(port) => write!(f, ":{port}"),
        }
    }
}

impl Listen {
    /// Binds the address. From now on clients may connect, and wait.
    pub fn bind(self) -> Result<TcpListener, Failure> {
        let bound = match self {
            Listen::At(address) => TcpListener::bind(address),
            // Both address families, if the machine has both.
            Listen::Everywhere(port) => {
                TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => Err(error),
                    _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
                })
            }
        };
        let bound = bound.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        bound.map_err(|error| Failure::io(self, &error))
    }
}

/// Returns true if other machines can reach it.
pub fn is_open(address: IpAddr) -> bool {
    !address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_this_machine() {
        assert_eq!(parse("9000"), parse("127.0.0.1:9000"));
        assert_eq!(parse(":9000"), Ok(Listen::Everywhere(9000)));
        assert!(matches!(parse("[::1]:9000"), Ok(Listen::At(_))));
        for wrong in ["", ":", "70000", "here:9000", "10.0.0.1", "10.0.0.1:"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn open_is_whatever_is_not_loopback() {
        for (address, open) in [
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("0.0.0.0", true),
            ("::", true),
            ("10.0.0.1", true),
        ] {
            assert_eq!(is_open(address.parse().unwrap()), open, "{address}");
        }
    }
}
