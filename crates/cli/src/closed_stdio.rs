//! Standard input and output that were closed when the process began (`<&-`). Rust's runtime opens /dev/null in their
//! place before `main`: reads would return nothing, writes would be lost, and both would look like success.

use nix::libc;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static INPUT: AtomicBool = AtomicBool::new(false);
static OUTPUT: AtomicBool = AtomicBool::new(false);

// SAFETY: functions named there are called once, before `main` and the runtime, with no other thread; this one needs
// neither.
#[allow(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    INPUT.store(is_closed(libc::STDIN_FILENO), Ordering::Relaxed);
    OUTPUT.store(is_closed(libc::STDOUT_FILENO), Ordering::Relaxed);
}

#[allow(unsafe_code)]
fn is_closed(fd: libc::c_int) -> bool {
    // SAFETY: F_GETFD takes any number and changes nothing.
    unsafe { libc::fcntl(fd, libc::F_GETFD) < 0 }
}

/// Fails if standard input was closed.
pub fn check_input() -> io::Result<()> {
    check(&INPUT)
}

/// Fails if standard output was closed.
pub fn check_output() -> io::Result<()> {
    check(&OUTPUT)
}

fn check(was_closed: &AtomicBool) -> io::Result<()> {
    match was_closed.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}
