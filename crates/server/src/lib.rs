//! An S3 object server whose data path is the engine: once a request is authorised, its socket and its file
//! go to the engine as one command.
//!
//! # Architecture
//!
//! ```text
//!   client --HTTP/1.1--> connection --head--> s3s: routing, signatures, XML --> api: the operations
//!                            |                                                  |         |
//!                            |  socket                                   records|         | commands
//!                            v                                                  v         v
//!                          engine <------------------------------------------ store     transfers
//!                            |    aws-chunked, md5, crc32c, gzip, aes256-ctr     |
//!                            +--> data files                          database --+
//! ```
//!
//! Each core has its own event loop and engine. A connection stays on one core, and its requests are handled there; the
//! store, limits and metrics are shared by all cores.
//!
//! | module | what it holds |
//! |---|---|
//! | [`server`] | listens; limits; stops |
//! | `cores` | the event loop of each core |
//! | `shared` | settings, and the state that connections share |
//! | [`connection`] | request heads, bodies, answers: HTTP/1.1 |
//! | `api` | the operations of S3 |
//! | [`transfers`] | commands for the engine: chains, sources, destinations |
//! | [`metrics`], [`status`] | what is counted; health, figures and a page for operators |
//! | [`tls`] | TLS in front of connections |
//! | [`encryption`] | keys of data at rest |
//! | [`users`], [`access`] | the users and their rights; who may do what |
//! | `signed`, `operations` | what signatures must cover; what each operation needs and understands |
//! | `secrets` | modes of files with keys |
//! | [`scrub`] | finds damaged objects before a reader does |
//! | [`store`] | buckets, objects, uploads: records in a database, data in files; group commit, recovery |
//!
//! # What it doesn't implement
//!
//! * Several machines: no replication, no erasure coding. One process, one folder.
//! * Of S3: versions, policies and access lists of buckets, life cycles, events, object locks; whatever is
//!   not there is refused by name (`api::unsupported`).
//! * HTTP/2 and HTTP/3.
#![forbid(unsafe_code)]

pub mod access;
mod api;
pub mod connection;
mod cores;
pub mod encryption;
pub mod metrics;
mod operations;
pub mod scrub;
pub mod secrets;
pub mod server;
mod shared;
mod signed;
pub mod status;
pub mod store;
pub mod tls;
pub mod transfers;
pub mod users;
