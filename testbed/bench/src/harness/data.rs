//! Directions of data, and the key that encrypts them.

use serde::{Deserialize, Serialize};

/// A direction, seen from the measured process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Files to sockets.
    Send,
    /// Sockets to files.
    Receive,
}

/// Key of SP 800-38A, F.5.5. It need not be secret: the openssl command takes keys on its command line only.
pub const KEY: [u8; 32] = [
    0x60, 0x3d, 0xeb, 0x10, 0x15, 0xca, 0x71, 0xbe, 0x2b, 0x73, 0xae, 0xf0, 0x85, 0x7d, 0x77, 0x81, 0x1f,
    0x35, 0x2c, 0x07, 0x3b, 0x61, 0x08, 0xd7, 0x2d, 0x98, 0x10, 0xa3, 0x09, 0x14, 0xdf, 0xf4,
];
