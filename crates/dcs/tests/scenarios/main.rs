//! The scenario suite: what a user can ask of an engine, and what an engine gets to endure, on every backend.
//!
//! Each scenario is written once, over [`rig::for_each_backend`]. What cannot be had on a machine (root, a
//! loop device, network namespaces) is skipped with a printed reason.

mod bad;
mod ends;
mod oracle;
mod rig;

mod acknowledged;
mod cores;
mod fuse;
mod life;
mod many;
mod odd;
mod paced;
mod pairs;
mod paths;
mod slow;
mod start;
mod stress;
