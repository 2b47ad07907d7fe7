//! CUDA's driver, `libcuda.so.1`: loaded when a GPU is first asked for. Nothing of CUDA is needed to build.
//!
//! It declares the part of `cuda.h` that is used: entry points with the numbers of their binary interface,
//! each of which is in every driver since 2018 (410), and is kept in later ones for the programs of that
//! time.
//!
//! [`Context`] is the safe side of it: it owns all that was made in it, checks every copy against what it
//! made, and is current on a thread only while a call lasts, so that a program that uses CUDA too does not
//! notice.
#![allow(unsafe_code)]

use super::GpuError;
use super::library::{Library, entry_points};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The library's name, with the number of its binary interface.
const NAME: &str = "libcuda.so.1";
/// The environment variable that names another one.
pub(super) const SWITCH: &str = "DCS_CUDA_LIBRARY";

/// `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(pub c_int);

const SUCCESS: Code = Code(0);
pub(super) const OUT_OF_MEMORY: Code = Code(2);
const NO_DEVICE: Code = Code(100);
const INVALID_DEVICE: Code = Code(101);
const NOT_READY: Code = Code(600);

/// `CU_STREAM_NON_BLOCKING`: it does not wait for the stream that all programs of the process share.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;
/// Flags for how a thread waits: `CU_CTX_SCHED_SPIN`, which is soonest back, and
/// `CU_CTX_SCHED_BLOCKING_SYNC`, which sleeps.
pub(super) const SPIN: c_uint = 1;
pub(super) const BLOCKING_SYNC: c_uint = 4;
/// `CU_DEVICE_ATTRIBUTE_*`.
const MULTIPROCESSORS: c_int = 16;
const CACHE: c_int = 38;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

/// The least driver and GPU that the kernels need: their PTX is of CUDA 11.8, and for GPUs from Volta on.
const DRIVER_LEAST: c_int = 11080;
const CAPABILITY_LEAST: (u32, u32) = (7, 0);

type Handle = *mut c_void;
type Device = c_int;
type DevicePointer = u64;
type HostFunction = unsafe extern "C" fn(*mut c_void);

entry_points! {
    init = c"cuInit" (c_uint) -> Code;
    driver_version = c"cuDriverGetVersion" (*mut c_int) -> Code;
    error_name = c"cuGetErrorName" (Code, *mut *const c_char) -> Code;
    error_string = c"cuGetErrorString" (Code, *mut *const c_char) -> Code;
    device_count = c"cuDeviceGetCount" (*mut c_int) -> Code;
    device = c"cuDeviceGet" (*mut Device, c_int) -> Code;
    device_name = c"cuDeviceGetName" (*mut c_char, c_int, Device) -> Code;
    device_memory = c"cuDeviceTotalMem_v2" (*mut usize, Device) -> Code;
    device_attribute = c"cuDeviceGetAttribute" (*mut c_int, c_int, Device) -> Code;
    context_create = c"cuCtxCreate_v2" (*mut Handle, c_uint, Device) -> Code;
    context_destroy = c"cuCtxDestroy_v2" (Handle) -> Code;
    context_push = c"cuCtxPushCurrent_v2" (Handle) -> Code;
    context_pop = c"cuCtxPopCurrent_v2" (*mut Handle) -> Code;
    module_load = c"cuModuleLoadData" (*mut Handle, *const c_void) -> Code;
    module_function = c"cuModuleGetFunction" (*mut Handle, Handle, *const c_char) -> Code;
    memory_allocate = c"cuMemAlloc_v2" (*mut DevicePointer, usize) -> Code;
    host_allocate = c"cuMemAllocHost_v2" (*mut *mut c_void, usize) -> Code;
    host_register = c"cuMemHostRegister_v2" (*mut c_void, usize, c_uint) -> Code;
    host_unregister = c"cuMemHostUnregister" (*mut c_void) -> Code;
    copy_in = c"cuMemcpyHtoDAsync_v2" (DevicePointer, *const c_void, usize, Handle) -> Code;
    copy_out = c"cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePointer, usize, Handle) -> Code;
    copy_within = c"cuMemcpyDtoDAsync_v2" (DevicePointer, DevicePointer, usize, Handle) -> Code;
    fill = c"cuMemsetD8Async" (DevicePointer, u8, usize, Handle) -> Code;
    stream_create = c"cuStreamCreate" (*mut Handle, c_uint) -> Code;
    stream_synchronize = c"cuStreamSynchronize" (Handle) -> Code;
    event_create = c"cuEventCreate" (*mut Handle, c_uint) -> Code;
    event_record = c"cuEventRecord" (Handle, Handle) -> Code;
    event_query = c"cuEventQuery" (Handle) -> Code;
    event_elapsed = c"cuEventElapsedTime" (*mut f32, Handle, Handle) -> Code;
    launch_kernel = c"cuLaunchKernel" (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    ) -> Code;
    launch_host = c"cuLaunchHostFunc" (Handle, HostFunction, *mut c_void) -> Code;
}

/// The driver. It is never unloaded: it has threads of its own.
#[derive(Debug)]
pub(super) struct Driver {
    entry: EntryPoints,
    /// The library, as it was asked for.
    pub library: PathBuf,
    /// Of CUDA: 12080 is 12.8.
    pub version: c_int,
    /// It says of itself that it is none.
    pub stand_in: bool,
}

/// The properties of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Its number.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes of its second-level cache.
    pub cache: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability, as 9.0.
    pub capability: (u32, u32),
    /// Version of CUDA that the driver has, as 12.8.
    pub driver: (u32, u32),
    /// The driver's library.
    pub library: PathBuf,
    /// It is no GPU: the library is the stand-in that tests have.
    pub stand_in: bool,
}

impl Driver {
    /// Loads the driver: that library, the one that the environment names, or the system's.
    pub fn load(library: Option<&Path>) -> Result<Arc<Driver>, GpuError> {
        let library = Library::open(library, SWITCH, NAME)
            .map_err(|(library, why)| GpuError::NoDriver { library, why })?;
        // SAFETY: the library is CUDA's driver by its name, or whoever names another one says so.
        let entry = unsafe { EntryPoints::load(&library) };
        let entry =
            entry.map_err(|symbol| GpuError::OldDriver { library: library.path.clone(), missing: symbol })?;
        let (stand_in, library) = (library.is_stand_in(), library.path);
        let mut driver = Driver { entry, library, version: 0, stand_in };
        // SAFETY: flags of 0, as is demanded.
        match unsafe { (driver.entry.init)(0) } {
            SUCCESS => {}
            NO_DEVICE => return Err(GpuError::NoDevice),
            code => return Err(driver.failed("cuInit", code)),
        }
        // SAFETY: the place is valid for the write.
        let code = unsafe { (driver.entry.driver_version)(&mut driver.version) };
        driver.check("cuDriverGetVersion", code)?;
        Ok(Arc::new(driver))
    }

    /// GPUs that it has.
    pub fn count(&self) -> Result<u32, GpuError> {
        let mut count = 0;
        // SAFETY: the place is valid for the write.
        let code = unsafe { (self.entry.device_count)(&mut count) };
        self.check("cuDeviceGetCount", code)?;
        Ok(count.max(0) as u32)
    }

    fn device(&self, number: u32) -> Result<Device, GpuError> {
        let mut device = 0;
        let ordinal = c_int::try_from(number).map_err(|_| GpuError::NoSuchDevice(number))?;
        // SAFETY: the place is valid for the write.
        match unsafe { (self.entry.device)(&mut device, ordinal) } {
            SUCCESS => Ok(device),
            INVALID_DEVICE => Err(GpuError::NoSuchDevice(number)),
            NO_DEVICE => Err(GpuError::NoDevice),
            code => Err(self.failed("cuDeviceGet", code)),
        }
    }

    /// Reads the properties of a GPU.
    pub fn properties(&self, number: u32) -> Result<Properties, GpuError> {
        let device = self.device(number)?;
        let mut name = [0u8; 256];
        // SAFETY: as many bytes as are said may be written.
        let code =
            unsafe { (self.entry.device_name)(name.as_mut_ptr().cast(), name.len() as c_int - 1, device) };
        self.check("cuDeviceGetName", code)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        let mut memory = 0;
        // SAFETY: the place is valid for the write.
        let code = unsafe { (self.entry.device_memory)(&mut memory, device) };
        self.check("cuDeviceTotalMem", code)?;
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: as above.
            let code = unsafe { (self.entry.device_attribute)(&mut value, which, device) };
            self.check("cuDeviceGetAttribute", code).map(|()| value as u32)
        };
        Ok(Properties {
            device: number,
            name,
            memory: memory as u64,
            cache: attribute(CACHE)?.into(),
            multiprocessors: attribute(MULTIPROCESSORS)?,
            capability: (attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?),
            driver: (self.version as u32 / 1000, self.version as u32 % 1000 / 10),
            library: self.library.clone(),
            stand_in: self.stand_in,
        })
    }

    fn check(&self, call: &'static str, code: Code) -> Result<(), GpuError> {
        if code == SUCCESS { Ok(()) } else { Err(self.failed(call, code)) }
    }

    fn failed(&self, call: &'static str, code: Code) -> GpuError {
        let text = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: the place is valid for the write; what is written is a constant of the library's, or
            // NULL.
            unsafe {
                let known = function(code, &mut text) == SUCCESS && !text.is_null();
                known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let name = text(self.entry.error_name).unwrap_or_else(|| format!("error {}", code.0));
        let text = text(self.entry.error_string).map(|text| format!(": {text}"));
        GpuError::Call { call, code, text: name + &text.unwrap_or_default() }
    }
}

/// A stream of a context: what is given to it is done in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(Handle);

/// A moment of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(Handle);

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel(Handle);

/// Memory of the GPU, of the context that made it and until that is destroyed.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceMemory {
    address: DevicePointer,
    length: usize,
}

impl DeviceMemory {
    /// A part of it.
    ///
    /// # Panics
    ///
    /// Where it reaches beyond.
    pub fn part(&self, from: usize, length: usize) -> DeviceMemory {
        let end = from.checked_add(length).filter(|end| *end <= self.length);
        assert!(end.is_some(), "{length} bytes from {from} on of {}", self.length);
        DeviceMemory { address: self.address + from as u64, length }
    }

    /// Where it begins, for a job.
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn length(&self) -> usize {
        self.length
    }
}

/// Page-locked memory of the host, of the context that made it and until that is destroyed. What it holds is
/// read and written in whole structures; whether the GPU is at it just now is for the owner to know.
#[derive(Debug)]
pub(super) struct HostMemory {
    start: *mut u8,
    length: usize,
}

// SAFETY: memory that belongs to whoever has the value; nothing of it is tied to a thread.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// Where its bytes are from that one on, for a copy.
    ///
    /// # Panics
    ///
    /// Where there is none.
    pub fn piece(&self, from: usize) -> *const u8 {
        assert!(from < self.length);
        // SAFETY: inside of it.
        unsafe { self.start.add(from) }
    }

    /// Its bytes.
    ///
    /// # Safety
    ///
    /// No copy from or to it is under way, and its context is there.
    pub unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the driver gave this many bytes, zeroed when they came; nobody else is at them.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

// SAFETY: handles are numbers to everyone but the driver, which may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Send for Moment {}
// SAFETY: as above.
unsafe impl Send for Kernel {}

/// Grid and parameters of a launch.
pub(super) struct Launch<'a> {
    pub kernel: Kernel,
    /// Blocks along x and y.
    pub blocks: (u32, u32),
    /// Threads of a block.
    pub threads: u32,
    pub parameters: &'a mut [*mut c_void],
}

/// A context of a GPU: its memory, streams and kernels, apart from those of other users of the process.
#[derive(Debug)]
pub(super) struct Context {
    driver: Arc<Driver>,
    handle: Handle,
    /// It was destroyed, or that was tried. A call reads it as long as it lasts, so that it is destroyed
    /// after that.
    gone: RwLock<bool>,
}

// SAFETY: the driver's functions may be called from any thread; the context is current only while a call
// lasts.
unsafe impl Send for Context {}
// SAFETY: as above, and from several at once: each has a stack of contexts of its own.
unsafe impl Sync for Context {}

/// The context is current on this thread as long as this stands, and is not destroyed.
pub(super) struct Current<'a> {
    context: &'a Context,
    _there: RwLockReadGuard<'a, bool>,
    _thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut before = std::ptr::null_mut();
        // SAFETY: the place is valid for the write; what was pushed on this thread is popped from it.
        let _ = unsafe { (self.context.driver.entry.context_pop)(&mut before) };
    }
}

impl Context {
    /// One in which threads wait as `waiting` says, on a GPU for which the driver can compile the kernels.
    pub fn new(driver: &Arc<Driver>, properties: &Properties, waiting: c_uint) -> Result<Context, GpuError> {
        let device = driver.device(properties.device)?;
        if driver.version < DRIVER_LEAST {
            return Err(GpuError::TooOld(properties.driver));
        }
        if properties.capability < CAPABILITY_LEAST {
            return Err(GpuError::Incapable {
                name: properties.name.clone(),
                capability: properties.capability,
            });
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place is valid for the write, the device is one of the driver's.
        let code = unsafe { (driver.entry.context_create)(&mut handle, waiting, device) };
        driver.check("cuCtxCreate", code)?;
        let context = Context { driver: Arc::clone(driver), handle, gone: RwLock::new(false) };
        // Creation has made it current on this thread.
        drop(Current { context: &context, _there: context.gone(), _thread: PhantomData });
        Ok(context)
    }

    fn gone(&self) -> RwLockReadGuard<'_, bool> {
        self.gone.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Result<(Current<'_>, &EntryPoints), GpuError> {
        let there = self.gone();
        if *there {
            return Err(GpuError::Lost);
        }
        // SAFETY: the context was not destroyed.
        let code = unsafe { (self.driver.entry.context_push)(self.handle) };
        self.driver.check("cuCtxPushCurrent", code)?;
        Ok((Current { context: self, _there: there, _thread: PhantomData }, &self.driver.entry))
    }

    /// Makes it current for another library than the driver. Nothing of this is called meanwhile: it would be
    /// made current twice.
    pub fn current(&self) -> Result<Current<'_>, GpuError> {
        self.enter().map(|(current, _)| current)
    }

    /// It is one of the stand-in that tests have.
    pub fn is_stand_in(&self) -> bool {
        self.driver.stand_in
    }

    /// The kernels of that name of a module in PTX.
    pub fn kernels<const N: usize>(&self, ptx: &CStr, names: [&CStr; N]) -> Result<[Kernel; N], GpuError> {
        let (_current, entry) = self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the place is valid for the write; PTX is text that ends with a zero.
        let code = unsafe { (entry.module_load)(&mut module, ptx.as_ptr().cast()) };
        self.driver.check("cuModuleLoadData", code)?;
        let mut kernels = [Kernel(std::ptr::null_mut()); N];
        for (kernel, name) in kernels.iter_mut().zip(names) {
            // SAFETY: as above; the module stays as long as its context.
            let code = unsafe { (entry.module_function)(&mut kernel.0, module, name.as_ptr()) };
            self.driver.check("cuModuleGetFunction", code)?;
        }
        Ok(kernels)
    }

    pub fn stream(&self) -> Result<Stream, GpuError> {
        let (_current, entry) = self.enter()?;
        let mut stream = Stream(std::ptr::null_mut());
        // SAFETY: the place is valid for the write.
        let code = unsafe { (entry.stream_create)(&mut stream.0, NON_BLOCKING) };
        self.driver.check("cuStreamCreate", code).map(|()| stream)
    }

    /// A moment, whose time can be told or, cheaper, not.
    pub fn moment(&self, timed: bool) -> Result<Moment, GpuError> {
        let (_current, entry) = self.enter()?;
        let mut moment = Moment(std::ptr::null_mut());
        // SAFETY: the place is valid for the write.
        let code = unsafe { (entry.event_create)(&mut moment.0, if timed { 0 } else { DISABLE_TIMING }) };
        self.driver.check("cuEventCreate", code).map(|()| moment)
    }

    pub fn device_memory(&self, length: usize) -> Result<DeviceMemory, GpuError> {
        let (_current, entry) = self.enter()?;
        let mut address = 0;
        // SAFETY: the place is valid for the write.
        let code = unsafe { (entry.memory_allocate)(&mut address, length) };
        self.driver.check("cuMemAlloc", code).map(|()| DeviceMemory { address, length })
    }

    pub fn host_memory(&self, length: usize) -> Result<HostMemory, GpuError> {
        let (_current, entry) = self.enter()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: the place is valid for the write.
        let code = unsafe { (entry.host_allocate)(&mut start, length) };
        self.driver.check("cuMemAllocHost", code)?;
        // SAFETY: the driver gave this many bytes.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, length) };
        Ok(HostMemory { start: start.cast(), length })
    }

    /// Locks pages that are somebody else's, so that the GPU copies from and to them by itself.
    ///
    /// # Safety
    ///
    /// They stay where they are until [`Context::forget`] or [`Context::destroy`].
    pub unsafe fn register(&self, start: *const u8, length: usize) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: the caller's promise.
        let code = unsafe { (entry.host_register)(start.cast_mut().cast(), length, 0) };
        self.driver.check("cuMemHostRegister", code)
    }

    /// Undoes [`Context::register`].
    pub fn forget(&self, start: *const u8) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: an address that is not registered is refused.
        let code = unsafe { (entry.host_unregister)(start.cast_mut().cast()) };
        self.driver.check("cuMemHostUnregister", code)
    }

    /// Copies from the host, later.
    ///
    /// # Safety
    ///
    /// `from` has as many bytes, in pages that are locked, which nobody writes to before the stream is past
    /// the copy.
    pub unsafe fn copy_in(&self, to: DeviceMemory, from: *const u8, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: the caller's promise; the memory of the GPU is that long.
        let code = unsafe { (entry.copy_in)(to.address, from.cast(), to.length, stream.0) };
        self.driver.check("cuMemcpyHtoDAsync", code)
    }

    /// Copies to the host, later.
    ///
    /// # Safety
    ///
    /// `to` has as many bytes, in pages that are locked, which nobody is at before the stream is past the
    /// copy.
    pub unsafe fn copy_out(&self, to: *mut u8, from: DeviceMemory, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: as above.
        let code = unsafe { (entry.copy_out)(to.cast(), from.address, from.length, stream.0) };
        self.driver.check("cuMemcpyDtoHAsync", code)
    }

    /// Copies structures to the GPU from memory that is locked, later.
    ///
    /// # Safety
    ///
    /// Nobody writes to `from` before the stream is past the copy.
    pub unsafe fn send(&self, to: DeviceMemory, from: &HostMemory, stream: Stream) -> Result<(), GpuError> {
        assert!(to.length <= from.length);
        // SAFETY: long enough, and locked; the rest is the caller's promise.
        unsafe { self.copy_in(to, from.start, stream) }
    }

    /// Copies structures back, later.
    ///
    /// # Safety
    ///
    /// Nobody is at `to` before the stream is past the copy.
    pub unsafe fn receive(
        &self,
        to: &HostMemory,
        from: DeviceMemory,
        stream: Stream,
    ) -> Result<(), GpuError> {
        assert!(from.length <= to.length);
        // SAFETY: as above.
        unsafe { self.copy_out(to.start, from, stream) }
    }

    /// Copies as much as both have from one place on the GPU to another, later.
    pub fn copy_within(&self, to: DeviceMemory, from: DeviceMemory, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        let length = to.length.min(from.length);
        // SAFETY: both are memory of the GPU, of at least that length.
        let code = unsafe { (entry.copy_within)(to.address, from.address, length, stream.0) };
        self.driver.check("cuMemcpyDtoDAsync", code)
    }

    /// Fills memory of the GPU with zeros, later.
    pub fn wipe(&self, memory: DeviceMemory, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: the memory is that long.
        let code = unsafe { (entry.fill)(memory.address, 0, memory.length, stream.0) };
        self.driver.check("cuMemsetD8Async", code)
    }

    /// Runs a kernel, later.
    ///
    /// # Safety
    ///
    /// The parameters are those of the kernel, and what they point to is memory of the GPU as it expects.
    pub unsafe fn launch(&self, launch: Launch<'_>, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        let (x, y) = launch.blocks;
        let parameters = launch.parameters.as_mut_ptr();
        let none = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        let code = unsafe {
            (entry.launch_kernel)(
                launch.kernel.0,
                x,
                y,
                1,
                launch.threads,
                1,
                1,
                0,
                stream.0,
                parameters,
                none,
            )
        };
        self.driver.check("cuLaunchKernel", code)
    }

    /// Notes when the stream is past all that it was given.
    pub fn record(&self, moment: Moment, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: both are of this context.
        let code = unsafe { (entry.event_record)(moment.0, stream.0) };
        self.driver.check("cuEventRecord", code)
    }

    /// True if the event has happened.
    pub fn is_past(&self, moment: Moment) -> Result<bool, GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: it is of this context.
        match unsafe { (entry.event_query)(moment.0) } {
            NOT_READY => Ok(false),
            code => self.driver.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Nanoseconds between two timed moments that have come.
    pub fn between(&self, first: Moment, last: Moment) -> Result<f64, GpuError> {
        let (_current, entry) = self.enter()?;
        let mut milliseconds = 0f32;
        // SAFETY: the place is valid for the write, the moments are of this context.
        let code = unsafe { (entry.event_elapsed)(&mut milliseconds, first.0, last.0) };
        self.driver.check("cuEventElapsedTime", code).map(|()| f64::from(milliseconds) * 1e6)
    }

    /// Waits until the stream is past all that it was given.
    pub fn synchronize(&self, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: it is of this context.
        let code = unsafe { (entry.stream_synchronize)(stream.0) };
        self.driver.check("cuStreamSynchronize", code)
    }

    /// Has an eventfd signalled when the stream is past all that it was given.
    ///
    /// # Safety
    ///
    /// The descriptor stays open until then, or until the context is destroyed.
    pub unsafe fn signal(&self, event: BorrowedFd<'_>, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        let number = std::ptr::without_provenance_mut(event.as_raw_fd() as usize);
        // SAFETY: the function takes the number of a descriptor; that it is the right one is the caller's
        // promise.
        let code = unsafe { (entry.launch_host)(stream.0, raise, number) };
        self.driver.check("cuLaunchHostFunc", code)
    }

    /// Ends all that goes on in it, after calls of other threads: once this has returned without an error,
    /// the GPU is at nobody's memory any more. After an error nobody knows: what it was given is to stay
    /// where it is, for good.
    pub fn destroy(&self) -> Result<(), GpuError> {
        let mut gone = self.gone.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *gone, true) {
            return Ok(());
        }
        // SAFETY: it was made and not destroyed. Whatever was made in it is used by nobody: every call asks
        // whether it is gone.
        let code = unsafe { (self.driver.entry.context_destroy)(self.handle) };
        self.driver.check("cuCtxDestroy", code)
    }

    pub fn is_gone(&self) -> bool {
        *self.gone()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Whoever gave it memory of his has destroyed it before.
        let _ = self.destroy();
    }
}

/// Called on a thread of the driver's; it may not call the driver.
unsafe extern "C" fn raise(event: *mut c_void) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight readable bytes; the descriptor is an eventfd, by the promise of `signal`. A full counter
    // (EAGAIN) wakes as well.
    unsafe { libc::write(event.addr() as c_int, one.as_ptr().cast(), one.len()) };
}
