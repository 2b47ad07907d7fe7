//! What the engine's own thread needs of the system.

/// Prepares the calling thread to be an engine's: signals are for the application's threads, and a broken pipe is
/// an error of one transfer, not of the process.
pub(crate) fn prepare(core: Option<usize>) {
    block_signals();
    if let Some(core) = core {
        bind_to(core);
    }
}

fn block_signals() {
    // SAFETY: the set is initialised by sigfillset before it is used; pthread_sigmask changes only this thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// A core that is not there, or not allowed, leaves the thread where the scheduler puts it.
fn bind_to(core: usize) {
    // SAFETY: cpu_set_t is plain bits, zero is the empty set; CPU_SET is given an index below its size; 0 means the
    // calling thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        if core < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(core, &mut set);
            libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set);
        }
    }
}
