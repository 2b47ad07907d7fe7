//! A command's slot beside the core: what is told of its transfer as it is checked, its digests, and what is written when it ends.

use crate::model::{self, EXTENTS, OPERATORS};
use dcs_abi::CHAIN_MAX;
use dcs_abi::descriptor::{EndpointKind, Extent, Pace, Pacing};
use dcs_abi::entry::CompletionEntry;
use dcs_abi::operator::Operator;
use dcs_abi::result::{DigestSlot, ResultArea, ResultPacket};
use dcs_engine::{EndpointSpec, Nanos, OperatorSpec, TransferSpec};

/// Words of a completion entry, and where it goes.
#[derive(Clone, Copy, Debug, Default)]
struct Posting {
    words: [Option<u64>; 2],
    queue: u16,
    slot: u16,
}

/// A completion: queue, slot, entry, and the result with its address.
type End = (u16, u16, CompletionEntry, Option<(u64, Box<ResultArea>)>);

/// A slot.
#[derive(Debug)]
pub struct Slot {
    pub generation: u32,
    /// When its time may be over, at the earliest.
    pub due: Option<Nanos>,
    extents: [Extent; EXTENTS as usize],
    parameters: [Box<[u8]>; CHAIN_MAX],
    digests: [[u64; DigestSlot::SIZE / 8]; CHAIN_MAX],
    result: Option<(u64, ResultPacket<[u8; ResultArea::SIZE]>)>,
    posting: Posting,
}

impl Slot {
    pub fn new() -> Slot {
        Slot {
            generation: 0,
            due: None,
            extents: Default::default(),
            parameters: Default::default(),
            digests: Default::default(),
            result: None,
            posting: Posting::default(),
        }
    }

    /// Another command has it.
    pub fn begin(&mut self) {
        let generation = self.generation.wrapping_add(1);
        *self = Slot { generation, ..Slot::new() };
    }

    pub fn extent(&mut self, index: u64, bits: [u32; 4]) {
        let model::Extent { offset, length } = model::Extent::unpack(bits);
        self.extents[index as usize] = Extent { offset, length };
    }

    /// A word of an operator's parameter block of so many bytes.
    pub fn parameter(&mut self, at: u64, index: u64, word: u64, bytes: u64) {
        let block = &mut self.parameters[at as usize];
        if index == 0 {
            *block = vec![0; bytes as usize].into();
        }
        let start = (index as usize * 8).min(block.len());
        let end = (start + 8).min(block.len());
        block[start..end].copy_from_slice(&word.to_le_bytes()[..end - start]);
    }

    /// The transfer that was checked. Parameter blocks may be keys: no copy of them stays here.
    pub fn spec(&mut self, transfer: &model::Transfer) -> TransferSpec {
        let counts = [transfer.prefix, transfer.source, transfer.destination].map(|count| count as usize);
        let (prefix, rest) = self.extents.split_at(counts[0]);
        let (source, rest) = rest.split_at(counts[1]);
        let end = |kind: u64, handle: u64, extents: &[Extent]| EndpointSpec {
            kind: EndpointKind::from_number(kind as u8).unwrap_or_default(),
            handle: handle as u32,
            extents: extents.to_vec(),
            ..EndpointSpec::default()
        };
        let memory = EndpointKind::Memory as u64;
        let prefix = (counts[0] > 0).then(|| end(memory, transfer.prefix_handle, prefix));
        let source = end(transfer.source_kind, transfer.source_handle, source);
        let mut destination = end(transfer.destination_kind, transfer.destination_handle, &rest[..counts[2]]);
        destination.pace = Pace {
            pacing: Pacing::from_number(transfer.pacing as u8).unwrap_or_default(),
            rate: transfer.rate,
            window_us: transfer.window_us as u32,
        };
        let chain = (0..transfer.operators as usize)
            .map(|at| {
                let pool = transfer.chain >> (3 * at) & 7;
                OperatorSpec::new(operator(pool), std::mem::take(&mut self.parameters[at]))
            })
            .collect();
        let length = transfer.length;
        let [durable, acknowledged, more] =
            [transfer.durable, transfer.acknowledged, transfer.more].map(|flag| flag != 0);
        TransferSpec { prefix, source, destination, chain, length, durable, acknowledged, more }
    }

    pub fn set_digest(&mut self, at: u8, slot: &DigestSlot) {
        let bytes = slot.to_bytes();
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        self.digests[at as usize].iter_mut().zip(words).for_each(|(place, word)| *place = word);
    }

    pub fn digest(&self, at: u64, index: u64) -> u64 {
        self.digests[at as usize][index as usize]
    }

    /// A word of its result area: the first one says where that is.
    pub fn write_result(&mut self, address: u64, word: u64) {
        let (base, packet) = self.result.get_or_insert((address, ResultPacket::ZERO));
        let at = address.wrapping_sub(*base) as usize;
        packet.bytes_mut()[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// A word of its completion entry.
    pub fn write_entry(&mut self, queue: u16, slot: u16, index: usize, word: u64) {
        self.posting.words[index] = Some(word);
        (self.posting.queue, self.posting.slot) = (queue, slot);
    }

    /// It is over: its completion, with queue and slot; nothing where the entry was not written.
    pub fn end(&mut self) -> Option<End> {
        let Posting { words, queue, slot } = std::mem::take(&mut self.posting);
        let result = self.result.take();
        self.due = None;
        let words = [words[0]?, words[1]?];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        // Whichever phase it has.
        let entry = CompletionEntry::if_new(&bytes, words[1] >> 48 & 1 == 1).ok().flatten()?;
        let result =
            result.and_then(|(address, packet)| Some((address, Box::new(ResultArea::parse(&packet).ok()?))));
        Some((queue, slot, entry, result))
    }
}

/// The operator of a pool.
pub fn operator(pool: u64) -> Operator {
    let number = OPERATORS[pool as usize];
    Operator::from_number(number).expect("the core has operators of the command set")
}
