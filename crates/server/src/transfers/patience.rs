//! Deadlines on the progress of transfers: limits how long a client may keep one waiting.
//!
//! A client has an account of time. It begins full; the time that the server waits for the client is taken from it, and
//! every byte that moves adds time, at the least rate. So a client may pause, and it may be slow, but not both for
//! long. The server's own disk costs the client nothing.

use super::GivenUp;
use super::allocation::Allocation;
use super::permits::Permits;
use dcs::Traffic;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Interval at which a transfer's client is checked.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// Factor by which patience is shorter while others wait for a place or a connection.
const WANTED: u32 = 6;

/// Time after which an answer that is still being computed is given up, once its client has closed its side.
const CLOSED_MAX: Duration = Duration::from_secs(1);

/// Number of clients that wait for a connection: every client that the server waits for holds one.
#[derive(Debug, Default)]
struct ConnectionWaiters(AtomicUsize);

impl ConnectionWaiters {
    fn wait(self: &Arc<ConnectionWaiters>) -> ConnectionWaiter {
        self.0.fetch_add(1, Ordering::Relaxed);
        ConnectionWaiter(self.clone())
    }

    fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Registration of a client that waits for a connection.
#[derive(Debug)]
pub(crate) struct ConnectionWaiter(Arc<ConnectionWaiters>);

impl Drop for ConnectionWaiter {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client's account of time.
#[derive(Clone, Debug)]
pub struct Patience {
    left: Duration,
    most: Duration,
    rate: u64,
    /// Clients that want this one's connection.
    callers: Arc<ConnectionWaiters>,
    /// Permits that the client holds while the server waits, and that others may want.
    holds: Option<Arc<Permits>>,
}

impl Patience {
    /// Makes a full account of `most`; `rate`, in bytes a second, keeps it full.
    pub fn new(most: Duration, rate: u64) -> Patience {
        Patience { left: most, most, rate: rate.max(1), callers: Arc::default(), holds: None }
    }

    /// Returns the account with a limit of `most`, full.
    #[must_use]
    pub fn of(mut self, most: Duration) -> Patience {
        (self.left, self.most) = (most, most);
        self
    }

    pub(super) fn holding(mut self, permits: &Arc<Permits>) -> Patience {
        self.holds = Some(permits.clone());
        self
    }

    /// Registers a client that waits for a connection, until the call is dropped.
    pub(crate) fn call(&self) -> ConnectionWaiter {
        self.callers.wait()
    }

    /// Returns the longest time for which a client may do nothing.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// Adds time for bytes that moved.
    pub fn moved(&mut self, bytes: u64) {
        let gained = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        self.left = self.left.saturating_add(gained).min(self.most);
    }

    /// Takes the time that the server waited. Count what moved meanwhile first.
    pub fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    /// Returns true if the account is empty; earlier if others wait.
    pub fn is_over(&self) -> bool {
        let wanted =
            self.callers.are_there() || self.holds.as_ref().is_some_and(|permits| permits.is_wanted());
        let most = if wanted { self.most / WANTED } else { self.most };
        self.most - self.left >= most
    }
}

/// Direction of a transfer over its socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaited {
    /// From the client, with the number of bytes in all.
    In(u64),
    /// To the client.
    Out,
}

/// A transfer over a client's socket, which the client may hold up.
pub(super) struct Watch<'a> {
    socket: &'a TcpStream,
    way: Awaited,
    patience: Patience,
    /// File that is allocated as the body comes in.
    pub(super) allocation: Option<Allocation<'a>>,
    begun: Traffic,
    before: Traffic,
    looked: Instant,
    closed: Duration,
}

impl<'a> Watch<'a> {
    pub(super) fn new(socket: &'a TcpStream, way: Awaited, patience: Patience) -> Watch<'a> {
        let look = || Traffic::of(socket).unwrap_or_default();
        let mut begun = look();
        if let Awaited::In(_) = way {
            // If nothing came between two checks, the unread bytes belong to the same moment as the received ones.
            let mut again = look();
            while begun.received != again.received {
                (begun, again) = (again, look());
            }
        }
        let (allocation, looked, closed) = (None, Instant::now(), Duration::ZERO);
        Watch { socket, way, patience, allocation, begun, before: begun, looked, closed }
    }

    /// Checks what the client does. Returns an error if it must be given up.
    pub(super) fn look(&mut self) -> Result<(), GivenUp> {
        // A socket without these figures is broken: the transfer finds that out itself.
        let Ok(now) = Traffic::of(self.socket) else { return Ok(()) };
        let time = self.looked.elapsed();
        let before = std::mem::replace(&mut self.before, now);
        self.looked += time;
        match self.way {
            Awaited::In(length) => {
                let came = now.received.saturating_sub(self.begun.received.saturating_sub(self.begun.unread));
                self.patience.moved(now.received.saturating_sub(before.received));
                if now.unread == 0 && came < length {
                    self.patience.waited(time);
                }
                if let Some(allocation) = &mut self.allocation {
                    allocation.grow(came)?;
                }
            }
            Awaited::Out => {
                let moved = now.acknowledged.saturating_sub(before.acknowledged);
                self.patience.moved(moved);
                if now.unacknowledged > 0 {
                    self.patience.waited(time);
                }
                let computes_for_nobody = now.peer_closed && moved == 0 && now.unacknowledged == 0;
                self.closed = if computes_for_nobody { self.closed + time } else { Duration::ZERO };
                if self.closed >= CLOSED_MAX {
                    return Err(GivenUp::Gone);
                }
            }
        }
        if self.patience.is_over() { Err(GivenUp::Slow) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_keeps_the_rate_may_go_on_for_ever_and_pause_meanwhile() {
        let mut patience = Patience::new(30 * SECOND, 4096);
        for _ in 0..1000 {
            patience.waited(SECOND);
            patience.moved(4096);
        }
        patience.waited(29 * SECOND);
        assert!(!patience.is_over());
        patience.moved(100 * 4096);
        patience.waited(29 * SECOND);
        assert!(!patience.is_over(), "it is full again, and no fuller");
        patience.waited(SECOND);
        assert!(patience.is_over());
    }

    #[test]
    fn while_others_wait_a_sixth_has_to_do() {
        let permits = Arc::new(Permits::new(2, Arc::default()));
        let mut patience = Patience::new(30 * SECOND, 4096).holding(&permits);
        patience.waited(6 * SECOND);
        assert!(!patience.is_over());
        let context = &mut Context::from_waker(Waker::noop());
        let mut held = pin!(permits.take(2));
        let Poll::Ready(_held) = held.as_mut().poll(context) else { panic!("it is free") };
        let mut other = pin!(permits.take(2));
        assert!(other.as_mut().poll(context).is_pending());
        assert!(patience.is_over());
    }

    #[test]
    fn while_others_wait_for_a_connection_a_sixth_has_to_do_too() {
        let first = Patience::new(30 * SECOND, 4096);
        let (mut transfer, mut answer) = (first.clone(), first.clone().of(12 * SECOND));
        transfer.waited(6 * SECOND);
        answer.waited(3 * SECOND);
        assert!(!transfer.is_over() && !answer.is_over());
        let call = first.call();
        assert!(transfer.is_over() && answer.is_over());
        drop(call);
        assert!(!transfer.is_over() && !answer.is_over());
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// Looks until the client is given up.
    fn given_up(watch: &mut Watch<'_>) -> GivenUp {
        loop {
            std::thread::sleep(Duration::from_millis(5));
            if let Err(why) = watch.look() {
                return why;
            }
        }
    }

    #[test]
    fn who_has_left_is_not_computed_for() {
        let (client, server) = pair();
        let mut watch = Watch::new(&server, Awaited::Out, Patience::new(SECOND, 1));
        watch.look().unwrap();
        let begun = Instant::now();
        drop(client);
        assert_eq!(given_up(&mut watch), GivenUp::Gone);
        assert!(begun.elapsed() >= CLOSED_MAX / 2);
    }

    #[test]
    fn a_client_is_waited_for_only_where_it_is_its_turn() {
        let (mut client, server) = pair();
        client.write_all(b"12345").unwrap();
        server.peek(&mut [0; 5]).unwrap();
        let mut watch =
            Watch::new(&server, Awaited::In(10), Patience::new(Duration::from_millis(50), 1 << 20));
        let server_is_slow = |watch: &mut Watch<'_>| {
            let end = Instant::now() + Duration::from_millis(200);
            while Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
                watch.look().unwrap();
            }
        };
        // Nobody reads what has come.
        server_is_slow(&mut watch);
        (&server).read_exact(&mut [0; 5]).unwrap();
        assert_eq!(given_up(&mut watch), GivenUp::Slow);
        // All has come and was read: what is left to do is the server's.
        client.write_all(b"67890").unwrap();
        (&server).read_exact(&mut [0; 5]).unwrap();
        let mut watch = Watch { patience: Patience::new(Duration::from_millis(50), 1 << 20), ..watch };
        server_is_slow(&mut watch);
    }

    #[test]
    fn a_byte_now_and_then_is_no_progress() {
        let mut patience = Patience::new(30 * SECOND, 4096);
        let lasted = (1..1000).find(|_| {
            patience.moved(1);
            patience.waited(SECOND);
            patience.is_over()
        });
        assert_eq!(lasted, Some(31));
    }
}
