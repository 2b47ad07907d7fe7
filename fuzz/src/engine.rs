//! The target for the engine core: its tests' rig has it.

#[path = "../../crates/engine/tests/rig/mod.rs"]
mod rig;

/// The bytes spell entries, descriptors, doorbells and answers of devices, right ones and wrong ones. The engine keeps
/// its promises, and nothing is left when all is answered.
pub fn engine(data: &[u8]) {
    rig::garbage::run(data);
}
