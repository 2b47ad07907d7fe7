//! Parts of the library for the C API (`crates/capi`), beyond the public API. Other crates must not use it:
//! it may change with any version.

pub use crate::endpoint::Range;
pub use crate::engine::SPIN;
pub use crate::error::{advice, nearest_errno, sentence};
pub use crate::queue::{DEPTH, Finished};
