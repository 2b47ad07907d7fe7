//! Commands of the admin queue. [base 5]

use dcs_nvme::command::{Abort, Command, CreateCompletionQueue, CreateSubmissionQueue, admin};
use dcs_nvme::{DataPointer, Status};

use crate::controller::Controller;
use crate::host::HostPort;
use crate::queue::{CompletionQueue, Shadow, SubmissionQueue};
use crate::storage::Storage;

impl Controller {
    /// Carries out a command of the admin queue.
    pub(crate) fn admin(
        &mut self,
        drive: u32,
        port: &mut dyn HostPort,
        storage: &mut dyn Storage,
        command: &Command,
    ) {
        self.timers.begin(port.uptime());
        let status = |status: Status| Some((status, 0));
        let unit = |done: Result<(), Status>| match done {
            Ok(()) => Some((Status::SUCCESS, 0)),
            Err(error) => Some((error.with_do_not_retry(), 0)),
        };
        let end = match command.opcode {
            _ if command.fused != 0 => status(Status::INVALID_FIELD.with_do_not_retry()),
            // Over PCIe, admin commands have page lists. [base 4.1]
            _ if !matches!(command.data, DataPointer::Prp(..)) => {
                status(Status::INVALID_FIELD.with_do_not_retry())
            }
            admin::IDENTIFY => status(self.identify(port, command)),
            admin::GET_LOG_PAGE => status(self.get_log_page(port, command)),
            admin::CREATE_COMPLETION_QUEUE => unit(self.create_completion_queue(command)),
            admin::CREATE_SUBMISSION_QUEUE => unit(self.create_submission_queue(command)),
            admin::DELETE_COMPLETION_QUEUE => unit(self.delete_completion_queue(command)),
            admin::DELETE_SUBMISSION_QUEUE => self.delete_submission_queue(port, command),
            admin::GET_FEATURES => Some(match self.get_features(port, command) {
                Ok(value) => (Status::SUCCESS, value),
                Err(error) => (error.with_do_not_retry(), 0),
            }),
            admin::SET_FEATURES => match self.set_features(drive, port, storage, command) {
                Ok(None) => None,
                Ok(Some(value)) => Some((Status::SUCCESS, value)),
                Err(error) => Some((error.with_do_not_retry(), 0)),
            },
            admin::ABORT => Some((Status::SUCCESS, self.abort(port, command))),
            admin::ASYNCHRONOUS_EVENT_REQUEST => match self.events.request(command.cid) {
                true => None,
                false => status(Status::EVENT_REQUEST_LIMIT_EXCEEDED.with_do_not_retry()),
            },
            admin::KEEP_ALIVE => {
                self.timers.hear(port.uptime());
                status(Status::SUCCESS)
            }
            admin::LOAD_PROGRAM | admin::PROGRAM_ACTIVATION | admin::MEMORY_RANGE_SETS => {
                match self.manage_programs(port, command) {
                    Ok(value) => value.map(|value| (Status::SUCCESS, value)),
                    // Reserved now, so that there is room later.
                    Err(Status::INTERRUPTED) => Some((Status::INTERRUPTED, 0)),
                    Err(error) => Some((error.with_do_not_retry(), 0)),
                }
            }
            admin::DOORBELL_BUFFER_CONFIG if self.config.shadow_doorbells => {
                unit(self.configure_doorbells(command))
            }
            _ => status(Status::INVALID_OPCODE.with_do_not_retry()),
        };
        if let Some((status, result)) = end {
            self.end(port, 0, command.cid, status, result.into());
        }
    }

    /// Returns the address of a new queue, if it is valid. [base 5.4, 5.5]
    fn place(&self, command: &Command, entries: u32, contiguous: bool) -> Result<(u64, u32), Status> {
        let DataPointer::Prp(base, _) = command.data else { return Err(Status::INVALID_FIELD) };
        if !(2..=self.config.entries).contains(&entries) || !self.registers.configuration().has_entry_sizes()
        {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        if !contiguous {
            return Err(Status::INVALID_FIELD);
        }
        if !base.is_multiple_of(self.registers.page()) {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        Ok((base, entries))
    }

    fn create_completion_queue(&mut self, command: &Command) -> Result<(), Status> {
        let wanted = CreateCompletionQueue::from_words(&command.words);
        let vacant =
            wanted.queue != 0 && self.completions.get(usize::from(wanted.queue)).is_some_and(Option::is_none);
        if !vacant {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let place = self.place(command, wanted.entries, wanted.contiguous)?;
        if wanted.interrupts && wanted.vector >= self.vectors() {
            return Err(Status::INVALID_VECTOR);
        }
        let vector = wanted.interrupts.then_some(wanted.vector);
        let most = usize::from(self.config.commands) + 16;
        self.completions[usize::from(wanted.queue)] = Some(CompletionQueue::new(place, vector, most));
        Ok(())
    }

    fn create_submission_queue(&mut self, command: &Command) -> Result<(), Status> {
        let wanted = CreateSubmissionQueue::from_words(&command.words);
        let target = usize::from(wanted.completion_queue);
        if wanted.completion_queue == 0 || target >= self.completions.len() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let vacant =
            wanted.queue != 0 && self.submissions.get(usize::from(wanted.queue)).is_some_and(Option::is_none);
        if !vacant {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let place = self.place(command, wanted.entries, wanted.contiguous)?;
        let completions = self.completions[target].as_mut().ok_or(Status::INVALID_COMPLETION_QUEUE)?;
        completions.users += 1;
        self.submissions[usize::from(wanted.queue)] =
            Some(SubmissionQueue::new(place, wanted.completion_queue));
        self.queue_shares.set(wanted.queue.into(), 1);
        Ok(())
    }

    fn delete_completion_queue(&mut self, command: &Command) -> Result<(), Status> {
        let queue = command.words[0] as u16;
        let place = self.completions.get_mut(usize::from(queue)).filter(|_| queue != 0);
        match place {
            Some(Some(held)) if held.users > 0 => Err(Status::INVALID_QUEUE_DELETION),
            Some(place @ Some(_)) => {
                *place = None;
                Ok(())
            }
            _ => Err(Status::INVALID_QUEUE_ID),
        }
    }

    /// Deletes a queue. The command ends when the last command of the queue has ended.
    fn delete_submission_queue(
        &mut self,
        port: &mut dyn HostPort,
        command: &Command,
    ) -> Option<(Status, u32)> {
        let queue = command.words[0] as u16;
        let held = self.submissions.get_mut(usize::from(queue)).and_then(Option::as_mut);
        match held.filter(|held| queue != 0 && held.deleted_by.is_none()) {
            Some(held) => held.deleted_by = Some(command.cid),
            None => return Some((Status::INVALID_QUEUE_ID.with_do_not_retry(), 0)),
        }
        // No command of the queue may complete after this one: those that have not begun never will.
        for _ in 0..self.parked.len() {
            let Some(index) = self.parked.pop_front() else { break };
            let slot = self.slots.get(index);
            if slot.queue != queue {
                self.parked.push_back(index);
                continue;
            }
            let cid = slot.cid;
            self.slots.give(index);
            self.end(port, queue, cid, Status::QUEUE_DELETED, 0);
        }
        self.end_deletion(port, queue);
        None
    }

    /// Aborts a command. Bit 0 of the result is set if the command was not aborted. [base 5.1]
    fn abort(&mut self, port: &mut dyn HostPort, command: &Command) -> u32 {
        let wanted = Abort::from_words(&command.words);
        let queue = wanted.submission_queue;
        if queue == 0 && self.events.abort(wanted.cid) {
            self.end(port, 0, wanted.cid, Status::ABORT_REQUESTED, 0);
            return 0;
        }
        let slots = &mut self.slots;
        let place = self.parked.iter().position(|index| slots.get(*index).is(queue, wanted.cid));
        let parked = place.and_then(|place| self.parked.remove(place));
        let wanting = || self.near.abort(|index| slots.get(index).is(queue, wanted.cid));
        // Requests that the storage or the operators have are not cancelled.
        let Some(index) = parked.or_else(wanting) else { return 1 };
        self.slots.give(index);
        self.end(port, queue, wanted.cid, Status::ABORT_REQUESTED, 0);
        0
    }

    fn configure_doorbells(&mut self, command: &Command) -> Result<(), Status> {
        let DataPointer::Prp(doorbells, events) = command.data else { return Err(Status::INVALID_FIELD) };
        let page = self.registers.page();
        if !doorbells.is_multiple_of(page) || !events.is_multiple_of(page) {
            return Err(Status::INVALID_FIELD);
        }
        self.shadow = Some(Shadow { doorbells, events });
        Ok(())
    }
}
