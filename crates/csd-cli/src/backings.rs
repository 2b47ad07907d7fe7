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

/// First number of volumes on SSDs.
const ON_SSD: u32 = 1 << 31;

/// Time that an SSD may take to start. CAP.TO allows two minutes, which is too long for a management request.
const START: Duration = Duration::from_secs(30);

/// An SSD that this process drives.
pub type Ssd = dcs_csd::storage::Ssd<Driven>;

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
    let ssd = Ssd::new(Driven(taken), registers, namespace);
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
    ssds: SsdStorage<Driven>,
}

/// Returns a volume's number on SSDs; `None` if it is on files.
fn on_ssds(volume: VolumeId) -> Option<VolumeId> {
    (volume.0 & ON_SSD != 0).then_some(VolumeId(volume.0 & !ON_SSD))
}

impl Backings {
    /// Makes backings of files, without any SSD.
    pub fn new(files: FileStorage) -> Backings {
        Backings { files, ssds: SsdStorage::default() }
    }

    /// Returns the volumes on files.
    pub fn files(&mut self) -> &mut FileStorage {
        &mut self.files
    }

    /// Adds an SSD, and returns its number.
    pub fn add_ssd(&mut self, ssd: Ssd) -> usize {
        self.ssds.add_ssd(ssd)
    }

    /// Removes an SSD on which no volume has ever been used.
    pub fn take_ssd(&mut self, number: usize) -> Option<Ssd> {
        self.ssds.take_ssd(number)
    }

    /// Adds a volume on SSDs, striped over them if they are several: their numbers, and where it begins on each.
    ///
    /// # Errors
    ///
    /// If the SSDs do not have these bytes.
    pub fn add_on_ssds(
        &mut self,
        slices: &[(usize, u64)],
        stripe: u64,
        length: u64,
        read_only: bool,
    ) -> io::Result<VolumeId> {
        let VolumeId(own) =
            self.ssds.add(slices, stripe, length, read_only).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(VolumeId(ON_SSD | own))
    }

    /// Removes a volume.
    pub fn remove(&mut self, volume: VolumeId) {
        match on_ssds(volume) {
            None => self.files.remove(volume),
            Some(own) => self.ssds.remove(own),
        }
    }

    /// Changes a volume's length.
    ///
    /// # Errors
    ///
    /// Those of [`FileStorage::resize`].
    pub fn resize(&mut self, volume: VolumeId, length: u64) -> io::Result<()> {
        match on_ssds(volume) {
            None => self.files.resize(volume, length),
            Some(own) if self.ssds.resize(own, length) => Ok(()),
            Some(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Keeps these, one for each file of a volume, until the requests that it has now have ended. On an SSD
    /// they are dropped at once.
    pub fn keep<T: Send + 'static>(&mut self, volume: VolumeId, kept: Vec<T>) {
        if on_ssds(volume).is_none() {
            self.files.keep(volume, kept);
        }
    }

    /// Sleeps until a request is answered or a guest rings, at most for `limit`.
    pub fn sleep(&mut self, limit: Option<Duration>) {
        let due = self.ssds.deadline().map(|due| Duration::from_nanos(due.saturating_sub(uptime())));
        self.files.sleep([limit, due].into_iter().flatten().min());
    }
}

impl Storage for Backings {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        match on_ssds(volume) {
            None => self.files.volume(volume),
            Some(own) => self.ssds.volume(own),
        }
    }

    fn submit(&mut self, request: Request) {
        match on_ssds(request.volume) {
            None => self.files.submit(request),
            Some(volume) => self.ssds.submit(Request { volume, ..request }),
        }
    }

    fn commit(&mut self) {
        self.files.commit();
        self.ssds.commit();
    }

    /// Adds the files' answers first: the signal of an SSD's interrupt is among them, and its own answers
    /// have arrived by then.
    fn reap(&mut self, responses: &mut Vec<Response>) {
        self.files.reap(responses);
        self.ssds.reap(responses);
    }
}
