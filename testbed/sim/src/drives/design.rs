//! The designs, and their steps for one request.

use super::machine::{Build, Drives, Machine, encrypt};
use super::parameters::{Operator, Timings};
use super::steps::{Disk, Steps};
use crate::executor::{Executor, Handle};
use crate::parameters::Parameters;
use dcs_drivers::bus::Bus;
use dcs_fabric::HOST;

/// A design (FlexCSV, figures 4, 9 and 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Design {
    /// No guest: a process of the host uses the engine.
    Native,
    /// Paravirtual SSD and FPGA.
    Software,
    /// A virtual function of the SSD, and a paravirtual FPGA.
    Optimised,
    /// The engine in the hypervisor: one command from the guest, data from SSD to FPGA.
    SoftwareEngine,
    /// The engine in the card, a virtual function for each guest, and requests through the guest's storage stack.
    FlexCsv,
    /// The same engine, with requests through the stock driver's character device, past the storage stack, as those of `dcs` in a
    /// guest (docs/csd.md).
    Passthrough,
}

impl Design {
    /// Designs with guests.
    pub const VIRTUAL: [Design; 5] =
        [Design::Software, Design::Optimised, Design::SoftwareEngine, Design::FlexCsv, Design::Passthrough];

    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Design::Native => "native",
            Design::Software => "paravirtual SSD, FPGA",
            Design::Optimised => "SSD by SR-IOV",
            Design::SoftwareEngine => "software FCSV-Engine",
            Design::FlexCsv => "FlexCSV",
            Design::Passthrough => "FlexCSV by passthrough",
        }
    }

    /// Returns the part that drives the SSDs.
    pub fn drives(self) -> Drives {
        if matches!(self, Design::FlexCsv | Design::Passthrough | Design::Native) {
            Drives::Card
        } else {
            Drives::Host
        }
    }
}

/// A near-storage request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Position to read from; `None`: the block is in the card's memory.
    pub from: Option<u64>,
    /// Operator; `None` for plain I/O.
    pub operator: Option<Operator>,
    /// Position to write the result to; `None` to drop it.
    pub to: Option<u64>,
    /// Length in bytes.
    pub length: u64,
}

/// A machine with a running design.
pub struct Server {
    /// The executor of its programs.
    pub executor: Executor<Machine>,
    design: Design,
}

/// Memory and threads for a guest's requests, one for each command that it has in flight.
#[derive(Clone)]
pub struct Place {
    steps: Steps,
    design: Design,
    ssd: usize,
}

impl Server {
    /// Returns a server of this design.
    pub fn new(design: Design, build: Build) -> Server {
        assert_eq!(build.drives, design.drives());
        Server { executor: Executor::new(Machine::new(build)), design }
    }

    /// Returns the usual server of this design.
    pub fn usual(design: Design, parameters: Parameters, timings: Timings) -> Server {
        Server::new(design, Build::new(parameters, timings, design.drives()))
    }

    /// Returns the machine.
    pub fn handle(&self) -> Handle<Machine> {
        self.executor.handle()
    }

    /// Returns a place for a guest's requests of up to this many bytes, on an SSD.
    pub fn place(&self, guest: u16, ssd: usize, length: u64) -> Place {
        let handle = self.executor.handle();
        let steps = handle.with(|machine| {
            let mut take = |place: usize, length| {
                machine.memory[place].take(length, 4096).expect("memory is large").offset()
            };
            Steps {
                handle: handle.clone(),
                vcpu: machine.cpu.thread(),
                iothread: machine.cpu.thread(),
                guest,
                buffer: take(0, length),
                on_card: take(1, length),
                completion: take(0, 4096),
                doorbell: take(1, 4096),
            }
        });
        Place { steps, design: self.design, ssd }
    }
}

impl Place {
    /// Runs one request with the design's steps, and compares every byte.
    ///
    /// # Panics
    ///
    /// If a byte is wrong.
    pub async fn run(&self, request: Request) {
        let steps = &self.steps;
        match self.design {
            Design::Native => {
                steps.host_submits().await;
                self.by_engine(request).await;
                steps.host_completes().await;
            }
            Design::FlexCsv => {
                steps.guest_submits().await;
                self.by_engine(request).await;
                steps.injects().await;
                steps.guest_completes().await;
            }
            Design::Passthrough => {
                steps.guest_calls(true).await;
                self.by_engine(request).await;
                steps.injects().await;
                steps.guest_calls(false).await;
            }
            Design::SoftwareEngine => {
                steps.guest_submits().await;
                steps.exits().await;
                self.by_hypervisor(request).await;
                steps.answers().await;
                steps.guest_completes().await;
            }
            Design::Software | Design::Optimised => self.by_guest(request).await,
        }
        if let (Some(from), Some(to)) = (request.from, request.to) {
            self.compare(from, to, request);
        }
    }

    fn disk(&self, writes: bool, position: u64, length: u64) -> Disk {
        Disk { ssd: self.ssd, writes, position, length }
    }

    /// Runs a request in the card's engine: one command.
    async fn by_engine(&self, request: Request) {
        let steps = &self.steps;
        let Request { from, operator, to, length } = request;
        steps.engine_fetches().await;
        // Plain I/O goes between the SSD and the guest's memory; other data pass through the card's memory.
        let data = if operator.is_some() { steps.card_address() } else { steps.buffer };
        if let Some(from) = from {
            steps.disk(self.disk(false, from, length), data).await;
            self.arrived(operator.is_some(), from, length);
        }
        if let Some(operator) = operator {
            steps.operate(operator, length).await;
        }
        if let Some(to) = to {
            steps.disk(self.disk(true, to, length), data).await;
        }
        steps.engine_completes().await;
    }

    /// Runs a request in the hypervisor's engine: the host's software is between SSD and slot, data move directly between
    /// devices.
    async fn by_hypervisor(&self, request: Request) {
        let steps = &self.steps;
        let Request { from, operator, to, length } = request;
        let data = if operator.is_some() { steps.card_address() } else { steps.buffer };
        if let Some(from) = from {
            steps.host_disk(self.disk(false, from, length), data).await;
            self.arrived(operator.is_some(), from, length);
        }
        if let Some(operator) = operator {
            steps.host_operates(operator, length).await;
        }
        if let Some(to) = to {
            steps.host_disk(self.disk(true, to, length), data).await;
        }
    }

    /// Runs a request step by step from the guest: SSD, FPGA, SSD.
    async fn by_guest(&self, request: Request) {
        let steps = &self.steps;
        let Request { from, operator, to, length } = request;
        if let Some(from) = from {
            self.guest_disk(self.disk(false, from, length)).await;
            self.arrived(false, from, length);
        }
        if let Some(operator) = operator {
            steps.guest_calls(true).await;
            steps.guest_copies(length).await;
            steps.exits().await;
            steps.host_moves(length, true).await;
            if let Some(from) = from {
                self.arrived(true, from, length);
            }
            steps.host_operates(operator, length).await;
            steps.host_moves(length, false).await;
            steps.answers().await;
            steps.guest_calls(false).await;
            steps.guest_copies(length).await;
        }
        if let Some(to) = to {
            self.guest_disk(self.disk(true, to, length)).await;
        }
    }

    async fn guest_disk(&self, disk: Disk) {
        let steps = &self.steps;
        steps.guest_submits().await;
        if self.design == Design::Optimised {
            steps.disk(disk, steps.buffer).await;
            steps.injects().await;
        } else {
            steps.exits().await;
            steps.host_disk(disk, steps.buffer).await;
            steps.answers().await;
        }
        steps.guest_completes().await;
    }

    /// Checks that data from the SSD equal its contents.
    fn arrived(&self, on_card: bool, from: u64, length: u64) {
        let steps = &self.steps;
        steps.handle.with(|machine| {
            let mut bytes = vec![0; length as usize];
            let (function, place) =
                if on_card { (machine.card, steps.on_card) } else { (HOST, steps.buffer) };
            machine.fabric.port(function).load(place, &mut bytes);
            assert!(machine.pattern.is(from, &bytes), "a wrong byte came from the SSD");
        });
    }

    /// Checks that data written to the SSD are the operator's result for the data read.
    fn compare(&self, from: u64, to: u64, request: Request) {
        self.steps.handle.with(|machine| {
            let mut expected = machine.pattern.bytes(from, request.length as usize);
            if matches!(request.operator, Some(Operator::Encryption | Operator::Decryption)) {
                encrypt(&mut expected);
            }
            let mut bytes = vec![0; expected.len()];
            machine.ssds[self.ssd].namespace.load(to, &mut bytes);
            assert!(bytes == expected, "a wrong byte was written to the SSD");
        });
    }
}

impl Place {
    /// Reads the SSD into host memory by the host's software, without a guest.
    pub async fn host_reads(&self, length: u64) {
        self.steps.host_disk(self.disk(false, 0, length), self.steps.buffer).await;
    }

    /// Reads the SSD into the card's memory by the card.
    pub async fn card_reads(&self, length: u64) {
        self.steps.disk(self.disk(false, 0, length), self.steps.card_address()).await;
    }
}
