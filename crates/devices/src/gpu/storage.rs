//! GPUDirect Storage: reads files to the GPU past the host's memory, with NVIDIA's `libcufile.so.0`.
//!
//! It declares the part of `cufile.h` that is used. The library's driver is opened for the process and never closed, since others in the
//! process may use it too.

use super::GpuError;
use super::driver::{Context, DeviceMemory};
use super::library::{Library, entry_points};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Library name, with the number of its binary interface.
const NAME: &str = "libcufile.so.0";
/// Environment variable that names another library.
const SWITCH: &str = "DCS_CUFILE_LIBRARY";

/// Alignment of offsets and lengths that are read this way.
pub(crate) const PAGE: usize = 4096;

/// `CUfileError_t`: an error of cuFile's, and CUDA's error code if it came from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Code {
    own: c_int,
    cuda: c_int,
}

/// `CU_FILE_DRIVER_ALREADY_OPEN`.
const ALREADY_OPEN: c_int = 5026;
/// `CU_FILE_CUDA_DRIVER_ERROR`.
const CUDA_ERROR: c_int = 5011;

/// `CU_FILE_*`: errors that are met where cuFile cannot be used.
const ERRORS: [(c_int, &str); 17] = [
    (5001, "the kernel module nvidia-fs is not loaded (CU_FILE_DRIVER_NOT_INITIALIZED)"),
    (5004, "nvidia-fs is of another version (CU_FILE_DRIVER_VERSION_MISMATCH)"),
    (5007, "not on this platform (CU_FILE_PLATFORM_NOT_SUPPORTED)"),
    (5008, "not of this file system (CU_FILE_IO_NOT_SUPPORTED)"),
    (5009, "not to this GPU (CU_FILE_DEVICE_NOT_SUPPORTED)"),
    (5010, "nvidia-fs failed (CU_FILE_NVFS_DRIVER_ERROR)"),
    (CUDA_ERROR, "CUDA's driver failed (CU_FILE_CUDA_DRIVER_ERROR)"),
    (5015, "another context (CU_FILE_CUDA_CONTEXT_MISMATCH)"),
    (5018, "not of this kind of file (CU_FILE_INVALID_FILE_TYPE)"),
    (5019, "opened another way (CU_FILE_INVALID_FILE_OPEN_FLAG)"),
    (5020, "not opened with O_DIRECT (CU_FILE_DIO_NOT_SET)"),
    (5022, "an argument is refused (CU_FILE_INVALID_VALUE)"),
    (5025, "not permitted (CU_FILE_PERMISSION_DENIED)"),
    (5030, "an internal error (CU_FILE_INTERNAL_ERROR)"),
    (5033, "nvidia-fs could not be set up (CU_FILE_NVFS_SETUP_ERROR)"),
    (5034, "switched off for this file in cufile.json (CU_FILE_IO_DISABLED)"),
    (5036, "the GPU's memory cannot be pinned (CU_FILE_GPU_MEMORY_PINNING_FAILED)"),
];

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FD: c_int = 1;
/// `CU_FILE_NVME_P2P_SUPPORTED`, as a bit: the kernel's own peer-to-peer transfers, without nvidia-fs.
const PEER_TO_PEER: c_uint = 1 << 11;

/// `CUfileDescr_t`.
#[repr(C)]
struct Description {
    kind: c_int,
    file: DescribedFile,
    operations: *const c_void,
}

/// The union in it.
#[repr(C)]
union DescribedFile {
    descriptor: c_int,
    _handle: *mut c_void,
}

/// `CUfileDrvProps_t`, and room for what later versions may add.
#[repr(C)]
struct DriverProperties {
    module_major: c_uint,
    module_minor: c_uint,
    poll_threshold: usize,
    direct_size_max: usize,
    status: c_uint,
    control: c_uint,
    others: [c_uint; 6],
    later: [u64; 32],
}

entry_points! {
    open = c"cuFileDriverOpen" () -> Code;
    properties = c"cuFileDriverGetProperties" (*mut DriverProperties) -> Code;
    handle_register = c"cuFileHandleRegister" (*mut *mut c_void, *mut Description) -> Code;
    handle_deregister = c"cuFileHandleDeregister" (*mut c_void) -> ();
    buffer_register = c"cuFileBufRegister" (*const c_void, usize, c_int) -> Code;
    buffer_deregister = c"cuFileBufDeregister" (*const c_void) -> Code;
    read = c"cuFileRead" (*mut c_void, *mut c_void, usize, i64, i64) -> isize;
}

/// The reason why files are not read to the GPU directly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// Direct reads are switched off.
    #[error("it is switched off")]
    Off,
    /// The library could not be loaded.
    #[error("{} cannot be loaded ({why}): it comes with CUDA (package libcufile)", .library.display())]
    Missing {
        /// The library.
        library: PathBuf,
        /// The loader's message.
        why: String,
    },
    /// The library lacks a function.
    #[error("{} lacks {missing}: it is too old", .library.display())]
    Old {
        /// The library.
        library: PathBuf,
        /// The function.
        missing: &'static str,
    },
    /// A call of the library's failed.
    #[error("{call}: {text}")]
    Call {
        /// The call.
        call: &'static str,
        /// The library's error code.
        code: i32,
        /// Meaning of the code.
        text: String,
    },
    /// The library would read into the host's memory and copy from there.
    #[error(
        "cuFile is in compatibility mode, in which it reads through the host's memory itself: the kernel module nvidia-fs is not loaded"
    )]
    Compatibility,
    /// The library would hang without /proc/modules.
    #[error("there is no /proc/modules here, without which cuFile does not work")]
    NoModules,
    /// The library does not match this GPU's driver.
    #[error("one of cuFile and CUDA's driver is a stand-in for tests, and the other is not")]
    Mixed,
    /// The file cannot be opened with O_DIRECT.
    #[error("the file cannot be opened with O_DIRECT: {0}")]
    Direct(String),
    /// No reader thread could be started.
    #[error("no thread can be started: {0}")]
    Threads(String),
    /// A read came short: the file has become shorter.
    #[error("{0} bytes were read of {1}")]
    Short(usize, usize),
    /// The GPU was lost.
    #[error("{0}")]
    Gpu(String),
}

impl From<GpuError> for StorageError {
    fn from(error: GpuError) -> Self {
        StorageError::Gpu(error.to_string())
    }
}

/// The means by which files are read to the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Path of the library.
    pub library: PathBuf,
    /// Version of the kernel module nvidia-fs; `None` if it is not loaded.
    pub nvidia_fs: Option<(u32, u32)>,
    /// Set if the library reports that the kernel's own peer-to-peer transfers serve it.
    pub peer_to_peer: bool,
    /// Set if the library is the stand-in for tests.
    pub stand_in: bool,
}

impl Storage {
    /// Returns true if it does not read through the host's memory.
    pub fn is_direct(&self) -> bool {
        self.nvidia_fs.is_some() || self.peer_to_peer
    }
}

/// The library, with its driver open.
#[derive(Debug)]
pub(super) struct CuFile {
    entry: EntryPoints,
}

impl CuFile {
    /// Opens it, for the GPU of that context.
    pub fn open(library: Option<&Path>, context: &Context) -> Result<(Arc<CuFile>, Storage), StorageError> {
        let library = Library::open(library, SWITCH, NAME)
            .map_err(|(library, why)| StorageError::Missing { library, why })?;
        if library.is_stand_in() != context.is_stand_in() {
            return Err(StorageError::Mixed);
        }
        // Without the list of modules (gVisor), version 1.14.1 searches for its end forever.
        if !library.is_stand_in() && !Path::new("/proc/modules").exists() {
            return Err(StorageError::NoModules);
        }
        // SAFETY: the library is cuFile by its name, or the user vouches for another one.
        let entry = unsafe { EntryPoints::load(&library) }
            .map_err(|missing| StorageError::Old { library: library.path.clone(), missing })?;
        let _current = context.current()?;
        // SAFETY: it takes nothing.
        match unsafe { (entry.open)() } {
            Code { own: ALREADY_OPEN, .. } => {}
            code => check("cuFileDriverOpen", code)?,
        }
        // SAFETY: plain numbers, for which zeros are values.
        let mut properties: DriverProperties = unsafe { std::mem::zeroed() };
        // SAFETY: the place is valid for the write.
        check("cuFileDriverGetProperties", unsafe { (entry.properties)(&mut properties) })?;
        let module = (properties.module_major, properties.module_minor);
        let stand_in = library.is_stand_in();
        let storage = Storage {
            library: library.path,
            nvidia_fs: (module != (0, 0)).then_some(module),
            peer_to_peer: properties.status & PEER_TO_PEER != 0,
            stand_in,
        };
        Ok((Arc::new(CuFile { entry }), storage))
    }

    /// Registers memory that files will be read to.
    pub fn register(&self, memory: DeviceMemory, context: &Context) -> Result<(), StorageError> {
        let _current = context.current()?;
        let start = std::ptr::with_exposed_provenance(memory.address() as usize);
        // SAFETY: it is memory of the GPU, of that length, which stays until it is forgotten.
        check("cuFileBufRegister", unsafe { (self.entry.buffer_register)(start, memory.length(), 0) })
    }

    /// Undoes [`CuFile::register`]. No read may be in progress.
    pub fn forget(&self, memory: DeviceMemory, context: &Context) {
        if let Ok(_current) = context.current() {
            let start = std::ptr::with_exposed_provenance(memory.address() as usize);
            // SAFETY: it was registered. An error no longer matters.
            let _ = unsafe { (self.entry.buffer_deregister)(start) };
        }
    }

    /// Registers a file that is open with O_DIRECT. Its descriptor must stay open as long as the returned value.
    pub fn take(
        self: &Arc<Self>,
        file: BorrowedFd<'_>,
        context: &Context,
    ) -> Result<RegisteredFile, StorageError> {
        let file = DescribedFile { descriptor: file.as_raw_fd() };
        let mut description = Description { kind: OPAQUE_FD, file, operations: std::ptr::null() };
        let mut handle = std::ptr::null_mut();
        let _current = context.current()?;
        // SAFETY: both places are valid; the descriptor is open.
        let code = unsafe { (self.entry.handle_register)(&mut handle, &mut description) };
        check("cuFileHandleRegister", code)?;
        Ok(RegisteredFile { library: Arc::clone(self), handle })
    }
}

/// A file that can be read to the GPU.
#[derive(Debug)]
pub(crate) struct RegisteredFile {
    library: Arc<CuFile>,
    handle: *mut c_void,
}

// SAFETY: the library may be called from any thread; the handle is a number to everything else.
unsafe impl Send for RegisteredFile {}
// SAFETY: as above, and by several threads at once.
unsafe impl Sync for RegisteredFile {}

impl RegisteredFile {
    /// Reads whole pages, starting at `offset`, to a part of registered memory, and waits.
    ///
    /// # Safety
    ///
    /// Nothing may use that part of the memory before this returns.
    pub(super) unsafe fn read(
        &self,
        offset: u64,
        memory: DeviceMemory,
        part: Range<usize>,
        context: &Context,
    ) -> Result<(), StorageError> {
        assert!(part.end <= memory.length(), "{part:?} of {}", memory.length());
        let length = part.len();
        let base = std::ptr::with_exposed_provenance_mut(memory.address() as usize);
        let _current = context.current()?;
        // SAFETY: the handle is registered as long as this is; the rest is the caller's promise.
        let read =
            unsafe { (self.library.entry.read)(self.handle, base, length, offset as i64, part.start as i64) };
        match usize::try_from(read) {
            Ok(bytes) if bytes == length => Ok(()),
            Ok(bytes) => Err(StorageError::Short(bytes, length)),
            Err(_) if read == -1 => {
                let error = std::io::Error::last_os_error();
                let code = error.raw_os_error().unwrap_or(0);
                Err(StorageError::Call { call: "cuFileRead", code, text: error.to_string() })
            }
            Err(_) => {
                let own = c_int::try_from(read.unsigned_abs()).unwrap_or(0);
                check("cuFileRead", Code { own, cuda: 0 })?;
                Err(StorageError::Short(0, length))
            }
        }
    }
}

impl Drop for RegisteredFile {
    fn drop(&mut self) {
        // SAFETY: it is registered, and no read is in progress: each reader holds the file.
        unsafe { (self.library.entry.handle_deregister)(self.handle) };
    }
}

fn check(call: &'static str, code: Code) -> Result<(), StorageError> {
    if code.own == 0 {
        return Ok(());
    }
    let known = ERRORS.iter().find(|(own, _)| *own == code.own);
    let text = known.map_or_else(|| format!("error {}", code.own), |(_, text)| (*text).to_string());
    let cuda = if code.own == CUDA_ERROR { format!(": CUDA's error {}", code.cuda) } else { String::new() };
    Err(StorageError::Call { call, code: code.own, text: text + &cuda })
}
