//! The server as a client sees it, over real sockets.

mod access;
mod at_rest;
mod bodies;
mod connections;
mod hostile;
mod limits;
mod model;
mod objects;
mod operators;
mod rig;
mod scrub;
mod signer;
mod tls;
mod uploads;
