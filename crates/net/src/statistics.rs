//! Counters.

/// Counters of a stack since it was made. [`Usage`] has the current values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Frames received.
    pub frames_in: u64,
    /// Frames returned for sending. One that the NIC segments counts once.
    pub frames_out: u64,
    /// Received frames that are not for this card: other addresses, unsupported protocols.
    pub not_ours: u64,
    /// Received frames with headers that are truncated or invalid.
    pub malformed: u64,
    /// Received packets with a wrong checksum.
    pub checksum_errors: u64,
    /// Received fragments of IPv4 packets, which are dropped.
    pub fragments: u64,
    /// Datagrams to ports that are not open, and segments of unknown connections.
    pub no_port: u64,
    /// Frames without a connection that were dropped because too many waited, or ARP got no answer.
    pub pending_dropped: u64,
    /// TCP segments received.
    pub segments_in: u64,
    /// TCP segments sent. One that the NIC segments counts once.
    pub segments_out: u64,
    /// Segments that arrived before ones with lower numbers.
    pub out_of_order: u64,
    /// Segments with no new bytes.
    pub duplicates: u64,
    /// Segments outside of the window.
    pub out_of_window: u64,
    /// Received bytes that were dropped at their limit.
    pub bytes_dropped: u64,
    /// Segments refused for an old timestamp (PAWS).
    pub old_timestamps: u64,
    /// Challenge acknowledgements (RFC 5961).
    pub challenges: u64,
    /// Retransmitted segments.
    pub retransmissions: u64,
    /// Retransmitted bytes.
    pub retransmitted_bytes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Losses detected without a timeout.
    pub fast_recoveries: u64,
    /// Recoveries and timeouts that were not needed, as timestamps show: the segments were late, not lost.
    pub undone: u64,
    /// Probes of a tail that was not acknowledged (RFC 8985).
    pub tail_probes: u64,
    /// Probes of a closed window, and of idle connections.
    pub probes: u64,
    /// Half-open connections that were replaced by newer ones, and connections refused because there were too many.
    pub backlog_dropped: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Valid resets received.
    pub resets_in: u64,
    /// Connections opened, by either side.
    pub opened: u64,
    /// Connections that are gone.
    pub closed: u64,
    /// Echo requests answered.
    pub echoes: u64,
}

/// The resources that a stack holds now. All are zero when it is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Connections, in all states except TIME-WAIT.
    pub flows: usize,
    /// Connections in TIME-WAIT.
    pub time_wait: usize,
    /// Chunks whose blocks are not free.
    pub chunks: usize,
    /// Receive buffers that hold bytes that were not granted.
    pub buffers: usize,
    /// Frames that the NIC has.
    pub frames: usize,
    /// Frames without a connection that wait to be sent.
    pub pending: usize,
    /// Connections that their owner has released.
    pub orphans: usize,
    /// Echo replies that are not sent yet: each has a receive buffer.
    pub echoes: usize,
    /// Neighbours whose address is requested.
    pub asked: usize,
    /// Segments recorded as sent, in the connection that has the most of them.
    pub segments: usize,
}
