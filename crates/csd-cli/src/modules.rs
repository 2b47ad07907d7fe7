//! Users' own operators: the modules that the chains of all drives may name.

use crate::refused::Refused;
use dcs_csd::near::Builder;
use dcs_wasm::{Limits, MODULE_MAX, Module};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Makes operators of programs that guests load.
pub fn builder() -> Builder {
    Arc::new(|bytes| {
        let module = Module::load(bytes, Limits::of_drive()).ok()?;
        Some((*module.name(), Arc::new(module)))
    })
}

/// Loads a module, which chains name by the SHA-256 of its bytes.
pub fn load(path: &Path) -> Result<(), Refused> {
    let refused = |error: &dyn std::fmt::Display| Refused::new(format!("module {}: {error}", path.display()));
    if !path.is_absolute() {
        return Err(refused(&"its path is not a whole one"));
    }
    // A pipe is refused: reading it could wait for ever.
    if !path.metadata().map_err(|error| refused(&error))?.is_file() {
        return Err(refused(&"it is no file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| refused(&error))?;
    file.take(MODULE_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|error| refused(&error))?;
    let module = Module::load(&bytes, Limits::of_drive())
        .map_err(|error| refused(&error).advise("docs/wasm.md says what a module must have"))?;
    match module.install() {
        true => Ok(()),
        false => Err(refused(&"there are too many modules already")),
    }
}
