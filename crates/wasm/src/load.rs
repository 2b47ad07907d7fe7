//! Loads a module's bytes: checks, compiles and tries them, and names the module.

use std::sync::Arc;

use dcs_abi::operator::Operator;
use dcs_ndp::module::{self, Codec, Name};
use dcs_ndp::{Context, OperatorError};
use wasmi::{CompilationMode, Config, EnforcedLimits, Engine, ExternType, Linker, Store, ValType};
use wasmi::{StoreLimits, StoreLimitsBuilder};

use crate::block::{BlockError, Layout};
use crate::bounds;
use crate::stream::{Instance, Stream, why};

/// Most bytes of a module.
pub const MODULE_MAX: usize = 4 << 20;

/// Most elements of a module's tables.
const TABLE_ELEMENTS: usize = 16 << 10;
/// Most tables of a module.
const TABLES: usize = 4;
/// Most bytes of an instance in addition to its memory: tables, the interpreter's data for functions, globals and segments, of
/// which [`EnforcedLimits::strict`] permits some thousands, and a stack, which may have twice its size while it grows.
const INSTANCE: usize = (4 << 20) + 2 * STACK;
/// Bytes of the stack of a module's values.
const STACK: usize = 1 << 20;
/// Bytes of one of them.
const VALUE: usize = 8;
/// Most nested calls.
const CALLS: usize = 512;

/// Limits of a module's resources. An instruction takes about one unit of fuel, as does filling or copying 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Fuel at the beginning of a stream, and the most that it may have at once: enough for a block.
    pub fuel: u64,
    /// Fuel that each byte of input or output adds.
    pub fuel_per_byte: u64,
    /// Most bytes of a stream's memory.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { fuel: 64_000_000, fuel_per_byte: 1000, memory: 16 << 20 }
    }
}

impl Limits {
    /// Returns the limits for a virtual drive, whose operators may share a thread with all guests' plain commands, and slots with
    /// other guests' operators.
    pub fn of_drive() -> Limits {
        Limits { fuel: 8_000_000, fuel_per_byte: 128, memory: 4 << 20 }
    }
}

/// Reasons for which a module cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The module has too many bytes.
    #[error("it has {0} bytes; a module has at most {MODULE_MAX}")]
    TooLong(usize),
    /// The bytes are not WebAssembly, or use a feature that is not permitted.
    #[error("it is not a valid WebAssembly module: {0}")]
    Invalid(String),
    /// The module has too many of something that takes time or memory without using fuel.
    #[error("it has more than {most} {what}")]
    TooMany {
        /// Description of what there is too much of.
        what: &'static str,
        /// Limit of the number.
        most: u64,
    },
    /// The module has an import.
    #[error(
        "it imports {0}; modules cannot import anything (compile it without a standard library's system calls)"
    )]
    Imports(String),
    /// The module lacks an export, or has a different one of that name.
    #[error("it does not export {0}")]
    Export(&'static str),
    /// The module failed before its first stream.
    #[error("it failed when it was tried: {0}")]
    Start(OperatorError),
    /// The module's block is invalid.
    #[error("{0}")]
    Block(#[from] BlockError),
}

/// A module that can be used as an operator, by many streams at once.
pub struct Module {
    pub(crate) engine: Engine,
    pub(crate) module: wasmi::Module,
    pub(crate) limits: Limits,
    name: Name,
    layout: Layout,
}

impl Module {
    /// Checks and compiles a module, and makes one instance, to verify that it is an operator. Uses no more resources than the
    /// limits.
    ///
    /// # Errors
    ///
    /// The reason for which it is not one.
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

    /// Returns its name in chains: the SHA-256 of its bytes.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the bytes of its input and of its output.
    pub fn buffers(&self) -> (usize, usize) {
        (self.layout.input.len(), self.layout.output.len())
    }

    /// Lets chains of this process name it. Returns false if there are too many modules ([`dcs_ndp::module::MODULES_MAX`]).
    pub fn install(self) -> bool {
        module::install(self.name, Arc::new(self))
    }

    /// Makes an instance with a memory of its own.
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

/// Returns a configuration with the parts of WebAssembly 2.0 that compute the same everywhere, except for the bits of a NaN.
fn config() -> Config {
    let mut config = Config::default();
    config.consume_fuel(true);
    config.compilation_mode(CompilationMode::Eager);
    config.enforced_limits(EnforcedLimits::strict());
    config.ignore_custom_sections(true);
    config.wasm_tail_call(false).wasm_multi_memory(false).wasm_memory64(false);
    config.wasm_custom_page_sizes(false).wasm_wide_arithmetic(false);
    // The height is counted in values. A stack that was kept for the next call would be nobody's memory.
    config.set_max_stack_height(STACK / VALUE).set_max_recursion_depth(CALLS).set_max_cached_stacks(0);
    config
}

fn allowed(limits: &Limits) -> StoreLimits {
    let builder = StoreLimitsBuilder::new().memory_size(limits.memory).memories(1).instances(1);
    builder.table_elements(TABLE_ELEMENTS).tables(TABLES).trap_on_grow_failure(true).build()
}

/// Returns true for a function of this many integers that returns one.
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
