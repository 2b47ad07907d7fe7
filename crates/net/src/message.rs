//! The stack's interface: received frames, chunks to send, frames to transmit, events.

use crate::slab::Key;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::{Deref, DerefMut, Range};

/// A time, in nanoseconds since a fixed moment of the owner's choice.
pub type Nanos = u64;

/// The name of a TCP connection. It is never reused for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(pub(crate) Key);

impl Flow {
    /// Returns its number, for tables of the owner.
    pub fn number(self) -> u64 {
        u64::from(self.0.generation()) << 32 | u64::from(self.0.slot())
    }

    /// Returns the flow of a [`Flow::number`].
    pub fn from_number(number: u64) -> Flow {
        Flow(Key::new(number as u32, (number >> 32) as u32))
    }
}

/// A piece of the card's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Piece {
    /// Returns the part of `length` bytes that starts at byte `from`.
    pub(crate) fn part(self, from: u64, length: u32) -> Piece {
        Piece { offset: self.offset.wrapping_add(from), length }
    }
}

/// A block of the owner, by a number of the owner's choice. The block of each chunk that was accepted is returned in exactly one
/// [`Event::Free`].
pub type BlockId = u64;

/// A receive buffer of the owner, by a number of the owner's choice. The buffer of each received frame is returned in exactly one
/// [`Event::Release`].
pub type BufferId = u64;

/// Bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Place of the bytes. They must not change before the block is free.
    pub piece: Piece,
    /// Block that holds the bytes.
    pub block: BlockId,
    /// Set if more follows at once: a last segment that is not full may wait for it, at most 200 ms. (There is no Nagle algorithm.)
    pub more: bool,
}

/// The NIC's verdict on the TCP or UDP checksum of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The checksum is right, or there is none. If the NIC does not check, [`verify`](crate::checksum::verify) does.
    Good,
    /// The checksum is wrong.
    Bad,
}

/// Bytes at the start of a received frame that suffice for all headers that the stack reads.
pub const HEAD: usize = 14 + 60 + 60;

/// A frame that the NIC has put into a receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedFrame<'a> {
    /// Receive buffer of the frame.
    pub buffer: BufferId,
    /// Copy of the first [`HEAD`] bytes, or of the whole frame if it is shorter.
    pub head: &'a [u8],
    /// Length of the frame in bytes, without the frame check sequence.
    pub length: u32,
    /// Offset of the frame's first byte in own memory.
    pub offset: u64,
    /// Split of the frame, by a NIC that separates headers from payload: the first byte that is elsewhere, and the offset of that place.
    pub split: Option<(u32, u64)>,
    /// Verdict of the NIC on the TCP or UDP checksum.
    pub checksum: Verdict,
}

impl ReceivedFrame<'_> {
    /// Returns the place of some of the frame's bytes; `None` if they are not in one piece.
    pub(crate) fn piece(&self, bytes: Range<u32>) -> Option<Piece> {
        let offset = match self.split {
            Some((at, there)) if bytes.start >= at => there.checked_add(u64::from(bytes.start - at))?,
            Some((at, _)) if bytes.end > at => return None,
            _ => self.offset.checked_add(u64::from(bytes.start))?,
        };
        Some(Piece { offset, length: bytes.end.checked_sub(bytes.start)? })
    }
}

/// A buffer for up to 128 bytes of headers.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; 128],
    length: u8,
}

impl Header {
    /// Makes a buffer with these bytes; returns `None` if there are more than 128.
    pub fn of(bytes: &[u8]) -> Option<Header> {
        let mut header = Header { bytes: [0; 128], length: u8::try_from(bytes.len()).ok()? };
        header.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(header)
    }

    pub(crate) fn zeroed(length: usize) -> Header {
        assert!(length <= 128);
        Header { bytes: [0; 128], length: length as u8 }
    }
}

impl Deref for Header {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}

impl DerefMut for Header {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length.into()]
    }
}

impl core::fmt::Debug for Header {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x?}", &self[..])
    }
}

/// A checksum that is left to the NIC: it sums the frame from byte `start` to the end and puts the complement at `start + offset`. The
/// field holds the sum of the pseudo header, as virtio-net and Linux's drivers expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumOffload {
    /// Offset of the TCP or UDP header.
    pub start: u16,
    /// Offset of the field in that header: 16 in TCP, 6 in UDP.
    pub offset: u16,
}

/// The name of a frame until [`Stack::frame_sent`](crate::Stack::frame_sent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub(crate) Key);

impl FrameId {
    /// Returns its number, for a table of the owner.
    pub fn number(self) -> u64 {
        u64::from(self.0.generation()) << 32 | u64::from(self.0.slot())
    }

    /// Returns the frame of a [`FrameId::number`].
    pub fn from_number(number: u64) -> FrameId {
        FrameId(Key::new(number as u32, (number >> 32) as u32))
    }
}

/// A frame to transmit: its headers, then the pieces of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name to pass to [`Stack::frame_sent`](crate::Stack::frame_sent) when the NIC has sent it.
    pub id: FrameId,
    /// Ethernet header (14 bytes), IPv4 header (20 bytes) and the next header, or an ARP packet. The IPv4 header's checksum and length are
    /// filled in. It may be shorter than Ethernet's least 60 bytes: the NIC pads.
    pub header: Header,
    /// Pieces of the payload.
    pub payload: Vec<Piece>,
    /// Checksum for the NIC to compute, if any.
    pub checksum: Option<ChecksumOffload>,
    /// TCP segmentation offload: the NIC makes frames with this many bytes of payload. The pseudo header's sum in the checksum field then
    /// excludes the length, as Intel's controllers expect.
    pub segment: Option<u16>,
    /// Place of the payload in a connection's stream, if it is bytes of one.
    pub stream: Option<StreamPart>,
}

/// Bytes of a connection's outgoing stream in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPart {
    /// Connection of the stream.
    pub flow: Flow,
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// Most bytes of payload in a segment of the connection.
    pub most: u16,
}

impl Frame {
    /// Returns the number of bytes of headers and payload.
    pub fn length(&self) -> usize {
        self.header.len() + self.payload.iter().map(|piece| piece.length as usize).sum::<usize>()
    }
}

/// An event, in the order in which events happen. Events of a flow come before its [`Event::Closed`], except [`Event::Free`] and
/// [`Event::Release`], which come when the NIC is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection that [`Stack::connect`](crate::Stack::connect) began is established.
    Connected {
        /// Connection that is established.
        flow: Flow,
    },
    /// A peer has connected.
    Accepted {
        /// New connection.
        flow: Flow,
        /// Local port.
        port: u16,
        /// Address and port of the peer.
        from: SocketAddrV4,
    },
    /// Bytes of a stream have arrived: the owner copies them to their place in a block. They are below what was granted. No byte of a
    /// stream is delivered twice, but bytes may be out of order.
    Deliver {
        /// Connection of the stream.
        flow: Flow,
        /// Offset of the first byte in the stream.
        offset: u64,
        /// Place of the bytes, in a receive buffer that is released later.
        piece: Piece,
    },
    /// The bytes before this one have all been delivered.
    Received {
        /// Connection of the stream.
        flow: Flow,
        /// Number of bytes before it.
        offset: u64,
    },
    /// The peer has ended its stream and all of it has arrived. Some bytes may still wait to be granted.
    Ended {
        /// Connection of the stream.
        flow: Flow,
        /// Length of the stream.
        offset: u64,
    },
    /// The NIC has sent all bytes before this one at least once.
    Sent {
        /// Connection of the stream.
        flow: Flow,
        /// Number of bytes before it.
        offset: u64,
    },
    /// The peer has acknowledged all bytes before this one: its TCP has them.
    Acknowledged {
        /// Connection of the stream.
        flow: Flow,
        /// Number of bytes before it.
        offset: u64,
    },
    /// A chunk's bytes are no longer needed, whether or not they have arrived.
    Free {
        /// Owner of the chunk.
        owner: Owner,
        /// Block of the chunk.
        block: BlockId,
    },
    /// Not all datagrams of a chunk were sent: nothing answers at the address of the peer or the gateway, the owner recalled the rest, or
    /// the port was closed. The chunk's [`Event::Free`] follows.
    Unsent {
        /// Port that they were sent from.
        port: u16,
        /// Block of the chunk.
        block: BlockId,
    },
    /// A receive buffer can be reused, once the bytes delivered from it have been copied.
    Release {
        /// Buffer to reuse.
        buffer: BufferId,
    },
    /// A UDP datagram has arrived.
    Datagram {
        /// Local port.
        port: u16,
        /// Address and port of the sender.
        from: SocketAddrV4,
        /// Place of the payload, in a receive buffer that is released right after.
        piece: Piece,
    },
    /// A connection is gone, and its name is invalid.
    Closed {
        /// Connection that is gone.
        flow: Flow,
        /// Reason for its end.
        reason: Reason,
    },
}

/// The owner of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A connection, which may be gone.
    Flow(Flow),
    /// A UDP port.
    Port(u16),
}

/// The reason why a connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Both sides have ended their streams, and each knows that the other has.
    Finished,
    /// The peer has reset it.
    Reset,
    /// The peer has refused it.
    Refused,
    /// The peer has not answered for too long.
    TimedOut,
    /// Nothing answers at the address of the peer or the gateway.
    Unreachable,
    /// The owner has aborted it.
    Aborted,
}

/// The reason why a connection could not be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The number of connections is at its limit.
    #[error("the number of connections is at its limit")]
    Full,
    /// No local port is free for this peer.
    #[error("no local port is free")]
    NoPort,
    /// The address is not a single host's, the port is zero, or there is neither a direct route nor a gateway.
    #[error("no route to {0}")]
    Unreachable(SocketAddrV4),
}

/// The reason why a port could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The port is open already, or is zero.
    #[error("port {0} is taken")]
    Taken(u16),
}

/// The reason why bytes were refused. The owner keeps their block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection is gone.
    #[error("the connection is gone")]
    Gone,
    /// The stream was ended by [`Stack::shutdown`](crate::Stack::shutdown).
    #[error("the stream was ended")]
    Ended,
    /// The chunk has no bytes, or too many.
    #[error("a chunk of this length cannot be sent")]
    Length,
    /// The queue is full. There will be room later.
    #[error("the queue is full")]
    Full,
    /// The port is not open.
    #[error("the port is not open")]
    Closed,
    /// There is no route to this address.
    #[error("no route to {0}")]
    Unreachable(Ipv4Addr),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_frame_has_its_payload_elsewhere() {
        let whole = ReceivedFrame {
            buffer: 0,
            head: &[],
            length: 200,
            offset: 1000,
            split: None,
            checksum: Verdict::Good,
        };
        assert_eq!(whole.piece(54..200), Some(Piece { offset: 1054, length: 146 }));
        let split = ReceivedFrame { split: Some((54, 9000)), ..whole };
        assert_eq!(split.piece(54..200), Some(Piece { offset: 9000, length: 146 }));
        assert_eq!(split.piece(60..200), Some(Piece { offset: 9006, length: 140 }));
        assert_eq!(split.piece(14..54), Some(Piece { offset: 1014, length: 40 }));
        assert_eq!(split.piece(50..200), None, "it is in two places");
    }

    #[test]
    fn names_are_numbers_and_back() {
        let key = Key::new(3, 9);
        assert_eq!(Flow::from_number(Flow(key).number()), Flow(key));
        assert_eq!(FrameId::from_number(FrameId(key).number()), FrameId(key));
    }
}
