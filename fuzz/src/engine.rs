//! Target for the engine core, with the rig of its tests.

#[path = "../../crates/engine/tests/rig/mod.rs"]
mod rig;

/// The input encodes entries, descriptors, doorbells and answers of devices, right and wrong ones. Checks that the engine keeps
/// its promises, and that nothing is left when everything is answered.
pub fn engine(data: &[u8]) {
    rig::garbage::run(data);
}
