//! Transactions: the path of a write or read from requester to target. They are split at pages, translated, routed, timed,
//! counted.

use dcs_drivers::bus::BusError;

use crate::count::Record;
use crate::event::{Part, Pending, Target};
use crate::fabric::{Fabric, FunctionId, HOST, Requester, Split};
use crate::fault::{Fault, Operation};
use crate::iommu::{PAGE, Refused};
use crate::link::{Ps, to_ps};

/// A request within a page.
struct Request {
    from: FunctionId,
    address: u64,
    length: u64,
    write: bool,
    /// Delay until it arrives.
    delay: Ps,
}

/// The target of a request.
enum Route {
    To(Target),
    /// The requester lacks permission, and is told at once.
    Forbidden,
    /// No function has the address.
    Nobody,
}

impl Fabric {
    /// Issues a memory write by a function. A write that is not permitted vanishes.
    pub(crate) fn issue_write(&mut self, from: FunctionId, address: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for (address, length) in pages(address, bytes.len() as u64) {
            let (piece, left) = rest.split_at(length as usize);
            rest = left;
            let mut request = Request { from, address, length, write: true, delay: 0 };
            match self.meet_fault(&mut request) {
                Some(Fault::DropTransaction | Fault::AbortTransaction) => continue,
                _ => self.send_write(&request, piece),
            }
        }
    }

    fn send_write(&mut self, request: &Request, bytes: &[u8]) {
        let from = request.from;
        let Route::To(to) = self.route(request) else { return };
        let at = self.travel(from, to.function, self.now, request.length) + request.delay;
        let at = at.max(self.functions[from.0].posted);
        self.functions[from.0].posted = at;
        self.schedule(at, Pending::Write { by: from, to, bytes: bytes.to_vec() });
    }

    /// Issues a memory read by a function.
    pub(crate) fn issue_read(&mut self, from: FunctionId, address: u64, length: u64, asker: Requester) {
        let read = self.next_read;
        self.next_read += 1;
        let parts: Vec<(u64, u64)> = pages(address, length).collect();
        // An empty read becomes one of zero bytes, which is answered like any other.
        let parts = if parts.is_empty() { vec![(address, 0)] } else { parts };
        let data = vec![0; length as usize];
        self.reads.insert(read, Split { function: from, asker, data, left: parts.len(), error: None });
        let mut at = 0;
        for (address, length) in parts {
            let deadline = self.now + to_ps(self.timing.completion_timeout);
            let part = Part { read, at, length, deadline };
            at += length;
            let mut request = Request { from, address, length, write: false, delay: 0 };
            match self.meet_fault(&mut request) {
                Some(Fault::DropTransaction) => {
                    self.schedule(deadline, Pending::Answer { part, data: Err(BusError::Timeout) });
                }
                Some(Fault::AbortTransaction) => {
                    let at = self.now + 2 * to_ps(self.timing.hop);
                    self.schedule(at, Pending::Answer { part, data: Err(BusError::Aborted) });
                }
                _ => self.send_request(&request, part),
            }
        }
    }

    fn send_request(&mut self, request: &Request, part: Part) {
        let from = request.from;
        let start = self.now + request.delay;
        match self.route(request) {
            Route::To(to) => {
                let at = self.travel(from, to.function, self.now, 0) + request.delay;
                if at > part.deadline {
                    let data = Err(BusError::Timeout);
                    return self.schedule(part.deadline, Pending::Answer { part, data });
                }
                // A request that waits behind writes has not been sent yet: its timeout begins later.
                let at = at.max(self.functions[from.0].posted);
                self.schedule(at, Pending::Request { to, length: request.length, part });
            }
            Route::Forbidden => {
                self.schedule(start, Pending::Answer { part, data: Err(BusError::Unsupported) });
            }
            Route::Nobody => {
                let at = start + 2 * to_ps(self.timing.hop);
                self.schedule(at, Pending::Answer { part, data: Err(BusError::Unsupported) });
            }
        }
    }

    /// Sends the answer to a request back to the requester. It pushes the target's writes before it.
    pub(crate) fn complete(&mut self, target: FunctionId, part: Part, data: Result<Vec<u8>, BusError>) {
        let Some(split) = self.reads.get(&part.read) else { return };
        let start = self.now;
        let length = data.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let at = self.travel(target, split.function, start, length).max(self.functions[target.0].posted);
        self.schedule(at, Pending::Answer { part, data });
    }

    /// Returns the fault at a request, if any. Faults that change the request do so here.
    fn meet_fault(&mut self, request: &mut Request) -> Option<Fault> {
        let Request { from, address, length, write, .. } = *request;
        let operation =
            if write { Operation::Write { address, length } } else { Operation::Read { address, length } };
        let fault = self.functions[from.0].faults.strike(&operation);
        match fault {
            Some(Fault::DelayTransaction(time)) => request.delay = to_ps(time),
            Some(Fault::MisdirectTransaction(offset)) => request.address = address.wrapping_add(offset),
            Some(other) => self.break_function(from, other),
            None => {}
        }
        fault
    }

    /// Finds the request's target; counts and records it.
    fn route(&mut self, request: &Request) -> Route {
        let route = self.look_up(request);
        let at = self.now();
        if let Some(records) = &mut self.records {
            let Request { from, address, length, write, .. } = *request;
            let to = if let Route::To(place) = &route { Some(place.function) } else { None };
            records.push(Record { at, from, to, address, length, write });
        }
        route
    }

    fn look_up(&mut self, request: &Request) -> Route {
        let Request { from, address, length, write, .. } = *request;
        let requester = &mut self.functions[from.0];
        if requester.removed || !requester.bus_master {
            return Route::Forbidden;
        }
        let address = match &requester.iommu {
            None => address,
            Some(iommu) => match iommu.translate(address, length, write) {
                Some(address) => address,
                None => {
                    requester.refused.push(Refused { address, length, write });
                    return Route::Forbidden;
                }
            },
        };
        for (window, traffic) in &mut self.meters {
            if window.contains(address, length) {
                traffic.count(write, length);
            }
        }
        match self.find(address, length) {
            Some(to) => {
                self.traffic.entry((from, to.function)).or_default().count(write, length);
                Route::To(to)
            }
            None => {
                self.unclaimed += 1;
                Route::Nobody
            }
        }
    }

    fn find(&self, address: u64, length: u64) -> Option<Target> {
        let functions = self.functions.iter().enumerate();
        let mut bars = functions.flat_map(|(function, state)| {
            state.bars.iter().enumerate().map(move |(bar, held)| (FunctionId(function), bar, held.window))
        });
        let (function, bar, window) = bars.find(|(.., window)| window.contains(address, length))?;
        let there = function == HOST || self.reachable(function);
        there.then(|| Target { function, bar, offset: address - window.address })
    }

    /// Returns the arrival time of something that starts at `start`: over the requester's link, the switch, and the target's
    /// link.
    pub(crate) fn travel(&mut self, from: FunctionId, to: FunctionId, start: Ps, payload: u64) -> Ps {
        let timing = self.timing;
        let at_switch = self.functions[from.0].link.send_up(&timing, start, payload);
        self.functions[to.0].link.send_down(&timing, at_switch, payload)
    }
}

/// Splits a range at pages.
fn pages(address: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
    let (mut at, mut left) = (address, length);
    std::iter::from_fn(move || {
        let piece = left.min(PAGE - at % PAGE);
        let found = (at, piece);
        at = at.wrapping_add(piece);
        left -= piece;
        (piece > 0).then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cross_no_page() {
        let found: Vec<_> = pages(4000, 8300).collect();
        assert_eq!(found, [(4000, 96), (4096, 4096), (8192, 4096), (12288, 12)]);
        assert_eq!(pages(4096, 0).count(), 0);
    }
}
