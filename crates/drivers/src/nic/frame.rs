//! Frames, as their owner sends and receives them.

use crate::bus::Window;

/// A frame to send, without its frame check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Bytes of the frame, in pieces anywhere on the bus that the NIC may access.
    pub data: &'a [Window],
    /// The work that is left to the NIC.
    pub offload: Option<Offload>,
}

/// The checksums that a NIC inserts into a frame, the segments that it makes of it, and the positions of the headers.
///
/// The owner prepares the checksum fields. The IP header's is 0. TCP's or UDP's holds the sum of the pseudo header, folded, not
/// complemented; for a frame that is segmented, without the length. IPv4's total length, or IPv6's payload length, is then 0 too. [82576,
/// 7.2.4.5]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Bytes before the IP header.
    pub link: u8,
    /// Bytes of the IP header, with its options or extensions.
    pub network: u16,
    /// Set for IPv4, clear for IPv6.
    pub ipv4: bool,
    /// Set to insert the IPv4 header's checksum.
    pub ip_checksum: bool,
    /// Transport protocol whose checksum to insert.
    pub transport: Option<Transport>,
    /// Segmentation, if the frame is to be cut into segments.
    pub segment: Option<Segmentation>,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Segmentation of a frame. Each segment gets its own lengths, sequence number, IPv4 identification and
/// checksums.
///
/// FIN and PSH belong to the last segment; QEMU's NICs lose them. A frame with FIN is best sent without
/// segmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Bytes of the TCP header.
    pub header: u8,
    /// Most bytes of payload in a segment.
    pub size: u16,
}

/// Most bytes of a frame that is to be segmented.
pub const MAX_SEGMENTED: u64 = 65_535;

impl Offload {
    /// Checks an offload for a frame of this length; returns the size of all known headers, or why it can't be done.
    pub(super) fn check(&self, length: u64) -> Result<u64, TransmitError> {
        let ip = if self.ipv4 { 20..=60 } else { 40..=255 };
        if !(14..=64).contains(&self.link) || !ip.contains(&self.network) || (self.ip_checksum && !self.ipv4)
        {
            return Err(TransmitError::Offload);
        }
        let header = match (self.segment, self.transport) {
            (None, None) => 0,
            (None, Some(Transport::Tcp)) => 20,
            (None, Some(Transport::Udp)) => 8,
            (Some(segment), Some(Transport::Tcp))
                if (20..=60).contains(&segment.header) && segment.size > 0 =>
            {
                u64::from(segment.header)
            }
            _ => return Err(TransmitError::Offload),
        };
        let headers = u64::from(self.link) + u64::from(self.network) + header;
        // The NIC stores offsets to the fields in a byte.
        if headers > length || headers > 255 {
            return Err(TransmitError::Offload);
        }
        Ok(headers)
    }
}

/// The reason why a frame was refused. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransmitError {
    /// The NIC is not up; see [`Nic::state`](super::Nic::state).
    #[error("the NIC is not ready")]
    NotReady,
    /// The NIC has no link.
    #[error("the NIC has no link")]
    LinkDown,
    /// The ring is full. Reap, then try again.
    #[error("the NIC's transmit ring is full")]
    Full,
    /// The frame is shorter than an Ethernet header, or has an empty piece.
    #[error("the frame has no Ethernet header, or an empty piece")]
    Empty,
    /// The frame is longer than the NIC can send.
    #[error("the frame has more than {max} bytes")]
    TooLong {
        /// Most bytes that it may have.
        max: u64,
    },
    /// The frame has more pieces than the ring has room for.
    #[error("the frame has more pieces than the ring has room for")]
    Pieces,
    /// The offload makes no sense for this frame.
    #[error("the requested checksums or segments can't be made of this frame")]
    Offload,
}

/// A NIC's verdict on a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The NIC has not checked it.
    #[default]
    Unknown,
    /// The checksum is right.
    Good,
    /// The checksum is wrong.
    Bad,
}

/// Most buffers of a received frame, each with a piece for headers and one for the packet.
pub const PIECES: usize = 8;

/// A part of a frame, in the card's own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Offset in own memory.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub length: u32,
}

/// A received frame, without its frame check sequence. Its memory is its owner's until it is returned
/// ([`Nic::give_back`](super::Nic::give_back)).
#[derive(Debug)]
pub struct Received {
    pub(super) buffers: [u16; PIECES],
    pub(super) buffer_count: u8,
    pub(super) pieces: [Piece; 2 * PIECES],
    pub(super) count: u8,
    /// Set if the first piece is the frame's headers, and nothing else.
    pub split: bool,
    /// Verdict on the IPv4 header's checksum.
    pub ip: Checksum,
    /// Verdict on the checksum of TCP or UDP.
    pub transport: Checksum,
}

impl Received {
    pub(super) fn new() -> Received {
        Received {
            buffers: [0; PIECES],
            buffer_count: 0,
            pieces: [Piece::default(); 2 * PIECES],
            count: 0,
            split: false,
            ip: Checksum::Unknown,
            transport: Checksum::Unknown,
        }
    }

    /// Returns its pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces[..usize::from(self.count)]
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> u32 {
        self.pieces().iter().map(|piece| piece.length).sum()
    }

    pub(super) fn buffers(&self) -> &[u16] {
        &self.buffers[..usize::from(self.buffer_count)]
    }

    /// Adds a buffer. There must be room for it.
    pub(super) fn add_buffer(&mut self, buffer: u16) {
        self.buffers[usize::from(self.buffer_count)] = buffer;
        self.buffer_count += 1;
    }

    /// Adds a piece. There must be room for it.
    pub(super) fn add_piece(&mut self, offset: u64, length: u32) {
        if length > 0 {
            self.pieces[usize::from(self.count)] = Piece { offset, length };
            self.count += 1;
        }
    }
}
