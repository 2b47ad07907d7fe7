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

/// The volume of a drive that can lose its power.
const VOLUME: VolumeId = VolumeId(0);

/// Each is on a drive of its own.
const SYSTEMS: [&str; 2] = ["xfs", "ext4"];

/// Mounts each file system below its name, whichever drive the kernel found first.
const MOUNT: &str = r#"
disk >/dev/null; await /dev/nvme0n1; await /dev/nvme1n1
mounted() { for d in /dev/nvme0n1 /dev/nvme1n1; do mount -t $1 $d /$1 2>/dev/null && return; done; echo "@wrong mount of $1"; }
for f in xfs ext4; do mkdir /$f; mounted $f; done
"#;

/// Files that are flushed, one after the other, the last of them beside others that are not.
const WRITES: &str = r#"
for n in 1 2 3 4; do for f in xfs ext4; do
  SUM=$(fill /$f/flushed$n ${n}000000); mkdir /$f/folder$n; echo $SUM >/$f/folder$n/sum; sync; echo @flushed $SUM
  [ $n -lt 3 ] || (while :; do seq 1 50000 >/$f/more$n; rm -f /$f/gone; mv /$f/more$n /$f/gone; done) &
done; done
# At the drive, and not flushed.
direct() { dd if=/dev/urandom of=/$1/direct bs=64k count=16 oflag=direct conv=notrunc 2>/tmp/said$1 || { cat /tmp/said$1; echo '@wrong direct'; }; }
for f in xfs ext4; do direct $f; direct $f; (while :; do direct $f; done) & done
echo @loaded; read ANSWER
"#;

/// What is left of them.
const READS: &str = r#"
for n in 1 2 3 4; do for f in xfs ext4; do
  same "$(sum /$f/flushed$n)" "$(cat /$f/folder$n/sum)" "file $n of $f"; echo @there $(sum /$f/flushed$n)
done; done
umount /xfs /ext4; dmesg | grep -i "corrupt\|i/o error" && echo '@wrong file system'
echo @well
"#;

/// Makes a file system in an image in the folder, which has its name.
fn make(tools: &Tools, system: &str, folder: &Path) -> PathBuf {
    let path = folder.join(system);
    match system {
        "xfs" => image::xfs(tools, &path, SIZE, None, &|text| println!("{text}")).unwrap(),
        _ => {
            let empty = tempfile::tempdir().unwrap();
            image::ext4(tools, &path, SIZE, empty.path()).unwrap();
        }
    }
    path
}

fn check(tools: &Tools, system: &str, path: &Path) {
    match system {
        "xfs" => image::check_xfs(tools, path, &|text| println!("{text}")).unwrap(),
        _ => image::check_ext4(tools, path).unwrap(),
    }
}

fn guest(tools: &Tools, folder: &Path, sockets: &[PathBuf; 2], script: &str) -> Guest {
    let mut initramfs = Initramfs::new(tools).unwrap();
    initramfs.modules(&["xfs"]).unwrap();
    let folder = tempfile::tempdir_in(folder).unwrap().keep();
    let script = format!("{SHELL}{MOUNT}{script}");
    let machine = sockets.iter().fold(Machine::new(), |machine, socket| machine.card(socket));
    machine.memory(512).limit(LIMIT).start(tools, &initramfs.finish(&script), &folder).unwrap()
}

/// Writes until all is flushed, has `crash` happen under load, and reads again; the drives as they are then.
fn survives<D>(tools: &Tools, start: impl Fn() -> (D, [PathBuf; 2]), crash: impl FnOnce(D)) -> D {
    let folder = tempfile::tempdir().unwrap();
    let (drives, sockets) = start();
    let mut before = guest(tools, folder.path(), &sockets, WRITES);
    let flushed: Vec<String> = (0..8).map(|_| wait(&mut before, "flushed")).collect();
    wait(&mut before, "loaded");
    crash(drives);
    drop(before);
    let (drives, sockets) = start();
    let mut after = guest(tools, folder.path(), &sockets, READS);
    for sum in flushed {
        assert_eq!(wait(&mut after, "there"), sum);
    }
    wait(&mut after, "well");
    after.wait(LIMIT).unwrap();
    drives
}

#[test]
fn file_systems_survive_a_kill_of_the_process() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let paths = SYSTEMS.map(|system| make(&tools, system, folder.path()));
    let drive = |system| format!("{system}:size={SIZE},backing={}", folder.path().join(system).display());
    let drives = SYSTEMS.map(drive);
    let start = || {
        let [xfs, ext4] = &drives;
        let serving = Serving::start(folder.path(), &["--drive", xfs, "--drive", ext4]).unwrap();
        let sockets = SYSTEMS.map(|system| serving.socket(system));
        (serving, sockets)
    };
    drop(survives(&tools, start, drop));
    for (system, path) in SYSTEMS.iter().zip(&paths) {
        check(&tools, system, path);
    }
}

#[test]
fn file_systems_survive_a_loss_of_power() {
    let Some(tools) = Tools::find_or_skip(Flavour::Cloud) else { return };
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let paths = SYSTEMS.map(|system| make(&tools, system, folder.path()));
    let storages = Mutex::new(Some(paths.each_ref().map(|path| storage_of(path))));
    let start = || {
        let sockets = SYSTEMS.map(|_| tempfile::tempdir_in(folder.path()).unwrap().keep().join("socket"));
        let [xfs, ext4] = storages.lock().unwrap().take().unwrap();
        let models = [Model::start("xfs", xfs, &sockets[0]), Model::start("ext4", ext4, &sockets[1])];
        (models, sockets)
    };
    let cut = |models: [Model; 2]| {
        let left = models.map(|model| {
            let mut left = model.stop();
            let before = left.bytes(VOLUME).to_vec();
            left.lose_power();
            assert!(before != left.bytes(VOLUME), "nothing was lost: that is no test");
            left
        });
        *storages.lock().unwrap() = Some(left);
    };
    let left = survives(&tools, start, cut).map(Model::stop);
    for ((system, path), left) in SYSTEMS.iter().zip(&paths).zip(left) {
        std::fs::write(path, left.bytes(VOLUME)).unwrap();
        check(&tools, system, path);
    }
}

/// A storage with the image's bytes, on its disk.
fn storage_of(image: &Path) -> ModelStorage {
    let mut storage = ModelStorage::new(0);
    assert_eq!(storage.add(SIZE as usize, 512), VOLUME);
    storage.bytes_mut(VOLUME).copy_from_slice(&std::fs::read(image).unwrap());
    let ticket = Ticket { drive: 0, slot: 0 };
    let (volume, action) = (VOLUME, Action::Flush);
    storage.submit(Request { ticket, volume, action, offset: 0, length: 0, data: Data::None });
    let mut done = Vec::new();
    storage.reap(&mut done);
    assert!(done[0].result.is_ok());
    storage
}

/// A drive of this process, on a storage that can lose its power.
struct Model {
    stop: Arc<AtomicBool>,
    wake: Wake,
    thread: Option<JoinHandle<ModelStorage>>,
}

impl Model {
    fn start(name: &str, storage: ModelStorage, socket: &Path) -> Model {
        let mut controller = Controller::new(Config::new(name)).unwrap();
        let namespace = Namespace::new(1, VOLUME, &storage.volume(VOLUME).unwrap(), 512).unwrap();
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
