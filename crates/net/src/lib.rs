//! TCP and UDP over IPv4 for the driver of a NIC, in a card or in an engine over VFIO: a state machine that does no I/O.
//!
//! A [`Stack`] is given received frames and the time, and returns frames to send and [`Event`]s. It has no thread, no socket and no clock;
//! and above all **it has no payload**. The bytes that a card sends are in blocks of its own memory, where an SSD's DMA has put them, and
//! leave by the NIC's DMA. So a [`Chunk`] of a stream is a place in that memory, a [`Frame`] is a few bytes of headers and a list of
//! places, and a received payload is an [`Event::Deliver`] with a place in a receive buffer and its offset in the stream.
//!
//! # Architecture
//!
//! ```text
//!            receive            send, shutdown                  next_event
//!               |                 connect, grant, abort              ^
//!        stack::ingress                  |                           |
//!      Ethernet, ARP, IPv4,         stack (flows, ports) ------> events
//!       ICMP, UDP headers                |                           ^
//!               |                        v                           |
//!               +---> tcp::input --> tcp (one connection) ------ receiver: packet gathering
//!                                        |    \
//!                                        |     queue: the places of the stream's bytes
//!                   poll ----> tcp::timers     scoreboard, congestion, rtt: losses, and the rate
//!                                        |
//!        stack::egress <---------- tcp::output
//!               |
//!          next_frame  --> the NIC -->  frame_sent
//! ```
//!
//! The owner *pulls* frames: a segment is made when the NIC has room for it, from the latest state. Neither acknowledgements nor data wait
//! in a queue of frames.
//!
//! | module | what it holds |
//! |---|---|
//! | [`message`], [`config`] | the interface: input and output; sizes and times |
//! | [`checksum`] | checksums, for NICs that do not compute them |
//! | `stack` | tables of connections, ports and TIME-WAITs; frames in, frames out; SYN backlog; unpredictable sequence numbers |
//! | `arp` | neighbours, and the senders that wait for them |
//! | `tcp` | one connection: its state machine, in 64-bit positions that never wrap |
//! | `tcp::queue` | the send queue, which holds places, not bytes |
//! | `tcp::receiver` | packet gathering: each received byte to its place in the stream |
//! | `tcp::scoreboard` | selective acknowledgements, and losses by time |
//! | `ranges`, `slab`, `statistics` | sets of byte ranges; tables with keys; counters |
//! | `shared` | blocks in use: by a queue, by frames at the NIC |
//!
//! ## Sending: done is not free
//!
//! Three events are distinct, since in a device-centric server they are three different moments:
//!
//! * [`Event::Sent`]: the NIC has taken the bytes over;
//! * [`Event::Acknowledged`]: the peer has them;
//! * [`Event::Free`]: the stack no longer needs the block.
//!
//! A block is needed until the peer has acknowledged all of it: retransmissions are sent from there, so they have the same bytes, whatever
//! has become of the source. A frame at the NIC keeps its blocks, whatever becomes of its connection.
//!
//! ## Receiving: packet gathering
//!
//! [`Stack::grant`] says how much place the owner has. Bytes below that are delivered at once, in whatever order they arrive, each once:
//! the owner copies them to their place in a block, and [`Event::Received`] reports up to where there are no holes. Bytes beyond wait in
//! their receive buffers, up to [`Limits::buffer`]; the window that the peer sees is the sum of both, so that a slow SSD slows the sender
//! down. [`Event::Release`] returns a receive buffer.
//!
//! ## Trust
//!
//! A received frame's headers are a copy; they are checked layer by layer, then used. Everything that a peer can make grow has a bound in
//! [`Limits`]. RSTs, SYNs and acknowledgements must fit the connection (RFC 5961); initial sequence numbers and ports come from a keyed
//! hash (RFC 6528, 6056).
//!
//! # What it implements
//!
//! RFC 9293 (TCP: active, passive and simultaneous open, half-close, simultaneous close, TIME-WAIT), 6298
//! (timeout, Karn), 5681 with bytes counted as in 3465 (slow start, congestion avoidance, idle restart), 6928 (initial window), 2018 and
//! 8985 (SACK; losses found by time, tail loss probes), 3522 and 4015 (undoing recoveries that were not needed), 6582 (NewReno, for peers
//! without SACK), 7323 (window scale, timestamps, PAWS), 5961, 6528, 6056, 6191 and 1337 (TIME-WAIT). 826 (ARP), 792 (echo), 768 (UDP), 791
//! (IPv4 headers).
//!
//! # Goodput under loss
//!
//! Measured in virtual time, with one stream of 8 MiB over 1 Gbit/s, a round trip of 2 ms and windows of 1 MiB, in Mbit/s; medians of five
//! runs. smoltcp 0.14 with Reno runs against itself on the same link. `cargo test -p dcs-net --test suite goodput -- --nocapture` repeats
//! the measurement.
//!
//! | link | two cards | two smoltcp |
//! |---|---|---|
//! | nothing lost | 810 | 687 |
//! | 1 % lost | 72 | 3.4 |
//! | 5 % lost | 14 | 0.2 |
//! | 5 % late by up to 3 ms | 741 | 28 |
//! | 5 % lost, 5 % late, 3 % doubled | 37 | 0.2 |
//!
//! # What it doesn't implement
//!
//! * IPv6; several addresses; routes other than one gateway; DHCP.
//! * IPv4 fragments: received ones are counted and dropped, none are sent. IPv4 options are skipped.
//! * Path MTU discovery: packets may be fragmented on the way (DF is clear). ICMP errors are neither sent nor
//!   obeyed.
//! * Receiving from multicast groups (datagrams to groups are sent: RFC 1112, level 1); datagrams to broadcast addresses.
//! * Urgent data (urgent bytes are received in line), ECN, SYN cookies (a full backlog drops its oldest half-open connection), TCP Fast
//!   Open, Nagle's algorithm ([`Chunk::more`] instead), F-RTO, DSACK, pacing, CUBIC.
//! * VLAN tags.
#![forbid(unsafe_code)]

mod arp;
pub mod checksum;
pub mod config;
pub mod message;
mod ranges;
mod shared;
mod slab;
mod stack;
mod statistics;
mod tcp;

pub use config::{Config, Limits, TcpConfig};
pub use message::{
    BlockId, BufferId, ChecksumOffload, Chunk, ConnectError, Event, Flow, Frame, FrameId, HEAD, Header,
    Nanos, OpenError, Owner, Piece, Reason, ReceivedFrame, SendError, StreamPart, Verdict,
};
pub use stack::Stack;
pub use statistics::{Statistics, Usage};
