//! The host's software, step by step, with the cost of each step: storage, network, GPU, the card's library.
//!
//! The steps themselves are real: commands in rings, doorbells, frames, bytes. A step's cost is charged to a core before the
//! step.

use crate::card::End;
use crate::cpu::{Component, ThreadId};
use crate::executor::Handle;
use crate::failed::Failed;
use crate::integrated;
use crate::parameters::Parameters;
use crate::server::{Ended, Server};
use dcs_abi::operator::Operator;
use dcs_abi::result::{ResultArea, STAGE_DESTINATION, STAGE_OPERATORS, STAGE_SOURCE, StageTimes};
use dcs_drivers::bus::{Bus, Window};
use dcs_drivers::network::WriteTo;
use dcs_drivers::nvme::{Nvme, NvmeError, Request, State, SubmitError};
use dcs_engine::{BlockId, Nanos, OperationId};
use dcs_fabric::HOST;
use dcs_fabric::gpu::{COPY_DOORBELL, Command, FAILED, LAUNCH_DOORBELL, Launch, Work};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Most bytes of payload of a frame that a NIC segments: the limit of [`dcs_drivers::network`].
const SEGMENTED: u64 = 60_000;
const PAGE: u64 = 4096;
/// Packets that the kernel merges into one of 64 KiB.
const MERGED: u64 = 44;

/// The drivers and the network stack in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The kernel's stacks.
    Kernel,
    /// User-space stacks.
    User,
}

/// Software's way of waiting for devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Sleeps until an interrupt.
    Interrupt,
    /// Polls.
    Poll,
}

/// A buffer, by its bus address.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Address of its first byte.
    pub address: u64,
    /// True if it is in the GPU's memory.
    pub on_gpu: bool,
}

/// A command of an SSD's in progress.
#[derive(Clone, Copy, Debug)]
pub struct OnDisk {
    set: usize,
    number: u64,
    buffer: Buffer,
    begun: Nanos,
}

/// A run on the GPU in progress.
#[derive(Clone, Copy, Debug)]
pub struct OnGpu {
    fence: u64,
    digest: usize,
    begun: Nanos,
}

/// Buffers, free and in use.
#[derive(Default)]
struct Pool {
    free: Vec<Buffer>,
    free_on_gpu: Vec<Buffer>,
    /// Buffers sent and not acknowledged: set, and the network's name of the operation.
    sent: VecDeque<(usize, u64, Buffer)>,
}

impl Pool {
    fn put(&mut self, buffer: Buffer) {
        if buffer.on_gpu { self.free_on_gpu.push(buffer) } else { self.free.push(buffer) }
    }
}

/// The host's software.
#[derive(Clone)]
pub struct Host {
    /// The server.
    pub handle: Handle,
    /// The parameters.
    pub parameters: Parameters,
    /// Stacks that it uses.
    pub stack: Stack,
    /// Its way of waiting for devices.
    pub waiting: Waiting,
    pool: Rc<RefCell<Pool>>,
    /// Time of copies in picoseconds per byte, raised by contention for memory.
    pub copy_ps: u64,
}

impl Host {
    /// Returns software with this many buffers of this size in host memory, and as many in the GPU's if `on_gpu`. It starts to
    /// serve its devices.
    pub fn new(handle: &Handle, stack: Stack, waiting: Waiting, buffers: (usize, u64), on_gpu: bool) -> Host {
        let parameters = handle.with(|server| server.build.parameters);
        let free = handle.with(|server| {
            let mut take = || server.memory.take(buffers.1, PAGE).expect("host memory is large").offset();
            (0..buffers.0).map(|_| Buffer { address: take(), on_gpu: false }).collect()
        });
        let memory = handle.with(|server| server.gpu.map(|gpu| server.fabric.bar(gpu, 1).address));
        // The first megabyte holds kernels' results.
        let place = |address: u64, at: usize| address + (1 << 20) + at as u64 * buffers.1;
        let free_on_gpu = memory.filter(|_| on_gpu).map_or(Vec::new(), |address| {
            (0..buffers.0).map(|at| Buffer { address: place(address, at), on_gpu: true }).collect()
        });
        let pool = Rc::new(RefCell::new(Pool { free, free_on_gpu, sent: VecDeque::new() }));
        let host =
            Host { handle: handle.clone(), parameters, stack, waiting, pool, copy_ps: parameters.copy_ps };
        host.attend();
        host
    }

    /// Starts the tasks that serve devices: interrupt handlers, and network threads.
    fn attend(&self) {
        let (sets, card) = self.handle.with(|server| (server.sets.len(), server.card.is_some()));
        if card {
            self.handle.spawn(self.clone().attend_card());
            return;
        }
        let integrated = self.handle.with(|server| server.build.integrated);
        for set in 0..sets {
            if integrated {
                if self.waiting == Waiting::Interrupt {
                    self.handle.spawn(self.clone().attend_integrated(set));
                }
                continue;
            }
            self.handle.spawn(self.clone().attend_network(set));
            if self.waiting == Waiting::Interrupt {
                self.handle.spawn(self.clone().attend_ssd(set));
            }
        }
    }

    async fn attend_ssd(self, set: usize) {
        loop {
            self.handle.until(|server| server.sets[set].ssd_news.then_some(())).await;
            self.handle.interrupt(set, Component::Crossing, self.parameters.interrupt).await;
            self.handle.with(|server| server.reap_ssd(set));
        }
    }

    async fn attend_integrated(self, set: usize) {
        loop {
            self.handle.until(|server| server.sets[set].ssd_news.then_some(())).await;
            self.handle.interrupt(set, Component::Crossing, self.parameters.interrupt).await;
            self.handle.with(|server| server.reap_integrated(set));
        }
    }

    async fn attend_card(self) {
        loop {
            self.handle.until(|server| server.card.as_ref()?.news.then_some(())).await;
            if self.waiting == Waiting::Interrupt {
                self.handle.interrupt(0, Component::Crossing, self.parameters.interrupt).await;
            }
            self.handle.with(reap_card);
        }
    }

    /// Serves frames in both directions: from an interrupt, whose rate is limited, and then as long as there are any.
    async fn attend_network(self, set: usize) {
        let parameters = self.parameters;
        let thread = self.handle.thread();
        let mut next = 0;
        loop {
            self.handle.until(|server| server.sets[set].has_news().then_some(())).await;
            if self.waiting == Waiting::Interrupt {
                self.handle.sleep_until(next).await;
                next = self.handle.now() + parameters.nic_moderation;
                if self.stack == Stack::User {
                    self.handle.interrupt(set, Component::Crossing, parameters.interrupt).await;
                    let woken = parameters.wake + parameters.syscall;
                    self.handle.work(thread, Component::Crossing, woken).await;
                }
            }
            loop {
                let frames = self.handle.with(|server| {
                    let held = &mut server.sets[set];
                    held.attended = held.has_news();
                    held.attended.then(|| std::mem::take(&mut held.frames))
                });
                let Some((received, _)) = frames else { break };
                match self.stack {
                    Stack::Kernel => {
                        // Generic receive offload: packets of one poll go up the stack as one, up to 64 KiB.
                        let merged = received.div_ceil(MERGED) * parameters.kernel_receive;
                        let time = merged + received * parameters.user_receive;
                        self.handle.interrupt(set, Component::Kernel, time).await;
                    }
                    Stack::User => {
                        let time = received * parameters.user_receive;
                        self.handle.work(thread, Component::Control, time).await;
                    }
                }
                self.handle.with(|server| server.poll_network(set));
            }
        }
    }

    /// Waits for a condition.
    pub async fn wait(&self, thread: ThreadId, mut ready: impl FnMut(&mut Server) -> bool) {
        if self.handle.with(&mut ready) {
            return;
        }
        match self.waiting {
            Waiting::Interrupt => {
                self.handle.until(|server| ready(server).then_some(())).await;
                let woken = self.parameters.wake + self.parameters.syscall;
                self.handle.work(thread, Component::Crossing, woken).await;
            }
            Waiting::Poll => {
                self.handle.with(|server| server.cpu.poll(thread));
                self.handle
                    .until(|server| (ready(server) && server.cpu.stop_polling(thread)).then_some(()))
                    .await;
            }
        }
    }

    /// Returns a free buffer, and waits if all are in use.
    pub async fn buffer(&self, thread: ThreadId, on_gpu: bool) -> Buffer {
        loop {
            if let Some(buffer) = self.free_buffer(on_gpu) {
                return buffer;
            }
            let pool = Rc::clone(&self.pool);
            self.wait(thread, |server| {
                let pool = pool.borrow();
                let free = if on_gpu { &pool.free_on_gpu } else { &pool.free };
                let back = |(set, name, buffer): &(usize, u64, Buffer)| {
                    buffer.on_gpu == on_gpu && server.sets[*set].released.contains(name)
                };
                !free.is_empty() || pool.sent.iter().any(back)
            })
            .await;
        }
    }

    fn free_buffer(&self, on_gpu: bool) -> Option<Buffer> {
        let mut pool = self.pool.borrow_mut();
        self.handle.with(|server| {
            let (back, sent): (VecDeque<_>, VecDeque<_>) =
                pool.sent.drain(..).partition(|(set, name, _)| server.sets[*set].released.remove(name));
            pool.sent = sent;
            for (set, name, buffer) in back {
                server.sets[set].moved.remove(&name);
                pool.put(buffer);
            }
        });
        if on_gpu { pool.free_on_gpu.pop() } else { pool.free.pop() }
    }

    /// Frees a buffer.
    pub fn give_back(&self, buffer: Buffer) {
        self.pool.borrow_mut().put(buffer);
        self.handle.with(|_| ());
    }

    /// Begins to read this many bytes from an SSD into a buffer.
    pub async fn read_disk(
        &self,
        thread: ThreadId,
        (set, position): (usize, u64),
        (buffer, length): (Buffer, u64),
    ) -> Result<OnDisk, Failed> {
        let lba = position / 512;
        self.disk(thread, set, |data| Request::Read { lba, data }, (buffer, length)).await
    }

    /// Begins to write a buffer to an SSD.
    pub async fn write_disk(
        &self,
        thread: ThreadId,
        (set, position): (usize, u64),
        (buffer, length): (Buffer, u64),
    ) -> Result<OnDisk, Failed> {
        let lba = position / 512;
        self.disk(thread, set, |data| Request::Write { lba, data, durable: false }, (buffer, length)).await
    }

    /// Submits a command to an SSD. If that fails, the buffer is freed.
    async fn disk(
        &self,
        thread: ThreadId,
        set: usize,
        request: impl Fn(&[Window]) -> Request<'_>,
        (buffer, length): (Buffer, u64),
    ) -> Result<OnDisk, Failed> {
        let begun = self.handle.now();
        let window = Window { address: buffer.address, length: length.next_multiple_of(512) };
        let (what, time) = match self.stack {
            Stack::Kernel => (Component::Kernel, self.parameters.kernel_read / 2),
            Stack::User => (Component::Control, self.parameters.user_nvme / 2),
        };
        self.handle.work(thread, what, time).await;
        let number = self.handle.with(Server::number);
        // As much as the controller accepts at once: the model's limit is 128 KiB.
        loop {
            let (taken, before) = self.handle.with(|server| {
                let now = server.now();
                let Server { fabric, sets, .. } = server;
                let nvme = sets[set].nvme.as_mut().expect("the host drives it");
                let mut port = fabric.port(HOST);
                let taken = nvme.submit(&mut port, now, number, &request(&[window]));
                nvme.ring(&mut port);
                (taken, (nvme.state(), sets[set].finished.len()))
            });
            match (taken, before.0) {
                (Ok(()), _) => return Ok(OnDisk { set, number, buffer, begun }),
                (Err(SubmitError::NotReady), State::Failed(failure)) => {
                    self.give_back(buffer);
                    return Err(Failed::Ssd(NvmeError::Reset(failure)));
                }
                // The queue is full, or the controller is being reset: wait for the end of a command.
                (Err(SubmitError::Full | SubmitError::NotReady), _) => {}
                (Err(error), _) => panic!("the host's own mistake: {error}"),
            }
            self.wait(thread, |server| {
                let held = &server.sets[set];
                (held.nvme.as_ref().map(Nvme::state), held.finished.len()) != (Some(before.0), before.1)
            })
            .await;
        }
    }

    /// Waits for a command of the SSD, and returns its buffer on success. On failure the buffer is freed if the SSD has released
    /// it.
    pub async fn disk_done(&self, thread: ThreadId, command: OnDisk) -> Result<Buffer, Failed> {
        let OnDisk { set, number, buffer, begun } = command;
        let polls = self.waiting == Waiting::Poll;
        self.wait(thread, |server| {
            if polls && server.sets[set].ssd_news {
                server.reap_ssd(set);
            }
            server.sets[set].finished.contains_key(&number)
        })
        .await;
        let Ended { result, is_quiet } = self.handle.with(|server| {
            server.note(begun, Component::Ssd);
            server.sets[set].finished.remove(&number).expect("it was there")
        });
        let parameters = &self.parameters;
        match self.stack {
            Stack::Kernel => {
                // Less the time of the wake-up, which is included.
                let woken = parameters.interrupt + parameters.wake + parameters.syscall;
                let rest = (parameters.kernel_read / 2).saturating_sub(woken);
                self.handle.work(thread, Component::Kernel, rest).await;
            }
            Stack::User => self.handle.work(thread, Component::Control, parameters.user_nvme / 2).await,
        }
        if result.is_err() && is_quiet {
            self.give_back(buffer);
        }
        result.map(|()| buffer).map_err(Failed::Ssd)
    }

    /// Sends a buffer's bytes over a connection; the buffer is freed when they are acknowledged.
    pub async fn send(
        &self,
        thread: ThreadId,
        connection: usize,
        buffer: Buffer,
        length: u64,
    ) -> Result<(), Failed> {
        if let Some(failed) = self.handle.with(|server| server.connections[connection].broken) {
            self.give_back(buffer);
            return Err(failed);
        }
        let segments = length.div_ceil(SEGMENTED);
        let (what, time) = match self.stack {
            Stack::Kernel => {
                let pages = length.div_ceil(PAGE) * self.parameters.kernel_page;
                (Component::Kernel, segments * self.parameters.kernel_send + pages)
            }
            Stack::User => (Component::Control, segments * self.parameters.user_send),
        };
        self.handle.work(thread, what, time).await;
        self.handle.with(|server| {
            let number = server.number();
            let found = server.connections[connection];
            let (set, flow) = (found.set, found.flow.expect("the host drives it"));
            let write = WriteTo {
                operation: OperationId::from_bits(number),
                block: BlockId(number as u32),
                piece: dcs_net::Piece { offset: buffer.address, length: length as u32 },
                more: false,
            };
            let network = server.sets[set].network.as_mut().expect("the host drives it");
            network.write(flow, write);
            server.sets[set].sending.insert(number, connection);
            server.poll_network(set);
            self.pool.borrow_mut().sent.push_back((set, number, buffer));
        });
        Ok(())
    }

    /// Begins to receive into a buffer, and returns the operation's number.
    pub fn receive(&self, connection: usize, buffer: Buffer, length: u64) -> u64 {
        self.handle.with(|server| {
            let (number, now) = (server.number(), server.now());
            let found = server.connections[connection];
            let (set, flow) = (found.set, found.flow.expect("the host drives it"));
            let Server { fabric, sets, .. } = server;
            let network = sets[set].network.as_mut().expect("the host drives it");
            let place = (OperationId::from_bits(number), buffer.address, length as u32);
            network.read(&mut fabric.port(HOST), now, flow, place);
            server.poll_network(set);
            number
        })
    }

    /// Waits for a receive operation, and returns its bytes.
    pub async fn received(&self, thread: ThreadId, connection: usize, number: u64) -> Result<u64, Failed> {
        let set = self.handle.with(|server| server.connections[connection].set);
        self.wait(thread, |server| server.sets[set].moved.contains_key(&number)).await;
        self.handle.with(|server| {
            server.sets[set].released.remove(&number);
            let moved = server.sets[set].moved.remove(&number).expect("it was there");
            moved.map_err(Failed::Connection)
        })
    }

    /// Waits for a new connection of a set; `None` if none arrives in time.
    pub async fn connect(&self, set: usize, limit: Nanos) -> Option<usize> {
        let free = |server: &mut Server| (!std::mem::replace(&mut server.is_dialling, true)).then_some(());
        self.handle.until(free).await;
        let mut found = None;
        let dial = |server: &mut Server| (!server.sets[set].unreachable).then(|| server.dial(set))?;
        if let Some(dialled) = self.handle.with(dial) {
            found = self.handle.within(limit, self.handle.until(|server| server.connected(&dialled))).await;
        }
        self.handle.with(|server| {
            server.sets[set].unreachable = found.is_none();
            server.is_dialling = false;
        });
        found
    }

    /// Copies on the processor.
    pub async fn copy(&self, thread: ThreadId, length: u64) {
        self.handle.work(thread, Component::Copy, length * self.copy_ps / 1000).await;
    }

    /// Passes bytes in host memory through an operator on the processor.
    pub async fn process(&self, thread: ThreadId, context: &mut dcs_ndp::Context, data: Window, last: bool) {
        let operator = context.operator();
        let time = self.parameters.on_cpu(operator, data.length);
        self.handle.work(thread, Component::Processing, time).await;
        self.handle.with(|server| {
            let mut bytes = server.load(data.address, data.length as usize);
            if operator.digest_size() > 0 {
                context.absorb(&bytes);
            } else {
                context.in_place(&mut bytes, last).expect("a cipher takes any bytes");
                server.fabric.port(HOST).store(data.address, &bytes);
            }
        });
    }

    /// Submits a command to the GPU, with a call of its driver.
    async fn tell_gpu(&self, thread: ThreadId, command: Command) {
        let launch = matches!(command.work, Work::Launch(_));
        let time = if launch { self.parameters.gpu_launch } else { self.parameters.gpu_copy };
        self.handle.work(thread, Component::GpuControl, time).await;
        self.handle.with(|server| {
            let gpu = server.gpu.expect("there is a GPU");
            let doorbell = if launch { LAUNCH_DOORBELL } else { COPY_DOORBELL };
            let address = server.fabric.bar(gpu, 0).address + doorbell;
            if let Some((fence, _)) = command.fence {
                server.watch_fence(fence);
            }
            server.fabric.port(HOST).write(address, &command.to_bytes());
        });
    }

    /// Passes bytes through an operator on the GPU. `place` is their address in its memory; if `from` is set they are first
    /// copied there from host memory, and back if the operator changes them. `slot` is a number below 2048 that no other run
    /// uses.
    pub async fn begin_on_gpu(
        &self,
        thread: ThreadId,
        operator: Operator,
        (stream, slot, last): (u64, u64, bool),
        (place, from): (Window, Option<u64>),
    ) -> OnGpu {
        let begun = self.handle.now();
        let digest = operator.digest_size() as u64;
        let fence = self.handle.with(|server| server.slots) + slot * 256;
        let output = slot * 64;
        let base = Command {
            work: Work::CopyIn(from.unwrap_or(0)),
            stream: (stream % 1024) as u32,
            offset: place.address,
            length: place.length,
            fence: None,
        };
        if from.is_some() {
            self.tell_gpu(thread, base).await;
        }
        let launch = Launch { kernel: operator as u32, last, argument: stream, output };
        let fetches = if digest > 0 {
            last.then_some(Command {
                work: Work::CopyOut(fence + 64),
                offset: output,
                length: digest,
                ..base
            })
        } else {
            from.map(|address| Command { work: Work::CopyOut(address), ..base })
        };
        let fenced = Some((fence, stream + 1));
        let launch =
            Command { work: Work::Launch(launch), fence: fenced.filter(|_| fetches.is_none()), ..base };
        self.tell_gpu(thread, launch).await;
        if let Some(fetch) = fetches {
            self.tell_gpu(thread, Command { fence: fenced, ..fetch }).await;
        }
        OnGpu { fence, digest: digest as usize, begun }
    }

    /// Waits for the GPU. Returns the digest, if these were the last data.
    pub async fn end_on_gpu(&self, thread: ThreadId, run: OnGpu) -> Vec<u8> {
        let OnGpu { fence, digest, begun } = run;
        self.wait(thread, |server| server.is_set(fence)).await;
        self.handle.with(|server| {
            server.forget_fence(fence);
            assert_ne!(server.load(fence, 8), FAILED.to_le_bytes(), "the GPU failed");
            server.note(begun, Component::Gpu);
            server.load(fence + 64, digest)
        })
    }

    /// Makes one transfer by an integrated device, with a command as cheap as a user-space NVMe driver's. Returns when its medium
    /// had delivered the first block.
    pub async fn by_integrated(&self, thread: ThreadId, set: usize, command: integrated::Command) -> Nanos {
        self.handle.work(thread, Component::Control, self.parameters.user_nvme / 2).await;
        let begun = self.handle.now();
        let (slot, number) = self.handle.with(|server| {
            let slot = server.free_slots.pop().expect("fewer transfers than places");
            let (number, place) = (server.number(), server.slots + slot * 512);
            let bytes = integrated::Command { completion: (place, number), ..command }.to_bytes();
            server.sets[set].commands.push((place, number));
            let doorbell = server.fabric.bar(server.sets[set].nic, 0).address + integrated::DOORBELL;
            let mut port = server.fabric.port(HOST);
            port.store(place, &[0; 8]);
            port.store(place + 64, &bytes);
            port.write(doorbell, &(place + 64).to_le_bytes());
            (slot, number)
        });
        let first = command.length.min(64 << 10) * 1_000_000_000 / self.parameters.ssd_rate;
        let read = begun + self.parameters.ssd_read + first;
        self.handle.with(|server| {
            if let Some(trace) = &mut server.trace {
                trace.push((begun, read, Component::Ssd));
            }
        });
        let polls = self.waiting == Waiting::Poll;
        self.wait(thread, |server| {
            if polls && server.sets[set].ssd_news {
                server.reap_integrated(set);
            }
            server.sets[set].finished.contains_key(&number)
        })
        .await;
        self.handle.with(|server| {
            server.sets[set].finished.remove(&number);
            server.free_slots.push(slot);
        });
        self.handle.work(thread, Component::Control, self.parameters.user_nvme / 2).await;
        read
    }

    /// Makes one transfer by the card, as the library does. A failure includes the bytes that its destination had taken.
    pub async fn by_card(
        &self,
        thread: ThreadId,
        ends: (End, End),
        length: u64,
        operator: Option<Operator>,
    ) -> Result<ResultArea, (Failed, u64)> {
        self.handle.work(thread, Component::Control, self.parameters.library / 2).await;
        let begun = self.handle.now();
        let parameter = operator.map(crate::kernels::parameter).unwrap_or_default();
        let cid = self.handle.with(|server| {
            let Server { fabric, card: Some(card), .. } = server else { panic!("there is a card") };
            card.submit(fabric, ends, length, operator.map(|operator| (operator, &parameter[..])))
        });
        self.wait(thread, |server| server.card.as_ref().is_some_and(|card| card.is_done(cid))).await;
        let result = self.handle.with(|server| {
            let Server { fabric, card: Some(card), .. } = server else { panic!("there is a card") };
            let result = card.finish(fabric, cid)?;
            server.note(begun, Component::Card);
            for (at, what) in [
                (STAGE_SOURCE, Component::Ssd),
                (STAGE_DESTINATION, Component::Network),
                (STAGE_OPERATORS, Component::Ndp),
            ] {
                let StageTimes { first_issue, last_done, .. } = result.stages[at];
                if let Some(trace) = server.trace.as_mut().filter(|_| first_issue > 0) {
                    trace.push((first_issue, last_done, what));
                }
            }
            Ok(result)
        });
        self.handle.work(thread, Component::Control, self.parameters.library / 2).await;
        result
    }
}

fn reap_card(server: &mut Server) {
    let Server { fabric, card: Some(card), .. } = server else { return };
    card.reap(fabric);
}
