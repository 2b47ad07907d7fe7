//! A command from its fetch to its completion: pointer walk, data, medium, faults.

use std::time::Duration;

use dcs_drivers::bus::BusError;
use dcs_nvme::command::{self, Blocks, nvm};
use dcs_nvme::{Command, Completion, DataPointer, Status};

use super::pointer::{Next, Segment, Walk};
use super::queue::{Posted, SQE};
use super::{Nvme, Sgl, Wait, status};
use crate::device::Context;
use crate::fault::{Fault, Operation};

/// A command in progress.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) queue: u16,
    pub(super) command: Command,
    pub(super) fault: Option<Fault>,
    walk: Option<Walk>,
    segments: Vec<Segment>,
    pub(super) data: Vec<u8>,
    direction: Direction,
    /// Pieces of data being read from the host.
    arriving: usize,
    broken: bool,
}

/// Direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    None,
    ToHost,
    FromHost,
}

/// Result of the first check of a command.
pub(super) enum Action {
    /// The command is done.
    Done(Status, u32),
    /// Send these bytes to the host; then the command is done.
    Send(Vec<u8>),
    /// Move this many bytes between host and medium.
    Transfer(Direction, u64),
    /// Wait for the medium.
    Media(Duration),
    /// The command stays pending.
    Later,
}

impl From<Status> for Action {
    fn from(status: Status) -> Action {
        Action::Done(status, 0)
    }
}

/// Most entries fetched at once.
const BURST: usize = 8;

impl Nvme {
    /// Fetches entries of all queues that have some, as far as there is room for commands.
    pub(super) fn pump(&mut self, cx: &mut Context<'_>) {
        if !self.running() || !self.registers.enabled() {
            return;
        }
        let fetching = self.submission.values().filter(|queue| queue.fetching).count() * BURST;
        let mut room = self.config.outstanding.saturating_sub(self.tasks.len() + fetching);
        let numbers: Vec<u16> = self.submission.keys().copied().collect();
        for queue in numbers {
            let held = self.submission.get_mut(&queue).expect("it was there");
            let Some((address, count)) = held.next(room.min(BURST) as u32) else {
                continue;
            };
            held.fetching = true;
            room -= count as usize;
            self.dma_read(address, u64::from(count) * SQE, Wait::Entries { queue, count }, cx);
        }
    }

    pub(super) fn entries(
        &mut self,
        queue: u16,
        count: u32,
        data: Result<Vec<u8>, BusError>,
        cx: &mut Context<'_>,
    ) {
        let Some(held) = self.submission.get_mut(&queue) else { return };
        let Ok(data) = data else { return self.fatal() };
        held.fetched(count);
        let (entries, _) = data.as_chunks::<{ command::SIZE }>();
        for entry in entries {
            self.begin(queue, Command::from_bytes(entry), cx);
        }
        self.pump(cx);
    }

    fn begin(&mut self, queue: u16, command: Command, cx: &mut Context<'_>) {
        if self.hung.is_some() {
            return;
        }
        self.counts.commands += 1;
        let blocks = match command.opcode {
            nvm::READ | nvm::WRITE | nvm::WRITE_ZEROES if queue != 0 => {
                let Blocks { first, count, .. } = Blocks::from_words(&command.words);
                first..first.saturating_add(count.into())
            }
            _ => 0..0,
        };
        let fault = cx.strike(&Operation::Command { queue, opcode: command.opcode, blocks });
        match fault {
            Some(Fault::Hang) => return self.hung = Some(false),
            Some(Fault::HangHard) => return self.hung = Some(true),
            Some(Fault::LoseCommand) => return,
            _ => {}
        }
        self.next += 1;
        let task = self.next;
        let held = Task {
            queue,
            command,
            fault,
            walk: None,
            segments: Vec::new(),
            data: Vec::new(),
            direction: Direction::None,
            arriving: 0,
            broken: false,
        };
        self.tasks.insert(task, held);
        if fault == Some(Fault::StallCommand) {
            return;
        }
        let token = self.token(Wait::Started { task });
        cx.after(self.config.firmware, token);
    }

    pub(super) fn started(&mut self, task: u64, cx: &mut Context<'_>) {
        let Some(held) = self.tasks.get(&task) else { return };
        let (queue, command) = (held.queue, held.command);
        let outcome = match held.fault {
            Some(Fault::BadStatus(status)) => Action::Done(Status(status), 0),
            _ if command.fused != 0 => status::INVALID_FIELD.into(),
            _ if queue == 0 => self.admin(task, &command, cx),
            _ => self.io(&command),
        };
        match outcome {
            Action::Done(status, result) => self.finish(task, status, result, cx),
            Action::Send(bytes) => {
                let length = bytes.len() as u64;
                self.tasks.get_mut(&task).expect("it is there").data = bytes;
                self.walk(task, Direction::ToHost, length, cx);
            }
            Action::Transfer(direction, length) => self.walk(task, direction, length, cx),
            Action::Media(time) => self.media(task, time, 0, cx),
            Action::Later => {}
        }
    }

    fn walk(&mut self, task: u64, direction: Direction, length: u64, cx: &mut Context<'_>) {
        let page = self.registers.page();
        let held = self.tasks.get_mut(&task).expect("it is there");
        held.direction = direction;
        if held.data.is_empty() {
            held.data = vec![0; length as usize];
        }
        let admin = held.queue == 0;
        let dword = self.config.sgl == Sgl::DoubleWords;
        let begun = match held.command.data {
            DataPointer::Prp(first, second) => Walk::prp((first, second), length, page),
            DataPointer::Sgl(first) | DataPointer::SglWithMetadata(first)
                if !admin && self.config.sgl != Sgl::No =>
            {
                Walk::sgl(first, length, direction == Direction::FromHost, dword)
            }
            _ => Err(status::INVALID_FIELD),
        };
        match begun {
            Ok((walk, next)) => {
                held.walk = Some(walk);
                self.walked(task, next, cx);
            }
            Err(status) => self.finish(task, status, 0, cx),
        }
    }

    fn walked(&mut self, task: u64, next: Next, cx: &mut Context<'_>) {
        match next {
            Next::Fetch { address, length } => self.dma_read(address, length, Wait::List { task }, cx),
            Next::Done(segments) => {
                let held = self.tasks.get_mut(&task).expect("it is there");
                held.segments = segments;
                held.misdirect_data();
                self.mapped(task, cx);
            }
        }
    }

    pub(super) fn list(&mut self, task: u64, data: Result<Vec<u8>, BusError>, cx: &mut Context<'_>) {
        let Some(held) = self.tasks.get_mut(&task) else { return };
        let walk = held.walk.as_mut().expect("it walks");
        let next = data.map_err(|_| Status::DATA_TRANSFER_ERROR).and_then(|bytes| walk.feed(&bytes));
        match next {
            Ok(next) => self.walked(task, next, cx),
            Err(status) => self.finish(task, status, 0, cx),
        }
    }

    /// Continues once the places of the data are known.
    fn mapped(&mut self, task: u64, cx: &mut Context<'_>) {
        let held = &self.tasks[&task];
        let length = held.data.len() as u64;
        match held.direction {
            Direction::ToHost if held.queue == 0 => self.send(task, cx),
            Direction::ToHost => self.media(task, self.config.media.read, length, cx),
            _ => self.gather(task, cx),
        }
    }

    /// Reads a command's data from the host.
    fn gather(&mut self, task: u64, cx: &mut Context<'_>) {
        let held = self.tasks.get_mut(&task).expect("it is there");
        let segments = std::mem::take(&mut held.segments);
        held.arriving = segments.iter().filter(|segment| segment.address.is_some()).count();
        if held.arriving == 0 {
            return self.gathered(task, cx);
        }
        let mut at = 0;
        for Segment { address, length } in segments {
            if let Some(address) = address {
                self.dma_read(address, length, Wait::Data { task, at }, cx);
            }
            at += length as usize;
        }
    }

    pub(super) fn data(
        &mut self,
        task: u64,
        at: usize,
        data: Result<Vec<u8>, BusError>,
        cx: &mut Context<'_>,
    ) {
        let Some(held) = self.tasks.get_mut(&task) else { return };
        match data {
            Ok(bytes) => held.data[at..at + bytes.len()].copy_from_slice(&bytes),
            Err(_) => held.broken = true,
        }
        held.arriving -= 1;
        if held.arriving == 0 {
            self.gathered(task, cx);
        }
    }

    fn gathered(&mut self, task: u64, cx: &mut Context<'_>) {
        let held = &self.tasks[&task];
        let length = held.data.len() as u64;
        if held.broken {
            return self.finish(task, Status::DATA_TRANSFER_ERROR, 0, cx);
        }
        self.media(task, self.config.media.write, length, cx);
    }

    /// Starts work at the medium: `length` bytes at its rate, one command after the other, plus a latency that overlaps.
    fn media(&mut self, task: u64, latency: Duration, length: u64, cx: &mut Context<'_>) {
        let media = self.config.media;
        let moved = Duration::from_nanos(length * 1_000_000_000 / media.rate);
        self.media_free = self.media_free.max(cx.now()) + moved;
        let jitter = media.jitter.mul_f64(self.random.below(1024) as f64 / 1024.0);
        let token = self.token(Wait::Media { task });
        cx.after(self.media_free - cx.now() + latency + jitter, token);
    }

    pub(super) fn media_done(&mut self, task: u64, cx: &mut Context<'_>) {
        let Some(mut held) = self.tasks.remove(&task) else { return };
        self.execute(&mut held);
        let direction = held.direction;
        self.tasks.insert(task, held);
        match direction {
            Direction::ToHost => self.send(task, cx),
            _ => self.finish(task, Status::SUCCESS, 0, cx),
        }
    }

    /// Sends a command's data to the host, then completes it.
    fn send(&mut self, task: u64, cx: &mut Context<'_>) {
        let held = self.tasks.get_mut(&task).expect("it is there");
        held.corrupt();
        let (data, segments) = (std::mem::take(&mut held.data), std::mem::take(&mut held.segments));
        let mut rest = &data[..];
        for Segment { address, length } in segments {
            let (piece, left) = rest.split_at(length as usize);
            rest = left;
            if let Some(address) = address {
                self.dma_write(address, piece, cx);
            }
        }
        self.finish(task, Status::SUCCESS, 0, cx);
    }

    /// Completes a command.
    pub(super) fn finish(&mut self, task: u64, status: Status, result: u32, cx: &mut Context<'_>) {
        let Some(held) = self.tasks.remove(&task) else { return };
        if !status.is_success() {
            self.record(&held, status);
        }
        self.complete(held.queue, held.command.cid, status, result, held.fault, cx);
        self.pump(cx);
    }

    /// Writes a completion, subject to a fault.
    pub(super) fn complete(
        &mut self,
        queue: u16,
        cid: u16,
        status: Status,
        result: u32,
        fault: Option<Fault>,
        cx: &mut Context<'_>,
    ) {
        let Some(submission) = self.submission.get(&queue) else { return };
        let completion = submission.completion;
        let mut entry = Completion {
            result,
            result_high: 0,
            submission_head: submission.head as u16,
            submission_queue: queue,
            cid,
            phase: false,
            status,
        };
        match fault {
            Some(Fault::WrongCid(xor)) => entry.cid ^= xor,
            Some(Fault::WrongQueue(xor)) => entry.submission_queue ^= xor,
            Some(Fault::WrongHead(more)) => entry.submission_head = entry.submission_head.wrapping_add(more),
            Some(Fault::FalseStatus(status)) => entry.status = Status(status),
            _ => {}
        }
        let posted = Posted { entry, wrong_phase: fault == Some(Fault::WrongPhase) };
        match fault {
            Some(Fault::DropCompletion) => {}
            Some(Fault::DelayCompletion(time)) => {
                let token = self.token(Wait::Held { completion, posted });
                cx.after(time, token);
            }
            Some(Fault::DuplicateCompletion) => {
                self.post(completion, posted, cx);
                self.post(completion, posted, cx);
            }
            _ => self.post(completion, posted, cx),
        }
    }

    /// Queues a completion, and writes those for which there is room.
    pub(super) fn post(&mut self, completion: u16, posted: Posted, cx: &mut Context<'_>) {
        if let Some(queue) = self.completion.get_mut(&completion) {
            queue.waiting.push_back(posted);
            self.drain(completion, cx);
        }
    }

    pub(super) fn drain(&mut self, completion: u16, cx: &mut Context<'_>) {
        let Some(queue) = self.completion.get_mut(&completion) else { return };
        let vector = queue.vector;
        let mut written = Vec::new();
        while let Some((address, phase, posted)) = queue.next() {
            let entry = Completion { phase: phase != posted.wrong_phase, ..posted.entry };
            written.push((address, entry.bytes()));
        }
        let any = !written.is_empty();
        for (address, entry) in written {
            self.dma_write(address, &entry, cx);
        }
        if let Some(vector) = vector.filter(|_| any) {
            self.interrupt(vector, cx);
        }
    }
}

impl Task {
    /// Applies faults to the places of the data.
    fn misdirect_data(&mut self) {
        match self.fault {
            Some(Fault::ShortDma(missing)) => {
                let mut left = (self.data.len() as u64).saturating_sub(missing);
                for segment in &mut self.segments {
                    let keep = segment.length.min(left);
                    left -= keep;
                    segment.length = keep;
                }
                self.segments.retain(|segment| segment.length > 0);
            }
            Some(Fault::MisdirectedDma(offset)) => {
                for address in self.segments.iter_mut().filter_map(|segment| segment.address.as_mut()) {
                    *address = address.wrapping_add(offset);
                }
            }
            _ => {}
        }
    }

    /// Corrupts a bit of the data, if the fault says so.
    pub(super) fn corrupt(&mut self) {
        if let (Some(Fault::CorruptDma), Some(byte)) = (self.fault, self.data.first_mut()) {
            *byte ^= 1;
        }
    }
}
