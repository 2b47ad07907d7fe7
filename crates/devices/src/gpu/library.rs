//! Libraries of NVIDIA's: loaded when they are first asked for, and never unloaded, as they have threads of
//! their own.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A library that is loaded.
#[derive(Debug)]
pub(super) struct Library {
    handle: NonNull<c_void>,
    /// The path that was asked for.
    pub path: PathBuf,
}

impl Library {
    /// Loads that one, or the one that the environment variable names, or the one of that name. Else tells
    /// which, and what the loader says.
    pub fn open(wanted: Option<&Path>, switch: &str, name: &str) -> Result<Library, (PathBuf, String)> {
        let named = || std::env::var_os(switch).filter(|name| !name.is_empty()).map(PathBuf::from);
        let path = wanted.map(Path::to_path_buf).or_else(named).unwrap_or_else(|| name.into());
        let Ok(text) = CString::new(path.as_os_str().as_encoded_bytes()) else {
            return Err((path, "its name has a zero byte".into()));
        };
        // SAFETY: the name ends with a zero. What a library does when it is loaded is the machine's
        // administrator's matter, as of any other.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Library { handle, path }),
            None => Err((path, loading_error())),
        }
    }

    /// The address of the symbol of that name.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is open, and the name ends with a zero.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// It says of itself that it is the stand-in that tests have.
    pub fn is_stand_in(&self) -> bool {
        self.symbol(c"dcs_stand_in").is_some()
    }
}

/// The loader's message: that of the last library that it tried.
fn loading_error() -> String {
    // SAFETY: the string is this thread's until the next call of the loader's.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

/// Declares the entry points of a library that are used, and how they are looked up.
macro_rules! entry_points {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        #[derive(Debug)]
        struct EntryPoints {
            $($(#[$doc])* $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl EntryPoints {
            /// Looks all of them up; tells the first that is not there.
            ///
            /// # Safety
            ///
            /// The library has functions of these types under these names.
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
