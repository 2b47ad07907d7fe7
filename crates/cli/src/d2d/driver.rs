//! The driver of a D2D SSD and a D2D NIC, in user space: maps their registers, sleeps while streams run, and reports the results. `stream`
//! and `record` start the streams.

use super::args::Functions;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::report::Report;
use crate::stream::ends::Address;
use dcs_d2d::driver::{Layout, Report as StreamReport, Write};
use dcs_d2d::register::{EVENT, Error, Event, IDENTITY, Identity, Kind, State, Status, Task, Times};
use dcs_vfio::{Container, Function, Mapping, VfioError};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

/// Number of stall limits after which a sleeping driver checks that the functions still answer. One whose process has ended does not
/// interrupt.
const LOOK: u32 = 4;

/// A function with its registers mapped.
pub struct Device {
    function: Function,
    registers: Mapping,
    pub layout: Layout,
}

impl Device {
    fn open(container: &Container, name: &str, kind: Kind) -> Result<Device, Failure> {
        let address = dcs_vfio::address(name).ok_or_else(|| {
            Failure::usage(format!("'{name}' is not a PCI address; expected one like 0000:00:04.0"))
                .advise("lspci lists them")
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
            let found = if layout.kind == Kind::Ssd { "an SSD, not a NIC" } else { "a NIC, not an SSD" };
            return Err(
                Failure::usage(format!("{address} is {found}")).advise("the SSD comes first, then the NIC")
            );
        }
        Ok(Device { function, registers, layout })
    }

    pub fn write(&self, writes: &[Write]) {
        writes.iter().for_each(|write| self.registers.write64(write.offset, write.value));
    }

    pub fn read<const N: usize>(&self, offsets: [u64; N]) -> [u64; N] {
        offsets.map(|offset| self.registers.read64(offset))
    }

    /// Fails if the function no longer answers. Reads return all ones then, as on any bus.
    fn check(&self) -> Result<(), Failure> {
        match Identity::from_bits(self.registers.read64(IDENTITY)).known() {
            Some(kind) if kind == self.layout.kind => Ok(()),
            _ => {
                Err(Failure::new(Exit::Failed, format!("{}: the function has gone", self.function.address()))
                    .advise("look at the messages of its process: dcs d2d ssd, dcs d2d nic"))
            }
        }
    }

    /// Returns the address of a BAR for other functions.
    pub fn bar(&self, index: usize) -> Result<u64, Failure> {
        self.function.bar_address(index).map_err(|error| refused(self.function.address(), &error))
    }

    /// Reads how a stream fares.
    fn stream_report(&self, stream: u16) -> StreamReport {
        StreamReport::from_values(self.read(self.layout.report_reads(stream)))
    }
}

/// Returns the failure for a function that VFIO cannot take, with advice.
fn refused(address: &str, error: &VfioError) -> Failure {
    let exit = match error {
        VfioError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Exit::Permission
        }
        VfioError::Missing(..) => Exit::NotFound,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{address}: {error}"))
        .advise("this needs root, the module vfio-pci and an IOMMU: run dcs doctor")
}

/// The two functions, and the number of streams between them.
pub struct Driver {
    pub ssd: Device,
    pub nic: Device,
    pub streams: u16,
    sender: Kind,
}

/// Returns the IPv4 address of datagrams, after checking that each stream has a port.
pub fn address(of: &Address, streams: usize) -> Result<Ipv4Addr, Failure> {
    let SocketAddr::V4(to) = of.resolve()? else {
        return Err(Failure::usage(format!("{of}: a D2D NIC supports only IPv4")));
    };
    let last = usize::from(to.port()) + 2 * (streams - 1);
    if last > usize::from(u16::MAX) {
        let line = format!("{of}: not enough ports follow for {streams} streams");
        return Err(
            Failure::usage(line).advise("each stream uses the second next port: begin at a lower one")
        );
    }
    Ok(*to.ip())
}

/// Returns the Times register for a stall limit.
pub fn stall(limit: Duration) -> Times {
    Times { stall_us: u32::try_from(limit.as_micros()).unwrap_or(u32::MAX).max(1), refresh_us: 0 }
}

impl Driver {
    /// Takes the functions. The `sender`'s interrupts wake the driver, since its streams end last.
    pub fn open(functions: &Functions, streams: usize, sender: Kind) -> Result<Driver, Failure> {
        let container = Container::new().map_err(|error| refused(&functions.ssd, &error))?;
        let ssd = Device::open(&container, &functions.ssd, Kind::Ssd)?;
        let nic = Device::open(&container, &functions.nic, Kind::Nic)?;
        let have = ssd.layout.capabilities.streams.min(nic.layout.capabilities.streams);
        match u16::try_from(streams).ok().filter(|streams| *streams <= have) {
            Some(streams) => Ok(Driver { ssd, nic, streams, sender }),
            None => Err(Failure::usage(format!("--streams {streams}: the functions have {have}"))),
        }
    }

    /// Returns how many blocks of the SSD this many bytes take, after checking that all `parts` fit after `block`.
    pub fn blocks(&self, block: u64, length: u64, parts: u16) -> Result<u32, Failure> {
        let there = self.ssd.layout.blocks;
        let blocks = length.div_ceil(1 << self.ssd.layout.medium.block_shift);
        let end = blocks.checked_mul(parts.into()).and_then(|all| block.checked_add(all));
        match u32::try_from(blocks) {
            Ok(blocks) if length > 0 && end.is_some_and(|end| end <= there) => Ok(blocks),
            _ => {
                let each = if parts > 1 { format!(" for each of {parts} streams") } else { String::new() };
                let line = format!("{length} bytes{each} from block {block}: the SSD has {there} blocks");
                Err(Failure::usage(line).advise("--length and --block must be within the SSD"))
            }
        }
    }

    /// Returns the writes that set a stream's task.
    pub fn tasks(&self, stream: u16, task: Task) -> Result<Vec<Write>, Failure> {
        self.ssd.layout.tasks(stream, &[task]).ok_or_else(|| Failure::usage("the SSD has no room for a task"))
    }

    fn sender(&self) -> &Device {
        if self.sender == Kind::Ssd { &self.ssd } else { &self.nic }
    }

    /// Starts the streams, sleeps until all have ended, and reports the results.
    pub fn run(
        &self,
        at: &Address,
        limit: Duration,
        start: impl FnOnce() -> Result<(), Failure>,
        report: &Report,
    ) -> Result<(), Failure> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|error| Failure::io("an event", &error.into()))?;
        let function = &self.sender().function;
        function.interrupts(&[event.as_fd()]).map_err(|error| refused(function.address(), &error))?;
        let guard = interrupt::transferring();
        start()?;
        let streams = self.streams;
        report.object(
            &json!({ "event": "streaming", "command": "d2d", "streams": streams, "to": at.to_string() }),
        );
        report.remark(format_args!("dcs: {streams} streams run; the processor sleeps until one has ended"));
        let woken = self.sleep(&event, limit).inspect_err(|_| {
            report
                .remark(format_args!("dcs: a function has gone; the kernel may take a minute to release it"));
        });
        drop(guard);
        match woken? {
            Some(woken) => self.report_results(woken, report),
            // The functions are reset when they are released.
            None => Err(Failure::new(Exit::Interrupted, "interrupted; the streams were stopped")),
        }
    }

    /// Sleeps until all streams have ended. Returns how often it was woken; `None` after a signal.
    fn sleep(&self, event: &EventFd, limit: Duration) -> Result<Option<u64>, Failure> {
        let limit = limit.max(Duration::from_secs(1)).saturating_mul(LOOK);
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let (mut left, mut woken) = (self.streams, 0);
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
            let registers = &self.sender().registers;
            while let Some(stream) = Event::from_bits(registers.read64(EVENT)).stream {
                registers.write64(EVENT, stream.into());
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        Ok(Some(woken))
    }

    pub fn failure(&self, stream: u16, who: &str, status: &Status) -> Failure {
        Failure::new(Exit::Failed, format!("stream {stream}: {who}: {}", reason(status)))
    }

    /// Reports the results.
    fn report_results(&self, woken: u64, report: &Report) -> Result<(), Failure> {
        let (mut failed, mut packets, mut bytes, mut dropped, mut lost) = (0, 0, 0, 0, 0);
        for stream in 0..self.streams {
            let (ssd, nic) = (self.ssd.stream_report(stream), self.nic.stream_report(stream));
            packets += nic.packets;
            dropped += u64::from(nic.dropped.packets);
            lost += nic.lost;
            bytes += if self.sender == Kind::Ssd { nic.taken } else { ssd.taken };
            if let Some(why) = why(&ssd, &nic) {
                failed += 1;
                report.failure(&Failure::new(Exit::Failed, format!("stream {stream}: {why}")));
            }
        }
        let streams = self.streams;
        report.remark(format_args!(
            "dcs: {} of {streams} streams complete; {packets} packets, {}; woken {woken} times",
            streams - failed,
            crate::units::human(bytes)
        ));
        report.object(&json!({
            "event": "done", "ok": failed == 0, "command": "d2d", "streams": streams, "failed": failed,
            "packets": packets, "dropped": dropped, "lost": lost, "bytes": bytes, "woken": woken,
        }));
        match failed {
            0 => Ok(()),
            _ => Err(Failure::new(Exit::Failed, format!("{failed} of {streams} streams failed"))),
        }
    }
}

/// Returns the reason why an end failed.
fn reason(status: &Status) -> String {
    match (status.error, status.state) {
        (Some(error), _) => error.to_string(),
        (None, State::Init) => "it did not start".to_string(),
        (None, state) => format!("it has not ended; it is in {state:?}"),
    }
}

/// Returns the reason why a stream is not complete, if it is not.
fn why(ssd: &StreamReport, nic: &StreamReport) -> Option<String> {
    // The end that failed, before the one that reports its peer's failure, before one without an error.
    let mut ends = [("the SSD", &ssd.status), ("the NIC", &nic.status)];
    ends.sort_by_key(|(_, status)| (status.error.is_none(), status.error == Some(Error::Peer)));
    let ended = ends.into_iter().find(|(_, status)| status.state != State::Idle);
    if let Some((who, status)) = ended {
        return Some(format!("{who}: {}", reason(status)));
    }
    // Only a NIC that receives from the network counts them.
    let (dropped, lost) = (nic.dropped.packets, nic.lost);
    (dropped > 0 || lost > 0).then(|| {
        format!("the recording has holes: {dropped} packets were dropped, {lost} RTP packets never came")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_d2d::register::{Dropped, Role};

    fn stream_report(state: State, error: Option<Error>) -> StreamReport {
        let status = Status { state, error, role: Role::Sender, paused: false, starved: false, epoch: 1 };
        StreamReport { status, moved: 0, taken: 0, dropped: Dropped::default(), packets: 0, lost: 0 }
    }

    #[test]
    fn the_end_that_failed_is_named_with_its_reason() {
        let idle = stream_report(State::Idle, None);
        let peer = stream_report(State::Failed, Some(Error::Peer));
        let waits = stream_report(State::Fetch, None);
        let stalled = stream_report(State::Failed, Some(Error::Stalled));
        let stall = Error::Stalled.to_string();
        assert_eq!(why(&idle, &idle), None);
        for (ssd, nic, parts) in [
            (&waits, &stalled, ["the NIC", stall.as_str()]),
            (&stalled, &peer, ["the SSD", &stall]),
            (&peer, &stalled, ["the NIC", &stall]),
            (&stalled, &idle, ["the SSD", &stall]),
            (&idle, &waits, ["the NIC", "it has not ended; it is in Fetch"]),
            (&idle, &stream_report(State::Init, None), ["the NIC", "it did not start"]),
        ] {
            let why = why(ssd, nic).unwrap();
            assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        }
    }

    #[test]
    fn a_recording_with_holes_is_not_whole() {
        let idle = stream_report(State::Idle, None);
        let dropped = StreamReport { dropped: Dropped { late: 0, packets: 3 }, ..idle };
        let lost = StreamReport { lost: 4, ..idle };
        assert!(why(&idle, &dropped).unwrap().contains("3 packets were dropped"));
        assert!(why(&idle, &lost).unwrap().contains("4 RTP packets never came"));
        // Late and duplicate packets are not holes.
        assert_eq!(why(&idle, &StreamReport { dropped: Dropped { late: 3, packets: 0 }, ..idle }), None);
    }
}
