//! The programs and files that a virtual server is made with: finds them, and runs them.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::Apt;
use crate::error::{self, Error};

/// The kernel's flavour, which decides what drivers it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Small, for virtual machines: NVMe and ext4 built in, virtio-net and vfio-pci as modules, no Intel
    /// NICs.
    #[default]
    Cloud,
    /// With all drivers, e1000e and igb among them; NVMe (`nvme`) and ext4 (`crc32c_generic`, `ext4`) are
    /// modules. 100 MB to fetch.
    Full,
}

impl Flavour {
    fn package(self) -> &'static str {
        match self {
            Flavour::Cloud => "linux-image-cloud-amd64",
            Flavour::Full => "linux-image-amd64",
        }
    }
}

/// A program that is run as it is, or by the loader and with the libraries that came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
    root: Option<PathBuf>,
}

impl Program {
    /// Starts a command line with it.
    pub fn command(&self) -> Command {
        let Some(root) = &self.root else { return Command::new(&self.path) };
        let mut libraries = OsString::new();
        for folder in ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"] {
            libraries.push(root.join(folder));
            libraries.push(":");
        }
        let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(libraries);
        // Some packages still use the folder's old place.
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        command.arg("--argv0").arg(name).arg(&self.path);
        command
    }

    /// Another program of the same package, in the same folder.
    fn beside(&self, name: &str) -> Program {
        Program { path: self.path.with_file_name(name), root: self.root.clone() }
    }
}

/// QEMU, a kernel, busybox, and what makes file systems.
#[derive(Clone, Debug)]
pub struct Tools {
    qemu: Program,
    mkfs: Program,
    guest: PathBuf,
    cache: PathBuf,
}

impl Tools {
    /// Finds everything, or fetches it into the user's cache folder: some 70 MB, once. `report` is told
    /// before each step that takes its time.
    ///
    /// `DCS_QEMU` names a QEMU to be used whatever else there is.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] where that is not to be had, with the reason.
    pub fn find(flavour: Flavour, report: &dyn Fn(&str)) -> Result<Tools, Error> {
        Tools::find_in(&cache()?, flavour, report)
    }

    /// For tests: nothing where this machine cannot have a virtual server. Why, and what takes its time, is
    /// printed past the test runner, which would keep it to itself.
    ///
    /// # Panics
    ///
    /// Where something else went wrong.
    pub fn find_or_skip(flavour: Flavour) -> Option<Tools> {
        let say = |text: &str| {
            // Nobody reads it: then nobody misses it.
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

    /// As [`Tools::find`], with this folder for what is fetched.
    ///
    /// # Errors
    ///
    /// As [`Tools::find`].
    pub fn find_in(cache: &Path, flavour: Flavour, report: &dyn Fn(&str)) -> Result<Tools, Error> {
        if env::consts::ARCH != "x86_64" {
            return Err(Error::Unavailable(format!(
                "the virtual server is x86-64, this machine is {}",
                env::consts::ARCH
            )));
        }
        fs::create_dir_all(cache).map_err(error::at(cache))?;
        // One process fetches, the others wait and find it there.
        let lock = File::create(cache.join("lock")).map_err(error::at(cache))?;
        lock.lock().map_err(error::at(cache))?;
        let mut fetch = Fetch { cache, report, apt: None };
        let qemu = fetch.qemu()?;
        let mkfs = fetch.mkfs("mkfs.ext4", "e2fsprogs")?;
        let guest = fetch.guest(flavour)?;
        Ok(Tools { qemu, mkfs, guest, cache: cache.to_owned() })
    }

    /// QEMU, with what it takes to find its firmware.
    pub fn qemu(&self) -> Command {
        let mut command = self.qemu.command();
        if let Some(root) = &self.qemu.root {
            for folder in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
                command.arg("-L").arg(root.join(folder));
            }
        }
        command
    }

    /// mkfs.ext4.
    pub fn mkfs_ext4(&self) -> Command {
        self.mkfs.command()
    }

    /// e2fsck, which comes with mkfs.ext4.
    pub fn e2fsck(&self) -> Command {
        self.mkfs.beside("e2fsck").command()
    }

    /// mkfs.xfs, fetched where this machine has none: 2 MB.
    ///
    /// # Errors
    ///
    /// As [`Tools::find`].
    pub fn mkfs_xfs(&self, report: &dyn Fn(&str)) -> Result<Command, Error> {
        Ok(self.xfs(report)?.command())
    }

    /// xfs_repair, which comes with mkfs.xfs.
    ///
    /// # Errors
    ///
    /// As [`Tools::find`].
    pub fn xfs_repair(&self, report: &dyn Fn(&str)) -> Result<Command, Error> {
        Ok(self.xfs(report)?.beside("xfs_repair").command())
    }

    fn xfs(&self, report: &dyn Fn(&str)) -> Result<Program, Error> {
        let lock = File::create(self.cache.join("lock")).map_err(error::at(&self.cache))?;
        lock.lock().map_err(error::at(&self.cache))?;
        Fetch { cache: &self.cache, report, apt: None }.mkfs("mkfs.xfs", "xfsprogs")
    }

    /// EDK2, firmware for a server that boots from a disk: its code, and its variables as they are at first.
    /// Fetched where this machine has none: 8 MB.
    ///
    /// # Errors
    ///
    /// As [`Tools::find`].
    pub fn firmware(&self, report: &dyn Fn(&str)) -> Result<(PathBuf, PathBuf), Error> {
        let lock = File::create(self.cache.join("lock")).map_err(error::at(&self.cache))?;
        lock.lock().map_err(error::at(&self.cache))?;
        let both = |root: &Path| {
            let folder = root.join("usr/share/OVMF");
            (folder.join("OVMF_CODE_4M.fd"), folder.join("OVMF_VARS_4M.fd"))
        };
        let here = both(Path::new("/"));
        if here.0.is_file() && here.1.is_file() {
            return Ok(here);
        }
        let root = self.cache.join("ovmf");
        if !root.exists() {
            report("fetching EDK2 from Debian's packages (8 MB, once)");
            let mut fetch = Fetch { cache: &self.cache, report, apt: None };
            fetch.fill(&root, |apt, root| apt.alone(&["ovmf"], root))?;
        }
        Ok(both(&root))
    }

    /// The kernel's image.
    ///
    /// # Errors
    ///
    /// Where the cache is damaged.
    pub fn kernel(&self) -> Result<PathBuf, Error> {
        entry(&self.guest.join("boot"), "vmlinuz-")
    }

    /// A busybox without libraries, which runs outside too.
    pub fn busybox(&self) -> PathBuf {
        self.guest.join("usr/bin/busybox")
    }

    /// A kernel module and those that it needs, in the order in which they are to be loaded: names and
    /// contents. Nothing where it is built in.
    ///
    /// # Errors
    ///
    /// Where the kernel has no such module, or one cannot be unpacked.
    pub fn modules(&self, name: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let release = entry(&self.guest.join("usr/lib/modules"), "")?;
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
        for needed in needs(&contents) {
            self.module(release, &needed, found)?;
        }
        found.push((name.to_owned(), contents));
        Ok(())
    }
}

/// The modules that a module says it needs: the text `depends=a,b` with a zero behind it.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let start = module.windows(KEY.len()).position(|window| window == KEY).map(|at| at + KEY.len());
    let list = start.and_then(|start| module[start..].split(|byte| *byte == 0).next()).unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

struct Fetch<'a> {
    cache: &'a Path,
    report: &'a dyn Fn(&str),
    apt: Option<Apt>,
}

impl Fetch<'_> {
    fn qemu(&mut self) -> Result<Program, Error> {
        let name = "qemu-system-x86_64";
        if let Some(path) = env::var_os("DCS_QEMU") {
            let program = Program { path: path.into(), root: None };
            return match has_vfio_user(&program) {
                true => Ok(program),
                false => Err(Error::Unavailable("DCS_QEMU is set to a QEMU without vfio-user-pci".into())),
            };
        }
        let here = Program { path: name.into(), root: None };
        if on_path(name) && has_vfio_user(&here) {
            return Ok(here);
        }
        let root = self.cache.join("qemu");
        if !root.exists() {
            (self.report)("fetching QEMU from Debian's packages (38 MB, once)");
            self.fill(&root, |apt, root| apt.closure(&["qemu-system-x86"], root))?;
        }
        let program = Program { path: root.join("usr/bin").join(name), root: Some(root) };
        match has_vfio_user(&program) {
            true => Ok(program),
            false => {
                Err(Error::Unavailable("Debian's QEMU does not run here, or has no vfio-user-pci".into()))
            }
        }
    }

    /// A program that makes file systems, of this machine or of a package.
    fn mkfs(&mut self, name: &str, package: &str) -> Result<Program, Error> {
        let here = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(|folder| Path::new(folder).join(name));
        if let Some(path) = here.into_iter().find(|path| path.exists()) {
            return Ok(Program { path, root: None });
        }
        let root = self.cache.join(package);
        if !root.exists() {
            (self.report)(&format!("fetching {name} from Debian's packages (once)"));
            self.fill(&root, |apt, root| apt.closure(&[package], root))?;
        }
        Ok(Program { path: root.join("usr/sbin").join(name), root: Some(root) })
    }

    fn guest(&mut self, flavour: Flavour) -> Result<PathBuf, Error> {
        let package = flavour.package();
        let root = self.cache.join(package);
        if !root.exists() {
            (self.report)("fetching a kernel and busybox from Debian's packages (once)");
            self.fill(&root, |apt, root| {
                let kernel = apt.newest(package, "linux-image")?;
                apt.alone(&[&kernel, "busybox-static"], root)
            })?;
        }
        Ok(root)
    }

    /// Fills a folder that is there only when it is complete.
    fn fill(&mut self, root: &Path, fill: impl Fn(&Apt, &Path) -> Result<(), Error>) -> Result<(), Error> {
        let apt = match self.apt.take() {
            Some(apt) => apt,
            None => Apt::new(&self.cache.join("apt"))?,
        };
        let apt = self.apt.insert(apt);
        let partial = root.with_extension("partial");
        let _ = fs::remove_dir_all(&partial);
        fill(apt, &partial)?;
        fs::rename(&partial, root).map_err(error::at(root))
    }
}

fn has_vfio_user(qemu: &Program) -> bool {
    let devices = qemu.command().args(["-device", "help"]).output();
    devices.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("\"vfio-user-pci\""))
}

/// True if there is a program of this name.
pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Where fetched things are kept. [XDG Base Directory Specification]
fn cache() -> Result<PathBuf, Error> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| Error::Unavailable("neither XDG_CACHE_HOME nor HOME is set".into()))?;
    Ok(cache.join("dcs/vm"))
}

/// The one entry of a folder whose name starts so.
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

/// A file anywhere below a folder.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        assert_eq!(
            needs(b"\x7fELF\0license=GPL\0depends=vfio-pci-core,vfio\0retpoline=Y\0"),
            ["vfio-pci-core", "vfio"]
        );
        assert!(needs(b"\0depends=\0").is_empty());
        assert!(needs(b"").is_empty());
    }
}
