//! The drive on which a file lies, and commands by the kernel driver's passthrough. [linux/nvme_ioctl.h]

use crate::card::extents::ExtentError;
use crate::outcome::DriveFailure;
use dcs_abi::status::{STATUSES, Stage, Status};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// The model that a virtual drive says it is (`dcs_csd`): no other device is sent vendor commands.
const MODEL: &[u8] = b"dcs virtual drive";

/// The driver's passthrough takes so much at once: 128 segments of a page.
const TRANSFER_MAX: usize = 512 << 10;

/// After so long the driver gives a command up. It has a bounded part of a file to read; but the drive may
/// have many other guests.
const PATIENCE_MS: u32 = 300_000;

/// Opcodes of near-storage commands, and the places that they name (docs/csd.md).
pub(super) const NO_DATA: u8 = 0xc0;
pub(super) const FROM_GUEST: u8 = 0xc1;
pub(super) const TO_GUEST: u8 = 0xc2;
pub(super) const BLOCKS: u32 = 1;
pub(super) const RESULTS: u32 = 4;
pub(super) const STREAM: u32 = 5;
pub(super) const NOWHERE: u32 = 6;

/// A command as the driver takes it: `struct nvme_passthru_cmd64`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Passthrough {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_length: u32,
    length: u32,
    cdw10: [u32; 6],
    timeout_ms: u32,
    reserved_too: u32,
    result: u64,
}

const _: () = assert!(size_of::<Passthrough>() == 80);

/// `_IOWR('N', 0x47, struct nvme_passthru_cmd64)`, and 0x48 for I/O commands; `_IO('N', 0x40)`.
const ADMIN64: libc::Ioctl = (0xc050_4e47_u32) as libc::Ioctl;
const IO64: libc::Ioctl = (0xc050_4e48_u32) as libc::Ioctl;
const ID: libc::Ioctl = 0x4e40;

/// The words of a near-storage command (docs/csd.md): opcode, double words 2 and 3, 10 to 15.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    pub opcode: u8,
    pub places: u32,
    pub words: [u32; 6],
}

/// A namespace of a virtual drive.
#[derive(Debug)]
pub(super) struct Device {
    file: File,
    namespace: u32,
    /// Bytes of a command's data at most.
    pub most: usize,
    /// Bytes of a logical block.
    pub block: usize,
}

/// A command's end, other than by success.
#[derive(Debug)]
pub(super) enum Failed {
    /// The drive's status.
    Status(u16),
    /// The driver's errno.
    Errno(i32),
}

impl Device {
    /// Returns the drive that a block device is a namespace or a partition of, and the device's first byte on
    /// it.
    pub fn of(number: u64) -> Result<(Device, u64), DriveFailure> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let elsewhere = || {
            DriveFailure::unavailable(
                libc::EXDEV,
                format!(
                    "the file is on no virtual drive (device {major}:{minor}): nothing can be computed beside its disk"
                ),
            )
        };
        let unknown = |error: std::io::Error| DriveFailure::from(ExtentError::Unknown(error));
        let mut folder =
            std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).map_err(|_| elsewhere())?;
        let mut start = 0;
        if folder.join("partition").exists() {
            let text = std::fs::read_to_string(folder.join("start")).map_err(unknown)?;
            let sectors = text.trim().parse::<u64>().ok();
            start = sectors.and_then(|sectors| sectors.checked_mul(512)).ok_or_else(elsewhere)?;
            folder.pop();
        }
        let block = std::fs::read_to_string(folder.join("queue/logical_block_size")).map_err(unknown)?;
        let block = block.trim().parse().ok().filter(|block| (512..=65_536).contains(block));
        let block = block.ok_or_else(elsewhere)?;
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = name.strip_prefix("nvme").ok_or_else(elsewhere)?;
        let path = PathBuf::from(format!("/dev/ng{rest}"));
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| {
            DriveFailure::unavailable(
                error.raw_os_error().unwrap_or(0),
                format!("{}: {error}: near-storage commands need root", path.display()),
            )
        })?;
        let is_device = file.metadata().is_ok_and(|found| {
            let dev = std::fs::read_to_string(format!("/sys/class/nvme-generic/ng{rest}/dev"));
            let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
            found.file_type().is_char_device()
                && dev.is_ok_and(|dev| dev.trim() == format!("{major}:{minor}"))
        });
        if !is_device {
            return Err(elsewhere());
        }
        let mut device = Device { file, namespace: 0, most: 4096, block };
        // SAFETY: NVME_IOCTL_ID has no argument.
        let namespace = unsafe { libc::ioctl(device.file.as_raw_fd(), ID) };
        device.namespace = u32::try_from(namespace).map_err(|_| elsewhere())?;
        device.identify()?;
        Ok((device, start))
    }

    /// Makes sure that it is one of ours, and asks how much it takes at once.
    fn identify(&mut self) -> Result<(), DriveFailure> {
        let mut data = Buffer::new(4096);
        let command = Passthrough { opcode: 0x06, cdw10: [1, 0, 0, 0, 0, 0], ..Passthrough::default() };
        let answer = self.call(ADMIN64, command, Some(data.bytes_mut()));
        let data = data.bytes();
        if answer.is_err() || !data[24..].starts_with(MODEL) {
            return Err(DriveFailure::unavailable(
                libc::EXDEV,
                "the file's disk is no virtual drive of dcs csd: nothing can be computed beside it",
            ));
        }
        // The largest transfer, in pages, as a power of two; 0: no limit. [base, figure 313]
        let shift = data[77];
        let told = if (1..16).contains(&shift) { 4096usize << shift } else { TRANSFER_MAX };
        self.most = told.min(TRANSFER_MAX);
        Ok(())
    }

    /// Returns true if both are the same namespace.
    pub fn is(&self, other: &Device) -> bool {
        let number = |device: &Device| device.file.metadata().map(|found| found.rdev()).ok();
        number(self).is_some() && number(self) == number(other)
    }

    /// Reads or writes one logical block.
    pub fn block_at(&self, number: u64, writes: bool, data: &mut Buffer) -> Result<(), DriveFailure> {
        let (low, high) = (number as u32, (number >> 32) as u32);
        let buffer = (data.length / 4) as u32;
        let words = match writes {
            true => [buffer, data.length as u32, 1, 0, low, high],
            false => [buffer, 1, low, high, 0, 0],
        };
        let (opcode, places) = if writes { (FROM_GUEST, BLOCKS << 4) } else { (TO_GUEST, BLOCKS) };
        let done = self.run(Words { opcode, places, words }, Some(data.bytes_mut()));
        done.map(|_| ()).map_err(Failed::failure)
    }

    /// Makes what the drive wrote durable on its disk.
    pub fn flush(&self) -> Result<(), DriveFailure> {
        let done = self.run(Words { opcode: 0, places: 0, words: [0; 6] }, None);
        done.map(|_| ()).map_err(Failed::failure)
    }

    /// Carries out a command; its 64-bit result.
    pub fn run(&self, words: Words, data: Option<&mut [u8]>) -> Result<u64, Failed> {
        let command = Passthrough {
            opcode: words.opcode,
            nsid: self.namespace,
            cdw2: words.places,
            cdw10: words.words,
            timeout_ms: PATIENCE_MS,
            ..Passthrough::default()
        };
        self.call(IO64, command, data)
    }

    fn call(
        &self,
        which: libc::Ioctl,
        mut command: Passthrough,
        data: Option<&mut [u8]>,
    ) -> Result<u64, Failed> {
        if let Some(data) = data {
            (command.address, command.length) = (data.as_mut_ptr() as u64, data.len() as u32);
        }
        loop {
            // SAFETY: the driver reads and writes a structure of this layout, and the `length` bytes at
            // `address`, which the caller lends until the call is over: it waits for the command's end.
            let code = unsafe { libc::ioctl(self.file.as_raw_fd(), which, &mut command) };
            match (code, std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) {
                (0, _) => return Ok(command.result),
                (1.., _) => return Err(Failed::Status(code as u16)),
                (_, libc::EINTR) => {}
                (_, errno) => return Err(Failed::Errno(errno)),
            }
        }
    }
}

impl Failed {
    /// The consequence for a transfer.
    pub fn failure(self) -> DriveFailure {
        match self {
            // The drive's own reasons are those of the command set.
            Failed::Status(code) if code >> 8 & 7 == 7 => {
                let same = STATUSES.iter().find(|info| info.code() & 0x7ff == code & 0x7ff);
                DriveFailure::new(same.map_or(Status::Unknown(code), |info| info.status), 0)
            }
            // Media errors, and a disk that is full.
            Failed::Status(code) if matches!(code & 0x7ff, 0x280 | 0x081) => {
                let full = code & 0x7ff == 0x081;
                let status = if full { Status::CapacityExceeded } else { Status::WriteError };
                DriveFailure { stage: Stage::Destination, ..DriveFailure::new(status, libc::EIO) }
            }
            Failed::Status(code) if code >> 8 & 7 == 2 => DriveFailure::new(Status::ReadError, libc::EIO),
            // Command Interrupted.
            Failed::Status(code) if code & 0x7ff == 0x021 => DriveFailure::unavailable(
                libc::EAGAIN,
                "other transfers have the memory that the drive has for operators: try again when they have ended",
            ),
            // The namespace went, or was cut; or the drive has forgotten the stream.
            Failed::Status(code) => {
                let reason =
                    format!("the drive refuses a near-storage command (status {:03x}h)", code & 0x7ff);
                DriveFailure {
                    reason: Some(reason.into()),
                    ..DriveFailure::new(Status::DeviceReset, libc::EIO)
                }
            }
            Failed::Errno(errno) => DriveFailure::new(Status::DeviceReset, errno),
        }
    }
}

/// Memory for a command's data, from the beginning of a page on.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    at: usize,
    length: usize,
}

impl Buffer {
    pub fn new(length: usize) -> Buffer {
        let memory = vec![0u8; length + 4096];
        let at = memory.as_ptr().align_offset(4096);
        Buffer { memory, at, length }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.at..self.at + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + self.length]
    }
}
