//! A network's datagrams: endpoints of transfers, each for a local port and a peer's port.
//!
//! The stack cuts blocks into datagrams. They go at the pace at which the NIC takes frames, and are done when the NIC has sent them. A
//! datagram lost after that is lost silently.

use super::Network;
use super::datagrams::{Datagrams, Read};
use crate::bus::Bus;
use core::net::SocketAddrV4;
use dcs_abi::status::Status;
use dcs_engine::{CommandId, DeviceEvent, Failure, OperationId, Outcome};
use dcs_net::{Chunk, Piece, SendError};
use std::collections::{BTreeMap, HashMap};

/// errno if nothing answers at the address of the peer or the gateway (EHOSTUNREACH).
const UNREACHABLE: u32 = 113;

/// Most endpoints of one NIC.
const ENDPOINTS: usize = 256;

/// Most datagrams held for all of them.
const DATAGRAMS_MAX: usize = 1024;

/// A local port, and the peer's address and port.
pub type Ends = (u16, SocketAddrV4);

/// The datagram endpoints of a network.
#[derive(Debug, Default)]
pub(super) struct Udp {
    endpoints: BTreeMap<Ends, Datagrams>,
    /// Blocks that are being sent.
    writes: HashMap<u64, Write>,
}

#[derive(Debug)]
struct Write {
    ends: Ends,
    operation: OperationId,
    length: u32,
    /// Reason why not all of it will be sent.
    failure: Option<Failure>,
}

impl Udp {
    fn is_open(&self, port: u16) -> bool {
        self.endpoints.range((port, LOWEST)..).next().is_some_and(|(ends, _)| ends.0 == port)
    }
}

/// Lowest peer in the order of addresses.
const LOWEST: SocketAddrV4 = SocketAddrV4::new(core::net::Ipv4Addr::UNSPECIFIED, 0);

impl Network {
    /// Opens datagrams between a port and a peer; `payload`: bytes of each datagram that is sent, 0 for as many as fit.
    pub fn open_datagrams(&mut self, ends: Ends, payload: u16) -> Result<(), Status> {
        let stack = self.stack.as_mut().filter(|_| self.fresh).ok_or(Status::DeviceReset)?;
        let most = stack.datagram_max();
        let (port, peer) = ends;
        let sound = port > 0 && peer.port() > 0 && stack.has_route(*peer.ip()) && payload <= most;
        if !sound || self.udp.endpoints.contains_key(&ends) {
            return Err(Status::InvalidField);
        }
        if self.udp.endpoints.len() == ENDPOINTS {
            return Err(Status::OutOfResources);
        }
        if !self.udp.is_open(port) {
            stack.open_udp(port).map_err(|_| Status::InvalidField)?;
        }
        let payload = if payload == 0 { most } else { payload };
        self.udp.endpoints.insert(ends, Datagrams::new(payload, self.path));
        Ok(())
    }

    /// Closes an endpoint: datagrams that wait to be sent are dropped, and reads fail.
    pub fn close_datagrams(&mut self, bus: &mut dyn Bus, ends: Ends) {
        let Some(mut datagrams) = self.udp.endpoints.remove(&ends) else { return };
        datagrams.close(&mut self.events);
        let of_it = self.udp.writes.iter().filter(|(_, write)| write.ends == ends);
        for token in of_it.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.recall(token, Status::PeerReset);
        }
        if let Some(stack) = self.stack.as_mut().filter(|_| !self.udp.is_open(ends.0)) {
            stack.close_udp(ends.0);
        }
        self.take_events(bus);
    }

    /// Closes all endpoints.
    pub(super) fn close_all_datagrams(&mut self, bus: &mut dyn Bus) {
        for ends in self.udp.endpoints.keys().copied().collect::<Vec<_>>() {
            self.close_datagrams(bus, ends);
        }
    }

    /// Returns true if the endpoint is open.
    pub fn has_datagrams(&self, ends: Ends) -> bool {
        self.udp.endpoints.contains_key(&ends)
    }

    /// Returns the number of datagrams dropped for lack of room; `None` if there is no such endpoint.
    pub fn dropped_datagrams(&self, ends: Ends) -> Option<u64> {
        self.udp.endpoints.get(&ends).map(|datagrams| datagrams.dropped)
    }

    /// Reads from an endpoint.
    pub fn read_datagrams(&mut self, bus: &mut dyn Bus, ends: Ends, read: Read) {
        match self.udp.endpoints.get_mut(&ends) {
            Some(datagrams) => {
                datagrams.read(read);
                datagrams.settle(bus, &mut self.events);
            }
            None => self.fail(read.operation, Status::PeerReset),
        }
    }

    /// Sends a block's bytes.
    pub fn write_datagrams(&mut self, ends: Ends, operation: OperationId, piece: Piece) {
        let (Some(stack), Some(datagrams)) = (self.stack.as_mut(), self.udp.endpoints.get(&ends)) else {
            return self.fail(operation, Status::PeerReset);
        };
        self.next_token += 1;
        let chunk = Chunk { piece, block: self.next_token, more: false };
        match stack.send_datagrams(ends.0, ends.1, chunk, datagrams.payload) {
            Ok(()) => {
                let write = Write { ends, operation, length: piece.length, failure: None };
                self.udp.writes.insert(chunk.block, write);
            }
            Err(SendError::Full) => self.fail(operation, Status::OutOfResources),
            Err(_) => self.fail(operation, Status::PeerReset),
        }
    }

    /// Processes a datagram that has arrived at an open port.
    pub(super) fn datagram(&mut self, bus: &mut dyn Bus, ends: Ends, piece: Piece) {
        let room = self.udp.endpoints.values().map(Datagrams::held).sum::<usize>() < DATAGRAMS_MAX;
        let Some(datagrams) = self.udp.endpoints.get_mut(&ends) else { return };
        let mut bytes = vec![0; piece.length as usize];
        bus.load(piece.offset, &mut bytes);
        // A datagram without bytes adds none.
        if !bytes.is_empty() {
            datagrams.arrived(bytes, room);
            datagrams.settle(bus, &mut self.events);
        }
    }

    /// Notes that not all of a block will be sent, for a known reason or because there is no route.
    pub(super) fn unsent(&mut self, token: u64) {
        if let Some(write) = self.udp.writes.get_mut(&token) {
            let failure = Failure { status: Status::WriteError, errno: UNREACHABLE };
            write.failure.get_or_insert(failure);
        }
    }

    /// Ends a write: the NIC has sent everything that it was given of its block.
    pub(super) fn datagrams_sent(&mut self, token: u64) {
        let Some(write) = self.udp.writes.remove(&token) else { return };
        let all = Outcome::Moved { bytes: write.length.into(), path: self.path, held: false };
        self.events.push_back(DeviceEvent::Done(write.operation, write.failure.map_or(all, Outcome::Failed)));
    }

    /// Aborts an operation; returns false if there is none. Frames that the NIC has are still sent.
    pub(super) fn abort_datagrams(&mut self, operation: OperationId) -> bool {
        let events = &mut self.events;
        if self.udp.endpoints.values_mut().any(|datagrams| datagrams.abort(operation, events)) {
            return true;
        }
        let token = self.udp.writes.iter().find(|(_, write)| write.operation == operation);
        let Some(token) = token.map(|(token, _)| *token) else { return false };
        self.recall(token, Status::Cancelled);
        true
    }

    fn recall(&mut self, token: u64, status: Status) {
        if let (Some(stack), Some(write)) = (&mut self.stack, self.udp.writes.get_mut(&token))
            && stack.recall(write.ends.0, write.ends.1, token)
        {
            write.failure = Some(Failure::new(status));
        }
    }

    /// Ends a command's turn.
    pub fn forget_command(&mut self, bus: &mut dyn Bus, ends: Ends, command: CommandId) {
        if let Some(datagrams) = self.udp.endpoints.get_mut(&ends) {
            datagrams.forget(command);
            datagrams.settle(bus, &mut self.events);
        }
    }
}
