//! Session descriptions (RFC 8866), by which players find a stream.

use core::net::{IpAddr, SocketAddr};

/// A stream to describe.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// Name of the session.
    pub name: &'a str,
    /// Destination address.
    pub to: SocketAddr,
    /// Source address.
    pub from: IpAddr,
    /// Most hops of a multicast datagram.
    pub ttl: u8,
    /// Number of the session.
    pub id: u64,
}

/// Describes a transport stream over RTP.
///
/// ```
/// use dcs_media::sdp::{Session, describe};
/// let to = "239.1.1.1:5004".parse().unwrap();
/// let text = describe(&Session { name: "One", to, from: "10.0.0.1".parse().unwrap(), ttl: 4, id: 7 });
/// assert!(text.contains("\r\nc=IN IP4 239.1.1.1/4\r\n") && text.contains("\r\nm=video 5004 RTP/AVP 33\r\n"));
/// ```
pub fn describe(session: &Session<'_>) -> String {
    let family = |address: IpAddr| if address.is_ipv4() { "IP4" } else { "IP6" };
    // The name must not end a line; an empty one becomes a blank.
    let name: String = session.name.chars().filter(|char| !char.is_control()).collect();
    let name = if name.is_empty() { " " } else { &name };
    let to = session.to.ip();
    // For an IPv6 group the hops are not stated.
    let ttl = if to.is_multicast() && to.is_ipv4() { format!("/{}", session.ttl) } else { String::new() };
    let filter = match to.is_multicast() {
        true => format!("a=source-filter: incl IN {} {to} {}\r\n", family(to), session.from),
        false => String::new(),
    };
    format!(
        "v=0\r\no=- {id} 1 IN {family} {from}\r\ns={name}\r\nc=IN {to_family} {to}{ttl}\r\nt=0 0\r\n\
         a=tool:dcs\r\na=type:broadcast\r\n{filter}m=video {port} RTP/AVP 33\r\na=rtpmap:33 MP2T/90000\r\n",
        id = session.id,
        family = family(session.from),
        from = session.from,
        to_family = family(to),
        port = session.to.port(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_breaks_no_line(name in any::<String>(), group: bool, six: bool) {
            let to = match (group, six) {
                (false, false) => "10.1.2.3:4000",
                (true, false) => "239.0.0.1:4000",
                (false, true) => "[2001:db8::1]:4000",
                (true, true) => "[ff15::1]:4000",
            };
            let from = if six { "2001:db8::2" } else { "10.0.0.2" };
            let text = describe(&Session { name: &name, to: to.parse().unwrap(), from: from.parse().unwrap(), ttl: 1, id: 1 });
            prop_assert!(text.ends_with("\r\n"));
            for line in text.trim_end_matches("\r\n").split("\r\n") {
                prop_assert!(line.len() >= 3 && line.as_bytes()[1] == b'=' && !line.contains('\n'), "{:?}", line);
            }
            prop_assert_eq!(text.contains("source-filter"), group);
        }
    }
}
