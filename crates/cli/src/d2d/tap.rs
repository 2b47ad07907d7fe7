//! A tap device: the wire of a NIC, whose other end is an interface of this machine. It makes no device up and
//! gives it no address.

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Bytes of the longest frame: a packet of IPv4 behind Ethernet's header and a tag.
pub const FRAME: usize = 65_535 + 18;
/// The device file that makes interfaces.
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
    /// Opens the device of this name; makes it if it does not exist.
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
        // The last user of a persistent device may have left offloads on: frames would come without checksums.
        keep_whole(&file)?;
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

    /// Returns true if the device exists and is up.
    pub fn is_up(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
        // The kernel accepts frames only while the device is up.
        let polled = poll(&mut fds, PollTimeout::ZERO).is_ok();
        polled && fds[0].revents() == Some(PollFlags::POLLOUT)
    }

    /// Waits for a frame, at most for `limit`. Returns true if there is one, or [`Tap::receive`] would fail.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        poll(&mut fds, limit).is_ok_and(|count| count > 0)
    }

    /// Waits for a frame; returns its bytes.
    ///
    /// # Errors
    ///
    /// EBADFD: the device was deleted.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(frame)
    }
}

/// Returns how many frames to this device the kernel has dropped because they were not read in time; `None` if there is no device of that
/// name in this network namespace.
pub fn dropped(name: &str) -> Option<u64> {
    // Not /sys, which shows the namespace in which it was mounted.
    dropped_in(&std::fs::read_to_string("/proc/thread-self/net/dev").ok()?, name)
}

/// Returns the frames dropped on transmission, the 12th column after the name. [proc_pid_net(5)]
fn dropped_in(devices: &str, name: &str) -> Option<u64> {
    let counts = devices.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    counts.split_whitespace().nth(11)?.parse().ok()
}

#[allow(unsafe_code)]
fn keep_whole(file: &File) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number, no address.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[allow(unsafe_code)]
fn set(file: &File, request: &mut Request) -> io::Result<()> {
    // SAFETY: the kernel reads and writes an `ifreq`, which has 40 bytes on 64-bit machines, as this has.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut *request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use std::net::UdpSocket;
    use std::process::Command;

    fn ip(line: &str) {
        let done = Command::new("ip").args(line.split(' ')).output().unwrap();
        assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Runs a test in its own network namespace, if that is permitted.
    fn alone(test: fn()) {
        std::thread::spawn(move || match unshare(CloneFlags::CLONE_NEWNET) {
            Ok(())
                if std::path::Path::new(PATH).exists() && Command::new("ip").arg("-V").output().is_ok() =>
            {
                test()
            }
            Ok(()) => println!("skipped: needs /dev/net/tun and ip"),
            Err(error) => println!("skipped: no network namespace: {error}"),
        })
        .join()
        .unwrap();
    }

    /// Returns the next frame with UDP over IPv4.
    fn datagram(tap: &Tap) -> Vec<u8> {
        let mut frame = vec![0; FRAME];
        loop {
            assert!(tap.wait(Duration::from_secs(60)), "no frame comes");
            let length = tap.receive(&mut frame).unwrap();
            if length > 42 && frame[12..14] == [8, 0] && frame[23] == 17 {
                return frame[..length].to_vec();
            }
        }
    }

    fn send(count: usize) {
        let socket = UdpSocket::bind("10.213.0.1:0").unwrap();
        for _ in 0..count {
            socket.send_to(&[7; 100], "10.213.0.2:6000").unwrap();
        }
    }

    const UP: [&str; 3] = [
        "addr add 10.213.0.1/24 dev wire0",
        "link set wire0 up",
        "neighbour add 10.213.0.2 lladdr 02:00:00:00:00:02 dev wire0 nud permanent",
    ];

    #[test]
    fn a_device_that_had_offloads_gives_frames_with_their_checksums() {
        alone(|| {
            ip("tuntap add wire0 mode tap");
            let before = Tap::open("wire0").unwrap();
            // SAFETY: as in `keep_whole`.
            #[allow(unsafe_code)]
            let result = unsafe { libc::ioctl(before.0.as_raw_fd(), libc::TUNSETOFFLOAD, libc::TUN_F_CSUM) };
            assert_eq!(result, 0);
            drop(before);
            // Another test's child has the file until it executes its program.
            let end = std::time::Instant::now() + Duration::from_secs(60);
            let tap = loop {
                match Tap::open("wire0") {
                    Ok(tap) => break tap,
                    Err(error) => {
                        assert!(std::time::Instant::now() < end, "{error}");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            };
            UP.iter().for_each(|line| ip(line));
            send(1);
            let frame = datagram(&tap);
            // The sum of the pseudo-header and of the datagram with its checksum. (RFC 768)
            let words = frame[26..].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let sum = words.sum::<u32>() + 17 + (frame.len() - 34) as u32;
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        });
    }

    #[test]
    fn a_device_says_when_it_is_up_and_how_much_it_dropped() {
        alone(|| {
            let tap = Tap::open("wire0").unwrap();
            assert!(!tap.is_up());
            assert!(!tap.wait(Duration::from_millis(1)));
            UP.iter().for_each(|line| ip(line));
            assert!(tap.is_up());
            let before = dropped("wire0").unwrap();
            ip("link set wire0 txqueuelen 10");
            send(2000);
            assert!(dropped("wire0").unwrap() > before);
            datagram(&tap);
            ip("link set wire0 down");
            assert!(!tap.is_up());
            assert_eq!(tap.send(&[0; 60]).unwrap_err().raw_os_error(), Some(libc::EIO));
            ip("link set wire0 up");
            ip(&UP[2].replace("neighbour add", "neighbour replace"));
            assert!(tap.is_up());
            // Those that were queued before the device went down are gone.
            send(1);
            datagram(&tap);
            ip("link del wire0");
            assert!(!tap.is_up() && tap.wait(Duration::from_secs(60)));
            let error = tap.receive(&mut [0; 60]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADFD));
            assert_eq!(dropped("wire0"), None);
        });
    }

    #[test]
    fn the_right_column_of_the_right_device_is_read() {
        let devices = "Inter-| Receive\n face |bytes\n  lo: 1 2 3 4 5 6 7 8 9 10 11 12\nwire00: 1 1 1 1 1 1 1 1 1 1 1 1\n \
                       wire0:1 2 3 4 5 6 7 8 9 10 11 77 13\n";
        assert_eq!(dropped_in(devices, "wire0"), Some(77));
        assert_eq!(dropped_in(devices, "wire"), None);
    }
}
