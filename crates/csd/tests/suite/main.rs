//! The controller under test: by a host that knows nothing of it, by hand, by anything at all, and on real
//! files.

mod durable;
mod faults;
mod fed;
mod files;
mod groups;
mod life;
mod loads;
mod near;
mod peer;
mod placement;
mod properties;
mod ranges;
mod rates;
mod rig;
mod rules;
mod sets;
mod ssds;
mod tenants;
mod timers;
