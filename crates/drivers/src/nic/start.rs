//! Resets a NIC, sets it up, watches its link, and recovers it when it hangs.

use super::config::{Config, Layout, ResetCause};
use super::descriptor;
use super::host::{Nic, Sent};
use super::lend::Lending;
use super::model::{Format, bit, register, ring};
use crate::bus::{Bus, BusError};
use crate::nvme::Memory;
use dcs_engine::Nanos;

/// A stage of the start or stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Off,
    /// Reading STATUS, to see whether anything answers.
    Probing,
    /// Stopping bus mastering; waiting for STATUS to confirm it.
    Quiescing,
    /// Waiting for CTRL.RST = 0.
    Resetting,
    /// Reading RAL.
    AddressLow,
    /// Reading RAH.
    AddressHigh,
    /// Waiting for the receive ring to be on.
    ReceiveOn,
    /// Waiting for the transmit ring to be on.
    TransmitOn,
    /// Waiting for the ring that is lent to be on.
    LentOn,
    Ready,
    Failed(ResetCause),
}

impl Nic {
    /// Resets the NIC and sets it up. Does nothing if that is in progress or done.
    pub fn start(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if matches!(self.stage, Stage::Off | Stage::Failed(_)) {
            self.attempts = 0;
            self.then = None;
            self.restart(bus, now);
        }
    }

    /// Stops the NIC: [`State::Off`](super::State::Off) once it has. Frames that are yet to be sent fail.
    pub fn stop(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if !matches!(self.stage, Stage::Off | Stage::Failed(ResetCause::Gone)) {
            self.end_all(ResetCause::Asked);
            self.then = Some(Stage::Off);
            self.restart(bus, now);
        }
    }

    /// Resets the NIC: frames that are yet to be sent fail with [`ResetCause::Asked`], then it is set up again.
    /// This is also the way back from [`State::Failed`](super::State::Failed).
    pub fn reset(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.attempts = 0;
        self.then = None;
        self.end_all(ResetCause::Asked);
        self.counters.resets += u64::from(self.stage != Stage::Off);
        self.restart(bus, now);
    }

    /// Ends everything, when the owner knows that the function can't reach memory any more: it was removed, reset by the bus, or lost its
    /// bus mastering. Outstanding frames fail, all memory is free, and the state is [`State::Failed`](super::State::Failed).
    pub fn on_reset(&mut self) {
        self.end_all(ResetCause::Gone);
        self.free_all();
        self.rest(Stage::Failed(ResetCause::Gone));
    }

    fn restart(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.link = false;
        self.enter(Stage::Probing, now, self.config.admin_timeout);
        self.registers.read(bus, register::STATUS, 4);
    }

    fn enter(&mut self, stage: Stage, now: Nanos, limit: Nanos) {
        self.stage = stage;
        self.until = Some(now.saturating_add(limit));
        self.look = None;
    }

    fn rest(&mut self, stage: Stage) {
        self.stage = stage;
        self.until = None;
        self.look = None;
    }

    /// Returns the register that a stage waits for.
    fn watched(&self) -> u64 {
        match self.stage {
            Stage::Resetting => register::CTRL,
            Stage::AddressLow => register::RAL,
            Stage::AddressHigh => register::RAH,
            Stage::ReceiveOn => self.chip.receive + ring::CONTROL,
            Stage::TransmitOn => self.chip.transmit + ring::CONTROL,
            Stage::LentOn => self.lent_registers() + ring::CONTROL,
            _ => register::STATUS,
        }
    }

    fn look(&mut self, bus: &mut dyn Bus) {
        self.look = None;
        self.registers.read(bus, self.watched(), 4);
    }

    fn look_later(&mut self, now: Nanos) {
        const STEP: Nanos = 1_000_000;
        self.look = Some(now.saturating_add(STEP));
    }

    /// Processes a register's value.
    pub(super) fn register(&mut self, bus: &mut dyn Bus, now: Nanos, answer: Result<u64, BusError>) {
        let value = match answer {
            Ok(value) => value as u32,
            Err(BusError::Unsupported) => return self.fail(bus, now, ResetCause::Gone),
            Err(error) => return self.fail(bus, now, ResetCause::Register(error)),
        };
        if value == u32::MAX && self.stage != Stage::AddressLow {
            return self.fail(bus, now, ResetCause::Gone);
        }
        match self.stage {
            Stage::Probing => self.quiesce(bus, now),
            Stage::Quiescing if value & bit::STATUS_MASTER == 0 => self.reset_unit(bus, now),
            Stage::Resetting if value & bit::CTRL_RESET == 0 => self.stopped(bus, now),
            Stage::AddressLow => {
                self.address_low = value;
                self.stage = Stage::AddressHigh;
                self.look(bus);
            }
            Stage::AddressHigh if value & bit::RAH_VALID != 0 => self.found_address(bus, now, value),
            Stage::AddressHigh => {
                self.stage = Stage::AddressLow;
                self.look_later(now);
            }
            Stage::ReceiveOn if value & ring::ENABLE != 0 => {
                self.stage = Stage::TransmitOn;
                self.look(bus);
            }
            Stage::TransmitOn if value & ring::ENABLE != 0 && self.config.lend > 0 => {
                self.stage = Stage::LentOn;
                self.look(bus);
            }
            Stage::TransmitOn | Stage::LentOn if value & ring::ENABLE != 0 => self.ready(bus, now),
            Stage::Quiescing | Stage::Resetting | Stage::ReceiveOn | Stage::TransmitOn | Stage::LentOn => {
                self.look_later(now)
            }
            Stage::Ready => self.look_after(bus, now, value & bit::STATUS_LINK != 0),
            Stage::Off | Stage::Failed(_) => {}
        }
    }

    /// Monitors a NIC that is set up: its link, and whether it still receives.
    fn look_after(&mut self, bus: &mut dyn Bus, now: Nanos, link: bool) {
        self.until = None;
        self.look = Some(now.saturating_add(self.config.interval));
        self.counters.link_changes += u64::from(link != self.link);
        self.link = link;
        if self.receive.has_gap(bus) {
            return self.fail(bus, now, ResetCause::Gap);
        }
        // A NIC that could not fetch descriptors tries again when its tail is written.
        if let Some(tail) = self.receive.known_tail() {
            self.registers.write32(bus, self.chip.receive + ring::TAIL, tail.into());
        }
    }

    /// Does what is due.
    pub(super) fn check_time(&mut self, bus: &mut dyn Bus, now: Nanos) {
        if matches!(self.stage, Stage::Off | Stage::Failed(_)) {
            return;
        }
        if self.hang_deadline().is_some_and(|deadline| deadline <= now) {
            self.counters.hung += 1;
            return self.fail(bus, now, ResetCause::Hung);
        }
        if self.look.is_some_and(|at| at <= now) {
            if self.stage == Stage::Ready {
                self.until = Some(now.saturating_add(self.config.admin_timeout));
            }
            self.look(bus);
        }
        if self.until.is_some_and(|until| until <= now) {
            match self.stage {
                Stage::Quiescing => self.reset_unit(bus, now),
                Stage::Resetting => self.fail(bus, now, ResetCause::NeverReset),
                Stage::AddressLow | Stage::AddressHigh => self.fail(bus, now, ResetCause::NoAddress),
                Stage::ReceiveOn | Stage::TransmitOn | Stage::LentOn => {
                    self.fail(bus, now, ResetCause::NeverReady)
                }
                _ => self.fail(bus, now, ResetCause::NoAnswer),
            }
        }
    }

    /// Returns the time by which the oldest frame of each ring should have been sent.
    pub(super) fn hang_deadline(&self) -> Option<Nanos> {
        let own = self.transmit.pending.front().map(|frame| frame.deadline);
        let lent = self.lending.oldest.map(|since| since.saturating_add(self.config.timeout));
        [own, lent].into_iter().flatten().min()
    }

    fn quiesce(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.registers.write32(bus, register::IMC, u32::MAX);
        self.registers.write32(bus, register::RCTL, 0);
        self.registers.write32(bus, register::TCTL, 0);
        self.registers.write32(bus, register::CTRL, bit::CTRL_FULL_DUPLEX | bit::CTRL_MASTER_DISABLE);
        self.enter(Stage::Quiescing, now, self.config.settle);
        self.look(bus);
    }

    fn reset_unit(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.registers.forget();
        self.registers.write32(bus, register::CTRL, bit::CTRL_FULL_DUPLEX | bit::CTRL_RESET);
        self.enter(Stage::Resetting, now, self.config.settle.saturating_add(self.config.admin_timeout));
        self.look = Some(now.saturating_add(self.config.settle));
    }

    /// Continues after the reset: the NIC does nothing by itself any more, and all its writes have arrived.
    fn stopped(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.free_all();
        if let Some(stage) = self.then.take() {
            return self.rest(stage);
        }
        self.enter(Stage::AddressLow, now, self.config.admin_timeout);
        self.look(bus);
    }

    fn found_address(&mut self, bus: &mut dyn Bus, now: Nanos, high: u32) {
        let (low, high) = (self.address_low.to_le_bytes(), high.to_le_bytes());
        let address = [low[0], low[1], low[2], low[3], high[0], high[1]];
        if address == [0; 6] || address[0] & 1 != 0 {
            return self.fail(bus, now, ResetCause::NoAddress);
        }
        self.address = Some(address);
        let (window, region) = (bus.window(), &self.region);
        let base =
            window.address.checked_add(region.offset()).and_then(|at| at.checked_next_multiple_of(4096));
        let inside = window.contains(window.address, region.offset().saturating_add(region.length()));
        let Some(base) = base.filter(|_| inside) else { return self.fail(bus, now, ResetCause::Region) };
        self.layout = Layout::new(&self.config, base - window.address);
        self.layout.receive.window = window.address;
        self.transmit.clear(bus, self.layout.transmit);
        if self.config.lend_receive {
            self.receive.follow(0, 0);
        }
        self.receive.clear(bus, self.layout.receive);
        self.clear_lent(bus);
        self.set_up(bus, window.address);
        if self.chip.ring_enable {
            self.enter(Stage::ReceiveOn, now, self.config.admin_timeout);
            self.look(bus);
        } else {
            self.ready(bus, now);
        }
    }

    /// Writes all settings that must precede switching the units on. [82574, 4.6; 82576, 4.5]
    fn set_up(&mut self, bus: &mut dyn Bus, window: u64) {
        let Nic { registers, chip, config, layout, .. } = self;
        registers.write32(bus, register::IMC, u32::MAX);
        registers.write32(bus, register::CTRL, bit::CTRL_FULL_DUPLEX | bit::CTRL_LINK_UP);
        if chip.negotiate {
            registers.write32(bus, register::MDIC, bit::MDIC_NEGOTIATE);
        }
        for entry in 0..128 {
            registers.write32(bus, register::MTA + entry * 4, 0);
        }
        for entry in 1..16 {
            registers.write32(bus, register::RAH + entry * 8, 0);
        }
        if config.interrupts {
            for (register, value) in chip.vectors {
                registers.write32(bus, *register, *value);
            }
        }
        registers.write32(bus, register::MRQC, 0);
        let checksums = bit::RXCSUM_IP | bit::RXCSUM_TRANSPORT | bit::RXCSUM_NO_PACKET;
        registers.write32(bus, register::RXCSUM, checksums);
        match chip.format {
            Format::Extended | Format::PacketSplit => {
                registers.write32(bus, register::RFCTL, bit::RFCTL_EXTENDED);
                registers.write32(
                    bus,
                    register::PSRCTL,
                    config.buffer >> 10 << 8 | super::config::HEADER >> 7,
                );
                registers.write32(bus, register::TIPG, bit::TIPG);
            }
            Format::Advanced => {
                // Includes the frame check sequence and a VLAN tag.
                registers.write32(bus, register::RLPML, u32::from(config.max_frame) + 8);
                registers.write32(bus, register::PSRTYPE, if config.split { bit::PSRTYPE_ALL } else { 0 });
                registers.write32(bus, chip.receive + ring::SRRCTL, split_control(config));
            }
        }
        let lent_registers = chip.transmit + chip.next_ring;
        let rings = [
            (
                chip.receive,
                layout.receive.ring,
                config.receive,
                config.receive_format(),
                chip.receive_control,
            ),
            (chip.transmit, layout.transmit, config.transmit, chip.format, chip.transmit_control),
            (lent_registers, layout.lent, config.lend, chip.format, chip.transmit_control),
        ];
        for (base, offset, entries, format, control) in rings.into_iter().filter(|ring| ring.2 > 0) {
            let address = window + offset;
            registers.write32(bus, base + ring::BASE, address as u32);
            registers.write32(bus, base + ring::BASE + 4, (address >> 32) as u32);
            registers.write32(
                bus,
                base + ring::LENGTH,
                u32::from(entries) * descriptor::receive_length(format) as u32,
            );
            registers.write32(bus, base + ring::HEAD, 0);
            registers.write32(bus, base + ring::TAIL, 0);
            registers.write32(bus, base + ring::CONTROL, control);
        }
        if let Some((register, value)) = chip.second.filter(|_| config.lend > 0) {
            registers.write32(bus, register, value);
        }
    }

    fn ready(&mut self, bus: &mut dyn Bus, now: Nanos) {
        self.registers.write32(bus, register::TCTL, bit::TCTL);
        self.registers.write32(bus, register::RCTL, receive_control(&self.config));
        self.lending.is_lent = self.config.lend > 0;
        self.rest(Stage::Ready);
        self.until = Some(now.saturating_add(self.config.admin_timeout));
        self.look(bus);
    }

    /// Recovers a NIC that can't go on. Resets it, if that may help and was not tried too often; otherwise stops it as far as possible, and
    /// gives it up.
    pub(super) fn fail(&mut self, bus: &mut dyn Bus, now: Nanos, failure: ResetCause) {
        self.end_all(failure);
        if failure == ResetCause::Gone {
            return self.rest(Stage::Failed(failure));
        }
        if let Some(stage) = self.then.take() {
            let stage = if stage == Stage::Off { Stage::Failed(failure) } else { stage };
            return self.rest(stage);
        }
        if self.attempts >= self.config.resets || matches!(failure, ResetCause::Region) {
            self.then = Some(Stage::Failed(failure));
        } else {
            self.counters.resets += 1;
        }
        self.attempts += 1;
        self.restart(bus, now);
    }

    /// Ends all frames that are yet to be sent. Their memory stays held.
    fn end_all(&mut self, failure: ResetCause) {
        for frame in self.transmit.pending.drain(..) {
            self.held.push(frame.id);
            self.sent.push_back(Sent { id: frame.id, result: Err(failure), memory: Memory::Held });
        }
        self.lending.oldest = None;
        self.registers.forget();
    }

    /// Frees the memory of frames that ended: the NIC can't reach it any more.
    fn free_all(&mut self) {
        self.lending = Lending { starts: self.lending.starts, ..Lending::default() };
        // Frames whose end was not taken yet become not held; they are the last ones in the queue.
        let held = self.sent.iter_mut().filter(|sent| sent.memory == Memory::Held);
        let untold = held.map(|sent| sent.memory = Memory::Quiet).count();
        let settled = self.held.len().saturating_sub(untold);
        self.freed.extend(self.held.drain(..).take(settled));
    }
}

/// Returns SRRCTL: sizes of buffers, and whether headers have separate ones. [82576, 8.10.2]
fn split_control(config: &Config) -> u32 {
    let packet = config.buffer >> 10;
    if config.split {
        packet | super::config::HEADER >> 6 << 8 | bit::SRRCTL_SPLIT
    } else {
        packet | bit::SRRCTL_ONE_BUFFER
    }
}

/// Returns RCTL. [82574, 10.2.5.1; 82576, 8.10.1]
fn receive_control(config: &Config) -> u32 {
    let mut control = bit::RCTL_ENABLE | bit::RCTL_BROADCAST | bit::RCTL_STRIP_CRC;
    control |= if config.promiscuous { bit::RCTL_UNICAST_ALL | bit::RCTL_MULTICAST_ALL } else { 0 };
    control |= if config.multicast { bit::RCTL_MULTICAST_ALL } else { 0 };
    control |= if config.max_frame > 1514 { bit::RCTL_LONG } else { 0 };
    control |= if config.receive_format() == Format::PacketSplit { bit::RCTL_SPLIT } else { 0 };
    let size = match (config.receive_format(), config.buffer) {
        (Format::Advanced, _) | (_, ..=2048) => 0,
        (_, 4096) => bit::RCTL_SIZE_EXTENDED | 3 << bit::RCTL_SIZE_SHIFT,
        (_, 8192) => bit::RCTL_SIZE_EXTENDED | 2 << bit::RCTL_SIZE_SHIFT,
        _ => bit::RCTL_SIZE_EXTENDED | 1 << bit::RCTL_SIZE_SHIFT,
    };
    control | size
}
