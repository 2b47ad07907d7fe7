//! A file system of a test's own, which can be frozen: calls into it then wait until it thaws.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An ext4 in a file. Dropping it thaws and unmounts it.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Makes a file system of 32 MiB in this folder; `None`, with a message, if this machine does not permit mounting one.
    pub fn new(folder: &Path) -> Option<Disk> {
        let image = folder.join("image");
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let disk = Disk(folder.join("mount"));
        std::fs::create_dir(&disk.0).unwrap();
        let made = run(Command::new("mkfs.ext4").arg("-q").arg(&image))
            .and_then(|()| run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&disk.0)));
        match made {
            Ok(()) => Some(disk),
            Err(why) => {
                println!("skipped: no file system to freeze: {why}");
                None
            }
        }
    }

    /// Returns the folder where it is mounted.
    pub fn mount(&self) -> &Path {
        &self.0
    }

    /// Freezes it: calls into it wait.
    pub fn freeze(&self) {
        run(Command::new("fsfreeze").arg("--freeze").arg(&self.0)).unwrap();
    }

    /// Thaws it.
    pub fn thaw(&self) {
        run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0)).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After a test that succeeded or could not run it is not frozen, or does not exist.
        let _ = run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0));
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim())),
    }
}
