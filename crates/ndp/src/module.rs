//! Users' own operators: what a module has to be, and the modules that this process has loaded.
//!
//! Who can run modules of some kind (`dcs-wasm` runs WebAssembly) makes [`Module`]s of them. A chain names one by
//! the SHA-256 of what it was made of ([`Name`]), so that nobody gets another one than was meant.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use dcs_abi::operator::MODULE_NAME;

use crate::OperatorError;
use crate::resize::Resize;

pub use crate::resize::{Codec, Step, StepEnd};

/// The name of a module in chains: the SHA-256 of what it was made of.
pub type Name = [u8; MODULE_NAME];

/// Modules of a process at most.
pub const MODULES_MAX: usize = 256;

/// An operator of a user's own.
pub trait Module: Send + Sync {
    /// Its state at the beginning of a stream.
    ///
    /// # Errors
    ///
    /// Where it does not take the parameter, or breaks a rule.
    fn start(&self, parameter: &[u8]) -> Result<Box<dyn Codec>, OperatorError>;

    /// Bytes of memory that a stream takes at most.
    fn memory(&self) -> u64;
}

/// The modules that chains of this process may name.
static LOADED: RwLock<BTreeMap<Name, Arc<dyn Module>>> = RwLock::new(BTreeMap::new());

/// Lets chains of this process name a module. False where there are [`MODULES_MAX`] of them.
pub fn install(name: Name, module: Arc<dyn Module>) -> bool {
    let mut loaded = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    let fits = loaded.len() < MODULES_MAX || loaded.contains_key(&name);
    if fits {
        loaded.insert(name, module);
    }
    fits
}

/// Forgets a module. Streams that it works on go on.
pub fn remove(name: &Name) {
    LOADED.write().unwrap_or_else(PoisonError::into_inner).remove(name);
}

/// The parameter block of an operator that is a module: its name, then what it takes.
pub fn parameter(name: &Name, own: &[u8]) -> Vec<u8> {
    [name, own].concat()
}

/// The name and the module's own parameter that a parameter block has.
///
/// # Errors
///
/// [`OperatorError::BadParameter`] where it is too short or too long.
pub fn split(parameter: &[u8]) -> Result<(&Name, &[u8]), OperatorError> {
    let (_, most) = dcs_abi::operator::MODULE.parameter;
    let block = parameter.split_first_chunk().filter(|_| parameter.len() <= most);
    block.ok_or(OperatorError::BadParameter)
}

/// The module that a parameter block names, and what it takes.
fn named(parameter: &[u8]) -> Result<(Arc<dyn Module>, &[u8]), OperatorError> {
    let (name, own) = split(parameter)?;
    let module = LOADED.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    Ok((module.ok_or(OperatorError::NoModule)?, own))
}

/// The module that a parameter block names, at the beginning of its stream.
pub(crate) fn of_parameter(parameter: &[u8]) -> Result<Resize, OperatorError> {
    let (module, own) = named(parameter)?;
    module.start(own).map(Resize::of)
}

/// Bytes of memory that a stream of the module takes at most which a parameter block names; none where there is no
/// such module.
pub(crate) fn memory(parameter: &[u8]) -> u64 {
    named(parameter).map_or(0, |(module, _)| module.memory())
}
