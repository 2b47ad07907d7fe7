//! Programs that a guest loads: WebAssembly modules, for this guest's chains and executions only.
//!
//! ```text
//!   Load Program, a piece at a time --> Arriving --all there--> Install: a batch of work, for a slot
//!                                                                  |
//!   Program Activation, Execute, chains that name it <-- Loaded <--+ or Invalid Program Data
//! ```
//!
//! The guest pays for their memory: all programs together have a limit, and their modules take memory of the
//! drive's operators. They are removed when the guest unloads them, or the controller is reset; their memory
//! is freed outside the loop, and counts until then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dcs_ndp::module::{Module, Name};
use dcs_nvme::Status;
use dcs_nvme::programs::{Descriptor, LoadProgram};

use super::budget::{Budget, Taken};
use super::installed::CHAIN;
use crate::waste::Waste;

/// Number of programs that a guest may load, at the indexes after [`CHAIN`].
pub const LOADED: u16 = 16;

/// Maximum number of bytes of a loaded program.
pub const LOADED_BYTES: u32 = 1 << 20;

/// Maximum number of MiB of all loaded programs.
pub const LOADED_MIB: u64 = 4;

/// Type of the programs that may be loaded, one of the vendor's: a WebAssembly module.
pub const WEBASSEMBLY: u8 = 0xc0;

/// The program was loaded by the guest.
const DOWNLOADED: u8 = 1;

/// Bytes of memory for making an operator: for each byte of its module, and in addition. The operator itself
/// takes less: `crates/wasm` measures it.
const MEMORY_PER_BYTE: u64 = 64;
const MEMORY_BESIDES: u64 = 1 << 20;

/// Makes an operator of a module's bytes; `None` if they are not valid. It must take neither long nor much
/// memory, whatever the bytes are.
pub type Builder = Arc<dyn Fn(&[u8]) -> Option<(Name, Arc<dyn Module>)> + Send + Sync>;

/// A program that is being received piece by piece.
pub(super) struct Arriving {
    pub index: u16,
    size: u32,
    identifier: Option<u64>,
    bytes: Vec<u8>,
    /// Its reserved part of the limit for all programs.
    taken: Taken,
}

/// Memory of programs, put here by their last users. Freeing it takes milliseconds for each MiB of a module.
#[derive(Default)]
struct Bin {
    waste: Mutex<Vec<Waste>>,
    /// Everything that is being freed holds a reference to it.
    old: Arc<()>,
}

impl Bin {
    fn push(&self, old: impl Send + 'static) {
        let waste = Waste::new((old, Arc::clone(&self.old)));
        self.waste.lock().unwrap_or_else(PoisonError::into_inner).push(waste);
    }
}

/// A module made of a program. Its last user puts it into the bin.
struct Made {
    name: Name,
    /// `None` only while it is dropped.
    module: Option<Arc<dyn Module>>,
    /// Its part of the limit for all programs, and the memory that it takes.
    taken: Option<(Taken, Taken)>,
    bin: Arc<Bin>,
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some((bytes, memory)) = &mut self.taken {
            bytes.passes();
            memory.passes();
        }
        self.bin.push((self.module.take(), self.taken.take()));
    }
}

/// A loaded program.
pub(super) struct Loaded {
    identifier: Option<u64>,
    made: Made,
}

impl Loaded {
    pub fn module(&self) -> &dyn Module {
        self.made.module.as_deref().expect("a module is there until it is dropped")
    }
}

/// A program that is being made.
pub(super) struct Install {
    arriving: Arriving,
    builder: Builder,
    made: Option<Made>,
    bin: Arc<Bin>,
}

/// The work of a slot that makes a module of a program's bytes.
pub(super) struct Build {
    builder: Builder,
    bytes: Vec<u8>,
    made: Option<Made>,
    bin: Arc<Bin>,
}

/// All programs that a guest has loaded or is loading.
pub(super) struct Loads {
    builder: Option<Builder>,
    bytes: Budget,
    arriving: BTreeMap<u16, Arriving>,
    there: BTreeMap<u16, Arc<Loaded>>,
    bin: Arc<Bin>,
}

impl Default for Loads {
    fn default() -> Loads {
        let (arriving, there, bin) = Default::default();
        Loads { builder: None, bytes: Budget::new(LOADED_MIB << 20), arriving, there, bin }
    }
}

impl Loads {
    /// Lets the guest load programs, of which this makes operators.
    pub fn set_builder(&mut self, builder: Builder) {
        self.builder = Some(builder);
    }

    /// Returns true if the guest may load programs.
    pub fn are_taken(&self) -> bool {
        self.builder.is_some()
    }

    /// Forgets all programs. Those that are being made or used keep their memory until they are done.
    pub fn reset(&mut self) {
        if !self.arriving.is_empty() {
            self.bin.push(std::mem::take(&mut self.arriving));
        }
        self.there.clear();
    }

    /// Passes on the memory to be freed.
    pub fn empty_bin(&self, waste: &mut Vec<Waste>) {
        // Without a builder there never was a program.
        if self.are_taken() {
            waste.append(&mut self.bin.waste.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Returns true if everything in the bin was freed.
    pub fn is_clean(&self) -> bool {
        Arc::strong_count(&self.bin.old) == 1
    }

    /// Returns a mark for memory to be freed that may be the last user of a program: [`Loads::is_clean`] is
    /// false while there is one.
    pub fn mark(&self) -> Arc<()> {
        Arc::clone(&self.bin.old)
    }

    /// Returns the number of loaded programs, and the bytes of all, including those that are being loaded.
    pub fn count(&self) -> (usize, u64) {
        (self.there.len(), self.bytes.taken())
    }

    /// Returns the highest index.
    pub fn last(&self) -> u16 {
        if self.are_taken() { CHAIN + LOADED } else { CHAIN }
    }

    /// Returns the program with this index.
    pub fn get(&self, index: u16) -> Option<&Arc<Loaded>> {
        self.there.get(&index)
    }

    /// Returns the program of the module with this name.
    pub fn named(&self, name: &Name) -> Option<&Arc<Loaded>> {
        self.there.values().find(|loaded| loaded.made.name == *name)
    }

    /// Checks and registers the piece that a command announces: the first one of a program, which replaces a
    /// program that was arriving, or the next one.
    pub fn expect(&mut self, wanted: &LoadProgram) -> Result<(), Status> {
        let index = wanted.program;
        let identifier = match wanted.identifier_kind {
            0 => None,
            1 => Some(wanted.identifier),
            _ => return Err(Status::INVALID_FIELD),
        };
        match wanted.kind {
            _ if self.there.contains_key(&index) => return Err(Status::PROGRAM_IN_USE),
            WEBASSEMBLY => {}
            _ => return Err(Status::INVALID_PROGRAM_TYPE),
        }
        let end = wanted.offset.checked_add(wanted.bytes);
        if wanted.size > LOADED_BYTES || end.is_none_or(|end| end > wanted.size) {
            return Err(Status::PROGRAM_TOO_BIG);
        }
        if wanted.offset == 0 {
            self.arriving.remove(&index);
            let size = wanted.size.into();
            let taken = self.bytes.take(size, true).ok_or_else(|| match self.bytes.will_fit(size) {
                // Removed programs are still being freed.
                true => Status::INTERRUPTED,
                false => Status::TOO_MANY_PROGRAM_BYTES,
            })?;
            let (size, bytes) = (wanted.size, Vec::new());
            self.arriving.insert(index, Arriving { index, size, identifier, bytes, taken });
            return Ok(());
        }
        let arriving = self.arriving.get(&index).ok_or(Status::INVALID_PROGRAM_DATA)?;
        let next = (arriving.size, arriving.identifier, arriving.bytes.len() as u32);
        match next == (wanted.size, identifier, wanted.offset) {
            true => Ok(()),
            false => Err(Status::INVALID_PROGRAM_DATA),
        }
    }

    /// Adds a piece. Returns the program if it was the last one.
    pub fn arrived(&mut self, index: u16, piece: &[u8]) -> Option<Install> {
        let arriving = self.arriving.get_mut(&index)?;
        arriving.bytes.extend_from_slice(piece);
        if arriving.bytes.len() < arriving.size as usize {
            return None;
        }
        let (builder, bin) = (self.builder.clone()?, self.bin.clone());
        Some(Install { arriving: self.arriving.remove(&index)?, builder, made: None, bin })
    }

    /// Registers a program that was made.
    pub fn install(&mut self, install: Install, memory: Taken) -> Result<(), Status> {
        let (index, identifier) = (install.arriving.index, install.arriving.identifier);
        let made = install.made(Some(memory)).ok_or(Status::INTERNAL_ERROR)?;
        if self.there.contains_key(&index) {
            return Err(Status::PROGRAM_IN_USE);
        }
        self.there.insert(index, Arc::new(Loaded { identifier, made }));
        Ok(())
    }

    /// Removes a program that nothing uses.
    pub fn unload(&mut self, index: u16) -> Result<(), Status> {
        match self.there.get(&index) {
            None => self.arriving.remove(&index).map(drop).ok_or(Status::NO_PROGRAM),
            Some(loaded) if Arc::strong_count(loaded) > 1 => Err(Status::PROGRAM_IN_USE),
            Some(_) => {
                self.there.remove(&index);
                Ok(())
            }
        }
    }

    /// Returns the descriptor of an index after [`CHAIN`].
    pub fn descriptor(&self, index: u16, activated: bool) -> Descriptor {
        self.there.get(&index).map_or_else(Descriptor::default, |loaded| Descriptor {
            occupied: DOWNLOADED,
            activated,
            kind: WEBASSEMBLY,
            identifier: loaded.identifier,
        })
    }
}

impl Install {
    /// Returns the maximum number of bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        MEMORY_BESIDES + MEMORY_PER_BYTE * u64::from(self.arriving.size)
    }

    /// Returns the work that makes its module, with the bytes received.
    pub fn work(&mut self) -> Build {
        let bytes = std::mem::take(&mut self.arriving.bytes);
        Build { builder: self.builder.clone(), bytes, made: None, bin: self.bin.clone() }
    }

    /// Takes the finished work.
    pub fn done(&mut self, build: Build) {
        self.made = build.made;
    }

    /// Cancels the work: the program is not needed any more. A module that was made goes to the bin, and
    /// counts until it is freed.
    pub fn discard(self, memory: Option<Taken>) {
        drop(self.made(memory));
    }

    /// Returns the module that was made, with the memory that it takes.
    fn made(self, memory: Option<Taken>) -> Option<Made> {
        let mut made = self.made?;
        made.taken = memory.map(|memory| (self.arriving.taken, memory));
        Some(made)
    }
}

impl Build {
    pub fn run(&mut self) -> Result<(), Status> {
        let made = (self.builder)(&std::mem::take(&mut self.bytes));
        let bin = self.bin.clone();
        self.made = made.map(|(name, module)| Made { name, module: Some(module), taken: None, bin });
        match self.made {
            Some(_) => Ok(()),
            None => Err(Status::INVALID_PROGRAM_DATA.with_do_not_retry()),
        }
    }
}
