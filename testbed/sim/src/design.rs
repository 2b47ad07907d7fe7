//! The designs that the papers compare: which part controls the devices, and the data path.
//!
//! | design | control | data |
//! |---|---|---|
//! | host-centric | the kernel's stacks; `sendfile`, or `read`, operator and `write` | host memory, with copies where there is an operator |
//! | software-optimised | user-space NVMe and NIC drivers and TCP | host memory; operators on the GPU, copied there and back, or on the processor |
//! | software-controlled P2P | the same | SSD to GPU to NIC, where both ends allow it; else host memory |
//! | integrated device | one function that has an SSD and a NIC, and one command | within it |
//! | card | one command to the card | the card's memory; operators on its units |
//!
//! SSD and NIC have no memory that others may use, so peer-to-peer needs a third device (dissertation, 3.5.1): without an
//! operator the two software designs are the same.

use crate::card::End;
use crate::cpu::ThreadId;
use crate::executor::Executor;
use crate::failed::Failed;
use crate::host::{Buffer, Host, OnDisk, OnGpu, Stack, Waiting};
use crate::integrated::Command;
use crate::parameters::Parameters;
use crate::server::{Build, Server};
use dcs_abi::operator::Operator;
use dcs_abi::result::STAGE_DESTINATION;
use dcs_drivers::bus::Window;
use dcs_engine::Nanos;
use dcs_ndp::Context;
use std::collections::VecDeque;

/// Reads ahead of sending; receives ahead of writing.
const AHEAD: usize = 4;
/// Bytes of a piece in user space: the same as a block of the card.
const PIECE: u64 = 64 << 10;
/// Buffers for each connection.
const BUFFERS: usize = 16;

/// A design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// The kernel does the work.
    HostCentric,
    /// User space does the work, with a GPU or the processor for operators.
    Software {
        /// True if operators run on the GPU.
        gpu: bool,
    },
    /// User space does the work, and data move between devices directly.
    PeerToPeer,
    /// A device that includes both SSD and NIC.
    Integrated,
    /// The card does the work.
    Card,
}

impl Design {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Design::HostCentric => "host-centric",
            Design::Software { gpu: false } => "software-optimised, CPU",
            Design::Software { gpu: true } => "software-optimised",
            Design::PeerToPeer => "software-controlled P2P",
            Design::Integrated => "integrated device",
            Design::Card => "card",
        }
    }
}

/// A transfer.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Number of the connection.
    pub connection: usize,
    /// Position on the SSD of the connection's set.
    pub position: u64,
    /// Length in bytes.
    pub length: u64,
    /// Operator that the data pass.
    pub operator: Option<Operator>,
}

/// Outcome of a transfer.
#[derive(Clone, Debug)]
pub struct Done {
    /// Digest, if there is one.
    pub digest: Vec<u8>,
    /// Time at which the last piece was given to the NIC; for the card, the first one.
    pub sent: Nanos,
}

/// A design running on a server.
#[derive(Clone)]
pub struct Program {
    /// The host's software.
    pub host: Host,
    /// The design.
    pub design: Design,
}

/// Returns the parts of a server for a design.
pub fn build(design: Design, parameters: Parameters) -> Build {
    let host_drives = !matches!(design, Design::Card | Design::Integrated);
    let gpu = matches!(design, Design::Software { gpu: true } | Design::PeerToPeer);
    Build { parameters, gpu, integrated: design == Design::Integrated, ..Build::new(host_drives) }
}

/// Starts a server with its programs, and `connections` connections on each set.
pub fn bring_up(design: Design, build: Build, waiting: Waiting, connections: usize) -> (Executor, Program) {
    let sets = build.sets;
    let mut server = Server::new(build);
    for set in 0..sets {
        (0..connections).for_each(|_| _ = server.connect(set));
    }
    server.start();
    let executor = Executor::new(server);
    let stack = if design == Design::HostCentric { Stack::Kernel } else { Stack::User };
    let piece = piece(stack);
    let on_gpu = design == Design::PeerToPeer;
    let count =
        if matches!(design, Design::Card | Design::Integrated) { 0 } else { BUFFERS * connections * sets };
    let host = Host::new(&executor.handle(), stack, waiting, (count, piece), on_gpu);
    (executor, Program { host, design })
}

fn piece(stack: Stack) -> u64 {
    match stack {
        Stack::Kernel => 128 << 10,
        Stack::User => PIECE,
    }
}

/// Commands in progress at an SSD, in order, each with its bytes.
type OnDisks = VecDeque<(OnDisk, u64)>;

/// A piece in an operator.
struct Processing {
    run: Option<OnGpu>,
    buffer: Buffer,
    length: u64,
}

impl Program {
    /// Sends from the SSD to the peer.
    ///
    /// # Panics
    ///
    /// If the transfer fails, or an integrated device is to run an operator.
    pub async fn send(&self, thread: ThreadId, job: Job) -> Done {
        let sent = self.try_send(thread, job, &mut 0).await;
        sent.unwrap_or_else(|failed| panic!("a transfer failed: {failed}"))
    }

    /// Receives from the peer to the SSD.
    ///
    /// # Panics
    ///
    /// If the transfer fails, or the design is an integrated device, which cannot receive.
    pub async fn receive(&self, thread: ThreadId, job: Job) -> Done {
        let received = self.try_receive(thread, job, &mut 0).await;
        received.unwrap_or_else(|failed| panic!("a transfer failed: {failed}"))
    }

    /// Like [`Program::send`], but returns failures. `delivered` is set to the number of bytes given to the connection, counted
    /// from the start.
    pub async fn try_send(&self, thread: ThreadId, job: Job, delivered: &mut u64) -> Result<Done, Failed> {
        let (set, handle) = self.ends(job.connection);
        match self.design {
            Design::Card => {
                let ends = (End::Ssd(set, job.position), End::Flow(handle));
                return self.by_card(thread, ends, job, delivered).await;
            }
            Design::Integrated => {
                assert!(job.operator.is_none(), "an integrated device has no operators");
                let Job { position, length, .. } = job;
                let command = Command { connection: handle.into(), position, length, completion: (0, 0) };
                let sent = self.host.by_integrated(thread, set, command).await;
                return Ok(Done { digest: Vec::new(), sent });
            }
            _ => {}
        }
        let mut operator = Stream::new(self, job.operator);
        let (mut reading, mut processing) = (VecDeque::new(), VecDeque::new());
        let under_way = (&mut reading, &mut processing);
        let outcome = self.send_pieces(thread, (job, set), &mut operator, under_way, delivered).await;
        // After a failure, commands in progress end before their buffers are reused.
        for (command, _) in reading {
            if let Ok(buffer) = self.host.disk_done(thread, command).await {
                self.host.give_back(buffer);
            }
        }
        for Processing { run, buffer, .. } in processing {
            operator.end(thread, run).await;
            self.host.give_back(buffer);
        }
        outcome.map(|()| Done { digest: std::mem::take(&mut operator.digest), sent: self.host.handle.now() })
    }

    async fn send_pieces(
        &self,
        thread: ThreadId,
        (job, set): (Job, usize),
        operator: &mut Stream<'_>,
        // Pieces in an operator, in order: one more than is waited for, so that the GPU always has work.
        (reading, processing): (&mut OnDisks, &mut VecDeque<Processing>),
        delivered: &mut u64,
    ) -> Result<(), Failed> {
        let piece = piece(self.host.stack);
        let on_gpu = self.design == Design::PeerToPeer && job.operator.is_some();
        let (mut asked, mut read) = (0, 0);
        while read < job.length {
            while asked < job.length && reading.len() < AHEAD {
                let length = piece.min(job.length - asked);
                let buffer = self.host.buffer(thread, on_gpu).await;
                let from = (set, job.position + asked);
                reading.push_back((self.host.read_disk(thread, from, (buffer, length)).await?, length));
                asked += length;
            }
            let Some((command, length)) = reading.pop_front() else { break };
            let buffer = self.host.disk_done(thread, command).await?;
            read += length;
            let run = operator.begin(thread, buffer, length, read == job.length).await;
            processing.push_back(Processing { run, buffer, length });
            let runs = if read == job.length || job.operator.is_none() { 0 } else { 1 };
            while processing.len() > runs
                && let Some(Processing { run, buffer, length }) = processing.pop_front()
            {
                operator.end(thread, run).await;
                self.host.send(thread, job.connection, buffer, length).await?;
                *delivered += length;
            }
        }
        Ok(())
    }

    /// Like [`Program::receive`], but returns failures. `delivered` is set to the number of bytes written, counted from the start.
    pub async fn try_receive(&self, thread: ThreadId, job: Job, delivered: &mut u64) -> Result<Done, Failed> {
        let (set, handle) = self.ends(job.connection);
        if self.design == Design::Card {
            let ends = (End::Flow(handle), End::Ssd(set, job.position));
            return self.by_card(thread, ends, job, delivered).await;
        }
        assert!(self.design != Design::Integrated, "an integrated device receives nothing");
        let mut operator = Stream::new(self, job.operator);
        let (mut coming, mut writing) = (VecDeque::new(), VecDeque::new());
        let under_way = (&mut coming, &mut writing);
        let outcome = self.receive_pieces(thread, (job, set), &mut operator, under_way, delivered).await;
        // After a failure, commands in progress end before their buffers are reused.
        for (number, buffer) in coming {
            let _ = self.host.received(thread, job.connection, number).await;
            self.host.give_back(buffer);
        }
        for (command, _) in writing {
            if let Ok(buffer) = self.host.disk_done(thread, command).await {
                self.host.give_back(buffer);
            }
        }
        outcome.map(|()| Done { digest: std::mem::take(&mut operator.digest), sent: self.host.handle.now() })
    }

    async fn receive_pieces(
        &self,
        thread: ThreadId,
        (job, set): (Job, usize),
        operator: &mut Stream<'_>,
        (coming, writing): (&mut VecDeque<(u64, Buffer)>, &mut OnDisks),
        delivered: &mut u64,
    ) -> Result<(), Failed> {
        let piece = piece(self.host.stack);
        let (mut asked, mut come) = (0, 0);
        while come < job.length {
            while asked < job.length && coming.len() < AHEAD {
                let length = piece.min(job.length - asked);
                let buffer = self.host.buffer(thread, false).await;
                coming.push_back((self.host.receive(job.connection, buffer, length), buffer));
                asked += length;
            }
            let Some((number, buffer)) = coming.pop_front() else { break };
            let length = match self.host.received(thread, job.connection, number).await {
                Ok(length) => length,
                Err(failed) => {
                    self.host.give_back(buffer);
                    return Err(failed);
                }
            };
            // Packet gathering: from receive buffers to one place. In the kernel that is the copy to user space.
            self.host.copy(thread, length).await;
            come += length;
            let run = operator.begin(thread, buffer, length, come == job.length).await;
            operator.end(thread, run).await;
            if self.host.stack == Stack::Kernel {
                self.host.copy(thread, length).await;
            }
            let to = (set, job.position + come - length);
            writing.push_back((self.host.write_disk(thread, to, (buffer, length)).await?, length));
            if writing.len() >= AHEAD {
                self.written(thread, writing, delivered).await?;
            }
        }
        while !writing.is_empty() {
            self.written(thread, writing, delivered).await?;
        }
        Ok(())
    }

    async fn written(
        &self,
        thread: ThreadId,
        writing: &mut OnDisks,
        delivered: &mut u64,
    ) -> Result<(), Failed> {
        if let Some((command, length)) = writing.pop_front() {
            let buffer = self.host.disk_done(thread, command).await?;
            self.host.give_back(buffer);
            *delivered += length;
        }
        Ok(())
    }

    fn ends(&self, connection: usize) -> (usize, u32) {
        self.host.handle.with(|server| {
            let found = server.connections[connection];
            (found.set, found.handle)
        })
    }

    async fn by_card(
        &self,
        thread: ThreadId,
        ends: (End, End),
        job: Job,
        delivered: &mut u64,
    ) -> Result<Done, Failed> {
        let outcome = self.host.by_card(thread, ends, job.length, job.operator).await;
        let result = outcome.map_err(|(failed, bytes)| {
            *delivered = bytes;
            failed
        })?;
        *delivered = job.length;
        let slot = &result.digests[0];
        let sent = result.stages[STAGE_DESTINATION].first_issue;
        Ok(Done { digest: slot.value[..usize::from(slot.size)].to_vec(), sent })
    }
}

/// The operator of one transfer, applied piece by piece.
struct Stream<'a> {
    program: &'a Program,
    operator: Option<Operator>,
    /// State of an operator on the processor.
    context: Option<Context>,
    /// Number of the stream on the GPU.
    number: u64,
    /// Its pair of slots on the GPU.
    slot: u64,
    turn: u64,
    digest: Vec<u8>,
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.program.host.handle.with(|server| server.free_slots.push(self.slot));
    }
}

impl Stream<'_> {
    fn new(program: &Program, operator: Option<Operator>) -> Stream<'_> {
        let on_cpu = matches!(program.design, Design::HostCentric | Design::Software { gpu: false });
        let context = operator.filter(|_| on_cpu).map(|operator| {
            Context::new(operator, &crate::kernels::parameter(operator)).expect("the parameter is right")
        });
        let (number, slot) = program
            .host
            .handle
            .with(|server| (server.number(), server.free_slots.pop().expect("fewer transfers than places")));
        Stream { program, operator, context, number, slot, turn: 0, digest: Vec::new() }
    }

    /// Passes a piece through the operator. On the processor the work is then done.
    async fn begin(&mut self, thread: ThreadId, buffer: Buffer, length: u64, last: bool) -> Option<OnGpu> {
        let operator = self.operator?;
        let host = &self.program.host;
        let data = Window { address: buffer.address, length };
        if let Some(context) = &mut self.context {
            // read() copies to user space, and send() copies back: sendfile() has no operators.
            let copies = if host.stack == Stack::Kernel { 2 } else { 0 };
            host.copy(thread, copies * length).await;
            host.process(thread, context, data, last).await;
            self.digest = context.value().map(|value| value.as_bytes().to_vec()).unwrap_or_default();
            return None;
        }
        self.turn += 1;
        // At most two runs of a stream are in progress.
        let slot = self.slot * 2 + self.turn % 2;
        let base = host.handle.with(|server| server.gpu.map(|gpu| server.fabric.bar(gpu, 1).address))?;
        let (place, from) = match buffer.on_gpu {
            true => (Window { address: buffer.address - base, length }, None),
            // Staged in the upper half of the GPU's memory.
            false => (Window { address: (128 << 20) + slot * PIECE, length }, Some(buffer.address)),
        };
        Some(host.begin_on_gpu(thread, operator, (self.number, slot, last), (place, from)).await)
    }

    /// Waits for a piece on the GPU.
    async fn end(&mut self, thread: ThreadId, run: Option<OnGpu>) {
        if let Some(run) = run {
            self.digest = self.program.host.end_on_gpu(thread, run).await;
        }
    }
}
