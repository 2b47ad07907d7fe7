//! The server as a client sees it, over real sockets.

mod at_rest;
mod bodies;
mod connections;
mod objects;
mod rig;
mod scrub;
mod uploads;
