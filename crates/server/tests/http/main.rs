//! The server as a client sees it, over real sockets.

mod at_rest;
mod bodies;
mod connections;
mod limits;
mod model;
mod objects;
mod operators;
mod rig;
mod scrub;
mod tls;
mod uploads;
