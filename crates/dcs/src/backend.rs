//! Backends as the engine's handle sees them: which there are, and the interface of each: a loop that one thread
//! at a time drives.

use crate::card::lending::Lending;
use crate::drive::Near;
use crate::endpoint::Namespace;
use crate::queue::{Finished, QueuePair};
use crate::statistics::Statistics;
use dcs_abi::admin::{AdminEntry, Answer, SsdIdentity};
use dcs_abi::status::Status;
use dcs_devices::Sending;
use dcs_devices::gpu;
use dcs_devices::vfio_devices::{Interface, NicOptions};
use dcs_engine::QueueId;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

/// The part of the machine that runs the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// This machine's kernel: files, sockets, memory through io_uring and plain system calls.
    #[default]
    Kernel,
    /// A dcs card in this machine, which drives SSDs and NICs of its own: see [`card`](crate::card).
    Card,
    /// [`Backend::Kernel`] in a guest that has virtual drives of `dcs csd`: operators on their files run beside
    /// the disk, and only the output crosses the bus. Transfers without operators, or from other sources, use
    /// the kernel. A file that the drive cannot read so is refused
    /// ([`Status::PathUnavailable`](crate::Status::PathUnavailable)), with the reason. Needs root.
    Drive,
}

/// The thread that drives the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// A thread of its own: it spins while there is work, and sleeps when there is none.
    #[default]
    Thread,
    /// The thread that waits for a transfer: no hand-over between threads. Nothing moves while no thread
    /// waits.
    Caller,
}

/// A request of a session or of the engine's handle to a backend, beside commands.
#[derive(Debug)]
pub(crate) enum Control {
    AddQueue(Arc<QueuePair>),
    DeleteQueue(QueueId),
    Cancel(Arc<QueuePair>, u16),
    /// An admin command for a card or a NIC, and where its answer goes.
    Admin(AdminEntry, Sender<Answer>),
    /// Returns the counts of a NIC's media stream, by its handle.
    PacedSending(u32, Sender<Result<Sending, Status>>),
    /// Returns the identity of a card's SSD, or of a part of one, by its handle.
    Identity(u32, Sender<Result<SsdIdentity, Status>>),
    /// Brings the statistics up to date where that costs something; then says so.
    UpdateStatistics(Sender<()>),
    Stop,
}

/// A backend's loop. One thread at a time drives it.
pub(crate) trait BackendLoop: std::fmt::Debug + Send {
    /// Says that the calling thread drives from now on. `gets_signals`: it is the application's own.
    fn begin_turn(&mut self, gets_signals: bool);
    /// Says that the calling thread no longer drives.
    fn end_turn(&mut self);
    /// True if no queue is open.
    fn is_empty(&self) -> bool;
    /// True if commands are under way.
    fn is_busy(&self) -> bool;
    /// Stops: nothing is done any more.
    fn close(&mut self);
    /// Gives everything up: transfers that are waited for end with a deleted queue.
    fn abandon(&mut self);
    /// Carries out a request.
    fn control(&mut self, control: Control);
    /// Makes one round; false if there was nothing to do.
    fn step(&mut self) -> bool;
    /// Runs a transfer to its end, if it is the only work and waits for nothing, and hands over its
    /// completion. Returns false if it did not end this way: then it goes on in rounds.
    fn run_alone(&mut self, _pair: &Arc<QueuePair>, _cid: u16, _of: &mut dyn FnMut(&Finished<'_>)) -> bool {
        false
    }
    /// True if a session has rung since the last round.
    fn has_doorbell(&self) -> bool;
    /// Sleeps until a device, a session or a deadline has something to do.
    fn sleep(&mut self);
}

/// Facts about an engine and its devices.
#[derive(Debug, Default)]
pub(crate) struct Info {
    pub statistics: Arc<Mutex<Statistics>>,
    /// The backend has to be asked for its statistics.
    pub asks_for_statistics: bool,
    /// io_uring carries all calls that take time.
    pub has_ring: bool,
    /// The card's NICs, or the engine's own.
    pub nics: Vec<Port>,
    pub namespaces: Vec<Namespace>,
    /// State for lending and opening parts of SSDs; `None` without a card.
    pub lending: Option<Arc<Lending>>,
    pub interface: Option<Arc<Interface>>,
    pub gpu: Option<gpu::Properties>,
    pub gpu_storage: Option<Result<gpu::Storage, gpu::StorageError>>,
    pub gpu_trouble: Arc<Mutex<Option<String>>>,
    /// Chains on files of virtual drives run beside their disks.
    pub near: Option<Arc<Near>>,
    /// Transfers that failed there, and whose pipe the engine saw to its end.
    pub near_failures: Arc<AtomicU64>,
}

/// A NIC of the card's, or of the engine's.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// Its handle in admin commands.
    pub handle: u32,
    /// Its address and network among other things.
    pub nic: NicOptions,
}

impl Port {
    /// True if the peer is on its network.
    pub fn reaches(&self, peer: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.nic.prefix)).unwrap_or(0);
        (peer.to_bits() ^ self.nic.address.to_bits()) & mask == 0
    }
}
