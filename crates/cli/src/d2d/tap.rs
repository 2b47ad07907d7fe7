//! A tap device: the wire of a NIC, whose other end is an interface of this machine. It makes no device up and
//! gives it no address.

use nix::libc;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

/// Bytes of the longest frame: a packet of IPv4 behind Ethernet's header and a tag.
pub const FRAME: usize = 65_535 + 18;
/// Where devices are opened.
const PATH: &str = "/dev/net/tun";

/// `struct ifreq`, as far as TUNSETIFF reads it. [linux/if.h]
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// An open device. It goes with its last descriptor, unless it was there before.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Opens the device of this name; makes it where there is none.
    ///
    /// # Errors
    ///
    /// EPERM, EACCES: it takes CAP_NET_ADMIN, or a device that is the caller's; EBUSY: another program has it; EINVAL: it
    /// is no tap device, or the name cannot be.
    pub fn open(name: &str) -> io::Result<Tap> {
        let mut request = Request {
            name: [0; libc::IFNAMSIZ],
            flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short,
            rest: [0; 22],
        };
        // The kernel would choose a name for none, and cut one that is too long.
        let fits = !name.is_empty() && name.len() < request.name.len() && !name.contains(['\0', '%', '/']);
        if !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        let file = File::options().read(true).write(true).open(PATH)?;
        set(&file, &mut request)?;
        Ok(Tap(file))
    }

    /// Sends a frame.
    ///
    /// # Errors
    ///
    /// EIO: the device is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(drop)
    }

    /// Waits for a frame; returns its bytes.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(frame)
    }
}

#[allow(unsafe_code)]
fn set(file: &File, request: &mut Request) -> io::Result<()> {
    // SAFETY: the kernel reads and writes an `ifreq`, which has 40 bytes on 64-bit machines, as this has.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut *request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
