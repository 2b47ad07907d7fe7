//! The guest's side: makes two file systems, writes a file into each, reads it back, and then serves requests.

use super::protocol::{Answer, Contender, FOLDERS, Job, MARK, PATTERN, Request, VIRTIO, write};
use crate::failure::Failure;
use dcs::op::Grep;
use dcs::{Backend, Engine, Op, Sink, Source};
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit for the kernel to find its drive.
const FOUND: Duration = Duration::from_secs(120);

/// Engines, by the place where they compute.
struct Engines {
    kernel: Engine,
    drive: Engine,
}

/// Prepares files with that seed and size, then serves requests. `virtio`: on a paravirtual disk, too.
pub fn run(seed: u64, bytes: u64, virtio: bool) -> Result<(), Failure> {
    let say = |answer: &Answer| println!("{MARK}{}", serde_json::to_string(answer).unwrap_or_default());
    if let Err(error) = prepare(seed, bytes, virtio) {
        say(&Answer { error: Some(error.to_string()), ..Answer::default() });
        return Ok(());
    }
    let start = |backend| Engine::builder().backend(backend).start();
    let failed = |error| Failure::refused("the guest's engine", error);
    let engines = Engines {
        kernel: start(Backend::Kernel).map_err(failed)?,
        drive: start(Backend::Drive).map_err(failed)?,
    };
    say(&Answer::default());
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::io("requests", &error))?;
        let answer = match serde_json::from_str(&line) {
            Ok(Request::End) => break,
            Ok(Request::Forget) => {
                std::fs::write("/proc/sys/vm/drop_caches", "3").map(|()| Answer::default())
            }
            Ok(Request::Do { job, who, folder }) => carry_out(&engines, (job, who), &file(folder)),
            // The console echoes its input.
            Err(_) => continue,
        };
        say(&answer.unwrap_or_else(|error| Answer { error: Some(error.to_string()), ..Answer::default() }));
    }
    Ok(())
}

fn file(folder: usize) -> PathBuf {
    Path::new(FOLDERS[folder % FOLDERS.len()]).join("data")
}

/// Makes the file systems and files: written, flushed, dropped from the cache, and read back.
fn prepare(seed: u64, bytes: u64, virtio: bool) -> io::Result<()> {
    for (number, folder) in FOLDERS.iter().enumerate() {
        let disk = match (number == VIRTIO, virtio) {
            (true, false) => continue,
            (true, true) => "/dev/vda".to_owned(),
            (false, _) => disk(number as u32 + 1)?,
        };
        std::fs::create_dir_all(folder)?;
        call("mkfs.ext4", &["-q", "-F", "-b", "4096", &disk])?;
        call("mount", &["-t", "ext4", &disk, folder])?;
        let mut file = File::create(Path::new(folder).join("data"))?;
        write(&mut file, seed + number as u64, bytes)?;
        file.sync_all()?;
        drop(file);
        call("umount", &[folder])?;
        call("mount", &["-t", "ext4", &disk, folder])?;
        read_back(&self::file(number), seed + number as u64, bytes)?;
    }
    Ok(())
}

/// Returns the device of a namespace with that number: the kernel probes several at once, and names them in the order of
/// discovery.
fn disk(number: u32) -> io::Result<String> {
    let start = Instant::now();
    loop {
        for entry in std::fs::read_dir("/sys/block")?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let told = std::fs::read_to_string(entry.path().join("nsid"));
            let device = format!("/dev/{name}");
            if told.is_ok_and(|told| told.trim() == number.to_string()) && Path::new(&device).exists() {
                return Ok(device);
            }
        }
        if start.elapsed() > FOUND {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no namespace {number}")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Compares every byte of a file.
fn read_back(path: &Path, seed: u64, bytes: u64) -> io::Result<()> {
    struct Same(File, u64);
    impl io::Write for Same {
        fn write(&mut self, wanted: &[u8]) -> io::Result<usize> {
            let mut found = vec![0; wanted.len()];
            self.0.read_exact(&mut found)?;
            if found != wanted {
                return Err(io::Error::other(format!(
                    "data read differ from data written, in the MiB at {}",
                    self.1
                )));
            }
            self.1 += wanted.len() as u64;
            Ok(wanted.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut file = Same(File::open(path)?, 0);
    write(&mut file, seed, bytes)?;
    if file.0.read(&mut [0])? == 0 { Ok(()) } else { Err(io::Error::other("the file is longer than it was")) }
}

fn call(program: &str, arguments: &[&str]) -> io::Result<()> {
    let status = Command::new(program).args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program}: {status}"))) }
}

fn carry_out(engines: &Engines, (job, who): (Job, Contender), path: &Path) -> io::Result<Answer> {
    match (job, who) {
        (Job::Md5, Contender::Program) => program("md5sum", path),
        (_, Contender::Program) => Err(io::Error::other("this job has no such contender")),
        (_, Contender::Guest) => transfer(&engines.kernel, job, path),
        (_, Contender::Drive) => transfer(&engines.drive, job, path),
    }
}

/// Runs a shell command with a file as its standard input, and returns the MD5 that it prints.
fn program(command: &str, path: &Path) -> io::Result<Answer> {
    let output = Command::new("sh").args(["-c", command]).stdin(File::open(path)?).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{command}: {}", output.status)));
    }
    let md5 = String::from_utf8_lossy(&output.stdout).chars().take(32).collect();
    Ok(Answer { md5, delivered: path.metadata()?.len(), ..Answer::default() })
}

fn transfer(engine: &Engine, job: Job, path: &Path) -> io::Result<Answer> {
    let result = Path::new("/tmp/result");
    let grep = Grep { pattern: PATTERN.to_owned(), ..Grep::default() };
    let (op, sink) = match job {
        Job::Md5 => (Op::Md5, File::options().write(true).open("/dev/null")?),
        Job::Grep => (Op::Grep(grep), File::create(result)?),
        Job::Gzip => (Op::Gzip { level: 1 }, File::create(result)?),
    };
    let (file, session) = (File::open(path)?, engine.session().map_err(io::Error::other)?);
    let transfer = session.transfer(Source::file(&file, ..), [op], Sink::fd(&sink));
    let done = transfer.map_err(io::Error::other)?.wait().map_err(io::Error::other)?;
    let beside = done.path.names().any(|name| name == "beside the disk");
    let md5 = match job {
        Job::Md5 => done.digests.first().map(ToString::to_string).unwrap_or_default(),
        Job::Grep => program("md5sum", result)?.md5,
        Job::Gzip => program("gunzip | md5sum", result)?.md5,
    };
    let delivered = match (beside, job) {
        (false, _) => done.bytes_in,
        (true, Job::Md5) => 0,
        (true, _) => done.bytes_out,
    };
    let _ = std::fs::remove_file(result);
    Ok(Answer { md5, delivered, beside, error: None })
}
