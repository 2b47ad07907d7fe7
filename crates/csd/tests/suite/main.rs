//! The controller under test: with an independent host driver, with hand-made commands, with random ones, and
//! on real files.

mod copies;
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
