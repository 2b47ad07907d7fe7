//! The stack's interface: received frames, chunks to send, frames to transmit, events.

use crate::slab::Key;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::{Deref, DerefMut, Range};

/// A time, in nanoseconds since any fixed moment that the owner likes.
pub type Nanos = u64;

/// A TCP connection. The name of one that is gone is never the name of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(pub(crate) Key);

impl Flow {
    /// Its number, for tables of the owner's.
    pub fn number(self) -> u64 {
        u64::from(self.0.generation()) << 32 | u64::from(self.0.slot())
    }

    /// The flow of [`Flow::number`].
    pub fn from_number(number: u64) -> Flow {
        Flow(Key::new(number as u32, (number >> 32) as u32))
    }
}

/// Some of the card's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Offset of the first byte.
    pub offset: u64,
    /// In bytes.
    pub length: u32,
}

impl Piece {
    /// The part of it from byte `from` on, of `length` bytes.
    pub(crate) fn part(self, from: u64, length: u32) -> Piece {
        Piece { offset: self.offset.wrapping_add(from), length }
    }
}

/// A block of the owner's, by a number of the owner's choice. Each chunk that was accepted comes back in
/// exactly one [`Event::Free`] with its block.
pub type BlockId = u64;

/// A receive buffer of the owner's, by a number of the owner's choice. Each received frame's buffer comes
/// back in exactly one [`Event::Release`].
pub type BufferId = u64;

/// Bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Their address. They must not change before the block is free.
    pub piece: Piece,
    /// Whose they are.
    pub block: BlockId,
    /// More follows at once: a last segment that is not full may wait for it, 200 ms at most. (There is no
    /// Nagle algorithm.)
    pub more: bool,
}

/// The NIC's verdict on the TCP or UDP checksum of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is right, or there is none. Where the NIC does not check, [`verify`](crate::checksum::verify) does.
    Good,
    /// It is wrong.
    Bad,
}

/// This many bytes at the start of a received frame are enough for all headers that the stack reads.
pub const HEAD: usize = 14 + 60 + 60;

/// A frame that the NIC has put into a receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedFrame<'a> {
    /// The buffer.
    pub buffer: BufferId,
    /// A copy of the first [`HEAD`] bytes, or of all where it is shorter.
    pub head: &'a [u8],
    /// All bytes of the frame, without the frame check sequence.
    pub length: u32,
    /// The address of the frame's first byte in own memory.
    pub offset: u64,
    /// For a NIC that splits headers from payload: the frame's bytes from this one on lie there instead.
    pub split: Option<(u32, u64)>,
    /// The NIC's verdict on the TCP or UDP checksum.
    pub checksum: Verdict,
}

impl ReceivedFrame<'_> {
    /// The address of some of the frame's bytes; none where they are not in one piece.
    pub(crate) fn piece(&self, bytes: Range<u32>) -> Option<Piece> {
        let offset = match self.split {
            Some((at, there)) if bytes.start >= at => there.checked_add(u64::from(bytes.start - at))?,
            Some((at, _)) if bytes.end > at => return None,
            _ => self.offset.checked_add(u64::from(bytes.start))?,
        };
        Some(Piece { offset, length: bytes.end.checked_sub(bytes.start)? })
    }
}

/// Up to 128 bytes of headers.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; 128],
    length: u8,
}

impl Header {
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

/// A checksum that is left to the NIC: it sums the frame from byte `start` to the end and puts the complement
/// at `start + offset`. The field holds the sum of the pseudo header, as virtio-net and Linux's drivers want
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumOffload {
    /// The offset of the TCP or UDP header.
    pub start: u16,
    /// The field's offset in that header: 16 in TCP, 6 in UDP.
    pub offset: u16,
}

/// A frame's name until [`Stack::frame_sent`](crate::Stack::frame_sent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub(crate) Key);

impl FrameId {
    /// Its number, for a table of the owner's.
    pub fn number(self) -> u64 {
        u64::from(self.0.generation()) << 32 | u64::from(self.0.slot())
    }

    /// The frame of [`FrameId::number`].
    pub fn from_number(number: u64) -> FrameId {
        FrameId(Key::new(number as u32, (number >> 32) as u32))
    }
}

/// A frame to transmit: its headers, then the pieces of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The news that is due when the NIC has sent it.
    pub id: FrameId,
    /// Ethernet header (14 bytes), IPv4 header (20 bytes) and what follows, or an ARP packet. The IPv4
    /// header's checksum and length are right. Shorter than Ethernet's least 60 bytes at times: the NIC pads.
    pub header: Header,
    /// The payload.
    pub payload: Vec<Piece>,
    /// The checksum that the NIC computes, where it does.
    pub checksum: Option<ChecksumOffload>,
    /// TCP segmentation offload: the NIC makes frames of this many bytes of payload out of it. The pseudo
    /// header's sum in the checksum field then counts no length, as Intel's controllers want it.
    pub segment: Option<u16>,
}

impl Frame {
    /// Bytes of headers and payload.
    pub fn length(&self) -> usize {
        self.header.len() + self.payload.iter().map(|piece| piece.length as usize).sum::<usize>()
    }
}

/// An event, in the order in which events happen. Those of a flow come before its [`Event::Closed`], except
/// [`Event::Free`] and [`Event::Release`], which come when the NIC is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection that [`Stack::connect`](crate::Stack::connect) began is established.
    Connected {
        /// Which.
        flow: Flow,
    },
    /// A peer has connected.
    Accepted {
        /// The new connection.
        flow: Flow,
        /// To which port.
        port: u16,
        /// From where.
        from: SocketAddrV4,
    },
    /// These bytes of a stream have been received: the owner copies them to their place in a block. They lie
    /// below what was granted. No byte of a stream is delivered twice, but they need not come in order.
    Deliver {
        /// The stream.
        flow: Flow,
        /// The first byte's offset in the stream.
        offset: u64,
        /// Their address, in a receive buffer that is released later.
        piece: Piece,
    },
    /// All bytes before this one have been delivered.
    Received {
        /// The stream.
        flow: Flow,
        /// Their number.
        offset: u64,
    },
    /// The peer has ended its stream and all of it has arrived. Some may yet wait to be granted.
    Ended {
        /// The stream.
        flow: Flow,
        /// Its length.
        offset: u64,
    },
    /// All bytes before this one have been sent by the NIC, at least once: they have been taken over.
    Sent {
        /// The stream.
        flow: Flow,
        /// Their number.
        offset: u64,
    },
    /// All bytes before this one have been acknowledged by the peer: its TCP has them.
    Acknowledged {
        /// The stream.
        flow: Flow,
        /// Their number.
        offset: u64,
    },
    /// A chunk's bytes are no longer needed. It says nothing about whether they arrived.
    Free {
        /// Whose chunk.
        owner: Owner,
        /// Its block.
        block: BlockId,
    },
    /// Not all datagrams of a chunk were sent: nobody answers at the peer's address or the gateway's, the
    /// owner wants no more of them, or the port was closed. The chunk's [`Event::Free`] follows.
    Unsent {
        /// From which port.
        port: u16,
        /// The chunk's block.
        block: BlockId,
    },
    /// A receive buffer can be used again, as soon as what was delivered from it before has been copied.
    Release {
        /// Which.
        buffer: BufferId,
    },
    /// A UDP datagram.
    Datagram {
        /// To which port.
        port: u16,
        /// From where.
        from: SocketAddrV4,
        /// Its payload, in a receive buffer that is released right after.
        piece: Piece,
    },
    /// A connection is gone, and its name with it.
    Closed {
        /// Which.
        flow: Flow,
        /// Why.
        reason: Reason,
    },
}

/// Whose chunk it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A connection's; it may be gone.
    Flow(Flow),
    /// A UDP port's.
    Port(u16),
}

/// Why a connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Both sides have ended their streams, and each knows it of the other.
    Finished,
    /// The peer has reset it.
    Reset,
    /// The peer has refused it.
    Refused,
    /// The peer has not answered for too long.
    TimedOut,
    /// Nobody answers at the peer's address, or the gateway's.
    Unreachable,
    /// The owner has aborted it.
    Aborted,
}

/// Why a connection could not be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// As many connections as there may be.
    #[error("there are as many connections as there may be")]
    Full,
    /// All local ports for this peer are taken.
    #[error("no local port is free")]
    NoPort,
    /// The address is not one host's, the port is zero, or there is neither a direct way nor a gateway.
    #[error("no way to {0}")]
    Unreachable(SocketAddrV4),
}

/// Why a port could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is open, or port zero.
    #[error("port {0} is taken")]
    Taken(u16),
}

/// Why bytes were not accepted. Their block is the owner's still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection is gone.
    #[error("the connection is gone")]
    Gone,
    /// The stream was ended by [`Stack::shutdown`](crate::Stack::shutdown).
    #[error("the stream was ended")]
    Ended,
    /// No bytes, or more than a chunk can have.
    #[error("a chunk of this length cannot be sent")]
    Length,
    /// The queue is full. Something becomes free later.
    #[error("the queue is full")]
    Full,
    /// The port is not open.
    #[error("the port is not open")]
    Closed,
    /// No way to this address.
    #[error("no way to {0}")]
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
        assert_eq!(split.piece(50..200), None, "it lies in two places");
    }

    #[test]
    fn names_are_numbers_and_back() {
        let key = Key::new(3, 9);
        assert_eq!(Flow::from_number(Flow(key).number()), Flow(key));
        assert_eq!(FrameId::from_number(FrameId(key).number()), FrameId(key));
    }
}
