//! Volumes, on which namespaces lie: they take requests and answer them later.

mod buffer;
mod file;
mod model;
mod ssd;
mod uring;

pub use buffer::Buffer;
pub use file::FileStorage;
pub use model::ModelStorage;
pub use ssd::{SsdBus, SsdStorage};

use crate::host::Piece;

/// Who a request is from. The storage gives it back as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Which drive's.
    pub drive: u32,
    /// Which of its commands under way.
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
    /// Memory that the kernel is to reach without a copy lies at multiples of this, a power of two.
    pub memory_alignment: u64,
    /// Written data are safe only after a flush, or if the write was durable.
    pub volatile_cache: bool,
    /// Deallocated bytes take no room, and read as zeros.
    pub thin: bool,
    /// Nothing can be written.
    pub read_only: bool,
    /// Zeros are written as other bytes are, as far as is known: nothing can make them.
    pub writes_zeros: bool,
}

/// An action on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Into the data.
    Read,
    /// From the data. `durable`: done only when it is on the medium.
    Write {
        /// As FUA says.
        durable: bool,
    },
    /// All that was written before, and answered, is on the medium when this is done.
    Flush,
    /// Zeros. `deallocate`: rather by giving the room back.
    Zero {
        /// As DEAC says.
        deallocate: bool,
        /// As FUA says.
        durable: bool,
    },
    /// The room is given back where it can be; the bytes then read as zeros.
    Deallocate,
}

/// Where a request's data are.
#[derive(Debug, Default)]
pub enum Data {
    /// It has none.
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
    /// From whom.
    pub ticket: Ticket,
    /// The volume.
    pub volume: VolumeId,
    /// The action.
    pub action: Action,
    /// First byte of the volume.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
    /// As many bytes, where the action has any.
    pub data: Data,
}

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// The medium failed.
    #[error("the medium failed (errno {0})")]
    Medium(i32),
    /// No room is left on it.
    #[error("no room is left")]
    Full,
    /// It cannot be done: beyond the end, on a volume that is not there, read only, or of a kind that there
    /// is not.
    #[error("the volume cannot do that")]
    Refused,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Response {
    /// From whom it was.
    pub ticket: Ticket,
    /// The request's data.
    pub data: Data,
    /// Its result.
    pub result: Result<(), VolumeError>,
    /// Bytes that were written though the request has no data: zeros that could not be made otherwise.
    pub written: u64,
}

impl Response {
    /// The answer to a request that cannot be done.
    pub(crate) fn refused(request: Request, error: VolumeError) -> Response {
        Response { ticket: request.ticket, data: request.data, result: Err(error), written: 0 }
    }
}

/// Volumes. Requests are answered once each, in any order.
pub trait Storage {
    /// The properties of a volume; nothing where there is none.
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo>;

    /// Takes a request.
    fn submit(&mut self, request: Request);

    /// All requests of a batch are there: hands them on.
    fn commit(&mut self);

    /// Adds what has been answered.
    fn reap(&mut self, responses: &mut Vec<Response>);
}
