//! Errors of a GPU that is missing or lost.

use super::driver::Code;
use std::path::PathBuf;

/// The reason why there is no GPU, or why it is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The driver's library could not be loaded.
    #[error("no GPU: {} cannot be loaded ({why}): NVIDIA's driver is not installed here", .library.display())]
    NoDriver {
        /// The library.
        library: PathBuf,
        /// The loader's message.
        why: String,
    },
    /// The driver lacks a function.
    #[error("no GPU: {} lacks {missing}: the driver is older than 520", .library.display())]
    OldDriver {
        /// The library.
        library: PathBuf,
        /// The function.
        missing: &'static str,
    },
    /// The driver is older than the kernels.
    #[error("no GPU: the driver has CUDA {}.{}, and the kernels need 11.8 (driver 520 or later)", .0.0, .0.1)]
    TooOld((u32, u32)),
    /// The GPU is older than the kernels.
    #[error("no GPU: {name} has compute capability {}.{}, and the kernels need 7.0 (Volta) or later", .capability.0, .capability.1)]
    Incapable {
        /// The GPU's name.
        name: String,
        /// Compute capability of the GPU.
        capability: (u32, u32),
    },
    /// The driver has no GPU.
    #[error("no GPU: the driver finds none in this machine")]
    NoDevice,
    /// The driver has GPUs, but none with this number.
    #[error("there is no GPU {0}: they are counted from 0")]
    NoSuchDevice(u32),
    /// A call of the driver failed.
    #[error("the GPU cannot be used: {call}: {text}")]
    Call {
        /// The call.
        call: &'static str,
        /// The driver's error code.
        code: Code,
        /// Meaning of the code.
        text: String,
    },
    /// The GPU was lost before.
    #[error("the GPU was lost")]
    Lost,
    /// The GPU's memory does not hold a copy of each block.
    #[error(
        "the GPU's memory has no room for a copy of each of the engine's blocks, {0} bytes in all: take fewer blocks"
    )]
    Memory(u64),
    /// Files cannot be read to the GPU directly, which was demanded.
    #[error("GPUDirect Storage: {0}")]
    Storage(super::StorageError),
    /// Blocks are in use already.
    #[error("a GPU can only be attached before anything is started")]
    Busy,
}
