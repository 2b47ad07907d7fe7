//! Fetches what this machine lacks from Debian's packages into the user's cache folder, once.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::debian::{Apt, Release};
use crate::error::{self, Error};
use crate::tools::{Flavour, Program, image};
use crate::vmlinux::unpacked;

/// Finds and fetches files. Other processes wait until this is dropped, and then find what it fetched.
pub(crate) struct Fetch<'a> {
    cache: &'a Path,
    report: &'a dyn Fn(&str),
    apt: Option<(Release, Apt)>,
    _lock: File,
}

impl<'a> Fetch<'a> {
    pub(crate) fn new(cache: &'a Path, report: &'a dyn Fn(&str)) -> Result<Fetch<'a>, Error> {
        fs::create_dir_all(cache).map_err(error::at(cache))?;
        let lock = File::create(cache.join("lock")).map_err(error::at(cache))?;
        lock.lock().map_err(error::at(cache))?;
        Ok(Fetch { cache, report, apt: None, _lock: lock })
    }

    pub(crate) fn qemu(&mut self) -> Result<Program, Error> {
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
            let fetched =
                self.fill(&root, Release::Newest, |apt, root| apt.closure(&["qemu-system-x86"], root));
            fetched.map_err(|why| match why {
                Error::Unavailable(why) => Error::Unavailable(format!(
                    "no QEMU with vfio-user-pci, and {why}. Install QEMU 10.1 or later, or set DCS_QEMU to one"
                )),
                other => other,
            })?;
        }
        let program = Program { path: root.join("usr/bin").join(name), root: Some(root) };
        match has_vfio_user(&program) {
            true => Ok(program),
            false => {
                Err(Error::Unavailable("Debian's QEMU does not run here, or has no vfio-user-pci".into()))
            }
        }
    }

    /// Returns a program of this machine, or of a package with all its dependencies.
    pub(crate) fn program(&mut self, name: &str, package: &str) -> Result<Program, Error> {
        const FOLDERS: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "usr/local/sbin"];
        let within = |root: &Path| {
            FOLDERS.map(|folder| root.join(folder).join(name)).into_iter().find(|path| path.exists())
        };
        if let Some(path) = within(Path::new("/")) {
            return Ok(Program { path, root: None });
        }
        let root = self.cache.join(package);
        if !root.exists() {
            (self.report)(&format!("fetching {name} from Debian's packages (once)"));
            self.fill(&root, Release::Current, |apt, root| apt.closure(&[package], root))?;
        }
        let path = within(&root).ok_or_else(|| {
            Error::Unavailable(format!("Debian's package {package} has no {name}: remove {}", root.display()))
        })?;
        Ok(Program { path, root: Some(root) })
    }

    /// Returns a folder with a kernel, its modules, and busybox; in `vmlinux` is the kernel unpacked, if it can be.
    pub(crate) fn guest(&mut self, flavour: Flavour) -> Result<PathBuf, Error> {
        let (folder, package, release) = flavour.package();
        let root = self.cache.join(folder);
        if !root.exists() {
            (self.report)("fetching a kernel and busybox from Debian's packages (once)");
            self.fill(&root, release, |apt, root| {
                let mut packages = apt.kernel(package)?;
                packages.push("busybox-static".into());
                apt.alone(&packages, root)
            })?;
        }
        let vmlinux = root.join("vmlinux");
        if !vmlinux.exists() {
            let image = image(&root)?;
            if let Some(kernel) = unpacked(&fs::read(&image).map_err(error::at(&image))?) {
                let partial = root.join("vmlinux.partial");
                fs::write(&partial, kernel).map_err(error::at(&partial))?;
                fs::rename(&partial, &vmlinux).map_err(error::at(&vmlinux))?;
            }
        }
        Ok(root)
    }

    /// Returns a folder with the files of packages, without dependencies.
    pub(crate) fn files(&mut self, package: &str, what: &str) -> Result<PathBuf, Error> {
        let root = self.cache.join(package);
        if !root.exists() {
            (self.report)(&format!("fetching {what} from Debian's packages (once)"));
            self.fill(&root, Release::Current, |apt, root| apt.alone(&[package.into()], root))?;
        }
        Ok(root)
    }

    /// Fills a folder, which exists only when it is complete.
    fn fill(
        &mut self,
        root: &Path,
        release: Release,
        fill: impl Fn(&Apt, &Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Drops the earlier one first: both use the same folder.
        let apt = match self.apt.take().filter(|(of, _)| *of == release) {
            Some((_, apt)) => apt,
            None => Apt::new(&self.cache.join("apt"), release)?,
        };
        let (_, apt) = self.apt.insert((release, apt));
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

/// Returns true if there is a program of this name.
pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the folder of fetched files. [XDG Base Directory Specification]
pub(crate) fn cache() -> Result<PathBuf, Error> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| Error::Unavailable("neither XDG_CACHE_HOME nor HOME is set".into()))?;
    Ok(cache.join("dcs/vm"))
}
