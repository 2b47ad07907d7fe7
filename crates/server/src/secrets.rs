//! Files with secrets: only their owner and group may read them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file with secrets that others may read or change.
#[derive(Debug, thiserror::Error)]
#[error("{path}: it holds a secret, and others may {may} it: chmod 600 {path}")]
pub struct OpenToOthers {
    path: String,
    may: &'static str,
}

/// Refuses a file that anybody but its owner and group may read, or anybody but its owner may change. Pipes and devices
/// hold nothing, so they pass; so does a missing file, which its reader reports.
///
/// # Errors
///
/// [`OpenToOthers`] for such a file.
pub fn check(path: &Path) -> Result<(), OpenToOthers> {
    let Ok(file) = path.metadata() else { return Ok(()) };
    let may = match file.mode() {
        _ if !file.is_file() => return Ok(()),
        mode if mode & 0o022 != 0 => "change",
        mode if mode & 0o004 != 0 => "read",
        _ => return Ok(()),
    };
    Err(OpenToOthers { path: path.display().to_string(), may })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_owner_and_group_may_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let with = |mode| {
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            check(file.path()).map_err(|error| error.to_string())
        };
        assert!(with(0o600).is_ok() && with(0o400).is_ok() && with(0o640).is_ok());
        assert!(with(0o644).unwrap_err().contains("may read it"));
        assert!(with(0o660).unwrap_err().contains("may change it"));
        assert!(with(0o602).unwrap_err().contains("chmod 600"));
        assert!(check("/dev/null".as_ref()).is_ok() && check("/no/such".as_ref()).is_ok());
    }
}
