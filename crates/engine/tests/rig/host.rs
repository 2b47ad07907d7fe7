//! The host's side: rings and descriptors in memory, submissions, completions.

use super::Rig;
use super::short::Core;
use dcs_abi::descriptor::{Builder, DESCRIPTOR_MAX, Endpoint, EndpointKind, EndpointRole, Extent, Plain};
use dcs_abi::entry::{CompletionEntry, FLAG_INLINE, LENGTH_TO_END, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::inline::InlineEntry;
use dcs_abi::operator::Operator;
use dcs_abi::result::ResultArea;
use dcs_engine::{Event, Nanos, QueueConfig, QueueId};
use std::collections::BTreeMap;

/// Memory by bus address.
#[derive(Debug, Default)]
pub struct Memory {
    pieces: BTreeMap<u64, Vec<u8>>,
    end: u64,
}

impl Memory {
    /// Puts bytes somewhere; tells where.
    pub fn place(&mut self, bytes: Vec<u8>) -> u64 {
        let address = self.end + 0x1000;
        self.end = address + bytes.len() as u64;
        self.pieces.insert(address, bytes);
        address
    }

    pub fn read(&self, address: u64, length: u32) -> Option<&[u8]> {
        self.pieces.get(&address)?.get(..length as usize)
    }

    pub fn remove(&mut self, address: u64) {
        self.pieces.remove(&address);
    }
}

/// The host's view of a queue pair.
#[derive(Debug)]
pub struct Queue {
    pub config: QueueConfig,
    pub ring: Vec<[u8; 64]>,
    pub tail: u16,
    /// Entries that the engine was given, all told.
    pub fetched: u64,
    /// When the last of the fetches under way comes.
    pub fetch_at: Nanos,
    /// Completions by slot; each is checked for its phase bit when it is written.
    pub completions: Vec<Option<CompletionEntry>>,
    pub expected_slot: u16,
    pub expected_phase: bool,
    pub head: u16,
    pub next_cid: u16,
    /// Command identifiers in flight, with their tickets: more than one where the host reuses one too early.
    pub in_flight: Vec<(u16, usize)>,
}

impl Queue {
    pub fn new(config: QueueConfig) -> Queue {
        Queue {
            config,
            ring: vec![[0; 64]; config.depth as usize],
            tail: 0,
            fetched: 0,
            fetch_at: 0,
            completions: vec![None; config.depth as usize],
            expected_slot: 0,
            expected_phase: true,
            head: 0,
            next_cid: 0,
            in_flight: Vec::new(),
        }
    }
}

/// An endpoint of a transfer.
#[derive(Clone, Debug)]
pub struct End {
    pub kind: EndpointKind,
    pub handle: u32,
    pub extents: Vec<Extent>,
}

impl End {
    pub fn stream(handle: u32) -> End {
        End { kind: EndpointKind::Flow, handle, extents: Vec::new() }
    }

    pub fn paced(handle: u32) -> End {
        End { kind: EndpointKind::Paced, handle, extents: Vec::new() }
    }

    pub fn file(handle: u32, extents: &[(u64, u64)]) -> End {
        let extents = extents.iter().map(|(offset, length)| Extent { offset: *offset, length: *length });
        End { kind: EndpointKind::File, handle, extents: extents.collect() }
    }

    pub fn memory(handle: u32, length: u64) -> End {
        End { kind: EndpointKind::Memory, ..End::file(handle, &[(0, length)]) }
    }
}

/// A chain: operators with their parameters.
pub type Chain = Vec<(Operator, Vec<u8>)>;

/// A command.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub prefix: Option<End>,
    pub source: End,
    pub destination: End,
    pub chain: Chain,
    pub length: u64,
    pub rid: u32,
    pub timeout_ms: u32,
    pub flags: u16,
}

impl Transfer {
    pub fn new(source: End, destination: End) -> Transfer {
        let (prefix, chain, length) = (None, Chain::new(), LENGTH_TO_END);
        Transfer { prefix, source, destination, chain, length, rid: 0, timeout_ms: 0, flags: 0 }
    }

    pub fn chain(self, chain: &[(Operator, &[u8])]) -> Transfer {
        let chain = chain.iter().map(|(operator, parameter)| (*operator, parameter.to_vec())).collect();
        Transfer { chain, ..self }
    }

    fn endpoint(&self, role: EndpointRole, end: &End) -> Endpoint {
        // Nobody writes to a file of the rig that is read, but a command to itself.
        let immutable = role == EndpointRole::Source
            && end.kind == EndpointKind::File
            && end.handle != self.destination.handle;
        Endpoint {
            kind: end.kind as u8,
            handle: end.handle,
            immutable: immutable.into(),
            ..Default::default()
        }
    }

    /// Its ends, where they have one extent at most, and operators no parameters.
    fn plain(&self) -> Option<Plain> {
        let end = |role, end: &End| {
            let single = end.extents.len() <= 1;
            single.then(|| (self.endpoint(role, end), end.extents.first().copied()))
        };
        let plain = self.prefix.is_none() && self.chain.iter().all(|(_, parameter)| parameter.is_empty());
        plain.then_some(Plain {
            source: end(EndpointRole::Source, &self.source)?,
            destination: end(EndpointRole::Destination, &self.destination)?,
        })
    }

    fn descriptor(&self) -> Vec<u8> {
        let mut bytes = vec![0; DESCRIPTOR_MAX];
        let mut builder = Builder::new(&mut bytes).expect("a header fits");
        let ends = [
            (EndpointRole::Prefix, self.prefix.as_ref()),
            (EndpointRole::Source, Some(&self.source)),
            (EndpointRole::Destination, Some(&self.destination)),
        ];
        for (role, end) in ends {
            let Some(end) = end else { continue };
            builder.endpoint(role, self.endpoint(role, end), &end.extents).expect("the extents fit");
        }
        for (at, (_, parameter)) in self.chain.iter().enumerate() {
            builder.parameter(at, parameter).expect("the parameters fit");
        }
        let length = builder.finish();
        bytes.truncate(length);
        bytes
    }
}

/// A command that was submitted.
#[derive(Debug)]
pub struct Submitted {
    pub queue: QueueId,
    pub cid: u16,
    pub transfer: Option<Transfer>,
    /// Its source's bytes when it was submitted.
    pub input: Vec<u8>,
    /// The bytes that its destination held already, where it is a stream.
    pub already: usize,
    pub result_address: u64,
    pub done: Option<Completed>,
    /// Its queue was deleted when there was no room for its completion.
    pub excused: bool,
}

impl Submitted {
    pub fn is_owed(&self) -> bool {
        self.done.is_none() && !self.excused
    }
}

/// Its end.
#[derive(Clone, Debug)]
pub struct Completed {
    pub entry: CompletionEntry,
    pub result: Option<ResultArea>,
    pub at: Nanos,
    /// Commands that were completed before it.
    pub order: usize,
}

impl<E: Core> Rig<E> {
    /// Submits a transfer.
    pub fn submit(&mut self, queue: QueueId, transfer: &Transfer) -> usize {
        let descriptor = transfer.descriptor();
        let mut op_chain = [0; 8];
        for (slot, (operator, _)) in op_chain.iter_mut().zip(&transfer.chain) {
            *slot = *operator as u8;
        }
        let entry = SubmissionEntry {
            opcode: OPCODE_TRANSFER,
            rid: transfer.rid,
            descriptor_length: descriptor.len() as u32,
            descriptor_address: self.memory.place(descriptor),
            op_chain,
            length: transfer.length,
            timeout_ms: transfer.timeout_ms,
            flags: transfer.flags,
            ..Default::default()
        };
        let ticket = match transfer.plain().filter(|_| self.random.one_in(2)) {
            Some(plain) => self.submit_either(queue, entry, &plain),
            None => self.submit_entry(queue, entry),
        };
        let input = self.input_of(transfer);
        let already = self.device_of(&transfer.destination).map_or(0, |device| device.bytes().len());
        let submitted = &mut self.submitted[ticket];
        (submitted.input, submitted.already) = (input, already);
        submitted.transfer = Some(transfer.clone());
        self.ring_doorbell(queue);
        ticket
    }

    /// Submits a Cancel.
    pub fn cancel(&mut self, queue: QueueId, target: usize) -> usize {
        let (sq_id, cid) = (self.submitted[target].queue.0, self.submitted[target].cid);
        let ticket = self.submit_entry(queue, SubmissionEntry::cancel(0, sq_id, cid));
        self.ring_doorbell(queue);
        ticket
    }

    /// Writes an entry into the ring, with a command identifier and an address for its result; no doorbell
    /// yet.
    pub fn submit_entry(&mut self, queue: QueueId, mut entry: SubmissionEntry) -> usize {
        (entry.cid, entry.result_address) = self.identify(queue);
        self.submit_raw(queue, entry.to_bytes(), entry.result_address)
    }

    /// As [`Rig::submit_entry`], without a descriptor where that can be.
    fn submit_either(&mut self, queue: QueueId, mut entry: SubmissionEntry, plain: &Plain) -> usize {
        let Some(_) = InlineEntry::new(&entry, plain) else { return self.submit_entry(queue, entry) };
        self.memory.remove(entry.descriptor_address);
        self.inlined += 1;
        (entry.cid, entry.result_address) = self.identify(queue);
        let inline = InlineEntry::new(&entry, plain).expect("it could be before it had a name");
        self.submit_raw(queue, inline.to_bytes(), entry.result_address)
    }

    /// A command identifier that is free, and an address for a result.
    fn identify(&mut self, queue: QueueId) -> (u16, u64) {
        let state = self.queues.get_mut(&queue).expect("a queue of this rig");
        while state.in_flight.iter().any(|(cid, _)| *cid == state.next_cid) {
            state.next_cid = state.next_cid.wrapping_add(1);
        }
        let cid = state.next_cid;
        state.next_cid = cid.wrapping_add(1);
        (cid, self.memory.place(vec![0; ResultArea::SIZE]))
    }

    /// Writes 64 bytes into the ring; no doorbell yet.
    pub fn submit_raw(&mut self, queue: QueueId, bytes: [u8; 64], result_address: u64) -> usize {
        let ticket = self.submitted.len();
        let state = self.queues.get_mut(&queue).expect("a queue of this rig");
        let depth = u64::from(state.config.depth);
        let unread = (u64::from(state.tail) + depth - state.fetched % depth) % depth;
        assert!(unread + 1 < depth, "the test overruns its ring");
        state.ring[state.tail as usize] = bytes;
        state.tail = (state.tail + 1) % state.config.depth;
        let cid = u16::from_le_bytes([bytes[2], bytes[3]]);
        state.in_flight.push((cid, ticket));
        let (input, excused) = (Vec::new(), false);
        let (transfer, already, done) = (None, 0, None);
        let submitted = Submitted { queue, cid, transfer, input, already, result_address, done, excused };
        self.submitted.push(submitted);
        ticket
    }

    /// Changes the entry that was submitted last, and its descriptor, before either is fetched.
    pub fn change_last(&mut self, queue: QueueId, change: impl FnOnce(&mut [u8; 64], &mut [u8])) {
        let state = self.queues.get_mut(&queue).expect("a queue of this rig");
        let depth = state.config.depth;
        let entry = &mut state.ring[usize::from((state.tail + depth - 1) % depth)];
        let is_inline = u16::from_le_bytes([entry[60], entry[61]]) & FLAG_INLINE != 0;
        let address = u64::from_le_bytes(core::array::from_fn(|at| entry[24 + at]));
        match self.memory.pieces.get_mut(&address) {
            Some(descriptor) if !is_inline => change(entry, descriptor),
            _ => change(entry, &mut []),
        }
    }

    pub fn ring_doorbell(&mut self, queue: QueueId) {
        let tail = u32::from(self.queues[&queue].tail);
        self.tell(Event::SubmissionDoorbell { queue, tail });
    }

    /// Takes a completion that the engine wrote: right slot, right phase, of a command in flight.
    pub fn on_completion(
        &mut self,
        queue: QueueId,
        slot: u16,
        entry: CompletionEntry,
        result: Option<(u64, Box<ResultArea>)>,
    ) {
        let order = self.submitted.iter().filter(|command| command.done.is_some()).count();
        let state = self.queues.get_mut(&queue).expect("a queue of this rig");
        assert_eq!(slot, state.expected_slot, "completions come slot by slot");
        assert_eq!(entry.phase(), state.expected_phase, "the phase bit turns with each round");
        let next = (slot + 1) % state.config.depth;
        assert_ne!(next, state.head, "no slot is written that the host has not read");
        assert_eq!(u64::from(entry.sq_head), state.fetched % u64::from(state.config.depth));
        assert_eq!(entry.sq_id, queue.0);
        state.expected_slot = next;
        state.expected_phase ^= next == 0;
        state.completions[slot as usize] = Some(entry);
        // Where an identifier is in flight twice, the later command is the one that is refused first.
        let at = state.in_flight.iter().rposition(|(cid, _)| *cid == entry.cid);
        let (_, ticket) = state.in_flight.remove(at.expect("each command is completed once"));
        let command = &mut self.submitted[ticket];
        if let Some((address, result)) = &result {
            assert_eq!(*address, command.result_address, "the result goes where it was asked for");
            assert_eq!(result.status << 1, entry.status & !1);
            assert_eq!((result.stage, result.stage_index), (entry.stage, entry.stage_index));
        }
        let result = result.map(|(_, result)| *result);
        command.done = Some(Completed { entry, result, at: self.now, order });
    }

    /// Reads all completions that are there, and tells the engine.
    pub fn consume(&mut self, queue: QueueId) {
        let Some(state) = self.queues.get_mut(&queue) else { return };
        while state.completions[state.head as usize].take().is_some() {
            state.head = (state.head + 1) % state.config.depth;
        }
        let head = u32::from(state.head);
        self.engine.handle(self.now, Event::CompletionDoorbell { queue, head });
    }

    fn device_of(&self, end: &End) -> Option<&super::device::Device> {
        self.devices.get(end.handle as usize)
    }

    /// All bytes that a transfer would read now.
    fn input_of(&self, transfer: &Transfer) -> Vec<u8> {
        let mut input = Vec::new();
        for end in transfer.prefix.iter().chain([&transfer.source]) {
            let Some(device) = self.device_of(end) else { continue };
            if !end.kind.is_positional() {
                input.extend_from_slice(device.bytes());
            }
            for extent in &end.extents {
                let bytes = device.bytes().iter().skip(extent.offset as usize).take(extent.length as usize);
                input.extend(bytes);
            }
        }
        input.truncate(usize::try_from(transfer.length).unwrap_or(usize::MAX));
        input
    }
}
