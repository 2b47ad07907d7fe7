//! Commands of the admin queue [NVMe 1.4, 5].

use dcs_nvme::command::{
    Abort, Blocks, Command, CreateCompletionQueue, CreateSubmissionQueue, Feature, GetLogPage, QueueCounts,
    admin, feature, log,
};
use dcs_nvme::identify::{ACTIVE_NAMESPACES, CONTROLLER, NAMESPACE, NAMESPACE_DESCRIPTORS};
use dcs_nvme::{DataPointer, Status};

use super::queue::{CompletionQueue, SubmissionQueue};
use super::task::{Action, Task};
use super::{Nvme, Wait, identify, status};
use crate::device::Context;

/// Features that are stored and can be read back, with their defaults [NVMe 1.4, 5.21.1].
const KEPT: [(u8, u32); 8] = [
    (feature::ARBITRATION, 0),
    (feature::POWER_MANAGEMENT, 0),
    (feature::TEMPERATURE_THRESHOLD, identify::WARM as u32),
    (feature::ERROR_RECOVERY, 0),
    (feature::INTERRUPT_COALESCING, 0),
    (feature::INTERRUPT_VECTOR, 0),
    (feature::WRITE_ATOMICITY, 0),
    (feature::ASYNCHRONOUS_EVENTS, 0),
];

impl Nvme {
    pub(super) fn admin(&mut self, task: u64, command: &Command, cx: &mut Context<'_>) -> Action {
        let done = |result: Result<u32, Status>| match result {
            Ok(value) => Action::Done(Status::SUCCESS, value),
            Err(status) => Action::Done(status, 0),
        };
        // Admin commands use PRP entries [NVMe 1.4, 4.2].
        let DataPointer::Prp(address, _) = command.data else { return status::INVALID_FIELD.into() };
        match command.opcode {
            admin::CREATE_COMPLETION_QUEUE => {
                done(self.create_cq(CreateCompletionQueue::from_words(&command.words), address))
            }
            admin::CREATE_SUBMISSION_QUEUE => {
                done(self.create_sq(CreateSubmissionQueue::from_words(&command.words), address))
            }
            admin::DELETE_COMPLETION_QUEUE => done(self.delete_cq(command.words[0] as u16)),
            admin::DELETE_SUBMISSION_QUEUE => done(self.delete_sq(command.words[0] as u16, cx)),
            admin::IDENTIFY => self.identify(command).map_or_else(Into::into, Action::Send),
            admin::GET_LOG_PAGE => {
                self.log(GetLogPage::from_words(&command.words)).map_or_else(Into::into, Action::Send)
            }
            admin::ABORT => done(Ok(self.abort(task, Abort::from_words(&command.words), cx))),
            admin::SET_FEATURES => done(self.set_feature(Feature::from_words(&command.words))),
            admin::GET_FEATURES => done(self.get_feature(Feature::from_words(&command.words))),
            admin::ASYNCHRONOUS_EVENT_REQUEST => self.event_request(task, command.cid, cx),
            _ => status::INVALID_OPCODE.into(),
        }
    }

    /// Checks that apply to both kinds of queue: identifier, size and base address.
    fn check_queue(
        &self,
        (queue, taken): (u16, bool),
        size: u32,
        contiguous: bool,
        address: u64,
    ) -> Result<(), Status> {
        if queue == 0 || queue > self.config.queues || taken {
            return Err(status::INVALID_QUEUE_ID);
        }
        if size < 2 || size > self.config.entries {
            return Err(status::INVALID_QUEUE_SIZE);
        }
        // CAP.CQR: queues are physically contiguous. CC must name the entry sizes before queues are created.
        if !contiguous || !self.registers.entry_sizes() {
            return Err(status::INVALID_FIELD);
        }
        if !address.is_multiple_of(self.registers.page()) {
            return Err(status::INVALID_PRP_OFFSET);
        }
        Ok(())
    }

    fn create_cq(&mut self, wanted: CreateCompletionQueue, address: u64) -> Result<u32, Status> {
        let CreateCompletionQueue { queue, entries, contiguous, interrupts, vector } = wanted;
        let taken = self.completion.contains_key(&queue);
        self.check_queue((queue, taken), entries, contiguous, address)?;
        if vector > self.config.queues {
            return Err(status::INVALID_VECTOR);
        }
        let created = CompletionQueue::new(address, entries, interrupts.then_some(vector));
        self.completion.insert(queue, created);
        Ok(0)
    }

    fn create_sq(&mut self, wanted: CreateSubmissionQueue, address: u64) -> Result<u32, Status> {
        let CreateSubmissionQueue { queue, entries, contiguous, completion_queue: completion, .. } = wanted;
        if completion == 0 || completion > self.config.queues {
            return Err(status::INVALID_QUEUE_ID);
        }
        if !self.completion.contains_key(&completion) {
            return Err(status::INVALID_COMPLETION_QUEUE);
        }
        let taken = self.submission.contains_key(&queue);
        self.check_queue((queue, taken), entries, contiguous, address)?;
        self.submission.insert(queue, SubmissionQueue::new(address, entries, completion));
        Ok(0)
    }

    fn delete_cq(&mut self, queue: u16) -> Result<u32, Status> {
        if queue == 0 || !self.completion.contains_key(&queue) {
            return Err(status::INVALID_QUEUE_ID);
        }
        if self.submission.values().any(|submission| submission.completion == queue) {
            return Err(status::INVALID_QUEUE_DELETION);
        }
        self.completion.remove(&queue);
        // Delayed completions must not reach a later queue of this number.
        self.waits.retain(|_, wait| !matches!(wait, Wait::Held { completion, .. } if *completion == queue));
        Ok(0)
    }

    /// Deletes a queue. Its commands end first.
    fn delete_sq(&mut self, queue: u16, cx: &mut Context<'_>) -> Result<u32, Status> {
        if queue == 0 || !self.submission.contains_key(&queue) {
            return Err(status::INVALID_QUEUE_ID);
        }
        let of_queue = self.tasks.iter().filter(|(_, held)| held.queue == queue);
        let ending: Vec<u64> = of_queue.map(|(task, _)| *task).collect();
        for task in ending {
            let held = self.tasks.remove(&task).expect("it was there");
            self.complete(queue, held.command.cid, Status::QUEUE_DELETED, 0, held.fault, cx);
        }
        self.submission.remove(&queue);
        self.waits.retain(|_, wait| !matches!(wait, Wait::Entries { queue: of, .. } if *of == queue));
        Ok(0)
    }

    /// Aborts a command. Returns zero if it was found and ended, else one [NVMe 1.4, 5.1].
    fn abort(&mut self, itself: u64, which: Abort, cx: &mut Context<'_>) -> u32 {
        let Abort { submission_queue: queue, cid } = which;
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
        let (nsid, count) = (command.namespace, self.config.namespaces.len());
        let exists = nsid >= 1 && nsid as usize <= count;
        match command.words[0] as u8 {
            NAMESPACE if exists => Ok(identify::namespace(self.config.namespaces.get(nsid as usize - 1))),
            CONTROLLER => Ok(identify::controller(&self.config)),
            ACTIVE_NAMESPACES if nsid >= 0xffff_fffe => Err(status::INVALID_NAMESPACE),
            ACTIVE_NAMESPACES => Ok(identify::list(count, nsid)),
            NAMESPACE_DESCRIPTORS if exists => Ok(identify::descriptors(&self.config, nsid)),
            NAMESPACE | NAMESPACE_DESCRIPTORS => Err(status::INVALID_NAMESPACE),
            _ => Err(status::INVALID_FIELD),
        }
    }

    fn log(&mut self, wanted: GetLogPage) -> Result<Vec<u8>, Status> {
        let GetLogPage { bytes: length, offset, .. } = wanted;
        let page = match wanted.page {
            log::ERRORS => {
                let mut page: Vec<u8> = self.errors.iter().flatten().copied().collect();
                page.resize(64 * identify::ERRORS, 0);
                page
            }
            log::HEALTH => {
                let shift = self.config.namespaces.first().map_or(9, |namespace| namespace.shift());
                identify::health(&self.counts, self.error_count, shift)
            }
            log::FIRMWARE => identify::firmware(),
            _ => return Err(status::INVALID_LOG_PAGE),
        };
        // Beyond its end a log page reads as zeros, up to a generous limit.
        if offset % 4 != 0 || offset > page.len() as u64 || length > 1 << 20 {
            return Err(status::INVALID_FIELD);
        }
        if wanted.page == log::ERRORS && !wanted.retain_event {
            self.masked[0] = false;
        }
        let mut data = page[offset as usize..].to_vec();
        data.resize(length as usize, 0);
        Ok(data)
    }

    fn set_feature(&mut self, wanted: Feature) -> Result<u32, Status> {
        let Feature { number, value, .. } = wanted;
        let known = KEPT.iter().any(|(kept, _)| *kept == number);
        match number {
            _ if wanted.save => Err(status::FEATURE_NOT_SAVEABLE),
            feature::NUMBER_OF_QUEUES => {
                if self.submission.len() + self.completion.len() > 2 {
                    return Err(status::SEQUENCE_ERROR);
                }
                let counts = QueueCounts::from_bits(value);
                if counts.submissions.max(counts.completions) > u16::MAX.into() {
                    return Err(status::INVALID_FIELD);
                }
                Ok(self.queue_count())
            }
            feature::VOLATILE_WRITE_CACHE if self.config.cache => {
                self.features.insert(number, value & 1);
                if value & 1 == 0 {
                    self.flush(u32::MAX);
                }
                Ok(0)
            }
            _ if known => {
                self.features.insert(number, value);
                Ok(0)
            }
            _ => Err(status::INVALID_FIELD),
        }
    }

    /// Returns true if there is a volatile cache, and it is on.
    pub(super) fn caches(&self) -> bool {
        self.config.cache && self.features.get(&feature::VOLATILE_WRITE_CACHE) != Some(&0)
    }

    fn get_feature(&mut self, wanted: Feature) -> Result<u32, Status> {
        let Feature { number, select, .. } = wanted;
        let default = match number {
            feature::NUMBER_OF_QUEUES => self.queue_count(),
            feature::VOLATILE_WRITE_CACHE if self.config.cache => 1,
            _ => KEPT.iter().find(|(kept, _)| *kept == number).ok_or(status::INVALID_FIELD)?.1,
        };
        match select {
            0 => Ok(self.features.get(&number).copied().unwrap_or(default)),
            1 | 2 => Ok(default),
            // Changeable.
            3 => Ok(1 << 2),
            _ => Err(status::INVALID_FIELD),
        }
    }

    /// Returns the number of all queues, whatever was requested.
    fn queue_count(&self) -> u32 {
        let count = self.config.queues.into();
        QueueCounts { submissions: count, completions: count }.bits()
    }

    /// Keeps an asynchronous event request until there is an event.
    fn event_request(&mut self, task: u64, cid: u16, cx: &mut Context<'_>) -> Action {
        if self.event_requests.len() == self.config.async_events {
            return status::EVENT_REQUEST_LIMIT_EXCEEDED.into();
        }
        self.tasks.remove(&task);
        self.event_requests.push_back(cid);
        self.tell_events(cx);
        Action::Later
    }

    /// Reports an event of type `kind`. Further ones of the type wait until its log page has been read [NVMe 1.4, 5.2].
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

    /// Adds an error to the log, newest first [NVMe 1.4, 5.14.1.1].
    pub(super) fn record(&mut self, task: &Task, status: Status) {
        self.error_count += 1;
        let mut entry = [0; 64];
        entry[..8].copy_from_slice(&self.error_count.to_le_bytes());
        entry[8..10].copy_from_slice(&task.queue.to_le_bytes());
        entry[10..12].copy_from_slice(&task.command.cid.to_le_bytes());
        entry[12..14].copy_from_slice(&(status.0 << 1).to_le_bytes());
        // The position of the wrong byte is not reported.
        entry[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
        entry[16..24].copy_from_slice(&Blocks::from_words(&task.command.words).first.to_le_bytes());
        entry[24..28].copy_from_slice(&task.command.namespace.to_le_bytes());
        self.errors.push_front(entry);
        self.errors.truncate(identify::ERRORS);
    }
}
