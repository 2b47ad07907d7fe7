//! PCI functions and their drivers: the kernel's list in sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{VfioError, at};

const DEVICES: &str = "/sys/bus/pci/devices";
const VFIO_PCI: &str = "/sys/bus/pci/drivers/vfio-pci";

/// Returns the addresses (`0000:00:03.0`) of all functions with this vendor, device and class (the upper 24 bits: `0x010802`), as far as
/// they are given, in order.
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

/// Completes a function's address as people write it: `1:00.0` becomes `0000:01:00.0`. Returns `None` if it is not an address.
pub fn address(text: &str) -> Option<String> {
    let hexadecimal = |text: &str, most: usize| -> Option<u32> {
        let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| u32::from_str_radix(text, 16).ok())?
    };
    let (front, function) = text.split_once('.')?;
    let (front, device) = front.rsplit_once(':')?;
    let (domain, bus) = front.split_once(':').unwrap_or(("0", front));
    let (domain, bus) = (hexadecimal(domain, 8)?, hexadecimal(bus, 2)?);
    let (device, function) = (hexadecimal(device, 2)?, hexadecimal(function, 1)?);
    (device < 32 && function < 8).then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

/// Returns the class of a function: the 24 bits of its configuration space; `None` if there is no such function.
pub fn class(address: &str) -> Option<u32> {
    let text = fs::read_to_string(folder(address).join("class")).ok()?;
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// Returns the vendor and device numbers of a function; `None` if there is no such function.
pub fn id(address: &str) -> Option<(u16, u16)> {
    let number = |name: &str| {
        let text = fs::read_to_string(folder(address).join(name)).ok()?;
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    Some((number("vendor")?, number("device")?))
}

/// Returns the kernel driver of a function, if it has one.
pub fn driver(address: &str) -> Option<String> {
    let driver = fs::read_link(folder(address).join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// Unbinds a function from its kernel driver, if it has one, and binds it to vfio-pci.
///
/// # Errors
///
/// If there is no such function, no permission, or no vfio-pci.
pub fn bind(address: &str) -> Result<(), VfioError> {
    if driver(address).as_deref() == Some("vfio-pci") {
        return Ok(());
    }
    if !Path::new(VFIO_PCI).exists() {
        // Checked before the current driver loses it.
        return Err(VfioError::Missing(address.to_owned(), "vfio-pci driver (modprobe vfio-pci)"));
    }
    hand_over(address, "vfio-pci")?;
    let driver = driver(address);
    match driver.as_deref() {
        Some("vfio-pci") => Ok(()),
        _ => Err(VfioError::Missing(address.to_owned(), "vfio-pci driver that accepts it")),
    }
}

/// Returns a function to any kernel driver that wants it.
///
/// # Errors
///
/// As [`bind`].
pub fn unbind(address: &str) -> Result<(), VfioError> {
    // A line without a name clears the override.
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

/// Returns the number of a function's IOMMU group.
pub(crate) fn group(address: &str) -> Result<String, VfioError> {
    let link = fs::read_link(folder(address).join("iommu_group"));
    let group = link.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    group.ok_or_else(|| VfioError::NoIommu(address.to_owned()))
}

/// Returns the address of a BAR: the first number of its line.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_as_people_write_them() {
        for (text, full) in [
            ("0000:01:00.0", "0000:01:00.0"),
            ("1:0.0", "0000:01:00.0"),
            ("0a:1F.7", "0000:0a:1f.7"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(address(text).as_deref(), Some(full), "{text}");
        }
        for text in
            ["", "1", "01:00", "01:20.0", "01:00.8", "0000:01:00.0/1", "../01:00.0", "0:+1:00.0", "1:2:3:4.5"]
        {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
