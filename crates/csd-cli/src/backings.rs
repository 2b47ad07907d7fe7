//! Backings of volumes: files and block devices, through the kernel, and SSDs that this process drives itself
//! over VFIO.

use crate::port::uptime;
use dcs_csd::storage::{FileStorage, SsdBus, SsdStorage};
use dcs_csd::{Request, Response, Storage, VolumeId, VolumeInfo};
use dcs_devices::vfio_devices::{DriveError, OpenSsd};
use dcs_drivers::bus::{Bus, ReadDone, Tag, Window};
use dcs_drivers::nvme::State;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// First number of volumes on SSDs: the SSD's number, then in these bits the volume's own.
const ON_SSD: u32 = 1 << 31;
const OWN: u32 = 0xffff;

/// Time that an SSD may take to start. CAP.TO allows two minutes, which is too long for a management request.
const START: Duration = Duration::from_secs(30);

/// An SSD that this process drives.
pub type Ssd = SsdStorage<Driven>;

/// Its bus.
pub struct Driven(OpenSsd);

impl Bus for Driven {
    fn window(&self) -> Window {
        self.0.bus().window()
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.0.bus().load(offset, bytes);
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        self.0.bus_mut().store(offset, bytes);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.0.bus_mut().write(address, bytes);
    }

    fn read(&mut self, address: u64, length: u32, tag: Tag) {
        self.0.bus_mut().read(address, length, tag);
    }

    fn interrupt(&mut self, vector: u16) {
        self.0.bus_mut().interrupt(vector);
    }
}

impl SsdBus for Driven {
    fn answer(&mut self) -> Option<ReadDone> {
        self.0.answer()
    }

    fn now(&mut self) -> u64 {
        uptime()
    }
}

/// Takes an SSD, which must be bound to vfio-pci, and starts it. Its interrupts signal `wake`.
///
/// # Errors
///
/// [`DriveError`] if it cannot be taken, or does not start.
pub fn open(function: &str, namespace: Option<u32>, wake: BorrowedFd<'_>) -> Result<Ssd, DriveError> {
    let taken = OpenSsd::open(function, Ssd::memory(), wake)?;
    let (registers, name) = (taken.registers(), || function.to_owned());
    let ssd = SsdStorage::new(Driven(taken), registers, namespace);
    let mut ssd = ssd.ok_or_else(|| DriveError::Registers(name()))?;
    ssd.start();
    let end = Instant::now() + START;
    while ssd.state() == State::Starting && Instant::now() < end {
        ssd.look();
        std::thread::sleep(Duration::from_micros(200));
    }
    match ssd.state() {
        State::Ready => Ok(ssd),
        State::Failed(cause) => Err(DriveError::Start(name(), cause)),
        _ => Err(DriveError::Slow(name())),
    }
}

/// All backings of a process.
pub struct Backings {
    files: FileStorage,
    /// By number; `None` if one was removed.
    ssds: Vec<Option<Ssd>>,
}

/// Returns the number of a volume's SSD, and the volume's there; `None` if it is on files.
fn on_ssd(volume: VolumeId) -> Option<(usize, VolumeId)> {
    let ssd = ((volume.0 & !ON_SSD) >> OWN.count_ones()) as usize;
    (volume.0 & ON_SSD != 0).then_some((ssd, VolumeId(volume.0 & OWN)))
}

impl Backings {
    /// Makes backings of files, without any SSD.
    pub fn new(files: FileStorage) -> Backings {
        Backings { files, ssds: Vec::new() }
    }

    /// Returns the volumes on files.
    pub fn files(&mut self) -> &mut FileStorage {
        &mut self.files
    }

    /// Adds an SSD, and returns its number.
    pub fn add_ssd(&mut self, ssd: Ssd) -> usize {
        let free = self.ssds.iter().position(Option::is_none).unwrap_or_else(|| {
            self.ssds.push(None);
            self.ssds.len() - 1
        });
        self.ssds[free] = Some(ssd);
        free
    }

    /// Removes an SSD on which no volume has ever been used.
    pub fn take_ssd(&mut self, number: usize) -> Option<Ssd> {
        self.ssds.get_mut(number)?.take()
    }

    fn ssd(&mut self, number: usize) -> io::Result<&mut Ssd> {
        self.ssds.get_mut(number).and_then(Option::as_mut).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Adds a volume on an SSD.
    ///
    /// # Errors
    ///
    /// If the SSD does not have these bytes, or has had 65,536 volumes.
    pub fn add_on_ssd(
        &mut self,
        ssd: usize,
        offset: u64,
        length: u64,
        read_only: bool,
    ) -> io::Result<VolumeId> {
        let held = self.ssd(ssd)?;
        let VolumeId(own) = held.add(offset, length, read_only).ok_or(io::ErrorKind::InvalidInput)?;
        if own > OWN {
            held.remove(VolumeId(own));
            return Err(io::Error::other("65,536 namespaces were on this SSD: start the process anew"));
        }
        Ok(VolumeId(ON_SSD | (ssd as u32) << OWN.count_ones() | own))
    }

    /// Removes a volume.
    pub fn remove(&mut self, volume: VolumeId) {
        match on_ssd(volume) {
            None => self.files.remove(volume),
            Some((ssd, own)) => _ = self.ssd(ssd).map(|held| held.remove(own)),
        }
    }

    /// Changes a volume's length.
    ///
    /// # Errors
    ///
    /// Those of [`FileStorage::resize`].
    pub fn resize(&mut self, volume: VolumeId, length: u64) -> io::Result<()> {
        match on_ssd(volume) {
            None => self.files.resize(volume, length),
            Some((ssd, own)) if self.ssd(ssd)?.resize(own, length) => Ok(()),
            Some(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Keeps these, one for each file of a volume, until the requests that it has now have ended. On an SSD
    /// they are dropped at once.
    pub fn keep<T: Send + 'static>(&mut self, volume: VolumeId, kept: Vec<T>) {
        if on_ssd(volume).is_none() {
            self.files.keep(volume, kept);
        }
    }

    /// Sleeps until a request is answered or a guest rings, at most for `limit`.
    pub fn sleep(&mut self, limit: Option<Duration>) {
        let due = self.ssds.iter().flatten().filter_map(SsdStorage::deadline).min();
        let due = due.map(|due| Duration::from_nanos(due.saturating_sub(uptime())));
        self.files.sleep([limit, due].into_iter().flatten().min());
    }
}

impl Storage for Backings {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        match on_ssd(volume) {
            None => self.files.volume(volume),
            Some((ssd, own)) => self.ssds.get(ssd)?.as_ref()?.volume(own),
        }
    }

    fn submit(&mut self, request: Request) {
        match on_ssd(request.volume) {
            None => self.files.submit(request),
            Some((ssd, volume)) => {
                let held = self.ssds[ssd].as_mut().expect("an SSD with volumes is not taken out");
                held.submit(Request { volume, ..request });
            }
        }
    }

    fn commit(&mut self) {
        self.files.commit();
        self.ssds.iter_mut().flatten().for_each(SsdStorage::commit);
    }

    /// Adds the files' answers first: the signal of an SSD's interrupt is among them, and its own answers
    /// have arrived by then.
    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.files.reap(responses);
        self.ssds.iter_mut().flatten().for_each(|ssd| ssd.reap(responses));
    }
}
