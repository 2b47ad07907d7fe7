//! `dcs csd demo`: two guests, each with a drive of one `dcs csd` process.
//!
//! ```text
//!   this process                       QEMU, twice                          dcs csd run
//!     requests, checks <- console -->    dcs-bench guest-drive
//!                                        mkfs.ext4, mount, files  <------->  a plain and an encrypted namespace each
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `demo` | the process, the guests, the jobs and their figures |
//! | `designs` | `dcs bench guest drives`: the same jobs on a paravirtual disk and on a drive |
//! | `agent` | the hidden subcommand in the guest: makes the files, does the jobs |
//! | `protocol` | messages between them |

mod agent;
mod demo;
#[cfg(feature = "benchmarks")]
mod designs;
mod protocol;

pub use agent::run as agent;
pub use demo::run;
#[cfg(feature = "benchmarks")]
pub use designs::{run as designs, shown as designs_shown};
