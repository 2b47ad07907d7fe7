//! The end of commands: answers of the storage, completions, interrupts.

use std::collections::BTreeSet;

use dcs_abi::operator::Operator;
use dcs_nvme::register::Shutdown;
use dcs_nvme::{Completion, Status};

use crate::controller::Controller;
use crate::host::HostPort;
use crate::latency::Latencies;
use crate::near::Worked;
use crate::slots::Work;
use crate::storage::{Action, Buffer, Data, Request, Response, Storage, Ticket};

impl Controller {
    /// Ends a command.
    pub(crate) fn end(&mut self, port: &mut dyn HostPort, queue: u16, cid: u16, status: Status, result: u64) {
        if let Some(Some(held)) = self.submissions.get_mut(usize::from(queue)) {
            held.finish(cid);
        }
        self.post(port, queue, cid, status, result);
    }

    /// Ends a command whose identifier belongs to another one.
    pub(crate) fn end_conflict(&mut self, port: &mut dyn HostPort, queue: u16, cid: u16) {
        self.post(port, queue, cid, Status::ID_CONFLICT.with_do_not_retry(), 0);
    }

    fn post(&mut self, port: &mut dyn HostPort, queue: u16, cid: u16, status: Status, result: u64) {
        let Some(Some(held)) = self.submissions.get_mut(usize::from(queue)) else { return };
        held.outstanding = held.outstanding.saturating_sub(1);
        let done = Completion {
            result: result as u32,
            result_high: (result >> 32) as u32,
            submission_head: held.head as u16,
            submission_queue: queue,
            cid,
            phase: false,
            status,
        };
        if !status.is_success() {
            self.logs.failed(&done);
        }
        let target = usize::from(held.completion_queue);
        if let Some(Some(completions)) = self.completions.get_mut(target)
            && completions.post(port, done).is_err()
        {
            self.registers.csts.fatal = true;
        }
        self.end_deletion(port, queue);
    }

    /// Deletes a queue that waits for deletion, once its last command has ended.
    #[inline]
    pub(crate) fn end_deletion(&mut self, port: &mut dyn HostPort, queue: u16) {
        let place = &mut self.submissions[usize::from(queue)];
        if let Some(held) = place
            && held.outstanding == 0
            && let Some(cid) = held.deleted_by
        {
            let target = usize::from(held.completion_queue);
            *place = None;
            self.queue_shares.remove(queue.into());
            if let Some(Some(completions)) = self.completions.get_mut(target) {
                completions.users -= 1;
            }
            self.end(port, 0, cid, Status::SUCCESS, 0);
        }
    }

    /// Ends a batch: raises one interrupt for each vector with new completions.
    pub fn settle(&mut self, port: &mut dyn HostPort) {
        self.settle_times(port);
        self.quiet_completions(port);
        if self.coalescing.is_on(self.features.coalescing) {
            return self.settle_coalesced(port);
        }
        let mut raised = 0u128;
        for queue in self.completions.iter_mut().flatten() {
            queue.urgent = false;
            if std::mem::take(&mut queue.fresh) > 0
                && let Some(vector) = queue.vector
                && raised >> vector & 1 == 0
            {
                raised |= 1 << vector;
                self.logs.counters.interrupts += 1;
                port.interrupt(vector);
            }
        }
    }

    /// Lets guests take the new completions without ringing.
    fn quiet_completions(&mut self, port: &mut dyn HostPort) {
        let Some(shadow) = self.shadow else { return };
        for (number, queue) in self.completions.iter_mut().enumerate().skip(1) {
            if let Some(queue) = queue.as_mut().filter(|queue| queue.armed && queue.fresh > 0) {
                queue.armed = false;
                let _ = shadow.quiet(port, 2 * number + 1, (queue.tail, queue.size));
            }
        }
    }

    /// The same, if the guest has set coalescing.
    fn settle_coalesced(&mut self, port: &mut dyn HostPort) {
        let (now, features, interrupts) = (port.uptime(), &self.features, &mut self.logs.counters.interrupts);
        let feature = |vector| if features.is_coalesced(vector) { features.coalescing } else { 0 };
        self.coalescing.settle(&mut self.completions, now, feature, |vector| {
            *interrupts += 1;
            port.interrupt(vector);
        });
    }

    /// Returns the latency histograms of its commands.
    pub fn latencies(&self) -> &Latencies {
        &self.clocked.latencies
    }

    /// Returns the work of each operator for near-storage commands since the drive was made.
    pub fn operators(&self) -> impl Iterator<Item = (Operator, Worked)> {
        self.near.worked()
    }

    /// Sets the time, by its port's clock, of commands that begin or end before the next call.
    pub(crate) fn at(&mut self, now: u64) {
        self.slots.now = now;
    }

    /// Ends a batch: the storage has the requests, and guests have their completions.
    pub(crate) fn settle_times(&mut self, port: &mut dyn HostPort) {
        if !self.clocked.is_settled() {
            let (now, slots) = (port.uptime(), &mut self.slots);
            self.clocked.settle(now, |slot| slots.get(slot).times.hand(now));
        }
    }

    /// Takes an answer of the storage: the command goes on, or ends.
    pub fn complete(&mut self, port: &mut dyn HostPort, storage: &mut dyn Storage, response: Response) {
        let (index, now) = (response.ticket.slot, self.slots.now);
        let slot = self.slots.get(index);
        let action = slot.action;
        let mut buffer = None;
        match response.data {
            Data::None => {}
            Data::Pieces(mut pieces) => {
                pieces.clear();
                slot.pieces = pieces;
            }
            Data::Buffer(held) => buffer = Some(held),
        }
        if let Err(error) = response.result
            && slot.status.is_success()
        {
            slot.status = crate::io::status_of(error, action);
        }
        slot.remaining = slot.remaining.saturating_sub(1);
        if slot.remaining == 0 {
            slot.times.answered(now);
        }
        if response.written > 0 {
            // The storage could not zero the range without writing: zeros were written.
            let beyond = response.written.saturating_sub(slot.length);
            self.limiter.bytes(now, beyond);
            self.pay(index, beyond);
        }
        let slot = self.slots.get(index);
        if slot.work == Work::Zeros
            && !slot.stale
            && let Some(held) = buffer
        {
            buffer = self.more_zeros(response.ticket, storage, held);
        }
        let slot = self.slots.get(index);
        if slot.work == Work::Ranges
            && !slot.stale
            && slot.status.is_success()
            && self.next_range(response.ticket, storage)
        {
            return;
        }
        if self.flush_first(response.ticket, storage, &mut buffer) {
            return;
        }
        let slot = self.slots.get(index);
        let (more, stale) = (slot.remaining > 0, slot.stale);
        if slot.work == Work::Near && !stale {
            return self.near_answered(response.ticket, port, buffer);
        }
        if !more && !stale {
            self.finish(port, index, buffer.as_mut());
        }
        if let Some(buffer) = buffer {
            self.buffers.give(buffer);
        }
        if !more {
            self.release(index);
            self.end_reset();
        }
    }

    /// Flushes the data that a command has written to a volatile cache, if the guest has switched the cache
    /// off since. Returns true if the command waits for that.
    fn flush_first(
        &mut self,
        ticket: Ticket,
        storage: &mut dyn Storage,
        buffer: &mut Option<Buffer>,
    ) -> bool {
        let is_durable = self.is_durable(false);
        let slot = self.slots.get(ticket.slot);
        let is_volatile = matches!(
            slot.action,
            Action::Write { durable: false } | Action::Zero { durable: false, .. } | Action::Deallocate
        );
        if !is_volatile || !is_durable || slot.stale || slot.remaining > 0 || !slot.status.is_success() {
            return false;
        }
        // One flush is enough.
        (slot.action, slot.remaining) = (Action::Flush, 1);
        let data = buffer.take().map_or(Data::None, Data::Buffer);
        storage.submit(Request {
            ticket,
            volume: slot.volume,
            action: Action::Flush,
            offset: 0,
            length: 0,
            data,
        });
        true
    }

    /// Ends a command or takes its next step: all of its requests are answered.
    fn finish(&mut self, port: &mut dyn HostPort, index: u16, buffer: Option<&mut Buffer>) {
        let slot = self.slots.get(index);
        let (queue, cid, work) = (slot.queue, slot.cid, slot.work);
        let mut status = slot.status;
        match work {
            Work::Shutdown => {
                self.registers.csts.shutdown = Shutdown::Complete;
                return;
            }
            Work::Plain | Work::Zeros | Work::Ranges => {
                self.logs.counters.flushes += u64::from(status.is_success())
            }
            Work::CacheOff if !status.is_success() => self.features.write_cache = true,
            Work::Transfer(_) | Work::Compare if status.is_success() => {
                if let Some(buffer) = buffer {
                    status = self.through_buffer(port, index, buffer.bytes_mut());
                }
                self.count(index, status);
            }
            _ => {}
        }
        if queue > 0 {
            let times = self.slots.get(index).times;
            self.clocked.ends(times, self.slots.now, false);
        }
        self.end(port, queue, cid, status, 0);
    }

    /// Begins to flush the volumes of all namespaces. The command in `from` ends when that is done.
    pub(crate) fn flush_all(
        &mut self,
        drive: u32,
        storage: &mut dyn Storage,
        port: &mut dyn HostPort,
        work: Work,
        from: (u16, u16),
    ) {
        let Some(index) = self.slots.take(work, from.0, from.1) else { return };
        let volumes: BTreeSet<_> = self.namespaces.values().map(|namespace| namespace.volume).collect();
        self.slots.get(index).action = Action::Flush;
        self.slots.get(index).remaining = volumes.len() as u32;
        if volumes.is_empty() {
            self.finish(port, index, None);
            return self.slots.give(index);
        }
        self.clocked.hands(index);
        for volume in volumes {
            let ticket = Ticket { drive, slot: index };
            let (action, data) = (Action::Flush, Data::None);
            storage.submit(Request { ticket, volume, action, offset: 0, length: 0, data });
        }
    }
}
