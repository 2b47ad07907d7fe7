//! Cost and effect of each step.

use super::machine::Machine;
use super::parameters::Operator;
use crate::cpu::{Component, ThreadId};
use crate::executor::{Handle, World};
use dcs_drivers::bus::{Bus, Window};
use dcs_engine::Nanos;
use dcs_fabric::HOST;

/// Bytes that the card's DMA engine requests at once.
const PAGE: u64 = 4096;

/// A transfer between an SSD and memory.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// The SSD.
    pub ssd: usize,
    /// True for a write to the SSD.
    pub writes: bool,
    /// Position of the first byte.
    pub position: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A guest's request in progress, with the threads that work on it.
#[derive(Clone)]
pub struct Steps {
    /// The machine.
    pub handle: Handle<Machine>,
    /// The guest's processor.
    pub vcpu: ThreadId,
    /// The hypervisor's thread for its devices.
    pub iothread: ThreadId,
    /// Number of the guest, which is its tenant number in the slots.
    pub guest: u16,
    /// Address of a buffer in the guest's memory, at least a page.
    pub buffer: u64,
    /// Offset of the buffer in the card's memory.
    pub on_card: u64,
    /// Address of the completion in the guest's memory.
    pub completion: u64,
    /// Offset of the doorbell in the card's memory.
    pub doorbell: u64,
}

impl Steps {
    async fn guest(&self, time: Nanos) {
        self.handle.work(self.vcpu, Component::Guest, time).await;
    }

    /// Time of a request on its way down a guest's, or the host's, storage stack.
    fn stack_down(&self) -> Nanos {
        self.handle.with(|machine| machine.build.parameters.kernel_read / 2)
    }

    /// Time of the answer on its way up, less the time of the wake-up, which it includes.
    fn stack_up(&self) -> Nanos {
        self.handle.with(|machine| {
            let parameters = &machine.build.parameters;
            let woken = parameters.interrupt + parameters.wake + parameters.syscall;
            (parameters.kernel_read / 2).saturating_sub(woken)
        })
    }

    /// Submits a request from a guest's process through its storage stack.
    pub async fn guest_submits(&self) {
        self.guest(self.stack_down()).await;
    }

    /// Delivers the answer: the guest's interrupt handler, the wake-up of its process, the other half of the stack.
    pub async fn guest_completes(&self) {
        let woken = self.handle.with(|machine| {
            let parameters = &machine.build.parameters;
            parameters.interrupt + parameters.wake + parameters.syscall
        });
        self.guest(woken + self.stack_up()).await;
    }

    /// Calls a character device from a guest's process: the first half, or the half after the answer.
    pub async fn guest_calls(&self, before: bool) {
        let time = self.handle.with(|machine| {
            let (parameters, timings) = (&machine.build.parameters, &machine.build.timings);
            let woken = if before { 0 } else { parameters.interrupt + parameters.wake };
            woken + parameters.syscall + timings.char_driver / 2
        });
        self.guest(time).await;
    }

    /// Copies a block in the guest.
    pub async fn guest_copies(&self, length: u64) {
        let time = self.handle.with(|machine| length * machine.build.parameters.copy_ps / 1000);
        self.handle.work(self.vcpu, Component::Copy, time).await;
    }

    /// Exits to the hypervisor, where the device model's thread takes the request.
    pub async fn exits(&self) {
        let (exit, woken, model) = self.handle.with(|machine| {
            let (parameters, timings) = (&machine.build.parameters, &machine.build.timings);
            (timings.exit, parameters.wake + parameters.syscall, timings.device_model)
        });
        self.handle.work(self.vcpu, Component::Hypervisor, exit).await;
        self.handle.work(self.iothread, Component::Crossing, woken).await;
        self.handle.work(self.iothread, Component::Hypervisor, model / 2).await;
    }

    /// Answers from the device model, with an interrupt for the guest.
    pub async fn answers(&self) {
        let (model, signal) = self
            .handle
            .with(|machine| (machine.build.timings.device_model, machine.build.parameters.syscall));
        self.handle.work(self.iothread, Component::Hypervisor, model / 2).await;
        self.handle.work(self.iothread, Component::Crossing, signal).await;
        self.injects().await;
    }

    /// Injects an interrupt into a guest whose processor sleeps.
    pub async fn injects(&self) {
        let (inject, wake) =
            self.handle.with(|machine| (machine.build.timings.inject, machine.build.parameters.wake));
        self.handle.work(self.vcpu, Component::Hypervisor, inject + wake).await;
    }

    /// Reads or writes an SSD through the host's stack, for the device model.
    pub async fn host_disk(&self, disk: Disk, data: u64) {
        self.handle.work(self.iothread, Component::Kernel, self.stack_down()).await;
        self.disk(disk, data).await;
        self.interrupt_wakes().await;
        self.handle.work(self.iothread, Component::Kernel, self.stack_up()).await;
    }

    async fn interrupt_wakes(&self) {
        let (interrupt, woken) = self.handle.with(|machine| {
            let parameters = &machine.build.parameters;
            (parameters.interrupt, parameters.wake + parameters.syscall)
        });
        self.handle.interrupt(usize::from(self.guest), Component::Crossing, interrupt).await;
        self.handle.work(self.iothread, Component::Crossing, woken).await;
    }

    /// Runs an SSD's command, from doorbell to completion. Data are at a bus address.
    pub async fn disk(&self, disk: Disk, data: u64) {
        let Disk { ssd, writes, position, length } = disk;
        let from = self.handle.now();
        let window = Window { address: data, length };
        let number = self.handle.with(Machine::number);
        while !self.handle.with(|machine| machine.submit(ssd, number, writes, position, window)) {
            // The queue is full: wait for a completion.
            self.handle.until(|machine| machine.ssds[ssd].news.then(|| machine.reap(ssd))).await;
        }
        self.handle
            .until(|machine| {
                if machine.ssds[ssd].news {
                    machine.reap(ssd);
                }
                machine.take_finished(ssd, number).then_some(())
            })
            .await;
        self.handle.with(|machine| machine.note(from, Component::Ssd));
    }

    /// Has the card fetch a block, or write one to the guest's memory, by a call of the host's driver.
    pub async fn host_moves(&self, length: u64, to_card: bool) {
        let before = self.host_call().await;
        if to_card {
            self.bring_to_card(length).await
        } else {
            self.fetch_from_card(length).await
        }
        self.interrupt_wakes().await;
        self.handle.work(self.iothread, Component::Kernel, before).await;
    }

    /// Has a slot process a block on the card, by a call of the host's driver.
    pub async fn host_operates(&self, operator: Operator, length: u64) {
        let before = self.host_call().await;
        self.operate(operator, length).await;
        self.interrupt_wakes().await;
        self.handle.work(self.iothread, Component::Kernel, before).await;
    }

    async fn host_call(&self) -> Nanos {
        let (syscall, driver) =
            self.handle.with(|machine| (machine.build.parameters.syscall, machine.build.timings.char_driver));
        self.handle.work(self.iothread, Component::Crossing, syscall).await;
        self.handle.work(self.iothread, Component::Kernel, driver / 2).await;
        driver / 2
    }

    async fn bring_to_card(&self, length: u64) {
        let from = self.handle.now();
        let mut asked = Vec::new();
        for at in (0..length).step_by(PAGE as usize) {
            let piece = PAGE.min(length - at);
            asked.push((at, self.handle.with(|machine| machine.card_reads(self.buffer + at, piece))));
        }
        for (at, number) in asked {
            let bytes = self.handle.until(|machine| machine.take_read(number)).await;
            self.handle.with(|machine| {
                let card = machine.card;
                machine.fabric.port(card).store(self.on_card + at, &bytes);
            });
        }
        self.handle.with(|machine| machine.note(from, Component::Bus));
    }

    async fn fetch_from_card(&self, length: u64) {
        let from = self.handle.now();
        let last = (length - 1) / PAGE * PAGE;
        self.handle.with(|machine| {
            machine.watch(HOST, self.buffer + last);
            let card = machine.card;
            for at in (0..length).step_by(PAGE as usize) {
                let mut bytes = vec![0; PAGE.min(length - at) as usize];
                machine.fabric.port(card).load(self.on_card + at, &mut bytes);
                machine.write(card, self.buffer + at, &bytes);
            }
        });
        self.handle.until(|machine| machine.has_landed(HOST, self.buffer + last).then_some(())).await;
        self.handle.with(|machine| machine.note(from, Component::Bus));
    }

    /// Passes a block in the card's memory through an operator. The slot records the time.
    pub async fn operate(&self, operator: Operator, length: u64) {
        let number = self.handle.with(|machine| machine.operate(self.guest, operator, self.on_card, length));
        self.handle.until(|machine| machine.is_done(number).then_some(())).await;
    }

    /// Rings the engine's doorbell in the guest; the engine fetches the command and schedules it.
    pub async fn engine_fetches(&self) {
        let from = self.handle.now();
        let number = self.handle.with(|machine| {
            let (card, address) = (machine.card, machine.card_address(self.doorbell));
            machine.watch(card, self.doorbell);
            machine.write(HOST, address, &[1; 4]);
            card
        });
        self.handle.until(|machine| machine.has_landed(number, self.doorbell).then_some(())).await;
        // An NVMe entry and the near-storage command behind it.
        let number = self.handle.with(|machine| machine.card_reads(self.buffer, 128));
        self.handle.until(|machine| machine.take_read(number)).await;
        self.engine_works(|machine| match machine.build.policy {
            dcs_slots::Policy::Static => machine.build.timings.static_submission,
            _ => machine.build.timings.renaming_submission,
        })
        .await;
        self.handle.with(|machine| machine.note(from, Component::Card));
    }

    /// Completes to the guest: a completion, then an interrupt.
    pub async fn engine_completes(&self) {
        let from = self.handle.now();
        self.engine_works(|machine| match machine.build.policy {
            dcs_slots::Policy::Static => machine.build.timings.static_completion,
            _ => machine.build.timings.renaming_completion,
        })
        .await;
        self.handle.with(|machine| {
            let card = machine.card;
            machine.watch(HOST, self.completion);
            machine.write(card, self.completion, &[1; 16]);
        });
        self.handle.until(|machine| machine.has_landed(HOST, self.completion).then_some(())).await;
        self.handle.with(|machine| machine.note(from, Component::Card));
    }

    async fn engine_works(&self, time: impl Fn(&Machine) -> Nanos) {
        let until = self.handle.with(|machine| World::now(machine) + time(machine));
        self.handle.sleep_until(until).await;
    }

    /// Returns the bus address of this request's place in the card's memory.
    pub fn card_address(&self) -> u64 {
        self.handle.with(|machine| machine.card_address(self.on_card))
    }

    /// Submits in the host, without a hypervisor.
    pub async fn host_submits(&self) {
        self.handle.work(self.vcpu, Component::Kernel, self.stack_down()).await;
    }

    /// Handles the completion in the host: an interrupt wakes its process.
    pub async fn host_completes(&self) {
        let woken = self.handle.with(|machine| {
            let parameters = &machine.build.parameters;
            parameters.interrupt + parameters.wake + parameters.syscall
        });
        self.handle.work(self.vcpu, Component::Kernel, woken + self.stack_up()).await;
    }
}
