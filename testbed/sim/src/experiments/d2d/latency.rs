//! One packet from a NIC's wire to another NIC's: by D2D, and by descriptors with software between.

use crate::cpu::Component;
use crate::parameters::Parameters;
use dcs_d2d::driver::Send;
use dcs_d2d::uoe::Template;
use dcs_drivers::bus::{Bus, Region, Window};
use dcs_drivers::nic::{self, Frame, Model, State};
use dcs_engine::Nanos;
use dcs_fabric::nic::{Config, Family, Nic};
use dcs_fabric::{Event, Fabric, FunctionId, HOST, Rate, Timing, Wire, WireEnd, d2d};
use std::time::Duration;

/// Path of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Descriptor DMA to host memory; a process wakes up, receives and sends.
    Application,
    /// Descriptor DMA; the kernel routes it.
    Routed,
    /// Directly from NIC to NIC.
    D2d,
}

impl Design {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Design::Application => "descriptor DMA, a process between",
            Design::Routed => "descriptor DMA, routed by the kernel",
            Design::D2d => "D2D",
        }
    }
}

/// A packet's latency.
#[derive(Clone, Debug)]
pub struct Latency {
    /// Path of the packet.
    pub design: Design,
    /// Bytes of the frame.
    pub frame: usize,
    /// Time from its first bit on one wire to its last at the end of the other.
    pub total: Nanos,
    /// The same time by component.
    pub parts: Vec<(Component, Nanos)>,
}

/// Measures the second packet, so that descriptors are available.
///
/// # Panics
///
/// If a byte is wrong.
pub fn measure(parameters: Parameters, design: Design, frame: usize) -> Latency {
    let software = software(&parameters, design, frame);
    let total = match design {
        Design::D2d => by_d2d(&parameters, frame) + parameters.d2d_logic,
        Design::Application | Design::Routed => {
            by_descriptors(&parameters, frame, software.iter().map(|(_, time)| time).sum())
        }
    };
    let logic = if design == Design::D2d { parameters.d2d_logic } else { 0 };
    let wires = 2 * wire_time(&parameters, frame) + logic;
    let mut parts = software;
    let software: Nanos = parts.iter().map(|(_, time)| time).sum();
    parts.push((Component::Bus, total - wires - software));
    parts.push((Component::Network, wires));
    Latency { design, frame, total, parts }
}

/// Returns the steps of software between one NIC's descriptor and the other's.
pub(super) fn software(parameters: &Parameters, design: Design, frame: usize) -> Vec<(Component, Nanos)> {
    if design == Design::D2d {
        return Vec::new();
    }
    let mut parts = vec![(Component::Kernel, parameters.kernel_receive + parameters.kernel_send)];
    if design == Design::Application {
        parts.push((Component::Crossing, parameters.wake + parameters.syscall));
        parts.push((Component::Copy, 2 * frame as u64 * parameters.copy_ps / 1000));
    }
    parts
}

fn wire(parameters: &Parameters) -> Wire {
    Wire { rate: parameters.nic_rate, ..Wire::default() }
}

/// Returns a wire's time including preamble, check sequence and gap, as the wire model counts it.
fn wire_time(parameters: &Parameters, frame: usize) -> Nanos {
    let bits = (frame.max(60) as u64 + 24) * 8;
    bits * 1_000_000_000 / parameters.nic_rate + wire(parameters).delay.as_nanos() as u64
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn legacy(parameters: &Parameters) -> Nic {
    Nic::new(Config { rate: parameters.nic_rate, ..Config::new(Family::Igb, MAC) })
}

fn template(frame: usize) -> Template {
    Template {
        mac_destination: MAC,
        mac_source: [2, 0, 0, 0, 0, 9],
        tag: None,
        service: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
        source_port: 5004,
        destination_port: 5004,
        rtp: None,
        payload: (frame - 42) as u16,
    }
}

/// Returns a packet for the template's stream, without a UDP checksum.
fn packet(frame: usize, fill: u8) -> Vec<u8> {
    let length = (frame - 14) as u16;
    let mut ip = [0x4500, length, 0, 0, 0x4011, 0, 0x0a00, 1, 0x0a00, 2, 5004, 5004, length - 20, 0]
        .map(u16::to_be_bytes)
        .concat();
    let sum: u32 = ip[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = [&MAC[..], &[2, 0, 0, 0, 0, 9, 8, 0]].concat();
    packet.extend(ip);
    packet.resize(frame, fill);
    packet
}

/// Builds two NICs, with the ends of their wires.
fn machine(
    parameters: &Parameters,
    add: impl Fn(&mut Fabric) -> FunctionId,
) -> (Fabric, [FunctionId; 2], [WireEnd; 2]) {
    let mut fabric = Fabric::new(Timing::default(), 16 << 20, 1);
    let nics = [add(&mut fabric), add(&mut fabric)];
    let ends = nics.map(|nic| {
        fabric.set_bus_master(nic, true);
        fabric.connect(wire(parameters), [Some(nic), None])[1]
    });
    (fabric, nics, ends)
}

fn by_d2d(parameters: &Parameters, frame: usize) -> Nanos {
    let config = d2d::NicConfig { rate: parameters.nic_rate, ..d2d::NicConfig::new(1) };
    let (mut fabric, nics, wires) = machine(parameters, |fabric| {
        let nic = d2d::Nic::new(config, legacy(parameters)).expect("the set-up is sound");
        fabric.add_device("nic", Rate::GEN3_X8, nic)
    });
    let bar = fabric.device::<d2d::Nic<Nic>>(nics[0]).registers();
    fabric.run(Duration::from_millis(1));
    let ends = nics.map(|nic| d2d::D2dFunction::new(&mut fabric, nic, bar).expect("a D2D function"));
    for end in ends {
        end.write(&mut fabric, &end.layout.template(0, &template(frame)));
    }
    d2d::start(&mut fabric, (ends[0], 0), (ends[1], 0), &Send::default()).expect("it starts");
    let mut total = 0;
    for fill in [1, 2] {
        fabric.run(fabric.now() + Duration::from_millis(1));
        while fabric.step(Some(fabric.now())).is_some() {}
        let start = fabric.now();
        let sent = packet(frame, fill);
        fabric.send(wires[0], sent.clone());
        loop {
            match fabric.step(None) {
                Some(Event::Frame { end, bytes }) if end == wires[1] => {
                    assert_eq!(bytes[42..], sent[42..], "a byte was wrong");
                    break;
                }
                Some(_) => {}
                None => panic!("the packet is lost"),
            }
        }
        total = (fabric.now() - start).as_nanos() as u64;
    }
    total
}

/// The host: both NICs' drivers, and a packet that software is processing.
struct Host {
    fabric: Fabric,
    drivers: [nic::Nic; 2],
    /// Address for a packet to send.
    room: u64,
    software: Nanos,
    held: Option<Vec<u8>>,
}

impl Host {
    fn now(&self) -> Nanos {
        self.fabric.now().as_nanos() as u64
    }

    fn each(&mut self, with: impl Fn(&mut nic::Nic, &mut dyn Bus, Nanos)) {
        let now = self.now();
        for driver in &mut self.drivers {
            with(driver, &mut self.fabric.port(HOST), now);
        }
    }

    /// Takes received packets, and charges software's work.
    fn receive(&mut self) {
        self.each(|driver, bus, now| driver.poll(bus, now));
        for driver in &mut self.drivers {
            while driver.sent().is_some() {}
            let Some(received) = driver.received() else { continue };
            let mut bytes = Vec::new();
            for piece in received.pieces() {
                let mut part = vec![0; piece.length as usize];
                self.fabric.port(HOST).load(piece.offset, &mut part);
                bytes.extend(part);
            }
            driver.give_back(received);
            self.held = Some(bytes);
            self.fabric.port(HOST).wake(Duration::from_nanos(self.software), 0);
        }
    }

    /// Sends the packet that software has processed.
    fn forward(&mut self) {
        let bytes = self.held.take().expect("a packet");
        let now = self.now();
        let mut port = self.fabric.port(HOST);
        port.store(self.room, &bytes);
        let address = port.window().address + self.room;
        let data = [Window { address, length: bytes.len() as u64 }];
        self.drivers[1]
            .transmit(&mut port, now, 0, &Frame { data: &data, offload: None })
            .expect("the NIC takes it");
        self.drivers[1].ring(&mut port);
    }

    /// Runs to a frame at this end of a wire, or until the drivers are `ready`.
    fn run(&mut self, until: impl Fn(&Host) -> bool, end: WireEnd) -> Option<Vec<u8>> {
        while !until(self) {
            let deadline = self.drivers.iter().filter_map(nic::Nic::deadline).min();
            match self.fabric.step(deadline.map(Duration::from_nanos)) {
                Some(Event::Frame { end: at, bytes }) if at == end => return Some(bytes),
                Some(Event::Read { done, .. }) => {
                    let at = done.tag.controller() as usize;
                    let now = self.now();
                    self.drivers[at].read_done(&mut self.fabric.port(HOST), now, done);
                }
                Some(Event::Wake { .. }) => self.forward(),
                // A descriptor that was written back. (Data are longer, or do not complete one.)
                _ => self.receive(),
            }
        }
        None
    }
}

fn by_descriptors(parameters: &Parameters, frame: usize, software: Nanos) -> Nanos {
    let (fabric, nics, wires) =
        machine(parameters, |fabric| fabric.add_device("nic", Rate::GEN3_X8, legacy(parameters)));
    let mut memory = Region::whole(fabric.bar(HOST, 0));
    let room = memory.take(4096, 4096).expect("host memory is large").offset();
    let drivers = [0, 1].map(|at| {
        let config = nic::Config::new(fabric.bar(nics[at], 0), at as u32, Model::Igb);
        let region = memory.take(config.memory(), 4096).expect("host memory is large");
        nic::Nic::new(config, region).expect("the set-up is sound")
    });
    let mut host = Host { fabric, drivers, room, software, held: None };
    host.each(|driver, bus, now| driver.start(bus, now));
    let is_up =
        |host: &Host| host.drivers.iter().all(|driver| driver.state() == State::Ready && driver.link());
    host.run(is_up, wires[1]);
    let mut total = 0;
    for fill in [1, 2] {
        let (sent, start) = (packet(frame, fill), host.now());
        host.fabric.send(wires[0], sent.clone());
        let came = host.run(|_| false, wires[1]).expect("a frame");
        assert_eq!(came, sent, "a byte was wrong");
        total = host.now() - start;
    }
    total
}
