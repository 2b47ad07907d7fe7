//! Debian packages, fetched and unpacked into a folder, without root and without changing this machine's packages.
//!
//! Uses the machine's `apt-get` with a state of its own, which is empty, so that packages come with all dependencies, including
//! the C library. This machine's list of sources determines the archive, its keyring the trust.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{self, Error};

/// A release of Debian to take packages from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The release of the guest.
    Current,
    /// The release of the guest, with later packages for it.
    Newest,
    /// The release before.
    Before,
}

impl Release {
    /// Returns its lists. If several have a package, the last one counts.
    fn suites(self) -> &'static [&'static str] {
        match self {
            Release::Current => &["trixie"],
            Release::Newest => &["trixie", "trixie-backports"],
            Release::Before => &["bookworm"],
        }
    }

    fn target(self) -> &'static str {
        self.suites().last().unwrap_or(&"")
    }
}

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A package manager with a state of its own, in a folder that is removed when this is dropped.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    release: Release,
}

impl Apt {
    /// Sets up a package manager in `folder`, which is created anew, and fetches the lists of packages.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if this machine has no apt, no Debian among its sources, or no network.
    pub fn new(folder: &Path, release: Release) -> Result<Apt, Error> {
        for program in ["apt-get", "apt-cache", "dpkg-deb"] {
            if !crate::fetch::on_path(program) {
                return Err(unavailable(&format!("{program} is not on this machine")));
            }
        }
        let source = source(&listed(Path::new("/etc/apt")))
            .ok_or_else(|| unavailable("this machine's package sources name no Debian archive"))?;
        let _ = fs::remove_dir_all(folder);
        let apt = Apt { folder: folder.to_owned(), release };
        for part in ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"] {
            fs::create_dir_all(folder.join(part)).map_err(error::at(folder))?;
        }
        let line = |suite| format!("deb [signed-by={}] {} {suite} main\n", source.keyring, source.address);
        let lines: String = release.suites().iter().map(line).collect();
        apt.write("etc/sources.list", &lines)?;
        apt.write("status", "")?;
        apt.write("apt.conf", &apt.configuration())?;
        error::run(apt.command("apt-get").arg("update")).map_err(|failure| {
            unavailable(&format!("the list of packages could not be fetched ({failure})"))
        })?;
        Ok(apt)
    }

    /// Fetches packages with all dependencies, and unpacks them into `root`.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if they are not available.
    pub fn closure(&self, packages: &[&str], root: &Path) -> Result<(), Error> {
        let mut install = self.command("apt-get");
        install.args(["-y", "--download-only", "--target-release", self.release.target(), "install"]);
        install.args(packages);
        error::run(&mut install).map_err(|failure| unavailable(&failure.to_string()))?;
        self.unpack(&self.folder.join("cache/archives"), root)
    }

    /// Fetches packages without dependencies, and unpacks them into `root`.
    ///
    /// # Errors
    ///
    /// The same as [`Apt::closure`].
    pub fn alone(&self, packages: &[String], root: &Path) -> Result<(), Error> {
        let folder = self.folder.join("alone");
        fs::create_dir_all(&folder).map_err(error::at(&folder))?;
        let mut download = self.command("apt-get");
        download.arg("download").args(packages).current_dir(&folder);
        error::run(&mut download).map_err(|failure| unavailable(&failure.to_string()))?;
        self.unpack(&folder, root)
    }

    /// Returns the packages of the newest kernel that a metapackage depends on: its image, and its modules if they are in a
    /// package of their own.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if there is none.
    pub fn kernel(&self, package: &str) -> Result<Vec<String>, Error> {
        const IMAGE: &str = "linux-image-";
        let image = self.needs(package)?.into_iter().find(|name| name.starts_with(IMAGE));
        let image = image.ok_or_else(|| unavailable(&format!("{package} needs no {IMAGE}*")))?;
        let version = &image[IMAGE.len()..];
        let mut packages = self.needs(&image)?;
        packages.retain(|name| name.starts_with("linux-") && name.ends_with(version));
        packages.push(image);
        Ok(packages)
    }

    fn needs(&self, package: &str) -> Result<Vec<String>, Error> {
        let of = format!("APT::Default-Release={}", self.release.target());
        let output = error::run(self.command("apt-cache").args(["-o", &of, "depends", package]))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    fn unpack(&self, archives: &Path, root: &Path) -> Result<(), Error> {
        fs::create_dir_all(root).map_err(error::at(root))?;
        for entry in fs::read_dir(archives).map_err(error::at(archives))? {
            let path = entry.map_err(error::at(archives))?.path();
            if path.extension() == Some(OsStr::new("deb")) {
                error::run(Command::new("dpkg-deb").arg("-x").arg(&path).arg(root))?;
                fs::remove_file(&path).map_err(error::at(&path))?;
            }
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C").arg("-q");
        command
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(error::at(&path))
    }

    fn configuration(&self) -> String {
        let folder = self.folder.display();
        format!(
            "Dir \"{folder}/\";\nDir::State \"{folder}/state\";\nDir::State::status \"{folder}/status\";\n\
             Dir::Cache \"{folder}/cache\";\nDir::Etc \"{folder}/etc\";\nDir::Etc::sourceparts \"-\";\n\
             Dir::Etc::sourcelist \"{folder}/etc/sources.list\";\nDir::Bin::dpkg \"/usr/bin/dpkg\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             APT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\nAcquire::Retries \"2\";\nAPT::Update::Error-Mode \"any\";\n\
             APT::Sandbox::User \"\";\nDebug::NoLocking \"1\";\n{}",
            proxies()
        )
    }
}

/// Returns this machine's proxies for packages, as configuration lines. The rest of its configuration is not used.
fn proxies() -> String {
    let dump =
        Command::new("apt-config").arg("dump").output().map(|output| output.stdout).unwrap_or_default();
    let dump = String::from_utf8_lossy(&dump).into_owned();
    let proxy = |line: &&str| line.starts_with("Acquire::") && line.contains("Proxy");
    dump.lines().filter(proxy).map(|line| format!("{line}\n")).collect()
}

impl Drop for Apt {
    fn drop(&mut self) {
        // Leftovers do no harm: the next instance starts anew.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn unavailable(why: &str) -> Error {
    Error::Unavailable(format!("Debian's packages could not be fetched: {why}"))
}

/// A Debian archive, and the keyring for its packages.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    address: String,
    keyring: String,
}

/// Returns the contents of apt's lists of sources.
fn listed(etc: &Path) -> Vec<String> {
    let mut paths: Vec<PathBuf> = vec![etc.join("sources.list")];
    let parts = fs::read_dir(etc.join("sources.list.d")).into_iter().flatten().flatten();
    paths.extend(parts.map(|part| part.path()));
    paths.sort();
    paths.iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

/// Returns the first source of Debian's main archive, in either of apt's formats: one with a `main` component that is not a
/// security archive and ends in `/debian`. [sources.list(5)]
fn source(lists: &[String]) -> Option<Source> {
    let is_debian = |address: &str| address.trim_end_matches('/').ends_with("/debian");
    for stanza in lists.iter().flat_map(|list| list.split("\n\n")) {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':').map(str::trim))
        };
        let main =
            field("Components").is_some_and(|names| names.split_whitespace().any(|name| name == "main"));
        let address = field("URIs").unwrap_or_default().split_whitespace().find(|address| is_debian(address));
        if let (true, Some(address)) = (main, address) {
            // The list itself may contain the key instead.
            let keyring = field("Signed-By").filter(|path| path.starts_with('/')).unwrap_or(KEYRING);
            return Some(Source { address: address.to_owned(), keyring: keyring.to_owned() });
        }
    }
    for line in lists.iter().flat_map(|list| list.lines()) {
        let mut words = line.split_whitespace().filter(|word| !word.starts_with('['));
        let (deb, address) = (words.next(), words.next());
        if let (Some("deb"), Some(address)) = (deb, address.filter(|address| is_debian(address)))
            && words.any(|word| word == "main")
        {
            return Some(Source { address: address.to_owned(), keyring: KEYRING.to_owned() });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str) -> Option<(String, String)> {
        source(&[list.to_owned()]).map(|source| (source.address, source.keyring))
    }

    #[test]
    fn both_formats_of_sources_are_read() {
        let stanzas = "Types: deb\nURIs: http://one.example/debian-security\nSuites: x\nComponents: main\n\n\
                       Types: deb\n# a comment\nURIs: http://two.example/debian\nSuites: x y\nComponents: main\n\
                       Signed-By: /usr/share/keyrings/some.gpg\n";
        let expected = ("http://two.example/debian".into(), "/usr/share/keyrings/some.gpg".into());
        assert_eq!(found(stanzas), Some(expected));
        let line = "# deb http://no.example/debian x main\ndeb [arch=amd64] http://yes.example/debian/ x main contrib";
        assert_eq!(found(line), Some(("http://yes.example/debian/".into(), KEYRING.into())));
        assert_eq!(found("deb http://other.example/ubuntu x main"), None);
        assert_eq!(found(""), None);
    }
}
