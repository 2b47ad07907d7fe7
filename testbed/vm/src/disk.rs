//! Disk images.

use std::fs::File;
use std::path::Path;

use crate::error::{self, Error};
use crate::tools::Tools;

/// Makes a sparse image of this many bytes with an ext4 file system that contains a folder's contents.
///
/// # Errors
///
/// If the file cannot be created, or mkfs.ext4 fails.
pub fn ext4(tools: &Tools, image: &Path, bytes: u64, contents: &Path) -> Result<(), Error> {
    ext4_with(tools, image, bytes, contents, &[])
}

/// Like [`ext4`], with options of mkfs.ext4.
///
/// # Errors
///
/// The same as [`ext4`].
pub fn ext4_with(
    tools: &Tools,
    image: &Path,
    bytes: u64,
    contents: &Path,
    options: &[&str],
) -> Result<(), Error> {
    blank(image, bytes)?;
    let mut mkfs = tools.mkfs_ext4();
    mkfs.args(["-q", "-F", "-b", "4096"]).args(options).arg("-d").arg(contents).arg(image);
    error::run(&mut mkfs).map(|_| ())
}

/// Makes a sparse image of this many bytes, at least 300 MiB, with an empty XFS file system that shares blocks between files.
/// With an image for its realtime device, which is created too, it does not share blocks.
///
/// # Errors
///
/// If a file cannot be created, or mkfs.xfs is not available or fails.
pub fn xfs(
    tools: &Tools,
    image: &Path,
    bytes: u64,
    realtime: Option<&Path>,
    report: &dyn Fn(&str),
) -> Result<(), Error> {
    blank(image, bytes)?;
    let mut mkfs = tools.mkfs_xfs(report)?;
    mkfs.args(["-q", "-f"]);
    match realtime {
        None => mkfs.args(["-m", "reflink=1"]),
        Some(realtime) => {
            blank(realtime, 64 << 20)?;
            let mut option = std::ffi::OsString::from("rtdev=");
            option.push(realtime);
            mkfs.args(["-m", "reflink=0,rmapbt=0", "-r"]).arg(option)
        }
    };
    error::run(mkfs.arg(image)).map(|_| ())
}

/// Checks an unmounted ext4 file system without changing it (e2fsck -fn).
///
/// # Errors
///
/// [`Error::Program`] if it is damaged, with the last message.
pub fn check_ext4(tools: &Tools, image: &Path) -> Result<(), Error> {
    error::run(tools.e2fsck().arg("-fn").arg(image)).map(|_| ())
}

/// Checks an unmounted XFS file system without changing it (xfs_repair -n).
///
/// # Errors
///
/// The same as [`check_ext4`], or where xfs_repair is not available.
pub fn check_xfs(tools: &Tools, image: &Path, report: &dyn Fn(&str)) -> Result<(), Error> {
    error::run(tools.xfs_repair(report)?.arg("-nf").arg(image)).map(|_| ())
}

/// Makes a sparse image of this many zeros.
///
/// # Errors
///
/// If the file cannot be created.
pub fn blank(image: &Path, bytes: u64) -> Result<(), Error> {
    File::create(image).and_then(|file| file.set_len(bytes)).map_err(error::at(image))
}
