//! CUDA's driver, `libcuda.so.1`: loaded when a GPU is first requested. Building needs nothing of CUDA.
//!
//! It declares the part of `cuda.h` that is used: entry points with their binary interface's version numbers. Every driver since 2018 (410)
//! has them, and later ones keep them for existing programs.
//!
//! [`Context`] is the safe interface: it owns everything that was made in it, checks every copy against that, and is current on a thread
//! only for the duration of a call, so that a program that uses CUDA too is not disturbed.
#![allow(unsafe_code)]

use super::GpuError;
use super::library::{Library, entry_points};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Library name, with the number of its binary interface.
const NAME: &str = "libcuda.so.1";
/// Environment variable that names another library.
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

/// `CU_STREAM_NON_BLOCKING`: does not wait for the stream that all programs of the process share.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;
/// Flags for how a thread waits: `CU_CTX_SCHED_SPIN`, which returns soonest, and `CU_CTX_SCHED_BLOCKING_SYNC`, which sleeps.
pub(super) const SPIN: c_uint = 1;
pub(super) const BLOCKING_SYNC: c_uint = 4;
/// `CU_DEVICE_ATTRIBUTE_*`.
const MULTIPROCESSORS: c_int = 16;
const CACHE: c_int = 38;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

/// Oldest driver and GPU that run the kernels: their PTX is for CUDA 11.8, and for GPUs from Volta on.
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

/// The driver. It is never unloaded, since it has its own threads.
#[derive(Debug)]
pub(super) struct Driver {
    entry: EntryPoints,
    /// Library, as it was requested.
    pub library: PathBuf,
    /// CUDA version: 12080 is 12.8.
    pub version: c_int,
    /// Set if the library identifies itself as the stand-in.
    pub stand_in: bool,
}

/// The properties of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Number of the GPU.
    pub device: u32,
    /// Name of the GPU.
    pub name: String,
    /// Memory size in bytes.
    pub memory: u64,
    /// Size of the second-level cache in bytes.
    pub cache: u64,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability, such as 9.0.
    pub capability: (u32, u32),
    /// CUDA version of the driver, such as 12.8.
    pub driver: (u32, u32),
    /// Path of the driver's library.
    pub library: PathBuf,
    /// Set if this is not a GPU: the library is the stand-in for tests.
    pub stand_in: bool,
}

impl Driver {
    /// Loads the driver: `library`, the one that the environment variable names, or the system's.
    pub fn load(library: Option<&Path>) -> Result<Arc<Driver>, GpuError> {
        let library = Library::open(library, SWITCH, NAME)
            .map_err(|(library, why)| GpuError::NoDriver { library, why })?;
        // SAFETY: the library is CUDA's driver by its name, or the user vouches for another one.
        let entry = unsafe { EntryPoints::load(&library) };
        let entry =
            entry.map_err(|symbol| GpuError::OldDriver { library: library.path.clone(), missing: symbol })?;
        let (stand_in, library) = (library.is_stand_in(), library.path);
        let mut driver = Driver { entry, library, version: 0, stand_in };
        // SAFETY: flags of 0, as required.
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

    /// Returns the number of GPUs.
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
        // SAFETY: that many bytes may be written.
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
            // SAFETY: the place is valid for the write; the value written is a constant of the library's, or NULL.
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

/// A stream of a context: does its work in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(Handle);

/// A point in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(Handle);

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel(Handle);

/// Memory of the GPU. It belongs to the context that made it, until that is destroyed.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceMemory {
    address: DevicePointer,
    length: usize,
}

impl DeviceMemory {
    /// Returns a part of it.
    ///
    /// # Panics
    ///
    /// If the part reaches beyond the end.
    pub fn part(&self, from: usize, length: usize) -> DeviceMemory {
        let end = from.checked_add(length).filter(|end| *end <= self.length);
        assert!(end.is_some(), "{length} bytes from {from} on of {}", self.length);
        DeviceMemory { address: self.address + from as u64, length }
    }

    /// Returns its start address, for a job.
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn length(&self) -> usize {
        self.length
    }
}

/// Page-locked memory of the host. It belongs to the context that made it, until that is destroyed. It is read and written in whole
/// structures; its owner must know whether the GPU is using it.
#[derive(Debug)]
pub(super) struct HostMemory {
    start: *mut u8,
    length: usize,
}

// SAFETY: the memory belongs to the owner of the value; nothing of it is tied to a thread.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// Returns a pointer to its bytes from `from` on, for a copy.
    ///
    /// # Panics
    ///
    /// If `from` is beyond the end.
    pub fn piece(&self, from: usize) -> *const u8 {
        assert!(from < self.length);
        // SAFETY: inside the memory.
        unsafe { self.start.add(from) }
    }

    /// Returns its bytes.
    ///
    /// # Safety
    ///
    /// No copy from or to it may be in progress, and its context must not be destroyed.
    pub unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the driver returned this many bytes, zeroed on allocation; nothing else uses them.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

// SAFETY: handles are numbers except to the driver, which may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Send for Moment {}
// SAFETY: as above.
unsafe impl Send for Kernel {}

/// Grid and parameters of a launch.
pub(super) struct Launch<'a> {
    pub kernel: Kernel,
    /// Number of blocks along x and y.
    pub blocks: (u32, u32),
    /// Threads of a block.
    pub threads: u32,
    pub parameters: &'a mut [*mut c_void],
}

/// A context of a GPU: its memory, streams and kernels, separate from those of other users in the process.
#[derive(Debug)]
pub(super) struct Context {
    driver: Arc<Driver>,
    handle: Handle,
    /// Set once it was destroyed, or destruction was tried. A call holds the read lock while it lasts, so that destruction comes after it.
    gone: RwLock<bool>,
}

// SAFETY: the driver's functions may be called from any thread; the context is current only while a call
// lasts.
unsafe impl Send for Context {}
// SAFETY: as above, and from several threads at once: each has its own stack of contexts.
unsafe impl Sync for Context {}

/// A guard that keeps the context current on this thread, and keeps it from being destroyed.
pub(super) struct Current<'a> {
    context: &'a Context,
    _there: RwLockReadGuard<'a, bool>,
    _thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut before = std::ptr::null_mut();
        // SAFETY: the place is valid for the write; the context that this thread pushed is popped.
        let _ = unsafe { (self.context.driver.entry.context_pop)(&mut before) };
    }
}

impl Context {
    /// Makes a context in which threads wait as `waiting` says, on a GPU for which the driver can compile the kernels.
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

    /// Makes it current for a library other than the driver. Call nothing of this type meanwhile: that would make it current twice.
    pub fn current(&self) -> Result<Current<'_>, GpuError> {
        self.enter().map(|(current, _)| current)
    }

    /// Returns true if the driver is the stand-in for tests.
    pub fn is_stand_in(&self) -> bool {
        self.driver.stand_in
    }

    /// Returns the named kernels of a module in PTX.
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

    /// Makes a moment; only a timed one can report its time, an untimed one is cheaper.
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
        // SAFETY: the driver returned this many bytes.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, length) };
        Ok(HostMemory { start: start.cast(), length })
    }

    /// Locks pages that belong to the caller, so that the GPU copies from and to them by itself.
    ///
    /// # Safety
    ///
    /// The pages must stay where they are until [`Context::forget`] or [`Context::destroy`].
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

    /// Queues a copy from the host.
    ///
    /// # Safety
    ///
    /// `from` must have as many bytes, in locked pages, and nothing may write to them before the stream is past the copy.
    pub unsafe fn copy_in(&self, to: DeviceMemory, from: *const u8, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: the caller's promise; the memory of the GPU is that long.
        let code = unsafe { (entry.copy_in)(to.address, from.cast(), to.length, stream.0) };
        self.driver.check("cuMemcpyHtoDAsync", code)
    }

    /// Queues a copy to the host.
    ///
    /// # Safety
    ///
    /// `to` must have as many bytes, in locked pages, and nothing may use them before the stream is past the copy.
    pub unsafe fn copy_out(&self, to: *mut u8, from: DeviceMemory, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: as above.
        let code = unsafe { (entry.copy_out)(to.cast(), from.address, from.length, stream.0) };
        self.driver.check("cuMemcpyDtoHAsync", code)
    }

    /// Queues a copy of structures from locked memory to the GPU.
    ///
    /// # Safety
    ///
    /// Nothing may write to `from` before the stream is past the copy.
    pub unsafe fn send(&self, to: DeviceMemory, from: &HostMemory, stream: Stream) -> Result<(), GpuError> {
        assert!(to.length <= from.length);
        // SAFETY: long enough, and locked; the rest is the caller's promise.
        unsafe { self.copy_in(to, from.start, stream) }
    }

    /// Queues a copy of structures back to locked memory.
    ///
    /// # Safety
    ///
    /// Nothing may use `to` before the stream is past the copy.
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

    /// Queues a copy from one place on the GPU to another, of as many bytes as both have.
    pub fn copy_within(&self, to: DeviceMemory, from: DeviceMemory, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        let length = to.length.min(from.length);
        // SAFETY: both are memory of the GPU, of at least that length.
        let code = unsafe { (entry.copy_within)(to.address, from.address, length, stream.0) };
        self.driver.check("cuMemcpyDtoDAsync", code)
    }

    /// Queues filling memory of the GPU with zeros.
    pub fn wipe(&self, memory: DeviceMemory, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: the memory is that long.
        let code = unsafe { (entry.fill)(memory.address, 0, memory.length, stream.0) };
        self.driver.check("cuMemsetD8Async", code)
    }

    /// Queues a launch of a kernel.
    ///
    /// # Safety
    ///
    /// The parameters must be those of the kernel, and must point to memory of the GPU as it expects.
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

    /// Records the point at which the stream has done everything queued so far.
    pub fn record(&self, moment: Moment, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: both are of this context.
        let code = unsafe { (entry.event_record)(moment.0, stream.0) };
        self.driver.check("cuEventRecord", code)
    }

    /// Returns true if the stream has passed the moment.
    pub fn is_past(&self, moment: Moment) -> Result<bool, GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: it is of this context.
        match unsafe { (entry.event_query)(moment.0) } {
            NOT_READY => Ok(false),
            code => self.driver.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Returns the nanoseconds between two timed moments that have passed.
    pub fn between(&self, first: Moment, last: Moment) -> Result<f64, GpuError> {
        let (_current, entry) = self.enter()?;
        let mut milliseconds = 0f32;
        // SAFETY: the place is valid for the write, the moments are of this context.
        let code = unsafe { (entry.event_elapsed)(&mut milliseconds, first.0, last.0) };
        self.driver.check("cuEventElapsedTime", code).map(|()| f64::from(milliseconds) * 1e6)
    }

    /// Waits until the stream has done everything queued so far.
    pub fn synchronize(&self, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        // SAFETY: it is of this context.
        let code = unsafe { (entry.stream_synchronize)(stream.0) };
        self.driver.check("cuStreamSynchronize", code)
    }

    /// Signals an eventfd when the stream has done everything queued so far.
    ///
    /// # Safety
    ///
    /// The descriptor must stay open until then, or until the context is destroyed.
    pub unsafe fn signal(&self, event: BorrowedFd<'_>, stream: Stream) -> Result<(), GpuError> {
        let (_current, entry) = self.enter()?;
        let number = std::ptr::without_provenance_mut(event.as_raw_fd() as usize);
        // SAFETY: the function takes the number of a descriptor; that it is the right one is the caller's
        // promise.
        let code = unsafe { (entry.launch_host)(stream.0, raise, number) };
        self.driver.check("cuLaunchHostFunc", code)
    }

    /// Ends everything that it does, after calls of other threads. Once this has returned without an error, the GPU uses no memory of the
    /// caller's any more. After an error that is unknown: memory given to the GPU must stay where it is, for good.
    pub fn destroy(&self) -> Result<(), GpuError> {
        let mut gone = self.gone.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *gone, true) {
            return Ok(());
        }
        // SAFETY: it was made and not destroyed. Nothing uses what was made in it: every call checks `gone`.
        let code = unsafe { (self.driver.entry.context_destroy)(self.handle) };
        self.driver.check("cuCtxDestroy", code)
    }

    pub fn is_gone(&self) -> bool {
        *self.gone()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Any owner that gave it memory has destroyed it before.
        let _ = self.destroy();
    }
}

/// Signals the eventfd. Called on a thread of the driver's; it may not call the driver.
unsafe extern "C" fn raise(event: *mut c_void) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight readable bytes; the descriptor is an eventfd, by the promise of `signal`. A full counter
    // (EAGAIN) wakes as well.
    unsafe { libc::write(event.addr() as c_int, one.as_ptr().cast(), one.len()) };
}
