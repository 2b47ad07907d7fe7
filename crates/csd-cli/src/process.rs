//! The process: drives, their functions and sockets, and the thread that serves them all.
//!
//! ```text
//!   a guest's loads and stores -- socket -- a thread a function --> Controller (under its lock)
//!                                                                        ^
//!   requests -- management socket -- a thread a request --> jobs --> the loop: Drives, Storage
//! ```
//!
//! Requests are carried out one at a time. A request is prepared first (files and sockets, which may block or
//! fail), then the loop carries it out in full or not at all.

use crate::descriptors;
use crate::encryption;
use crate::layout::{Backing, Layout, LayoutError, Share};
use crate::modules;
use crate::pace::Pace;
use crate::refused::Refused;
use crate::slots;
use crate::ssds::Ssds;
use dcs_console::interrupt::{self, Leftover};
use dcs_csd::namespace::identifier;
use dcs_csd::storage::FileStorage;
use dcs_csd::{
    Activity, Chain, Config, ConfigError, Controller, DriveId, Drives, Limits, Placement, Storage, VolumeId,
};
use dcs_csd_cli::backings::Backings;
use dcs_csd_cli::port::{DriveRegisters, GuestPort};
use dcs_csd_cli::request::Rates;
use dcs_csd_cli::spec::{Drive, Namespace};
use dcs_csd_cli::state::{Slice, Slot, Space, State, Worked};
use dcs_csd_cli::threads::{self, Threads};
use dcs_vfio_user::pci::{Function, Identity, Interrupts, NoRegisters, Setup};
use dcs_vfio_user::wake::Wake;
use dcs_vfio_user::{Port, Running, Server};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of entries of the storage's ring, and of commands that it has at once.
const ENTRIES: u32 = 256;
/// Minimum size of BAR0: drivers know controllers of that size.
const REGISTERS: u64 = 16 << 10;

type Loop = Drives<GuestPort, Backings>;
type Job = Box<dyn FnOnce(&mut Loop) + Send>;

pub struct Process {
    sockets: PathBuf,
    pub(crate) wake: Wake,
    /// The slots that do operators' work.
    slots: Option<Placement>,
    jobs: Sender<Job>,
    /// Files that may be open at once.
    descriptors: u64,
    pub(crate) held: Mutex<Inventory>,
    pub(crate) ssds: Ssds,
}

#[derive(Default)]
pub(crate) struct Inventory {
    pub(crate) layout: Layout,
    drives: BTreeMap<String, Served>,
}

/// A drive that is being served.
struct Served {
    spec: Drive,
    socket: PathBuf,
    controller: Arc<Mutex<Controller>>,
    port: Port,
    /// Its number in the loop.
    number: DriveId,
    spaces: BTreeMap<u32, (Space, VolumeId)>,
    running: Running,
    /// Path of its socket.
    _leftover: Leftover,
}

/// A namespace with its place and its files, but no volume yet.
struct Prepared {
    space: Space,
    owner: String,
    slices: Vec<(Backing, u64)>,
    chain: Option<Arc<Chain>>,
    nguid: [u8; 16],
    /// Other controllers of its subsystem have it too.
    shared: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Starts the loop, without drives. It looks for work for `poll` before it sleeps. Operators' work is
    /// done by these slots, which are threads, or by the loop if there are none. `ssds` opens SSDs that the
    /// process drives itself.
    pub fn start(
        sockets: &Path,
        poll: Duration,
        slots: Option<Placement>,
        ssds: Ssds,
    ) -> io::Result<Arc<Process>> {
        let wake = Wake::new()?;
        let (jobs, requests) = channel::<Job>();
        let (done, storage) = channel();
        let (woken, placement) = (wake.clone(), slots.clone());
        std::thread::Builder::new().name("dcs-csd".into()).spawn(move || {
            let begun = FileStorage::new(ENTRIES).and_then(|mut storage| {
                storage.watch(woken.as_fd().try_clone_to_owned()?);
                let mut drives = Drives::new(Backings::new(storage), ENTRIES as usize);
                drives.set_disposal(threads::disposal(&woken)?);
                if let Some(placement) = placement {
                    let threads = Threads::start(placement.slots().len() as u16, &woken)?;
                    drives.set_placed_workers(Box::new(threads), placement).map_err(io::Error::other)?;
                }
                Ok(drives)
            });
            match begun {
                Ok(drives) => {
                    let _ = done.send(Ok(()));
                    let _end = EndsProcess;
                    run(drives, &requests, &woken, poll);
                }
                Err(error) => _ = done.send(Err(error)),
            }
        })?;
        storage.recv().map_err(io::Error::other)??;
        let (sockets, descriptors) = (sockets.to_path_buf(), descriptors::raise());
        Ok(Arc::new(Process { sockets, wake, slots, jobs, descriptors, held: Mutex::default(), ssds }))
    }

    /// Has the loop do something, and waits for it.
    pub(crate) fn call<T: Send + 'static>(&self, work: impl FnOnce(&mut Loop) -> T + Send + 'static) -> T {
        let (done, answer) = channel();
        let job: Job = Box::new(move |drives| _ = done.send(work(drives)));
        self.jobs.send(job).expect("the loop lives as long as the process");
        self.wake.notify();
        answer.recv().expect("the loop does every job")
    }

    /// Adds a drive, or namespaces to an existing one.
    pub fn add(&self, spec: Drive) -> Result<(), Refused> {
        spec.check_name().map_err(Refused::new)?;
        // Slow work is done before and after the lock is held: other requests go on meanwhile.
        let chains = encryption::chains(&spec.namespaces)?;
        let started = self.start_ssds(&spec)?;
        let mut held = lock(&self.held);
        let Inventory { layout, drives } = &mut *held;
        let taken = self.take_ssds(layout, started);
        let added = self.add_to(layout, drives, spec, chains);
        let given_back = match &added {
            Ok(()) => {
                self.regroup(layout, drives);
                Vec::new()
            }
            Err(_) => self.release_ssds(layout, taken),
        };
        drop(held);
        drop(given_back);
        added
    }

    /// Tells the loop which drives may wait for the same disk.
    fn regroup(&self, layout: &mut Layout, drives: &BTreeMap<String, Served>) {
        let groups = layout.groups(|owner| owner.split('/').next().unwrap_or(owner));
        let number = |(name, group)| drives.get(name).map(|served| (served.number, group));
        let groups: Vec<_> = groups.into_iter().filter_map(number).collect();
        self.call(move |drives| groups.into_iter().for_each(|(drive, group)| drives.set_group(drive, group)));
    }

    fn add_to(
        &self,
        layout: &mut Layout,
        drives: &mut BTreeMap<String, Served>,
        spec: Drive,
        chains: Vec<Option<Arc<Chain>>>,
    ) -> Result<(), Refused> {
        let mut needed = descriptors::of_backings(spec.namespaces.iter().flat_map(|space| &space.backing));
        if !drives.contains_key(&spec.name) {
            needed += descriptors::of_drive(&spec);
        }
        let held: u64 = drives.values().map(Served::descriptors).sum();
        descriptors::check(self.descriptors, held + needed)?;
        match drives.get_mut(&spec.name) {
            Some(_) if spec.namespaces.is_empty() => {
                Err(Refused::new(format!("there is a drive {} already", spec.name)))
            }
            Some(served) => {
                if !spec.fits(&served.spec) {
                    let why = format!("there is a drive {} already, with other settings", spec.name);
                    return Err(Refused::new(why)
                        .advise("give only the namespace; for limits and weight use dcs csd set"));
                }
                let spec = Drive { namespaces: spec.namespaces, ..served.spec.clone() };
                let prepared = prepare(layout, &spec, chains, &served.spaces)?;
                let added = self.attach(layout, &served.controller, prepared)?;
                served.spaces.extend(added);
                Ok(())
            }
            None => {
                let path = (&spec.subsystem, spec.path);
                let same = |other: &&Served| (&other.spec.subsystem, other.spec.path) == path;
                if let Some(other) = drives.values().filter(|_| path.0.is_some()).find(same) {
                    return Err(Refused::new(format!(
                        "{} is path {} of that subsystem already",
                        other.spec.name, path.1
                    ))
                    .advise("each path has a number of its own: path=2"));
                }
                let served = self.serve(layout, spec, chains)?;
                drives.insert(served.spec.name.clone(), served);
                Ok(())
            }
        }
    }

    /// Makes a drive and its socket.
    fn serve(
        &self,
        layout: &mut Layout,
        spec: Drive,
        chains: Vec<Option<Arc<Chain>>>,
    ) -> Result<Served, Refused> {
        check_weight(spec.weight)?;
        let mut controller = Controller::new(configuration(&spec))?;
        slots::check(self.slots.as_ref(), &spec)?;
        if spec.load_programs {
            controller.set_builder(modules::builder());
        }
        controller.set_limits(limits(&spec));
        let registers = controller.registers_len().next_power_of_two().max(REGISTERS);
        let vectors = controller.vectors();
        let interrupts = match spec.msi {
            true => Interrupts::Msi(vectors.next_power_of_two().min(32)),
            false => Interrupts::MsiX(vectors),
        };
        let setup = Setup { identity: Identity::NVME, registers, memory: 0, aperture: 0, interrupts };
        let function = Function::new(setup, Box::new(NoRegisters)).map_err(Refused::new)?;
        let socket = self.sockets.join(format!("{}.sock", spec.name));
        let bind = || Server::bind_port(&socket, function, self.wake.clone());
        let ((mut server, port), leftover) =
            interrupt::leftover_of(&socket, bind).map_err(|error| occupied(&socket, &error))?;
        let controller = Arc::new(Mutex::new(controller));
        server.function().set_registers(Box::new(DriveRegisters::new(controller.clone(), self.wake.clone())));
        let prepared = prepare(layout, &spec, chains, &BTreeMap::new());
        let spaces = match prepared.and_then(|prepared| self.attach(layout, &controller, prepared)) {
            Ok(spaces) => spaces,
            Err(refused) => {
                let _ = std::fs::remove_file(&socket);
                return Err(refused);
            }
        };
        let (shared, guest) = (controller.clone(), GuestPort::new(port.clone()));
        let (weight, load) = (spec.weight, spec.load.unwrap_or(1));
        let number = self.call(move |drives| {
            let number = drives.add(shared, guest, weight);
            drives.set_load(number, load);
            number
        });
        match server.start() {
            Ok(running) => {
                Ok(Served { spec, socket, controller, port, number, spaces, running, _leftover: leftover })
            }
            Err(error) => {
                let _ = std::fs::remove_file(&socket);
                self.forget(layout, &spec.name, &controller, &spaces);
                self.call(move |drives| drives.remove(number));
                Err(Refused::new(format!("no thread for {}: {error}", spec.name))
                    .advise("raise the limit: ulimit -u; of a service, TasksMax="))
            }
        }
    }

    /// Makes volumes of prepared namespaces and attaches them: all or none.
    fn attach(
        &self,
        layout: &mut Layout,
        controller: &Arc<Mutex<Controller>>,
        prepared: Vec<Prepared>,
    ) -> Result<BTreeMap<u32, (Space, VolumeId)>, Refused> {
        let owners: Vec<String> = prepared.iter().map(|one| one.owner.clone()).collect();
        let controller = controller.clone();
        let attached = self.call(move |drives| attach(drives, &mut lock(&controller), prepared));
        if attached.is_err() {
            owners.iter().for_each(|owner| layout.release(owner));
        }
        attached
    }

    /// Removes a namespace, or a whole drive.
    pub fn remove(&self, name: &str, nsid: Option<u32>) -> Result<(), Refused> {
        let mut held = lock(&self.held);
        let Inventory { layout, drives } = &mut *held;
        let served = drives.get_mut(name).ok_or_else(|| missing(name))?;
        if let Some(nsid) = nsid {
            let space = served.spaces.remove_entry(&nsid).ok_or_else(|| no_space(name, nsid))?;
            self.forget(layout, name, &served.controller, &BTreeMap::from([space]));
            self.regroup(layout, drives);
            return Ok(());
        }
        let Some(Served { socket, controller, number, spaces, running, .. }) = drives.remove(name) else {
            return Err(missing(name));
        };
        // The guest is disconnected, and its commands in progress end, before anything is removed.
        let _ = std::fs::remove_file(&socket);
        drop(running);
        self.forget(layout, name, &controller, &spaces);
        self.call(move |drives| drives.remove(number));
        self.regroup(layout, drives);
        Ok(())
    }

    /// Detaches namespaces, and releases their slices.
    fn forget(
        &self,
        layout: &mut Layout,
        name: &str,
        controller: &Arc<Mutex<Controller>>,
        spaces: &BTreeMap<u32, (Space, VolumeId)>,
    ) {
        let all: Vec<(u32, VolumeId)> = spaces.iter().map(|(nsid, (_, volume))| (*nsid, *volume)).collect();
        let controller = controller.clone();
        self.call(move |drives| {
            let mut controller = lock(&controller);
            for (nsid, volume) in all {
                // The drive exists: it was attached with the volume.
                let _ = controller.detach(nsid);
                drives.storage_mut().remove(volume);
            }
        });
        spaces.keys().for_each(|nsid| layout.release(&owner(name, *nsid)));
    }

    /// Resizes a namespace.
    pub fn resize(&self, name: &str, nsid: u32, size: u64) -> Result<(), Refused> {
        let mut held = lock(&self.held);
        let Inventory { layout, drives } = &mut *held;
        let served = drives.get_mut(name).ok_or_else(|| missing(name))?;
        let (space, volume) = served.spaces.get_mut(&nsid).ok_or_else(|| no_space(name, nsid))?;
        check_size(size, space.block)?;
        check_rows(size, space.slices.len(), space.stripe)?;
        let each = part(size, space.slices.len(), space.stripe);
        let before = part(space.size, space.slices.len(), space.stripe);
        let owner = owner(name, nsid);
        // Nothing is cut off yet.
        drop(layout.resize(&owner, each.max(before))?);
        let (controller, volume, block) = (served.controller.clone(), *volume, space.block);
        let resized =
            self.call(move |drives| resize(drives, &mut lock(&controller), nsid, volume, size, block));
        let (length, resized) = match resized {
            Ok(()) => (each, Ok(())),
            Err(refused) => (before, Err(refused)),
        };
        // A smaller one always fits. The bytes that it loses are unlocked when no request uses them.
        let tails = layout.resize(&owner, length)?;
        self.call(move |drives| drives.storage_mut().keep(volume, tails));
        if resized.is_ok() {
            space.size = size;
            space.slices.iter_mut().for_each(|slice| slice.length = each);
        }
        resized
    }

    /// Changes a drive's share or limits.
    pub fn set(&self, name: &str, rates: Rates) -> Result<(), Refused> {
        let mut held = lock(&self.held);
        let served = held.drives.get_mut(name).ok_or_else(|| missing(name))?;
        let Rates { weight, iops, bytes_per_s } = rates;
        let weight = weight.unwrap_or(served.spec.weight);
        check_weight(weight)?;
        let spec = &mut served.spec;
        spec.weight = weight;
        spec.iops = iops.unwrap_or(spec.iops);
        spec.bytes_per_s = bytes_per_s.unwrap_or(spec.bytes_per_s);
        let limits = limits(spec);
        let (number, controller) = (served.number, served.controller.clone());
        self.call(move |drives| {
            drives.set_weight(number, weight);
            lock(&controller).set_limits(limits);
        });
        Ok(())
    }

    /// Loads a module, which chains name by the SHA-256 of its bytes.
    pub fn load(&self, module: &Path) -> Result<(), Refused> {
        if self.slots.as_ref().is_some_and(|slots| !slots.takes_modules()) {
            let why = "no slot is bound to modules";
            return Err(Refused::new(why).advise("bind one to them: dcs csd run --slot module"));
        }
        modules::load(module)
    }

    /// The slots that do operators' work.
    pub fn slots(&self) -> Vec<Slot> {
        let held = lock(&self.held);
        let named = |drive| held.drives.values().find(|served| served.number == drive);
        let name = |drive| Some(named(drive)?.spec.name.clone());
        let states = self.call(|drives| drives.slots().collect::<Vec<_>>());
        states.iter().enumerate().map(|(slot, state)| Slot::new(slot, state, name)).collect()
    }

    /// Returns the state and the counters of everything.
    pub fn state(&self) -> Vec<State> {
        lock(&self.held).drives.values().map(Served::state).collect()
    }
}

impl Served {
    /// Returns the descriptors that it may need at once.
    fn descriptors(&self) -> u64 {
        let slices = self.spaces.values().flat_map(|(space, _)| &space.slices);
        descriptors::of_drive(&self.spec) + descriptors::of_backings(slices.map(|slice| &slice.backing))
    }

    fn state(&self) -> State {
        let controller = lock(&self.controller);
        State {
            name: self.spec.name.clone(),
            socket: self.socket.clone(),
            connected: self.port.is_connected(),
            subsystem: self.spec.subsystem.clone(),
            path: self.spec.path,
            weight: self.spec.weight,
            iops: self.spec.iops,
            bytes_per_s: self.spec.bytes_per_s,
            queues: self.spec.queues,
            msi: self.spec.msi,
            namespaces: self.spaces.values().map(|(space, _)| space.clone()).collect(),
            under_way: controller.outstanding() as u64,
            slots: u64::from(controller.config().commands),
            slots_used: controller.slots_used() as u64,
            operator_memory: controller.config().operator_memory,
            operator_memory_used: controller.operator_memory(),
            programs_loaded: controller.loaded().0 as u64,
            latencies: controller.latencies().into(),
            operators: controller.operators().map(|(one, work)| Worked::new(one.name(), work)).collect(),
            counted: controller.counters(),
        }
    }
}

/// Ends the process if the loop panics: a process without one answers no guest, and no guest finds out.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// The loop: requests, then drives, then sleep.
fn run(mut drives: Loop, requests: &Receiver<Job>, wake: &Wake, poll: Duration) {
    let mut pace = Pace::new(poll);
    loop {
        if step(&mut drives, requests) {
            pace.worked(Instant::now(), &drives);
            continue;
        }
        if pace.looks(Instant::now(), drives.under_way()) {
            // The threads that guests' doorbells come to may need this processor.
            std::thread::yield_now();
            continue;
        }
        let nap = pace.nap(Instant::now(), drives.under_way());
        let look = |drives: &mut Loop| step(drives, requests) || (nap.is_none() && drives.arm());
        let sleep = |drives: &mut Loop| {
            let rest = nap.or_else(|| drives.rest());
            drives.storage_mut().sleep(rest);
        };
        if wake.sleep_by(&mut drives, look, sleep) {
            pace.worked(Instant::now(), &drives);
        }
    }
}

fn step(drives: &mut Loop, requests: &Receiver<Job>) -> bool {
    let mut busy = false;
    while let Ok(job) = requests.try_recv() {
        job(drives);
        busy = true;
    }
    drives.poll() == Activity::Busy || busy
}

/// Gives each namespace a number and a place.
fn prepare(
    layout: &mut Layout,
    drive: &Drive,
    chains: Vec<Option<Arc<Chain>>>,
    there: &BTreeMap<u32, (Space, VolumeId)>,
) -> Result<Vec<Prepared>, Refused> {
    let mut all: Vec<Prepared> = Vec::new();
    for (wanted, chain) in drive.namespaces.iter().zip(chains) {
        let taken = |nsid: u32| there.contains_key(&nsid) || all.iter().any(|one| one.space.nsid == nsid);
        let free = || (1..).find(|nsid| !taken(*nsid)).unwrap_or(u32::MAX);
        let nsid = wanted.nsid.unwrap_or_else(free);
        let prepared = match taken(nsid) {
            true => Err(Refused::new(format!("there is a namespace {}/{nsid} already", drive.name))
                .advise("leave nsid out: then it gets the first number that is free")),
            false => place(layout, drive, nsid, wanted, chain),
        };
        match prepared {
            Ok(prepared) => all.push(prepared),
            Err(refused) => {
                all.iter().for_each(|one| layout.release(&one.owner));
                return Err(refused);
            }
        }
    }
    Ok(all)
}

fn place(
    layout: &mut Layout,
    drive: &Drive,
    nsid: u32,
    wanted: &Namespace,
    chain: Option<Arc<Chain>>,
) -> Result<Prepared, Refused> {
    let Namespace { size, stripe, block, read_only, .. } = *wanted;
    check_size(size, block)?;
    if wanted.backing.is_empty() {
        return Err(Refused::new("a namespace needs a backing").advise("name it: backing=FILE"));
    }
    if !stripe.is_power_of_two() || !(4096..=1 << 30).contains(&stripe) {
        let error = format!("a stripe is a power of two from 4KiB to 1GiB, not {stripe} bytes");
        return Err(Refused::new(error));
    }
    check_rows(size, wanted.backing.len(), stripe)?;
    let owner = owner(&drive.name, nsid);
    let length = part(size, wanted.backing.len(), stripe);
    let known = identifier(&subsystem(drive), nsid);
    let share = drive.subsystem.is_some().then(|| Share::of(known));
    let slices = layout.place(&owner, &wanted.backing, wanted.offset, length, (read_only, share))?;
    let placed =
        slices.iter().map(|slice| Slice { backing: slice.path.clone(), offset: slice.offset, length });
    let through = wanted.through.clone();
    let space = Space { nsid, size, block, read_only, stripe, through, slices: placed.collect() };
    let nguid = match share {
        Some(_) => shared_identifier(drive, &space, chain.as_deref()),
        None => known,
    };
    let slices = slices.into_iter().map(|slice| (slice.on, slice.offset)).collect();
    Ok(Prepared { space, owner, slices, chain, nguid, shared: share.is_some() })
}

/// In the loop: makes volumes and namespaces, all or none.
fn attach(
    drives: &mut Loop,
    controller: &mut Controller,
    prepared: Vec<Prepared>,
) -> Result<BTreeMap<u32, (Space, VolumeId)>, Refused> {
    let mut added = BTreeMap::new();
    for one in prepared {
        let space = one.space.clone();
        match attach_one(drives, controller, one) {
            Ok(volume) => _ = added.insert(space.nsid, (space, volume)),
            Err(refused) => {
                for (nsid, (_, volume)) in added {
                    let _ = controller.detach(nsid);
                    drives.storage_mut().remove(volume);
                }
                return Err(refused);
            }
        }
    }
    Ok(added)
}

fn attach_one(
    drives: &mut Loop,
    controller: &mut Controller,
    prepared: Prepared,
) -> Result<VolumeId, Refused> {
    let Prepared { space, slices, chain, nguid, shared, .. } = prepared;
    let storage = drives.storage_mut();
    let volume = add_volume(storage, slices, &space).map_err(Refused::new)?;
    let info = storage.volume(volume).ok_or_else(|| Refused::new("the volume is not there"));
    let attached = info.and_then(|info| {
        let mut namespace = dcs_csd::Namespace::new(space.nsid, volume, &info, space.block)?;
        namespace.read_only |= space.read_only;
        namespace.chain = chain;
        (namespace.nguid, namespace.shared) = (nguid, shared);
        Ok(controller.attach(namespace, &*storage)?)
    });
    if attached.is_err() {
        storage.remove(volume);
    }
    attached.map(|()| volume)
}

/// In the loop: makes a volume on these.
fn add_volume(storage: &mut Backings, slices: Vec<(Backing, u64)>, space: &Space) -> io::Result<VolumeId> {
    let (mut files, mut ssds) = (Vec::new(), Vec::new());
    for (on, offset) in slices {
        match on {
            Backing::File(file) => files.push((file, offset)),
            Backing::Ssd(ssd) => ssds.push((ssd.number, offset)),
        }
    }
    if !ssds.is_empty() {
        return storage.add_on_ssds(&ssds, space.stripe, space.size, space.read_only);
    }
    storage.files().add(files, space.size, space.stripe, space.read_only)
}

/// In the loop: changes a volume's length and a namespace's, both or neither.
fn resize(
    drives: &mut Loop,
    controller: &mut Controller,
    nsid: u32,
    volume: VolumeId,
    size: u64,
    block: u64,
) -> Result<(), Refused> {
    let storage = drives.storage_mut();
    let before = storage.volume(volume).map_or(0, |info| info.length);
    if size > before {
        storage.resize(volume, size).map_err(Refused::new)?;
    }
    if let Err(error) = controller.resize(nsid, size / block, &*storage) {
        // It had this length before.
        let _ = storage.resize(volume, before);
        return Err(error.into());
    }
    if let Err(error) = storage.resize(volume, size) {
        // Its tail gets no new owner while requests can reach it.
        controller.resize(nsid, before / block, &*storage)?;
        return Err(Refused::new(error));
    }
    Ok(())
}

/// Returns the length of each slice of a namespace: whole stripes if it has several.
fn part(size: u64, slices: usize, stripe: u64) -> u64 {
    match slices as u64 {
        1 => size,
        several => size.div_ceil(stripe).div_ceil(several).saturating_mul(stripe),
    }
}

fn check_size(size: u64, block: u64) -> Result<(), Refused> {
    if block != 512 && block != 4096 {
        return Err(ConfigError::Block.into());
    }
    match size > 0 && size.is_multiple_of(block) {
        true => Ok(()),
        false => Err(LayoutError::Size { size, block }.into()),
    }
}

/// Checks that a namespace on several slices has whole rows of stripes.
fn check_rows(size: u64, slices: usize, stripe: u64) -> Result<(), Refused> {
    let row = stripe.saturating_mul(slices as u64);
    match slices > 1 && !size.is_multiple_of(row) {
        true => Err(LayoutError::Rows { size, row }.into()),
        false => Ok(()),
    }
}

fn configuration(spec: &Drive) -> Config {
    Config {
        queues: spec.queues,
        memory: spec.memory,
        operator_memory: spec.operator_memory,
        programs: spec.programs,
        vendor: Identity::NVME.vendor,
        number: spec.path,
        shared: spec.subsystem.is_some(),
        // Linux (6.12) takes a flush in progress on a dead path for failed, though there is another path.
        write_through: spec.subsystem.is_some(),
        subsystem: subsystem(spec),
        ..Config::new(spec.subsystem.as_ref().unwrap_or(&spec.name))
    }
}

/// Returns the name of a drive's subsystem (NQN).
fn subsystem(spec: &Drive) -> String {
    match &spec.subsystem {
        Some(name) => format!("nqn.2014-08.org.nvmexpress:dcs-shared:{name}"),
        None => Config::new(&spec.name).subsystem,
    }
}

/// Returns the identifier of a shared namespace. It differs for other bytes and other keys, so that a guest
/// takes those for different namespaces, and not for paths to the same one.
fn shared_identifier(drive: &Drive, space: &Space, chain: Option<&Chain>) -> [u8; 16] {
    let mut text = format!("{} {} {} {:?}", subsystem(drive), space.block, space.stripe, space.through);
    for lies in &space.slices {
        let path = std::fs::canonicalize(&lies.backing).unwrap_or_else(|_| lies.backing.clone());
        text += &format!(" {:?} {}", path, lies.offset);
    }
    if let Some(chain) = chain {
        text += &format!(" {:x?}", chain.fingerprint());
    }
    identifier(&text, space.nsid)
}

fn check_weight(weight: u32) -> Result<(), Refused> {
    match weight {
        1..=1000 => Ok(()),
        _ => Err(Refused::new(format!("weight must be 1 to 1000, not {weight}"))),
    }
}

fn limits(spec: &Drive) -> Limits {
    Limits { commands: spec.iops, bytes: spec.bytes_per_s }
}

fn owner(name: &str, nsid: u32) -> String {
    format!("{name}/{nsid}")
}

fn missing(name: &str) -> Refused {
    Refused::new(format!("there is no drive {name}")).advise("dcs csd list shows the existing ones")
}

fn no_space(name: &str, nsid: u32) -> Refused {
    Refused::new(format!("there is no namespace {name}/{nsid}"))
        .advise("dcs csd list shows the existing ones")
}

fn occupied(socket: &Path, error: &io::Error) -> Refused {
    let refused = Refused::new(format!("{}: {error}", socket.display()));
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            refused.advise("another process serves this folder: end it, or choose another folder")
        }
        io::ErrorKind::NotFound => refused.advise("make the folder, or choose another: --sockets DIR"),
        _ => refused.advise("choose a folder where you may make sockets: --sockets DIR"),
    }
}
