//! `dcs vm d2d`: an SSD sends videos to a NIC by itself, and the NIC sends them as UDP; a stock guest writes some registers, then
//! sleeps.
//!
//! ```text
//!   this process                  QEMU: a guest               dcs d2d ssd, dcs d2d nic
//!     checks every byte  <-------------- UDP ----------------------- NIC <--- SSD
//!     requests <--- console ---->  dcs d2d stream -- registers ------^--------^
//! ```

use super::client::Processor;
use super::machine::failure;
use crate::args;
use crate::command;
use crate::failure::{Exit, Failure};
use crate::harness::clocks::cpu_of;
use crate::harness::folder::Folder;
use crate::interrupt;
use crate::report::Report;
use crate::stream::RATE;
use crate::stream::contender::Programs;
use crate::stream::video::Video;
use base64::prelude::{BASE64_STANDARD, Engine};
use dcs_vm::tools::Flavour;
use dcs_vm::{Guest, Initramfs, Machine, Tools};
use nix::sys::socket::{setsockopt, sockopt};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Time limit for the guest, or for a datagram.
const LIMIT: Duration = Duration::from_secs(300);
/// Bytes of a socket's receive queue: four seconds of a video.
const ROOM: usize = 4 << 20;
/// Seconds in the middle of a run over which counters are read.
const COUNTED: u64 = 8;

const SCRIPT: &str = r#"
echo "@up"
find() { for d in /sys/bus/pci/devices/*; do [ "$(cat $d/vendor) $(cat $d/device)" = "0xdc51 $1" ] && echo ${d##*/}; done; }
SSD=$(find 0x0003); NIC=$(find 0x0004)
interrupts() { awk '/vfio/ { n += $2 } END { print n + 0 }' /proc/interrupts; }
switches() { cat /proc/$1/task/*/status | awk '/ctxt_switches/ { n += $2 } END { print n }'; }
sleep 1; echo "@idle"; sleep COUNTED; echo "@idled"
dcs d2d stream $SSD $NIC udp://10.0.2.2:PORT --length LENGTH --rate RATE --streams STREAMS --json >/tmp/said 2>&1 & DRIVER=$!
until grep -q streaming /tmp/said || ! [ -d /proc/$DRIVER ]; do sleep 0.1; done
sleep 1
BEFORE="$(interrupts) $(switches $DRIVER)"; echo "@begin"
sleep COUNTED
echo "@over"; echo "@counted $BEFORE $(interrupts) $(switches $DRIVER)"
wait $DRIVER; CODE=$?
[ $CODE = 0 ] || sed 's/^/dcs: /' /tmp/said
echo "@done $CODE"
"#;

/// Counts and figures of a run.
#[derive(Debug, Serialize)]
struct Counted {
    event: &'static str,
    streams: u16,
    bits_a_second: u64,
    bytes_a_stream: u64,
    /// Streams that arrived complete.
    whole: usize,
    counted_seconds: u64,
    device_interrupts: u64,
    driver_context_switches: u64,
    guest_cpu_ms: f64,
    guest_cpu_idle_ms: f64,
    ssd_cpu_percent: f64,
    nic_cpu_percent: f64,
    /// Result of ffmpeg on what the last stream brought; `None` if there is no ffmpeg, or the video has no picture.
    decoded: Option<bool>,
    /// A frame of it: JPEG, in base64.
    frame_jpeg: Option<String>,
}

/// A process that serves a function.
struct Function {
    child: Child,
    _ends: interrupt::Child,
}

impl Function {
    /// Starts the process. It listens when this returns.
    fn start(dcs: &Path, folder: &Path, words: &[&str]) -> Result<Function, Failure> {
        let failed = |error| Failure::io("dcs d2d", &error);
        let mut command = Command::new(dcs);
        command.current_dir(folder).arg("d2d").args(words).args(["--switch", "switch", "--json"]);
        command.stdout(Stdio::piped());
        let (mut child, ends) = interrupt::child_of(|| command.spawn(), Child::id).map_err(failed)?;
        let said = child.stdout.take().map(BufReader::new);
        let mut line = String::new();
        said.map(|mut said| said.read_line(&mut line)).transpose().map_err(failed)?;
        let function = Function { child, _ends: ends };
        match line.contains("listening") {
            true => Ok(function),
            false => Err(Failure::new(Exit::Failed, "dcs d2d does not listen; see its output above")),
        }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(options: &args::VmD2d, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let dcs = command::find()?;
    let tools =
        Tools::find(Flavour::Cloud, &|step| report.remark(format_args!("dcs: {step}"))).map_err(failure)?;
    let folder = Folder::new(None, "dcs-vm-d2d-")?;
    let programs = Programs::find()?;
    let video = Video::make(options.video.as_deref(), &folder, &programs)?;
    let failed = |error: io::Error| Failure::io(video.path.display(), &error);
    let bytes: Arc<[u8]> = std::fs::read(&video.path).map_err(failed)?.into();
    let streams = options.streams as u16;
    report.remark(format_args!(
        "dcs: {streams} streams of {:.2} Mb/s, {:.0} s: {}",
        RATE as f64 / 1e6,
        bytes.len() as f64 * 8.0 / RATE as f64,
        video.what
    ));
    let (sockets, port) = sockets(streams).map_err(|error| Failure::io("sockets for the videos", &error))?;
    let image = video.path.to_string_lossy();
    let nic = Function::start(&dcs, folder.path(), &["nic", "nic", "--udp", "127.0.0.1"])?;
    let ssd = Function::start(&dcs, folder.path(), &["ssd", "ssd", &image])?;
    // What comes by the last one is kept.
    let kept = folder.path().join("came.ts");
    let mut keep = (1..streams).map(|_| None).chain([Some(kept.clone())]);
    let heard = sockets.into_iter().map(|socket| hear(socket, bytes.clone(), keep.next().flatten()));
    let heard: Vec<_> = heard.collect::<io::Result<_>>().map_err(failed)?;
    let values = [("PORT", port.into()), ("LENGTH", bytes.len() as u64), ("RATE", RATE)];
    let values = values.into_iter().chain([("STREAMS", streams.into()), ("COUNTED", COUNTED)]);
    let script =
        values.fold(SCRIPT.to_string(), |script, (name, value)| script.replace(name, &value.to_string()));
    let start = || boot(&tools, &folder, &dcs, &script);
    let (mut guest, _child) = interrupt::child_of(start, Guest::id).map_err(failure)?;
    let mut counted = count(&mut guest, [&ssd, &nic])?;
    let code = guest.wait_for("@done", LIMIT).map_err(failure)?;
    if code != "0" {
        return Err(Failure::new(Exit::Failed, format!("dcs d2d stream ended with {code}"))
            .advise("DCS_VM_CONSOLE=1 shows the guest's console"));
    }
    let ends: Vec<Result<(), String>> =
        heard.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect();
    counted.streams = streams;
    counted.bytes_a_stream = bytes.len() as u64;
    counted.whole = ends.iter().filter(|end| end.is_ok()).count();
    if let Some(ffmpeg) = programs.ffmpeg.as_deref().filter(|_| video.has_pictures()) {
        counted.decoded = Some(decodes(ffmpeg, &kept)?);
        counted.frame_jpeg = frame(ffmpeg, &kept)?;
    }
    tell(&counted, &ends, report)
}

fn panicked<T>(_: T) -> Result<(), String> {
    Err("its listener panicked".into())
}

/// Opens sockets at every second port, and returns them with the first port.
fn sockets(streams: u16) -> io::Result<(Vec<UdpSocket>, u16)> {
    loop {
        let first = UdpSocket::bind("127.0.0.1:0")?;
        let port = first.local_addr()?.port();
        let others = (1..streams).map(|n| UdpSocket::bind(("127.0.0.1", port.checked_add(2 * n)?)).ok());
        let Some(others) = others.collect::<Option<Vec<_>>>() else { continue };
        let all: Vec<_> = [first].into_iter().chain(others).collect();
        for socket in &all {
            socket.set_read_timeout(Some(LIMIT))?;
            if setsockopt(socket, sockopt::RcvBufForce, &ROOM).is_err() {
                setsockopt(socket, sockopt::RcvBuf, &ROOM)?;
            }
        }
        return Ok((all, port));
    }
}

/// Compares what arrives with the video, on a thread of its own, and reports where they differ. It is also written
/// to a file, where one is named.
fn hear(
    socket: UdpSocket,
    video: Arc<[u8]>,
    keep: Option<PathBuf>,
) -> io::Result<JoinHandle<Result<(), String>>> {
    let mut kept = keep.map(File::create).transpose()?.map(BufWriter::new);
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        let (mut left, mut datagram) = (&video[..], [0; 2048]);
        while !left.is_empty() {
            let at = video.len() - left.len();
            let count = socket.recv(&mut datagram).map_err(|error| format!("after {at} bytes: {error}"))?;
            let came = &datagram[..count];
            kept.as_mut().map_or(Ok(()), |kept| kept.write_all(came)).map_err(|error| error.to_string())?;
            left = left
                .strip_prefix(came)
                .ok_or_else(|| format!("a datagram of {count} bytes after {at} is not the next one"))?;
        }
        kept.as_mut().map_or(Ok(()), |kept| kept.flush()).map_err(|error| error.to_string())
    })
}

fn boot(tools: &Tools, folder: &Folder, dcs: &Path, script: &str) -> Result<Guest, dcs_vm::Error> {
    let mut initramfs = Initramfs::new(tools)?;
    initramfs.modules(&["vfio-pci", "vfio_iommu_type1"])?;
    initramfs.program("bin/dcs", dcs)?;
    let socket = |name: &str| -> PathBuf { folder.path().join(name) };
    let machine = Machine::new().memory(512).limit(2 * LIMIT).iommu();
    // The name identifies the processor's thread.
    let machine = machine.arguments(["-name", "dcs,debug-threads=on"]);
    machine.card(&socket("ssd")).card(&socket("nic")).start(tools, &initramfs.finish(script), folder.path())
}

/// Counts while the guest is idle, and while the streams run.
fn count(guest: &mut Guest, functions: [&Function; 2]) -> Result<Counted, Failure> {
    let cpu = |error| Failure::io("processor time", &error);
    guest.wait_for("@up", LIMIT).map_err(failure)?;
    let processor = Processor::find(guest.id()).map_err(cpu)?;
    let mut used = |from: &str, to: &str| -> Result<(f64, [f64; 2]), Failure> {
        let times = || -> io::Result<(u64, [Duration; 2])> {
            let [ssd, nic] = functions.map(|function| cpu_of(function.child.id()));
            Ok((processor.time()?, [ssd?, nic?]))
        };
        guest.wait_for(from, LIMIT).map_err(failure)?;
        let (guest_before, before) = times().map_err(cpu)?;
        guest.wait_for(to, LIMIT).map_err(failure)?;
        let (guest_after, after) = times().map_err(cpu)?;
        let percent = |n: usize| (after[n] - before[n]).as_secs_f64() * 100.0 / COUNTED as f64;
        Ok(((guest_after - guest_before) as f64 / 1e6, [percent(0), percent(1)]))
    };
    let (idle, _) = used("@idle", "@idled")?;
    let (busy, [ssd, nic]) = used("@begin", "@over")?;
    let said = guest.wait_for("@counted", LIMIT).map_err(failure)?;
    let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [interrupts, switches, interrupts_after, switches_after] = numbers[..] else {
        return Err(Failure::new(Exit::Failed, format!("the driver ended before it was counted: {said:?}")));
    };
    Ok(Counted {
        event: "d2d",
        streams: 0,
        bits_a_second: RATE,
        bytes_a_stream: 0,
        whole: 0,
        counted_seconds: COUNTED,
        device_interrupts: interrupts_after - interrupts,
        driver_context_switches: switches_after - switches,
        guest_cpu_ms: busy,
        guest_cpu_idle_ms: idle,
        ssd_cpu_percent: ssd,
        nic_cpu_percent: nic,
        decoded: None,
        frame_jpeg: None,
    })
}

/// Returns true if ffmpeg decodes every frame and finds nothing missing.
fn decodes(ffmpeg: &Path, video: &Path) -> Result<bool, Failure> {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-v", "error", "-i"]).arg(video).args(["-map", "0:v", "-f", "null", "-"]);
    let output = command.output().map_err(|error| Failure::io(ffmpeg.display(), &error))?;
    Ok(output.status.success() && output.stderr.is_empty())
}

/// A frame out of the middle of a video, as a JPEG picture in base64. `None`: it has none there.
fn frame(ffmpeg: &Path, video: &Path) -> Result<Option<String>, Failure> {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-v", "error", "-i"]).arg(video);
    command.args([
        "-vf",
        "select=gte(n\\,100),scale=480:-2",
        "-frames:v",
        "1",
        "-f",
        "image2pipe",
        "-c:v",
        "mjpeg",
        "-",
    ]);
    let output = command.output().map_err(|error| Failure::io(ffmpeg.display(), &error))?;
    Ok((output.status.success() && !output.stdout.is_empty()).then(|| BASE64_STANDARD.encode(&output.stdout)))
}

fn tell(counted: &Counted, ends: &[Result<(), String>], report: &Report) -> Result<(), Failure> {
    let Counted { streams, whole, counted_seconds: seconds, .. } = counted;
    report.object(&serde_json::to_value(counted).unwrap_or_default());
    for (stream, why) in
        ends.iter().enumerate().filter_map(|(stream, end)| Some((stream, end.as_ref().err()?)))
    {
        report.text(format_args!("stream {stream}: {why}"));
    }
    report.text(format_args!("{whole} of {streams} videos arrived, every byte as in the file"));
    report.text(format_args!("over {seconds} s, with all streams running:"));
    report.text(format_args!("  interrupts of the SSD and the NIC        {}", counted.device_interrupts));
    report
        .text(format_args!("  context switches of the driver           {}", counted.driver_context_switches));
    report.text(format_args!(
        "  the guest's processor                    {:.0} ms; {:.0} ms before a stream was started",
        counted.guest_cpu_ms, counted.guest_cpu_idle_ms
    ));
    report.text(format_args!(
        "  the functions' processes                 SSD {:.0} %, NIC {:.0} % of a core",
        counted.ssd_cpu_percent, counted.nic_cpu_percent
    ));
    match counted.decoded {
        Some(true) => report.text("ffmpeg decodes every frame"),
        Some(false) => report.text("ffmpeg misses something"),
        None => report.text("not decoded: ffmpeg was not found"),
    }
    let sleeps = counted.device_interrupts == 0 && counted.driver_context_switches == 0;
    match *whole == usize::from(*streams) && sleeps && counted.decoded != Some(false) {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, "data were lost, or the guest was woken").advise(
            "if datagrams were lost, this machine was too busy to receive them: use fewer streams, --streams 20",
        )),
    }
}
