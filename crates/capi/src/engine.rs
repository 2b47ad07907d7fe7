//! Engines and sessions.

use crate::copy_text;
use crate::{call, read_sized};
use dcs::binding::DEPTH;
use dcs::engine::{Backend, Builder, Cores, Driver, Engine};
use dcs::error::Error;
use dcs::session::Session;
use dcs_abi::descriptor::Mode;
use dcs_devices::Io;
use dcs_devices::gpu::GpuOptions;
use std::ffi::{c_char, c_int};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::panic::catch_unwind;
use std::time::Duration;

/// A thread of the engine's own runs it: it spins while there is work, and sleeps when there is none.
pub const DCS_DRIVER_THREAD: u8 = 0;
/// The thread that waits for a transfer runs it: no hand-over between threads. Nothing moves while no thread
/// waits.
pub const DCS_DRIVER_CALLER: u8 = 1;

/// This machine's kernel.
pub const DCS_BACKEND_KERNEL: u8 = 0;
/// A dcs card, with the SSDs and NICs that the environment variables DCS_CARD, DCS_CARD_DISKS
/// (FUNCTION=DISK,...) and DCS_CARD_NIC (FUNCTION=ADDRESS/PREFIX,GATEWAY;...) name.
pub const DCS_BACKEND_CARD: u8 = 1;
/// As DCS_BACKEND_KERNEL, in a guest that has virtual drives (dcs csd): operators on files of such a drive run
/// beside its disk. A file that the drive cannot read so is refused.
pub const DCS_BACKEND_DRIVE: u8 = 2;

/// io_uring where it is available, else plain system calls. The environment variable DCS_IO (auto, uring,
/// plain) may override this.
pub const DCS_IO_AUTO: u8 = 0;
/// io_uring; an error where it is not available.
pub const DCS_IO_URING: u8 = 1;
/// Plain system calls; other threads make those that may wait.
pub const DCS_IO_PLAIN: u8 = 2;

/// In dcs_engine_options.flags: bind the engine's thread to dcs_engine_options.cpu; of several cores the next
/// thread to the next CPU, and so on.
pub const DCS_ENGINE_BIND_CPU: u16 = 1;

/// In dcs_engine_options.cores: one for each processor that the process may use, or that the NUMA node has.
pub const DCS_CORES_ALL: u16 = 0xffff;

/// In dcs_engine_options.spin_us: sleep at once.
pub const DCS_SPIN_NEVER: u32 = 0xffff_ffff;

/// The settings of an engine. Members that are 0 stand for the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dcs_engine_options {
    /// sizeof(struct dcs_engine_options).
    pub size: usize,
    /// Who runs the engine: DCS_DRIVER_*.
    pub driver: u8,
    /// The interface to the kernel: DCS_IO_*.
    pub io: u8,
    /// DCS_ENGINE_*.
    pub flags: u16,
    /// Bytes of a block buffer: a multiple of 4096; 131072 by default.
    pub block_size: u32,
    /// Block buffers, at least two for each session; 256 by default.
    pub blocks: u32,
    /// Transfers in flight in all, at least two for each session; 256 by default.
    pub commands: u16,
    /// Sessions that may be open; 64 by default.
    pub sessions: u16,
    /// Blocks that one transfer may hold: how far reading runs ahead of writing; 4 by default.
    pub window: u16,
    /// The CPU, where DCS_ENGINE_BIND_CPU is set.
    pub cpu: u16,
    /// Microseconds for which the engine looks for work before it sleeps; 20 by default (none on a machine
    /// with one core).
    pub spin_us: u32,
    /// The nice value of the engine's thread, -20 to 19; 0 leaves it as it is. Those below the process's own
    /// need CAP_SYS_NICE, or a limit that allows them.
    pub nice: i8,
    /// The backend that runs the transfers: DCS_BACKEND_*.
    pub backend: u8,
    /// Which GPU does the operators to whose numbers DCS_OP_ON_GPU is added, counted from 1; 0: there is
    /// none. See dcs_gpu_sentence.
    pub gpu: u8,
    /// Choice of whether that GPU reads files itself (GPUDirect Storage) where the first operator is on it:
    /// DCS_MODE_*. With DCS_MODE_ON there is no engine without it; DCS_PATH_GPU_STORAGE says of each transfer
    /// whether it did.
    pub gpu_storage: u8,
    /// Threads, for as many processors: 1 by default, DCS_CORES_ALL. Each has the blocks, commands and sessions
    /// that are named above. An engine that its callers drive, that is a card's, or that has a GPU, has one.
    pub cores: u16,
    /// The NUMA node on whose processors the threads run, and from which they take their memory, counted from
    /// 1; 0: anywhere.
    pub numa_node: u16,
}

/// An engine. Any thread of the process that made it may use it.
///
/// After fork(2) it stays the parent's. In the child every call with it, or with its sessions and transfers,
/// fails with EPERM, a transfer with DCS_STATUS_QUEUE_DELETED and EPERM; to stop, close and free them there
/// does nothing to the parent's. A child starts an engine of its own. Descriptors of what the parent has in
/// flight at a fork are open in the child too, until it ends or calls execve.
pub struct dcs_engine {
    engine: Engine,
}

/// A queue pair to an engine, with its transfers. Threads may share it.
pub struct dcs_session {
    pub(crate) session: Session,
}

/// Starts an engine.
///
/// `options` may be NULL for all defaults. The engine is stored in `*engine`; stop it with dcs_engine_stop.
///
/// Returns 0, or -1 and errno: EFAULT (`engine` is NULL), EINVAL (a size or value that makes no engine),
/// E2BIG (options of a newer version of this library), or why the system has not what it needs (ENOSYS,
/// EPERM: io_uring was demanded and is not available; EAGAIN, EMFILE: no thread or descriptor left; EACCES:
/// the nice value is not permitted; ENODEV: there is no card, no such GPU, no such NUMA node, or it cannot be
/// used).
///
/// # Safety
///
/// `options` is NULL or points to as many bytes as its `size` says; `engine` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_engine_start(
    options: *const dcs_engine_options,
    engine: *mut *mut dcs_engine,
) -> c_int {
    call(|| {
        if engine.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: the caller's promise.
        let started = unsafe { start(options) }?;
        // SAFETY: not NULL, so valid for a write.
        unsafe { engine.write(Box::into_raw(Box::new(dcs_engine { engine: started }))) };
        Ok(0)
    })
}

/// # Safety
///
/// As for `dcs_engine_start`.
unsafe fn start(options: *const dcs_engine_options) -> Result<Engine, c_int> {
    let mut builder = Engine::builder();
    if !options.is_null() {
        // SAFETY: the caller's promise.
        builder = configure(builder, &unsafe { read_sized(options) }?)?;
    }
    builder.start().map_err(|error| errno(&error))
}

fn configure(builder: Builder, options: &dcs_engine_options) -> Result<Builder, c_int> {
    let driver = match options.driver {
        DCS_DRIVER_THREAD => Driver::Thread,
        DCS_DRIVER_CALLER => Driver::Caller,
        _ => return Err(libc::EINVAL),
    };
    let io = match options.io {
        DCS_IO_AUTO => Io::Auto,
        DCS_IO_URING => Io::Uring,
        DCS_IO_PLAIN => Io::Plain,
        _ => return Err(libc::EINVAL),
    };
    let backend = match options.backend {
        DCS_BACKEND_KERNEL => Backend::Kernel,
        DCS_BACKEND_CARD => Backend::Card,
        DCS_BACKEND_DRIVE => Backend::Drive,
        _ => return Err(libc::EINVAL),
    };
    let mut builder = builder.backend(backend).driver(driver).io(io);
    let cores = match NonZeroUsize::new(options.cores.into()) {
        Some(_) if options.cores == DCS_CORES_ALL => Cores::All,
        cores => cores.unwrap_or(NonZeroUsize::MIN).into(),
    };
    builder = match options.flags {
        0 => builder.cores(cores),
        DCS_ENGINE_BIND_CPU => {
            let first = usize::from(options.cpu);
            builder.cores(cores).cpus(first..first + cores.count())
        }
        _ => return Err(libc::EINVAL),
    };
    builder = match options.spin_us {
        0 => builder,
        DCS_SPIN_NEVER => builder.spin(Duration::ZERO),
        spin => builder.spin(Duration::from_micros(spin.into())),
    };
    if let Some(device) = options.gpu.checked_sub(1) {
        builder = builder.gpu(device.into());
    }
    let storage = Mode::from_number(options.gpu_storage).ok_or(libc::EINVAL)?;
    let builder = builder.gpu_storage(storage);
    if !(-20..=19).contains(&options.nice) {
        return Err(libc::EINVAL);
    }
    Ok(set_sizes(builder, options))
}

/// Sets the node, the nice value and the sizes that are given: zero leaves the default.
fn set_sizes(mut builder: Builder, options: &dcs_engine_options) -> Builder {
    if let Some(node) = options.numa_node.checked_sub(1) {
        builder = builder.numa_node(node.into());
    }
    if options.nice != 0 {
        builder = builder.nice(options.nice);
    }
    if options.block_size != 0 {
        builder = builder.block_size(options.block_size);
    }
    if options.blocks != 0 {
        builder = builder.blocks(options.blocks);
    }
    if options.commands != 0 {
        builder = builder.commands(options.commands);
    }
    if options.sessions != 0 {
        builder = builder.sessions(options.sessions);
    }
    if options.window != 0 {
        builder = builder.window(options.window);
    }
    builder
}

/// Returns errno for an error outside of any transfer.
fn errno(error: &Error) -> c_int {
    match error {
        Error::Start(error) | Error::IoUring(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
        Error::NoSessions => libc::EMFILE,
        Error::Stopped => libc::ESHUTDOWN,
        Error::Forked => libc::EPERM,
        Error::CallerDriven => libc::EOPNOTSUPP,
        Error::Card(_) | Error::Drive(_) | Error::Gpu(_) | Error::NoGpu(..) | Error::NumaNode(_) => {
            libc::ENODEV
        }
        _ => libc::EINVAL,
    }
}

/// Describes a GPU, counted from 1, in one line, or says why it is not available: no driver, no GPU, not that many.
///
/// Writes up to `size` bytes, the NUL at the end included, and returns the length of the whole line, as
/// snprintf(3) does.
///
/// # Safety
///
/// `line` is NULL or valid for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_gpu_sentence(gpu: u8, line: *mut c_char, size: usize) -> usize {
    let device = u32::from(gpu).wrapping_sub(1);
    let said =
        catch_unwind(|| match dcs_devices::gpu::describe(&GpuOptions { device, ..GpuOptions::default() }) {
            Ok(found) => {
                format!(
                    "{}, {} MiB, CUDA {}.{}",
                    found.name,
                    found.memory >> 20,
                    found.driver.0,
                    found.driver.1
                )
            }
            Err(error) => error.to_string(),
        });
    // SAFETY: the caller's promise.
    unsafe { copy_text(&said.unwrap_or_default(), line, size) }
}

/// 1 where io_uring carries what takes time, 0 where plain system calls do (as with DCS_DRIVER_CALLER and
/// DCS_IO_AUTO); -1 and EFAULT for NULL.
///
/// # Safety
///
/// `engine` is NULL or an engine that was not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_engine_uses_io_uring(engine: *const dcs_engine) -> c_int {
    // SAFETY: NULL or an engine, by the caller's promise.
    call(|| unsafe { engine.as_ref() }.map(|engine| engine.engine.uses_io_uring().into()).ok_or(libc::EFAULT))
}

/// Its cores: how many threads it has, or 1 where its callers drive it; -1 and EFAULT for NULL.
///
/// # Safety
///
/// `engine` is NULL or an engine that was not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_engine_cores(engine: *const dcs_engine) -> c_int {
    call(|| {
        // SAFETY: NULL or an engine, by the caller's promise.
        let engine = unsafe { engine.as_ref() }.ok_or(libc::EFAULT)?;
        Ok(c_int::try_from(engine.engine.cores()).unwrap_or(c_int::MAX))
    })
}

/// Aborts what is in flight, waits until the engine has released all descriptors and memory, and stops it.
///
/// Its transfers end with DCS_STATUS_QUEUE_DELETED unless they were faster. Its sessions and transfers stay,
/// and are to be closed and freed as ever, before or after; they cannot submit any more. NULL is ignored. No
/// other thread may use the engine meanwhile or later; its sessions and transfers they may.
///
/// # Safety
///
/// `engine` is NULL or an engine that was not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_engine_stop(engine: *mut dcs_engine) {
    call(|| {
        if !engine.is_null() {
            // SAFETY: from Box::into_raw in `dcs_engine_start`, and never used again.
            drop(unsafe { Box::from_raw(engine) });
        }
        Ok(0)
    });
}

/// Opens a session with room for `depth` transfers (1 to 4096; 0: 64). A transfer takes its room until it is
/// freed.
///
/// It is on one of the engine's cores for good, and so are its transfers: on that with the least load, transfers
/// in flight and open sessions. To use all cores, open as many sessions as dcs_engine_cores says, or one for
/// each of your threads. Request ids order the transfers of sessions on one core.
///
/// Returns 0 and the session in `*session`, or -1 and errno: EFAULT (NULL), EINVAL (depth), EMFILE (as many
/// sessions are open as the engine was made for).
///
/// # Safety
///
/// `engine` is NULL or an engine that was not stopped; `session` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_session_open(
    engine: *mut dcs_engine,
    depth: u16,
    session: *mut *mut dcs_session,
) -> c_int {
    call(|| {
        // SAFETY: NULL or an engine, by the caller's promise.
        let engine = unsafe { engine.as_ref() }.filter(|_| !session.is_null()).ok_or(libc::EFAULT)?;
        let depth = if depth == 0 { DEPTH } else { depth };
        let opened = engine.engine.session_with_depth(depth).map_err(|error| errno(&error))?;
        // SAFETY: not NULL, so valid for a write.
        unsafe { session.write(Box::into_raw(Box::new(dcs_session { session: opened }))) };
        Ok(0)
    })
}

/// Aborts the session's transfers, waits until the engine has released their descriptors and memory, and
/// closes it.
///
/// The transfers end with DCS_STATUS_QUEUE_DELETED unless they were faster; they stay, and are to be freed as
/// ever, before or after. NULL is ignored. No other thread may use the session meanwhile or later; its
/// transfers they may.
///
/// # Safety
///
/// `session` is NULL or a session that was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_session_close(session: *mut dcs_session) {
    call(|| {
        if !session.is_null() {
            // SAFETY: from Box::into_raw in `dcs_session_open`, and never used again.
            unsafe { Box::from_raw(session) }.session.close();
        }
        Ok(0)
    });
}

/// An eventfd that is readable after a transfer of this session was done: read its 8 bytes, then poll the
/// transfers (dcs_transfer_poll). It does not block, belongs to the session, and is closed with it.
///
/// Returns the descriptor, or -1 and errno: EFAULT (NULL), EOPNOTSUPP (the engine is driven by the caller
/// that waits: nothing would drive it meanwhile), EMFILE.
///
/// # Safety
///
/// `session` is NULL or a session that was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcs_session_eventfd(session: *const dcs_session) -> c_int {
    call(|| {
        // SAFETY: NULL or a session, by the caller's promise.
        let session = unsafe { session.as_ref() }.ok_or(libc::EFAULT)?;
        session.session.event_fd().map(|event| event.as_raw_fd()).map_err(|error| errno(&error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs::binding::SPIN;
    use dcs::session::DEPTH_MAX;

    #[test]
    fn the_header_tells_the_defaults_of_the_code() {
        let header = include_str!("../../../include/dcs.h");
        let number = |text: &str| text.rsplit(' ').next().and_then(|word| word.parse::<u128>().ok());
        let told: Vec<u128> = header.split(" by default").map_while(number).collect();
        let of = ::dcs_engine::Config::default();
        let [blocks, size] = [of.blocks, of.block_size].map(u128::from);
        let [commands, queues, window] = [of.commands, of.queues, of.window].map(u128::from);
        let cores = Engine::builder().start().unwrap().cores() as u128;
        assert_eq!(told, [size, blocks, commands, queues, window, SPIN.as_micros(), cores]);
        let depths = format!("transfers (1 to {DEPTH_MAX}; 0: {DEPTH})");
        assert!(header.contains(&depths), "{depths}");
    }
}
