//! Many transfers: arrivals, connections, and what came of it. Every byte and every digest is checked.

use crate::cpu::Component;
use crate::design::{Design, Job, Program, bring_up, build};
use crate::executor::Handle;
use crate::host::Waiting;
use crate::parameters::Parameters;
use crate::server::Build;
use dcs_abi::operator::Operator;
use dcs_engine::Nanos;
use dcs_fabric::Rate;
use dcs_ndp::Context;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What the peer sends is the pattern, so much further on than what the SSD has at that place.
const SHIFTED: u64 = 777;

/// The direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the SSD to the peer.
    Send,
    /// From the peer to the SSD.
    Receive,
}

/// A transfer that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When, since the start. It waits for a connection where there is none.
    pub at: Nanos,
    /// The direction.
    pub direction: Direction,
    /// Bytes.
    pub length: u64,
    /// The operator that they go through.
    pub operator: Option<Operator>,
}

/// The design and its load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The design.
    pub design: Design,
    /// The way in which its software waits.
    pub waiting: Waiting,
    /// Figures.
    pub parameters: Parameters,
    /// SSDs and NICs.
    pub sets: usize,
    /// Connections to each NIC, each with a thread.
    pub connections: usize,
    /// Who does nothing but keep cores busy.
    pub spinners: usize,
    /// Who does nothing but keep memory busy.
    pub memory_contenders: u64,
    /// What a request costs besides its data is charged.
    pub application: bool,
    /// Requests of each set, in the order of their arrival.
    pub requests: Vec<Request>,
    /// Links as fast as there are (PCIe 3.0 x16), not those of the prototypes.
    pub fast_links: bool,
}

impl Load {
    /// One set, one connection, interrupts, nobody beside.
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
        }
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Bytes that were moved.
    pub bytes: u64,
    /// From the start to the last byte's arrival.
    pub time: Nanos,
    /// The work that cores were busy with.
    pub busy: Vec<(Component, Nanos)>,
}

impl Measured {
    /// Gigabits a second.
    pub fn gbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time as f64
    }

    /// Cores that the transfers keep busy.
    pub fn cores(&self) -> f64 {
        self.software() as f64 / self.time as f64
    }

    /// CPU seconds for each GiB.
    pub fn cpu_s_per_gib(&self) -> f64 {
        self.software() as f64 / 1e9 / (self.bytes as f64 / (1u64 << 30) as f64)
    }

    fn software(&self) -> Nanos {
        self.busy.iter().filter(|(what, _)| *what != Component::Spinner).map(|(_, time)| time).sum()
    }
}

/// A connection's place on its SSD: files to read below, room to write above.
#[derive(Clone, Copy)]
struct Area {
    room: u64,
    longest: u64,
}

/// Does it.
///
/// # Panics
///
/// If a byte or a digest is wrong, or nothing moves any more.
pub fn run(load: &Load) -> Measured {
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
    // A copy reads and writes.
    program.host.copy_ps = program.host.copy_ps.max(if load.memory_contenders > 0 { 2 * memory } else { 0 });
    let handle = executor.handle();
    handle.with(|server| (0..load.spinners).for_each(|_| server.cpu.spinner()));
    // They have been there for long.
    executor.run(handle.sleep_until(handle.now() + 300_000_000));
    let start = handle.now();
    let before: Vec<Nanos> = busy(&handle);
    let done = Rc::new(RefCell::new(0));
    for set in 0..load.sets {
        let queue = Rc::new(RefCell::new(VecDeque::from(load.requests.clone())));
        for at in 0..load.connections {
            let connection = set * load.connections + at;
            let area = Area { room: longest * (1 + at as u64), longest };
            let worker = Worker {
                program: program.clone(),
                connection,
                set,
                start,
                area,
                application: load.application,
            };
            let (queue, done) = (Rc::clone(&queue), Rc::clone(&done));
            handle.spawn(async move {
                worker.work(&queue).await;
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
    let bytes = load.requests.iter().map(|request| request.length).sum::<u64>() * load.sets as u64;
    Measured { bytes, time, busy }
}

fn busy(handle: &Handle) -> Vec<Nanos> {
    handle.with(|server| Component::ALL.iter().map(|what| server.cpu.busy(*what)).collect())
}

struct Worker {
    program: Program,
    connection: usize,
    set: usize,
    start: Nanos,
    area: Area,
    application: bool,
}

impl Worker {
    async fn work(&self, queue: &RefCell<VecDeque<Request>>) {
        let handle = self.program.host.handle.clone();
        let thread = handle.thread();
        let mut turn = 0;
        loop {
            let Some(request) = queue.borrow_mut().pop_front() else { return };
            handle.sleep_until(self.start + request.at).await;
            if self.application {
                let time = self.program.host.parameters.request;
                handle.work(thread, Component::Application, time).await;
            }
            turn += 1;
            match request.direction {
                Direction::Send => {
                    // Somewhere, in whole pages.
                    let most = (self.area.longest - request.length) / 4096 + 1;
                    self.send(thread, request, (turn * 7919 + self.connection as u64) % most * 4096).await;
                }
                Direction::Receive => self.receive(thread, request).await,
            }
        }
    }

    async fn send(&self, thread: crate::cpu::ThreadId, request: Request, position: u64) {
        let Request { length, operator, .. } = request;
        let handle = &self.program.host.handle;
        let target = handle.with(|server| {
            let stream = server.stream(self.connection);
            stream.expect(position, length);
            let changes = operator.filter(|operator| operator.digest_size() == 0);
            stream.undo(changes.map(|operator| {
                Context::new(operator, &crate::kernels::parameter(operator)).expect("the parameter is right")
            }));
            stream.received + length
        });
        let job = Job { connection: self.connection, position, length, operator };
        let done = self.program.send(thread, job).await;
        handle.until(|server| (server.stream(self.connection).received >= target).then_some(())).await;
        assert!(!handle.with(|server| server.stream(self.connection).wrong), "the peer got a wrong byte");
        self.check_digest(operator, position, length, &done.digest);
    }

    async fn receive(&self, thread: crate::cpu::ThreadId, request: Request) {
        let Request { length, operator, .. } = request;
        let handle = &self.program.host.handle;
        let from = self.area.room + SHIFTED + handle.now() % 4096;
        handle.with(|server| server.stream(self.connection).send(from, length));
        let job = Job { connection: self.connection, position: self.area.room, length, operator };
        let done = self.program.receive(thread, job).await;
        let right = handle.with(|server| {
            let mut bytes = vec![0; length as usize];
            server.sets[self.set].namespace.load(self.area.room, &mut bytes);
            server.pattern.is(from, &bytes)
        });
        assert!(right, "the SSD got a wrong byte");
        self.check_digest(operator, from, length, &done.digest);
    }

    fn check_digest(&self, operator: Option<Operator>, position: u64, length: u64, digest: &[u8]) {
        let Some(operator) = operator.filter(|operator| operator.digest_size() > 0) else { return };
        let mut context = Context::new(operator, &[]).expect("a digest has no parameter");
        let handle = &self.program.host.handle;
        context.absorb(&handle.with(|server| server.pattern.bytes(position, length as usize)));
        let expected = context.value().expect("a digest");
        assert_eq!(digest, expected.as_bytes(), "{} of {length} bytes", operator.name());
    }
}
