//! Cancelling where every command slot of the engine is taken by transfers that are stuck.

use dcs::{Driver, Engine, Error, Op, Session, Sink, Source, Stage, Status, Transfer};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SLOTS: u16 = 4;

/// Submits as soon as there is room: what was dropped a moment ago may not be through yet.
fn submit(transfer: impl Fn() -> Result<Transfer, Error>) -> Transfer {
    loop {
        match transfer() {
            Err(Error::SessionFull) => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

/// A transfer from a peer that says nothing. The peer is kept open.
fn stuck(session: &Session) -> (Transfer, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (submit(|| session.transfer(Source::socket(&ours), [Op::Md5], Sink::memory(100))), theirs)
}

fn with_engines(body: impl Fn(&Engine, &Session)) {
    for driver in [Driver::Thread, Driver::Caller] {
        let engine = Engine::builder().driver(driver).commands(SLOTS).sessions(1).start().unwrap();
        let session = engine.session_with_depth(16).unwrap();
        body(&engine, &session);
        // Nothing is left behind: the session is as good as new.
        for _ in 0..40 {
            let done = submit(|| session.transfer(Source::memory(&b"abc"[..]), [Op::Md5], Sink::memory(3)));
            assert_eq!(done.wait().unwrap().digests[0].to_string(), "900150983cd24fb0d6963f7d28e17f72");
        }
    }
}

fn assert_cancelled(transfer: Transfer) -> Stage {
    transfer.cancel();
    let error = transfer.wait().unwrap_err();
    assert_eq!((error.status, error.completion.bytes_out), (Status::Cancelled, 0));
    error.stage
}

#[test]
fn transfers_that_wait_for_a_slot_can_be_cancelled_first() {
    with_engines(|_, session| {
        let (mut transfers, peers): (Vec<_>, Vec<_>) = (0..12).map(|_| stuck(session)).unzip();
        // The last ones have no slot, and those that have will not give theirs up.
        while transfers.len() > SLOTS as usize {
            assert_eq!(assert_cancelled(transfers.pop().unwrap()), Stage::Queue);
        }
        for transfer in transfers {
            assert_cancelled(transfer);
        }
        drop(peers);
    });
}

#[test]
fn in_any_order() {
    with_engines(|_, session| {
        let (transfers, peers): (Vec<_>, Vec<_>) = (0..12).map(|_| stuck(session)).unzip();
        for transfer in transfers {
            assert_cancelled(transfer);
        }
        drop(peers);
    });
}

#[test]
fn a_cancelled_transfer_leaves_its_place_in_the_ring_to_others() {
    with_engines(|_, session| {
        for _ in 0..30 {
            let (transfers, peers): (Vec<_>, Vec<_>) = (0..16).map(|_| stuck(session)).unzip();
            // Dropping cancels.
            drop(transfers);
            drop(peers);
        }
    });
}

#[test]
fn who_waits_for_a_slot_times_out_on_time() {
    with_engines(|_, session| {
        let (transfers, peers): (Vec<_>, Vec<_>) = (0..SLOTS).map(|_| stuck(session)).unzip();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let late = session.request(Source::socket(&ours), [Op::Md5], Sink::memory(100));
        let late = late.timeout(Duration::from_millis(200)).submit().unwrap();
        // The others are stuck for good, so it comes back by its timeout or not at all.
        let error = late.wait().unwrap_err();
        assert_eq!(
            (error.status, error.stage, error.completion.bytes_out),
            (Status::Timeout, Stage::Queue, 0)
        );
        assert!(transfers.iter().all(|transfer| !transfer.is_done()));
        drop((transfers, peers, theirs));
    });
}
