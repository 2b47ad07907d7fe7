//! Many transfers: arrivals, connections, faults, and their outcomes. Every byte and every digest is checked.

use crate::cpu::{Component, ThreadId};
use crate::design::{Design, Job, Program, bring_up, build};
use crate::executor::Handle;
use crate::failed::Failed;
use crate::host::Waiting;
use crate::parameters::Parameters;
use crate::server::{Build, Server};
use dcs_abi::operator::Operator;
use dcs_engine::Nanos;
use dcs_fabric::{FaultPlan, FaultPlanError, Faults, FunctionId, Rate, Struck};
use dcs_ndp::Context;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Distance in the pattern between the peer's bytes and the SSD's for the same place.
const SHIFTED: u64 = 777;

/// Time limit for a transfer, and for a new connection: longer than an SSD's driver and the card take to give up.
const LIMIT: Nanos = 120_000_000_000;

/// The direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the SSD to the peer.
    Send,
    /// From the peer to the SSD.
    Receive,
}

/// A transfer to make.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Time of the request since the start. It waits if no connection is free.
    pub at: Nanos,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Length in bytes.
    pub length: u64,
    /// Operator that the data pass.
    pub operator: Option<Operator>,
}

/// A design and its load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The design.
    pub design: Design,
    /// Software's way of waiting for devices.
    pub waiting: Waiting,
    /// Parameters of the server.
    pub parameters: Parameters,
    /// Number of SSDs and NICs.
    pub sets: usize,
    /// Connections to each NIC, each with a thread.
    pub connections: usize,
    /// Threads that only keep cores busy.
    pub spinners: usize,
    /// Processes that only keep memory busy.
    pub memory_contenders: u64,
    /// True if the cost of a request apart from its data is charged.
    pub application: bool,
    /// Requests of each set, in the order of arrival.
    pub requests: Vec<Request>,
    /// True for the fastest links (PCIe 3.0 x16) instead of the prototypes'.
    pub fast_links: bool,
    /// Faults of SSDs and NICs, counted from the time when everything is up.
    pub faults: Vec<FaultPlan>,
    /// Seed of the faults' draws.
    pub seed: u64,
}

impl Load {
    /// Returns a load with one set, one connection, interrupts, and no contenders.
    pub fn new(design: Design, requests: Vec<Request>) -> Load {
        Load {
            design,
            waiting: Waiting::Interrupt,
            parameters: Parameters::default(),
            sets: 1,
            connections: 1,
            spinners: 0,
            memory_contenders: 0,
            application: false,
            requests,
            fast_links: false,
            faults: Vec::new(),
            seed: 1,
        }
    }
}

/// The end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Success, with every byte and digest right.
    Right,
    /// Failure, with the delivered bytes right.
    Failed(Failed),
    /// A contradiction to what was reported.
    Wrong(&'static str),
}

/// Transfers, some of which may have failed.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Measurement over the successful ones.
    pub measured: Measured,
    /// Each transfer, in the order in which they ended.
    pub transfers: Vec<(Request, Fate)>,
    /// The strikes of each fault.
    pub struck: Vec<Struck>,
}

/// Measurement of a load.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Bytes moved.
    pub bytes: u64,
    /// Time from the start to the last byte's arrival.
    pub time: Nanos,
    /// Cores' time by component.
    pub busy: Vec<(Component, Nanos)>,
    /// Frames that a NIC had no room for.
    pub missed: u64,
}

impl Measured {
    /// Returns the gigabits per second.
    pub fn gbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time as f64
    }

    /// Returns the number of cores that the transfers keep busy.
    pub fn cores(&self) -> f64 {
        self.software() as f64 / self.time as f64
    }

    /// Returns the CPU seconds per GiB.
    pub fn cpu_s_per_gib(&self) -> f64 {
        self.software() as f64 / 1e9 / (self.bytes as f64 / (1u64 << 30) as f64)
    }

    fn software(&self) -> Nanos {
        self.busy.iter().filter(|(what, _)| *what != Component::Spinner).map(|(_, time)| time).sum()
    }
}

/// A connection's area on its SSD: files to read below, room to write above.
#[derive(Clone, Copy)]
struct Area {
    room: u64,
    longest: u64,
}

/// Runs the load.
///
/// # Panics
///
/// If a transfer fails, a byte or a digest is wrong, or nothing moves any more.
pub fn run(load: &Load) -> Measured {
    let Attempt { measured, transfers, .. } = attempt(load).expect("the devices are there");
    for (request, fate) in transfers {
        match fate {
            Fate::Right => {}
            Fate::Failed(failed) => panic!("{request:?} failed: {failed}"),
            Fate::Wrong(what) => panic!("{request:?}: {what}"),
        }
    }
    measured
}

/// Runs the load with its faults.
///
/// # Errors
///
/// If a fault is for a device that does not exist.
///
/// # Panics
///
/// If an SSD was written to outside of the areas for writing.
pub fn attempt(load: &Load) -> Result<Attempt, FaultPlanError> {
    let longest =
        load.requests.iter().map(|request| request.length).max().unwrap_or(0).next_multiple_of(1 << 20);
    let fast = |prototype: Rate| if load.fast_links { Rate::GEN3_X16 } else { prototype };
    let mut made = build(load.design, load.parameters);
    made = Build {
        sets: load.sets,
        ssd_bytes: longest * (1 + load.connections as u64),
        card_link: fast(made.card_link),
        nic_link: fast(made.nic_link),
        ssd_link: fast(made.ssd_link),
        ..made
    };
    let (executor, mut program) = bring_up(load.design, made, load.waiting, load.connections);
    let memory = load.parameters.memory_ps * (1 + load.memory_contenders);
    // A copy both reads and writes.
    program.host.copy_ps = program.host.copy_ps.max(if load.memory_contenders > 0 { 2 * memory } else { 0 });
    let handle = executor.handle();
    handle.with(|server| (0..load.spinners).for_each(|_| server.cpu.spinner()));
    // Waits until the connections are old.
    executor.run(handle.sleep_until(handle.now() + 300_000_000));
    let faults = handle.with(|server| {
        let ssds: Vec<FunctionId> = server.sets.iter().map(|set| set.ssd).collect();
        let nics: Vec<FunctionId> = server.sets.iter().map(|set| set.nic).collect();
        Faults::inject(&mut server.fabric, &load.faults, &ssds, &nics, load.seed)
    })?;
    let start = handle.now();
    let before: Vec<Nanos> = busy(&handle);
    let done = Rc::new(RefCell::new(0));
    let fates = Rc::new(RefCell::new(Vec::new()));
    for set in 0..load.sets {
        let queue = Rc::new(RefCell::new(VecDeque::from(load.requests.clone())));
        for at in 0..load.connections {
            let connection = set * load.connections + at;
            let area = Area { room: longest * (1 + at as u64), longest };
            let mut worker = Worker {
                program: program.clone(),
                connection: Some(connection),
                set,
                start,
                area,
                application: load.application,
            };
            let (queue, done, fates) = (Rc::clone(&queue), Rc::clone(&done), Rc::clone(&fates));
            handle.spawn(async move {
                worker.work(&queue, &fates).await;
                *done.borrow_mut() += 1;
            });
        }
    }
    let workers = load.sets * load.connections;
    executor.run(handle.until(|_| (*done.borrow() == workers).then_some(())));
    let time = handle.now() - start;
    let after = busy(&handle);
    let spent = after.iter().zip(&before).map(|(after, before)| after - before);
    let busy = Component::ALL.into_iter().zip(spent).filter(|(_, time)| *time > 0).collect();
    let judge =
        |ended: Ended| (ended.request, handle.with(|server| ended.judge(&server.sets[ended.set].peer)));
    let transfers: Vec<(Request, Fate)> = fates.take().into_iter().map(judge).collect();
    let right = transfers.iter().filter(|(_, fate)| *fate == Fate::Right);
    let bytes = right.map(|(request, _)| request.length).sum();
    if !load.faults.is_empty() {
        (0..load.sets).for_each(|set| assert!(is_intact(&handle, set, longest), "a file was written to"));
    }
    let struck = handle.with(|server| faults.struck(&server.fabric));
    let missed = handle.with(|server| (0..load.sets).map(|set| server.missed(set)).sum());
    Ok(Attempt { measured: Measured { bytes, time, busy, missed }, transfers, struck })
}

/// Returns true if an SSD's files, which must not be written to, are unchanged.
fn is_intact(handle: &Handle, set: usize, length: u64) -> bool {
    handle.with(|server| {
        let mut bytes = vec![0; length as usize];
        server.sets[set].namespace.load(0, &mut bytes);
        server.pattern.is(0, &bytes)
    })
}

/// A transfer that has ended.
struct Ended {
    request: Request,
    set: usize,
    fate: Fate,
    /// The peer's end of a failed transfer's connection, and the bytes that may have arrived there.
    sent: Option<(usize, u64)>,
}

impl Ended {
    /// Returns its fate, once everything in transit has arrived.
    fn judge(&self, peer: &crate::peer::Peer) -> Fate {
        let stream = self.sent.map(|(stream, most)| (&peer.streams[stream], most));
        match stream {
            Some((stream, _)) if stream.wrong => Fate::Wrong("a transfer that failed delivered a wrong byte"),
            Some((stream, most)) if stream.received > most => {
                Fate::Wrong("a transfer that failed delivered more than it said")
            }
            _ => self.fate,
        }
    }
}

fn busy(handle: &Handle) -> Vec<Nanos> {
    handle.with(|server| Component::ALL.iter().map(|what| server.cpu.busy(*what)).collect())
}

struct Worker {
    program: Program,
    /// `None` if it has failed and there is no other.
    connection: Option<usize>,
    set: usize,
    start: Nanos,
    area: Area,
    application: bool,
}

impl Worker {
    async fn work(&mut self, queue: &RefCell<VecDeque<Request>>, fates: &RefCell<Vec<Ended>>) {
        let handle = self.program.host.handle.clone();
        let mut thread = handle.thread();
        let mut turn = 0;
        loop {
            let Some(request) = queue.borrow_mut().pop_front() else { return };
            handle.sleep_until(self.start + request.at).await;
            if self.application {
                let time = self.program.host.parameters.request;
                handle.work(thread, Component::Application, time).await;
            }
            turn += 1;
            let mut ended =
                Ended { request, set: self.set, fate: Fate::Failed(Failed::Unconnected), sent: None };
            if let Some(connection) = self.connection {
                (ended.fate, ended.sent) = match request.direction {
                    Direction::Send => {
                        // A random place, in whole pages.
                        let most = (self.area.longest - request.length) / 4096 + 1;
                        let position = (turn * 7919 + connection as u64) % most * 4096;
                        self.send(thread, connection, request, position).await
                    }
                    Direction::Receive => (self.receive(thread, connection, request).await, None),
                };
                if matches!(ended.fate, Fate::Failed(_)) {
                    // The peer has received a part: as a server would, reconnect.
                    self.connection = self.program.host.connect(self.set, LIMIT).await;
                    thread = handle.thread();
                }
            }
            fates.borrow_mut().push(ended);
        }
    }

    /// Returns the transfer's fate; after a failure, also the peer's stream, and the most bytes that may have arrived there.
    async fn send(
        &self,
        thread: ThreadId,
        connection: usize,
        request: Request,
        position: u64,
    ) -> (Fate, Option<(usize, u64)>) {
        let Request { length, operator, .. } = request;
        let handle = &self.program.host.handle;
        let before = handle.with(|server| {
            let stream = server.stream(connection);
            stream.expect(position, length);
            let changes = operator.filter(|operator| operator.digest_size() == 0);
            stream.undo(changes.map(|operator| {
                Context::new(operator, &crate::kernels::parameter(operator)).expect("the parameter is right")
            }));
            stream.received
        });
        let (job, mut delivered) = (Job { connection, position, length, operator }, 0);
        let program = async {
            let done = self.program.try_send(thread, job, &mut delivered).await?;
            let all = |server: &mut Server| {
                let broken = server.connections[connection].broken.map(Err);
                broken.or_else(|| (server.stream(connection).received >= before + length).then_some(Ok(())))
            };
            handle.until(all).await.map(|()| done)
        };
        match handle.within(LIMIT, program).await {
            Some(Ok(done)) => {
                let wrong = handle.with(|server| std::mem::take(&mut server.stream(connection).wrong));
                let digest = self.is_digest(operator, position, length, &done.digest);
                (fate(&[(!wrong, "the peer got a wrong byte"), (digest, "a digest is wrong")]), None)
            }
            ended => {
                // Without a report by the card, anything up to the length may arrive.
                let is_card = self.program.design == Design::Card;
                let said = if ended.is_none() && is_card { length } else { delivered };
                let failed = ended.and_then(Result::err).unwrap_or(Failed::Late);
                let stream = handle.with(|server| server.connections[connection].stream);
                (Fate::Failed(failed), Some((stream, before + said)))
            }
        }
    }

    async fn receive(&self, thread: ThreadId, connection: usize, request: Request) -> Fate {
        let Request { length, operator, .. } = request;
        let handle = &self.program.host.handle;
        let from = self.area.room + SHIFTED + handle.now() % 4096;
        handle.with(|server| server.stream(connection).send(from, length));
        let (job, mut delivered) = (Job { connection, position: self.area.room, length, operator }, 0);
        let done = handle.within(LIMIT, self.program.try_receive(thread, job, &mut delivered)).await;
        let right = handle.with(|server| {
            let mut bytes = vec![0; delivered as usize];
            server.sets[self.set].namespace.load(self.area.room, &mut bytes);
            server.pattern.is(from, &bytes)
        });
        let right = (right, "the SSD got a wrong byte");
        match done {
            Some(Ok(done)) => {
                let digest = self.is_digest(operator, from, length, &done.digest);
                fate(&[(delivered == length, "bytes are missing"), right, (digest, "a digest is wrong")])
            }
            ended => match fate(&[right]) {
                Fate::Right => Fate::Failed(ended.and_then(Result::err).unwrap_or(Failed::Late)),
                wrong => wrong,
            },
        }
    }

    /// Returns true if the digest is that of these bytes of the pattern, or there is none.
    fn is_digest(&self, operator: Option<Operator>, position: u64, length: u64, digest: &[u8]) -> bool {
        let Some(operator) = operator.filter(|operator| operator.digest_size() > 0) else { return true };
        let mut context = Context::new(operator, &[]).expect("a digest has no parameter");
        let handle = &self.program.host.handle;
        context.absorb(&handle.with(|server| server.pattern.bytes(position, length as usize)));
        digest == context.value().expect("a digest").as_bytes()
    }
}

/// Returns `Right`, or the first check that failed.
fn fate(checks: &[(bool, &'static str)]) -> Fate {
    checks.iter().find(|(right, _)| !right).map_or(Fate::Right, |(_, what)| Fate::Wrong(what))
}
