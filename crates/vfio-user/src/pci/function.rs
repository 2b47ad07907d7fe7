//! The function: its regions, and their handlers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::config::{self, Config, Effect, Identity, Interrupts};
use crate::maps::Maps;
use crate::memory::Memory;

/// The registers of BAR0. Called for each access of the host, on the thread that answers the host: a call stores, wakes another thread and
/// returns. It never waits for the bus, since the host's processor is stalled meanwhile.
pub trait Registers: Send {
    /// Handles a load of this many bytes (1 to 8 from a processor; a client of the protocol may request more) at this offset.
    fn read(&mut self, offset: u64, bytes: &mut [u8]);

    /// Handles a store.
    fn write(&mut self, offset: u64, bytes: &[u8]);

    /// Handles a store to BAR2, for a function that has an [aperture](Setup::aperture) there.
    fn write_aperture(&mut self, _offset: u64, _bytes: &[u8]) {}

    /// Resets the registers, since the function is reset or its host is gone: everything begun ends without a trace. Bus mastering is off
    /// already when this is called.
    fn reset(&mut self);
}

/// No registers: loads return zeros.
#[derive(Clone, Copy, Debug)]
pub struct NoRegisters;

impl Registers for NoRegisters {
    fn read(&mut self, _offset: u64, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn write(&mut self, _offset: u64, _bytes: &[u8]) {}

    fn reset(&mut self) {}
}

/// The settings of a function.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Identity of the function.
    pub identity: Identity,
    /// Size of BAR0 in bytes, a power of two of at least 4,096.
    pub registers: u64,
    /// Size of BAR2, the function's own memory, in bytes: a power of two of at least 8,192, or 0 for a function without. The last page is
    /// not for the controllers.
    pub memory: u64,
    /// Size in bytes of a BAR2 that is not memory but takes stores, which go to [`Registers::write_aperture`], and returns zeros: a power
    /// of two of at least 4,096, or 0. A function has one or the other.
    pub aperture: u64,
    /// Interrupts of the function.
    pub interrupts: Interrupts,
}

/// A region of the function, as the host accesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// Registers.
    Bar0,
    /// Own memory, or an aperture.
    Bar2,
    /// Interrupt vectors.
    Bar4,
    /// Configuration space.
    Config,
}

/// The function's state, for the owner of the bus.
#[derive(Debug)]
pub(crate) struct State {
    /// Set if the function may access other devices.
    pub master: AtomicBool,
    /// Address of BAR0; 0 if it has none.
    pub registers_address: AtomicU64,
    /// Address of BAR2; 0 if it has none.
    pub memory_address: AtomicU64,
    /// Sizes of BAR0 and BAR2 in bytes.
    pub sizes: [u64; 2],
    /// Number of times that the function was reset or lost its host. Counted when the registers know of it.
    pub resets: AtomicU64,
    /// The host's memory. Every copy to or from others holds it, and looks at `master` then. Locking it for writing waits for the copies in
    /// progress.
    pub maps: RwLock<Maps>,
    /// Memory of BAR2, if it has any.
    pub memory: Option<Memory>,
}

/// A PCI function.
pub struct Function {
    config: Config,
    setup: Setup,
    registers: Box<dyn Registers>,
    file: Option<OwnedFd>,
    table: Vec<u8>,
    state: Arc<State>,
}

impl Function {
    /// Makes a function in its power-on state, with zeroed memory.
    ///
    /// # Errors
    ///
    /// If the memory is not available.
    ///
    /// # Panics
    ///
    /// If sizes or vectors are not as [`Setup`] requires.
    pub fn new(setup: Setup, registers: Box<dyn Registers>) -> io::Result<Function> {
        assert!(setup.memory == 0 || setup.memory >= 8192, "own memory of {} bytes", setup.memory);
        assert!(setup.memory == 0 || setup.aperture == 0, "BAR2 is own memory or an aperture");
        let sizes = [setup.registers, setup.memory + setup.aperture];
        let config = Config::new(setup.identity, sizes, setup.interrupts);
        let (memory, file) = match setup.memory {
            0 => (None, None),
            length => {
                Memory::create("dcs-function", length).map(|(memory, file)| (Some(memory), Some(file)))?
            }
        };
        let (master, registers_address, memory_address, resets, maps) = Default::default();
        let state =
            Arc::new(State { master, registers_address, memory_address, sizes, resets, maps, memory });
        let table = vec![0; setup.interrupts.table() as usize];
        Ok(Function { config, setup, registers, file, table, state })
    }

    /// Replaces the registers, if making them requires the function's memory.
    pub fn set_registers(&mut self, registers: Box<dyn Registers>) {
        self.registers = registers;
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Returns its interrupts.
    pub fn interrupts(&self) -> Interrupts {
        self.setup.interrupts
    }

    /// Returns the size of a region in bytes.
    pub fn size(&self, region: Region) -> u64 {
        match region {
            Region::Bar0 => self.setup.registers,
            Region::Bar2 => self.setup.memory + self.setup.aperture,
            Region::Bar4 => self.table.len() as u64,
            Region::Config => config::SIZE as u64,
        }
    }

    /// Returns the file of a region, if the host may map it.
    pub fn file(&self, region: Region) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().filter(|_| region == Region::Bar2).map(|file| file.as_fd())
    }

    /// Handles a read by the host; returns `None` if it exceeds the region.
    pub fn read(&mut self, region: Region, offset: u64, bytes: &mut [u8]) -> Option<()> {
        self.inside(region, offset, bytes.len())?;
        match region {
            Region::Bar0 => self.registers.read(offset, bytes),
            Region::Bar2 => match &self.state.memory {
                Some(memory) => memory.load(offset, bytes),
                None => bytes.fill(0),
            },
            Region::Bar4 => {
                bytes.copy_from_slice(&self.table[offset as usize..offset as usize + bytes.len()])
            }
            Region::Config => self.config.read(offset, bytes),
        }
        Some(())
    }

    /// Handles a write by the host; returns `None` if it exceeds the region.
    pub fn write(&mut self, region: Region, offset: u64, bytes: &[u8]) -> Option<()> {
        self.inside(region, offset, bytes.len())?;
        match region {
            Region::Bar0 => self.registers.write(offset, bytes),
            Region::Bar2 => match &self.state.memory {
                Some(memory) => memory.store(offset, bytes),
                None => self.registers.write_aperture(offset, bytes),
            },
            Region::Bar4 => self.write_table(offset as usize, bytes),
            Region::Config => match self.config.write(offset, bytes) {
                Effect::None => self.publish(),
                Effect::Reset => self.reset(),
            },
        }
        Some(())
    }

    /// Resets the function to its power-on state, except the memory's contents and the BARs' addresses.
    pub fn reset(&mut self) {
        self.config.reset();
        self.quiesce();
    }

    /// Resets the function to its power-on state, except the memory's contents, since the host is gone.
    pub fn unplug(&mut self) {
        self.config.clear();
        self.quiesce();
    }

    fn quiesce(&mut self) {
        self.table.fill(0);
        self.publish();
        self.registers.reset();
        self.state.resets.fetch_add(1, Ordering::AcqRel);
    }

    fn inside(&self, region: Region, offset: u64, length: usize) -> Option<()> {
        offset.checked_add(length as u64).filter(|end| *end <= self.size(region)).map(|_| ())
    }

    /// Writes to the table. The pending bits behind it belong to the function.
    fn write_table(&mut self, offset: usize, bytes: &[u8]) {
        let Interrupts::MsiX(vectors) = self.setup.interrupts else { return };
        let pending = config::pending_offset(vectors) as usize;
        for (at, byte) in (offset..pending).zip(bytes) {
            self.table[at] = *byte;
        }
    }

    fn publish(&self) {
        self.state.registers_address.store(self.config.bar(0).unwrap_or(0), Ordering::Release);
        self.state.memory_address.store(self.config.bar(2).unwrap_or(0), Ordering::Release);
        let is_master = self.config.is_master();
        let was = self.state.master.swap(is_master, Ordering::AcqRel);
        if was && !is_master {
            // After this, no access that had begun before reaches others any more.
            drop(self.state.maps.write().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function {{ {:?}, {:?} }}", self.setup, self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Registers for Log {
        fn read(&mut self, offset: u64, bytes: &mut [u8]) {
            bytes.fill(offset as u8);
        }
        fn write(&mut self, offset: u64, bytes: &[u8]) {
            self.0.lock().unwrap().push(format!("{offset:#x} {bytes:?}"));
        }
        fn reset(&mut self) {
            self.0.lock().unwrap().push("reset".into());
        }
    }

    fn function() -> (Function, Arc<Mutex<Vec<String>>>) {
        let log = Log::default();
        let seen = log.0.clone();
        let setup = Setup {
            identity: Identity::ACCELERATOR,
            registers: 0x2000,
            memory: 0x10000,
            aperture: 0,
            interrupts: Interrupts::MsiX(3),
        };
        (Function::new(setup, Box::new(log)).unwrap(), seen)
    }

    #[test]
    fn regions_end_where_they_end() {
        let (mut function, seen) = function();
        for region in [Region::Bar0, Region::Bar2, Region::Bar4, Region::Config] {
            let size = function.size(region);
            assert!(function.read(region, size - 4, &mut [0; 4]).is_some());
            assert!(function.read(region, size - 3, &mut [0; 4]).is_none());
            assert!(function.write(region, u64::MAX, &[0; 4]).is_none());
        }
        assert!(seen.lock().unwrap().is_empty());
    }

    #[test]
    fn bus_mastering_and_the_memory_s_address_are_told() {
        let (mut function, seen) = function();
        let state = function.state().clone();
        function.write(Region::Config, 0x18, &0x8000_0000u64.to_le_bytes()).unwrap();
        function.write(Region::Config, 4, &[6, 0]).unwrap();
        assert_eq!(state.memory_address.load(Ordering::Acquire), 0x8000_0000);
        assert!(state.master.load(Ordering::Acquire));
        function.write(Region::Config, 0x69, &[0x80]).unwrap();
        assert!(!state.master.load(Ordering::Acquire));
        assert_eq!(*seen.lock().unwrap(), ["reset"]);
    }

    #[test]
    fn the_vector_table_is_memory_and_pending_bits_are_not() {
        let (mut function, _) = function();
        function.write(Region::Bar4, 44, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let mut back = [9; 8];
        function.read(Region::Bar4, 44, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4, 0, 0, 0, 0]);
    }
}
