//! A function's admin queue: queue pairs, granted memory, what is done with devices (how they are attached: `attach`). Commands are
//! executed one after the other, except those that wait for a device.

use crate::card::Card;
use crate::function::own_memory;
use crate::handles::{Access, HandleTarget, Refusal};
use crate::host::PendingRead;
use crate::registers::AdminQueues;
use crate::rings::{COMPLETION, CompletionQueue, Pair, Ring, SUBMISSION};
use dcs_abi::admin::{
    AdminCompletion, AdminEntry, AdminPacket, Answer, GRANT_READ, GRANT_WRITE, PacedOptions, PacedSending,
    opcode,
};
use dcs_abi::status::Status;
use dcs_drivers::bus::{Buses, Window};
use dcs_drivers::network::{self, Sending};
use dcs_drivers::nvme::State;
use dcs_engine::{Event, OperationId, QueueConfig, QueueId};
use dcs_nvme::command::{Abort, CreateCompletionQueue, CreateSubmissionQueue};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Most entries of a queue.
const DEPTH_MAX: u32 = 1024;

/// Most commands that may wait for a device or a peer at once. A further one is refused.
const WAITING_MAX: usize = 1024;

/// The admin queue pair.
#[derive(Debug)]
pub(crate) struct Admin {
    submissions: Ring,
    completions: Ring,
    tail: u16,
    head: u16,
    /// Set while an entry is being fetched.
    fetching: bool,
    /// Slot of the next completion.
    next: u16,
    /// Phase of the next completion.
    phase: bool,
    /// Entry up to which the host has read.
    read: u16,
    /// Completion queues that have no submission queue yet.
    created: Vec<(u16, CompletionQueue)>,
    /// Commands that wait for a device: identifier, and the event.
    pub(crate) awaited: Vec<(u16, Awaited)>,
    /// Number of commands that have no answer yet, including those that wait for a connection or the end of a queue.
    waiting: usize,
    /// Completions for which the ring has no room.
    held: VecDeque<AdminCompletion>,
}

/// The event that an admin command waits for.
#[derive(Clone, Debug)]
pub(crate) enum Awaited {
    /// The start of an SSD.
    Ssd(usize),
    /// The start of a NIC.
    Nic(usize),
    /// The end of operations at an SSD, on bytes of a part that is taken back.
    Ended(usize, Vec<OperationId>),
}

impl Admin {
    /// Makes empty queues; returns `None` if their place is not allowed: beyond the last address, or in the card's own memory.
    pub fn new(queues: AdminQueues, own: Window) -> Option<Admin> {
        let submissions = Ring { base: queues.submissions, depth: queues.submission_depth };
        let completions = Ring { base: queues.completions, depth: queues.completion_depth };
        let sound = submissions.is_sound(SUBMISSION, own) && completions.is_sound(COMPLETION, own);
        sound.then(|| Admin {
            submissions,
            completions,
            tail: 0,
            head: 0,
            fetching: false,
            next: 0,
            phase: true,
            read: 0,
            created: Vec::new(),
            awaited: Vec::new(),
            waiting: 0,
            held: VecDeque::new(),
        })
    }

    fn has_room(&self) -> bool {
        (self.next + 1) % self.completions.depth != self.read
    }
}

impl Card {
    pub(crate) fn admin_doorbell(&mut self, bus: &mut dyn Buses, function: usize, tail: u32) {
        if let Some(admin) = &mut self.functions[function].admin
            && tail < u32::from(admin.submissions.depth)
        {
            admin.tail = tail as u16;
            self.fetch_admin(bus, function);
        }
    }

    pub(crate) fn admin_head(&mut self, function: usize, head: u32) {
        if let Some(admin) = &mut self.functions[function].admin
            && head < u32::from(admin.completions.depth)
        {
            admin.read = head as u16;
        }
    }

    fn fetch_admin(&mut self, bus: &mut dyn Buses, function: usize) {
        let Some(admin) = &mut self.functions[function].admin else { return };
        // A host that takes no completions gets no more of them.
        if admin.fetching || admin.head == admin.tail || !admin.held.is_empty() {
            return;
        }
        let window = admin.submissions.entry(admin.head, SUBMISSION);
        admin.fetching = true;
        admin.head = (admin.head + 1) % admin.submissions.depth;
        self.read_host(bus, function, window, PendingRead::AdminEntry);
    }

    pub(crate) fn admin_entry(&mut self, bus: &mut dyn Buses, function: usize, bytes: &[u8]) {
        let Some(admin) = &mut self.functions[function].admin else { return };
        admin.fetching = false;
        let cid = bytes.get(2..4).map_or(0, |cid| u16::from_le_bytes([cid[0], cid[1]]));
        let entry = AdminPacket::new_checked(bytes).and_then(|packet| AdminEntry::parse(&packet));
        admin.waiting += 1;
        let full = admin.waiting > WAITING_MAX;
        let answer = match entry {
            Ok(entry) if full && may_wait(entry.opcode) => Some(Err(Status::OutOfResources)),
            Ok(entry) => self.execute(bus, function, &entry),
            Err(_) => Some(Err(Status::InvalidField)),
        };
        if let Some(answer) = answer {
            self.answer(bus, function, cid, answer);
        }
        self.fetch_admin(bus, function);
    }

    /// Completes commands that have waited for a device, or for room in the ring.
    pub(crate) fn settle_admin(&mut self, bus: &mut dyn Buses, function: usize) {
        let Some(admin) = &mut self.functions[function].admin else { return };
        let waiting = std::mem::take(&mut admin.awaited);
        for (cid, event) in waiting {
            match self.result_of(function, &event) {
                Some(answer) => self.answer(bus, function, cid, answer),
                None => {
                    if let Some(admin) = &mut self.functions[function].admin {
                        admin.awaited.push((cid, event));
                    }
                }
            }
        }
        while let Some(admin) = &mut self.functions[function].admin
            && admin.has_room()
            && let Some(completion) = admin.held.pop_front()
        {
            self.post(bus, function, completion);
        }
        self.fetch_admin(bus, function);
    }

    /// Returns the result of what a command waits for, `None` while it goes on.
    fn result_of(&mut self, function: usize, event: &Awaited) -> Option<Answer> {
        let (thing, extra) = match *event {
            Awaited::Ended(at, ref operations) => {
                return self.have_ended(at, operations).then_some(Ok((0, 0)));
            }
            Awaited::Ssd(at) => match self.ssds[at].host().state() {
                State::Starting => return None,
                State::Ready => {
                    let namespace = self.ssds[at].host().namespace();
                    (HandleTarget::Ssd(at), namespace.map_or(0, |namespace| namespace.block_size))
                }
                _ => return Some(Err(Status::DeviceReset)),
            },
            Awaited::Nic(at) => match self.networks[at].state() {
                network::State::Ready => (HandleTarget::Nic(at), 0),
                network::State::Starting => return None,
                network::State::Failed => return Some(Err(Status::DeviceReset)),
            },
        };
        Some(
            self.functions[function]
                .handles
                .add(thing)
                .map(|handle| (handle, extra))
                .ok_or(Status::OutOfResources),
        )
    }

    /// Answers an admin command that requested a connection: with the connection, or the reason why there is none.
    pub(crate) fn connection(
        &mut self,
        bus: &mut dyn Buses,
        at: usize,
        cid: u16,
        connection: Result<(dcs_net::Flow, Ipv4Addr), Status>,
    ) {
        // Function 0 alone has NICs.
        let function = 0;
        let answer = connection.and_then(|(flow, peer)| {
            let handle = self.functions[function].handles.add(HandleTarget::Flow(at, flow));
            if handle.is_none() {
                self.networks[at].release(bus, flow);
            }
            Ok((handle.ok_or(Status::OutOfResources)?, peer.to_bits()))
        });
        self.answer(bus, function, cid, answer);
    }

    fn answer(&mut self, bus: &mut dyn Buses, function: usize, cid: u16, answer: Answer) {
        let Some(admin) = &mut self.functions[function].admin else { return };
        admin.waiting = admin.waiting.saturating_sub(1);
        let (status, (value, extra)) = match answer {
            Ok(values) => (Status::Success, values),
            Err(status) => (status, (0, 0)),
        };
        let completion =
            AdminCompletion { value, extra, sq_head: 0, sq_id: 0, cid, status: status.code() << 1 };
        if admin.has_room() && admin.held.is_empty() {
            self.post(bus, function, completion);
        } else {
            admin.held.push_back(completion);
        }
    }

    fn post(&mut self, bus: &mut dyn Buses, function: usize, mut completion: AdminCompletion) {
        let Some(admin) = &mut self.functions[function].admin else { return };
        completion.sq_head = admin.head;
        completion.status |= u16::from(admin.phase);
        let window = admin.completions.entry(admin.next, COMPLETION);
        admin.next += 1;
        if admin.next == admin.completions.depth {
            (admin.next, admin.phase) = (0, !admin.phase);
        }
        bus.write_host(function, window.address, &completion.to_bytes());
        self.interrupt(bus, function, 0);
    }

    /// Executes a command; returns `None` if its answer comes later.
    fn execute(&mut self, bus: &mut dyn Buses, function: usize, entry: &AdminEntry) -> Option<Answer> {
        let nothing = |result: Result<(), Status>| Some(result.map(|()| (0, 0)));
        match entry.opcode {
            opcode::CREATE_CQ => nothing(self.create_completions(function, entry)),
            opcode::CREATE_SQ => nothing(self.create_submissions(function, entry)),
            opcode::DELETE_SQ => self.delete_submissions(function, entry),
            opcode::DELETE_CQ => nothing(self.delete_completions(function, entry)),
            opcode::ABORT => nothing(self.abort(function, entry)),
            opcode::GRANT_MEMORY => Some(self.grant(bus, function, entry)),
            opcode::RELEASE => self.release(bus, function, entry),
            opcode::IDENTIFY_SSD => nothing(self.identify_ssd(bus, function, entry)),
            opcode::OPEN_PART => Some(self.open_part(function, entry)),
            _ if function > 0 => Some(Err(Status::InvalidOpcode)),
            opcode::ATTACH_SSD => self.attach_ssd(bus, entry),
            opcode::ATTACH_NIC => self.attach_nic(bus, entry),
            opcode::LEND_SSD => Some(self.lend_ssd(entry)),
            opcode::LISTEN => Some(self.listen(entry)),
            opcode::ACCEPT => self.accept(entry),
            opcode::CONNECT => self.connect(entry),
            opcode::SHUTDOWN => nothing(self.shutdown(entry)),
            opcode::DATAGRAMS => Some(self.open_datagrams(bus, entry)),
            opcode::DROPPED => Some(self.dropped(entry)),
            opcode::OPEN_PACED => Some(self.open_paced(bus, entry)),
            opcode::PACED_SENDING => nothing(self.paced_sending(bus, entry)),
            _ => Some(Err(Status::InvalidOpcode)),
        }
    }

    /// Makes the ring that a Create command names.
    fn new_ring(
        &self,
        function: usize,
        base: u64,
        (number, depth, contiguous): (u16, u32, bool),
        bytes: u64,
        access: Access,
    ) -> Result<Ring, Status> {
        let known = number >= 1 && usize::from(number) <= self.functions[function].pairs.len();
        if !known || !(2..=DEPTH_MAX).contains(&depth) || !contiguous {
            return Err(Status::InvalidField);
        }
        let ring = Ring { base, depth: depth as u16 };
        let aligned = ring.base.is_multiple_of(4096);
        if !aligned || !self.functions[function].handles.any_allows(ring.window(bytes), access) {
            return Err(Status::DataTransferError);
        }
        Ok(ring)
    }

    fn create_completions(&mut self, function: usize, entry: &AdminEntry) -> Result<(), Status> {
        let wanted = CreateCompletionQueue::from_words(&entry.words);
        let CreateCompletionQueue { queue: number, entries, contiguous, interrupts, vector } = wanted;
        let shape = (number, entries, contiguous);
        let ring = self.new_ring(function, entry.data_address, shape, COMPLETION, Access::Write)?;
        let function = &mut self.functions[function];
        let admin = function.admin.as_mut().ok_or(Status::InternalError)?;
        let taken = admin.created.iter().any(|(other, _)| *other == number);
        if taken || function.pairs[number as usize - 1].is_some() {
            return Err(Status::InvalidField);
        }
        let vector = interrupts.then_some(vector);
        admin.created.push((number, CompletionQueue { ring, vector }));
        Ok(())
    }

    fn create_submissions(&mut self, function: usize, entry: &AdminEntry) -> Result<(), Status> {
        let wanted = CreateSubmissionQueue::from_words(&entry.words);
        let CreateSubmissionQueue { queue: number, entries, contiguous, completion_queue, .. } = wanted;
        let shape = (number, entries, contiguous);
        let ring = self.new_ring(function, entry.data_address, shape, SUBMISSION, Access::Read)?;
        let admin = self.functions[function].admin.as_mut().ok_or(Status::InternalError)?;
        let at = admin.created.iter().position(|(other, _)| *other == number);
        let completions = at.map(|at| admin.created[at].1).ok_or(Status::InvalidField)?;
        // The engine's rings are pairs of one size.
        if completion_queue != number || completions.ring.depth != ring.depth {
            return Err(Status::InvalidField);
        }
        let (tenant, depth) = (entry.words[2] as u16, ring.depth);
        let weight = self.config.engine.weight(function as u16);
        let config = QueueConfig { function: function as u16, tenant, depth, weight, number: Some(number) };
        let id = self.engine.add_queue(config).ok_or(Status::OutOfResources)?;
        self.owners[usize::from(id.0)] = function;
        if let Some(at) = at {
            admin.created.remove(at);
        }
        let pair =
            Pair { id, number, submissions: ring, completions, fetches: VecDeque::new(), deleted_by: None };
        self.functions[function].pairs[number as usize - 1] = Some(pair);
        Ok(())
    }

    /// Deletes a queue pair's submission queue, and with it the pair; its completion queue is free again for another.
    fn delete_submissions(&mut self, function: usize, entry: &AdminEntry) -> Option<Answer> {
        let number = entry.words[0] as u16;
        let pair = self.functions[function]
            .pairs
            .get_mut(usize::from(number).wrapping_sub(1))
            .and_then(Option::as_mut);
        let Some(pair) = pair.filter(|pair| pair.deleted_by.is_none()) else {
            return Some(Err(Status::InvalidField));
        };
        pair.deleted_by = Some(entry.cid);
        let queue = pair.id;
        self.handle(Event::DeleteQueue { queue });
        None
    }

    pub(crate) fn queue_deleted(&mut self, bus: &mut dyn Buses, queue: QueueId) {
        let function = self.owner(queue);
        self.functions[function].leaving.retain(|leaving| *leaving != queue);
        let at = self.functions[function]
            .pairs
            .iter()
            .position(|pair| pair.as_ref().is_some_and(|pair| pair.id == queue));
        let Some(pair) = at.and_then(|at| self.functions[function].pairs[at].take()) else { return };
        if let Some(admin) = &mut self.functions[function].admin {
            admin.created.push((pair.number, pair.completions));
        }
        if let Some(cid) = pair.deleted_by {
            self.answer(bus, function, cid, Ok((0, 0)));
        }
    }

    fn delete_completions(&mut self, function: usize, entry: &AdminEntry) -> Result<(), Status> {
        let number = entry.words[0] as u16;
        let admin = self.functions[function].admin.as_mut().ok_or(Status::InternalError)?;
        let at = admin.created.iter().position(|(other, _)| *other == number).ok_or(Status::InvalidField)?;
        admin.created.remove(at);
        Ok(())
    }

    fn abort(&mut self, function: usize, entry: &AdminEntry) -> Result<(), Status> {
        let Abort { submission_queue: number, cid } = Abort::from_words(&entry.words);
        let pair =
            self.functions[function].pairs.get(usize::from(number).wrapping_sub(1)).and_then(Option::as_ref);
        let queue = pair.ok_or(Status::InvalidField)?.id;
        self.handle(Event::Abort { queue, cid });
        Ok(())
    }

    fn grant(&mut self, bus: &dyn Buses, function: usize, entry: &AdminEntry) -> Answer {
        let length = u64::from(entry.words[0]) | u64::from(entry.words[1]) << 32;
        let grants = entry.words[2];
        if grants & !(GRANT_READ | GRANT_WRITE) != 0 {
            return Err(Status::InvalidField);
        }
        let window = Window { address: entry.data_address, length };
        match self.functions[function].handles.grant(window, grants, own_memory(bus, function)) {
            Ok(handle) => Ok((handle, 0)),
            Err(Refusal::Place) => Err(Status::DataTransferError),
            Err(Refusal::Full) => Err(Status::OutOfResources),
        }
    }

    /// Releases a handle. The answer for a part that was lent comes when the SSD has ended what it does to the part's bytes, so that
    /// function 0 may give them to another then.
    fn release(&mut self, bus: &mut dyn Buses, function: usize, entry: &AdminEntry) -> Option<Answer> {
        let Some(target) = self.functions[function].handles.get(entry.words[0]) else {
            return Some(Err(Status::BadHandle));
        };
        let is_full = |admin: &Admin| admin.waiting > WAITING_MAX;
        if matches!(target, HandleTarget::Lent(..))
            && self.functions[function].admin.as_ref().is_some_and(is_full)
        {
            return Some(Err(Status::OutOfResources));
        }
        let mut awaited = None;
        match target {
            HandleTarget::Memory { .. } => {}
            HandleTarget::Listener(at, port) => self.networks[at].unlisten(port),
            HandleTarget::Flow(at, flow) => self.networks[at].release(bus, flow),
            HandleTarget::Datagrams(at, ends) => self.networks[at].close_datagrams(bus, ends),
            HandleTarget::Paced(at, stream) => {
                self.networks[at].set_now(self.now);
                self.networks[at].release_paced(bus, stream);
            }
            HandleTarget::Lent(to, number) => awaited = self.take_back(to, number),
            HandleTarget::Part(..) | HandleTarget::Gone => {}
            // A device stays with the card until the card is reset.
            HandleTarget::Ssd(_) | HandleTarget::Nic(_) => return Some(Err(Status::UnsupportedEndpoint)),
        }
        let function = &mut self.functions[function];
        function.handles.remove(entry.words[0]);
        match (awaited, &mut function.admin) {
            (Some(event), Some(admin)) => {
                admin.awaited.push((entry.cid, event));
                None
            }
            _ => Some(Ok((0, 0))),
        }
    }

    fn nic_of(&self, handle: u32) -> Result<usize, Status> {
        match self.functions[0].handles.get(handle) {
            Some(HandleTarget::Nic(at)) => Ok(at),
            _ => Err(Status::BadHandle),
        }
    }

    fn listen(&mut self, entry: &AdminEntry) -> Answer {
        let (at, port) = (self.nic_of(entry.words[0])?, entry.words[1] as u16);
        self.networks[at].listen(port)?;
        let handle = self.functions[0].handles.add(HandleTarget::Listener(at, port));
        if handle.is_none() {
            self.networks[at].unlisten(port);
        }
        Ok((handle.ok_or(Status::OutOfResources)?, 0))
    }

    fn accept(&mut self, entry: &AdminEntry) -> Option<Answer> {
        match self.functions[0].handles.get(entry.words[0]) {
            Some(HandleTarget::Listener(at, port)) => {
                self.networks[at].accept(port, entry.cid).err().map(Err)
            }
            Some(HandleTarget::Gone) => Some(Err(Status::DeviceReset)),
            _ => Some(Err(Status::BadHandle)),
        }
    }

    fn connect(&mut self, entry: &AdminEntry) -> Option<Answer> {
        let at = match self.nic_of(entry.words[0]) {
            Ok(at) => at,
            Err(status) => return Some(Err(status)),
        };
        let to = SocketAddrV4::new(Ipv4Addr::from_bits(entry.words[1]), entry.words[2] as u16);
        self.networks[at].connect(self.now, to, entry.cid).err().map(Err)
    }

    fn shutdown(&mut self, entry: &AdminEntry) -> Result<(), Status> {
        match self.functions[0].handles.get(entry.words[0]) {
            Some(HandleTarget::Flow(at, flow)) => self.networks[at].shutdown(flow),
            Some(HandleTarget::Gone) => return Err(Status::PeerReset),
            _ => return Err(Status::BadHandle),
        }
        Ok(())
    }

    fn open_datagrams(&mut self, bus: &mut dyn Buses, entry: &AdminEntry) -> Answer {
        let at = self.nic_of(entry.words[0])?;
        let (there, here) = (entry.words[2] as u16, (entry.words[2] >> 16) as u16);
        let ends = (here, SocketAddrV4::new(Ipv4Addr::from_bits(entry.words[1]), there));
        let payload = u16::try_from(entry.words[3]).map_err(|_| Status::InvalidField)?;
        self.networks[at].open_datagrams(ends, payload)?;
        let handle = self.functions[0].handles.add(HandleTarget::Datagrams(at, ends));
        if handle.is_none() {
            self.networks[at].close_datagrams(bus, ends);
        }
        Ok((handle.ok_or(Status::OutOfResources)?, 0))
    }

    fn open_paced(&mut self, bus: &mut dyn Buses, entry: &AdminEntry) -> Answer {
        let options = PacedOptions::of(entry).ok_or(Status::InvalidField)?;
        let at = self.nic_of(options.nic)?;
        self.networks[at].set_now(self.now);
        let stream = self.networks[at].open_paced(&options)?;
        let handle = self.functions[0].handles.add(HandleTarget::Paced(at, stream));
        if handle.is_none() {
            self.networks[at].release_paced(bus, stream);
        }
        Ok((handle.ok_or(Status::OutOfResources)?, 0))
    }

    /// Writes what a media stream has sent to the host's memory.
    fn paced_sending(&self, bus: &mut dyn Buses, entry: &AdminEntry) -> Result<(), Status> {
        let sending = match self.functions[0].handles.get(entry.words[0]) {
            Some(HandleTarget::Paced(at, stream)) => self.networks[at].sending(stream),
            Some(HandleTarget::Gone) => None,
            _ => return Err(Status::BadHandle),
        };
        let Sending { counts, errno } = sending.ok_or(Status::DeviceReset)?;
        let window = Window { address: entry.data_address, length: PacedSending::SIZE as u64 };
        if !self.functions[0].handles.any_allows(window, Access::Write) {
            return Err(Status::DataTransferError);
        }
        let sending = PacedSending {
            datagrams: counts.datagrams,
            bytes: counts.bytes,
            late: counts.late,
            lost: counts.lost,
            slips: counts.slips,
            slipped: counts.slipped,
            jumps: counts.jumps,
            skipped: counts.skipped,
            worst: counts.worst,
            deviations: counts.deviations,
            errno,
        };
        bus.write_host(0, window.address, &sending.to_bytes());
        Ok(())
    }

    fn dropped(&self, entry: &AdminEntry) -> Answer {
        let dropped = match self.functions[0].handles.get(entry.words[0]) {
            Some(HandleTarget::Datagrams(at, ends)) => self.networks[at].dropped_datagrams(ends),
            Some(HandleTarget::Gone) => None,
            _ => return Err(Status::BadHandle),
        };
        dropped.map(|count| (count as u32, 0)).ok_or(Status::PeerReset)
    }
}

/// Returns true if such a command may have to wait for a device or a peer.
fn may_wait(opcode: u8) -> bool {
    matches!(opcode, opcode::ATTACH_SSD | opcode::ATTACH_NIC | opcode::ACCEPT | opcode::CONNECT)
}
