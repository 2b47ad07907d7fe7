//! NVIDIA's libraries: loaded on first use, and never unloaded, as they have their own threads.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A loaded library.
#[derive(Debug)]
pub(super) struct Library {
    handle: NonNull<c_void>,
    /// Path that was requested.
    pub path: PathBuf,
}

impl Library {
    /// Loads `wanted`, or the library that the environment variable names, or the one called `name`. On failure returns its path and the
    /// loader's message.
    pub fn open(wanted: Option<&Path>, switch: &str, name: &str) -> Result<Library, (PathBuf, String)> {
        let named = || std::env::var_os(switch).filter(|name| !name.is_empty()).map(PathBuf::from);
        let path = wanted.map(Path::to_path_buf).or_else(named).unwrap_or_else(|| name.into());
        let Ok(text) = CString::new(path.as_os_str().as_encoded_bytes()) else {
            return Err((path, "its name has a zero byte".into()));
        };
        // SAFETY: the name ends with a zero. The machine's administrator answers for what a library does when it is loaded, as for any
        // other.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Library { handle, path }),
            None => Err((path, loading_error())),
        }
    }

    /// Returns the address of a symbol.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is open, and the name ends with a zero.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// Returns true if it identifies itself as the stand-in for tests.
    pub fn is_stand_in(&self) -> bool {
        self.symbol(c"dcs_stand_in").is_some()
    }
}

/// Returns the loader's message about the last library that it tried.
fn loading_error() -> String {
    // SAFETY: the string is this thread's until the next call of the loader's.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

/// Declares the entry points of a library that are used, and a function that looks them up.
macro_rules! entry_points {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        #[derive(Debug)]
        struct EntryPoints {
            $($(#[$doc])* $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl EntryPoints {
            /// Looks all of them up; returns the first one that is missing.
            ///
            /// # Safety
            ///
            /// The library must have functions of these types under these names.
            unsafe fn load(library: &Library) -> Result<EntryPoints, &'static str> {
                let find = |symbol: &'static std::ffi::CStr| {
                    library.symbol(symbol).ok_or(symbol.to_str().unwrap_or_default())
                };
                // SAFETY: the symbols are functions of these types, by the caller's promise.
                unsafe {
                    Ok(EntryPoints {
                        $($field: std::mem::transmute::<
                            std::ptr::NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> $result,
                        >(find($symbol)?),)*
                    })
                }
            }
        }
    };
}
pub(super) use entry_points;
