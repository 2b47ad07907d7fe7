//! Devices: files, stream sources, stream sinks, and dead ones.

use dcs_abi::descriptor::EndpointKind;
use dcs_abi::status::Status;
use dcs_engine::Failure;

/// A device's bytes and behaviour.
#[derive(Clone, Debug)]
pub enum Device {
    /// A file: bytes by position, up to a capacity.
    File { bytes: Vec<u8>, capacity: usize, flushes: u32 },
    /// A socket or pipe to read from, in pieces of random sizes. One that is open never ends: it has nothing
    /// more.
    Source { bytes: Vec<u8>, at: usize, open: bool, piece: usize },
    /// A socket to write to, which takes pieces. One that holds goes on reading a block after the write is
    /// done.
    Sink { bytes: Vec<u8>, piece: usize, holds: bool, more: Vec<bool> },
    /// A media stream: a datagram at a time, each this many nanoseconds after the one before. `idle`: the
    /// time between two of them for which it had nothing.
    Paced { bytes: Vec<u8>, datagram: usize, interval: u64, free: u64, idle: Vec<u64> },
    /// Takes operations and never answers them, unless they are aborted.
    Dead,
}

/// The result of a device.
pub type Answer = Result<usize, Failure>;

/// No space left on device.
pub const ENOSPC: u32 = 28;

impl Device {
    pub fn file(bytes: Vec<u8>) -> Device {
        Device::File { bytes, capacity: usize::MAX, flushes: 0 }
    }

    pub fn source(bytes: Vec<u8>, piece: usize) -> Device {
        Device::Source { bytes, at: 0, open: false, piece }
    }

    pub fn sink(piece: usize) -> Device {
        Device::Sink { bytes: Vec::new(), piece, holds: false, more: Vec::new() }
    }

    /// A datagram of this many bytes every this many nanoseconds.
    pub fn paced(datagram: usize, interval: u64) -> Device {
        Device::Paced { bytes: Vec::new(), datagram, interval, free: 0, idle: Vec::new() }
    }

    /// The time that a write which is issued now takes, where the device says.
    pub fn write_takes(&mut self, now: u64) -> Option<u64> {
        let Device::Paced { interval, free, idle, .. } = self else { return None };
        idle.extend((*free > 0).then(|| now.saturating_sub(*free)));
        *free = now.max(*free) + *interval;
        Some(*free - now)
    }

    /// True where an endpoint of that kind may name it.
    pub fn is(&self, kind: EndpointKind) -> bool {
        match self {
            Device::File { .. } => kind.is_positional(),
            Device::Source { .. } | Device::Sink { .. } => !kind.is_positional(),
            Device::Paced { .. } => kind == EndpointKind::Paced,
            Device::Dead => true,
        }
    }

    /// Its bytes now: of a source, those that have not been read.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Device::File { bytes, .. } | Device::Sink { bytes, .. } | Device::Paced { bytes, .. } => bytes,
            Device::Source { bytes, at, .. } => &bytes[*at..],
            Device::Dead => &[],
        }
    }

    /// True where an operation now gets no answer.
    pub fn hangs(&self) -> bool {
        match self {
            Device::Source { bytes, at, open, .. } => *open && *at == bytes.len(),
            Device::Dead => true,
            _ => false,
        }
    }

    /// Reads into `to`, at most `piece` bytes of it where it is a stream.
    pub fn read(&mut self, offset: u64, to: &mut [u8], piece: usize) -> Answer {
        match self {
            Device::File { bytes, .. } => {
                let from = (offset as usize).min(bytes.len());
                let count = to.len().min(bytes.len() - from);
                to[..count].copy_from_slice(&bytes[from..from + count]);
                Ok(count)
            }
            Device::Source { bytes, at, .. } => {
                let count = to.len().min(bytes.len() - *at).min(piece.max(1));
                to[..count].copy_from_slice(&bytes[*at..*at + count]);
                *at += count;
                Ok(count)
            }
            _ => Err(Failure::new(Status::ReadError)),
        }
    }

    /// Writes `from`, at most `piece` bytes of it where it is a stream.
    pub fn write(&mut self, offset: u64, from: &[u8], piece: usize, follows: bool) -> Answer {
        match self {
            Device::File { bytes, capacity, .. } => {
                let offset = offset as usize;
                let count = from.len().min(capacity.saturating_sub(offset));
                if count == 0 {
                    return Err(Failure { status: Status::CapacityExceeded, errno: ENOSPC });
                }
                bytes.resize(bytes.len().max(offset + count), 0);
                bytes[offset..offset + count].copy_from_slice(&from[..count]);
                Ok(count)
            }
            Device::Sink { bytes, more, .. } => {
                let count = from.len().min(piece.max(1));
                bytes.extend_from_slice(&from[..count]);
                more.push(follows);
                Ok(count)
            }
            Device::Paced { bytes, datagram, .. } => {
                let count = from.len().min(*datagram);
                bytes.extend_from_slice(&from[..count]);
                Ok(count)
            }
            _ => Err(Failure::new(Status::WriteError)),
        }
    }

    /// The largest piece that it moves at once.
    pub fn piece(&self) -> usize {
        match self {
            Device::Source { piece, .. } | Device::Sink { piece, .. } => *piece,
            Device::Paced { datagram, .. } => *datagram,
            _ => usize::MAX,
        }
    }
}
