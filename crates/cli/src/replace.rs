//! A file that takes another's place under its name: it gets the owner, group, permissions, access list and attributes
//! of the replaced file, as if that had been written to.

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
/// Attribute with the access list. Without it the group's bits would mean something else.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Attributes of the replaced file that are kept.
pub struct Replaced {
    metadata: Metadata,
    attributes: Vec<(String, Vec<u8>)>,
}

impl Replaced {
    /// Reads the attributes of the existing file.
    pub fn new(file: &File) -> io::Result<Replaced> {
        Ok(Replaced { metadata: file.metadata()?, attributes: attributes(file)? })
    }

    /// Returns true if the file holds something that could be lost.
    pub fn has_data(&self) -> bool {
        self.metadata.len() > 0
    }

    /// Gives the new file what can be kept. A user who may not give a file away becomes the owner of the new one;
    /// set-uid and set-gid are dropped then, and the new group gets no more rights than everybody.
    pub fn give(&self, new: &File) -> io::Result<()> {
        let (uid, gid) = (self.metadata.uid(), self.metadata.gid());
        let now = new.metadata()?;
        if (now.uid(), now.gid()) != (uid, gid) {
            // Setting the group alone may be allowed, if this user is in it.
            let _ = std::os::unix::fs::fchown(new, Some(uid), Some(gid))
                .or_else(|_| std::os::unix::fs::fchown(new, None, Some(gid)));
        }
        let now = new.metadata()?;
        if !self.attributes.iter().any(|(name, _)| name == ACCESS_LIST) {
            // The folder may have given the new file a list, for people who had no access to the old one.
            match rustix::fs::fremovexattr(new, ACCESS_LIST) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (name, value) in &self.attributes {
            match rustix::fs::fsetxattr(new, name, value, XattrFlags::empty()) {
                Err(error) if name == ACCESS_LIST => return Err(error.into()),
                // Other attributes are worth keeping, but not worth failing for.
                _ => {}
            }
        }
        let mode = kept(self.metadata.permissions().mode(), now.uid() == uid, now.gid() == gid);
        new.set_permissions(Permissions::from_mode(mode))
    }
}

/// Returns the reason why a rename over this file would fail. The rename itself would tell only after everything has
/// been received.
pub fn obstacle(file: &File, folder: &File) -> io::Result<Option<&'static str>> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    if told.is_ok_and(|told| told.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
        return Ok(Some("something is mounted there"));
    }
    let (folder, me) = (folder.metadata()?, nix::unistd::geteuid().as_raw());
    let owns_neither = file.metadata()?.uid() != me && folder.uid() != me && me != 0;
    let is_sticky = folder.mode() & STICKY != 0;
    Ok((is_sticky && owns_neither).then_some("it belongs to somebody else, in a folder like /tmp"))
}

/// Returns the permission bits that may be kept.
fn kept(mode: u32, same_owner: bool, same_group: bool) -> u32 {
    let mut mode = mode & 0o7777;
    if !same_owner {
        mode &= !SET_UID;
    }
    if !same_group {
        let of_others = (mode & 0o007) << 3;
        mode &= !(SET_GID | 0o070 & !of_others);
    }
    mode
}

/// Returns the access list and the user's attributes. File capabilities are not kept: they are for the program that was
/// there.
fn attributes(file: &File) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut kept = Vec::new();
    for name in names(file)? {
        if name == ACCESS_LIST || name.starts_with("user.") || name == "security.selinux" {
            match grow(|room| rustix::fs::fgetxattr(file.as_fd(), &name, room)) {
                Ok(value) => kept.push((name, value)),
                Err(error) if name == ACCESS_LIST => return Err(error),
                // A file that may be written but not read.
                Err(_) => {}
            }
        }
    }
    Ok(kept)
}

fn names(file: &File) -> io::Result<Vec<String>> {
    let list = match grow(|room| rustix::fs::flistxattr(file.as_fd(), room)) {
        // This file system has no attributes.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Vec::new(),
        list => list?,
    };
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Calls with a larger buffer until it is large enough.
fn grow(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> io::Result<Vec<u8>> {
    let mut room = vec![0; 256];
    loop {
        match call(&mut room) {
            Ok(length) => {
                room.truncate(length);
                return Ok(room);
            }
            Err(Errno::RANGE) if room.len() < 1 << 20 => room.resize(room.len() * 4, 0),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn what_could_not_be_kept_is_dropped() {
        assert_eq!(kept(0o106755, true, true), 0o6755);
        assert_eq!(kept(0o6755, false, true), 0o2755);
        assert_eq!(kept(0o6775, true, false), 0o4755);
        assert_eq!(kept(0o660, true, false), 0o600);
        assert_eq!(kept(0o640, false, false), 0o600);
        assert_eq!(kept(0o664, false, false), 0o644);
    }
}
