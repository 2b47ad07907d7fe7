//! `--timeout` and signals while a call does not return: a frozen file system, a FIFO that nobody opens.

use crate::run::{Done, Place, data, worker};
use dcs_testkit::disk::Disk;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Time after which a frozen file system is thawed, which a test then notices.
const PATIENCE: Duration = Duration::from_secs(90);

/// Freezes a disk while something is done, which must not wait for the thaw.
fn frozen<T>(disk: &Disk, work: impl FnOnce() -> T) -> T {
    disk.freeze();
    let (done, ends) = channel();
    std::thread::scope(|scope| {
        let watches = scope.spawn(move || {
            let in_time = ends.recv_timeout(PATIENCE).is_ok();
            disk.thaw();
            in_time
        });
        let result = work();
        // If it was thawed already, nothing receives this.
        let _ = done.send(());
        assert!(watches.join().unwrap(), "the command did not end before the file system was thawed");
        result
    })
}

fn names(disk: &Disk) -> Vec<String> {
    let entries = std::fs::read_dir(disk.mount()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lost+found").collect()
}

/// All is received and written, but the file system blocks: `rename` does not return, nor does `chmod`.
#[test]
fn the_last_steps_of_a_file_have_their_time_too() {
    let place = Place::new();
    let Some(disk) = Disk::new(&place.path("")) else { return };
    let bytes = data(300_000);
    for (older, words) in [
        (None::<&[u8]>, "it is not known whether the new data are in its place"),
        (Some(b"older"), "it is as it was, and the new data are in"),
    ] {
        if let Some(older) = older {
            place.write("mount/b", older);
        }
        let receiver = place.recv("mount/b --timeout 10s", |_| ());
        let mut peer = TcpStream::connect(&receiver.address).unwrap();
        peer.write_all(&bytes).unwrap();
        let part = || names(&disk).into_iter().find(|name| name.ends_with(".part"));
        let is_written = |name: &String| {
            std::fs::metadata(disk.mount().join(name)).is_ok_and(|file| file.len() == bytes.len() as u64)
        };
        while part().as_ref().is_none_or(|name| !is_written(name)) {
            std::thread::yield_now();
        }
        frozen(&disk, || {
            drop(peer);
            receiver.end().fails(8, &["mount/b: out of time", words, "mount/.b."]);
        });
        match older {
            // Calls in progress are carried out when the file system is thawed.
            None => {
                while part().is_some() {
                    std::thread::yield_now();
                }
                assert!(place.read("mount/b") == bytes);
            }
            Some(older) => assert_eq!(place.read("mount/b"), older),
        }
    }
}

#[test]
fn a_file_that_cannot_be_opened_ends_in_time() {
    let place = Place::new();
    place.write("a", b"new");
    nix::unistd::mkfifo(&place.path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for line in ["send fifo - --timeout 300ms", "copy a fifo --timeout 300ms", "recv 0 fifo --timeout 300ms"]
    {
        place.run(line).fails(8, &["fifo: out of time", "not open yet", "FIFO"]);
    }
    let Some(disk) = Disk::new(&place.path("")) else { return };
    place.write("mount/b", b"older");
    for line in [
        "copy a mount/b --timeout 300ms",
        "copy a mount/c --timeout 300ms",
        "copy a mount/b --in-place --timeout 300ms",
    ] {
        // A reader of its output is not kept waiting either.
        frozen(&disk, || place.run(line).fails(8, &["mount/", "out of time"]));
    }
}

/// A transfer into a frozen file system times out by itself, but cleaning up after it would wait.
#[test]
fn a_transfer_that_times_out_does_not_wait_for_its_cleaning_up() {
    let place = Place::new();
    let Some(disk) = Disk::new(&place.path("")) else { return };
    let mut copy = place.dcs("copy - mount/b --timeout 10s").stdin(Stdio::piped()).spawn().unwrap();
    while names(&disk).is_empty() {
        std::thread::yield_now();
    }
    frozen(&disk, || {
        // No more than the pipe holds: the kernel keeps it open as long as its own copy is stuck.
        copy.stdin.as_mut().unwrap().write_all(&data(10_000)).unwrap();
        Done(copy.wait_with_output().unwrap()).fails(8, &["mount/b", "time"]);
    });
    assert!(!place.path("mount/b").exists());
}

/// Ctrl-C waits neither for the time limit nor for the file system, and the message says what is left behind.
#[test]
fn a_signal_ends_a_command_whose_file_system_is_frozen() {
    let place = Place::new();
    place.write("a", b"new");
    let Some(disk) = Disk::new(&place.path("")) else { return };
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // In the transfer.
        let mut copy = place.dcs("copy - mount/b --timeout 1h").stdin(Stdio::piped()).spawn().unwrap();
        let mut input = copy.stdin.take().unwrap();
        // More than a pipe holds: when the last of it is read, the transfer is in progress.
        input.write_all(&data(1 << 20)).unwrap();
        while unread(&input) > 0 {
            std::thread::yield_now();
        }
        frozen(&disk, || {
            input.write_all(&data(10_000)).unwrap();
            kill(Pid::from_raw(copy.id() as i32), signal).unwrap();
            let done = Done(copy.wait_with_output().unwrap());
            done.fails(130, &["mount/b: interrupted", "mount/.b.", "may stay"]);
        });
        // The call is carried out when the file system is thawed.
        while !names(&disk).is_empty() {
            std::thread::yield_now();
        }
        // At the open, which waits before anything is made.
        let works = frozen(&disk, || {
            let copy = place.dcs("copy a mount/b --in-place --timeout 1h").spawn().unwrap();
            let works = worker(&copy);
            while !is_waiting(works) {
                std::thread::yield_now();
            }
            kill(Pid::from_raw(copy.id() as i32), signal).unwrap();
            let done = Done(copy.wait_with_output().unwrap());
            done.fails(130, &["interrupted"]);
            works
        });
        while state_of(works).is_some_and(|state| state != 'Z') {
            std::thread::yield_now();
        }
        // It may have made the file before it ended.
        let _ = std::fs::remove_file(place.path("mount/b"));
    }
}

/// Returns the bytes in this pipe.
fn unread(pipe: &ChildStdin) -> usize {
    rustix::io::ioctl_fionread(pipe).unwrap() as usize
}

fn state_of(process: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns true if the process is in a call that cannot be interrupted.
fn is_waiting(process: Pid) -> bool {
    state_of(process) == Some('D')
}

/// SIGSTOP cannot be caught, and reaches only the first process.
#[test]
fn a_command_is_stopped_and_goes_on_as_one() {
    let place = Place::new();
    let mut copy = child(&place, "--timeout 1h");
    let worker = worker(&copy);
    let mut input = copy.stdin.take().unwrap();
    for _ in 0..3 {
        kill(Pid::from_raw(copy.id() as i32), Signal::SIGSTOP).unwrap();
        while state_of(worker) != Some('T') {
            std::thread::yield_now();
        }
        kill(Pid::from_raw(copy.id() as i32), Signal::SIGCONT).unwrap();
        while state_of(worker) == Some('T') {
            std::thread::yield_now();
        }
        input.write_all(&data(100_000)).unwrap();
    }
    drop(input);
    Done(copy.wait_with_output().unwrap()).ok();
    assert_eq!(place.read("b").len(), 300_000);
}

fn child(place: &Place, timeout: &str) -> Child {
    let mut command = place.dcs(&format!("copy - b --through md5 {timeout}"));
    let child = command.stdin(Stdio::piped()).spawn().unwrap();
    while !place.names().iter().any(|name| name.ends_with(".part")) {
        std::thread::yield_now();
    }
    child
}

/// The caller knows one process: signals to it reach both, and its end is the end of both.
#[test]
fn a_command_with_a_limit_is_signalled_and_killed_as_one() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let place = Place::new();
        let mut child = child(&place, "--timeout 1h");
        // Kept open, so that the transfer does not end by itself.
        let mut input = child.stdin.take().unwrap();
        input.write_all(&data(100_000)).unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let done = Done(child.wait_with_output().unwrap());
        done.fails(130, &["interrupted"]);
        drop(input);
        assert!(place.names().is_empty(), "{signal}: {:?}", place.names());
    }
    let place = Place::new();
    let mut killed = child(&place, "--timeout 1h");
    let input = killed.stdin.take().unwrap();
    killed.kill().unwrap();
    // The pipe breaks when the last process that reads it is gone.
    let mut input = input;
    while input.write_all(&data(100_000)).is_ok() {}
    assert_eq!(killed.wait().unwrap().code(), None);
}
