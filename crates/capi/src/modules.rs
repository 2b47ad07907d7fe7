//! Operators of the user's own: WebAssembly modules.

use crate::{call, copy_text, slice};
use std::ffi::{c_char, c_int, c_void};

/// Bytes of the name of a module: its SHA-256, with which the parameters of DCS_OP_MODULE begin.
pub const DCS_MODULE_NAME: usize = 32;

/// Lets chains of this process name an operator of the user's own: DCS_OP_MODULE, whose parameters are the
/// DCS_MODULE_NAME bytes that are put at `name`, then what the module takes. `module` are the bytes of a WebAssembly
/// module (docs/wasm.md), which are copied. A process has 256 at most; one that is loaded again is the same.
///
/// Returns 0. On failure returns -1 and sets errno, and puts the reason at `error`, cut to `size` bytes and ended by
/// a NUL: EFAULT where a pointer is NULL, EINVAL where `length` cannot be, ENOEXEC where the bytes are no operator, ENOSPC
/// where there are too many modules, ENOSYS where the library was built without an engine for them, EIO for a fault of the
/// library's own.
///
/// # Safety
///
/// `module` is valid for `length` bytes, `name` for DCS_MODULE_NAME; `error` is NULL or valid for `size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_module_load(
    module: *const c_void,
    length: usize,
    name: *mut u8,
    error: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise. It stays where the library panics.
    unsafe { copy_text("the library has a fault: please report it", error, size) };
    call(|| {
        let loaded = if name.is_null() {
            Err((libc::EFAULT, String::from("name is NULL")))
        } else {
            // SAFETY: the caller's promise.
            let bytes = unsafe { slice(module.cast::<u8>(), length) };
            bytes
                .map_err(|errno| (errno, "module is NULL, or its length cannot be".into()))
                .and_then(engine::load)
        };
        // SAFETY: the caller's promise.
        unsafe { copy_text(loaded.as_ref().err().map_or("", |(_, why)| why.as_str()), error, size) };
        let loaded = loaded.map_err(|(errno, _)| errno)?;
        // SAFETY: not NULL, so valid for this many bytes by the caller's promise.
        unsafe { name.cast::<[u8; DCS_MODULE_NAME]>().write(loaded) };
        Ok(0)
    })
}

/// Forgets the module of this name. Transfers that are under way keep it. Returns 0; -1 with EFAULT for NULL.
///
/// # Safety
///
/// `name` is NULL or valid for DCS_MODULE_NAME bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_module_unload(name: *const u8) -> c_int {
    call(|| {
        if name.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: not NULL, so valid for this many bytes by the caller's promise.
        dcs_ndp::module::remove(unsafe { &*name.cast::<[u8; DCS_MODULE_NAME]>() });
        Ok(0)
    })
}

#[cfg(feature = "wasm")]
mod engine {
    use super::DCS_MODULE_NAME;
    use dcs_wasm::{Limits, Module};
    use std::ffi::c_int;

    pub fn load(bytes: &[u8]) -> Result<[u8; DCS_MODULE_NAME], (c_int, String)> {
        let module =
            Module::load(bytes, Limits::default()).map_err(|error| (libc::ENOEXEC, error.to_string()))?;
        let name = *module.name();
        match module.install() {
            true => Ok(name),
            false => Err((libc::ENOSPC, "too many modules are loaded: unload one".into())),
        }
    }
}

/// Stand-in for the engine of modules, which ordinary builds leave out.
#[cfg(not(feature = "wasm"))]
mod engine {
    use super::DCS_MODULE_NAME;
    use std::ffi::c_int;

    pub fn load(_: &[u8]) -> Result<[u8; DCS_MODULE_NAME], (c_int, String)> {
        let why = "this libdcs was built without WebAssembly: build it with make build WASM=yes";
        Err((libc::ENOSYS, why.into()))
    }
}
