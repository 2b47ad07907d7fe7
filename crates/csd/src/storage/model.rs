//! Volumes in memory and in virtual time, for tests and experiments.
//!
//! A volume has a volatile cache: written data are safe only after a flush, or if the write was durable.
//! [`ModelStorage::lose_power`] reverts the others.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::{Action, Data, Request, Response, Storage, VolumeError, VolumeId, VolumeInfo};

/// Bytes whose safety is tracked together.
const PIECE: usize = 64 << 10;

/// Volumes in memory.
#[derive(Debug, Default)]
pub struct ModelStorage {
    volumes: Vec<Volume>,
    waiting: VecDeque<(u64, Request)>,
    now: u64,
    latency: u64,
    errors: VecDeque<VolumeError>,
}

#[derive(Debug)]
struct Volume {
    /// The data as reads return them.
    current: Vec<u8>,
    /// The data that remain after a loss of power.
    safe: Vec<u8>,
    /// Pieces of `PIECE` bytes in which the two may differ.
    dirty: BTreeSet<usize>,
    alignment: u64,
}

impl Volume {
    fn touch(&mut self, range: Range<usize>) {
        self.dirty.extend(range.start / PIECE..range.end.div_ceil(PIECE));
    }

    /// Makes all data safe.
    fn keep(&mut self) {
        for piece in std::mem::take(&mut self.dirty) {
            let range = piece * PIECE..((piece + 1) * PIECE).min(self.current.len());
            self.safe[range.clone()].copy_from_slice(&self.current[range]);
        }
    }

    /// Discards data that are not safe.
    fn lose(&mut self) {
        for piece in std::mem::take(&mut self.dirty) {
            let range = piece * PIECE..((piece + 1) * PIECE).min(self.current.len());
            self.current[range.clone()].copy_from_slice(&self.safe[range]);
        }
    }
}

impl ModelStorage {
    /// Makes it without volumes. Requests are answered `latency` nanoseconds of virtual time later.
    pub fn new(latency: u64) -> ModelStorage {
        ModelStorage { latency, ..ModelStorage::default() }
    }

    /// Adds a volume of `length` zero bytes, whose offsets and lengths are multiples of `alignment`.
    pub fn add(&mut self, length: usize, alignment: u64) -> VolumeId {
        let (current, safe) = (vec![0; length], vec![0; length]);
        self.volumes.push(Volume { current, safe, dirty: BTreeSet::new(), alignment });
        VolumeId(self.volumes.len() as u32 - 1)
    }

    /// Advances virtual time to `now`, in nanoseconds.
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Returns the time of the next answer.
    pub fn deadline(&self) -> Option<u64> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// Makes the next request fail.
    pub fn fail_next(&mut self, error: VolumeError) {
        self.errors.push_back(error);
    }

    /// Loses power: drops requests in progress without doing them, and discards data that are not safe.
    pub fn lose_power(&mut self) {
        self.waiting.clear();
        for volume in &mut self.volumes {
            volume.lose();
        }
    }

    /// Returns the bytes of a volume.
    pub fn bytes(&self, volume: VolumeId) -> &[u8] {
        self.volumes.get(volume.0 as usize).map_or(&[], |volume| &volume.current)
    }

    /// The same, mutably, without the knowledge of its users.
    pub fn bytes_mut(&mut self, volume: VolumeId) -> &mut [u8] {
        self.volumes.get_mut(volume.0 as usize).map_or(&mut [], |volume| {
            volume.touch(0..volume.current.len());
            &mut volume.current
        })
    }

    fn perform(&mut self, request: &mut Request) -> Result<(), VolumeError> {
        if let Some(error) = self.errors.pop_front() {
            return Err(error);
        }
        let volume = self.volumes.get_mut(request.volume.0 as usize).ok_or(VolumeError::Refused)?;
        let aligned = (request.offset | request.length).is_multiple_of(volume.alignment);
        let start = usize::try_from(request.offset).map_err(|_| VolumeError::Refused)?;
        let length = usize::try_from(request.length).map_err(|_| VolumeError::Refused)?;
        let range = start..start.checked_add(length).ok_or(VolumeError::Refused)?;
        let held = volume.current.get_mut(range.clone()).filter(|_| aligned).ok_or(VolumeError::Refused)?;
        let durable = match request.action {
            Action::Read => {
                fill(&mut request.data, held);
                return Ok(());
            }
            Action::Flush => {
                volume.keep();
                return Ok(());
            }
            Action::Write { durable } => {
                take(&request.data, held);
                durable
            }
            Action::Zero { durable, .. } => {
                held.fill(0);
                durable
            }
            Action::Deallocate => {
                held.fill(0);
                false
            }
        };
        match durable {
            true => volume.safe[range.clone()].copy_from_slice(&volume.current[range]),
            false => volume.touch(range),
        }
        Ok(())
    }
}

/// Copies to a request's data.
fn fill(data: &mut Data, mut from: &[u8]) {
    match data {
        Data::None => {}
        Data::Buffer(buffer) => buffer.bytes_mut().copy_from_slice(from),
        Data::Pieces(pieces) => {
            for piece in pieces {
                let (part, rest) = from.split_at(piece.length());
                piece.store(part);
                from = rest;
            }
        }
    }
}

/// Copies from a request's data.
fn take(data: &Data, mut to: &mut [u8]) {
    match data {
        Data::None => {}
        Data::Buffer(buffer) => to.copy_from_slice(buffer.bytes()),
        Data::Pieces(pieces) => {
            for piece in pieces {
                let (part, rest) = std::mem::take(&mut to).split_at_mut(piece.length());
                piece.load(part);
                to = rest;
            }
        }
    }
}

impl Storage for ModelStorage {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        let held = self.volumes.get(volume.0 as usize)?;
        Some(VolumeInfo {
            length: held.current.len() as u64,
            alignment: held.alignment,
            memory_alignment: held.alignment,
            volatile_cache: true,
            thin: true,
            takes_hints: false,
            read_only: false,
            writes_zeros: false,
        })
    }

    fn submit(&mut self, request: Request) {
        self.waiting.push_back((self.now + self.latency, request));
    }

    fn commit(&mut self) {}

    fn reap(&mut self, responses: &mut Vec<Response>) {
        while let Some((_, mut request)) = self.waiting.pop_front_if(|(due, _)| *due <= self.now) {
            let result = self.perform(&mut request);
            responses.push(Response { ticket: request.ticket, data: request.data, result, written: 0 });
        }
    }
}
