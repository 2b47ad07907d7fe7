//! The ends of transfers, sessions and engines: awaited, polled, detached, cancelled, dropped.

use crate::ends::{contents, file_with, pipe, tcp4};
use crate::rig::{BACKENDS, BLOCK, Bench, data, eventually, for_each_backend, verdict, watched};
use dcs::{Error, Op, Sink, Source, Stage, Status, Transfer};
use std::fs::File;
use std::future::Future;
use std::io::Write;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A transfer that waits for its source, and the end that would feed it.
fn stuck(bench: &Bench) -> (Transfer, File) {
    let (theirs, ours) = pipe();
    let transfer = bench.session.transfer(Source::fd(&ours), [Op::Md5], Sink::memory(100)).unwrap();
    (transfer, theirs)
}

#[test]
fn transfers_can_be_awaited() {
    for_each_backend(|bench| {
        if !bench.backend.has_thread() {
            return;
        }
        let input = data(3 * BLOCK);
        let mut feeds = Vec::new();
        let join = async {
            let mut transfers = Vec::new();
            for _ in 0..20 {
                let (transfer, feed) = stuck(bench);
                transfers.push(transfer);
                feeds.push(feed);
            }
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                feeds.iter_mut().for_each(|feed| feed.write_all(b"fed").unwrap());
            });
            let (source, sink) = (Source::memory(&input[..]), Sink::memory(input.len()));
            let quick = bench.session.transfer(source, [], sink).unwrap();
            assert!(quick.await.unwrap().memory.unwrap() == input);
            for transfer in transfers {
                assert_eq!(transfer.await.unwrap().memory.unwrap(), b"fed");
            }
        };
        block_on(join);
    });
}

#[test]
fn a_future_may_be_polled_by_one_task_and_finished_by_another_or_dropped() {
    for_each_backend(|bench| {
        if !bench.backend.has_thread() {
            return;
        }
        let mut context = Context::from_waker(Waker::noop());
        let (mut transfer, mut feed) = stuck(bench);
        assert!(Pin::new(&mut transfer).poll(&mut context).is_pending());
        feed.write_all(b"late").unwrap();
        drop(feed);
        assert_eq!(block_on(&mut transfer).unwrap().memory.unwrap(), b"late");
        assert!(transfer.is_done());
        // Done and taken: whoever has its identifier now is not to be harmed.
        let (other, _feed) = stuck(bench);
        transfer.cancel();
        let again = std::panic::AssertUnwindSafe(|| Pin::new(&mut transfer).poll(&mut context).is_ready());
        assert!(std::panic::catch_unwind(again).is_err(), "polled after it was done");
        bench.copy(b"meanwhile");
        let mut other = other.try_wait().unwrap_err();
        assert!(Pin::new(&mut other).poll(&mut context).is_pending());
        drop(other);
        bench.assert_nothing_lent();
        // Polled, then waited for.
        let (mut transfer, feed) = stuck(bench);
        assert!(Pin::new(&mut transfer).poll(&mut context).is_pending());
        drop(feed);
        assert_eq!(transfer.wait().unwrap().bytes_in, 0);
    });
}

#[test]
fn futures_and_eventfds_need_an_engine_with_a_thread() {
    for backend in BACKENDS.iter().filter(|backend| !backend.has_thread()) {
        let engine = backend.start();
        let session = engine.session().unwrap();
        assert!(matches!(session.event_fd(), Err(Error::CallerDriven)));
        let transfer = session.transfer(Source::memory(&b"x"[..]), [], Sink::memory(1)).unwrap();
        let poll = std::panic::AssertUnwindSafe(|| block_on(transfer));
        assert!(std::panic::catch_unwind(poll).is_err());
    }
}

#[test]
fn an_event_loop_over_an_eventfd() {
    use rustix::event::{PollFd, PollFlags, poll};
    for_each_backend(|bench| {
        if !bench.backend.has_thread() {
            return;
        }
        let early = bench.session.transfer(Source::memory(&b"early"[..]), [], Sink::memory(5)).unwrap();
        assert!(eventually(|| early.is_done()));
        // What was done before the eventfd was made counts too.
        let event = bench.session.event_fd().unwrap();
        let mut flying = vec![early];
        let mut feeds: Vec<File> = Vec::new();
        for _ in 0..30 {
            let (transfer, feed) = stuck(bench);
            flying.push(transfer);
            feeds.push(feed);
        }
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for mut feed in feeds {
                    feed.write_all(b"event").unwrap();
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            while !flying.is_empty() {
                let mut fds = [PollFd::new(&event, PollFlags::IN)];
                let patience = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
                assert_eq!(poll(&mut fds, Some(&patience)).unwrap(), 1, "{} wait", flying.len());
                let mut count = [0; 8];
                rustix::io::read(event, &mut count).unwrap();
                flying = flying.into_iter().filter_map(|transfer| transfer.try_wait().err()).collect();
            }
        });
    });
}

#[test]
fn one_that_is_done_and_not_taken_does_not_keep_others_from_going_on() {
    for_each_backend(|bench| {
        let (slow, mut feed) = stuck(bench);
        let quick = bench.session.transfer(Source::memory(&b"quick"[..]), [], Sink::memory(5)).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let wait_for = |transfer: &dcs::Transfer| {
            while !transfer.is_done() {
                assert!(Instant::now() < until, "{}: nobody drives", bench.backend.name);
                bench.session.wait_any();
            }
        };
        wait_for(&quick);
        feed.write_all(b"fed").unwrap();
        drop(feed);
        wait_for(&slow);
        assert_eq!(slow.wait().unwrap().memory.unwrap(), b"fed");
        assert_eq!(quick.wait().unwrap().memory.unwrap(), b"quick");
    });
}

#[test]
fn whichever_is_done_first_is_waited_for() {
    for_each_backend(|bench| {
        // There is nothing to wait for.
        bench.session.wait_any();
        let (mut flying, mut feeds): (Vec<_>, Vec<_>) = (0..8).map(|_| stuck(bench)).unzip();
        let (nobodys, feed) = stuck(bench);
        nobodys.detach();
        // The last one first: who waited for the others would wait for ever.
        while let Some(mut fed) = feeds.pop() {
            let writer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(2));
                fed.write_all(b"any").unwrap();
            });
            bench.session.wait_any();
            let last = flying.pop().unwrap();
            assert!(last.is_done() && flying.iter().all(|other| !other.is_done()));
            // Nobody has taken it: it is still there to be told of.
            bench.session.wait_any();
            assert_eq!(last.wait().unwrap().memory.unwrap(), b"any");
            writer.join().unwrap();
        }
        bench.session.wait_any();
        drop(feed);
        bench.settle();
    });
}

#[test]
fn a_detached_transfer_goes_on() {
    for_each_backend(|bench| {
        let input = data(5 * BLOCK + 1);
        let out = file_with(&vec![0; input.len()]);
        for _ in 0..70 {
            // More than the session is deep: identifiers come back by themselves.
            let full = |error: &Error| matches!(error, Error::SessionFull);
            let submit = || {
                let (source, sink) = (Source::memory(&input[..]), Sink::file(&out, 0));
                bench.session.transfer(source, [Op::Crc32], sink)
            };
            match submit() {
                Ok(transfer) => transfer.detach(),
                Err(error) => {
                    assert!(full(&error));
                    bench.settle();
                }
            }
        }
        bench.settle();
        assert!(contents(&out, input.len()) == input);
    });
}

impl Bench {
    /// Waits until the engine is idle, and drives it where callers do.
    fn settle(&self) {
        let session = self.engine.session().unwrap();
        let run = || {
            let transfer = session.transfer(Source::memory(&b"-"[..]), [], Sink::memory(1)).unwrap();
            transfer.wait().unwrap();
            self.engine.statistics()
        };
        // It takes entries of sessions in turns: where it took but one of this session, no other has any.
        let is_idle = || {
            let (before, after) = (run(), run());
            after.is_idle && after.fetched == before.fetched + 1
        };
        assert!(eventually(is_idle), "{}: {:?}", self.backend.name, self.engine.statistics());
    }
}

#[test]
fn a_dropped_transfer_is_cancelled() {
    for_each_backend(|bench| {
        for _ in 0..3 {
            let stuck: Vec<_> = (0..64).map(|_| stuck(bench)).collect();
            let (transfers, _feeds): (Vec<_>, Vec<_>) = stuck.into_iter().unzip();
            drop(transfers);
            bench.settle();
        }
        assert_eq!(bench.engine.statistics().failed, 3 * 64);
    });
}

#[test]
fn a_cancelled_transfer_tells_how_far_it_came() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    for_each_backend(|bench| {
        let (ours, theirs) = tcp4();
        let endless = File::open("/dev/zero").unwrap();
        let request = bench.session.request(Source::fd(&endless), [Op::Md5], Sink::socket(&ours));
        let transfer = request.length(1 << 40).submit().unwrap();
        let is_writable = || {
            let mut fds = [PollFd::new(&ours, PollFlags::OUT)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
        };
        std::thread::scope(|scope| {
            // Drives the engine, where callers do.
            scope.spawn(|| transfer.wait_done());
            // That nothing is begun does not say that the socket is full: an operator that waits for its core
            // stands still as well.
            let (mut full, mut before) = (0, 0);
            while full < 5 {
                std::thread::sleep(Duration::from_millis(20));
                let now = bench.engine.statistics().operations;
                full = if now == before && !is_writable() { full + 1 } else { 0 };
                before = now;
            }
            transfer.cancel();
            transfer.cancel();
        });
        let error = transfer.wait().unwrap_err();
        drop(ours);
        let received = crate::ends::read_behind(theirs.into()).join().unwrap();
        let expected = (Status::Cancelled, Stage::Destination, None, received.len() as u64);
        assert_eq!(verdict(&error), expected);
        assert!(!received.is_empty());
        assert!(error.completion.digests[0].covered >= received.len() as u64);
    });
}

#[test]
fn an_engine_that_goes_tells_every_transfer() {
    for backend in BACKENDS {
        watched(backend.name, || {
            let engine = backend.start();
            let sessions: Vec<_> = (0..5).map(|_| engine.session().unwrap()).collect();
            let (theirs, ours) = pipe();
            let flow = tcp4();
            let submit = |session: &dcs::Session, at: usize| match at % 3 {
                0 => session.transfer(Source::fd(&ours), [Op::Md5], Sink::memory(100)).unwrap(),
                1 => session.transfer(Source::socket(&flow.0), [], Sink::memory(100)).unwrap(),
                _ => session.transfer(Source::socket(&flow.0), [], Sink::fd(&theirs)).unwrap(),
            };
            let transfers: Vec<_> =
                sessions.iter().flat_map(|session| (0..20).map(move |at| submit(session, at))).collect();
            let waiter = std::thread::scope(|scope| {
                // Somebody waits meanwhile; with callers that drive, somebody drives.
                let mut transfers = transfers.into_iter();
                let first = transfers.next().unwrap();
                let waiter = scope.spawn(move || first.wait());
                std::thread::sleep(Duration::from_millis(20));
                drop(engine);
                for transfer in transfers {
                    let error = transfer.wait().unwrap_err();
                    assert_eq!(error.status, Status::QueueDeleted, "{}: {error}", backend.name);
                    assert_eq!(error.completion.bytes_out, 0);
                }
                waiter.join().unwrap()
            });
            assert_eq!(waiter.unwrap_err().status, Status::QueueDeleted);
            let late = sessions[0].transfer(Source::memory(&b"late"[..]), [], Sink::memory(4));
            assert!(matches!(late, Err(Error::Stopped)));
        });
    }
}

#[test]
fn a_session_that_goes_tells_its_transfers_and_no_others() {
    for_each_backend(|bench| {
        let other = bench.engine.session().unwrap();
        let (theirs, ours) = pipe();
        let submit = || other.transfer(Source::fd(&ours), [Op::Md5], Sink::memory(100)).unwrap();
        let lost: Vec<_> = (0..64).map(|_| submit()).collect();
        let (kept, mut feed) = stuck(bench);
        while bench.engine.statistics().transfers <= lost.len() {
            bench.copy(b"queues take turns: some entries may not be fetched yet");
        }
        bench.copy(b"all are under way");
        drop(other);
        for transfer in lost {
            let error = transfer.wait().unwrap_err();
            assert_eq!(verdict(&error), (Status::QueueDeleted, Stage::Source, None, 0));
        }
        feed.write_all(b"kept").unwrap();
        drop((feed, theirs));
        assert_eq!(kept.wait().unwrap().memory.unwrap(), b"kept");
    });
}
