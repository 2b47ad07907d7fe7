//! NVMe SSDs and NICs that this process drives itself, past the kernel's drivers: over VFIO, behind an IOMMU.
//!
//! | module | contents |
//! |---|---|
//! | `bus` | the bus as one device's driver in this process sees it |
//! | `error` | errors of SSDs and NICs that cannot be driven |
//! | `link` | an engine's NIC, with TCP in this process on top |
//! | `open` | an NVMe controller for an owner that has a driver of its own |
//!
//! All devices of an engine share one address space of the IOMMU, which contains one piece of memory and nothing else: their queues and
//! rings, and the engine's blocks. An SSD writes what it reads into a block itself. Operators process it there, and sockets, files and the
//! NIC take it from there: each frame's payload is fetched out of the block. A NIC receives into its own buffers, from which the bytes are
//! copied to their place in a block. On request the blocks are in an SSD's memory ([`SsdOptions::holds_blocks`]): then the SSD reads into
//! that, the NIC fetches from there, and data cross no host memory. Completions and frames interrupt by the eventfd that the engine sleeps
//! on; a busy engine polls for them.
//!
//! TCP and UDP are [`dcs_net`]'s: no kernel knows the connections and media streams of such a NIC, and they end with the engine.
//!
//! A function must be bound to vfio-pci already. Nothing here binds it: that would take it from its current user.

mod bus;
mod error;
mod link;
mod memory;
mod open;

use crate::buffer::{BlockPool, Buffer};
use bus::VfioBus;
use dcs_abi::admin::Answer;
use dcs_abi::descriptor::Pace;
use dcs_abi::result::{PATH_PEER_TO_PEER, PATH_VFIO};
use dcs_abi::status::Status;
use dcs_drivers::bus::{Region, Window};
use dcs_drivers::network::{Network, Sending};
use dcs_drivers::nvme::{self, Config, IdentifyError, ResetCause, State};
use dcs_drivers::ssd::{Job, LOGICAL_BLOCK_MAX, Span, Ssd, Work};
use dcs_engine::{BlockId, DeviceEvent, Failure, Nanos, OperationId, Outcome};
use dcs_net::Piece;
use dcs_nvme::command::admin;
use dcs_vfio::{Container, Function};
pub use error::DriveError;
use link::Link;
pub use link::{Interface, NicOptions, NicRequest};
use memory::Memory;
pub use open::OpenSsd;
use rustix::fd::BorrowedFd;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// PCI class of NVMe controllers.
const NVME: u32 = 0x01_0802;
/// Most commands that an SSD has at once.
const COMMANDS_MAX: usize = 64;
/// Time limit for an SSD to start, and to stop. CAP.TO allows two minutes, which is too long to wait.
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(5);
/// Time limit for a NIC to find a link, and for peers to acknowledge what was sent when the engine ends.
const LINK: Duration = Duration::from_secs(15);
const LINGER: Duration = Duration::from_secs(10);
/// Interval at which devices are polled while waiting for them.
const INTERVAL: Duration = Duration::from_micros(200);
/// Size of a page, in bytes.
const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// An SSD for an engine to drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdOptions {
    /// The PCI function, as `0000:01:00.0`.
    pub function: String,
    /// Namespace number; `None`: the first.
    pub namespace: Option<u32>,
    /// Set to put the engine's blocks into its memory, a persistent memory region. The first SSD with this option has them.
    pub holds_blocks: bool,
}

/// A namespace of an SSD that an engine drives.
#[derive(Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The PCI function, as `0000:01:00.0`.
    pub function: String,
    /// Namespace number.
    pub number: u32,
    /// Size of a logical block, in bytes.
    pub block_size: u32,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Set if the memory that it reads into is in huge pages.
    pub huge_pages: bool,
}

impl Namespace {
    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size.into())
    }
}

/// An SSD.
#[derive(Debug)]
struct Drive {
    // Dropped in this order: the kernel resets the function before its memory is reused.
    function: Function,
    ssd: Ssd,
    bus: VfioBus,
    namespace: Arc<Namespace>,
}

/// The devices of an engine, and the blocks that are with them.
#[derive(Debug)]
pub(crate) struct DirectDevices {
    drives: Vec<Drive>,
    link: Option<Link>,
    /// Offset of the blocks in the memory.
    blocks: u64,
    block_size: u32,
    /// Set if an SSD has the blocks in its memory.
    holder: bool,
    /// Bytes that went into blocks and out of them.
    moved: u64,
    /// Buffers of blocks that devices have, or may still reach.
    lent: HashMap<BlockId, Buffer>,
    start: Instant,
}

/// Bytes moved between an engine's blocks and the devices that it drives directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes moved while the blocks were in host memory.
    pub host: u64,
    /// Bytes moved while the blocks were in an SSD's memory.
    pub peer: u64,
    /// Bytes that the processor has copied into an SSD's memory or out of it.
    pub copied: u64,
}

/// An event of the devices.
#[derive(Debug)]
pub(crate) enum DriveEvent {
    /// An operation's event. Its block is back in the pool, unless the outcome says that the device still has it.
    Device(DeviceEvent),
    /// The answer to a request to the NIC, under this ticket.
    Answer(u16, Answer),
}

/// Checks that the SSDs are different ones, and each is ready to be taken.
fn check_ssds(wanted: &[SsdOptions]) -> Result<(), DriveError> {
    for (at, one) in wanted.iter().enumerate() {
        if wanted[..at].iter().any(|other| other.function == one.function) {
            return Err(DriveError::Twice(one.function.clone()));
        }
        check(&one.function, Some(NVME))?;
    }
    Ok(())
}

impl DirectDevices {
    /// Takes the devices and starts them, with memory for `blocks` blocks, of which the pool is made. Their interrupts signal `wake`.
    pub fn open(
        (wanted, nic): (&[SsdOptions], Option<&NicOptions>),
        blocks: u32,
        block_size: u32,
        wake: BorrowedFd<'_>,
    ) -> Result<(DirectDevices, BlockPool), DriveError> {
        check_ssds(wanted)?;
        let model = nic
            .map(|nic| check(&nic.function, None).and_then(|()| link::model(&nic.function)))
            .transpose()?;
        let container = Container::new()?;
        let functions = wanted.iter().map(|one| take(&container, &one.function));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        let nic_function = nic.map(|nic| take(&container, &nic.function)).transpose()?;
        let config = |bar: Window, at: usize| Config {
            namespace: wanted.get(at).and_then(|one| one.namespace),
            // Longer transfers are split.
            max_transfer: u64::from(block_size.min(1 << 20) + 2 * LOGICAL_BLOCK_MAX),
            interrupts: true,
            ..Config::new(bar, at as u32 + 1)
        };
        let any = Window { address: 0, length: 0x4000 };
        let network = model
            .map_or(0, |model| Network::memory(&link::config(model, any, 0, PAGE)).next_multiple_of(4096));
        let own =
            wanted.len() as u64 * Ssd::memory(&config(any, 0), block_size).next_multiple_of(4096) + network;
        let holder = wanted.iter().position(|one| one.holds_blocks);
        let bytes = u64::from(blocks) * u64::from(block_size);
        let memory = Memory::new(&container, (own, bytes), holder.map(|at| &functions[at]))?;
        let huge_pages = memory.huge_pages;
        let path = if holder.is_some() { PATH_VFIO | PATH_PEER_TO_PEER } else { PATH_VFIO };
        let mut region = Region::whole(memory.own());
        let mut drives = Vec::new();
        for (at, function) in functions.into_iter().enumerate() {
            let name = || wanted[at].function.clone();
            let (registers, bar) = (function.bar(0)?, function.bar_address(0)?);
            let window = Window { address: bar, length: registers.length() };
            let pmr = memory.pmr().filter(|_| holder == Some(at));
            let config = Config { pmr, ..config(window, at) };
            let ssd = Ssd::new(config, (COMMANDS_MAX, path), block_size, &mut region);
            let ssd = ssd.ok_or_else(|| DriveError::Registers(name()))?;
            function.interrupts(&[wake])?;
            let bus = memory.bus(registers, bar);
            // The rest is known once it is up.
            let namespace = Namespace { function: name(), number: 0, block_size: 0, blocks: 0, huge_pages };
            drives.push(Drive { function, ssd, bus, namespace: Arc::new(namespace) });
        }
        let mut link = None;
        if let (Some(wanted), Some(model), Some(function)) = (nic, model, nic_function) {
            let (registers, bar) = (function.bar(0)?, function.bar_address(0)?);
            let window = Window { address: bar, length: registers.length() };
            let config = link::config(model, window, drives.len() as u32 + 1, memory.page());
            function.interrupts(&[wake])?;
            let parts = (function, memory.bus(registers, bar));
            link = Some(Link::new((wanted, huge_pages), config, parts, path, &mut region)?);
        }
        let (pool, first) = memory.blocks(blocks, block_size, &mut region);
        let (moved, lent, start) = (0, HashMap::new(), Instant::now());
        let holder = holder.is_some();
        let mut drives =
            DirectDevices { drives, link, blocks: first, block_size, holder, moved, lent, start };
        drives.start(wanted)?;
        Ok((drives, pool))
    }

    /// Starts all of them, and identifies them.
    fn start(&mut self, wanted: &[SsdOptions]) -> Result<(), DriveError> {
        let now = self.now();
        self.drives.iter_mut().for_each(|drive| drive.ssd.start(&mut drive.bus, now));
        self.link.iter_mut().for_each(|link| link.start(now));
        let starting = |drive: &Drive| drive.ssd.host().state() == State::Starting;
        if !self.until(START, |drives| !drives.drives.iter().any(starting)) {
            let slow = self.drives.iter().find(|drive| starting(drive));
            return Err(DriveError::Slow(
                slow.map_or_else(String::new, |drive| drive.namespace.function.clone()),
            ));
        }
        for (drive, wanted) in self.drives.iter_mut().zip(wanted) {
            let function = wanted.function.clone();
            let found = match (drive.ssd.host().state(), drive.ssd.host().namespace()) {
                (State::Ready, Some(found)) => *found,
                (State::Failed(failure), _) if missing(failure) && wanted.namespace.is_some() => {
                    return Err(DriveError::Namespace(function, wanted.namespace.unwrap_or(0)));
                }
                (State::Failed(failure), _) => return Err(DriveError::Start(function, failure)),
                _ => return Err(DriveError::Slow(function)),
            };
            if found.block_size > LOGICAL_BLOCK_MAX {
                return Err(DriveError::BlockSize(function, found.block_size));
            }
            drive.namespace = Arc::new(Namespace {
                function,
                number: found.number,
                block_size: found.block_size,
                blocks: found.blocks,
                huge_pages: drive.namespace.huge_pages,
            });
        }
        let mut up = Ok(false);
        self.until(LINK, |drives| {
            up = drives.link.as_mut().map_or(Ok(true), |link| link.is_up(false));
            !matches!(up, Ok(false))
        });
        match (up?, &mut self.link) {
            (false, Some(link)) => link.is_up(true).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Serves the devices until `so` returns true; returns false if that takes too long.
    fn until(&mut self, limit: Duration, mut so: impl FnMut(&mut DirectDevices) -> bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            let now = self.now();
            self.drives.iter_mut().for_each(|drive| drive.look(now));
            self.link.iter_mut().for_each(|link| link.look(now));
            if so(self) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Returns the namespaces, in the order of the options.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.drives.iter().map(|drive| &drive.namespace)
    }

    /// Returns true if the blocks are in an SSD's memory.
    pub fn is_peer_to_peer(&self) -> bool {
        self.holder
    }

    /// Returns the bytes that went into the blocks and out of them.
    pub fn moved(&self) -> Moved {
        let (host, peer) = if self.holder { (0, self.moved) } else { (self.moved, 0) };
        let buses = self.drives.iter().map(|drive| &drive.bus).chain(self.link.iter().map(Link::bus));
        Moved { host, peer, copied: buses.map(VfioBus::copied).sum() }
    }

    /// Returns its NIC, if it has one.
    pub fn interface(&self) -> Option<&Arc<Interface>> {
        self.link.as_ref().map(|link| &link.interface)
    }

    /// Makes a request to the NIC. `None`: the answer comes later, under this ticket.
    pub fn ask(&mut self, ticket: u16, ask: NicRequest) -> Option<Answer> {
        let now = self.now();
        match &mut self.link {
            Some(link) => link.ask(now, ticket, ask),
            None => Some(Err(Status::UnsupportedEndpoint)),
        }
    }

    /// Gives a device work, with the buffer that it needs; a flush needs none. Refuses a namespace or a connection of another engine.
    pub fn submit(
        &mut self,
        driven: &Driven,
        operation: OperationId,
        work: DriveWork,
        buffer: Option<Buffer>,
    ) -> Result<(), (Failure, Option<Buffer>)> {
        match driven {
            Driven::Namespace(namespace) => self.submit_ssd(namespace, operation, work, buffer),
            Driven::Flow(handle) => self.submit_nic(*handle, operation, work, buffer),
            Driven::Paced { handle, begin, more } => {
                self.submit_paced(*handle, (begin.as_ref(), *more), operation, work, buffer)
            }
        }
    }

    fn submit_paced(
        &mut self,
        handle: u32,
        (begin, more): (Option<&Pace>, bool),
        operation: OperationId,
        work: DriveWork,
        buffer: Option<Buffer>,
    ) -> Result<(), (Failure, Option<Buffer>)> {
        let now = self.now();
        let stream = self.link.as_mut().and_then(|link| link.paced(handle).map(|stream| (link, stream)));
        let Some((link, stream)) = stream else { return Err((Failure::new(Status::BadHandle), buffer)) };
        match work {
            DriveWork::Write { block, start, length, .. } => {
                let offset =
                    self.blocks + block.index() as u64 * u64::from(self.block_size) + u64::from(start);
                if let Some(buffer) = buffer {
                    self.lent.insert(block, buffer);
                }
                link.write_paced(now, stream, (operation, Piece { offset, length }), begin);
            }
            DriveWork::Flush => link.flush_paced(now, stream, (operation, more), begin),
            DriveWork::Read { .. } => return Err((Failure::new(Status::AccessDenied), buffer)),
        }
        Ok(())
    }

    /// Ends a transfer to a media stream of the NIC.
    pub fn end_paced(&mut self, handle: u32) {
        let now = self.now();
        if let Some(link) = &mut self.link
            && let Some(stream) = link.paced(handle)
        {
            link.end_paced(now, stream);
        }
    }

    /// Returns what a media stream of the NIC has sent.
    pub fn paced_sending(&self, handle: u32) -> Option<Sending> {
        let link = self.link.as_ref()?;
        link.network.sending(link.paced(handle)?)
    }

    fn submit_nic(
        &mut self,
        handle: u32,
        operation: OperationId,
        work: DriveWork,
        buffer: Option<Buffer>,
    ) -> Result<(), (Failure, Option<Buffer>)> {
        let now = self.now();
        let flow = self.link.as_mut().and_then(|link| link.flow(handle).map(|flow| (link, flow)));
        let Some((link, flow)) = flow else { return Err((Failure::new(Status::BadHandle), buffer)) };
        let (DriveWork::Read { block, start, length, .. } | DriveWork::Write { block, start, length, .. }) =
            work
        else {
            link.flush(flow, operation);
            return Ok(());
        };
        let memory = self.blocks + block.index() as u64 * u64::from(self.block_size) + u64::from(start);
        if let Some(buffer) = buffer {
            self.lent.insert(block, buffer);
        }
        match work {
            DriveWork::Write { more, .. } => {
                link.write(now, flow, (operation, block), Piece { offset: memory, length }, more);
            }
            _ => link.read(now, flow, (operation, memory, length)),
        }
        Ok(())
    }

    fn submit_ssd(
        &mut self,
        namespace: &Arc<Namespace>,
        operation: OperationId,
        work: DriveWork,
        buffer: Option<Buffer>,
    ) -> Result<(), (Failure, Option<Buffer>)> {
        let now = self.now();
        let is_it = |drive: &&mut Drive| Arc::ptr_eq(&drive.namespace, namespace);
        let Some(drive) = self.drives.iter_mut().find(is_it) else {
            return Err((Failure::new(Status::BadHandle), buffer));
        };
        let span = |position: u64, block: BlockId, start: u32, length: u32| Span {
            position,
            length,
            memory: self.blocks + block.index() as u64 * u64::from(self.block_size) + u64::from(start),
            block,
        };
        let work = match work {
            DriveWork::Read { position, block, start, length } => {
                Work::Read(span(position, block, start, length))
            }
            DriveWork::Write { position, block, start, length, .. } => {
                Work::Write(span(position, block, start, length))
            }
            DriveWork::Flush => Work::Flush,
        };
        if let (Some(buffer), Work::Read(span) | Work::Write(span)) = (buffer, work) {
            self.lent.insert(span.block, buffer);
        }
        drive.ssd.submit(&mut drive.bus, now, Job { operation, work });
        Ok(())
    }

    /// Aborts an operation soon, if possible. It still ends once.
    pub fn abort(&mut self, operation: OperationId) {
        let now = self.now();
        self.drives.iter_mut().for_each(|drive| drive.ssd.abort(&mut drive.bus, now, operation));
        self.link.iter_mut().for_each(|link| link.abort(operation));
    }

    /// Sets whether a command is waiting for a block that another command has.
    pub fn short_of_blocks(&mut self, short: bool) {
        self.link.iter_mut().for_each(|link| link.network.short_of_blocks(short));
    }

    /// Serves all devices and reports what is done. `block` returns the block that an operation has.
    pub fn poll(
        &mut self,
        pool: &mut BlockPool,
        block: impl Fn(OperationId) -> Option<BlockId>,
        events: &mut Vec<DriveEvent>,
    ) {
        let now = self.now();
        for drive in &mut self.drives {
            drive.look(now);
            while let Some(event) = drive.ssd.next_event() {
                self.moved += bytes(&event);
                take_back(&event, &block, &mut self.lent, pool);
                events.push(DriveEvent::Device(event));
            }
        }
        let Some(link) = &mut self.link else { return };
        link.look(now);
        while let Some(event) = link.next_event() {
            if let DriveEvent::Device(event) = &event {
                self.moved += bytes(event);
                take_back(event, &block, &mut self.lent, pool);
            }
            events.push(event);
        }
    }

    /// Has the NIC interrupt on its next event, since the engine is about to sleep. SSDs always do. Returns true if something has happened
    /// already.
    pub fn arm(&mut self) -> bool {
        let now = self.now();
        self.link.as_mut().is_some_and(|link| link.arm(now))
    }

    /// Notes that the engine is awake and polls for events.
    pub fn disarm(&mut self) {
        self.link.iter_mut().for_each(Link::disarm);
    }

    /// Returns the time until the devices must be polled even without an event.
    pub fn timeout(&self) -> Option<Duration> {
        let now = self.now();
        let ssds = self.drives.iter().filter_map(|drive| drive.ssd.deadline());
        let deadline = ssds.chain(self.link.iter().filter_map(|link| link.network.deadline())).min();
        deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now)))
    }

    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }
}

/// Returns the bytes that were moved.
fn bytes(event: &DeviceEvent) -> u64 {
    match event {
        DeviceEvent::Done(_, Outcome::Moved { bytes, .. }) => *bytes,
        _ => 0,
    }
}

/// Puts a block's buffer back into the pool if the event says that the device is done with it.
fn take_back(
    event: &DeviceEvent,
    block: impl Fn(OperationId) -> Option<BlockId>,
    lent: &mut HashMap<BlockId, Buffer>,
    pool: &mut BlockPool,
) {
    let back = match event {
        DeviceEvent::Done(_, Outcome::FailedHeld(_) | Outcome::Moved { held: true, .. }) => None,
        DeviceEvent::Done(operation, _) => block(*operation),
        DeviceEvent::Released(block) => Some(*block),
    };
    if let Some(block) = back
        && let Some(buffer) = lent.remove(&block)
    {
        pool.put(block, buffer);
    }
}

/// A device's end of a transfer.
#[derive(Clone, Debug)]
pub(crate) enum Driven {
    /// A namespace of an SSD.
    Namespace(Arc<Namespace>),
    /// A connection of the NIC, by its handle.
    Flow(u32),
    /// A media stream of the NIC, by its handle. `begin`: the transfer's first operation says its pace. `more`: another transfer joins it.
    Paced { handle: u32, begin: Option<Pace>, more: bool },
}

/// A device's work for an operation: a range of the namespace or the stream, and of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriveWork {
    Read {
        position: u64,
        block: BlockId,
        start: u32,
        length: u32,
    },
    /// A write. `more`: the stream continues.
    Write {
        position: u64,
        block: BlockId,
        start: u32,
        length: u32,
        more: bool,
    },
    Flush,
}

impl Drive {
    /// Hands the driver the answers to its register reads, and everything that follows from them.
    fn look(&mut self, now: Nanos) {
        self.ssd.poll(&mut self.bus, now);
        while let Some(done) = self.bus.answer() {
            self.ssd.read_done(&mut self.bus, now, done);
            self.ssd.poll(&mut self.bus, now);
        }
    }
}

impl Drop for DirectDevices {
    /// Stops the devices, so that they write nowhere when their memory is freed; the kernel's drivers find them disabled. Waits for
    /// acknowledgements of what was sent first.
    fn drop(&mut self) {
        self.until(LINGER, |drives| !drives.link.as_mut().is_some_and(Link::finish));
        self.link.iter_mut().for_each(Link::detach);
        let now = self.now();
        self.drives.iter_mut().for_each(|drive| drive.ssd.detach(&mut drive.bus, now));
        let rests = |drive: &Drive| !matches!(drive.ssd.host().state(), State::Starting | State::Ready);
        self.until(STOP, |drives| {
            let busy = drives.link.as_ref().is_some_and(|link| link.network.is_busy());
            !busy && drives.drives.iter().all(rests)
        });
        let functions = self.drives.iter().map(|drive| &drive.function);
        for function in functions.chain(self.link.iter().map(|link| &link.function)) {
            // Forces a device that did not stop. Without bus mastering it reaches nothing, whatever it does.
            let _ = function.enable(false);
            let _ = function.reset();
        }
    }
}

/// Checks that a function is of the right kind and bound to vfio-pci.
fn check(address: &str, wanted: Option<u32>) -> Result<(), DriveError> {
    let name = address.to_owned();
    if dcs_vfio::address(address).as_deref() != Some(address) {
        return Err(DriveError::Address(name));
    }
    let class = dcs_vfio::class(address).ok_or_else(|| DriveError::Missing(name.clone()))?;
    if wanted.is_some_and(|wanted| class != wanted) {
        return Err(DriveError::Class(name, class));
    }
    match dcs_vfio::driver(address).as_deref() {
        Some("vfio-pci") => Ok(()),
        driver => Err(DriveError::NotBound(name, driver.unwrap_or("no driver").to_owned())),
    }
}

/// Opens a function.
fn take(container: &Container, address: &str) -> Result<Function, DriveError> {
    let function = Function::open(container, address)?;
    function.enable(true)?;
    if function.vectors()? == 0 {
        return Err(DriveError::NoInterrupts(address.to_owned()));
    }
    Ok(function)
}

/// Returns true if a controller failed because there is no such namespace.
fn missing(failure: ResetCause) -> bool {
    match failure {
        ResetCause::Identify(IdentifyError::Empty) => true,
        ResetCause::Admin { opcode, status } => {
            opcode == admin::IDENTIFY && status.is(nvme::Status::INVALID_NAMESPACE)
        }
        _ => false,
    }
}
