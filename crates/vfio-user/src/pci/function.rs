//! The function: its regions, and who answers for each.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::config::{self, Config, Effect, Identity, Interrupts};
use crate::memory::Memory;

/// The registers of BAR0. Called for each access of the host, on the thread that answers the host: a call
/// stores, wakes somebody and returns. It never waits for the bus, since the host's processor stands still
/// meanwhile.
pub trait Registers: Send {
    /// A load of this many bytes (1 to 8 from a processor; a client of the protocol may ask for more) at this
    /// offset.
    fn read(&mut self, offset: u64, bytes: &mut [u8]);

    /// A store.
    fn write(&mut self, offset: u64, bytes: &[u8]);

    /// A store to BAR2, of a function that has an [aperture](Setup::aperture) there.
    fn write_aperture(&mut self, _offset: u64, _bytes: &[u8]) {}

    /// The function is reset, or its host is gone: what was begun ends without a trace. The function is no
    /// bus master any more when this is called.
    fn reset(&mut self);
}

/// No registers: loads give zeros.
#[derive(Clone, Copy, Debug)]
pub struct NoRegisters;

impl Registers for NoRegisters {
    fn read(&mut self, _offset: u64, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn write(&mut self, _offset: u64, _bytes: &[u8]) {}

    fn reset(&mut self) {}
}

/// The parts of a function.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its identity.
    pub identity: Identity,
    /// Bytes of BAR0, a power of two of at least 4,096.
    pub registers: u64,
    /// Bytes of BAR2, the function's own memory: a power of two of at least 8,192, or 0 for a function
    /// without. The last page is not for the controllers.
    pub memory: u64,
    /// Bytes of BAR2 where it is no memory but takes stores, which go to [`Registers::write_aperture`], and
    /// gives zeros: a power of two of at least 4,096, or 0. A function has one or the other.
    pub aperture: u64,
    /// Its interrupts.
    pub interrupts: Interrupts,
}

/// A piece of the function, as the host accesses it.
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

/// The function's state as the owner of the bus needs it.
#[derive(Debug)]
pub(crate) struct State {
    /// The function may reach others.
    pub master: AtomicBool,
    /// Where BAR0 lies, 0: nowhere.
    pub registers_address: AtomicU64,
    /// Where BAR2 lies, 0: nowhere.
    pub memory_address: AtomicU64,
    /// Bytes of BAR0 and BAR2.
    pub sizes: [u64; 2],
    /// Times that the function was reset or lost its host. Counted when the registers know of it.
    pub resets: AtomicU64,
    /// Whoever copies to or from others holds it; who takes it to write has seen the last of the copies that
    /// were under way.
    pub copying: RwLock<()>,
    /// BAR2's memory, where there is any.
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
    /// A function as it is after power on, with memory of zeros.
    ///
    /// # Errors
    ///
    /// Where the memory is not available.
    ///
    /// # Panics
    ///
    /// Where sizes or vectors are not as [`Setup`] wants them.
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
        let (master, registers_address, memory_address, resets, copying) = Default::default();
        let state =
            Arc::new(State { master, registers_address, memory_address, sizes, resets, copying, memory });
        let table = vec![0; setup.interrupts.table() as usize];
        Ok(Function { config, setup, registers, file, table, state })
    }

    /// From now on these registers: for who needs the function's memory first to make them.
    pub fn set_registers(&mut self, registers: Box<dyn Registers>) {
        self.registers = registers;
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Its interrupts.
    pub fn interrupts(&self) -> Interrupts {
        self.setup.interrupts
    }

    /// Bytes of a region.
    pub fn size(&self, region: Region) -> u64 {
        match region {
            Region::Bar0 => self.setup.registers,
            Region::Bar2 => self.setup.memory + self.setup.aperture,
            Region::Bar4 => self.table.len() as u64,
            Region::Config => config::SIZE as u64,
        }
    }

    /// The file that a region is, where the host may map it.
    pub fn file(&self, region: Region) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().filter(|_| region == Region::Bar2).map(|file| file.as_fd())
    }

    /// The host reads. Nothing where that is not all in the region.
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

    /// The host writes. Nothing where that is not all in the region.
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

    /// A reset by the host: as after power on, but for the memory's contents and the BARs' addresses.
    pub fn reset(&mut self) {
        self.config.reset();
        self.quiesce();
    }

    /// The host is gone: as after power on, but for the memory's contents.
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

    /// The pending bits behind the table are the function's.
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
            // After this nothing reaches others any more that had begun before.
            drop(self.state.copying.write().unwrap_or_else(PoisonError::into_inner));
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
