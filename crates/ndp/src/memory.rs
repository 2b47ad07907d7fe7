//! Most memory that a context takes.

use dcs_abi::operator::Operator;

use crate::{bitmap, lines, module, parameter, zstd};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// KiB of a zstd context, by level from 1 on: measured (a test does it again), and rounded up. They depend on the
/// windows and tables that the library chooses for a stream of unknown length.
const ZSTD: [u64; 19] = [
    1536, 2304, 3840, 5120, 5632, 5632, 8192, 8192, 15616, 26112, 26112, 47360, 38912, 55808, 72704, 38912,
    60160, 60672, 94464,
];

/// Returns the most bytes of memory that a context takes for any stream, for callers that set memory aside for many of
/// them. For a parameter that the operator does not take, the value for any parameter.
pub fn memory(operator: Operator, parameter: &[u8]) -> u64 {
    match operator {
        Operator::Gzip => MIB,
        Operator::Gunzip => 256 * KIB,
        Operator::Zstd => {
            let level = parameter::parse_level(parameter, 3, 1..=19).unwrap_or(19);
            ZSTD[usize::from(level) - 1] * KIB
        }
        Operator::Unzstd => memory_of_unzstd(zstd::WINDOW_MAX),
        // A line that comes in pieces, in a buffer that doubles as it grows.
        Operator::Filter | Operator::Aggregate => 2 * lines::LINE_MAX as u64 + 64 * KIB,
        Operator::Grep => 2 * lines::LINE_MAX as u64 + 4 * MIB,
        Operator::Knn => 8 * MIB,
        Operator::Bitmap => bitmap::MEMORY,
        Operator::AwsChunked => 256 * KIB,
        Operator::Module => module::memory(parameter),
        _ => 16 * KIB,
    }
}

/// Bytes of memory that [`Context::unzstd`](crate::Context::unzstd) takes at most: the window, and blocks.
pub fn memory_of_unzstd(window: u8) -> u64 {
    (1 << window) + MIB
}
