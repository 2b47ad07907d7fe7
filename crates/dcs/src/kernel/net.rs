//! Requests to the NIC that the engine drives itself: they are a card's admin commands, so that
//! [`net`](crate::net) is the same on both.

use super::KernelLoop;
use dcs_abi::admin::{AdminEntry, Answer, PacedOptions, opcode};
use dcs_abi::status::Status;
use dcs_devices::vfio_devices::NicRequest;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::mpsc::Sender;

/// Requests to the NIC that wait for an answer, by ticket.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: HashMap<u16, Sender<Answer>>,
    last: u16,
}

impl Requests {
    /// Takes a free ticket.
    fn ticket(&mut self) -> Option<u16> {
        let free = (1..=u16::MAX).map(|ahead| self.last.wrapping_add(ahead));
        self.last = free.into_iter().find(|ticket| !self.waiting.contains_key(ticket))?;
        Some(self.last)
    }
}

/// The request of an admin command, where a NIC can carry it out.
fn ask(entry: &AdminEntry) -> Option<NicRequest> {
    let [first, second, third] = [entry.words[0], entry.words[1], entry.words[2]];
    match entry.opcode {
        opcode::LISTEN => Some(NicRequest::Listen(second as u16)),
        opcode::ACCEPT => Some(NicRequest::Accept(first)),
        opcode::CONNECT => {
            Some(NicRequest::Connect(SocketAddrV4::new(Ipv4Addr::from_bits(second), third as u16)))
        }
        opcode::SHUTDOWN => Some(NicRequest::Shutdown(first)),
        opcode::RELEASE => Some(NicRequest::Release(first)),
        opcode::OPEN_PACED => PacedOptions::of(entry).map(NicRequest::OpenPaced),
        _ => None,
    }
}

impl KernelLoop {
    /// Carries out an admin command; it is answered now or later.
    pub(super) fn admin(&mut self, entry: &AdminEntry, answer: Sender<Answer>) {
        let answered = match (ask(entry), self.requests.ticket()) {
            (None, _) => Some(Err(Status::UnsupportedEndpoint)),
            (_, None) => Some(Err(Status::OutOfResources)),
            (Some(ask), Some(ticket)) => match self.controller.ask(ticket, ask) {
                Some(now) => Some(now),
                None => {
                    self.requests.waiting.insert(ticket, answer.clone());
                    None
                }
            },
        };
        if let Some(now) = answered {
            // An error: nothing waits for the answer.
            let _ = answer.send(now);
        }
    }

    /// Hands on the NIC's answer.
    pub(super) fn answered(&mut self, ticket: u16, answer: Answer) {
        let handle = answer.map(|(handle, _)| handle);
        let wanted = self.requests.waiting.remove(&ticket).is_some_and(|waits| waits.send(answer).is_ok());
        // A connection that nothing waits for any more.
        if let (false, Ok(handle)) = (wanted, handle) {
            let _ = self.controller.ask(0, NicRequest::Release(handle));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_nobody_else_s() {
        let mut requests = Requests { last: u16::MAX - 1, ..Requests::default() };
        for taken in [u16::MAX, 0, 1] {
            requests.waiting.insert(taken, std::sync::mpsc::channel().0);
        }
        assert_eq!(requests.ticket(), Some(2));
        assert_eq!(requests.ticket(), Some(3));
    }

    #[test]
    fn what_is_asked_is_what_the_card_s_commands_say() {
        let entry = |opcode, words| AdminEntry { opcode, words, ..Default::default() };
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 2), 9000);
        let connect = entry(opcode::CONNECT, [0, to.ip().to_bits(), 9000, 0, 0, 0]);
        assert_eq!(ask(&connect), Some(NicRequest::Connect(to)));
        assert_eq!(ask(&entry(opcode::LISTEN, [0, 80, 0, 0, 0, 0])), Some(NicRequest::Listen(80)));
        assert_eq!(ask(&entry(opcode::ACCEPT, [7, 0, 0, 0, 0, 0])), Some(NicRequest::Accept(7)));
        assert_eq!(ask(&entry(opcode::DATAGRAMS, [0; 6])), None);
    }
}
