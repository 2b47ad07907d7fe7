//! Commands of the admin queue [NVMe 1.4, 5].

use super::queue::{CompletionQueue, SubmissionQueue};
use super::spec::{Command, Status, admin};
use super::task::{Outcome, Task};
use super::{Nvme, Wait, identify};
use crate::device::Context;

/// Features that are kept and given back, and their defaults [NVMe 1.4, 5.21.1].
const KEPT: [(u8, u32); 8] =
    [(0x01, 0), (0x02, 0), (0x04, 343), (0x05, 0), (0x08, 0), (0x09, 0), (0x0a, 0), (0x0b, 0)];
const CACHE: u8 = 0x06;
const QUEUES: u8 = 0x07;

impl Nvme {
    pub(super) fn admin(&mut self, task: u64, command: &Command, cx: &mut Context<'_>) -> Outcome {
        let done = |result: Result<u32, Status>| match result {
            Ok(value) => Outcome::Done(Status::SUCCESS, value),
            Err(status) => Outcome::Done(status, 0),
        };
        // Admin commands use PRP entries [NVMe 1.4, 4.2].
        if command.psdt != 0 {
            return Status::INVALID_FIELD.into();
        }
        match command.opcode {
            admin::CREATE_CQ => done(self.create_cq(command)),
            admin::CREATE_SQ => done(self.create_sq(command)),
            admin::DELETE_CQ => done(self.delete_cq(command.dword(10) as u16)),
            admin::DELETE_SQ => done(self.delete_sq(command.dword(10) as u16, cx)),
            admin::IDENTIFY => self.identify(command).map_or_else(Into::into, Outcome::Send),
            admin::GET_LOG_PAGE => self.log(command).map_or_else(Into::into, Outcome::Send),
            admin::ABORT => done(Ok(self.abort(task, command.dword(10), cx))),
            admin::SET_FEATURES => done(self.set_feature(command)),
            admin::GET_FEATURES => done(self.get_feature(command)),
            admin::ASYNC_EVENT => self.event_request(task, command.cid, cx),
            _ => Status::INVALID_OPCODE.into(),
        }
    }

    /// What the creation of both kinds of queue checks: identifier, size and base address.
    fn new_queue(&self, command: &Command, taken: bool) -> Result<(u16, u32), Status> {
        let (queue, size) = (command.dword(10) as u16, (command.dword(10) >> 16) + 1);
        if queue == 0 || queue > self.config.queues || taken {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if size < 2 || size > self.config.entries {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        // CAP.CQR: queues are physically contiguous. CC must name the sizes of entries before queues are made.
        if command.dword(11) & 1 == 0 || !self.registers.entry_sizes() {
            return Err(Status::INVALID_FIELD);
        }
        if !command.prp1().is_multiple_of(self.registers.page()) {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        Ok((queue, size))
    }

    fn create_cq(&mut self, command: &Command) -> Result<u32, Status> {
        let taken = self.completion.contains_key(&(command.dword(10) as u16));
        let (queue, size) = self.new_queue(command, taken)?;
        let vector = (command.dword(11) >> 16) as u16;
        if vector > self.config.queues {
            return Err(Status::INVALID_VECTOR);
        }
        let enabled = command.dword(11) & 2 != 0;
        let created = CompletionQueue::new(command.prp1(), size, enabled.then_some(vector));
        self.completion.insert(queue, created);
        Ok(0)
    }

    fn create_sq(&mut self, command: &Command) -> Result<u32, Status> {
        let completion = (command.dword(11) >> 16) as u16;
        if completion == 0 || completion > self.config.queues {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if !self.completion.contains_key(&completion) {
            return Err(Status::INVALID_CQ);
        }
        let taken = self.submission.contains_key(&(command.dword(10) as u16));
        let (queue, size) = self.new_queue(command, taken)?;
        self.submission.insert(queue, SubmissionQueue::new(command.prp1(), size, completion));
        Ok(0)
    }

    fn delete_cq(&mut self, queue: u16) -> Result<u32, Status> {
        if queue == 0 || !self.completion.contains_key(&queue) {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if self.submission.values().any(|submission| submission.completion == queue) {
            return Err(Status::INVALID_DELETION);
        }
        self.completion.remove(&queue);
        // What is late for it is not for another one of its number.
        self.waits.retain(|_, wait| !matches!(wait, Wait::Held { completion, .. } if *completion == queue));
        Ok(0)
    }

    /// Its commands end before it does.
    fn delete_sq(&mut self, queue: u16, cx: &mut Context<'_>) -> Result<u32, Status> {
        if queue == 0 || !self.submission.contains_key(&queue) {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let of_queue = self.tasks.iter().filter(|(_, held)| held.queue == queue);
        let ending: Vec<u64> = of_queue.map(|(task, _)| *task).collect();
        for task in ending {
            let held = self.tasks.remove(&task).expect("it was there");
            self.complete(queue, held.command.cid, Status::SQ_DELETED, 0, held.fault, cx);
        }
        self.submission.remove(&queue);
        self.waits.retain(|_, wait| !matches!(wait, Wait::Entries { queue: of, .. } if *of == queue));
        Ok(0)
    }

    /// Zero where the command was found and ended, else one [NVMe 1.4, 5.1].
    fn abort(&mut self, itself: u64, which: u32, cx: &mut Context<'_>) -> u32 {
        let (queue, cid) = (which as u16, (which >> 16) as u16);
        if queue == 0 {
            let asked = self.event_requests.iter().position(|request| *request == cid);
            if let Some(at) = asked {
                self.event_requests.remove(at);
                self.complete(0, cid, Status::ABORT_REQUESTED, 0, None, cx);
                return 0;
            }
        }
        let found = self
            .tasks
            .iter()
            .find(|(task, held)| **task != itself && held.queue == queue && held.command.cid == cid);
        let Some(task) = found.map(|(task, _)| *task) else { return 1 };
        self.finish(task, Status::ABORT_REQUESTED, 0, cx);
        0
    }

    fn identify(&self, command: &Command) -> Result<Vec<u8>, Status> {
        let (nsid, count) = (command.nsid, self.config.namespaces.len());
        let exists = nsid >= 1 && nsid as usize <= count;
        match command.dword(10) as u8 {
            0x00 if exists => Ok(identify::namespace(self.config.namespaces.get(nsid as usize - 1))),
            0x01 => Ok(identify::controller(&self.config)),
            0x02 if nsid >= 0xffff_fffe => Err(Status::INVALID_NAMESPACE),
            0x02 => Ok(identify::list(count, nsid)),
            0x03 if exists => Ok(identify::descriptors(&self.config, nsid)),
            0x00 | 0x03 => Err(Status::INVALID_NAMESPACE),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn log(&mut self, command: &Command) -> Result<Vec<u8>, Status> {
        let (first, second) = (command.dword(10), command.dword(11));
        let length = (u64::from(first >> 16 | (second & 0xffff) << 16) + 1) * 4;
        let offset = u64::from(command.dword(13)) << 32 | u64::from(command.dword(12));
        let page = match first as u8 {
            1 => {
                let mut page: Vec<u8> = self.errors.iter().flatten().copied().collect();
                page.resize(64 * identify::ERRORS, 0);
                page
            }
            2 => {
                let shift = self.config.namespaces.first().map_or(9, |namespace| namespace.shift());
                identify::health(&self.counts, self.error_count, shift)
            }
            3 => identify::firmware(),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        // Beyond its end a log page reads as zeros, up to a size that nobody needs.
        if offset % 4 != 0 || offset > page.len() as u64 || length > 1 << 20 {
            return Err(Status::INVALID_FIELD);
        }
        let retain = first & 1 << 15 != 0;
        if first as u8 == 1 && !retain {
            self.masked[0] = false;
        }
        let mut data = page[offset as usize..].to_vec();
        data.resize(length as usize, 0);
        Ok(data)
    }

    fn set_feature(&mut self, command: &Command) -> Result<u32, Status> {
        let (feature, value) = (command.dword(10) as u8, command.dword(11));
        let known = KEPT.iter().any(|(kept, _)| *kept == feature);
        match feature {
            _ if command.dword(10) & 1 << 31 != 0 => Err(Status::NOT_SAVEABLE),
            QUEUES => {
                if self.submission.len() + self.completion.len() > 2 {
                    return Err(Status::SEQUENCE_ERROR);
                }
                if value as u16 == u16::MAX || value >> 16 == 0xffff {
                    return Err(Status::INVALID_FIELD);
                }
                Ok(self.queue_count())
            }
            CACHE if self.config.cache => {
                self.features.insert(feature, value & 1);
                if value & 1 == 0 {
                    self.flush(u32::MAX);
                }
                Ok(0)
            }
            _ if known => {
                self.features.insert(feature, value);
                Ok(0)
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Whether there is a volatile cache, and it is on.
    pub(super) fn caches(&self) -> bool {
        self.config.cache && self.features.get(&CACHE) != Some(&0)
    }

    fn get_feature(&mut self, command: &Command) -> Result<u32, Status> {
        let (feature, select) = (command.dword(10) as u8, (command.dword(10) >> 8) & 7);
        let default = match feature {
            QUEUES => self.queue_count(),
            CACHE if self.config.cache => 1,
            _ => KEPT.iter().find(|(kept, _)| *kept == feature).ok_or(Status::INVALID_FIELD)?.1,
        };
        match select {
            0 => Ok(self.features.get(&feature).copied().unwrap_or(default)),
            1 | 2 => Ok(default),
            // Changeable.
            3 => Ok(1 << 2),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// All that there are, whatever was asked for: both counts from zero.
    fn queue_count(&self) -> u32 {
        let count = u32::from(self.config.queues) - 1;
        count << 16 | count
    }

    /// An asynchronous event request is kept until there is an event.
    fn event_request(&mut self, task: u64, cid: u16, cx: &mut Context<'_>) -> Outcome {
        if self.event_requests.len() == self.config.async_events {
            return Status::AER_LIMIT.into();
        }
        self.tasks.remove(&task);
        self.event_requests.push_back(cid);
        self.tell_events(cx);
        Outcome::Later
    }

    /// An event of type `kind`: no further ones of the type until its log page has been read [NVMe 1.4, 5.2].
    pub(super) fn event(&mut self, kind: u8, information: u8, cx: &mut Context<'_>) {
        if std::mem::replace(&mut self.masked[usize::from(kind)], true) {
            return;
        }
        // Errors are in log page 1, and so on.
        let page = u32::from(kind) + 1;
        self.events.push_back(page << 16 | u32::from(information) << 8 | u32::from(kind));
        self.tell_events(cx);
    }

    fn tell_events(&mut self, cx: &mut Context<'_>) {
        while !self.events.is_empty() && !self.event_requests.is_empty() {
            let (event, cid) = (self.events.pop_front(), self.event_requests.pop_front());
            let (Some(event), Some(cid)) = (event, cid) else { unreachable!("neither is empty") };
            self.complete(0, cid, Status::SUCCESS, event, None, cx);
        }
    }

    /// Keeps an error for the log, newest first [NVMe 1.4, 5.14.1.1].
    pub(super) fn record(&mut self, task: &Task, status: Status) {
        self.error_count += 1;
        let mut entry = [0; 64];
        entry[..8].copy_from_slice(&self.error_count.to_le_bytes());
        entry[8..10].copy_from_slice(&task.queue.to_le_bytes());
        entry[10..12].copy_from_slice(&task.command.cid.to_le_bytes());
        entry[12..14].copy_from_slice(&(status.0 << 1).to_le_bytes());
        // Which byte was wrong is not told.
        entry[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
        entry[16..24].copy_from_slice(&task.command.lba().to_le_bytes());
        entry[24..28].copy_from_slice(&task.command.nsid.to_le_bytes());
        self.errors.push_front(entry);
        self.errors.truncate(identify::ERRORS);
    }
}
