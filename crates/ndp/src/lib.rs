//! Near-device processing units.
