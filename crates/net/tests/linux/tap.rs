//! A TAP device in a separate network namespace, so that nothing else on the machine sees it.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

/// The part of `struct ifreq` that `TUNSETIFF` reads.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;

/// Puts the calling thread, and those that it starts from now on, into a new network namespace with a TAP device that has this address.
/// Returns an error text if that fails.
pub fn enter(address: &str) -> Result<File, String> {
    // SAFETY: no memory is involved; only this thread's namespace changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(format!("no network namespace of its own: {}", io::Error::last_os_error()));
    }
    let path = "/dev/net/tun";
    let mut options = OpenOptions::new();
    let tap = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let tap = tap.map_err(|error| format!("{path}: {error}"))?;
    let mut request =
        Request { name: [0; 16], flags: (libc::IFF_TAP | libc::IFF_NO_PI) as i16, rest: [0; 22] };
    request.name[..4].copy_from_slice(b"tap0");
    // SAFETY: the request is an `ifreq`, of its size, and lives until the call returns.
    if unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETIFF, &raw const request) } != 0 {
        return Err(format!("no TAP device: {}", io::Error::last_os_error()));
    }
    for arguments in [format!("addr add {address} dev tap0"), "link set tap0 up".into()] {
        let ip =
            Command::new("ip").args(arguments.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
        if !ip.status.success() {
            return Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&ip.stderr)));
        }
    }
    Ok(tap)
}

/// Opens a socket for ICMP, in the calling thread's namespace.
pub fn icmp() -> UdpSocket {
    // SAFETY: no memory is involved.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP) };
    assert!(socket >= 0, "{}", io::Error::last_os_error());
    // SAFETY: it was just opened, and nothing else has it.
    unsafe { OwnedFd::from_raw_fd(socket) }.into()
}

/// Waits until the device has a frame, or for that many nanoseconds.
pub fn wait(tap: &File, nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    };
    let mut poll = libc::pollfd { fd: tap.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one `pollfd` and one `timespec`, which live until the call returns; no signal mask.
    unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) };
}
