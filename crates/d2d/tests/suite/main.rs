//! Tests of the D2D protocol: an SSD's function and a NIC's, joined by a bus and a wire in virtual time
//! (`rig`).

mod faults;
mod frames;
mod interplay;
mod many;
mod operators;
mod reassembly;
mod registers;
mod reverse;
mod rig;
mod streams;
