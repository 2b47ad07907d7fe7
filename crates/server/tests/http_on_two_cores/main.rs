//! The tests of `../http` on servers with two cores (`rig::cores`), and tests of several cores.

#[path = "../http/access.rs"]
mod access;
#[path = "../http/at_rest.rs"]
mod at_rest;
#[path = "../http/bodies.rs"]
mod bodies;
#[path = "../http/connections.rs"]
mod connections;
#[path = "../http/hostile.rs"]
mod hostile;
#[path = "../http/limits.rs"]
mod limits;
#[path = "../http/model.rs"]
mod model;
#[path = "../http/objects.rs"]
mod objects;
#[path = "../http/operators.rs"]
mod operators;
#[path = "../http/rig.rs"]
mod rig;
#[path = "../http/scrub.rs"]
mod scrub;
#[path = "../http/signer.rs"]
mod signer;
#[path = "../http/tls.rs"]
mod tls;
#[path = "../http/uploads.rs"]
mod uploads;

mod cores;
