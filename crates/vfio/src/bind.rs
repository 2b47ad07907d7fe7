//! Which functions there are, and which driver has them: the kernel's list in sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{VfioError, at};

const DEVICES: &str = "/sys/bus/pci/devices";

/// The addresses (`0000:00:03.0`) of all functions with this vendor, device or class (the upper 24 bits: `0x010802`),
/// whichever are given, in order.
pub fn functions(vendor: Option<u16>, device: Option<u16>, class: Option<u32>) -> Vec<String> {
    let is = |path: &Path, name: &str, wanted: Option<u32>| {
        let Some(wanted) = wanted else { return true };
        let text = fs::read_to_string(path.join(name)).unwrap_or_default();
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16) == Ok(wanted)
    };
    let mut found: Vec<String> = fs::read_dir(DEVICES)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let path = entry.path();
            is(&path, "vendor", vendor.map(u32::from))
                && is(&path, "device", device.map(u32::from))
                && is(&path, "class", class)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

/// Takes a function from its kernel driver, if it has one, and gives it to vfio-pci.
///
/// # Errors
///
/// Where it cannot be given: there is no such function, no right to, or no vfio-pci.
pub fn bind(address: &str) -> Result<(), VfioError> {
    hand_over(address, "vfio-pci")?;
    let driver = driver(address);
    match driver.as_deref() {
        Some("vfio-pci") => Ok(()),
        _ => Err(VfioError::Missing(address.to_owned(), "vfio-pci to go to: is the module loaded?")),
    }
}

/// Gives a function back to whichever kernel driver wants it.
///
/// # Errors
///
/// As [`bind`].
pub fn unbind(address: &str) -> Result<(), VfioError> {
    // A line without a name is no override.
    hand_over(address, "\n")
}

fn hand_over(address: &str, to: &str) -> Result<(), VfioError> {
    let folder = folder(address);
    let driver = folder.join("driver/unbind");
    if driver.exists() {
        write(&driver, address)?;
    }
    write(&folder.join("driver_override"), to)?;
    write(Path::new("/sys/bus/pci/drivers_probe"), address)
}

fn driver(address: &str) -> Option<String> {
    let driver = fs::read_link(folder(address).join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// The number of a function's IOMMU group.
pub(crate) fn group(address: &str) -> Result<String, VfioError> {
    let link = fs::read_link(folder(address).join("iommu_group"));
    let group = link.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    group.ok_or_else(|| VfioError::NoIommu(address.to_owned()))
}

/// Where a BAR lies: the first number of its line.
pub(crate) fn resource(address: &str, index: usize) -> Option<u64> {
    let lines = fs::read_to_string(folder(address).join("resource")).ok()?;
    let start = lines.lines().nth(index)?.split(' ').next()?;
    u64::from_str_radix(start.trim_start_matches("0x"), 16).ok().filter(|start| *start != 0)
}

fn folder(address: &str) -> PathBuf {
    Path::new(DEVICES).join(address)
}

fn write(path: &Path, text: &str) -> Result<(), VfioError> {
    fs::write(path, text).map_err(at(path))
}
