//! The disks that a card drives: matched with the kernel's by their identifiers; and where a file's
//! device begins on one.

use super::error::CardError;
use dcs_abi::admin::SsdIdentity;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A namespace as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelDisk {
    /// Its device number.
    number: u64,
    name: String,
    identity: SsdIdentity,
}

impl KernelDisk {
    /// The namespace that a path names.
    pub fn of(path: &Path) -> Result<KernelDisk, CardError> {
        let named = path.display().to_string();
        let found = fs::metadata(path).map_err(|error| CardError::Disk(named.clone(), error))?;
        let number = found.rdev();
        let folder = folder(number);
        if !found.file_type().is_block_device() || !folder.exists() {
            return Err(CardError::Identity(named, "is no block device".into()));
        }
        if folder.join("partition").exists() {
            return Err(CardError::Identity(named, "is a partition: name the whole disk".into()));
        }
        let identity = identity(&folder)
            .ok_or_else(|| CardError::Identity(named.clone(), "is no namespace of an NVMe SSD".into()))?;
        Ok(KernelDisk { number, name: named, identity })
    }

    /// Its number on the controller.
    pub fn namespace(&self) -> u32 {
        self.identity.nsid
    }

    /// Refuses a namespace of a card's that is another one.
    pub fn must_be(&self, card: &SsdIdentity) -> Result<(), CardError> {
        match difference(&self.identity, card) {
            None => Ok(()),
            Some(difference) => {
                let line = format!("is not the SSD that the card was given: {difference}");
                Err(CardError::Identity(self.name.clone(), line))
            }
        }
    }
}

/// Identifiers that distinguish namespaces. An identifier that the kernel does not report is not compared.
fn difference(kernel: &SsdIdentity, card: &SsdIdentity) -> Option<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let bytes = |disk: &SsdIdentity| u128::from(disk.blocks) * u128::from(disk.block_size);
    let differ = |what: &str, one: String, other: String| {
        (one != other).then(|| format!("its {what} is {one}, the card's {other}"))
    };
    let known = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    None.or_else(|| differ("serial number", text(&kernel.serial), text(&card.serial)))
        .or_else(|| differ("namespace", kernel.nsid.to_string(), card.nsid.to_string()))
        .or_else(|| differ("size", bytes(kernel).to_string(), bytes(card).to_string()))
        .or_else(|| differ("logical block", kernel.block_size.to_string(), card.block_size.to_string()))
        .or_else(|| known(&kernel.nguid).then(|| differ("NGUID", hex(&kernel.nguid), hex(&card.nguid)))?)
        .or_else(|| known(&kernel.eui64).then(|| differ("EUI-64", hex(&kernel.eui64), hex(&card.eui64)))?)
}

/// Reads a namespace's identifiers from sysfs. [linux, drivers/nvme/host/sysfs.c]
fn identity(folder: &Path) -> Option<SsdIdentity> {
    let text =
        |name: &str| Some(fs::read_to_string(folder.join(name)).ok()?.trim_end_matches('\n').to_owned());
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let mut identity = SsdIdentity {
        nsid: u32::try_from(number("nsid")?).ok()?,
        block_size: u32::try_from(number("queue/logical_block_size")?).ok()?,
        ..Default::default()
    };
    identity.blocks = number("size")?.checked_mul(512)? / u64::from(identity.block_size.max(1));
    let serial = text("device/serial")?;
    let length = serial.len().min(identity.serial.len());
    identity.serial.fill(b' ');
    identity.serial[..length].copy_from_slice(&serial.as_bytes()[..length]);
    // Zeros mean that either is missing; the UUID stands in for a missing NGUID.
    let bytes = |name: &str| {
        let digits: Vec<u8> = text(name)?.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(pair).collect::<Option<Vec<u8>>>()
    };
    if let Some(Ok(eui64)) = bytes("eui").map(TryInto::try_into) {
        identity.eui64 = eui64;
    }
    if let Some(Ok(nguid)) = bytes("nguid").map(TryInto::try_into) {
        identity.nguid = nguid;
    }
    Some(identity)
}

fn folder(number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// Device numbers that belong to a disk which the card drives, and their first byte on it.
#[derive(Clone, Debug)]
pub(super) struct DiskMap {
    /// The card's handle.
    pub handle: u32,
    /// The kernel's number for the same disk.
    device: Option<u64>,
    /// Bytes of a logical block, if the kernel has it.
    pub block_size: Option<u32>,
}

impl DiskMap {
    pub fn new(handle: u32, device: Option<&KernelDisk>) -> DiskMap {
        let block_size = device.map(|disk| disk.identity.block_size);
        DiskMap { handle, device: device.map(|disk| disk.number), block_size }
    }

    /// Returns the start of a block device on this disk, if it is this disk or a partition of it.
    pub fn start_of(&self, device: u64) -> Option<u64> {
        let disk = self.device?;
        if device == disk {
            return Some(0);
        }
        let sysfs = |number: u64| fs::canonicalize(folder(number)).ok();
        let (part, whole) = (sysfs(device)?, sysfs(disk)?);
        if part.parent() != Some(whole.as_path()) {
            return None;
        }
        let start = fs::read_to_string(part.join("start")).ok()?;
        start.trim().parse::<u64>().ok()?.checked_mul(512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> SsdIdentity {
        let mut serial = [b' '; 20];
        serial[..4].copy_from_slice(b"dcs0");
        SsdIdentity { nguid: [1; 16], eui64: [2; 8], nsid: 3, block_size: 512, blocks: 1000, serial }
    }

    #[test]
    fn sysfs_says_what_a_namespace_is() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("nsid", "3\n");
        write("queue/logical_block_size", "512\n");
        write("size", "1000\n");
        write("device/serial", "dcs0                \n");
        assert_eq!(identity(folder.path()), Some(SsdIdentity { nguid: [0; 16], eui64: [0; 8], ..one() }));
        write("eui", "02 02 02 02 02 02 02 02\n");
        write("nguid", "01010101-0101-0101-0101-010101010101\n");
        assert_eq!(identity(folder.path()), Some(one()));
    }

    #[test]
    fn whatever_differs_is_said_and_what_the_kernel_does_not_know_is_not_compared() {
        let kernel = KernelDisk { number: 1, name: "/dev/x".into(), identity: one() };
        assert!(kernel.must_be(&one()).is_ok());
        let mut other = one().serial;
        other[3] = b'1';
        for (card, what) in [
            (SsdIdentity { nguid: [9; 16], ..one() }, "NGUID"),
            (SsdIdentity { eui64: [0; 8], ..one() }, "EUI-64"),
            (SsdIdentity { nsid: 1, ..one() }, "namespace"),
            (SsdIdentity { block_size: 4096, ..one() }, "size"),
            (SsdIdentity { block_size: 1024, blocks: 500, ..one() }, "logical block"),
            (SsdIdentity { blocks: 1001, ..one() }, "size"),
            (SsdIdentity { serial: other, ..one() }, "serial"),
        ] {
            let error = kernel.must_be(&card).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("/dev/x"), "{error}");
        }
        let unknown =
            KernelDisk { identity: SsdIdentity { nguid: [0; 16], eui64: [0; 8], ..one() }, ..kernel };
        assert!(unknown.must_be(&one()).is_ok());
    }

    #[test]
    fn what_is_no_whole_disk_is_refused() {
        let error = KernelDisk::of(Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().contains("no block device"), "{error}");
    }
}
