//! Finds the programs and files for a virtual server, and runs the programs.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::Release;
use crate::error::{self, Error};
use crate::fetch::{Fetch, cache};
use crate::module;

/// Flavour of the kernel, which determines its drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Small, for virtual machines: NVMe and ext4 built in, virtio-net and vfio-pci as modules, no Intel NICs.
    #[default]
    Cloud,
    /// All drivers, including e1000e and igb; NVMe (`nvme`) and ext4 (`crc32c_generic`, `ext4`) are modules. 100 MB to fetch.
    Full,
    /// `Cloud` from Debian's previous release: Linux 6.1.
    Before,
    /// `Cloud` in the newest version that Debian has for its release.
    Newest,
}

impl Flavour {
    /// Returns its folder, its package, and the release of Debian for the package.
    pub(crate) fn package(self) -> (&'static str, &'static str, Release) {
        let cloud = "linux-image-cloud-amd64";
        match self {
            Flavour::Cloud => (cloud, cloud, Release::Current),
            Flavour::Full => ("linux-image-amd64", "linux-image-amd64", Release::Current),
            Flavour::Before => ("linux-before", cloud, Release::Before),
            Flavour::Newest => ("linux-newest", cloud, Release::Newest),
        }
    }
}

/// A program that runs directly, or with the loader and the libraries that were fetched with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub(crate) path: PathBuf,
    pub(crate) root: Option<PathBuf>,
}

impl Program {
    /// Returns a command that starts it.
    pub fn command(&self) -> Command {
        let Some(root) = &self.root else { return Command::new(&self.path) };
        let mut command = loader(root);
        // Some packages still use the old path of the folder.
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        command.arg("--argv0").arg(name).arg(&self.path);
        command
    }

    /// Returns the path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the loader that was fetched with it, and a command that lists the libraries of a program; `None` if there is none.
    pub(crate) fn listing(&self) -> Option<(PathBuf, Command)> {
        let root = self.root.as_ref()?;
        let mut list = loader(root);
        list.arg("--list");
        Some((list.get_program().into(), list))
    }

    /// Returns another program of the same package, in the same folder.
    fn beside(&self, name: &str) -> Program {
        Program { path: self.path.with_file_name(name), root: self.root.clone() }
    }
}

/// Returns a command with the loader that was fetched with a program, which looks for libraries in the package.
fn loader(root: &Path) -> Command {
    let mut libraries = OsString::new();
    for folder in ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"] {
        libraries.push(root.join(folder));
        libraries.push(":");
    }
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(libraries);
    command
}

/// QEMU, a kernel, busybox, and programs that make file systems.
#[derive(Clone, Debug)]
pub struct Tools {
    qemu: Program,
    mkfs: Program,
    guest: PathBuf,
    cache: PathBuf,
}

impl Tools {
    /// Finds everything, or fetches it into the user's cache folder: some 70 MB, once. Calls `report` before each slow step.
    ///
    /// `DCS_QEMU` names a QEMU that takes precedence.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if something is not available, with the reason.
    pub fn find(flavour: Flavour, report: &dyn Fn(&str)) -> Result<Tools, Error> {
        Tools::find_in(&cache()?, flavour, report)
    }

    /// Finds everything, for tests; `None` if this machine cannot run a virtual server. Prints the reason, and slow steps,
    /// directly to the terminal, since the test runner captures output.
    ///
    /// # Panics
    ///
    /// If something else failed.
    pub fn find_or_skip(flavour: Flavour) -> Option<Tools> {
        let say = |text: &str| {
            // Without a reader nothing is missed.
            let _ = writeln!(std::io::stderr(), "dcs-vm: {text}");
        };
        match Tools::find(flavour, &say) {
            Ok(tools) => Some(tools),
            Err(Error::Unavailable(why)) => {
                say(&format!("skipped: {why}"));
                None
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Like [`Tools::find`], with this folder for fetched files.
    ///
    /// # Errors
    ///
    /// The same as [`Tools::find`].
    pub fn find_in(cache: &Path, flavour: Flavour, report: &dyn Fn(&str)) -> Result<Tools, Error> {
        if env::consts::ARCH != "x86_64" {
            return Err(Error::Unavailable(format!(
                "the virtual server is x86-64, this machine is {}",
                env::consts::ARCH
            )));
        }
        let mut fetch = Fetch::new(cache, report)?;
        let qemu = fetch.qemu()?;
        let mkfs = fetch.program("mkfs.ext4", "e2fsprogs")?;
        let guest = fetch.guest(flavour)?;
        Ok(Tools { qemu, mkfs, guest, cache: cache.to_owned() })
    }

    /// Returns QEMU, with the options for its firmware.
    pub fn qemu(&self) -> Command {
        let mut command = self.qemu.command();
        if let Some(root) = &self.qemu.root {
            for folder in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
                command.arg("-L").arg(root.join(folder));
            }
        }
        command
    }

    /// Returns mkfs.ext4.
    pub fn mkfs_ext4(&self) -> Command {
        self.mkfs.command()
    }

    /// Returns e2fsck, which is in the same package as mkfs.ext4.
    pub fn e2fsck(&self) -> Command {
        self.mkfs.beside("e2fsck").command()
    }

    /// Returns mkfs.xfs, fetched if this machine has none: 2 MB.
    ///
    /// # Errors
    ///
    /// The same as [`Tools::find`].
    pub fn mkfs_xfs(&self, report: &dyn Fn(&str)) -> Result<Command, Error> {
        Ok(self.xfs(report)?.command())
    }

    /// Returns xfs_repair, which is in the same package as mkfs.xfs.
    ///
    /// # Errors
    ///
    /// The same as [`Tools::find`].
    pub fn xfs_repair(&self, report: &dyn Fn(&str)) -> Result<Command, Error> {
        Ok(self.xfs(report)?.beside("xfs_repair").command())
    }

    fn xfs(&self, report: &dyn Fn(&str)) -> Result<Program, Error> {
        self.program("mkfs.xfs", "xfsprogs", report)
    }

    /// Returns a program of this machine, or else of this Debian package, fetched with all dependencies.
    ///
    /// # Errors
    ///
    /// The same as [`Tools::find`].
    pub fn program(&self, name: &str, package: &str, report: &dyn Fn(&str)) -> Result<Program, Error> {
        Fetch::new(&self.cache, report)?.program(name, package)
    }

    /// Returns EDK2, the firmware for a server that boots from a disk: its code, and its initial variables. Fetched if this
    /// machine has none: 8 MB.
    ///
    /// # Errors
    ///
    /// The same as [`Tools::find`].
    pub fn firmware(&self, report: &dyn Fn(&str)) -> Result<(PathBuf, PathBuf), Error> {
        let both = |root: &Path| {
            let folder = root.join("usr/share/OVMF");
            (folder.join("OVMF_CODE_4M.fd"), folder.join("OVMF_VARS_4M.fd"))
        };
        let here = both(Path::new("/"));
        if here.0.is_file() && here.1.is_file() {
            return Ok(here);
        }
        Ok(both(&Fetch::new(&self.cache, report)?.files("ovmf", "EDK2")?))
    }

    /// Returns the kernel's image, which firmware starts.
    ///
    /// # Errors
    ///
    /// If the cache is damaged.
    pub fn kernel(&self) -> Result<PathBuf, Error> {
        image(&self.guest)
    }

    /// Returns the kernel as QEMU boots it: unpacked where it could be, which saves each boot a second of the
    /// processor's time, or else its image.
    ///
    /// # Errors
    ///
    /// If the cache is damaged.
    pub(crate) fn bootable(&self) -> Result<PathBuf, Error> {
        let unpacked = self.guest.join("vmlinux");
        if unpacked.exists() { Ok(unpacked) } else { self.kernel() }
    }

    /// Returns a static busybox, which also runs outside of the guest.
    pub fn busybox(&self) -> PathBuf {
        either(&self.guest, "bin/busybox")
    }

    /// Returns a kernel module and its dependencies, names and contents without signatures, in the order of loading; nothing if
    /// it is built in.
    ///
    /// # Errors
    ///
    /// If the kernel has no such module, or one cannot be unpacked.
    pub fn modules(&self, name: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let release = release(&self.guest)?;
        let mut found = Vec::new();
        self.module(&release, name, &mut found)?;
        Ok(found)
    }

    fn module(&self, release: &Path, name: &str, found: &mut Vec<(String, Vec<u8>)>) -> Result<(), Error> {
        let same = |other: &str| other.replace('-', "_") == name.replace('-', "_");
        let builtin = fs::read_to_string(release.join("modules.builtin")).unwrap_or_default();
        let stem = |path: &str| path.rsplit('/').next()?.split_once(".ko").map(|(stem, _)| stem.to_owned());
        if found.iter().any(|(there, _)| same(there))
            || builtin.lines().filter_map(stem).any(|one| same(&one))
        {
            return Ok(());
        }
        let path = find(&release.join("kernel"), &|file| stem(file).is_some_and(|one| same(&one)))
            .ok_or_else(|| Error::Unavailable(format!("the guest's kernel has no module {name}")))?;
        let contents = if path.extension().is_some_and(|extension| extension == "xz") {
            error::run(Command::new(self.busybox()).args(["xz", "-dc"]).arg(&path))?.stdout
        } else {
            fs::read(&path).map_err(error::at(&path))?
        };
        for needed in module::needs(&contents) {
            self.module(release, &needed, found)?;
        }
        found.push((name.to_owned(), module::spared(contents)));
        Ok(())
    }
}

/// Returns the folder of a kernel's modules.
fn release(guest: &Path) -> Result<PathBuf, Error> {
    entry(&either(guest, "lib/modules"), "")
}

/// Returns a kernel's image.
pub(crate) fn image(guest: &Path) -> Result<PathBuf, Error> {
    // The image is with the modules since Linux 7.
    let beside = release(guest)?.join("vmlinuz");
    if beside.exists() { Ok(beside) } else { entry(&guest.join("boot"), "vmlinuz-") }
}

/// Returns the path where packages put a file: below `usr`, or, for older releases, next to it.
fn either(root: &Path, path: &str) -> PathBuf {
    let newer = root.join("usr").join(path);
    if newer.exists() { newer } else { root.join(path) }
}

/// Returns the only entry of a folder with this prefix.
fn entry(folder: &Path, prefix: &str) -> Result<PathBuf, Error> {
    let mut entries = fs::read_dir(folder).map_err(error::at(folder))?.flatten();
    let found = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    found.map(|entry| entry.path()).ok_or_else(|| {
        error::at(folder)(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!("no {prefix}*: remove the folder"),
        ))
    })
}

/// Returns a file anywhere below a folder.
fn find(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, wanted) {
                return Some(found);
            }
        } else if wanted(&entry.file_name().to_string_lossy()) {
            return Some(path);
        }
    }
    None
}
