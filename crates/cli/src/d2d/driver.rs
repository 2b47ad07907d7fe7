//! `dcs d2d stream`: the driver of a D2D SSD and a D2D NIC, in user space. It writes their registers, sleeps, and
//! tells how the streams ended.

use super::args;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::report::Report;
use crate::stream::args::Rate as Wanted;
use dcs::media::Framing;
use dcs_d2d::driver::{Layout, Receive, Report as Told, Send, Write};
use dcs_d2d::register::{
    APERTURE_BASE, EVENT, Error, Event, GRANT, IDENTITY, Identity, Kind, Rate, State, Task, Times,
};
use dcs_d2d::uoe::{Rtp, Template};
use dcs_vfio::{Container, Function, Mapping, VfioError};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

/// Stall limits after which a sleeper looks whether the functions are still there. One whose process has gone says
/// nothing by itself.
const LOOK: u32 = 4;
/// Bytes of a packet's payload: seven packets of an MPEG transport stream.
const PAYLOAD: u16 = 1316;

/// A function whose registers are here.
struct Device {
    function: Function,
    registers: Mapping,
    layout: Layout,
}

impl Device {
    fn open(container: &Container, name: &str, kind: Kind) -> Result<Device, Failure> {
        let address = dcs_vfio::address(name).ok_or_else(|| {
            Failure::usage(format!("'{name}' is no function, as 0000:00:04.0")).advise("lspci lists them")
        })?;
        let failed = |error: VfioError| refused(&address, &error);
        dcs_vfio::take(&address).map_err(failed)?;
        let function = Function::open(container, &address).map_err(failed)?;
        function.reset().map_err(failed)?;
        function.enable(true).map_err(failed)?;
        let registers = function.bar(0).map_err(failed)?;
        let layout = Layout::from_values(Layout::READS.map(|offset| registers.read64(offset)));
        let layout = layout.map_err(|error| Failure::usage(format!("{address}: {error}")))?;
        if layout.kind != kind {
            return Err(Failure::usage(format!(
                "{address} is the other kind of function: {:?}",
                layout.kind
            ))
            .advise("the SSD comes first, then the NIC"));
        }
        Ok(Device { function, registers, layout })
    }

    fn write(&self, writes: &[Write]) {
        writes.iter().for_each(|write| self.registers.write64(write.offset, write.value));
    }

    fn read<const N: usize>(&self, offsets: [u64; N]) -> [u64; N] {
        offsets.map(|offset| self.registers.read64(offset))
    }

    /// An error where nobody answers any more: all bits are 1 then, as on any bus.
    fn check(&self) -> Result<(), Failure> {
        match Identity::from_bits(self.registers.read64(IDENTITY)).known() {
            Some(kind) if kind == self.layout.kind => Ok(()),
            _ => {
                Err(Failure::new(Exit::Failed, format!("{}: the function has gone", self.function.address()))
                    .advise("see what its process says: dcs d2d ssd, dcs d2d nic"))
            }
        }
    }

    fn told(&self, stream: u16) -> Told {
        Told::from_values(self.read(self.layout.report_reads(stream)))
    }
}

/// The failure for a function that cannot be had by VFIO, with what to do.
fn refused(address: &str, error: &VfioError) -> Failure {
    let exit = match error {
        VfioError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Exit::Permission
        }
        VfioError::Missing(..) => Exit::NotFound,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{address}: {error}"))
        .advise("it takes root, the module vfio-pci and an IOMMU: dcs doctor says what there is")
}

/// The two functions and what they are to do.
struct Driver<'a> {
    options: &'a args::Stream,
    ssd: Device,
    nic: Device,
    to: Ipv4Addr,
    rate: Rate,
}

pub fn run(options: &args::Stream, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let to = destination(options)?;
    let rate = rate(options)?;
    let container = Container::new().map_err(|error| refused(&options.ssd, &error))?;
    let ssd = Device::open(&container, &options.ssd, Kind::Ssd)?;
    let nic = Device::open(&container, &options.nic, Kind::Nic)?;
    let driver = Driver { options, ssd, nic, to, rate };
    driver.check()?;
    let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map_err(|error| Failure::io("an event", &error.into()))?;
    let failed = |error: VfioError| refused(&options.ssd, &error);
    driver.ssd.function.interrupts(&[event.as_fd()]).map_err(failed)?;
    let guard = interrupt::transferring();
    driver.start()?;
    let streams = options.streams;
    report.object(
        &json!({ "event": "streaming", "command": "d2d", "streams": streams, "to": options.to.to_string() }),
    );
    report.remark(format_args!("dcs: {streams} streams go; the processor is not needed until one has ended"));
    let woken = driver.sleep(&event).inspect_err(|_| {
        report.remark(format_args!("dcs: a function has gone; the kernel may take a minute to let go of it"));
    });
    drop(guard);
    match woken? {
        Some(woken) => driver.tell(woken, report),
        // The functions are reset when they are let go of.
        None => Err(Failure::new(Exit::Interrupted, "interrupted; the streams have ended where they were")),
    }
}

/// The address of the datagrams: of IPv4, and with a port for each stream.
fn destination(options: &args::Stream) -> Result<Ipv4Addr, Failure> {
    let SocketAddr::V4(to) = options.to.resolve()? else {
        return Err(Failure::usage(format!("{}: a D2D NIC sends by IPv4", options.to)));
    };
    let last = usize::from(to.port()) + 2 * (options.streams - 1);
    if last > usize::from(u16::MAX) {
        let line = format!("{}: there are no ports for {} streams behind it", options.to, options.streams);
        return Err(Failure::usage(line).advise("each stream has the second next port: begin at a lower one"));
    }
    Ok(*to.ip())
}

fn rate(options: &args::Stream) -> Result<Rate, Failure> {
    let bytes_per_second = match options.rate {
        Wanted::Free => return Ok(Rate::default()),
        Wanted::Pcr => {
            return Err(Failure::usage("--rate pcr: a D2D SSD looks at no byte of the video")
                .advise("say its rate in bits a second: --rate 7.82M"));
        }
        Wanted::Bits(bits) => bits.div_ceil(8),
    };
    let granularity_us = u32::try_from(options.slot.as_micros()).unwrap_or(u32::MAX);
    if bytes_per_second >= 1 << 40 || !(1..1 << 24).contains(&granularity_us) {
        return Err(Failure::usage("a rate is below 8.7 Tb/s, a slot from 1 us to 16 s"));
    }
    Ok(Rate { bytes_per_second, granularity_us })
}

impl Driver<'_> {
    /// The video and the streams, against what the functions have.
    fn check(&self) -> Result<(), Failure> {
        let args::Stream { block, length, streams, .. } = *self.options;
        let least = [&self.ssd, &self.nic].map(|device| device.layout.capabilities.streams).into_iter().min();
        if streams > usize::from(least.unwrap_or(0)) {
            return Err(Failure::usage(format!(
                "--streams {streams}: the functions have {}",
                least.unwrap_or(0)
            )));
        }
        let shift = self.ssd.layout.medium.block_shift;
        let blocks = length.div_ceil(1 << shift);
        let is_there = block.checked_add(blocks).is_some_and(|end| end <= self.ssd.layout.blocks);
        if length == 0 || blocks > u64::from(u32::MAX) || !is_there {
            let line =
                format!("{length} bytes from block {block}: the SSD has {} blocks", self.ssd.layout.blocks);
            return Err(Failure::usage(line).advise("--length and --block name the video's bytes on the SSD"));
        }
        Ok(())
    }

    fn template(&self, stream: u16) -> Template {
        let port = self.options.to.port + 2 * stream;
        let rtp = Rtp { kind: 33, sequence: 0, timestamp: 0, ssrc: u32::from(stream) + 1 };
        Template {
            mac_destination: self.options.mac,
            mac_source: [2, 0, 0, 0, 0, 2],
            tag: None,
            service: 0,
            identification: 0,
            dont_fragment: true,
            ttl: 64,
            source: self.options.from.octets(),
            destination: self.to.octets(),
            source_port: port,
            destination_port: port,
            rtp: (self.options.to.framing == Framing::Rtp).then_some(rtp),
            payload: PAYLOAD,
        }
    }

    /// Writes what all of them need, and starts them.
    fn start(&self) -> Result<(), Failure> {
        let Driver { options, ssd, nic, rate, .. } = self;
        let bar = |device: &Device, index| {
            device.function.bar_address(index).map_err(|error| refused(device.function.address(), &error))
        };
        let (aperture, grants) = (bar(nic, 2)?, bar(ssd, 0)?);
        nic.write(&[Write { offset: APERTURE_BASE, value: aperture }]);
        let shift = ssd.layout.medium.block_shift;
        let task = Task { lba: options.block, blocks: options.length.div_ceil(1 << shift) as u32 };
        let tasks =
            |stream| ssd.layout.tasks(stream, &[task]).ok_or_else(|| Failure::usage("no room for a task"));
        let times = |stall: Duration| {
            let stall_us = u32::try_from(stall.as_micros()).unwrap_or(u32::MAX).max(1);
            Times { stall_us, refresh_us: 0 }
        };
        // A receiver's time goes on while its sender waits for a slot, or for its first whole byte.
        let patience = options.stall.saturating_add(options.slot).saturating_add(Duration::from_secs(2));
        for stream in 0..options.streams as u16 {
            let grants_to = grants + ssd.layout.register(stream, GRANT);
            nic.write(&nic.layout.template(stream, &self.template(stream)));
            let receive =
                Receive { bytes: options.length, grants_to, times: times(patience), ..Receive::default() };
            nic.write(&nic.layout.receive(stream, &receive));
            let place = nic.layout.place(nic.read(nic.layout.place_reads(stream)));
            let place = place.map_err(|status| self.failure(stream, "the NIC", status.error))?;
            ssd.write(&tasks(stream)?);
            let send = Send {
                bytes: options.length,
                rate: *rate,
                credits: 0,
                times: times(options.stall),
                interrupt: true,
            };
            ssd.write(&ssd.layout.send(stream, &place, &send));
        }
        Ok(())
    }

    /// Sleeps until all have ended; tells how often it was woken. None: by a signal.
    fn sleep(&self, event: &EventFd) -> Result<Option<u64>, Failure> {
        let limit = self.options.stall.max(Duration::from_secs(1)).saturating_mul(LOOK);
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let (mut left, mut woken) = (self.options.streams, 0);
        while left > 0 {
            let mut fds = vec![PollFd::new(event.as_fd(), PollFlags::POLLIN)];
            fds.extend(interrupt::event().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            // An interrupted wait is an early end of it.
            let _ = nix::poll::poll(&mut fds, limit);
            if interrupt::pressed() {
                return Ok(None);
            }
            woken += u64::from(event.read().is_ok());
            self.ssd.check()?;
            self.nic.check()?;
            while let Some(stream) = Event::from_bits(self.ssd.registers.read64(EVENT)).stream {
                self.ssd.registers.write64(EVENT, stream.into());
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        Ok(Some(woken))
    }

    fn failure(&self, stream: u16, who: &str, error: Option<Error>) -> Failure {
        let why = error.map_or("it did not start".to_string(), |error| error.to_string());
        Failure::new(Exit::Failed, format!("stream {stream}: {who}: {why}"))
    }

    /// Tells how they ended.
    fn tell(&self, woken: u64, report: &Report) -> Result<(), Failure> {
        let (mut failed, mut packets, mut bytes) = (0, 0, 0);
        for stream in 0..self.options.streams as u16 {
            let (sent, taken) = (self.ssd.told(stream), self.nic.told(stream));
            packets += taken.packets;
            bytes += taken.taken;
            let ends = [("the SSD", sent.status), ("the NIC", taken.status)];
            if let Some((who, status)) = ends.into_iter().find(|(_, status)| status.state != State::Idle) {
                failed += 1;
                report.failure(&self.failure(stream, who, status.error));
            }
        }
        let streams = self.options.streams;
        report.remark(format_args!(
            "dcs: {} of {streams} streams whole; {packets} packets, {}; woken {woken} times",
            streams - failed,
            crate::units::human(bytes)
        ));
        report.object(&json!({
            "event": "done", "ok": failed == 0, "command": "d2d", "streams": streams, "failed": failed,
            "packets": packets, "bytes": bytes, "woken": woken,
        }));
        match failed {
            0 => Ok(()),
            _ => Err(Failure::new(Exit::Failed, format!("{failed} of {streams} streams failed"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        stream: args::Stream,
    }

    fn options(words: &str) -> args::Stream {
        let first = ["stream", "0000:00:03.0", "0000:00:04.0"];
        Line::try_parse_from(first.into_iter().chain(words.split(' '))).unwrap().stream
    }

    #[test]
    fn rates_and_ports_are_checked_before_a_function_is_taken() {
        let good = options("udp://10.0.2.2:5004 --length 1MiB --rate 7.82M --streams 120");
        assert_eq!(rate(&good).unwrap(), Rate { bytes_per_second: 977_500, granularity_us: 10_000 });
        assert_eq!(destination(&good).unwrap(), Ipv4Addr::new(10, 0, 2, 2));
        for wrong in
            ["udp://10.0.2.2:65535 --length 1 --rate 1M --streams 2", "udp://[::1]:5004 --length 1 --rate 1M"]
        {
            assert_eq!(destination(&options(wrong)).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
        for wrong in [
            "udp://10.0.2.2:5004 --length 1 --rate pcr",
            "udp://10.0.2.2:5004 --length 1 --rate 1M --slot 17s",
            "udp://10.0.2.2:5004 --length 1 --rate 1M --slot 0.1us",
        ] {
            assert_eq!(rate(&options(wrong)).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
        assert_eq!(rate(&options("udp://10.0.2.2:5004 --length 1 --rate free")).unwrap(), Rate::default());
    }
}
