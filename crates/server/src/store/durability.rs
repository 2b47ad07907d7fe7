//! Levels of durability: how much of a change is on the disk when it is acknowledged.

use std::fmt;
use std::str::FromStr;

/// Level of durability: how much of a change is on the disk when it is acknowledged. Nothing acknowledged is lost when
/// the process dies, at any level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged when data, names and records are on the disk. A power loss loses nothing if the disk keeps what it
    /// reports as written.
    #[default]
    Full,
    /// Acknowledged when names and records are on the disk, while the kernel still writes the data. After a power loss,
    /// data of the last seconds may be missing or wrong: a file is too short, which is found when it is read, or its
    /// digest differs, which `--verify` and a scrub find.
    Metadata,
    /// Acknowledged at once. After a power loss the last changes may be missing, and the database may not open at all,
    /// since the kernel writes its pages in any order. For data that have another copy.
    None,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Metadata => "metadata",
            Self::None => "none",
        })
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "full" => Ok(Self::Full),
            "metadata" => Ok(Self::Metadata),
            "none" => Ok(Self::None),
            other => Err(format!("durability must be full, metadata or none, not {other:?}")),
        }
    }
}
