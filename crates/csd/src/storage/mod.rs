//! Volumes, on which namespaces are: they take requests and answer them later.
//!
//! | module | contents |
//! |---|---|
//! | `buffer` | memory for data that cannot move straight to or from the guest's |
//! | `file` | volumes on files and block devices, by io_uring |
//! | `model` | volumes in memory and in virtual time, for tests and experiments |
//! | `ssd` | volumes on SSDs that this process drives itself |
//! | `uring` | requests to io_uring |

mod buffer;
mod file;
mod model;
mod ssd;
mod uring;

pub use buffer::Buffer;
pub use file::FileStorage;
pub use model::ModelStorage;
pub use ssd::{Ssd, SsdBus, SsdStorage};

use crate::host::Piece;

/// The sender of a request. The storage returns it unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The drive.
    pub drive: u32,
    /// The slot of its command.
    pub slot: u16,
}

/// A volume of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

/// The properties of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// In bytes.
    pub length: u64,
    /// Offsets and lengths of requests are multiples of this, a power of two.
    pub alignment: u64,
    /// Alignment of memory that the kernel accesses without a copy, a power of two.
    pub memory_alignment: u64,
    /// Written data are safe only after a flush, unless the write was durable.
    pub volatile_cache: bool,
    /// Deallocated bytes take no space, and read as zeros.
    pub thin: bool,
    /// Deallocation is passed on, and may free space; what is read then is not known.
    pub takes_hints: bool,
    /// It cannot be written.
    pub read_only: bool,
    /// Zeros have to be written like other bytes, as far as is known: there is no faster way.
    pub writes_zeros: bool,
}

/// An action on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads.
    Read,
    /// Writes. `durable`: it ends only when the data are on the medium.
    Write {
        /// Set by FUA.
        durable: bool,
    },
    /// Flushes: all writes that were answered before are on the medium when it ends.
    Flush,
    /// Writes zeros. `deallocate`: preferably by deallocating.
    Zero {
        /// Set by DEAC.
        deallocate: bool,
        /// Set by FUA.
        durable: bool,
    },
    /// Deallocates if possible; the bytes then read as zeros.
    Deallocate,
}

/// The place of a request's data.
#[derive(Debug, Default)]
pub enum Data {
    /// No data.
    #[default]
    None,
    /// In the guest's memory.
    Pieces(Vec<Piece>),
    /// In memory of this process.
    Buffer(Buffer),
}

/// A request. It owns its data until it is answered.
#[derive(Debug)]
pub struct Request {
    /// The sender.
    pub ticket: Ticket,
    /// The volume.
    pub volume: VolumeId,
    /// The action.
    pub action: Action,
    /// First byte in the volume.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Data of that length, if the action has any.
    pub data: Data,
}

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// The medium failed.
    #[error("the medium failed (errno {0})")]
    Medium(i32),
    /// It has no space left.
    #[error("no room is left")]
    Full,
    /// The request is invalid: beyond the end, on a volume that does not exist, a write to a read-only one,
    /// or not supported.
    #[error("the volume cannot do that")]
    Refused,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Response {
    /// The sender of the request.
    pub ticket: Ticket,
    /// The request's data.
    pub data: Data,
    /// Its result.
    pub result: Result<(), VolumeError>,
    /// Bytes written though the request has no data: zeros that could not be made otherwise.
    pub written: u64,
}

impl Response {
    /// Returns the answer to an invalid request.
    pub(crate) fn refused(request: Request, error: VolumeError) -> Response {
        Response { ticket: request.ticket, data: request.data, result: Err(error), written: 0 }
    }
}

/// Volumes. Each request is answered once, in any order.
pub trait Storage {
    /// Returns the properties of a volume; `None` if there is none.
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo>;

    /// Takes a request.
    fn submit(&mut self, request: Request);

    /// Submits the requests of a batch: all are there.
    fn commit(&mut self);

    /// Adds new answers.
    fn reap(&mut self, responses: &mut Vec<Response>);
}
