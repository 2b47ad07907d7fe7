//! Small parts shared by the tests and the testbed. Nothing here is installed.
//!
//! | module | contents |
//! |---|---|
//! | [`random`] | [`Random`]: numbers and bytes from a seed |
//! | [`disk`] | a file system that can be frozen |
//! | [`peer`] | the far end of a NIC's wire: smoltcp (feature `peer`) |
//!
//! # What it doesn't implement
//!
//! Anything that only one crate needs: its rigs, oracles and structured data are with its tests.
#![forbid(unsafe_code)]

pub mod disk;
#[cfg(feature = "peer")]
pub mod peer;
pub mod random;

pub use random::{Random, bytes};

/// Returns lower-case hexadecimal digits, two per byte.
///
/// ```
/// assert_eq!(dcs_testkit::hex(&[0x0a, 0xff]), "0aff");
/// ```
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the median: for an even number of values the mean of the middle two, for none NaN.
///
/// ```
/// assert_eq!(dcs_testkit::median([3.0, 1.0, 2.0]), 2.0);
/// assert_eq!(dcs_testkit::median([4.0, 1.0]), 2.5);
/// assert!(dcs_testkit::median([]).is_nan());
/// ```
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count => (values[(count - 1) / 2] + values[count / 2]) / 2.0,
    }
}
