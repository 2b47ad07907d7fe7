//! Addresses of streams and their sockets.

use crate::failure::{Exit, Failure};
use dcs::media::Framing;
use rustix::net::sockopt;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, ToSocketAddrs, UdpSocket};
use std::str::FromStr;

/// Buffers of sockets in the kernel: room for a burst of a stream of 100 Mb/s.
const SEND_BUFFER: usize = 1 << 20;
const RECEIVE_BUFFER: usize = 8 << 20;

/// The address of a stream, `udp://HOST:PORT` or `rtp://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub framing: Framing,
    host: String,
    pub port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || {
            format!("'{text}' is not the address of a stream; expected udp://HOST:PORT or rtp://HOST:PORT")
        };
        let (framing, rest) = match text.split_once("://") {
            Some(("udp", rest)) => (Framing::Plain, rest),
            Some(("rtp", rest)) => (Framing::Rtp, rest),
            _ => return Err(wrong()),
        };
        // ffmpeg and VLC listen at udp://@GROUP:PORT.
        let (host, port) = rest.strip_prefix('@').unwrap_or(rest).rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if port == 0 || framing == Framing::Rtp && port == u16::MAX {
            return Err(format!(
                "'{text}': port {port} is invalid; expected 1 to 65535, and for rtp 65534, since reports go to the next port"
            ));
        }
        Ok(Address { framing, host: host.to_string(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.framing == Framing::Rtp { "rtp" } else { "udp" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

/// A network interface, by its name or address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    Name(String),
    Address(IpAddr),
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Interface, String> {
        match text.parse() {
            Ok(address) => Ok(Interface::Address(address)),
            Err(_) if text.is_empty() || text.len() > 15 => {
                Err(format!("'{text}' is not the name of an interface"))
            }
            Err(_) => Ok(Interface::Name(text.to_string())),
        }
    }
}

impl Interface {
    fn index(&self, socket: &UdpSocket) -> io::Result<u32> {
        match self {
            Interface::Name(name) => rustix::net::netdevice::name_to_index(socket, name)
                .map_err(|error| io::Error::other(format!("interface {name}: {}", io::Error::from(error)))),
            Interface::Address(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "with IPv6 an interface has to be given by name, as in eth0",
            )),
        }
    }
}

/// The sockets of an outgoing stream.
#[derive(Debug)]
pub struct Out {
    pub socket: UdpSocket,
    /// Socket for reports, which go to the next port.
    pub reports: Option<UdpSocket>,
    pub to: SocketAddr,
    pub from: IpAddr,
}

impl Address {
    fn failed(&self) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::io(self, &error)
    }

    pub fn resolve(&self) -> Result<SocketAddr, Failure> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut found = found.map_err(|error| {
            Failure::new(Exit::Peer, format!("{self}: {error}")).advise("check the name of the host")
        })?;
        found.next().ok_or_else(|| Failure::new(Exit::Peer, format!("{self}: no such host")))
    }

    /// Opens sockets that send to it.
    pub fn open(&self, ttl: u8, interface: Option<&Interface>) -> Result<Out, Failure> {
        let to = self.resolve()?;
        let socket = sending(to, ttl, interface).map_err(self.failed())?;
        let from = socket.local_addr().map_err(self.failed())?.ip();
        let reports = match self.framing {
            Framing::Plain => None,
            Framing::Rtp => {
                let to = SocketAddr::new(to.ip(), to.port() + 1);
                Some(sending(to, ttl, interface).map_err(self.failed())?)
            }
        };
        Ok(Out { socket, reports, to, from })
    }

    /// Returns the address for a NIC that has no socket of the kernel.
    pub fn resolve_v4(&self) -> Result<SocketAddrV4, Failure> {
        match self.resolve()? {
            SocketAddr::V4(to) => Ok(to),
            SocketAddr::V6(_) => Err(Failure::usage(format!("{self}: such a NIC sends by IPv4 alone"))
                .advise("give an IPv4 address, or leave out --nic")),
        }
    }

    /// Opens a socket that receives at it.
    pub fn listen(&self, interface: Option<&Interface>) -> Result<UdpSocket, Failure> {
        let at = match self.host.as_str() {
            "" => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.port),
            _ => self.resolve()?,
        };
        listening(at, interface).map_err(self.failed())
    }
}

fn sending(to: SocketAddr, ttl: u8, interface: Option<&Interface>) -> io::Result<UdpSocket> {
    let any: IpAddr = match (to, interface) {
        (_, Some(Interface::Address(address))) if !to.ip().is_multicast() => *address,
        (SocketAddr::V4(_), _) => Ipv4Addr::UNSPECIFIED.into(),
        (SocketAddr::V6(_), _) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // The machine may allow less.
    let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER);
    match (to.is_ipv4(), interface.filter(|_| to.ip().is_multicast())) {
        (true, Some(Interface::Address(IpAddr::V4(address)))) => {
            sockopt::set_ip_multicast_if(&socket, address)?;
        }
        (true, Some(interface)) => {
            let index = interface.index(&socket)?;
            let any = Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_multicast_if_with_ifindex(&socket, &any, &any, index)?;
        }
        (false, Some(interface)) => sockopt::set_ipv6_multicast_if(&socket, interface.index(&socket)?)?,
        (_, None) => {}
    }
    if to.is_ipv4() {
        // The address of all is named on purpose.
        sockopt::set_socket_broadcast(&socket, true)?;
        sockopt::set_ip_multicast_ttl(&socket, ttl.into())?;
    } else {
        sockopt::set_ipv6_multicast_hops(&socket, ttl.into())?;
    }
    socket.connect(to)?;
    Ok(socket)
}

fn listening(at: SocketAddr, interface: Option<&Interface>) -> io::Result<UdpSocket> {
    let family =
        if at.is_ipv4() { rustix::net::AddressFamily::INET } else { rustix::net::AddressFamily::INET6 };
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, rustix::net::SocketType::DGRAM, flags, None)?;
    // Several programs may listen to a group.
    sockopt::set_socket_reuseaddr(&socket, at.ip().is_multicast())?;
    rustix::net::bind(&socket, &at)?;
    let socket = UdpSocket::from(socket);
    let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
    match (at.ip(), interface) {
        (IpAddr::V4(group), Some(Interface::Address(IpAddr::V4(address)))) if group.is_multicast() => {
            sockopt::set_ip_add_membership(&socket, &group, address)?;
        }
        (IpAddr::V4(group), Some(interface)) if group.is_multicast() => {
            let (any, index) = (Ipv4Addr::UNSPECIFIED, interface.index(&socket)?);
            sockopt::set_ip_add_membership_with_ifindex(&socket, &group, &any, index)?;
        }
        (IpAddr::V4(group), None) if group.is_multicast() => {
            sockopt::set_ip_add_membership(&socket, &group, &Ipv4Addr::UNSPECIFIED)?;
        }
        (IpAddr::V6(group), interface) if group.is_multicast() => {
            let index = interface.map_or(Ok(0), |interface| interface.index(&socket))?;
            sockopt::set_ipv6_add_membership(&socket, &group, index)?;
        }
        _ => {}
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_go_to_all_of_a_network() {
        let to = SocketAddr::from((Ipv4Addr::new(127, 255, 255, 255), 5004));
        let socket = sending(to, 1, None).unwrap();
        assert_eq!(socket.send(&[7; 188]).unwrap(), 188);
    }

    #[test]
    fn addresses_are_read_and_shown_as_people_write_them() {
        for text in ["udp://239.1.1.1:5004", "rtp://[ff15::1]:6000", "rtp://host.example:1", "udp://:5004"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("udp://@239.1.1.1:5004".parse::<Address>().unwrap().to_string(), "udp://239.1.1.1:5004");
        for text in [
            "239.1.1.1:5004",
            "udp://host",
            "udp://host:0",
            "rtp://host:65535",
            "tcp://host:1",
            "udp://host:65536",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        assert!("an-interface-of-too-many-letters".parse::<Interface>().is_err());
    }
}
