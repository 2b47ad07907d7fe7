//! Options that say which functions of this machine are the card's.

use std::collections::HashSet;
use std::path::PathBuf;

/// The card and its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The card's PCI address (`0000:00:04.0`), which of several functions is one; without one, the first that there is.
    pub card: Option<String>,
    /// SSDs that the card drives.
    pub disks: Vec<Disk>,
    /// NICs that the card drives, each with an address of its own.
    pub nics: Vec<Nic>,
}

/// An SSD that the card drives: an NVMe controller of its own, of a disk that the kernel drives by another
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// PCI address of the controller that is the card's.
    pub function: String,
    /// The same disk as the kernel has it: files on it are found by this. None: the kernel does not have it.
    pub device: Option<PathBuf>,
}

pub use dcs_devices::vfio_devices::NicOptions as Nic;

/// A setting in the environment makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value:?}: it should be like {like}")]
pub struct OptionsError {
    variable: &'static str,
    value: String,
    like: &'static str,
}

const DISKS: (&str, &str) = ("DCS_CARD_DISKS", "0000:00:05.0=/dev/nvme0n1,0000:00:06.0");
const NICS: (&str, &str) = (
    "DCS_CARD_NIC",
    "0000:00:07.0=10.0.2.15/24,10.0.2.2, and ; between several: ...;0000:00:08.0=10.0.3.15/24",
);

impl Options {
    /// From `DCS_CARD` (the card's address), `DCS_CARD_DISKS` (`FUNCTION=DISK,...`) and `DCS_CARD_NIC`
    /// (`FUNCTION=ADDRESS/PREFIX,GATEWAY;...`), each of which may be missing.
    ///
    /// # Errors
    ///
    /// The setting that makes no sense.
    pub fn from_environment() -> Result<Options, OptionsError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let disks = variable(DISKS.0).map(|value| disks(&value)).transpose()?.unwrap_or_default();
        let nics = variable(NICS.0).map(|value| nics(&value)).transpose()?.unwrap_or_default();
        Ok(Options { card: variable("DCS_CARD"), disks, nics })
    }
}

fn disks(value: &str) -> Result<Vec<Disk>, OptionsError> {
    let disk = |part: &str| {
        let (function, device) = match part.split_once('=') {
            Some((function, device)) => (function, Some(PathBuf::from(device))),
            None => (part, None),
        };
        let function = function.trim().to_string();
        let wrong =
            function.is_empty() || device.as_ref().is_some_and(|device| device.as_os_str().is_empty());
        (!wrong).then_some(Disk { function, device })
    };
    value.split(',').map(disk).collect::<Option<_>>().ok_or_else(|| wrong(DISKS, value))
}

fn nics(value: &str) -> Result<Vec<Nic>, OptionsError> {
    let all: Option<Vec<Nic>> = value.split(';').map(nic).collect();
    // An address is what a NIC is chosen by.
    let differ = |all: &Vec<Nic>| {
        let addresses: HashSet<_> = all.iter().map(|nic| nic.address).collect();
        addresses.len() == all.len()
    };
    all.filter(differ).ok_or_else(|| wrong(NICS, value))
}

fn nic(value: &str) -> Option<Nic> {
    let (function, rest) = value.split_once('=')?;
    let (address, gateway) = match rest.split_once(',') {
        Some((address, gateway)) => (address, Some(gateway.trim().parse().ok()?)),
        None => (rest, None),
    };
    let (address, prefix) = address.split_once('/')?;
    let prefix = prefix.trim().parse().ok().filter(|prefix| *prefix <= 32)?;
    let function = Some(function.trim()).filter(|function| !function.is_empty())?;
    Some(Nic { function: function.into(), address: address.trim().parse().ok()?, prefix, gateway })
}

fn wrong((variable, like): (&'static str, &'static str), value: &str) -> OptionsError {
    OptionsError { variable, value: value.into(), like }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn what_the_examples_say_is_understood() {
        let both = disks(DISKS.1).unwrap();
        assert_eq!(both[0], Disk { function: "0000:00:05.0".into(), device: Some("/dev/nvme0n1".into()) });
        assert_eq!(both[1], Disk { function: "0000:00:06.0".into(), device: None });
        let nics = nics("0000:00:07.0=10.0.2.15/24,10.0.2.2; 0000:00:08.0=10.0.3.15/24").unwrap();
        let [nic, other] = &nics[..] else { panic!("{nics:?}") };
        assert_eq!((nic.address, nic.prefix), (Ipv4Addr::new(10, 0, 2, 15), 24));
        assert_eq!(nic.gateway, Some(Ipv4Addr::new(10, 0, 2, 2)));
        assert_eq!((other.function.as_str(), other.address), ("0000:00:08.0", Ipv4Addr::new(10, 0, 3, 15)));
        assert_eq!(other.gateway, None);
    }

    #[test]
    fn what_makes_no_sense_is_said_with_an_example() {
        for value in ["", "a=", "=b", "a,,b"] {
            assert!(disks(value).is_err(), "{value}");
        }
        for value in [
            "",
            "a",
            "=10.0.0.1/8",
            "a=10.0.0.1",
            "a=10.0.0.1/33",
            "a=10.0.0/8",
            "a=10.0.0.1/8,x",
            "a=10.0.0.1/8;",
            "a=10.0.0.1/8;b=10.0.0.1/8",
        ] {
            let error = nics(value).unwrap_err();
            assert!(error.to_string().contains(NICS.1), "{error}");
        }
    }
}
