//! Requests under way, each in pieces.

use crate::storage::{Action, Data, Request, Response, Ticket, VolumeError};

/// A request under way.
pub(super) struct InProgress {
    ticket: Ticket,
    pub action: Action,
    pub data: Data,
    pieces: u32,
    result: Result<(), VolumeError>,
}

/// A piece of a request: its first byte in the request and in the SSD's namespace, and its length.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub request: u32,
    pub at: u64,
    pub position: u64,
    pub length: u64,
}

/// All requests, and the answers to those that have ended.
#[derive(Default)]
pub(super) struct Requests {
    held: Vec<InProgress>,
    free: Vec<u32>,
    pub done: Vec<Response>,
}

impl Requests {
    /// Returns true if there are requests, or answers that were not taken.
    pub fn is_busy(&self) -> bool {
        self.held.len() > self.free.len() || !self.done.is_empty()
    }

    /// Returns the number that the next request gets.
    pub fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.held.len() as u32)
    }

    /// Takes a request of so many pieces, under the [next](Requests::next) number. One without any is answered.
    pub fn add(&mut self, request: Request, pieces: u32) {
        let index = self.free.pop().unwrap_or(self.held.len() as u32);
        let Request { ticket, action, data, .. } = request;
        let held = InProgress { ticket, action, data, pieces, result: Ok(()) };
        match self.held.get_mut(index as usize) {
            Some(place) => *place = held,
            None => self.held.push(held),
        }
        if pieces == 0 {
            self.end(index);
        }
    }

    /// Returns the request of a piece.
    pub fn of(&mut self, piece: Piece) -> &mut InProgress {
        &mut self.held[piece.request as usize]
    }

    fn end(&mut self, request: u32) {
        let held = &mut self.held[request as usize];
        let data = std::mem::take(&mut held.data);
        self.done.push(Response { ticket: held.ticket, data, result: held.result, written: 0 });
        self.free.push(request);
    }

    /// Ends a piece, and its request with the last one.
    pub fn end_piece(&mut self, piece: Piece, result: Result<(), VolumeError>) {
        let held = self.of(piece);
        held.result = held.result.and(result);
        held.pieces -= 1;
        if held.pieces == 0 {
            self.end(piece.request);
        }
    }
}

impl Data {
    /// Copies the request's bytes from `at` on; zeros if it has none.
    pub(super) fn load_at(&self, mut at: usize, mut bytes: &mut [u8]) {
        match self {
            Data::None => bytes.fill(0),
            Data::Buffer(buffer) => bytes.copy_from_slice(&buffer.bytes()[at..at + bytes.len()]),
            Data::Pieces(pieces) => {
                for piece in pieces {
                    let skip = at.min(piece.length());
                    let length = (piece.length() - skip).min(bytes.len());
                    let (part, rest) = std::mem::take(&mut bytes).split_at_mut(length);
                    piece.load_at(skip, part);
                    (at, bytes) = (at - skip, rest);
                }
            }
        }
    }

    /// Copies bytes to the request's memory, from its byte `at` on.
    pub(super) fn store_at(&mut self, mut at: usize, mut bytes: &[u8]) {
        match self {
            Data::None => {}
            Data::Buffer(buffer) => buffer.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes),
            Data::Pieces(pieces) => {
                for piece in pieces {
                    let skip = at.min(piece.length());
                    let (part, rest) = bytes.split_at((piece.length() - skip).min(bytes.len()));
                    piece.store_at(skip, part);
                    (at, bytes) = (at - skip, rest);
                }
            }
        }
    }
}
