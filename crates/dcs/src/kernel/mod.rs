//! The kernel backend: joins the engine core, the device controller and the operators into one loop.
//!
//! | module | contents |
//! |---|---|
//! | `net` | requests to the NIC that the engine drives itself |
//! | `offload` | operations that the GPU does |
//! | `pass` | passes of multi-lane units: blocks of many streams at once |
//! | `short` | short commands, taken through their stages in one go |
//! | `thread` | the thread that drives an engine |
//! | `through` | commands that are run as their entries are fetched |
//! | `wipe` | keys on the stack, overwritten |
//!
//! One round ([`KernelLoop::step`]): doorbells, then a bounded number of actions, then what devices have
//! completed, then deadlines. Nothing in a round waits.

mod net;
pub(crate) mod offload;
mod pass;
mod short;
pub(crate) mod thread;
mod through;
mod wipe;

use crate::backend::{BackendLoop, Control, Info, Port};
use crate::endpoint::Namespace;
use crate::error::Error;
use crate::queue::{Finished, QueuePair};
use crate::statistics::Statistics;
use dcs_abi::descriptor;
use dcs_abi::operator::Operator;
use dcs_abi::status::{Stage, Status};
use dcs_devices::controller::Waker;
use dcs_devices::gpu::{self, Properties};
use dcs_devices::vfio_devices::{self, Interface, NicOptions, SsdOptions};
use dcs_devices::{BlockPool, Controller, Endpoint, Io, Route, Setup, controller};
use dcs_engine::{
    Action, Binding, CommandId, Config, Event, Failure, Nanos, Operation, OperationId, OperationKind,
    Outcome, QueueConfig, QueueId, TransferSpec,
};
use dcs_ndp::Chain;
use offload::Offloads;
use pass::Pass;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thread::{Shield, cache_size, clock};
use zeroize::Zeroize;

/// Actions between two looks at doorbells and completions: a fast transfer does not keep others waiting for
/// longer.
const ACTIONS_A_ROUND: usize = 64;

/// Actions for which a command counts that went through: its fetch, its run and its completion.
const ACTIONS_OF_A_PASSAGE: usize = 3;

/// Time for which a command that is to end waits for its operations with the kernel, nanoseconds.
const ABORT_GRACE: Nanos = 500_000_000;

/// Devices that an engine drives itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirectDevices<'a> {
    pub ssds: &'a [SsdOptions],
    pub nic: Option<&'a NicOptions>,
    pub gpu: Option<&'a gpu::GpuOptions>,
}

/// A bound command.
#[derive(Debug)]
struct Bound {
    command: CommandId,
    route: Route,
    chain: Chain,
    /// Operators have parameters: keys may be among them.
    secret: bool,
}

#[derive(Debug)]
struct Queue {
    pair: Arc<QueuePair>,
    seen_tail: u32,
    seen_head: u32,
    /// The slot of the next entry to be fetched.
    next_fetch: u16,
    /// Transfers that were cancelled before their entries were fetched.
    unwanted: Vec<u16>,
    deleting: bool,
}

/// The kernel backend: the engine core and all that it drives.
#[derive(Debug)]
pub(crate) struct KernelLoop {
    engine: dcs_engine::Engine,
    controller: Controller,
    bound: Vec<Option<Bound>>,
    /// The operators of the command that goes through, kept for their memory.
    chain: Chain,
    /// Unloaded chains, kept for their memory.
    spare_chains: Vec<Chain>,
    passes: Vec<Pass>,
    passed: Vec<(OperationId, Outcome)>,
    queues: Vec<Option<Queue>>,
    /// Numbers of the queues that are open.
    open: Vec<u16>,
    /// Queue pairs that are to be opened.
    opening: Vec<Arc<QueuePair>>,
    /// The time when the clock was last read: after each thing that takes time.
    now: Nanos,
    device_events: Vec<controller::Event>,
    descriptor: Vec<u8>,
    stopping: bool,
    closed: bool,
    /// The driving thread is the application's, and gets signals.
    gets_signals: bool,
    shield: Option<Shield>,
    statistics: Arc<Mutex<Statistics>>,
    namespaces: Vec<Arc<vfio_devices::Namespace>>,
    requests: net::Requests,
    offloads: Offloads,
    gpu: Option<Properties>,
    /// The GPU's last failure.
    trouble: Arc<Mutex<Option<String>>>,
    /// Something was done since the statistics were last published.
    unpublished: bool,
}

/// Tells the core the physical units of the operators that run here.
fn set_units(config: &mut Config, passes: &[Pass]) {
    // Modules are looked up by name when one is used.
    config.units.push((Operator::Module, 1));
    // A lane is a physical unit: as many streams as there are lanes may have a block with the unit at once.
    for (operator, units) in &mut config.units {
        if let Some((_, lanes)) = passes.iter().map(Pass::lanes).find(|lanes| lanes.0 == *operator) {
            *units = lanes as u16;
        }
    }
    config.multi_lane = passes.iter().map(|pass| pass.lanes().0).collect();
}

impl KernelLoop {
    /// Pins its blocks, so that no transfer waits for that later.
    pub fn pin(&mut self) {
        self.controller.register_once();
    }

    /// Makes the loop, and starts the devices that it is to drive itself.
    pub fn new(
        mut config: Config,
        (io, by_callers): (Io, bool),
        DirectDevices { ssds, nic, gpu }: DirectDevices<'_>,
    ) -> Result<KernelLoop, Error> {
        let passes = Pass::all();
        set_units(&mut config, &passes);
        config.cached_blocks = cache_size().checked_div(config.block_size).unwrap_or(0);
        if gpu.is_some() {
            // A block of each command may be with each of its operators.
            config.gpu = offload::operators().map(|operator| (operator, config.commands)).collect();
        }
        // Data that the kernel moves, and operators that run here, are done immediately.
        config.short = ssds.is_empty() && nic.is_none() && gpu.is_none();
        let setup = Setup { blocks: config.blocks, block_size: config.block_size, io, by_callers };
        if matches!((ssds, nic, &gpu), ([], None, None)) {
            // The kernel does not take long to stop what it can stop. A call that it cannot stop keeps its
            // block, and no timeout waiting.
            config.abort_grace = ABORT_GRACE;
        }
        let refused = if io == Io::Uring { Error::IoUring } else { Error::Start };
        let (commands, queues) = (config.commands as usize, config.queues as usize);
        let engine = dcs_engine::Engine::new(config)?;
        let statistics = Arc::new(Mutex::new(Statistics::of(&engine)));
        let mut controller = Controller::new(setup).map_err(refused)?;
        let namespaces = match (ssds, nic) {
            ([], None) => Vec::new(),
            _ => controller.attach(setup, ssds, nic)?,
        };
        let gpu = gpu.map(|wanted| controller.attach_gpu(setup, wanted)).transpose()?;
        Ok(KernelLoop {
            offloads: Offloads::default(),
            gpu,
            trouble: Arc::default(),
            engine,
            controller,
            namespaces,
            requests: net::Requests::default(),
            passes,
            passed: Vec::new(),
            bound: (0..commands).map(|_| None).collect(),
            chain: Chain::default(),
            spare_chains: Vec::new(),
            queues: (0..queues).map(|_| None).collect(),
            open: Vec::new(),
            opening: Vec::new(),
            now: clock(),
            device_events: Vec::new(),
            descriptor: Vec::new(),
            stopping: false,
            closed: false,
            gets_signals: false,
            shield: None,
            statistics,
            unpublished: false,
        })
    }

    pub fn waker(&self) -> Waker {
        self.controller.waker()
    }

    /// Facts about its devices, and where it writes its statistics and the GPU's last failure.
    pub fn info(&self) -> Info {
        let interface = self.controller.interface().map(Arc::clone);
        // It needs no number: there is one.
        let port = |interface: &Arc<Interface>| Port { handle: 0, nic: interface.options.clone() };
        Info {
            near: None,
            near_failures: Arc::default(),
            statistics: Arc::clone(&self.statistics),
            asks_for_statistics: true,
            has_ring: self.controller.has_ring(),
            nics: interface.iter().map(port).collect(),
            lending: None,
            namespaces: self.namespaces.iter().map(Namespace::new).collect(),
            interface,
            gpu: self.gpu.clone(),
            gpu_storage: self.controller.gpu_storage().cloned(),
            gpu_trouble: Arc::clone(&self.trouble),
        }
    }

    fn delete_queue(&mut self, queue: QueueId) {
        if let Some(Some(open)) = self.queues.get_mut(queue.0 as usize)
            && !std::mem::replace(&mut open.deleting, true)
        {
            self.handle(Event::DeleteQueue { queue });
        }
    }

    /// Aborts a transfer. One whose entry was not fetched yet is aborted when it is, before anything of it
    /// begins.
    fn cancel(&mut self, pair: &Arc<QueuePair>, cid: u16) {
        let open = pair
            .id
            .get()
            .and_then(|id| self.queues.get_mut(id.0 as usize)?.as_mut().map(|queue| (*id, queue)));
        let Some((id, queue)) = open else { return self.let_go(pair.cancelled(cid, true)) };
        if queue.has_unfetched(cid) {
            queue.unwanted.push(cid);
        } else {
            self.handle(Event::Abort { queue: id, cid });
        }
        self.let_go(pair.cancelled(cid, true));
    }

    /// Closes what takes time to be closed.
    fn let_go(&mut self, slow: Vec<Arc<Endpoint>>) {
        slow.into_iter().for_each(|endpoint| self.controller.let_go(endpoint));
    }

    /// Adds queues, but not while one is being deleted: the engine may give its number away before the last
    /// actions for it were performed.
    fn open_queues(&mut self) -> bool {
        if self.opening.is_empty() || self.queues.iter().flatten().any(|queue| queue.deleting) {
            return false;
        }
        for pair in std::mem::take(&mut self.opening) {
            let config = QueueConfig { depth: pair.ring_depth(), ..QueueConfig::default() };
            match self.engine.add_queue(config) {
                Some(id) => {
                    let _ = pair.id.set(id);
                    pair.nudge();
                    let queue = Queue {
                        pair,
                        seen_tail: 0,
                        seen_head: 0,
                        next_fetch: 0,
                        unwanted: Vec::new(),
                        deleting: false,
                    };
                    self.queues[id.0 as usize] = Some(queue);
                    self.open.push(id.0);
                }
                None => drop(pair.close()),
            }
        }
        true
    }

    // Inlined as the engine's own is, and for its reason.
    #[inline(always)]
    fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(self.now, event);
    }

    fn publish(&self) {
        let mut counted = Statistics::of(&self.engine);
        (counted.gpu_batches, counted.gpu_blocks) = self.controller.gpu_counts();
        if let Some(trouble) = self.controller.gpu_trouble() {
            *self.trouble.lock().unwrap_or_else(|error| error.into_inner()) = Some(trouble.to_string());
        }
        let moved = self.controller.moved();
        (counted.host_bytes, counted.peer_bytes, counted.peer_copied) =
            (moved.host, moved.peer, moved.copied);
        *self.statistics.lock().unwrap_or_else(|error| error.into_inner()) = counted;
    }

    fn run_pass(&mut self, operator: Operator) {
        let Some(at) = self.passes.iter().position(|pass| pass.lanes().0 == operator) else { return };
        let mut passed = std::mem::take(&mut self.passed);
        self.passes[at].run(&mut self.bound, &self.controller.pool, &mut passed);
        self.now = clock();
        for (operation, outcome) in passed.drain(..) {
            self.handle(Event::Done { operation, outcome });
        }
        self.passed = passed;
    }

    fn take_doorbells(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.open.len() {
            let id = QueueId(self.open[at]);
            let Some(queue) = &mut self.queues[id.0 as usize] else { continue };
            let (tail, head) =
                (queue.pair.sq_tail.load(Ordering::SeqCst), queue.pair.cq_head.load(Ordering::Acquire));
            let (new_tail, new_head) = (tail != queue.seen_tail, head != queue.seen_head);
            (queue.seen_tail, queue.seen_head) = (tail, head);
            if new_head {
                self.handle(Event::CompletionDoorbell { queue: id, head });
            }
            if new_tail {
                self.handle(Event::SubmissionDoorbell { queue: id, tail });
            }
            any |= new_tail || new_head;
        }
        any
    }

    fn take_device_events(&mut self) -> bool {
        if self.controller.is_quiet() {
            return false;
        }
        let mut events = std::mem::take(&mut self.device_events);
        self.controller.short_of_blocks(self.engine.is_short_of_blocks());
        self.controller.poll(&mut events);
        let any = !events.is_empty();
        for event in events.drain(..) {
            match event {
                controller::Event::Device(event) => self.handle(event.into()),
                controller::Event::Retry(operation) => self.resume(&operation),
                controller::Event::Answer(ticket, answer) => self.answered(ticket, answer),
                controller::Event::Computed(operation, result) => self.computed(operation, result),
            }
        }
        self.device_events = events;
        any
    }

    /// Performs at most this many actions; returns false if there were none.
    fn perform(&mut self, most: usize) -> bool {
        let mut done = 0;
        while done < most {
            let Some(action) = self.engine.poll_action() else { return done > 0 };
            done += self.perform_one(action);
        }
        true
    }

    /// Performs an action; tells for how many it counts.
    // Inlined: an action is taken out of the engine's line into its parts.
    #[inline(always)]
    fn perform_one(&mut self, action: Action) -> usize {
        match action {
            Action::FetchEntry { queue, slot } if self.fetch_entry(queue, slot) => {
                return ACTIONS_OF_A_PASSAGE;
            }
            Action::FetchEntry { .. } => {}
            Action::FetchDescriptor { command, queue, address, length } => {
                let mut descriptor = std::mem::take(&mut self.descriptor);
                let fetched =
                    self.pair(queue).and_then(|pair| pair.read_bus(address, length, &mut descriptor));
                let bytes = fetched.map(|()| descriptor.as_slice());
                self.engine.handle(self.now, Event::Descriptor { command, bytes });
                if descriptor::has_parameters(&descriptor) {
                    descriptor.zeroize();
                    wipe::stack();
                }
                self.descriptor = descriptor;
            }
            Action::Bind { command, queue, spec } => {
                let binding = self.bind(command, queue, &spec);
                self.handle(Event::Bound { command, binding });
            }
            Action::Run(short) => self.run_short(short),
            Action::Unbind { command } => {
                if let Some(bound) = self.bound[command.slot()].take_if(|bound| bound.command == command) {
                    self.unbind(bound);
                }
            }
            Action::Issue(operation) => self.issue(&operation),
            Action::StartPass { operator } => self.run_pass(operator),
            Action::Abort { operation } if self.passes.iter_mut().any(|pass| pass.abort(operation)) => {
                let outcome = Outcome::Failed(Failure::new(Status::Cancelled));
                self.handle(Event::Done { operation, outcome });
            }
            Action::Abort { operation } => self.controller.abort(operation),
            Action::Complete { queue, slot, entry, result } => {
                if !entry.status().is_success() {
                    // The caller may ask for the reason.
                    self.publish();
                }
                if let Some(pair) = self.pair(queue) {
                    let (slow, spare) = pair.complete(slot, entry, result);
                    self.let_go(slow);
                    spare.into_iter().for_each(|area| self.engine.recycle(area));
                }
            }
            Action::QueueDeleted { queue } => {
                self.open.retain(|open| *open != queue.0);
                if let Some(queue) = self.queues.get_mut(queue.0 as usize).and_then(Option::take) {
                    self.let_go(queue.pair.close());
                }
            }
        }
        1
    }

    /// An entry was fetched: if its transfer was cancelled before, it goes no further.
    #[cold]
    fn fetched(&mut self, id: QueueId, bytes: &[u8; 64]) {
        let Some(queue) = self.queues.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let cid = entry_cid(bytes);
        if let Some(at) = queue.unwanted.iter().position(|unwanted| *unwanted == cid) {
            queue.unwanted.swap_remove(at);
            self.handle(Event::Abort { queue: id, cid });
        }
    }

    fn pair(&self, queue: QueueId) -> Option<&QueuePair> {
        self.queues.get(queue.0 as usize)?.as_ref().map(|queue| &*queue.pair)
    }

    fn bind(
        &mut self,
        command: CommandId,
        queue: QueueId,
        spec: &TransferSpec,
    ) -> Result<Binding, (Stage, u8, Failure)> {
        let (bound, binding) = self.prepare(command, queue, spec)?;
        self.bound[command.slot()] = Some(bound);
        Ok(binding)
    }

    /// Finds a command's endpoints, and loads its operators.
    #[inline]
    fn prepare(
        &mut self,
        command: CommandId,
        queue: QueueId,
        spec: &TransferSpec,
    ) -> Result<(Bound, Binding), (Stage, u8, Failure)> {
        let pair = self.pair(queue).ok_or((Stage::Frontend, 0, Failure::new(Status::QueueDeleted)))?;
        let (route, binding) =
            Route::bind(spec, |handle| pair.find(handle)).map_err(|(stage, failure)| (stage, 0, failure))?;
        if self.controller.is_peer_to_peer()
            && let Some(stage) = route.stage_not_peer_to_peer(!spec.chain.is_empty())
        {
            return Err((stage, 0, Failure::new(Status::PathUnavailable)));
        }
        let secret = is_secret(spec);
        let mut chain = self.spare_chains.pop().unwrap_or_default();
        if let Err((at, failure)) = chain.load(spec) {
            wipe::stack();
            return Err((Stage::Operator, at, failure));
        }
        Ok((Bound { command, route, chain, secret }, binding))
    }

    fn issue(&mut self, operation: &Operation) {
        let Some(bound) = self.bound[operation.command.slot()].as_mut() else {
            let outcome = Outcome::Failed(Failure::new(Status::InternalError));
            return self.handle(Event::Done { operation: operation.id, outcome });
        };
        if let Some(outcome) = self.offloads.take(operation, &mut bound.chain, &mut self.controller) {
            return self.outcome(operation.id, outcome);
        }
        if let Err(failure) = self.controller.bring_back_for(&operation.kind) {
            return self.outcome(operation.id, Some(Outcome::Failed(failure)));
        }
        if self.passes.iter_mut().any(|pass| pass.take(operation, bound)) {
            return;
        }
        let outcome = match operation.kind {
            OperationKind::Process { .. } | OperationKind::Resize { .. } | OperationKind::Snapshot { .. } => {
                Some(process(&mut bound.chain, &operation.kind, &mut self.controller.pool))
            }
            _ => {
                if self.gets_signals && self.shield.is_none() && bound.route.may_signal(&operation.kind) {
                    self.shield = Some(Shield::raise());
                }
                self.controller.start(operation, &mut bound.route)
            }
        };
        self.outcome(operation.id, outcome);
    }

    /// The GPU is done with an operation.
    fn computed(&mut self, operation: OperationId, result: Result<gpu::Answer, Failure>) {
        let outcome = self.offloads.done(operation, result, &mut self.bound);
        let outcome = outcome.unwrap_or(Outcome::Failed(Failure::new(Status::Cancelled)));
        self.handle(Event::Done { operation, outcome });
    }

    /// Goes on with an operation that the controller gave back.
    fn resume(&mut self, operation: &Operation) {
        // One that hung may come back when its command has long ended, and another one is in its place.
        let bound = self.bound[operation.command.slot()].as_mut();
        let route = bound.filter(|bound| bound.command == operation.command).map(|bound| &mut bound.route);
        let outcome = self.controller.resume(operation, route);
        self.outcome(operation.id, outcome);
    }

    /// Hands in the outcome of an operation, if it is known already.
    fn outcome(&mut self, operation: OperationId, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome {
            self.now = clock();
            self.handle(Event::Done { operation, outcome });
        }
    }
}

impl BackendLoop for KernelLoop {
    fn begin_turn(&mut self, gets_signals: bool) {
        self.gets_signals = gets_signals;
        if gets_signals && self.controller.is_busy() {
            // Requests that another thread has put into the ring may be carried out on this one.
            self.shield = Some(Shield::raise());
        }
    }

    fn end_turn(&mut self) {
        self.shield = None;
    }

    fn is_empty(&self) -> bool {
        self.opening.is_empty() && self.queues.iter().all(Option::is_none)
    }

    fn is_busy(&self) -> bool {
        !self.closed && self.engine.commands_in_flight() > 0
    }

    fn close(&mut self) {
        self.closed = true;
        self.controller.detach();
    }

    fn abandon(&mut self) {
        self.closed = true;
        self.open.clear();
        let open = self.queues.iter_mut().filter_map(Option::take).map(|queue| queue.pair);
        open.chain(self.opening.drain(..)).for_each(|pair| drop(pair.close()));
    }

    fn control(&mut self, control: Control) {
        match control {
            Control::AddQueue(pair) if self.stopping || self.closed => drop(pair.close()),
            Control::AddQueue(pair) => self.opening.push(pair),
            Control::DeleteQueue(queue) => self.delete_queue(queue),
            Control::Cancel(pair, cid) => self.cancel(&pair, cid),
            Control::UpdateStatistics(seen) => {
                self.publish();
                _ = seen.send(());
            }
            Control::Admin(_, answer) if self.closed => _ = answer.send(Err(Status::QueueDeleted)),
            Control::Admin(entry, answer) => self.admin(&entry, answer),
            Control::Identity(_, answer) => _ = answer.send(Err(Status::UnsupportedEndpoint)),
            Control::PacedSending(handle, answer) => {
                // An error: nothing waits for the answer.
                let _ = answer.send(self.controller.paced_sending(handle).ok_or(Status::DeviceReset));
            }
            Control::Stop => {
                self.stopping = true;
                self.opening.drain(..).for_each(|pair| drop(pair.close()));
                (0..self.queues.len() as u16).for_each(|at| self.delete_queue(QueueId(at)));
            }
        }
    }

    fn step(&mut self) -> bool {
        if self.closed {
            return false;
        }
        let mut any = self.open_queues();
        any |= self.take_doorbells();
        // After that, so that no command's time begins before it was submitted.
        self.now = clock();
        any |= self.perform(ACTIONS_A_ROUND);
        any |= self.take_device_events();
        if self.engine.next_timeout().is_some_and(|at| at <= self.now) {
            self.engine.handle_timeout(self.now);
            any = true;
        }
        if !any {
            // Blocks that wait in their lanes for more streams' blocks go without them.
            self.engine.handle_idle(self.now);
            any = self.perform(1);
        }
        if any {
            self.unpublished = true;
        } else if std::mem::take(&mut self.unpublished) {
            self.publish();
        }
        any
    }

    fn run_alone(&mut self, pair: &Arc<QueuePair>, cid: u16, of: &mut dyn FnMut(&Finished<'_>)) -> bool {
        self.go_alone(pair, cid, of)
    }

    fn has_doorbell(&self) -> bool {
        let has_rung = |queue: &Queue| queue.pair.sq_tail.load(Ordering::SeqCst) != queue.seen_tail;
        self.open.iter().any(|at| self.queues[*at as usize].as_ref().is_some_and(has_rung))
    }

    fn sleep(&mut self) {
        if self.closed {
            // No work is done any more: commands are only refused.
            return self.controller.rest();
        }
        let now = clock();
        let timeout = self.engine.next_timeout().map(|at| Duration::from_nanos(at.saturating_sub(now)));
        self.controller.wait(timeout);
    }
}

impl Queue {
    /// Returns true if an entry with this command identifier is in the ring that the engine has not fetched.
    fn has_unfetched(&self, cid: u16) -> bool {
        let depth = self.pair.ring_depth();
        let tail = self.pair.sq_tail.load(Ordering::SeqCst) % u32::from(depth);
        let mut slot = self.next_fetch;
        while u32::from(slot) != tail {
            if entry_cid(&self.pair.read_submission(slot)) == cid {
                return true;
            }
            slot = (slot + 1) % depth;
        }
        false
    }
}

/// Returns true if operators have parameters: keys may be among them.
fn is_secret(spec: &TransferSpec) -> bool {
    spec.chain.iter().any(|operator| !operator.parameter.is_empty())
}

/// Runs a block through an operator on the engine's own core. Those of multi-lane units go by passes of many
/// ([`pass`]).
fn process(chain: &mut Chain, kind: &OperationKind, pool: &mut BlockPool) -> Outcome {
    let done = match *kind {
        OperationKind::Process { operator, block, length, last, .. } => pool
            .get_mut(block)
            .map(|buffer| chain.process(operator, &mut buffer.bytes_mut()[..length as usize], last)),
        OperationKind::Resize {
            operator,
            block,
            start,
            length,
            output,
            output_start,
            output_length,
            last,
            ..
        } => pool.pair_mut(block, output).map(|(input, output)| {
            let input = &input.bytes()[start as usize..(start + length) as usize];
            let output =
                &mut output.bytes_mut()[output_start as usize..(output_start + output_length) as usize];
            chain.resize(operator, input, output, last)
        }),
        OperationKind::Snapshot { operator } => Some(chain.snapshot(operator)),
        _ => None,
    };
    done.unwrap_or(Outcome::Failed(Failure::new(Status::InternalError)))
}

/// The command identifier of a submission entry (NVMe's place for it).
fn entry_cid(bytes: &[u8; 64]) -> u16 {
    u16::from_le_bytes([bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests;
