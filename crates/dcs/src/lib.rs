//! `dcs`: one command says where bytes are, what happens to them on the way, and where they go.
//!
//! ```no_run
//! use dcs::{Engine, Op, Sink, Source};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::File::open("video.mp4")?;
//! let socket = std::net::TcpStream::connect("127.0.0.1:9000")?;
//!
//! let engine = Engine::builder().start()?;
//! let session = engine.session()?;
//! let done = session.transfer(Source::file(&file, ..), [Op::Md5], Sink::socket(&socket))?.wait()?;
//! println!("{} bytes, md5 {}", done.bytes_out, done.digests[0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Architecture
//!
//! ```text
//!   your threads                                the engine's thread (or the caller that waits)
//!   Session --- submission queue, doorbell ---> KernelLoop: dcs_engine::Engine, no I/O
//!      ^        descriptors (memory)               |  operations        ^ outcomes
//!      |                                           v                    |
//!   Transfer <- completion queue, results -------- dcs_devices::Controller (io_uring, system calls)
//!                                                  dcs_ndp::Context (digests, ciphers, compression)
//! ```
//!
//! A [`Session`] is a queue pair in memory, byte for byte as `dcs_abi` defines it: submissions are 64-byte
//! entries, the engine copies and checks them, completions come back with a phase bit. A session may be
//! shared by threads.
//!
//! | module | what it holds |
//! |---|---|
//! | [`engine`] | [`Engine`], its [`Builder`](engine::Builder), cores and threads, [`Spread`] |
//! | [`session`] | [`Session`], [`Request`], [`Transfer`] |
//! | [`endpoint`] | [`Source`] and [`Sink`] |
//! | [`prepared`] | [`Prepared`]: transfers that are bound once and submitted often |
//! | [`op`] | [`Op`]: operators with their keys |
//! | [`completion`] | [`Completion`]: digests, bytes, [`Breakdown`](completion::Breakdown), paths |
//! | [`gpu`] | the GPUs of this machine, and what they do in which time |
//! | [`error`] | what goes wrong, and how it is said |
//! | [`statistics`] | what an engine counts |
//! | [`net`] | listeners, connections and datagrams on the addresses of NICs that an engine or a card drives |
//! | `backend` | the interface of the backends |
//! | `queue`, `ring` | the queue pair's memory; its submission ring |
//! | `kernel` | the kernel backend: the loop that joins core, devices and operators |
//! | [`media`] | media streams in datagrams, each sent when it is due |
//! | [`binding`] | what the C API in `crates/capi` needs beyond this, hidden from the documentation |
//! | `outcome` | how a transfer ended at a virtual drive |
//! | `drive` | the drive backend: in a guest, chains on a virtual drive's files run beside the disk |
//! | [`page_cache`] | what the kernel has in memory of a file |
//! | [`card`] | the card backend: a PCIe card runs the transfers on SSDs and a NIC of its own |
//!
//! # What it doesn't implement
//!
//! * The engine in SystemVerilog: it stands in the card's process (`docs/rtl.md`), not here.
//! * Multi-lane units for all operators: those without one run one stream at a time on the engine's core.
//! * TLS, HTTP; datagram sockets but for [`media`]: endpoints are byte streams, files and memory, and on a card (not on a NIC
//!   that the engine drives itself) UDP ([`net::Datagrams`]).

#[doc(hidden)]
pub mod binding;
pub mod card;
pub mod completion;
pub mod endpoint;
pub mod engine;
pub mod error;
pub mod gpu;
pub mod media;
pub mod net;
pub mod op;
pub mod prepared;
pub mod session;
pub mod statistics;

mod backend;
mod drive;
mod kernel;
mod outcome;
mod queue;
mod ring;

pub use card::Nic;
pub use completion::{Completion, Digest};
pub use dcs_abi::descriptor::Mode;
pub use dcs_abi::operator::Operator;
pub use dcs_abi::status::{Stage, Status};
pub use dcs_devices::gpu::GpuError;
pub use dcs_devices::page_cache;
pub use dcs_devices::vfio_devices::{DriveError, Interface};
pub use dcs_devices::{EndpointError, Io, Traffic};
pub use dcs_drivers::nic::Model as NicModel;
pub use endpoint::{Handle, Namespace, Sink, Source};
pub use engine::{Backend, Cores, Driver, Engine, Spread};
pub use error::{Error, TransferError};
pub use op::{AwsChunked, AwsSignature, Grep, Op, PatternError};
pub use prepared::Prepared;
pub use session::{Request, Session, Transfer};
pub use statistics::Statistics;
