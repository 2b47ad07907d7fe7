//! The guest's file system, which lies in its memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cpio::Archive;
use crate::error::{self, Error};
use crate::tools::{Program, Tools};

/// The script that the guest starts with: file systems, busybox's commands, kernel modules in their order; it
/// ends itself when its time is over.
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

/// Under construction.
#[derive(Debug)]
pub struct Initramfs<'a> {
    tools: &'a Tools,
    archive: Archive,
    modules: Vec<String>,
}

impl<'a> Initramfs<'a> {
    /// One with busybox in it.
    ///
    /// # Errors
    ///
    /// Where that cannot be read.
    pub fn new(tools: &'a Tools) -> Result<Initramfs<'a>, Error> {
        let mut archive = Archive::new();
        archive.device("dev/console", 5, 1);
        archive.device("dev/null", 1, 3);
        let mut this = Initramfs { tools, archive, modules: Vec::new() };
        this.copy(&tools.busybox(), "bin/busybox", 0o755)?;
        Ok(this)
    }

    /// A file.
    pub fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) {
        self.archive.file(name, permissions, contents);
    }

    /// A program of this machine, with the libraries that it is linked with, where they are here.
    ///
    /// # Errors
    ///
    /// Where one cannot be read or is missing.
    pub fn program(&mut self, name: &str, program: &Path) -> Result<(), Error> {
        let contents = fs::read(program).map_err(error::at(program))?;
        self.archive.file(name, 0o755, loaded(&contents));
        for library in libraries(program)? {
            let path = Path::new(&library);
            self.copy(path, &library, 0o755)?;
        }
        Ok(())
    }

    /// A program that may have been fetched: as `bin/NAME`, with its libraries and its loader beside it, out of
    /// the way of this machine's.
    ///
    /// # Errors
    ///
    /// As [`Initramfs::program`].
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

    /// Kernel modules, and those that they need, loaded in this order before the script runs.
    ///
    /// # Errors
    ///
    /// Where the kernel has none of that name.
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

    /// The archive. The guest runs `script` by busybox's shell, with the file systems mounted, and switches
    /// off after it. In it, `word NAME` prints the value of `NAME=value` on the kernel's command line, and
    /// `disk` waits for the SSD's namespace and prints its device: which number it has changes from boot to
    /// boot.
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

/// The part of a program that is loaded to run it: all up to the end of its last segment. What comes behind,
/// symbols and what debuggers read, can be many times as much. [ELF-64 Object File Format, 5]
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

/// The shared libraries of a program as its own loader finds them, that loader included. None for a static
/// one.
fn libraries(program: &Path) -> Result<Vec<String>, Error> {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    let bytes = fs::read(program).map_err(error::at(program))?;
    // Who needs a loader names it.
    if !bytes.windows(loader.len()).any(|window| window == loader.as_bytes()) {
        return Ok(Vec::new());
    }
    let output = error::run(Command::new(loader).arg("--list").arg(program))?;
    let mut found = vec![loader.to_owned()];
    found.extend(listed(&output.stdout));
    Ok(found)
}

/// The libraries that a loader lists.
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
