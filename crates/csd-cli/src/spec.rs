//! Drives as users write them: `--drive NAME:size=8G,backing=FILE`, tables of a configuration file, JSON on
//! the management socket.

use dcs_console::failure::Failure;
use dcs_console::units;
use dcs_csd::placement::{Binding, Policy};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Default number of bytes of a stripe.
const STRIPE: u64 = 128 << 10;
/// Maximum length of a configuration file.
const CONFIG_MAX: u64 = 1 << 20;

/// A configuration file.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Configuration {
    /// The folder of the sockets.
    #[serde(default)]
    pub sockets: Option<PathBuf>,
    /// Slots for operators' work, each a thread; 0: the thread that serves the drives does it.
    #[serde(default)]
    pub slots: Option<u16>,
    /// Rule for the slots that may do a chain's work.
    #[serde(default, deserialize_with = "policy")]
    pub policy: Option<Policy>,
    /// Each slot's operators, as `md5,sha256` or `any`.
    #[serde(default, deserialize_with = "bindings")]
    pub slot: Vec<Binding>,
    /// Drives, in the order in which they are placed.
    #[serde(default, rename = "drive")]
    pub drives: Vec<Drive>,
}

/// A drive: one function, one socket, one guest.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Drive {
    /// Its socket is NAME.sock.
    pub name: String,
    /// The subsystem that it shares with other controllers; without one, it is alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// Its number in its subsystem, from 1 on: each path to a namespace has a different one.
    #[serde(default = "first")]
    pub path: u16,
    /// Number of I/O queue pairs.
    #[serde(default = "eight")]
    pub queues: u16,
    /// Its share, relative to the other drives.
    #[serde(default = "one")]
    pub weight: u32,
    /// Its expected operators' work, relative to the other drives, by which static policies assign slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<u32>,
    /// Most commands a second; 0: no limit.
    #[serde(default)]
    pub iops: u64,
    /// Most bytes read and written a second; 0: no limit.
    #[serde(default, deserialize_with = "bytes")]
    pub bytes_per_s: u64,
    /// Bytes of device memory for near-storage commands.
    #[serde(default = "mebibyte", deserialize_with = "memory")]
    pub memory: u32,
    /// Bytes of memory that operators of near-storage commands may use together.
    #[serde(default = "operator_memory", deserialize_with = "bytes")]
    pub operator_memory: u64,
    /// Offers its device memory and its operators by the standard's command sets too.
    #[serde(default)]
    pub programs: bool,
    /// Its guest may load programs of its own.
    #[serde(default)]
    pub load_programs: bool,
    /// It interrupts by MSI instead of MSI-X, so that QEMU can unplug it from a running guest.
    #[serde(default)]
    pub msi: bool,
    /// Its namespaces.
    #[serde(default, rename = "namespace")]
    pub namespaces: Vec<Namespace>,
}

/// A namespace: a slice of a file or a block device, or of several.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Namespace {
    /// Its number; without one, the first free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// In bytes.
    #[serde(deserialize_with = "bytes")]
    pub size: u64,
    /// Files or block devices; with several, it is striped over them.
    #[serde(deserialize_with = "one_or_more")]
    pub backing: Vec<PathBuf>,
    /// Its first byte in its backing; without one, after the slices that are there.
    #[serde(default, deserialize_with = "some_bytes", skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// With several backings: bytes on one of them before the next one's turn.
    #[serde(default = "stripe", deserialize_with = "bytes")]
    pub stripe: u64,
    /// Bytes of a logical block.
    #[serde(default = "block")]
    pub block: u64,
    /// The guest cannot write.
    #[serde(default)]
    pub read_only: bool,
    /// The operators that its data pass on their way to the backing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Path of its key, as seen by the process that serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

fn eight() -> u16 {
    8
}

fn mebibyte() -> u32 {
    1 << 20
}

/// The default limit of operator memory.
fn operator_memory() -> u64 {
    dcs_csd::Config::new("").operator_memory
}

fn first() -> u16 {
    1
}

fn one() -> u32 {
    1
}

fn stripe() -> u64 {
    STRIPE
}

fn block() -> u64 {
    512
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Text(String),
}

fn bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match Number::deserialize(from)? {
        Number::Whole(bytes) => Ok(bytes),
        Number::Text(text) => units::size(&text).map_err(serde::de::Error::custom),
    }
}

fn memory<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    bytes(from)?.try_into().map_err(|_| serde::de::Error::custom("device memory is at most 1GiB"))
}

fn some_bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    bytes(from).map(Some)
}

/// Reads a policy's name.
///
/// # Errors
///
/// Lists the existing names.
pub fn policy_named(name: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(Policy::name).join(", ");
    Policy::from_name(name).ok_or_else(|| format!("{name:?} is not a policy; the policies are {}", names()))
}

fn policy<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Policy>, D::Error> {
    policy_named(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

fn bindings<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Binding>, D::Error> {
    let slots = Vec::<String>::deserialize(from)?;
    slots.iter().map(|slot| Binding::parse(slot).map_err(serde::de::Error::custom)).collect()
}

fn one_or_more<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Paths {
        One(PathBuf),
        More(Vec<PathBuf>),
    }
    Ok(match Paths::deserialize(from)? {
        Paths::One(path) => vec![path],
        Paths::More(paths) => paths,
    })
}

impl Configuration {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Configuration, Failure> {
        use std::io::Read;
        let mut text = String::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(CONFIG_MAX).read_to_string(&mut text));
        read.map_err(|error| Failure::io(path.display(), &error))?;
        Configuration::parse(&text).map_err(|(line, column, message)| {
            Failure::usage(format!("{}:{line}:{column}: {message}", path.display())).advise(
                "a drive is a table [[drive]] with a name, and [[drive.namespace]] with size and backing below it",
            )
        })
    }

    /// Reads a configuration in TOML.
    ///
    /// # Errors
    ///
    /// Returns line, column, and the error there.
    pub fn parse(text: &str) -> Result<Configuration, (usize, usize, String)> {
        toml::from_str(text).map_err(|error| {
            let (line, column) = place(text, error.span().map_or(0, |span| span.start));
            (line, column, error.message().to_owned())
        })
    }
}

/// Returns line and column of a byte, from 1 on.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    (before.iter().filter(|byte| **byte == b'\n').count() + 1, before.len() - start + 1)
}

impl Drive {
    /// Returns a drive with this name and default settings, without a namespace.
    fn named(name: &str) -> Drive {
        Drive {
            name: name.to_owned(),
            subsystem: None,
            path: 1,
            queues: 8,
            weight: 1,
            load: None,
            iops: 0,
            bytes_per_s: 0,
            memory: mebibyte(),
            operator_memory: operator_memory(),
            programs: false,
            load_programs: false,
            msi: false,
            namespaces: Vec::new(),
        }
    }

    /// Returns true if, apart from namespaces, it asks for nothing that the existing drive does not have.
    pub fn fits(&self, there: &Drive) -> bool {
        let settings = Drive { namespaces: Vec::new(), ..self.clone() };
        settings == Drive::named(&self.name) || settings == Drive { namespaces: Vec::new(), ..there.clone() }
    }

    /// Reads `NAME:size=8G,backing=FILE,...`: a drive with one namespace; `NAME` alone is one without.
    pub fn parse(text: &str) -> Result<Drive, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let mut drive = Drive::named(name);
        drive.check_name()?;
        if options.is_empty() {
            return Ok(drive);
        }
        let mut size = None;
        let mut space = Namespace {
            nsid: None,
            size: 0,
            backing: Vec::new(),
            offset: None,
            stripe: STRIPE,
            block: block(),
            read_only: false,
            through: None,
            key_file: None,
        };
        for option in options.split(',') {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match key {
                "size" => size = Some(units::size(value)?),
                "backing" if !value.is_empty() => space.backing.push(value.into()),
                "offset" => space.offset = Some(units::size(value)?),
                "stripe" => space.stripe = units::size(value)?,
                "block" => space.block = units::size(value)?,
                "nsid" => space.nsid = Some(number(key, value)?),
                "read-only" if value.is_empty() => space.read_only = true,
                "through" if !value.is_empty() => space.through = Some(value.to_owned()),
                "key-file" if !value.is_empty() => space.key_file = Some(value.into()),
                "subsystem" if !value.is_empty() => drive.subsystem = Some(value.to_owned()),
                "path" => drive.path = number(key, value)?,
                "queues" => drive.queues = number(key, value)?,
                "weight" => drive.weight = number(key, value)?,
                "load" => drive.load = Some(number(key, value)?),
                "iops" => drive.iops = number(key, value)?,
                "bytes-per-s" => drive.bytes_per_s = units::size(value)?,
                "memory" => {
                    drive.memory =
                        units::size(value)?.try_into().map_err(|_| "device memory is at most 1GiB")?;
                }
                "operator-memory" => drive.operator_memory = units::size(value)?,
                "programs" if value.is_empty() => drive.programs = true,
                "load-programs" if value.is_empty() => drive.load_programs = true,
                "msi" if value.is_empty() => drive.msi = true,
                _ => {
                    return Err(format!(
                        "{option}: expected size=, backing=, offset=, stripe=, block=, nsid=, read-only, \
                         through=, key-file=, subsystem=, path=, queues=, weight=, load=, iops=, bytes-per-s=, \
                         memory=, operator-memory=, programs, load-programs, msi"
                    ));
                }
            }
        }
        drive.check_name()?;
        space.size = size.ok_or("a drive needs a size: size=8G")?;
        if space.backing.is_empty() {
            return Err("a drive needs a backing: backing=FILE".into());
        }
        drive.namespaces.push(space);
        Ok(drive)
    }

    /// Checks the names, which become file names, metric labels and parts of serial numbers, and the path.
    ///
    /// # Errors
    ///
    /// Returns the first error.
    pub fn check_name(&self) -> Result<(), String> {
        match &self.subsystem {
            Some(subsystem) => check_name(subsystem, "subsystem")?,
            None if self.path == 1 => {}
            None => return Err("path needs a shared subsystem: subsystem=NAME".into()),
        }
        if !(1..=1000).contains(&self.path) {
            return Err(format!("path must be 1 to 1000, not {}", self.path));
        }
        check_name(&self.name, "drive")
    }
}

fn check_name(name: &str, whose: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match name.as_bytes() {
        [first, ..] if first.is_ascii_alphanumeric() && name.len() <= 16 && name.bytes().all(fits) => Ok(()),
        _ => Err(format!(
            "{name:?}: a {whose}'s name has 1 to 16 of A-Z a-z 0-9 - _ . and begins with a letter or a digit"
        )),
    }
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value}: not a number, or too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_for_a_drive_brings_no_other_settings() {
        let drive = |text| Drive::parse(text).unwrap();
        let there = drive("a:size=1G,backing=x,iops=100,weight=2");
        for fits in ["a:size=2G,backing=y", "a:size=2G,backing=y,weight=2,iops=100"] {
            assert!(drive(fits).fits(&there), "{fits}");
        }
        for other in
            ["a:size=2G,backing=y,weight=3", "a:size=2G,backing=y,msi", "a:size=2G,backing=y,iops=100"]
        {
            assert!(!drive(other).fits(&there), "{other}");
        }
    }

    #[test]
    fn an_option_and_a_table_are_the_same_drive() {
        let short =
            Drive::parse("a:size=8G,backing=/srv/0,backing=/srv/1,offset=1M,subsystem=vm7,path=2,weight=2,load=3,iops=500,bytes-per-s=1M,programs,load-programs,msi,read-only")
                .unwrap();
        let text = r#"
            [[drive]]
            name = "a"
            subsystem = "vm7"
            path = 2
            weight = 2
            load = 3
            iops = 500
            bytes-per-s = "1M"
            programs = true
            load-programs = true
            msi = true
            [[drive.namespace]]
            size = "8G"
            backing = ["/srv/0", "/srv/1"]
            offset = 1048576
            read-only = true
        "#;
        let read: Configuration = toml::from_str(text).unwrap();
        assert_eq!(read.drives.first(), Some(&short));
        let json = serde_json::to_string(&short).unwrap();
        assert_eq!(serde_json::from_str::<Drive>(&json).unwrap(), short);
        assert_eq!(short.namespaces[0].stripe, STRIPE);
    }

    #[test]
    fn what_makes_no_drive_is_refused_with_what_does() {
        for (text, said) in [
            ("", "1 to 16"),
            ("../a:size=1G,backing=x", "1 to 16"),
            ("-a", "begins with"),
            ("a:backing=x", "size=8G"),
            ("a:size=1G", "backing=FILE"),
            ("a:size=1G,backing=", "expected size="),
            ("a:size=1X,backing=x", "expected a size like"),
            ("a:size=1G,backing=x,colour=red", "colour=red"),
            ("a:size=1G,backing=x,queues=many", "not a number"),
            ("a:size=1G,backing=x,msi=yes", "msi"),
            ("a:size=1G,backing=x,path=2", "subsystem=NAME"),
            ("a:size=1G,backing=x,subsystem=s,path=0", "1 to 1000"),
            ("a:size=1G,backing=x,subsystem=a/b", "a subsystem's name"),
        ] {
            let error = Drive::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_wrong_file_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        let failed = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Configuration::read(&path).unwrap_err().line
        };
        assert!(
            failed("[[drive]]\nname = \"a\"\ncolour = 1\n").contains("c.toml:3:1: unknown field `colour`")
        );
        assert!(
            failed("[[drive]]\nname = \"a\"\n[[drive.namespace]]\nsize = \"1X\"\nbacking = \"x\"\n")
                .contains(":4:8:")
        );
        assert!(failed("[[drive]]\n").contains("missing field `name`"));
    }
}
