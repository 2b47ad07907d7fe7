//! The fabric and its models, against raw drivers that know the specifications, and the project's drivers on them.

mod anything;
mod d2d;
mod fabric;
mod gpu;
mod host;
mod nic;
mod nic_host;
mod nvme;
mod nvme_faults;
mod nvme_host;
mod nvme_rules;
mod order;
mod pointer;
