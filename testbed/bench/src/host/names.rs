//! Names of system calls.

use nix::libc;

macro_rules! names {
    ($($number:ident $name:literal),* $(,)?) => { &[$((libc::$number, $name)),*] };
}

/// System calls that a transfer may make; others are reported by number.
const NAMES: &[(i64, &str)] = names![
    SYS_accept4 "accept4", SYS_brk "brk", SYS_clock_gettime "clock_gettime", SYS_close "close",
    SYS_copy_file_range "copy_file_range", SYS_dup "dup", SYS_dup3 "dup3", SYS_epoll_ctl "epoll_ctl",
    SYS_epoll_pwait "epoll_pwait", SYS_eventfd2 "eventfd2", SYS_fadvise64 "fadvise64", SYS_fallocate "fallocate",
    SYS_fcntl "fcntl", SYS_fdatasync "fdatasync", SYS_fstat "fstat", SYS_fsync "fsync", SYS_ftruncate "ftruncate",
    SYS_futex "futex", SYS_getpeername "getpeername", SYS_getrandom "getrandom", SYS_getsockname "getsockname", SYS_getsockopt "getsockopt",
    SYS_gettid "gettid", SYS_io_uring_enter "io_uring_enter", SYS_io_uring_register "io_uring_register",
    SYS_ioctl "ioctl", SYS_lseek "lseek", SYS_madvise "madvise", SYS_mmap "mmap", SYS_mprotect "mprotect",
    SYS_mremap "mremap", SYS_munmap "munmap", SYS_newfstatat "newfstatat", SYS_openat "openat", SYS_ppoll "ppoll",
    SYS_pread64 "pread64", SYS_preadv2 "preadv2", SYS_pwrite64 "pwrite64", SYS_pwritev2 "pwritev2",
    SYS_read "read", SYS_readv "readv", SYS_recvfrom "recvfrom", SYS_recvmsg "recvmsg",
    SYS_rt_sigaction "rt_sigaction", SYS_rt_sigpending "rt_sigpending",
    SYS_rt_sigprocmask "rt_sigprocmask", SYS_rt_sigtimedwait "rt_sigtimedwait", SYS_sched_yield "sched_yield",
    SYS_sendfile "sendfile", SYS_sendmsg "sendmsg", SYS_sendto "sendto", SYS_setsockopt "setsockopt",
    SYS_splice "splice", SYS_statx "statx", SYS_write "write", SYS_writev "writev",
];

/// Returns the name of a system call.
pub fn of(number: u64) -> String {
    let known = NAMES.iter().find(|(known, _)| *known as u64 == number);
    known.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_string())
}
