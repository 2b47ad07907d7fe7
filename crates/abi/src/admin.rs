//! Admin commands of an engine that is a PCIe function: queues, memory, devices, connections.
//!
//! Queues are made and deleted by NVMe's own commands (NVMe Base 2.1, Admin Command Set). What NVMe has no
//! word for is vendor specific (C0h and above) and carries all it needs in the entry. Two give more than a
//! completion holds, into memory (bits 1:0 of their opcodes are 2); the others move no data (0).

use core::net::{Ipv4Addr, SocketAddrV4};

use crate::layout::Constant;
use crate::status::Status;
use crate::wire::wire_struct;

wire_struct! {
    /// Admin submission entry.
    /// Shaped as an NVMe common command (NVMe Base 2.1, Common Command Format).
    AdminEntry, AdminPacket, ADMIN, "dcs_admin_sqe", 64 {
        /// Opcode: DCS_ADMIN_*. [NVMe CDW0 bits 7:0]
        opcode: u8 = 0,
        /// Command identifier, the submitter's choice, unique among the admin commands in flight. [NVMe CDW0
        /// bits 31:16]
        cid: u16 = 2,
        /// Bus address of the data buffer, where the command has one. [NVMe DPTR, PRP entry 1]
        data_address: u64 = 24,
        /// Arguments: see each command. [NVMe CDW10 to CDW15]
        words: [u32; 6] = 40,
    }
}

wire_struct! {
    /// Admin completion entry.
    /// Shaped as NVMe's (NVMe Base 2.1, Common Completion Queue Entry Layout).
    AdminCompletion, AdminCompletionPacket, ADMIN_COMPLETION, "dcs_admin_cqe", 16 {
        /// Result of the command: a handle, most of the time. [DW0]
        value: u32 = 0,
        /// More of it: see each. [DW1]
        extra: u32 = 4,
        /// Submission queue head: entries before it may be reused. [DW2 bits 15:0]
        sq_head: u16 = 8,
        /// Submission queue of the command: 0. [DW2 bits 31:16]
        sq_id: u16 = 10,
        /// Command identifier. [DW3 bits 15:0]
        cid: u16 = 12,
        /// Bit 0: phase. Bits 15:1: status, DCS_STATUS_*. [DW3 bits 31:16]
        status: u16 = 14,
    }
}

wire_struct! {
    /// Identity of an SSD and of the namespace that the engine drives.
    SsdIdentity, SsdIdentityPacket, SSD_IDENTITY, "dcs_ssd_identity", 64 {
        /// Namespace globally unique identifier; zeros: none. [NVMe Identify Namespace, NGUID]
        nguid: [u8; 16] = 0,
        /// IEEE extended unique identifier; zeros: none. [NVMe Identify Namespace, EUI64]
        eui64: [u8; 8] = 16,
        /// Number of the namespace.
        nsid: u32 = 24,
        /// Bytes of a logical block.
        block_size: u32 = 28,
        /// Logical blocks.
        blocks: u64 = 32,
        /// The controller's serial number, padded with spaces. [NVMe Identify Controller, SN]
        serial: [u8; 20] = 40,
    }
}

wire_struct! {
    /// What a media stream has sent.
    PacedSending, PacedSendingPacket, PACED_SENDING, "dcs_paced_sending", 176 {
        /// Datagrams that were sent.
        datagrams: u64 = 0,
        /// Bytes of their payload.
        bytes: u64 = 8,
        /// Datagrams that were sent more than 5 ms after their time.
        late: u64 = 16,
        /// Datagrams that were not sent: there was no link, or no way to the peer.
        lost: u64 = 24,
        /// Times that all that followed was put off, since bytes came too late.
        slips: u64 = 32,
        /// Nanoseconds that it was put off by, in total.
        slipped: u64 = 40,
        /// Clock references (PCR) that jumped without a mark.
        jumps: u64 = 48,
        /// Bytes left out, which are no packets of a transport stream.
        skipped: u64 = 56,
        /// Largest deviation from the due time, in nanoseconds.
        worst: u64 = 64,
        /// Datagrams by their deviation: at most 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 100, 250 ms, and more.
        deviations: [u64; 12] = 72,
        /// errno (Linux) for which the last one was lost; 0: none was.
        errno: u32 = 168,
    }
}

/// A media stream to open: the arguments of OPEN_PACED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacedOptions {
    /// The NIC's handle.
    pub nic: u32,
    /// The peer, or a group.
    pub to: SocketAddrV4,
    /// Bytes of payload of each datagram, without RTP's header.
    pub payload: u16,
    /// Hops that a datagram to a group may take.
    pub hops: u8,
    /// RTP's header is put before each payload, and reports go to the next port.
    pub rtp: bool,
    /// Where RTP's numbers begin.
    pub random: u64,
    /// Nanoseconds since 1970 now, for reports.
    pub unix: u64,
}

impl PacedOptions {
    /// They as an admin command.
    pub fn entry(&self) -> AdminEntry {
        let words = [
            self.nic,
            self.to.ip().to_bits(),
            u32::from(self.to.port()) | u32::from(self.payload) << 16,
            u32::from(self.hops) | u32::from(self.rtp) << 8,
            self.random as u32,
            (self.random >> 32) as u32,
        ];
        AdminEntry { opcode: opcode::OPEN_PACED, data_address: self.unix, words, ..Default::default() }
    }

    /// Those of an admin command.
    pub fn of(entry: &AdminEntry) -> Option<PacedOptions> {
        let [nic, peer, sizes, how, low, high] = entry.words;
        (how >> 9 == 0).then(|| PacedOptions {
            nic,
            to: SocketAddrV4::new(Ipv4Addr::from_bits(peer), sizes as u16),
            payload: (sizes >> 16) as u16,
            hops: how as u8,
            rtp: how & 0x100 != 0,
            random: u64::from(low) | u64::from(high) << 32,
            unix: entry.data_address,
        })
    }
}

/// A part of an SSD that another function of the card may use: the arguments of LEND_SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentPart {
    /// The SSD's handle.
    pub ssd: u32,
    /// The function that may use it.
    pub function: u16,
    /// Rights of the function: `GRANT_*`.
    pub grants: u16,
    /// First byte of the part, the first one of a logical block.
    pub first: u64,
    /// Length in bytes: whole logical blocks.
    pub length: u64,
}

impl LentPart {
    /// It as an admin command.
    pub fn entry(&self) -> AdminEntry {
        let words = [
            self.ssd,
            u32::from(self.function) | u32::from(self.grants) << 16,
            self.first as u32,
            (self.first >> 32) as u32,
            self.length as u32,
            (self.length >> 32) as u32,
        ];
        AdminEntry { opcode: opcode::LEND_SSD, words, ..Default::default() }
    }

    /// That of an admin command.
    pub fn of(entry: &AdminEntry) -> LentPart {
        let [ssd, to, first, first_high, length, length_high] = entry.words;
        LentPart {
            ssd,
            function: to as u16,
            grants: (to >> 16) as u16,
            first: u64::from(first) | u64::from(first_high) << 32,
            length: u64::from(length) | u64::from(length_high) << 32,
        }
    }
}

/// The answer to an admin command: value and extra of its completion, or the status of its failure.
pub type Answer = Result<(u32, u32), Status>;

/// Opcodes of admin commands.
pub mod opcode {
    /// NVMe's.
    pub const DELETE_SQ: u8 = 0x00;
    /// NVMe's.
    pub const CREATE_SQ: u8 = 0x01;
    /// NVMe's.
    pub const DELETE_CQ: u8 = 0x04;
    /// NVMe's.
    pub const CREATE_CQ: u8 = 0x05;
    /// NVMe's.
    pub const ABORT: u8 = 0x08;
    /// Memory of the host that commands may name.
    pub const GRANT_MEMORY: u8 = 0xc0;
    /// Releases a handle: of memory, a listener, a connection, datagrams, a media stream, a part of an SSD.
    pub const RELEASE: u8 = 0xc4;
    /// An NVMe controller is the engine's from now on.
    pub const ATTACH_SSD: u8 = 0xc8;
    /// A NIC is the engine's from now on.
    pub const ATTACH_NIC: u8 = 0xcc;
    /// Waits for connections.
    pub const LISTEN: u8 = 0xd0;
    /// Takes a connection.
    pub const ACCEPT: u8 = 0xd4;
    /// Makes a connection.
    pub const CONNECT: u8 = 0xd8;
    /// Ends a connection's outgoing stream.
    pub const SHUTDOWN: u8 = 0xdc;
    /// Opens datagrams between a port and a peer.
    pub const DATAGRAMS: u8 = 0xe0;
    /// Datagrams that were dropped.
    pub const DROPPED: u8 = 0xe4;
    /// Asks an SSD for its identity.
    pub const IDENTIFY_SSD: u8 = 0xea;
    /// Opens a media stream.
    pub const OPEN_PACED: u8 = 0xec;
    /// Asks a media stream what it has sent.
    pub const PACED_SENDING: u8 = 0xf2;
    /// Lets another function of the card use a part of an SSD.
    pub const LEND_SSD: u8 = 0xf4;
    /// Opens a part of an SSD that the function may use.
    pub const OPEN_PART: u8 = 0xf8;
}

/// In GRANT_MEMORY: the engine may read the memory.
pub const GRANT_READ: u32 = 1;
/// In GRANT_MEMORY: the engine may write the memory.
pub const GRANT_WRITE: u32 = 2;

/// Opcodes, for generators.
#[rustfmt::skip]
pub const ADMIN_OPCODES: &[Constant] = &[
    row("DELETE_SQ", opcode::DELETE_SQ, "delete a submission queue: CDW10 15:0 QID [NVMe 00h]"),
    row("CREATE_SQ", opcode::CREATE_SQ, "create a submission queue: CDW10 15:0 QID, 31:16 size (0's based); CDW11 bit 0 contiguous (must be 1), 31:16 the CQ, which has the same number; CDW12 15:0 tenant, one of the function's own, whose rids order commands; data_address: base [NVMe 01h; CDW12 is ours]"),
    row("DELETE_CQ", opcode::DELETE_CQ, "delete a completion queue: CDW10 15:0 QID [NVMe 04h]"),
    row("CREATE_CQ", opcode::CREATE_CQ, "create a completion queue: CDW10 15:0 QID, 31:16 size (0's based); CDW11 bit 0 contiguous (must be 1), bit 1 interrupts, 31:16 vector; data_address: base [NVMe 05h]"),
    row("ABORT", opcode::ABORT, "abort a command: CDW10 15:0 SQID, 31:16 CID [NVMe 08h]"),
    row("GRANT_MEMORY", opcode::GRANT_MEMORY, "memory that queues, descriptors, results and MEMORY endpoints may lie in: data_address, CDW10-11 bytes, CDW12 DCS_GRANT_*; gives a handle"),
    row("RELEASE", opcode::RELEASE, "let go of a handle: CDW10; a part that was lent is taken back; a connection that is open is reset, datagrams that are not sent yet are not, but a media stream sends what it has taken, in its time"),
    row("ATTACH_SSD", opcode::ATTACH_SSD, "drive an NVMe controller: data_address: its BAR0, CDW10 bytes of that, CDW11 namespace (0: the first one); gives a handle, CDW1: bytes of a logical block"),
    row("ATTACH_NIC", opcode::ATTACH_NIC, "drive a NIC: data_address: its BAR0, CDW10 bytes of that, CDW11 PCI device id, CDW12 IPv4 address, CDW13 7:0 prefix length, 31:16 MTU, CDW14 gateway (0: none); gives a handle"),
    row("LISTEN", opcode::LISTEN, "wait for TCP connections: CDW10 the NIC's handle, CDW11 port; gives a handle"),
    row("ACCEPT", opcode::ACCEPT, "take a connection, when there is one: CDW10 the listener's handle; gives a handle, CDW1: the peer's IPv4 address"),
    row("CONNECT", opcode::CONNECT, "make a TCP connection: CDW10 the NIC's handle, CDW11 IPv4 address, CDW12 port; gives a handle"),
    row("SHUTDOWN", opcode::SHUTDOWN, "end a connection's outgoing stream (FIN): CDW10 its handle"),
    row("DATAGRAMS", opcode::DATAGRAMS, "open UDP datagrams between a port and a peer: CDW10 the NIC's handle, CDW11 the peer's IPv4 address, CDW12 15:0 its port, 31:16 the port here, CDW13 bytes of payload of each datagram that is sent (0: as many as the MTU allows); gives a handle"),
    row("DROPPED", opcode::DROPPED, "how many datagrams came when there was no room for them: CDW10 the datagrams' handle; gives their number, modulo 2^32"),
    row("IDENTIFY_SSD", opcode::IDENTIFY_SSD, "what an SSD says of itself: CDW10 its handle; data_address: where 64 bytes are written (dcs_ssd_identity), in granted memory"),
    row("OPEN_PACED", opcode::OPEN_PACED, "open a media stream to a host or a group, a PACED destination: CDW10 the NIC's handle, CDW11 the peer's IPv4 address, CDW12 15:0 its port, 31:16 bytes of payload of each datagram, CDW13 7:0 hops of datagrams to a group, bit 8 RTP (a header before each payload, reports to the next port), CDW14-15 where RTP's numbers begin; CDW6-7 nanoseconds since 1970; gives a handle"),
    row("PACED_SENDING", opcode::PACED_SENDING, "what a media stream has sent: CDW10 its handle; data_address: where 176 bytes are written (dcs_paced_sending), in granted memory"),
    row("LEND_SSD", opcode::LEND_SSD, "let another function of the card use a part of an SSD: CDW10 the SSD's handle, CDW11 15:0 the function, 31:16 DCS_GRANT_*, CDW12-13 first byte, CDW14-15 bytes (whole logical blocks); function 0's alone; gives a handle, CDW1: the part's number there"),
    row("OPEN_PART", opcode::OPEN_PART, "open a part of an SSD that function 0 lends to this one: CDW10 its number, from 0; gives a handle, which IDENTIFY_SSD takes too, CDW1: bytes of a logical block"),
];

const fn row(name: &'static str, opcode: u8, doc: &'static str) -> Constant {
    Constant { name, value: opcode as u64, doc }
}

/// The uses that memory is granted for, for generators.
pub const GRANTS: &[Constant] = &[
    Constant { name: "READ", value: GRANT_READ as u64, doc: "the engine may read it" },
    Constant { name: "WRITE", value: GRANT_WRITE as u64, doc: "the engine may write it" },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvme_s_fields_are_in_nvme_s_places_and_ours_move_data_where_they_say_so() {
        let entry =
            AdminEntry { opcode: opcode::CREATE_CQ, cid: 7, data_address: 0x1000, words: [1, 2, 3, 4, 5, 6] };
        let bytes = entry.to_bytes();
        assert_eq!((bytes[0], bytes[2], bytes[25], bytes[40], bytes[60]), (5, 7, 0x10, 1, 6));
        let ours = ADMIN_OPCODES.iter().filter(|row| row.value >= 0xc0);
        let to_host = [opcode::IDENTIFY_SSD, opcode::PACED_SENDING].map(u64::from);
        let way = |row: &Constant| if to_host.contains(&row.value) { 2 } else { 0 };
        assert!(ours.clone().count() > 0 && ours.into_iter().all(|row| row.value & 3 == way(row)));
    }

    #[test]
    fn a_lent_part_is_all_in_the_entry() {
        let (first, length) = (0x1_2345_6000, 0x7_0000_1000);
        let part = LentPart { ssd: 2, function: 3, grants: 1, first, length };
        let entry = part.entry();
        assert_eq!(LentPart::of(&entry), part);
        assert_eq!(entry.words, [2, 0x1_0003, 0x2345_6000, 1, 0x1000, 7]);
    }

    #[test]
    fn a_media_stream_s_options_are_all_in_the_entry() {
        let options = PacedOptions {
            nic: 3,
            to: "239.1.1.1:5004".parse().unwrap(),
            payload: 1316,
            hops: 4,
            rtp: true,
            random: 0x0123_4567_89ab_cdef,
            unix: 1_700_000_000_123_456_789,
        };
        let entry = options.entry();
        assert_eq!(PacedOptions::of(&entry), Some(options));
        assert_eq!(entry.words[..4], [3, 0xef01_0101, 1316 << 16 | 5004, 0x104]);
        let mut unknown = entry;
        unknown.words[3] |= 0x200;
        assert_eq!(PacedOptions::of(&unknown), None);
    }
}
