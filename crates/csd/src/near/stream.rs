//! Streams: a chain over ranges of a namespace whose output several commands take.
//!
//! One command opens a stream: its buffer has the operators and the ranges. Others take as much of the output
//! as they have room for, or drop it if only digests are wanted. Each ends after a bounded part of the
//! source, so that none exceeds a driver's timeout. So a file that has many pieces, begins and ends inside
//! blocks, and is larger than any transfer, passes one chain.

use dcs_nvme::Status;

use super::NearStorage;
use super::flow::Flow;

/// Maximum number of streams of one controller. Opening another closes the one that has been unused for
/// longest: its owner may have been killed.
pub const STREAMS: usize = 64;

/// Time after which an unused stream's memory may go to others, in nanoseconds.
const ABANDONED: u64 = 10_000_000_000;

/// The lowest bits of a stream's number are its place, from 1; the others distinguish it from the streams
/// that had the place before.
const PLACE: u16 = 0x7f;

/// A stream between its commands.
pub(super) enum Stream {
    Free,
    /// No command works on it.
    Idle(Box<Flow>, Used),
    Busy,
}

/// Time of a stream's last use by the port's clock, and the count of all uses by then.
pub(super) type Used = (u64, u64);

impl NearStorage {
    /// Keeps a stream, and returns its number, from 1; `None` if all have commands at work.
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

    /// Returns the last use and the place of the idle stream that has been unused for longest.
    fn oldest(&self) -> Option<(Used, usize)> {
        let idle = |(place, stream): (usize, &Stream)| match stream {
            Stream::Idle(_, used) => Some((*used, place)),
            _ => None,
        };
        self.streams.iter().enumerate().filter_map(idle).min()
    }

    /// Closes the stream that has been unused for longest, if its owner may have been killed by then.
    pub(super) fn close_abandoned(&mut self, now: u64) -> bool {
        let oldest = self.oldest().filter(|((since, _), _)| now.saturating_sub(*since) >= ABANDONED);
        oldest.is_some_and(|(_, place)| {
            let oldest = std::mem::replace(&mut self.streams[place], Stream::Free);
            self.forget(oldest);
            true
        })
    }

    /// Drops a stream that has lost its place.
    pub(super) fn forget(&mut self, stream: Stream) {
        if let Stream::Idle(flow, _) = stream {
            self.discard(flow);
        }
    }

    /// Returns `None` if the stream with this number was closed, or replaced by another.
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

    /// Returns a stream on which no command works.
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

    /// Gives the stream back at the end of the command.
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

    /// Closes a stream.
    pub(super) fn close(&mut self, number: u16) -> Result<(), Status> {
        let closed = std::mem::replace(self.stream(number)?, Stream::Free);
        self.forget(closed);
        Ok(())
    }
}
