//! The process of the drives, and a drive in memory in this process.

use super::driver;
use crate::failure::{Exit, Failure};
use crate::harness::cores::stay_on;
use crate::harness::folder::Folder;
use crate::harness::turns::Board;
use crate::interrupt;
use crate::s3::process::BECOME;
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Activity, Config, Controller, Drives, Namespace, Storage};
use dcs_csd_cli::port::{DriveRegisters, GuestPort};
use dcs_vfio_user::pci::{Function, Identity, Interrupts, NoRegisters, Setup};
use dcs_vfio_user::wake::Wake;
use dcs_vfio_user::{Running, Server};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limit for a process to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the drive in memory.
const MEMORY: u64 = 64 << 20;
/// Time that the drive in memory polls for work before it sleeps: the same as `dcs csd run`.
const POLL: Duration = Duration::from_micros(50);

/// Drives that are being served.
pub struct Served<'a> {
    folder: &'a Folder,
    file: Option<&'a Path>,
    size: u64,
    cores: &'a [usize],
    /// With the time for which it looks for work.
    process: Option<(Process, Option<&'static str>)>,
    memory: Option<MemoryDrive>,
}

impl<'a> Served<'a> {
    pub fn none(folder: &'a Folder, file: Option<&'a Path>, size: u64, cores: &'a [usize]) -> Served<'a> {
        Served { folder, file, size, cores, process: None, memory: None }
    }

    pub fn file(&self) -> io::Result<&Path> {
        self.file.ok_or_else(|| io::Error::other("there is no file"))
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn cores(&self) -> &[usize] {
        self.cores
    }

    /// Returns the process that serves a third of the file, and its drive's socket. It looks for work for `poll` before it sleeps; by
    /// default as long as `dcs csd run` does.
    pub fn region(&mut self, region: u64, poll: Option<&'static str>) -> io::Result<(u32, PathBuf)> {
        // Two processes cannot have the same part of a file.
        let process = match self.process.take_if(|(_, has)| *has == poll) {
            Some((process, _)) => process,
            None => {
                self.process = None;
                let file = self.file()?.display().to_string();
                let drives = (0..3).map(|region| {
                    format!(
                        "r{region}:size={},offset={},block=4096,backing={file}",
                        self.size,
                        region * self.size
                    )
                });
                Process::start(self.folder.path(), drives, poll, self.cores)?
            }
        };
        let found = (process.pid(), process.socket(&format!("r{region}")));
        self.process = Some((process, poll));
        Ok(found)
    }

    /// Returns the socket of a drive in memory that this process serves, and its bytes.
    pub fn memory(&mut self) -> io::Result<(PathBuf, u64)> {
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => MemoryDrive::start(&self.folder.path().join("memory.sock"), self.cores.to_vec())?,
        };
        let socket = memory.socket.clone();
        self.memory = Some(memory);
        Ok((socket, MEMORY))
    }
}

/// A `dcs csd run` process. Dropping it ends the process.
pub struct Process {
    child: Child,
    folder: PathBuf,
    _ends: interrupt::Child,
}

impl Process {
    /// Starts the process with these drives on these cores, and waits until their sockets exist.
    pub fn start(
        folder: &Path,
        drives: impl IntoIterator<Item = String>,
        poll: Option<&str>,
        cores: &[usize],
    ) -> io::Result<Process> {
        let own = std::env::current_exe()?;
        let program = own.with_file_name("dcs-csd");
        if !program.is_file() {
            let line = format!("{} was not found: cargo build --release -p dcs-csd-cli", program.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, line));
        }
        let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
        let log = folder.join("log");
        let mut command = Command::new(own);
        command.arg(BECOME).arg(cores.join(",")).arg("--").arg(program).args(["csd", "run", "--sockets"]);
        command.arg(folder);
        poll.into_iter().for_each(|time| _ = command.arg("--poll").arg(time));
        let mut last = PathBuf::new();
        for drive in drives {
            last = folder.join(format!("{}.sock", drive.split(':').next().unwrap_or_default()));
            let _ = std::fs::remove_file(&last);
            command.arg("--drive").arg(drive);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        // A process group of its own: Ctrl-C goes to the parent, which ends the process itself.
        let (child, _ends) = interrupt::child_of(|| command.process_group(0).spawn(), Child::id)?;
        let mut process = Process { child, folder: folder.to_path_buf(), _ends };
        let begun = Instant::now();
        while !last.exists() || !process.folder.join("csd.control").exists() {
            if process.child.try_wait()?.is_some() || begun.elapsed() > PATIENCE {
                return Err(io::Error::other(std::fs::read_to_string(&log)?));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn socket(&self, drive: &str) -> PathBuf {
        self.folder.join(format!("{drive}.sock"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the file. The driver writes each third through a drive, so that its contents are known.
pub fn fill(folder: &Folder, size: u64, cores: &[usize], board: &Board<'_>) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(Exit::NotFound, error.to_string()),
        _ => Failure::io("the file", &error),
    };
    let path = folder.path().join("disk");
    File::create(&path).and_then(|file| file.set_len(3 * size)).map_err(failed)?;
    board.say("writing the file");
    let mut served = Served::none(folder, Some(&path), size, cores);
    for (region, bytes) in [(0, 4096), (1, 128 << 10), (2, 128 << 10)] {
        let (_, socket) = served.region(region, None).map_err(failed)?;
        driver::fill(&socket, bytes, size).map_err(failed)?;
    }
    Ok(path)
}

/// A drive in memory: the same controller and the same sockets, without a disk.
struct MemoryDrive {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    wake: Wake,
    thread: Option<JoinHandle<()>>,
}

impl MemoryDrive {
    fn start(path: &Path, cores: Vec<usize>) -> io::Result<MemoryDrive> {
        let (stop, wake) = (Arc::new(AtomicBool::new(false)), Wake::new()?);
        let (told, begun) = std::sync::mpsc::channel();
        let (socket, stopped, woken) = (path.to_path_buf(), stop.clone(), wake.clone());
        let thread = std::thread::Builder::new().name("dcs-csd".into()).spawn(move || {
            match stay_on(&cores).and_then(|()| MemoryDrive::serve(&socket, &woken)) {
                Ok((drives, running)) => {
                    let _ = told.send(Ok(()));
                    MemoryDrive::drive(drives, &stopped, &woken);
                    drop(running);
                }
                Err(error) => _ = told.send(Err(error)),
            }
        })?;
        begun.recv().map_err(io::Error::other)??;
        Ok(MemoryDrive { socket: path.to_path_buf(), stop, wake, thread: Some(thread) })
    }

    fn serve(path: &Path, wake: &Wake) -> io::Result<(Drives<GuestPort, ModelStorage>, Running)> {
        let mut storage = ModelStorage::new(0);
        let volume = storage.add(MEMORY as usize, 512);
        let mut controller = Controller::new(Config::new("memory")).map_err(io::Error::other)?;
        let info = storage.volume(volume).ok_or(io::ErrorKind::NotFound)?;
        let namespace = Namespace::new(1, volume, &info, 4096).map_err(io::Error::other)?;
        controller.attach(namespace, &storage).map_err(io::Error::other)?;
        let (registers, interrupts) = (16 << 10, Interrupts::MsiX(controller.vectors()));
        let setup = Setup { identity: Identity::NVME, registers, memory: 0, aperture: 0, interrupts };
        let function = Function::new(setup, Box::new(NoRegisters))?;
        let (mut server, port) = Server::bind_port(path, function, wake.clone())?;
        let controller = Arc::new(Mutex::new(controller));
        server.function().set_registers(Box::new(DriveRegisters::new(controller.clone(), wake.clone())));
        let mut drives = Drives::new(storage, 256);
        drives.add(controller, GuestPort::new(port), 1);
        Ok((drives, server.start()?))
    }

    /// Runs the loop of `dcs csd run` over storage that never blocks.
    fn drive(mut drives: Drives<GuestPort, ModelStorage>, stop: &AtomicBool, wake: &Wake) {
        let mut worked = Instant::now();
        while !stop.load(Ordering::Acquire) {
            if drives.poll() == Activity::Busy {
                worked = Instant::now();
            } else if worked.elapsed() > POLL {
                wake.sleep(Some(Duration::from_millis(100)), || {
                    drives.poll() == Activity::Busy || drives.arm()
                });
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for MemoryDrive {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake.notify();
        if let Some(thread) = self.thread.take() {
            // A panic on that thread was already reported.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}
