//! Connections of a network: opening, accepting, releasing.

use super::{Network, NetworkAction};
use crate::bus::Bus;
use core::net::SocketAddrV4;
use dcs_abi::status::Status;
use dcs_engine::Nanos;
use dcs_net as net;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Listener {
    pub(super) accepted: VecDeque<net::Flow>,
    pub(super) waiting: VecDeque<u16>,
}

impl Network {
    /// Starts listening on a port.
    pub fn listen(&mut self, port: u16) -> Result<(), Status> {
        let stack = self.stack.as_mut().filter(|_| self.fresh).ok_or(Status::DeviceReset)?;
        stack.listen(port).map_err(|_| Status::InvalidField)?;
        self.listeners.insert(port, Listener::default());
        Ok(())
    }

    /// Stops listening. Connections that were not accepted are reset.
    pub fn unlisten(&mut self, port: u16) {
        let Some(listener) = self.listeners.remove(&port) else { return };
        if let Some(stack) = &mut self.stack {
            stack.unlisten(port);
            listener.accepted.iter().for_each(|flow| stack.abort(*flow));
        }
        for cid in listener.waiting {
            self.actions.push_back(NetworkAction::Connection(cid, Err(Status::Cancelled)));
        }
    }

    /// Reserves the next connection to a port for this admin command.
    pub fn accept(&mut self, port: u16, cid: u16) -> Result<(), Status> {
        let listener = self.listeners.get_mut(&port).ok_or(Status::DeviceReset)?;
        listener.waiting.push_back(cid);
        self.match_accepts(port);
        Ok(())
    }

    /// Opens a connection for this admin command.
    pub fn connect(&mut self, now: Nanos, to: SocketAddrV4, cid: u16) -> Result<(), Status> {
        let stack = self.stack.as_mut().filter(|_| self.fresh).ok_or(Status::DeviceReset)?;
        let flow = stack.connect(to, now).map_err(|error| match error {
            net::ConnectError::Unreachable(_) => Status::InvalidField,
            _ => Status::OutOfResources,
        })?;
        self.connecting.insert(flow, cid);
        Ok(())
    }

    /// Ends a connection's outgoing stream.
    pub fn shutdown(&mut self, name: net::Flow) {
        if let Some(stack) = &mut self.stack {
            stack.shutdown(name);
        }
        self.with(name, |flow, _| flow.shut = true);
    }

    /// Releases a connection. If the host has ended its stream, the rest is sent and the connection closed in the background, within a time
    /// limit; otherwise the connection is reset.
    pub fn release(&mut self, bus: &mut dyn Bus, name: net::Flow) {
        if let Some(stack) = &mut self.stack {
            stack.release(name, self.now);
        }
        self.with(name, |flow, _| flow.released = true);
        self.take_events(bus);
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.flows.len()
    }

    /// Returns true if there is such a connection.
    pub fn has(&self, flow: net::Flow) -> bool {
        self.flows.contains_key(&flow)
    }
}
