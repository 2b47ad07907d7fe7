//! `dcs d2d nic`: the NIC, whose wire leads to a UDP socket, or to a tap device, of this machine.

use super::args;
use super::function::{Kind, PAYLOAD, Shared, report_once, serve};
use super::tap::{FRAME, Tap, dropped};
use crate::failure::{Exit, Failure};
use crate::report::Report;
use crate::stream::channel::random;
use dcs_d2d::nic::Config;
use dcs_d2d::{CREDIT, Nic};
use dcs_vfio_user::pci::Identity;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Frames that are taken from the function at a time.
const FRAMES: usize = 64;
/// Bytes kept for an SSD in addition to its streams' data: a grant has 20.
const GRANTS: usize = 1 << 20;
/// Interval at which a tap device is checked, and one that has failed is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Class "other network controller", to which no stock driver binds.
const IDENTITY: Identity =
    Identity { vendor: 0xdc51, device: 0x0004, class: [0x02, 0x80, 0x00], revision: 1 };

/// The wire of the NIC.
enum Wire {
    /// Socket for datagrams, and the host to which they go, at their own ports.
    Udp(UdpSocket, IpAddr),
    /// Device for unchanged frames.
    Tap(Tap),
}

impl Wire {
    fn open(options: &args::Nic) -> Result<Wire, Failure> {
        match (&options.tap, options.udp) {
            (Some(name), _) => Tap::open(name).map(Wire::Tap).map_err(|error| untapped(name, &error)),
            (None, Some(to)) => {
                let any: IpAddr = match to {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = UdpSocket::bind((any, 0)).map_err(|error| Failure::io(to, &error))?;
                Ok(Wire::Udp(socket, to))
            }
            (None, None) => Err(Failure::usage("--udp or --tap is missing").advise(
                "--udp 127.0.0.1 sends the datagrams to a host; --tap NAME sends frames to a device",
            )),
        }
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        match self {
            Wire::Tap(tap) => tap.send(frame),
            Wire::Udp(socket, to) => match datagram(frame) {
                Some((port, payload)) => socket.send_to(payload, (*to, port)).map(drop),
                None => Ok(()),
            },
        }
    }
}

/// Returns the failure for a tap device that cannot be opened.
fn untapped(name: &str, error: &io::Error) -> Failure {
    let (exit, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            (Exit::Permission, "this needs root, or a device of yours: ip tuntap add NAME mode tap user YOU")
        }
        io::ErrorKind::NotFound => (Exit::NotFound, "load the module: modprobe tun"),
        io::ErrorKind::ResourceBusy => (Exit::Failed, "another program uses it: name another one"),
        _ => (Exit::Usage, "name a tap device, or a new one, in at most 15 letters"),
    };
    Failure::new(exit, format!("--tap {name}: {error}")).advise(advice)
}

pub fn run(options: &args::Nic, report: &Report) -> Result<(), Failure> {
    let epoch = random()? as u16;
    let config = Config { payload: PAYLOAD, epoch, ..Config::new(options.served.streams as u16) };
    let machine = Nic::new(config).map_err(|error| Failure::usage(error.to_string()))?;
    // The data that may be in flight to an SSD without a grant, and the headers of its writes.
    let windows = options.served.streams * config.window as usize * CREDIT as usize;
    let kind = Kind {
        name: "nic",
        identity: IDENTITY,
        registers: config.registers(),
        aperture: config.aperture(),
        keeps: Some(GRANTS + 2 * windows),
    };
    let wire = Wire::open(options)?;
    let serving = serve(machine, &kind, &options.served, report)?;
    let (shared, lost) = (&serving.shared, OnceLock::new());
    let name = options.tap.as_deref().unwrap_or_default();
    let link = Link { shared, is_up: Mutex::new(true), name, report };
    std::thread::scope(|scope| {
        if let Wire::Tap(tap) = &wire {
            link.look(tap);
            let hears = std::thread::Builder::new().name("dcs-d2d-tap".into());
            let hear = || hear(tap, &link);
            hears.spawn_scoped(scope, hear).map_err(|error| Failure::io("a thread", &error))?;
        }
        let mut frames = Vec::new();
        let send = || {
            {
                let mut machine = shared.lock();
                let now = shared.now();
                frames.extend(std::iter::from_fn(|| machine.next_frame(now)).take(FRAMES));
            }
            let worked = !frames.is_empty();
            for frame in frames.drain(..) {
                if let Err(error) = wire.send(&frame.bytes) {
                    if let Wire::Tap(tap) = &wire {
                        link.look(tap);
                    }
                    report_once(&lost, report, "a datagram is lost", &error);
                }
            }
            worked
        };
        serving.run(|_| (), send)
    })
}

/// The link of a NIC whose wire is a tap device. While it is down, streams end with an error, and none starts.
struct Link<'a> {
    shared: &'a Shared<Nic>,
    is_up: Mutex<bool>,
    name: &'a str,
    report: &'a Report,
}

impl Link<'_> {
    /// Passes the state of the tap device on to the NIC, and reports it if it has changed.
    fn look(&self, tap: &Tap) {
        // Locked, so that the NIC gets changes in their order.
        let mut was_up = self.is_up.lock().unwrap_or_else(PoisonError::into_inner);
        let is_up = tap.is_up();
        if std::mem::replace(&mut *was_up, is_up) == is_up {
            return;
        }
        self.shared.touch(|machine, _| machine.set_link(is_up));
        let name = self.name;
        self.report.remark(match is_up {
            true => format!("dcs: {name} is up"),
            false => format!(
                "dcs: {name} is down, so streams have no link: ip link set {name} up; if it was deleted, start dcs d2d nic again"
            ),
        });
    }

    /// Reports frames that the kernel has dropped since the last call, because they came faster than the NIC took them.
    fn report_dropped(&self, before: &mut Option<u64>) {
        let now = dropped(self.name);
        let more = now.zip(*before).map_or(0, |(now, before)| now.saturating_sub(before));
        if more > 0 {
            let line = format!("{}: the kernel dropped {more} frames before the NIC took them", self.name);
            self.report.failure(
                &Failure::new(Exit::Failed, line).advise("recordings may have holes: send more slowly"),
            );
        }
        *before = now;
    }
}

/// Takes frames from the wire until the process ends, and watches the link.
fn hear(tap: &Tap, link: &Link) {
    let (mut frame, mut before, mut looked) = (vec![0; FRAME], dropped(link.name), Instant::now());
    loop {
        let is_there = tap.wait(PAUSE);
        if looked.elapsed() >= PAUSE {
            looked = Instant::now();
            link.look(tap);
            link.report_dropped(&mut before);
        }
        if !is_there {
            continue;
        }
        match tap.receive(&mut frame) {
            // Frames of no stream are dropped: there is no legacy function.
            Ok(length) => link.shared.touch(|machine, now| _ = machine.receive(&frame[..length], now)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                link.look(tap);
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Returns the destination port and the payload of a frame's datagram; `None` if it is not UDP over IPv4.
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
