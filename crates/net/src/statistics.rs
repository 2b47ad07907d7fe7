//! Counters.

/// Counters of a stack since it was made. [`Usage`] has those of the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Frames received.
    pub frames_in: u64,
    /// Frames handed out for sending. One that the NIC segments counts once.
    pub frames_out: u64,
    /// Received frames that are not for this card: other addresses, protocols that it does not speak.
    pub not_ours: u64,
    /// Received frames with headers that are cut short or make no sense.
    pub malformed: u64,
    /// Received packets with a wrong checksum.
    pub checksum_errors: u64,
    /// Received fragments of IPv4 packets: dropped.
    pub fragments: u64,
    /// Datagrams to ports that are not open, and segments of unknown connections.
    pub no_port: u64,
    /// Frames without a connection that were dropped as too many waited, or nobody answered ARP.
    pub pending_dropped: u64,
    /// TCP segments received.
    pub segments_in: u64,
    /// TCP segments sent. One that the NIC segments counts once.
    pub segments_out: u64,
    /// Segments that came before ones with lower numbers.
    pub out_of_order: u64,
    /// Segments of which nothing was new.
    pub duplicates: u64,
    /// Segments outside of the window.
    pub out_of_window: u64,
    /// Received bytes that were dropped as their limit was reached.
    pub bytes_dropped: u64,
    /// Segments refused for an old timestamp (PAWS).
    pub old_timestamps: u64,
    /// Challenge acknowledgements (RFC 5961).
    pub challenges: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Bytes sent again.
    pub retransmitted_bytes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Times that segments were found lost without a timeout.
    pub fast_recoveries: u64,
    /// Recoveries and timeouts that were not needed, as timestamps tell: what had been taken for lost was
    /// late.
    pub undone: u64,
    /// Probes of a tail that was not acknowledged (RFC 8985).
    pub tail_probes: u64,
    /// Probes of a closed window, and of idle connections.
    pub probes: u64,
    /// Half-open connections that gave way to newer ones, and connections refused as there were too many.
    pub backlog_dropped: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Resets received and obeyed.
    pub resets_in: u64,
    /// Connections opened, by either side.
    pub opened: u64,
    /// Connections that are gone.
    pub closed: u64,
    /// Echo requests answered.
    pub echoes: u64,
}

/// The resources that a stack holds now. All zero when all is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Connections, of all states but TIME-WAIT.
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
    /// Of the connections, those that their owner has let go of.
    pub orphans: usize,
    /// Echo replies that have not left: each has a receive buffer.
    pub echoes: usize,
    /// Neighbours whose address is asked for.
    pub asked: usize,
    /// Segments that are remembered as sent, of the connection that has the most of them.
    pub segments: usize,
}
