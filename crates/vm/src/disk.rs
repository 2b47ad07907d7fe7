//! Disk images.

use std::fs::File;
use std::path::Path;

use crate::error::{self, Error};
use crate::tools::Tools;

/// Makes a sparse image of so many bytes with an ext4 file system that holds what a folder holds.
///
/// # Errors
///
/// Where the file cannot be made, or mkfs.ext4 fails.
pub fn ext4(tools: &Tools, image: &Path, bytes: u64, contents: &Path) -> Result<(), Error> {
    blank(image, bytes)?;
    let mut mkfs = tools.mkfs_ext4();
    mkfs.args(["-q", "-F", "-b", "4096", "-d"]).arg(contents).arg(image);
    error::run(&mut mkfs).map(|_| ())
}

/// Makes a sparse image of so many zeros.
///
/// # Errors
///
/// Where the file cannot be made.
pub fn blank(image: &Path, bytes: u64) -> Result<(), Error> {
    File::create(image).and_then(|file| file.set_len(bytes)).map_err(error::at(image))
}
