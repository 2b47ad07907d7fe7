//! File systems of guests whose drive's process is killed, or whose drive loses its power, under load: what was
//! flushed is there, and nothing is damaged.

use super::*;
use dcs_csd::storage::ModelStorage;
use dcs_csd::{
    Action, Activity, Config, Controller, Data, Drives, Namespace, Request, Storage, Ticket, VolumeId,
};
use dcs_csd_cli::port::{DriveRegisters, GuestPort};
use dcs_vfio_user::Server;
use dcs_vfio_user::pci::{Function, Identity, Interrupts, NoRegisters, Setup};
use dcs_vfio_user::wake::Wake;
use dcs_vm::disk as image;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// XFS has no less than 300 MiB.
const SIZE: u64 = 320 * MB;

/// Files that are flushed, one after the other, beside others that are not.
const WRITES: &str = r#"
DISK=$(disk); mount -t FS $DISK /mnt || echo '@wrong mount'
for n in 1 2 3 4; do
  SUM=$(fill /mnt/flushed$n ${n}000000); mkdir /mnt/folder$n; echo $SUM >/mnt/folder$n/sum; sync; echo @flushed $SUM
  (while :; do seq 1 50000 >/mnt/more$n; rm -f /mnt/gone; mv /mnt/more$n /mnt/gone; done) &
done
# At the drive, and not flushed.
direct() { dd if=/dev/urandom of=/mnt/direct bs=64k count=16 oflag=direct conv=notrunc 2>/tmp/said || { cat /tmp/said; echo '@wrong direct'; }; }
direct; direct; (while :; do direct; done) &
echo @loaded; read ANSWER
"#;

/// What is left of them.
const READS: &str = r#"
DISK=$(disk); mount -t FS $DISK /mnt || echo '@wrong mount'
for n in 1 2 3 4; do
  same "$(sum /mnt/flushed$n)" "$(cat /mnt/folder$n/sum)" "file $n"; echo @there $(sum /mnt/flushed$n)
done
umount /mnt; dmesg | grep -i "corrupt\|i/o error" && echo '@wrong file system'
echo @well
"#;

fn make(tools: &Tools, system: &str, path: &Path) {
    let say = |text: &str| println!("{text}");
    match system {
        "xfs" => image::xfs(tools, path, SIZE, None, &say).unwrap(),
        _ => {
            let empty = tempfile::tempdir().unwrap();
            image::ext4(tools, path, SIZE, empty.path()).unwrap();
        }
    }
}

fn check(tools: &Tools, system: &str, path: &Path) {
    match system {
        "xfs" => image::check_xfs(tools, path, &|text| println!("{text}")).unwrap(),
        _ => image::check_ext4(tools, path).unwrap(),
    }
}

fn guest(tools: &Tools, folder: &Path, system: &str, socket: &Path, script: &str) -> Guest {
    let mut initramfs = Initramfs::new(tools).unwrap();
    if system == "xfs" {
        initramfs.modules(&["xfs"]).unwrap();
    }
    let folder = tempfile::tempdir_in(folder).unwrap().keep();
    let script = format!("{SHELL}{}", script.replace("FS", system));
    let machine = Machine::new().memory(512).limit(LIMIT).card(socket);
    machine.start(tools, &initramfs.finish(&script), &folder).unwrap()
}

/// Writes until all is flushed, has `crash` happen under load, and reads again; the drive as it is then.
fn survives<D>(tools: &Tools, system: &str, start: impl Fn() -> (D, PathBuf), crash: impl FnOnce(D)) -> D {
    let folder = tempfile::tempdir().unwrap();
    let (drive, socket) = start();
    let mut before = guest(tools, folder.path(), system, &socket, WRITES);
    let flushed: Vec<String> = (0..4).map(|_| wait(&mut before, "flushed")).collect();
    wait(&mut before, "loaded");
    crash(drive);
    drop(before);
    let (drive, socket) = start();
    let mut after = guest(tools, folder.path(), system, &socket, READS);
    for sum in flushed {
        assert_eq!(wait(&mut after, "there"), sum, "{system}");
    }
    wait(&mut after, "well");
    after.wait(LIMIT).unwrap();
    drive
}

#[test]
fn file_systems_survive_a_kill_of_the_process() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    for system in ["xfs", "ext4"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        make(&tools, system, &path);
        let drive = format!("d1:size={SIZE},backing={}", path.display());
        let start = || {
            let serving = Serving::start(folder.path(), &["--drive", &drive]).unwrap();
            let socket = serving.socket("d1");
            (serving, socket)
        };
        drop(survives(&tools, system, start, drop));
        check(&tools, system, &path);
    }
}

#[test]
fn file_systems_survive_a_loss_of_power() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    for system in ["xfs", "ext4"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        make(&tools, system, &path);
        let mut storage = ModelStorage::new(0);
        let volume = storage.add(SIZE as usize, 512);
        storage.bytes_mut(volume).copy_from_slice(&std::fs::read(&path).unwrap());
        flush(&mut storage, volume);
        let storage = Mutex::new(Some(storage));
        let start = || {
            let socket = tempfile::tempdir_in(folder.path()).unwrap().keep().join("socket");
            (Model::start(storage.lock().unwrap().take().unwrap(), volume, &socket), socket)
        };
        let cut = |model: Model| {
            let mut left = model.stop();
            let before = left.bytes(volume).to_vec();
            left.lose_power();
            assert!(before != left.bytes(volume), "nothing was lost: that is no test");
            *storage.lock().unwrap() = Some(left);
        };
        let left = survives(&tools, system, start, cut).stop();
        std::fs::write(&path, left.bytes(volume)).unwrap();
        check(&tools, system, &path);
    }
}

fn flush(storage: &mut ModelStorage, volume: VolumeId) {
    let ticket = Ticket { drive: 0, slot: 0 };
    storage.submit(Request { ticket, volume, action: Action::Flush, offset: 0, length: 0, data: Data::None });
    let mut done = Vec::new();
    storage.reap(&mut done);
    assert!(done[0].result.is_ok());
}

/// A drive of this process, on a storage that can lose its power.
struct Model {
    stop: Arc<AtomicBool>,
    wake: Wake,
    thread: Option<JoinHandle<ModelStorage>>,
}

impl Model {
    fn start(storage: ModelStorage, volume: VolumeId, socket: &Path) -> Model {
        let mut controller = Controller::new(Config::new("model")).unwrap();
        let namespace = Namespace::new(1, volume, &storage.volume(volume).unwrap(), 512).unwrap();
        controller.attach(namespace, &storage).unwrap();
        let (registers, interrupts) = (16 << 10, Interrupts::MsiX(controller.vectors()));
        let setup = Setup { identity: Identity::NVME, registers, memory: 0, aperture: 0, interrupts };
        let function = Function::new(setup, Box::new(NoRegisters)).unwrap();
        let wake = Wake::new().unwrap();
        let (mut server, port) = Server::bind_port(socket, function, wake.clone()).unwrap();
        let controller = Arc::new(Mutex::new(controller));
        server.function().set_registers(Box::new(DriveRegisters::new(controller.clone(), wake.clone())));
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, woken) = (stop.clone(), wake.clone());
        let thread = std::thread::spawn(move || {
            let mut drives = Drives::new(storage, 256);
            drives.add(controller, GuestPort::new(port), 1);
            let running = server.start().unwrap();
            while !stopped.load(Ordering::Acquire) {
                if drives.poll() == Activity::Idle {
                    let ready = || drives.poll() == Activity::Busy || drives.arm();
                    woken.sleep(Some(Duration::from_millis(100)), ready);
                }
            }
            drop(running);
            std::mem::take(drives.storage_mut())
        });
        Model { stop, wake, thread: Some(thread) }
    }

    /// Its storage, as it was when the last answer was given.
    fn stop(mut self) -> ModelStorage {
        self.end();
        self.thread.take().unwrap().join().unwrap()
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.notify();
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.end();
    }
}
