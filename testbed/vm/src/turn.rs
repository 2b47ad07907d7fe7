//! Turns: how many tests boot guests at the same time, over all processes of this machine.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::{self, Error};
use crate::fetch::cache;

/// A test's turn, over when it is dropped or its process ends.
#[derive(Debug)]
pub struct Turn {
    _locked: File,
}

/// Waits for a turn. There is one for each processor: an emulated processor needs one, but waits most of the time. `None`, with
/// the reason printed, if `DCS_GUESTS=skip` says that such tests run elsewhere.
///
/// # Panics
///
/// If the folder of fetched files cannot be written.
pub fn turn() -> Option<Turn> {
    if std::env::var_os("DCS_GUESTS").is_some_and(|value| value == "skip") {
        eprintln!("skipped: DCS_GUESTS=skip");
        return None;
    }
    Some(wait().expect("a turn to boot guests"))
}

fn wait() -> Result<Turn, Error> {
    let folder = cache()?;
    std::fs::create_dir_all(&folder).map_err(error::at(&folder))?;
    let turns = thread::available_parallelism().map_or(1, usize::from);
    loop {
        for number in 0..turns {
            if let Some(turn) = try_turn(&folder.join(format!("turn{number}")))? {
                return Ok(turn);
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn try_turn(path: &Path) -> Result<Option<Turn>, Error> {
    let file =
        File::options().create(true).truncate(false).write(true).open(path).map_err(error::at(path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Turn { _locked: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(error::at(path)(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_one_test_s_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turn0");
        let turn = try_turn(&path).unwrap().expect("nobody has it");
        assert!(try_turn(&path).unwrap().is_none());
        drop(turn);
        assert!(try_turn(&path).unwrap().is_some());
    }
}
