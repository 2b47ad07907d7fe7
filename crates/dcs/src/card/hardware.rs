//! The card over VFIO: its functions, one queue pair, the admin queue, and the buffer in which all of that
//! lies.
//!
//! All that the card writes is copied, then checked: it is a device like another.

use super::disks::{DiskMap, KernelDisk};
use super::error::CardError;
use super::options::{Disk, Nic, Options};
use super::page_allocator::Pages;
use crate::backend::Port;
use dcs_abi::admin::{
    AdminCompletion, AdminCompletionPacket, AdminEntry, Answer, GRANT_READ, GRANT_WRITE, PacedSending,
    PacedSendingPacket, SsdIdentity, SsdIdentityPacket, opcode,
};
use dcs_abi::entry::{CompletionEntry, SubmissionEntry};
use dcs_abi::register::{
    ENGINE_ABI, ENGINE_BLOCKS, ENGINE_BLOCKS_FREE, ENGINE_ID, ENGINE_ID_VALUE, cq_head_doorbell,
    sq_tail_doorbell,
};
use dcs_abi::result::{ResultArea, ResultPacket};
use dcs_abi::status::Status;
use dcs_devices::Sending;
use dcs_devices::controller::Waker;
use dcs_nvme::command::{Abort, CreateCompletionQueue, CreateSubmissionQueue};
use dcs_nvme::register::{ACQ, AQA, ASQ, CC, CSTS};
use dcs_nvme::{AdminQueueSizes, Configuration, ControllerStatus};
use dcs_vfio::{Access, Buffer, Container, Function, Mapping, VfioError};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The card's vendor and device.
const VENDOR: u16 = 0xdc51;
const DEVICE: u16 = 0x0001;
/// Pages of memory are of 4 KiB.
const PAGE_SHIFT: u32 = 12;
/// Entries of each ring.
const DEPTH: u16 = 64;
/// Commands that the card may have.
pub(super) const SLOTS: usize = DEPTH as usize - 1;
/// Admin commands that only Aborts may be: others may wait for a peer.
const ABORTS: usize = 8;
/// The layout of the buffer: the rings, a page each, then a slot for each command, then room for memory
/// endpoints.
const ADMIN_SQ: u64 = 0;
const ADMIN_CQ: u64 = 0x1000;
const SQ: u64 = 0x2000;
const CQ: u64 = 0x3000;
const SLOT_AT: u64 = 0x4000;
const SLOT: u64 = 0x4000;
/// A slot: the descriptor, then the result area.
pub(super) const DESCRIPTOR: u64 = 0x3000;
pub(super) const RESULT: u64 = SLOT - DESCRIPTOR;
/// Place of a media stream's counts, or of an SSD's identity, behind the last slot.
const SENDING: u64 = SLOT_AT + SLOTS as u64 * SLOT;
const DATA: u64 = 2 << 20;
const _: () =
    assert!(SENDING + PacedSending::SIZE as u64 <= DATA && SENDING + SsdIdentity::SIZE as u64 <= DATA);
const LENGTH: u64 = 16 << 20;
/// The handle that the card gives out first: of the buffer.
pub(super) const BUFFER_HANDLE: u32 = 1;
/// Time that the card and its devices may take to come up.
const START: Duration = Duration::from_secs(30);
/// Maximum transmission unit.
const MTU: u32 = 1500;

/// A ring's two positions.
#[derive(Debug, Default)]
struct Ring {
    tail: u16,
    head: u16,
    turned: bool,
    rung: (u16, u16),
}

impl Ring {
    fn advance(at: &mut u16) -> bool {
        *at = (*at + 1) % DEPTH;
        *at == 0
    }
}

/// Receiver of an admin command's answer.
#[derive(Debug)]
enum Asker {
    Nobody,
    /// Has had a command with this identifier aborted, if the card had it then.
    Abort(u16),
    Answer(Sender<Answer>),
    /// Waits for a media stream's counts, which the card writes into a slot's place.
    Sending(Sender<Result<Sending, Status>>),
    /// Waits for an SSD's identity, which the card writes there too.
    Identity(Sender<Result<SsdIdentity, Status>>),
}

impl Asker {
    /// True if the card writes the answer into the place of which there is one.
    fn needs_place(&self) -> bool {
        matches!(self, Asker::Sending(_) | Asker::Identity(_))
    }
}

/// The card.
#[derive(Debug)]
pub(super) struct Hardware {
    registers: Mapping,
    buffer: Buffer,
    events: [OwnedFd; 2],
    admin: Ring,
    commands: Ring,
    /// Admin commands that the card has, by identifier: which, and who asked.
    asked: HashMap<u16, (u8, Asker)>,
    waiting: VecDeque<(AdminEntry, Asker)>,
    /// Bytes of the descriptor in each slot, which may hold keys.
    lengths: [usize; SLOTS],
    next_cid: u16,
    /// Commands whose Abort is not answered: another one with the identifier would be aborted.
    aborting: [bool; SLOTS],
    /// Set while the card writes what a media stream has sent, or which SSD it is: there is one place for that.
    tells: bool,
    /// Its NICs.
    pub nics: Vec<Port>,
    // The kernel resets each when this and the mappings of its BARs, which the containers hold, are gone.
    functions: Vec<Function>,
}

impl Hardware {
    /// Takes the functions, starts the card, has it attach its devices. Also returns its disks.
    pub fn new(options: &Options) -> Result<(Hardware, Vec<DiskMap>), CardError> {
        let found = || dcs_vfio::functions(Some(VENDOR), Some(DEVICE), None).first().cloned();
        let card = options.card.clone().or_else(found).ok_or(CardError::None(VENDOR, DEVICE))?;
        // Checked before any function is taken.
        let kernel = |disk: &Disk| disk.device.as_deref().map(KernelDisk::of).transpose();
        let kernel: Vec<_> = options.disks.iter().map(kernel).collect::<Result<_, _>>()?;
        // The devices reach the card; the card reaches them and the buffer.
        let (near, far) = (Container::new()?, Container::new()?);
        let open = |container: &Container, address: &str| -> Result<Function, CardError> {
            dcs_vfio::take(address)?;
            let function = Function::open(container, address)?;
            function.enable(true)?;
            Ok(function)
        };
        let card = open(&near, &card)?;
        let own = own_memory(&card, options)?;
        if let Some((own, memory)) = &own {
            // Its own too: by a write to itself it finds out its address.
            near.map(memory, *own, Access::Both)?;
        }
        let disks: Vec<Function> =
            options.disks.iter().map(|disk| open(&far, &disk.function)).collect::<Result<_, _>>()?;
        let nics: Vec<Function> =
            options.nics.iter().map(|nic| open(&far, &nic.function)).collect::<Result<_, _>>()?;
        let windows = map_to_each_other((&near, &far), own, disks.iter().chain(&nics))?;
        let buffer = Buffer::new(&near, place(&windows), LENGTH, Access::Both)?;
        let event = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let events = match (event(), event()) {
            (Ok(admin), Ok(commands)) => [admin, commands],
            _ => return Err(CardError::Card("no descriptor is left for its interrupts")),
        };
        card.interrupts(&[events[0].as_fd(), events[1].as_fd()])?;
        let registers = card.bar(0)?;
        let mut hardware = Hardware {
            registers,
            buffer,
            events,
            admin: Ring::default(),
            commands: Ring::default(),
            asked: HashMap::new(),
            waiting: VecDeque::new(),
            aborting: [false; SLOTS],
            lengths: [0; SLOTS],
            next_cid: 0,
            tells: false,
            nics: Vec::new(),
            functions: Vec::new(),
        };
        hardware.start()?;
        hardware.make_queues()?;
        let maps = hardware.attach_disks(&kernel, &disks)?;
        for (nic, function) in options.nics.iter().zip(&nics) {
            let port = hardware.attach_nic(nic, function)?;
            hardware.nics.push(port);
        }
        hardware.functions.extend(disks);
        hardware.functions.extend(nics);
        hardware.functions.push(card);
        Ok((hardware, maps))
    }

    /// Has the card attach its SSDs; fails if one is not the kernel's disk with that number.
    fn attach_disks(
        &mut self,
        kernel: &[Option<KernelDisk>],
        disks: &[Function],
    ) -> Result<Vec<DiskMap>, CardError> {
        let mut maps = Vec::new();
        for (kernel, function) in kernel.iter().zip(disks) {
            let number = kernel.as_ref().map_or(0, KernelDisk::namespace);
            let handle = self.attach("attach the SSD", opcode::ATTACH_SSD, function, &[number])?;
            if let Some(kernel) = kernel {
                kernel.must_be(&self.identity(handle)?)?;
            }
            maps.push(DiskMap::new(handle, kernel.as_ref()));
        }
        Ok(maps)
    }

    fn start(&self) -> Result<(), CardError> {
        if self.registers.read32(ENGINE_ID as u64) != ENGINE_ID_VALUE {
            return Err(CardError::Card("its registers are not those of a dcs card"));
        }
        if self.registers.read32(ENGINE_ABI as u64) != u32::from(dcs_abi::ABI_VERSION) {
            return Err(CardError::Card("it speaks another version of the command set"));
        }
        self.registers.write32(CC, 0);
        let end = Instant::now() + START;
        let reaches = |wanted: fn(ControllerStatus) -> bool| {
            while !wanted(self.status()) {
                if Instant::now() > end {
                    return Err(CardError::Card("it does not become ready (CSTS)"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        reaches(|status| !status.ready)?;
        let base = self.buffer.address();
        let sizes = AdminQueueSizes { submissions: DEPTH, completions: DEPTH };
        self.registers.write32(AQA, sizes.bits());
        self.registers.write64(ASQ, base + ADMIN_SQ);
        self.registers.write64(ACQ, base + ADMIN_CQ);
        let enabled = Configuration { enabled: true, ..Configuration::new(PAGE_SHIFT) };
        self.registers.write32(CC, enabled.bits());
        reaches(is_well)
    }

    fn status(&self) -> ControllerStatus {
        ControllerStatus::from_bits(self.registers.read32(CSTS))
    }

    fn make_queues(&mut self) -> Result<(), CardError> {
        let base = self.buffer.address();
        let words = [LENGTH as u32, (LENGTH >> 32) as u32, GRANT_READ | GRANT_WRITE];
        let (handle, _) = self.ask("be granted memory", entry(opcode::GRANT_MEMORY, base, &words))?;
        if handle != BUFFER_HANDLE {
            return Err(CardError::Card("it was not reset"));
        }
        let (queue, entries, contiguous) = (1, DEPTH.into(), true);
        let completions = CreateCompletionQueue { queue, entries, contiguous, interrupts: true, vector: 1 };
        self.ask("make a queue", entry(opcode::CREATE_CQ, base + CQ, &completions.words()))?;
        let submissions =
            CreateSubmissionQueue { queue, entries, contiguous, priority: 0, completion_queue: queue };
        self.ask("make a queue", entry(opcode::CREATE_SQ, base + SQ, &submissions.words()))?;
        Ok(())
    }

    fn attach(
        &mut self,
        what: &'static str,
        opcode: u8,
        device: &Function,
        more: &[u32],
    ) -> Result<u32, CardError> {
        let mut words = vec![device.bar(0)?.length() as u32];
        words.extend(more);
        Ok(self.ask(what, entry(opcode, device.bar_address(0)?, &words))?.0)
    }

    /// Reads the identity of an SSD's namespace.
    fn identity(&mut self, handle: u32) -> Result<SsdIdentity, CardError> {
        let to = entry(opcode::IDENTIFY_SSD, self.address(DATA), &[handle]);
        self.ask("tell which SSD it is", to)?;
        self.read_identity(DATA)
    }

    /// Reads what the card has written of an SSD.
    fn read_identity(&self, at: u64) -> Result<SsdIdentity, CardError> {
        let mut bytes = [0; SsdIdentity::SIZE];
        self.buffer.load(at, &mut bytes);
        let packet = SsdIdentityPacket::new_checked(&bytes[..]);
        packet
            .and_then(|packet| SsdIdentity::parse(&packet))
            .map_err(|_| CardError::Card("it says nothing sensible of its SSD"))
    }

    fn attach_nic(&mut self, nic: &Nic, function: &Function) -> Result<Port, CardError> {
        let mut id = [0; 2];
        function.read_config(2, &mut id)?;
        let gateway = nic.gateway.map_or(0, |gateway| gateway.to_bits());
        let device = u16::from_le_bytes(id).into();
        let words = [device, nic.address.to_bits(), u32::from(nic.prefix) | MTU << 16, gateway];
        let handle = self.attach("attach the NIC", opcode::ATTACH_NIC, function, &words)?;
        Ok(Port { handle, nic: nic.clone() })
    }

    /// Runs an admin command and waits for it: before there are any others.
    fn ask(&mut self, what: &'static str, entry: AdminEntry) -> Result<(u32, u32), CardError> {
        let (send, receive) = std::sync::mpsc::channel();
        self.admin(entry, send);
        let end = Instant::now() + START;
        loop {
            self.reap_admin();
            match receive.try_recv() {
                Ok(answer) => return answer.map_err(|status| CardError::Refused(what, status)),
                Err(_) if Instant::now() > end => return Err(CardError::Card("it does not answer")),
                Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    /// Begins an admin command; its answer goes to `answer`.
    pub fn admin(&mut self, entry: AdminEntry, answer: Sender<Answer>) {
        self.waiting.push_back((entry, Asker::Answer(answer)));
        self.give_admin();
    }

    /// Asks what a media stream has sent.
    pub fn paced_sending(&mut self, handle: u32, answer: Sender<Result<Sending, Status>>) {
        let entry = entry(opcode::PACED_SENDING, self.address(SENDING), &[handle]);
        self.waiting.push_back((entry, Asker::Sending(answer)));
        self.give_admin();
    }

    /// Asks which SSD, or which part of one, a handle names.
    pub fn ask_identity(&mut self, handle: u32, answer: Sender<Result<SsdIdentity, Status>>) {
        let entry = entry(opcode::IDENTIFY_SSD, self.address(SENDING), &[handle]);
        self.waiting.push_back((entry, Asker::Identity(answer)));
        self.give_admin();
    }

    /// Has a command aborted. The card may not have fetched it yet: then it goes on.
    pub fn abort(&mut self, cid: u16) {
        if !core::mem::replace(&mut self.aborting[usize::from(cid)], true) {
            let words = Abort { submission_queue: 1, cid }.words();
            self.waiting.push_back((entry(opcode::ABORT, 0, &words), Asker::Abort(cid)));
            self.give_admin();
        }
    }

    /// Notes that a command has ended: it is aborted no more, if the card was not told yet.
    pub fn ended(&mut self, cid: u16) {
        let queued = self.waiting.len();
        self.waiting.retain(|(_, asker)| !matches!(asker, Asker::Abort(other) if *other == cid));
        if self.waiting.len() < queued {
            self.aborting[usize::from(cid)] = false;
        }
    }

    /// Returns true if a command with this identifier may yet be aborted.
    pub fn is_aborting(&self, cid: u16) -> bool {
        self.aborting[usize::from(cid)]
    }

    /// Reads what the card has written of a media stream.
    fn sending(&self) -> Result<Sending, Status> {
        let mut bytes = [0; PacedSending::SIZE];
        self.buffer.load(SENDING, &mut bytes);
        let packet = PacedSendingPacket::new_checked(&bytes[..]);
        let sending =
            packet.and_then(|packet| PacedSending::parse(&packet)).map_err(|_| Status::InternalError)?;
        let counts = dcs_media::sender::Statistics {
            datagrams: sending.datagrams,
            bytes: sending.bytes,
            late: sending.late,
            worst: sending.worst,
            deviations: sending.deviations,
            slips: sending.slips,
            slipped: sending.slipped,
            lost: sending.lost,
            jumps: sending.jumps,
            skipped: sending.skipped,
        };
        Ok(Sending { counts, errno: sending.errno as i32, segments: false })
    }

    fn give_admin(&mut self) {
        while let Some((mut entry, asker)) = self.next_waiting() {
            self.tells |= asker.needs_place();
            self.next_cid = self.next_cid.wrapping_add(1);
            while self.asked.contains_key(&self.next_cid) {
                self.next_cid = self.next_cid.wrapping_add(1);
            }
            entry.cid = self.next_cid;
            // An entry without a waiting thread is kept all the same: it is in the ring.
            self.asked.insert(entry.cid, (entry.opcode, asker));
            self.buffer.store(ADMIN_SQ + u64::from(self.admin.tail) * 64, &entry.to_bytes());
            Ring::advance(&mut self.admin.tail);
            self.registers.write32(sq_tail_doorbell(0) as u64, self.admin.tail.into());
        }
    }

    /// Takes out the next admin command that the card can have now.
    fn next_waiting(&mut self) -> Option<(AdminEntry, Asker)> {
        let first = self.waiting.front().filter(|_| self.asked.len() < SLOTS - ABORTS);
        if first.is_some_and(|(_, asker)| !(self.tells && asker.needs_place())) {
            return self.waiting.pop_front();
        }
        let abort = self.waiting.iter().position(|(_, asker)| matches!(asker, Asker::Abort(_)));
        abort.filter(|_| self.asked.len() < SLOTS).and_then(|at| self.waiting.remove(at))
    }

    /// Takes answers to admin commands.
    pub fn reap_admin(&mut self) -> bool {
        let mut any = false;
        loop {
            let mut bytes = [0; 16];
            self.buffer.load(ADMIN_CQ + u64::from(self.admin.head) * 16, &mut bytes);
            let packet = AdminCompletionPacket::new_checked(&bytes[..]);
            let Ok(found) = packet.and_then(|packet| AdminCompletion::parse(&packet)) else { break };
            if (found.status & 1 == 1) == self.admin.turned {
                break;
            }
            any = true;
            self.admin.turned ^= Ring::advance(&mut self.admin.head);
            self.registers.write32(cq_head_doorbell(0) as u64, self.admin.head.into());
            if let Some((asked, asker)) = self.asked.remove(&found.cid) {
                let status = Status::from_code(found.status >> 1);
                let told = if status.is_success() { Ok((found.value, found.extra)) } else { Err(status) };
                let unwanted = match asker {
                    Asker::Nobody => true,
                    Asker::Abort(cid) => {
                        self.aborting[usize::from(cid)] = false;
                        true
                    }
                    Asker::Answer(answer) => answer.send(told).is_err(),
                    Asker::Sending(answer) => {
                        self.tells = false;
                        answer.send(told.and_then(|_| self.sending())).is_err()
                    }
                    Asker::Identity(answer) => {
                        self.tells = false;
                        let read = |_| self.read_identity(SENDING).map_err(|_| Status::InternalError);
                        answer.send(told.and_then(read)).is_err()
                    }
                };
                if unwanted && told.is_ok() && matches!(asked, opcode::ACCEPT | opcode::CONNECT) {
                    // A connection that no thread waits for any more.
                    self.waiting.push_back((self::entry(opcode::RELEASE, 0, &[found.value]), Asker::Nobody));
                }
            }
        }
        self.give_admin();
        any
    }

    /// The bus address of a place in the buffer.
    pub fn address(&self, offset: u64) -> u64 {
        self.buffer.address() + offset
    }

    /// The part of the buffer for memory endpoints.
    pub fn data(&self) -> Pages {
        Pages { offset: DATA, length: LENGTH - DATA }
    }

    /// The buffer.
    pub fn buffer(&self) -> &Mapping {
        &self.buffer
    }

    /// Puts a command into the ring; [`Hardware::ring`] tells the card.
    pub fn submit(&mut self, cid: u16, mut entry: SubmissionEntry, descriptor: &[u8]) {
        let slot = SLOT_AT + u64::from(cid) * SLOT;
        self.buffer.store(slot, descriptor);
        self.lengths[cid as usize] = descriptor.len();
        self.buffer.store(slot + DESCRIPTOR, &[0; ResultArea::SIZE]);
        entry.cid = cid;
        entry.descriptor_address = self.address(slot);
        entry.descriptor_length = descriptor.len() as u32;
        entry.result_address = self.address(slot + DESCRIPTOR);
        self.buffer.store(SQ + u64::from(self.commands.tail) * 64, &entry.to_bytes());
        Ring::advance(&mut self.commands.tail);
    }

    /// Rings the doorbells for all that was submitted and taken since.
    pub fn ring(&mut self) {
        let ring = &mut self.commands;
        if ring.rung.0 != ring.tail {
            self.registers.write32(sq_tail_doorbell(1) as u64, ring.tail.into());
        }
        ring.rung.0 = ring.tail;
        // The card needs to know only that there is room.
        if (ring.head + DEPTH - ring.rung.1) % DEPTH >= DEPTH / 4 {
            self.registers.write32(cq_head_doorbell(1) as u64, ring.head.into());
            ring.rung.1 = ring.head;
        }
    }

    /// The next completion.
    pub fn completion(&mut self) -> Option<CompletionEntry> {
        let mut bytes = [0; 16];
        self.buffer.load(CQ + u64::from(self.commands.head) * 16, &mut bytes);
        let entry = CompletionEntry::if_new(&bytes, !self.commands.turned).ok()??;
        self.commands.turned ^= Ring::advance(&mut self.commands.head);
        Some(entry)
    }

    /// The result area of a command, whose parameters are wiped.
    pub fn result(&self, cid: u16) -> ResultArea {
        let slot = SLOT_AT + u64::from(cid) * SLOT;
        let mut bytes = [0; ResultArea::SIZE];
        self.buffer.load(slot + DESCRIPTOR, &mut bytes);
        let used = self.lengths[cid as usize];
        self.buffer.store(slot, &vec![0; used]);
        let packet = ResultPacket::new_checked(&bytes[..]);
        packet.and_then(|packet| ResultArea::parse(&packet)).unwrap_or_default()
    }

    /// Blocks of the card's.
    pub fn blocks(&self) -> u32 {
        self.registers.read32(ENGINE_BLOCKS as u64)
    }

    /// Those that are free now.
    pub fn blocks_free(&self) -> u32 {
        self.registers.read32(ENGINE_BLOCKS_FREE as u64)
    }

    /// Waits for an interrupt or the waker, up to `limit`.
    pub fn wait(&self, waker: &Waker, limit: Option<Duration>) {
        let mut polled = [
            PollFd::new(&self.events[0], PollFlags::IN),
            PollFd::new(&self.events[1], PollFlags::IN),
            PollFd::from_borrowed_fd(waker.event(), PollFlags::IN),
        ];
        let limit = limit.and_then(|limit| limit.try_into().ok());
        let _ = rustix::event::poll(&mut polled, limit.as_ref());
        let ready = polled.each_ref().map(|one| !one.revents().is_empty());
        let mut count = [0; 8];
        for (event, _) in self.events.iter().zip(ready).filter(|(_, ready)| *ready) {
            let _ = rustix::io::read(event, &mut count);
        }
        if ready[2] {
            waker.drain();
        }
    }

    /// True if it is there, enabled and well. All ones are read of a function that has gone.
    pub fn is_well(&self) -> bool {
        is_well(self.status())
    }

    /// Admin commands that it has not answered.
    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Takes the bus from all functions: whatever they are at, they reach no memory and no disk's data reach
    /// them any more. For a card that does not let go.
    pub fn silence(&self) {
        for function in &self.functions {
            // One that was pulled out has no registers.
            let _ = function.enable(false);
        }
    }

    /// Switches the card off: all its transfers end. Threads that still wait learn that there is no card.
    pub fn stop(&mut self) {
        self.registers.write32(CC, 0);
        self.asked.clear();
        self.waiting.clear();
        self.aborting = [false; SLOTS];
    }
}

/// Maps the card's memory for its devices in `far`, and their BARs for the card in `near`. Returns the address and length
/// of each.
fn map_to_each_other<'a>(
    (near, far): (&Container, &Container),
    own: Option<(u64, Arc<Mapping>)>,
    devices: impl Iterator<Item = &'a Function> + Clone,
) -> Result<Vec<(u64, u64)>, CardError> {
    let mut windows = Vec::new();
    if let Some((own, memory)) = own {
        if devices.clone().next().is_some() {
            far.map(&memory, own, Access::Both)?;
        }
        windows.push((own, memory.length()));
    }
    for device in devices {
        let (bar, address) = (device.bar(0)?, device.bar_address(0)?);
        windows.push((address, bar.length()));
        near.map(&Arc::new(bar), address, Access::Both)?;
    }
    Ok(windows)
}

/// The card's own memory, with its address. Only function 0 has it as a BAR, and only function 0 has devices.
fn own_memory(card: &Function, options: &Options) -> Result<Option<(u64, Arc<Mapping>)>, CardError> {
    match card.bar(2) {
        Ok(memory) => Ok(Some((card.bar_address(2)?, Arc::new(memory)))),
        Err(VfioError::Missing(..)) if options.disks.is_empty() && options.nics.is_empty() => Ok(None),
        Err(VfioError::Missing(address, _)) => Err(CardError::NoDevices(address)),
        Err(error) => Err(error.into()),
    }
}

/// True if it processes commands. All ones, as they are read of a function that has gone, say that it failed.
fn is_well(status: ControllerStatus) -> bool {
    status.ready && !status.fatal
}

/// An admin command.
fn entry(opcode: u8, data_address: u64, words: &[u32]) -> AdminEntry {
    let mut entry = AdminEntry { opcode, data_address, ..Default::default() };
    entry.words[..words.len()].copy_from_slice(words);
    entry
}

/// A bus address for the buffer that is none of the BARs'.
fn place(windows: &[(u64, u64)]) -> u64 {
    let free = |address: &u64| {
        windows.iter().all(|(start, length)| address + LENGTH <= *start || start + length <= *address)
    };
    (4u64..).map(|gigabytes| gigabytes << 30).find(free).unwrap_or(4 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_where_no_bar_is() {
        assert_eq!(place(&[]), 4 << 30);
        assert_eq!(place(&[(4 << 30, 1 << 20), ((5 << 30) + LENGTH - 1, 1)]), 6 << 30);
    }
}
