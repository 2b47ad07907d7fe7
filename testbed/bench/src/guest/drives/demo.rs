//! The demo itself: one process with drives and two guests, which do the same jobs at once.

use super::protocol::{Answer, Contender, Job, MARK, PATTERN, Request, write};
use crate::args;
use crate::command;
use crate::failure::{Exit, Failure};
use crate::guest::client::Processor;
use crate::guest::machine::failure;
use crate::harness::clocks::cpu_of;
use crate::harness::folder::Folder;
use crate::harness::table::Table;
use crate::interrupt;
use crate::report::Report;
use crate::units::human;
use dcs_vm::tools::Flavour;
use dcs_vm::{Guest, Initramfs, Machine, Tools};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a guest to boot and write its files, and for a job.
const LIMIT: Duration = Duration::from_secs(600);
/// Guests, named after their drives.
const NAMES: [&str; 2] = ["one", "two"];
/// Memory of a guest.
const MEMORY_MIB: u32 = 384;
/// Room in a file system besides its file.
const ROOM: u64 = 48 << 20;
/// Jobs to measure, each with the file it uses.
const JOBS: [(Job, usize); 3] = [(Job::Md5, 0), (Job::Grep, 0), (Job::Grep, 1)];
/// Names of the files in tables, by folder.
const KINDS: [&str; 2] = ["plain", "encrypted"];

pub fn run(options: &args::CsdDemo, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let size = options.size;
    if !size.is_multiple_of(1 << 20) || !(1 << 20..=1 << 30).contains(&size) {
        return Err(Failure::usage("--size must be 1MiB to 1GiB, in whole MiB"));
    }
    let start = Instant::now();
    let tools = Tools::find(Flavour::Cloud, &|step| report.remark(format_args!("dcs: {step}")));
    let tools = tools.map_err(failure)?;
    let folder = Folder::new(None, "dcs-drives")?;
    let drives = Drives::start(folder.path(), size)?;
    let step = report.step("booting two guests, which make file systems, write and read back".into());
    let mut guests = Vec::new();
    for (number, name) in NAMES.iter().enumerate() {
        guests.push(Booted::start(&tools, &drives, folder.path(), (number, name), size, false)?);
    }
    for guest in &mut guests {
        guest.answer()?;
    }
    drop(step);
    report.text(format_args!(
        "two guests on one dcs csd, each with ext4 on a plain and on an encrypted namespace: {} MiB in each written, flushed, and read back byte for byte, after {:.0} s",
        size >> 20,
        start.elapsed().as_secs_f64()
    ));
    report.object(
        &json!({ "event": "check", "what": "files", "guests": NAMES.len(), "bytes": size, "ok": true }),
    );
    sealed(&folder, size)?;
    report.object(&json!({ "event": "check", "what": "encrypted on the disk", "ok": true }));
    let expected = expected(size)?;
    // A first pass that is not counted: the emulator translates code when it first runs.
    let step = report.step("running each job once, not counted".into());
    for (job, who) in JOBS.iter().flat_map(|(job, _)| job.by().map(|who| (*job, who))) {
        measure(&mut guests, &drives, Request::Do { job, who, folder: 0 }, size)?;
    }
    drop(step);
    let header =
        ["job", "file", "by", "guest CPU s/GiB", "of dcs in the guest", "drive's CPU s/GiB", "crossed"];
    let mut table = Table::new(header).words(&[1, 2]);
    let mut worst: f64 = 0.0;
    for (job, folder) in JOBS {
        let mut base = None;
        for who in job.by() {
            let step = report.step(format!("{} of the {} file: {}", job.name(), KINDS[folder], who.name()));
            let row = measure(&mut guests, &drives, Request::Do { job, who, folder }, size)?;
            drop(step);
            row.check(&expected, (job, folder), who == Contender::Drive)?;
            if who == Contender::Guest {
                base = Some(row.guest_cpu);
            }
            let ratio = base.map(|base| row.guest_cpu / base);
            if who == Contender::Drive {
                worst = worst.max(ratio.unwrap_or(f64::INFINITY));
            }
            row.tell((job, KINDS[folder], who, ratio), size, &mut table, report);
        }
    }
    report.text("");
    table.show(report);
    let step = report.step("compressing with gzip near storage, decompressing in the guests".into());
    let request = Request::Do { job: Job::Gzip, who: Contender::Drive, folder: 1 };
    let row = measure(&mut guests, &drives, request, size)?;
    drop(step);
    row.check(&expected, (Job::Gzip, 1), true)?;
    let share = row.answers[0].delivered as f64 / size as f64;
    report.text(format_args!(
        "\ngzip near storage: {:.0} % of the bytes crossed to the guest; gunzip there gave every byte back",
        share * 100.0
    ));
    report.object(&json!({ "event": "check", "what": "gzip", "ok": true, "delivered_share": share }));
    guests.into_iter().try_for_each(|mut guest| guest.end())?;
    let seconds = start.elapsed().as_secs_f64();
    report.text(format_args!(
        "all bytes and digests are right; near storage a guest's processor does {:.3} of the work at most; {seconds:.0} s in all\n(processors are emulated: ratios are meaningful, seconds are not)",
        worst
    ));
    report.object(&json!({ "event": "done", "command": "csd demo", "ok": true, "guest_cpu_ratio": worst, "seconds": seconds }));
    Ok(())
}

/// The `dcs csd run` process, with a drive for each guest.
pub(super) struct Drives {
    child: Child,
    sockets: PathBuf,
    _interrupt: interrupt::Child,
}

impl Drop for Drives {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drives {
    pub(super) fn start(folder: &Path, size: u64) -> Result<Drives, Failure> {
        let failed = |error: io::Error| Failure::io("dcs csd", &error);
        let space = size + ROOM;
        let (disk, key) = (folder.join("disk"), folder.join("key"));
        File::create(&disk).and_then(|file| file.set_len(space * 4 + (8 << 20))).map_err(failed)?;
        let mut random = [0; 64];
        getrandom::fill(&mut random)
            .map_err(|error| Failure::new(Exit::Failed, format!("a key: {error}")))?;
        let key_file = File::options().write(true).create_new(true).mode(0o600).open(&key);
        key_file.and_then(|mut file| file.write_all(&random)).map_err(failed)?;
        let mut config = format!("sockets = {:?}\n", folder.display().to_string());
        for name in NAMES {
            config += &format!("[[drive]]\nname = {name:?}\n");
            for through in ["", "through = \"aes256-xts\"\n"] {
                let key = if through.is_empty() {
                    String::new()
                } else {
                    format!("key-file = {:?}\n", key.display().to_string())
                };
                config += &format!(
                    "[[drive.namespace]]\nsize = {space}\nbacking = {:?}\n{through}{key}",
                    disk.display().to_string()
                );
            }
        }
        let path = folder.join("csd.toml");
        std::fs::write(&path, config).map_err(failed)?;
        let mut command = Command::new(command::find_named("dcs-csd", "dcs-csd-cli")?);
        command.args(["csd", "run", "--json"]).arg(&path).stdout(Stdio::piped());
        let (mut child, interrupt) = interrupt::child_of(|| command.spawn(), Child::id).map_err(failed)?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        let drives = Drives { child, sockets: folder.to_owned(), _interrupt: interrupt };
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        match said["event"] == "listening" {
            true => Ok(drives),
            false => Err(Failure::new(Exit::Failed, "dcs csd did not start")),
        }
    }
}

/// A guest that has booted.
pub(super) struct Booted {
    guest: Guest,
    processor: Option<Processor>,
    name: &'static str,
    _interrupt: interrupt::Child,
}

impl Booted {
    /// Boots a guest with a drive of its name; `virtio`: with a paravirtual disk, too.
    pub(super) fn start(
        tools: &Tools,
        drives: &Drives,
        folder: &Path,
        (number, name): (usize, &'static str),
        size: u64,
        virtio: bool,
    ) -> Result<Booted, Failure> {
        let mut initramfs = Initramfs::new(tools).map_err(failure)?;
        let program = std::env::current_exe().map_err(|error| Failure::io("this program", &error))?;
        initramfs.program("bin/dcs-bench", &program).map_err(failure)?;
        // A fetched mkfs.ext4 needs its own libraries, and their path.
        let mkfs = tools.mkfs_ext4();
        let mkfs = Path::new(mkfs.get_program());
        if !mkfs.ends_with("mkfs.ext4") {
            return Err(Failure::new(
                Exit::Unavailable,
                "mkfs.ext4, which the guests need, was not found on this machine",
            )
            .advise("install e2fsprogs"));
        }
        initramfs.program("sbin/mkfs.ext4", mkfs).map_err(failure)?;
        let more = if virtio { " --virtio" } else { "" };
        let script = format!("dcs-bench guest-drive {} {size}{more}\n", seed(number));
        let own = folder.join(name);
        std::fs::create_dir(&own).map_err(|error| Failure::io(own.display(), &error))?;
        let mut machine = Machine::new()
            .memory(MEMORY_MIB)
            .limit(2 * LIMIT)
            .arguments(["-name", "dcs,debug-threads=on"])
            .card(&drives.sockets.join(format!("{name}.sock")));
        if virtio {
            initramfs.modules(&["virtio_blk"]).map_err(failure)?;
            let image = own.join("virtio");
            dcs_vm::disk::blank(&image, size + ROOM).map_err(failure)?;
            machine = machine.virtio(&image);
        }
        let start = || machine.start(tools, &initramfs.finish(&script), &own);
        let (guest, _interrupt) = interrupt::child_of(start, Guest::id).map_err(failure)?;
        Ok(Booted { guest, processor: None, name, _interrupt })
    }

    fn request(&mut self, request: Request) -> Result<(), Failure> {
        let text =
            serde_json::to_string(&request).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        self.guest.send(&text).map_err(failure)
    }

    /// Powers it off.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        self.request(Request::End)?;
        self.guest.wait(LIMIT).map(drop).map_err(failure)
    }

    pub(super) fn answer(&mut self) -> Result<Answer, Failure> {
        let said = self.guest.wait_for(MARK, LIMIT).map_err(failure)?;
        let wrong = |why: String| Failure::new(Exit::Failed, format!("guest {}: {why}", self.name));
        let answer: Answer =
            serde_json::from_str(said.trim()).map_err(|error| wrong(format!("{error}: {said}")))?;
        match answer.error {
            Some(error) => Err(wrong(error)),
            None => Ok(answer),
        }
    }

    /// Returns the CPU time of its processor, as this machine counts it.
    fn time(&mut self) -> Result<u64, Failure> {
        let failed = |error: io::Error| Failure::io("a guest's processor", &error);
        if self.processor.is_none() {
            self.processor = Some(Processor::find(self.guest.id()).map_err(failed)?);
        }
        self.processor.as_ref().map_or(Ok(0), Processor::time).map_err(failed)
    }
}

/// A job that both guests did at once.
pub(super) struct Row {
    pub(super) answers: Vec<Answer>,
    /// CPU seconds per GiB of the guests' processors.
    pub(super) guest_cpu: f64,
    /// CPU seconds per GiB of QEMU's other threads.
    pub(super) qemu_cpu: f64,
    /// CPU seconds per GiB of the drives' process.
    pub(super) drive_cpu: f64,
    pub(super) seconds: f64,
}

/// Drops the guests' cached files.
fn drop_caches(guests: &mut [Booted]) -> Result<(), Failure> {
    guests.iter_mut().try_for_each(|guest| guest.request(Request::Forget))?;
    guests.iter_mut().try_for_each(|guest| guest.answer().map(drop))
}

/// Returns the CPU time of all threads of the guests' QEMU.
fn emulators(guests: &[Booted]) -> io::Result<Duration> {
    guests.iter().map(|guest| cpu_of(guest.guest.id())).sum()
}

/// Has all guests carry out a request at once.
pub(super) fn measure(
    guests: &mut [Booted],
    drives: &Drives,
    request: Request,
    size: u64,
) -> Result<Row, Failure> {
    let failed = |error: io::Error| Failure::io("dcs csd", &error);
    let gib = (guests.len() as u64 * size) as f64 / (1u64 << 30) as f64;
    // The page cache of an earlier job must not affect this one.
    drop_caches(guests)?;
    let qemu = emulators(guests).map_err(failed)?;
    let (start, process) = (Instant::now(), cpu_of(drives.child.id()).map_err(failed)?);
    let before = guests.iter_mut().map(Booted::time).sum::<Result<u64, _>>()?;
    guests.iter_mut().try_for_each(|guest| guest.request(request))?;
    let answers = guests.iter_mut().map(Booted::answer).collect::<Result<Vec<_>, _>>()?;
    let after = guests.iter_mut().map(Booted::time).sum::<Result<u64, _>>()?;
    let process = cpu_of(drives.child.id()).map_err(failed)?.saturating_sub(process);
    let qemu = emulators(guests).map_err(failed)?.saturating_sub(qemu);
    let processors = Duration::from_nanos(after - before);
    Ok(Row {
        answers,
        guest_cpu: processors.as_secs_f64() / gib,
        qemu_cpu: qemu.saturating_sub(processors).as_secs_f64() / gib,
        drive_cpu: process.as_secs_f64() / gib,
        seconds: start.elapsed().as_secs_f64(),
    })
}

impl Row {
    /// Checks that every guest's digest is that of its file, and was computed in the right place.
    fn check(
        &self,
        expected: &[[Expected; 2]],
        (job, folder): (Job, usize),
        beside: bool,
    ) -> Result<(), Failure> {
        let guests = expected.iter().enumerate();
        guests.into_iter().try_for_each(|(guest, files)| self.check_one(guest, &files[folder], job, beside))
    }

    /// The same for one guest.
    pub(super) fn check_one(
        &self,
        guest: usize,
        expected: &Expected,
        job: Job,
        beside: bool,
    ) -> Result<(), Failure> {
        let (answer, name) = (&self.answers[guest], NAMES[guest]);
        let wanted = if job == Job::Grep { &expected.lines } else { &expected.file };
        if answer.md5 != *wanted || answer.beside != beside {
            let why = format!("guest {name}, {}: {answer:?} where the MD5 is {wanted}", job.name());
            return Err(Failure::new(Exit::Failed, why));
        }
        Ok(())
    }

    fn tell(
        &self,
        (job, file, who, ratio): (Job, &str, Contender, Option<f64>),
        size: u64,
        table: &mut Table,
        report: &Report,
    ) {
        let delivered = self.answers[0].delivered;
        table.row([
            job.name().to_owned(),
            file.to_owned(),
            who.name().to_owned(),
            format!("{:.2}", self.guest_cpu),
            ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
            format!("{:.2}", self.drive_cpu),
            human(delivered),
        ]);
        report.object(&json!({
            "event": "measurement",
            "job": job.name(),
            "file": file,
            "by": who.name(),
            "guest_cpu_s_per_gib": self.guest_cpu,
            "of_dcs_in_the_guest": ratio,
            "drive_cpu_s_per_gib": self.drive_cpu,
            "bytes_delivered": delivered,
            "seconds": self.seconds,
            "guests": NAMES.len(),
            "bytes": size,
        }));
    }
}

/// Returns the seed of a guest's files.
pub(super) fn seed(number: usize) -> u64 {
    1000 + 10 * number as u64
}

/// MD5s of a file, and of its lines that match the pattern.
pub(super) struct Expected {
    file: String,
    lines: String,
}

/// Runs a shell command over a guest's file, and returns the digest that it prints.
fn told(command: &str, seed: u64, size: u64) -> io::Result<String> {
    let mut shell = Command::new("sh");
    let mut child = shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        write(&mut input, seed, size)?;
    }
    let output = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).chars().take(32).collect())
}

/// Computes the MD5s of all guests' files with other programs.
fn expected(size: u64) -> Result<Vec<[Expected; 2]>, Failure> {
    let both = |number: usize| Ok([expected_of(seed(number), size)?, expected_of(seed(number) + 1, size)?]);
    (0..NAMES.len()).map(both).collect()
}

/// Computes the MD5s of the file with this seed with other programs.
pub(super) fn expected_of(seed: u64, size: u64) -> Result<Expected, Failure> {
    let of = || -> io::Result<Expected> {
        let file = told("md5sum", seed, size)?;
        Ok(Expected { file, lines: told(&format!("grep {PATTERN} | md5sum"), seed, size)? })
    };
    of().map_err(|error| Failure::io("md5sum and grep", &error))
}

/// Checks the disk: a guest's file may be readable there only if its namespace is plain.
fn sealed(folder: &Folder, size: u64) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("the drives' disk", &error);
    let disk = File::open(folder.path().join("disk")).map_err(failed)?;
    for (number, name) in NAMES.iter().enumerate() {
        for (kind, what) in KINDS.iter().enumerate() {
            let mut file = Vec::new();
            write(&mut file, seed(number) + kind as u64, 1 << 20).map_err(failed)?;
            // A block that is in each MiB of the file.
            let slice = (2 * number + kind) as u64 * (size + ROOM);
            let found = has(&disk, (slice, size + ROOM), &file[600 << 10..604 << 10]).map_err(failed)?;
            if found != (kind == 0) {
                let there = if found { "can be read" } else { "cannot be found" };
                let why = format!("guest {name}: its {what} file {there} on the disk");
                return Err(Failure::new(Exit::Failed, why));
            }
        }
    }
    Ok(())
}

/// Returns true if a range of a disk contains this block of 4 KiB.
fn has(disk: &File, (first, length): (u64, u64), block: &[u8]) -> io::Result<bool> {
    let mut bytes = vec![0; 1 << 20];
    for at in (first..first + length).step_by(bytes.len()) {
        disk.read_exact_at(&mut bytes, at)?;
        if bytes.chunks_exact(block.len()).any(|chunk| chunk == block) {
            return Ok(true);
        }
    }
    Ok(false)
}
