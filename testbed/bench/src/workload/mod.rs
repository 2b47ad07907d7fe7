//! What `dcs demo` and `dcs bench` have in common: helper processes, their connections, their clocks.
//!
//! | module | what it holds |
//! |---|---|
//! | `process` | helper processes, which are told and tell in JSON lines |
//! | `wire` | their connections, and what goes over their standard output |
//! | `syscalls` | system calls counted by ptrace |
//! | `random` | pseudo-random numbers, and text made of them |

pub mod process;
pub mod random;
pub mod syscalls;
pub mod wire;
