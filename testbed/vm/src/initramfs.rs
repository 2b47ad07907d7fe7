//! The guest's file system, which is in its memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cpio::Archive;
use crate::error::{self, Error};
use crate::tools::{Program, Tools};

/// The script with which the guest starts: file systems, busybox's commands, kernel modules in order. The guest powers off when
/// its time is over.
const START: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /mnt /run /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmp /tmp
word() { for w in $(cat /proc/cmdline); do case $w in "$1="*) echo "${w#*=}";; esac; done; }
[ -n "$(word dcs.limit)" ] && (sleep "$(word dcs.limit)"; echo "guest: its time is over"; poweroff -f) &
disk() { while ! ls /dev/nvme*n1 2>/dev/null; do sleep 0.1; done; }
ip link set lo up
for m in $(cat /modules/order 2>/dev/null); do insmod "/modules/$m.ko" || echo "guest: no module $m"; done
"#;

/// A file system under construction.
#[derive(Debug)]
pub struct Initramfs<'a> {
    tools: &'a Tools,
    archive: Archive,
    modules: Vec<String>,
}

impl<'a> Initramfs<'a> {
    /// Returns a file system with busybox.
    ///
    /// # Errors
    ///
    /// If busybox cannot be read.
    pub fn new(tools: &'a Tools) -> Result<Initramfs<'a>, Error> {
        let mut archive = Archive::new();
        archive.device("dev/console", 5, 1);
        archive.device("dev/null", 1, 3);
        let mut this = Initramfs { tools, archive, modules: Vec::new() };
        this.copy(&tools.busybox(), "bin/busybox", 0o755)?;
        Ok(this)
    }

    /// Adds a file.
    pub fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) {
        self.archive.file(name, permissions, contents);
    }

    /// Adds a program of this machine, with the libraries it is linked to, if this machine has them.
    ///
    /// # Errors
    ///
    /// If one of them cannot be read or is missing.
    pub fn program(&mut self, name: &str, program: &Path) -> Result<(), Error> {
        let contents = fs::read(program).map_err(error::at(program))?;
        self.archive.file(name, 0o755, loaded(&contents));
        for library in libraries(program)? {
            let path = Path::new(&library);
            self.copy(path, &library, 0o755)?;
        }
        Ok(())
    }

    /// Adds a program that may have been fetched, as `bin/NAME`. Its libraries and its loader are in a folder of their own,
    /// separate from this machine's.
    ///
    /// # Errors
    ///
    /// The same as [`Initramfs::program`].
    pub fn fetched(&mut self, name: &str, program: &Program) -> Result<(), Error> {
        let Some((loader, mut list)) = program.listing() else {
            return self.program(&format!("bin/{name}"), program.path());
        };
        let text = error::run(list.arg(program.path()))?.stdout;
        let home = format!("opt/{name}");
        self.copy(program.path(), &format!("{home}/{name}"), 0o755)?;
        self.copy(&loader, &format!("{home}/loader"), 0o755)?;
        for library in listed(&text) {
            let file = library.rsplit('/').next().unwrap_or_default();
            self.copy(Path::new(&library), &format!("{home}/{file}"), 0o755)?;
        }
        let start = format!("/{home}/loader --library-path /{home} --argv0 {name} /{home}/{name}");
        self.file(&format!("bin/{name}"), 0o755, format!("#!/bin/sh\nexec {start} \"$@\"\n").as_bytes());
        Ok(())
    }

    /// Adds kernel modules and their dependencies, to be loaded in this order before the script runs.
    ///
    /// # Errors
    ///
    /// If the kernel has no module of that name.
    pub fn modules(&mut self, names: &[&str]) -> Result<(), Error> {
        for name in names {
            for (module, contents) in self.tools.modules(name)? {
                if !self.modules.contains(&module) {
                    self.archive.file(&format!("modules/{module}.ko"), 0o644, &contents);
                    self.modules.push(module);
                }
            }
        }
        Ok(())
    }

    /// Returns the archive. The guest runs `script` with busybox's shell and mounted file systems, and powers off after it. In
    /// the script, `word NAME` prints the value of `NAME=value` on the kernel's command line, and `disk` waits for the SSD's
    /// namespace and prints its device, whose number changes from boot to boot.
    pub fn finish(mut self, script: &str) -> Vec<u8> {
        self.archive.file("modules/order", 0o644, self.modules.join("\n").as_bytes());
        let init = format!("{START}{script}\necho 'guest: the end'\npoweroff -f\n");
        self.archive.file("init", 0o755, init.as_bytes());
        self.archive.finish()
    }

    fn copy(&mut self, from: &Path, name: &str, permissions: u32) -> Result<(), Error> {
        if !self.archive.contains(name) {
            let contents = fs::read(from).map_err(error::at(from))?;
            self.archive.file(name, permissions, &contents);
        }
        Ok(())
    }
}

/// Returns the loaded part of a program: everything up to the end of its last segment. The rest, symbols and debug information,
/// can be many times as large. [ELF-64 Object File Format, 5]
fn loaded(program: &[u8]) -> &[u8] {
    let field = |at: usize, bytes: usize| -> Option<usize> {
        let field = program.get(at..at.checked_add(bytes)?)?;
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(field);
        usize::try_from(u64::from_le_bytes(number)).ok()
    };
    let end = || {
        let (table, size, count) = (field(0x20, 8)?, field(0x36, 2)?, field(0x38, 2)?);
        let ends = (0..count).map(|at| {
            let header = table.checked_add(at * size)?;
            field(header.checked_add(0x08)?, 8)?.checked_add(field(header.checked_add(0x20)?, 8)?)
        });
        ends.collect::<Option<Vec<_>>>()?.into_iter().max()
    };
    let elf = program.starts_with(b"\x7fELF\x02\x01");
    end().filter(|_| elf).and_then(|end| program.get(..end)).unwrap_or(program)
}

/// Returns a program's shared libraries as its own loader finds them, including the loader; none for a static program.
fn libraries(program: &Path) -> Result<Vec<String>, Error> {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    let bytes = fs::read(program).map_err(error::at(program))?;
    // Programs that need a loader name it.
    if !bytes.windows(loader.len()).any(|window| window == loader.as_bytes()) {
        return Ok(Vec::new());
    }
    let output = error::run(Command::new(loader).arg("--list").arg(program))?;
    let mut found = vec![loader.to_owned()];
    found.extend(listed(&output.stdout));
    Ok(found)
}

/// Returns the libraries that a loader lists.
fn listed(text: &[u8]) -> Vec<String> {
    let path = |line: &str| {
        let (_, path) = line.split_once(" => ")?;
        Some(path.split_once(" (").map_or(path, |(path, _)| path).trim().to_owned())
    };
    String::from_utf8_lossy(text).lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_loaded_is_left_out() {
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        assert!(loaded(&program).len() < program.len());
        fs::write(&path, loaded(&program)).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(Command::new(&path).arg("--list").output().unwrap().status.success());
        assert_eq!(loaded(b"#!/bin/sh"), b"#!/bin/sh");
        assert_eq!(loaded(&program[..40]), &program[..40]);
    }

    #[test]
    fn a_program_comes_with_its_libraries() {
        let libraries = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(libraries.iter().any(|path| path.contains("libc.so")), "{libraries:?}");
        assert!(libraries.iter().all(|path| Path::new(path).is_file()));
    }
}
