//! Users' own operators: the interface of a module, and the modules that this process has loaded.
//!
//! A runtime for modules of some kind (`dcs-wasm` runs WebAssembly) makes [`Module`]s of them. A chain names one by the
//! SHA-256 of its source ([`Name`]), so that it always gets the module that was meant.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use dcs_abi::operator::MODULE_NAME;

use crate::OperatorError;
use crate::resize::Resize;

pub use crate::resize::{Codec, Step, StepEnd};

/// Name of a module in chains: the SHA-256 of what it was made from.
pub type Name = [u8; MODULE_NAME];

/// Most modules in a process.
pub const MODULES_MAX: usize = 256;

/// A user's own operator.
pub trait Module: Send + Sync {
    /// Makes the state at the beginning of a stream.
    ///
    /// # Errors
    ///
    /// Fails if the module does not take the parameter, or breaks a rule.
    fn start(&self, parameter: &[u8]) -> Result<Box<dyn Codec>, OperatorError>;

    /// Returns the most bytes of memory that a stream takes.
    fn memory(&self) -> u64;
}

/// Modules that chains of this process may name.
static LOADED: RwLock<BTreeMap<Name, Arc<dyn Module>>> = RwLock::new(BTreeMap::new());

/// Lets chains of this process name a module. Returns false if there are already [`MODULES_MAX`].
pub fn install(name: Name, module: Arc<dyn Module>) -> bool {
    let mut loaded = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    let fits = loaded.len() < MODULES_MAX || loaded.contains_key(&name);
    if fits {
        loaded.insert(name, module);
    }
    fits
}

/// Removes a module. Streams that use it go on.
pub fn remove(name: &Name) {
    LOADED.write().unwrap_or_else(PoisonError::into_inner).remove(name);
}

/// Makes the parameter block of a module: its name, then its own parameter.
pub fn parameter(name: &Name, own: &[u8]) -> Vec<u8> {
    [name, own].concat()
}

/// Splits a parameter block into the module's name and its own parameter.
///
/// # Errors
///
/// [`OperatorError::BadParameter`] if it is too short or too long.
pub fn split(parameter: &[u8]) -> Result<(&Name, &[u8]), OperatorError> {
    let (_, most) = dcs_abi::operator::MODULE.parameter;
    let block = parameter.split_first_chunk().filter(|_| parameter.len() <= most);
    block.ok_or(OperatorError::BadParameter)
}

/// Finds the module that a parameter block names. Returns it with its own parameter.
fn named(parameter: &[u8]) -> Result<(Arc<dyn Module>, &[u8]), OperatorError> {
    let (name, own) = split(parameter)?;
    let module = LOADED.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    Ok((module.ok_or(OperatorError::NoModule)?, own))
}

/// Makes the module that a parameter block names, at the beginning of its stream.
pub(crate) fn of_parameter(parameter: &[u8]) -> Result<Resize, OperatorError> {
    let (module, own) = named(parameter)?;
    module.start(own).map(Resize::of)
}

/// Returns the most bytes of memory of a stream of the module that a parameter block names; `None` if there is no such
/// module.
pub(crate) fn memory(parameter: &[u8]) -> u64 {
    named(parameter).map_or(0, |(module, _)| module.memory())
}
