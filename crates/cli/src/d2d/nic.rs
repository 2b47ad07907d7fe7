//! `dcs d2d nic`: the NIC, whose wire leads to a UDP socket of this machine.

use super::args;
use super::function::{Kind, PAYLOAD, serve, tell_once};
use crate::failure::Failure;
use crate::report::Report;
use dcs_d2d::Nic;
use dcs_d2d::nic::Config;
use dcs_vfio_user::pci::Identity;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::OnceLock;

/// Frames that are taken from the function at once.
const FRAMES: usize = 64;
/// The other network controller, to which no stock driver binds.
const IDENTITY: Identity =
    Identity { vendor: 0xdc51, device: 0x0004, class: [0x02, 0x80, 0x00], revision: 1 };

pub fn run(options: &args::Nic, report: &Report) -> Result<(), Failure> {
    let config = Config { payload: PAYLOAD, ..Config::new(options.served.streams as u16) };
    let machine = Nic::new(config).map_err(|error| Failure::usage(error.to_string()))?;
    let kind = Kind {
        name: "nic",
        identity: IDENTITY,
        registers: config.registers(),
        aperture: config.aperture(),
        listens: true,
    };
    let any: IpAddr = match options.udp {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).map_err(|error| Failure::io(options.udp, &error))?;
    let serving = serve(machine, &kind, &options.served, report)?;
    let (shared, told) = (serving.shared.clone(), OnceLock::new());
    let mut frames = Vec::new();
    let wire = move || {
        {
            let mut machine = shared.lock();
            let now = shared.now();
            let next = || machine.next_frame(now);
            frames.extend(std::iter::from_fn(next).take(FRAMES));
        }
        let worked = !frames.is_empty();
        for frame in frames.drain(..) {
            let Some((port, payload)) = datagram(&frame.bytes) else { continue };
            if let Err(error) = socket.send_to(payload, (options.udp, port)) {
                tell_once(&told, report, "a datagram is lost", &error);
            }
        }
        worked
    };
    serving.run(|_| (), wire)
}

/// The port to which a frame's datagram goes, and what that carries. Nothing where it is no UDP over IPv4.
fn datagram(frame: &[u8]) -> Option<(u16, &[u8])> {
    let kind = |at: usize| Some([*frame.get(at)?, *frame.get(at + 1)?]);
    let at = if kind(12)? == [0x81, 0x00] { 16 } else { 12 };
    let packet = frame.get(at + 2..).filter(|_| kind(at) == Some([0x08, 0x00]))?;
    let header = usize::from(packet.first()? & 15) * 4;
    let udp = packet.get(header..).filter(|_| packet.get(9) == Some(&17))?;
    let length = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    Some((u16::from_be_bytes([udp[2], udp[3]]), udp.get(8..length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_found_in_its_frame() {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45]);
        frame.extend([0; 8]);
        frame.push(17);
        frame.extend([0; 10]);
        frame.extend([1, 2, 0x13, 0x8c, 0, 11, 0, 0]);
        frame.extend(b"abc");
        assert_eq!(datagram(&frame), Some((5004, &b"abc"[..])));
        let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        assert_eq!(datagram(&tagged), Some((5004, &b"abc"[..])));
        for end in 0..frame.len() {
            assert_eq!(datagram(&frame[..end]), None);
        }
        frame[23] = 6;
        assert_eq!(datagram(&frame), None);
    }
}
