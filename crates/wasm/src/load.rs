//! A module's bytes become a module: checked, compiled, tried once, and named.

use std::sync::Arc;

use dcs_abi::operator::Operator;
use dcs_ndp::module::{self, Codec, Name};
use dcs_ndp::{Context, OperatorError};
use wasmi::{CompilationMode, Config, EnforcedLimits, Engine, ExternType, Linker, Store, ValType};
use wasmi::{StoreLimits, StoreLimitsBuilder};

use crate::block::{BlockError, Layout};
use crate::bounds;
use crate::stream::{Instance, Stream, why};

/// Bytes of a module at most.
pub const MODULE_MAX: usize = 4 << 20;

/// Elements of a module's tables at most; tables.
const TABLE_ELEMENTS: usize = 16 << 10;
const TABLES: usize = 4;
/// Bytes of an instance at most besides its memory: tables, and what the interpreter keeps of functions, globals
/// and segments, of which [`EnforcedLimits::strict`] allows some thousands.
const INSTANCE: usize = 4 << 20;
/// Bytes of the stack of a module's values, and calls inside each other.
const STACK: usize = 1 << 20;
const CALLS: usize = 512;

/// What a module may use up. An instruction takes about one unit of fuel; filling or copying 64 bytes takes one
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Fuel that a stream begins with, and the most that it may have at once: for a block.
    pub fuel: u64,
    /// Fuel that each byte adds that the module takes in or hands out.
    pub fuel_per_byte: u64,
    /// Bytes of a stream's memory.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { fuel: 64_000_000, fuel_per_byte: 1000, memory: 16 << 20 }
    }
}

impl Limits {
    /// For a virtual drive, whose operators may share a thread with all guests' plain commands, and share slots with
    /// other guests' operators.
    pub fn of_drive() -> Limits {
        Limits { fuel: 8_000_000, fuel_per_byte: 128, memory: 4 << 20 }
    }
}

/// Why a module cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It has too many bytes.
    #[error("it has {0} bytes; a module has at most {MODULE_MAX}")]
    TooLong(usize),
    /// It is no WebAssembly, or uses what is not allowed.
    #[error("it is no WebAssembly module as it has to be: {0}")]
    Invalid(String),
    /// It has too many of something: of what takes time or memory that no fuel pays for.
    #[error("it has more than {most} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// This many there may be.
        most: u64,
    },
    /// It imports something.
    #[error(
        "it imports {0}; a module gets nothing from outside (compile it without a standard library's system calls)"
    )]
    Imports(String),
    /// It lacks an export, or has another one of that name.
    #[error("it does not export {0}")]
    Export(&'static str),
    /// It failed before its first stream.
    #[error("it failed when it was tried: {0}")]
    Start(OperatorError),
    /// What it says of itself breaks the rules.
    #[error("{0}")]
    Block(#[from] BlockError),
}

/// A module that may be used as an operator, by many streams at once.
pub struct Module {
    pub(crate) engine: Engine,
    pub(crate) module: wasmi::Module,
    pub(crate) limits: Limits,
    name: Name,
    layout: Layout,
}

impl Module {
    /// Checks and compiles a module, and makes one instance, to see that it is an operator. No more than the limits
    /// is used up.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub fn load(bytes: &[u8], limits: Limits) -> Result<Module, LoadError> {
        if bytes.len() > MODULE_MAX {
            return Err(LoadError::TooLong(bytes.len()));
        }
        bounds::check(bytes)?;
        let engine = Engine::new(&config());
        let module =
            wasmi::Module::new(&engine, bytes).map_err(|error| LoadError::Invalid(error.to_string()))?;
        if let Some(import) = module.imports().next() {
            return Err(LoadError::Imports(format!("{}.{}", import.module(), import.name())));
        }
        for (name, parameters) in [("dcs_operator", 0), ("dcs_start", 1), ("dcs_step", 2)] {
            let export = module.get_export(name);
            if !export.is_some_and(|export| takes(&export, parameters)) {
                return Err(LoadError::Export(name));
            }
        }
        if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
            return Err(LoadError::Export("memory"));
        }
        let name = name_of(bytes);
        let nowhere = Layout { block: 0, input: 0..0, output: 0..0 };
        let mut module = Module { engine, module, limits, name, layout: nowhere };
        let mut instance = module.instance().map_err(LoadError::Start)?;
        module.layout = instance.layout()?;
        Ok(module)
    }

    /// Its name in chains: the SHA-256 of its bytes.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Bytes of its input and of its output.
    pub fn buffers(&self) -> (usize, usize) {
        (self.layout.input.len(), self.layout.output.len())
    }

    /// Lets chains of this process name it. False where there are too many modules
    /// ([`dcs_ndp::module::MODULES_MAX`]).
    pub fn install(self) -> bool {
        module::install(self.name, Arc::new(self))
    }

    /// An instance with a memory of its own.
    pub(crate) fn instance(&self) -> Result<Instance, OperatorError> {
        let mut store = Store::new(&self.engine, allowed(&self.limits));
        store.limiter(|limits| limits);
        store.set_fuel(self.limits.fuel).map_err(|error| why(&error))?;
        let linker = Linker::new(&self.engine);
        let instance = linker.instantiate_and_start(&mut store, &self.module).map_err(|error| why(&error))?;
        Instance::new(store, &instance)
    }
}

impl module::Module for Module {
    fn start(&self, parameter: &[u8]) -> Result<Box<dyn Codec>, OperatorError> {
        Ok(Box::new(Stream::start(self, parameter)?))
    }

    fn memory(&self) -> u64 {
        (self.limits.memory + INSTANCE) as u64
    }
}

/// What is part of WebAssembly 2.0 and computes the same everywhere, but for the bits of a NaN.
fn config() -> Config {
    let mut config = Config::default();
    config.consume_fuel(true);
    config.compilation_mode(CompilationMode::Eager);
    config.enforced_limits(EnforcedLimits::strict());
    config.ignore_custom_sections(true);
    config.wasm_tail_call(false).wasm_multi_memory(false).wasm_memory64(false);
    config.wasm_custom_page_sizes(false).wasm_wide_arithmetic(false);
    config.set_max_stack_height(STACK).set_max_recursion_depth(CALLS).set_max_cached_stacks(2);
    config
}

fn allowed(limits: &Limits) -> StoreLimits {
    let builder = StoreLimitsBuilder::new().memory_size(limits.memory).memories(1).instances(1);
    builder.table_elements(TABLE_ELEMENTS).tables(TABLES).trap_on_grow_failure(true).build()
}

/// It is a function of this many whole numbers that gives one.
fn takes(export: &ExternType, parameters: usize) -> bool {
    let ExternType::Func(function) = export else { return false };
    function.results() == [ValType::I32] && function.params() == vec![ValType::I32; parameters]
}

fn name_of(bytes: &[u8]) -> Name {
    let mut name = Name::default();
    if let Ok(mut digest) = Context::new(Operator::Sha256, &[]) {
        digest.absorb(bytes);
        if let Some(value) = digest.value() {
            name.copy_from_slice(value.as_bytes());
        }
    }
    name
}
