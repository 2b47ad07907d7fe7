//! Compares files: two names may stand for the same file by hard links, symbolic links, or as standard input and
//! output.

use crate::failure::Failure;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Identity of a regular file or a block device, whatever its name. Streams have none: reading one takes nothing from
/// what is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    File { device: u64, inode: u64 },
    BlockDevice(u64),
}

impl Identity {
    pub fn of(metadata: &Metadata) -> Option<Identity> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            return Some(Identity::BlockDevice(metadata.rdev()));
        }
        kind.is_file().then(|| Identity::File { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Fails if the destination exists and is the source: writing it would destroy what is to be read.
pub fn differ(source: Option<Identity>, destination: &Metadata, name: &str) -> Result<(), Failure> {
    match Identity::of(destination) {
        Some(identity) if source == Some(identity) => {
            Err(Failure::usage(format!("{name}: source and destination are the same file"))
                .advise("name another destination"))
        }
        _ => Ok(()),
    }
}
