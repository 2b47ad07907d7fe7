//! Streams: a chain over ranges of a namespace whose output is taken by several commands.
//!
//! One command opens a stream: its buffer has the operators and the ranges. Others take what comes out, as
//! much as they have room for, or drop it, where digests alone are wanted; each ends within a bounded part of
//! the source, so that none outlasts a driver's patience. So a file that lies in many pieces, begins and ends
//! amid blocks, and is larger than any transfer, passes one chain.

use dcs_nvme::Status;

use super::NearStorage;
use super::flow::Flow;

/// Streams that one controller keeps at most. Where another one is opened, the one that nobody has used for
/// longest goes: its owner may have been killed.
pub const STREAMS: usize = 64;

/// A stream that nobody has used for so long, in nanoseconds, gives its memory to others that need it.
const ABANDONED: u64 = 10_000_000_000;

/// A stream's number has its place, from 1 on, in these bits; those above tell its owner from that of the one
/// before it.
const PLACE: u16 = 0x7f;

/// A stream between its commands.
pub(super) enum Stream {
    Free,
    /// No command is at work on it.
    Idle(Box<Flow>, Used),
    Busy,
}

/// When a stream was last used: by the port's clock, and after how many uses of others.
pub(super) type Used = (u64, u64);

impl NearStorage {
    /// Keeps a stream; its number, from 1 on. None where all have commands at work.
    pub(super) fn open(&mut self, flow: Box<Flow>, now: u64) -> Option<u16> {
        let free = self.streams.iter().position(|stream| matches!(stream, Stream::Free));
        let place = match free {
            Some(place) => place,
            None if self.streams.len() < STREAMS => {
                self.streams.push(Stream::Free);
                self.streams.len() - 1
            }
            None => self.oldest()?.1,
        };
        self.uses += 1;
        let before = std::mem::replace(&mut self.streams[place], Stream::Idle(flow, (now, self.uses)));
        self.forget(before);
        self.opened = self.opened.wrapping_add(PLACE + 1);
        let number = self.opened | (place as u16 + 1);
        self.stream_numbers.resize(self.streams.len().max(self.stream_numbers.len()), 0);
        self.stream_numbers[place] = number;
        Some(number)
    }

    /// The idle stream that nobody has used for longest: when it was used, and its place.
    fn oldest(&self) -> Option<(Used, usize)> {
        let idle = |(place, stream): (usize, &Stream)| match stream {
            Stream::Idle(_, used) => Some((*used, place)),
            _ => None,
        };
        self.streams.iter().enumerate().filter_map(idle).min()
    }

    /// Closes the stream that nobody has used for longest, where that is so long that its owner may have been killed.
    pub(super) fn close_abandoned(&mut self, now: u64) -> bool {
        let oldest = self.oldest().filter(|((since, _), _)| now.saturating_sub(*since) >= ABANDONED);
        oldest.is_some_and(|(_, place)| {
            let oldest = std::mem::replace(&mut self.streams[place], Stream::Free);
            self.forget(oldest);
            true
        })
    }

    /// Lets go of a stream that has lost its place.
    pub(super) fn forget(&mut self, stream: Stream) {
        if let Stream::Idle(flow, _) = stream {
            self.discard(flow);
        }
    }

    /// None where the stream of this number was closed, or gone for another one.
    fn place_of_stream(&self, number: u16) -> Option<usize> {
        let place = usize::from(number & PLACE).checked_sub(1)?;
        (self.stream_numbers.get(place) == Some(&number)).then_some(place)
    }

    fn stream(&mut self, number: u16) -> Result<&mut Stream, Status> {
        let place = self.place_of_stream(number).ok_or(Status::INVALID_FIELD)?;
        match self.streams.get_mut(place) {
            None | Some(Stream::Free) => Err(Status::INVALID_FIELD),
            Some(Stream::Busy) => Err(Status::SEQUENCE_ERROR),
            Some(stream) => Ok(stream),
        }
    }

    /// A stream that no command is at work on.
    pub(super) fn idle(&mut self, number: u16) -> Result<&Flow, Status> {
        match self.stream(number)? {
            Stream::Idle(flow, _) => Ok(flow),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Takes a stream for a command.
    pub(super) fn take_stream(&mut self, number: u16) -> Result<Box<Flow>, Status> {
        match std::mem::replace(self.stream(number)?, Stream::Busy) {
            Stream::Idle(flow, _) => Ok(flow),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// The command has ended.
    pub(super) fn give_stream(&mut self, number: u16, flow: Box<Flow>, now: u64) {
        self.uses += 1;
        if let Some(place) = self.place_of_stream(number)
            && let Some(stream @ Stream::Busy) = self.streams.get_mut(place)
        {
            *stream = Stream::Idle(flow, (now, self.uses));
        } else {
            self.discard(flow);
        }
    }

    /// Forgets a stream.
    pub(super) fn close(&mut self, number: u16) -> Result<(), Status> {
        let closed = std::mem::replace(self.stream(number)?, Stream::Free);
        self.forget(closed);
        Ok(())
    }
}
