//! A child of fork does nothing with its parent's engine, and is told so.

use dcs::card::{Access, PartError};
use dcs::{Driver, Engine, Error, Op, Session, Sink, Source, Status, Transfer};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Tries all that a child has inherited. It ends with the number of the first thing that was not right.
fn inherits(
    engine: Engine,
    session: Session,
    waits: [Transfer; 2],
    (ours, theirs): (UnixStream, UnixStream),
) -> i32 {
    let [first, second] = waits;
    let refused = |result: Result<Transfer, Error>| matches!(result, Err(Error::Forked));
    let checks = [
        first.is_done(),
        first.wait().is_err_and(|error| (error.status, error.errno) == (Status::QueueDeleted, libc::EPERM)),
        refused(session.transfer(Source::socket(&ours), [Op::Md5], Sink::memory(3))),
        matches!(engine.session(), Err(Error::Forked)),
        matches!(session.event_fd(), Err(Error::Forked)),
        matches!(engine.lend(1, &ours, .., Access::Read), Err(PartError::Forked)),
        matches!(engine.open_part(0), Err(PartError::Forked)),
        // A child may have an engine of its own.
        {
            let mut own = theirs;
            let engine = Engine::builder().driver(Driver::Caller).start().unwrap();
            let session = engine.session().unwrap();
            let done =
                session.transfer(Source::memory(&b"abc"[..]), [Op::Md5], Sink::memory(3)).unwrap().wait();
            own.flush().is_ok() && done.is_ok_and(|done| done.bytes_out == 3)
        },
    ];
    session.wait_any();
    second.cancel();
    // What is dropped stays the parent's too.
    drop((second, session, engine));
    checks.iter().position(|right| !right).map_or(0, |at| at as i32 + 1)
}

/// Runs `body` in a child; tells how it ended.
fn fork(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child uses what it has of its own and ends by _exit; the allocator of the C library
    // survives forks.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(100);
        // SAFETY: ends the child, without anything of the parent's.
        unsafe {
            libc::alarm(0);
            libc::_exit(code)
        };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the status is valid for the write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

#[test]
fn a_child_leaves_its_parents_engine_alone() {
    for driver in [Driver::Thread, Driver::Caller] {
        let engine = Engine::builder().driver(driver).start().unwrap();
        let session = engine.session().unwrap();
        let wait = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let request = session.request(Source::socket(&ours), [Op::Md5], Sink::memory(3)).length(3);
            (request.timeout(Duration::from_secs(60)).submit().unwrap(), theirs)
        };
        let ((first, mut one), (second, mut other)) = (wait(), wait());
        // They are in the ring when the child is made.
        let through = session.transfer(Source::memory(&b"abc"[..]), [Op::Md5], Sink::memory(3)).unwrap();
        assert!(through.wait().is_ok());
        // A child has copies of all of these; which the parent keeps.
        let mut inherited = Some((engine, session, [first, second], UnixStream::pair().unwrap()));
        let ended = fork(|| {
            // SAFETY: nothing but a limit to the child's life.
            unsafe { libc::alarm(60) };
            let (engine, session, waits, pair) = inherited.take().unwrap();
            inherits(engine, session, waits, pair)
        });
        assert_eq!(ended, 0, "{driver:?}: the child's check of that number failed");
        let (_engine, session, [first, second], _) = inherited.unwrap();
        one.write_all(b"abc").unwrap();
        other.write_all(b"abc").unwrap();
        for transfer in [first, second] {
            let done = transfer.wait().unwrap();
            assert_eq!(done.digests[0].to_string(), "900150983cd24fb0d6963f7d28e17f72");
        }
        drop(session);
    }
}
