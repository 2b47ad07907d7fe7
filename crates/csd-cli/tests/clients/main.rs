//! Drives of one process under many drivers at once, by clients that need no virtual machine: every byte is
//! checked, and a neighbour that floods, stalls, resets or dies takes nothing from the others but its share.

#[path = "../common/mod.rs"]
mod common;

use common::{Serving, disk};
use dcs_nvme_client::load::{Check, Mix, Order, Runner, Stop, Workload};
use dcs_nvme_client::{Drive, Options};
use std::path::Path;

const MB: u64 = 1 << 20;

/// Reads, writes and flushes at drawn places, of which every byte is checked.
fn verified(commands: u64, depth: u32) -> Workload {
    let (order, mix, check) = (Order::Random, Mix::Both, Check::All);
    Workload { order, mix, depth, check, stop: Stop::Commands(commands) }
}

/// Drives `d0`, `d1` and so on, of 8 MiB each, on one file.
fn serve(folder: &Path, drives: usize) -> Serving {
    let path = disk(folder, "disk", drives as u64 * 8 * MB);
    let drives: Vec<String> =
        (0..drives).map(|number| format!("d{number}:size=8M,backing={}", path.display())).collect();
    let arguments: Vec<&str> = drives.iter().flat_map(|drive| ["--drive", drive]).collect();
    Serving::start(folder, &arguments).unwrap()
}

fn folder() -> tempfile::TempDir {
    // A file system with O_DIRECT, as a user has.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn sixteen_drives_at_once_mix_up_nothing() {
    let folder = folder();
    let serving = serve(folder.path(), 16);
    std::thread::scope(|scope| {
        for number in 0..16u64 {
            let socket = serving.socket(&format!("d{number}"));
            scope.spawn(move || {
                // Some with shadow doorbells, some without; small commands and large ones, with page lists.
                let options = Options { shadow: number % 2 == 0, memory: 16 * MB, ..Options::default() };
                let bytes = [4096, 8192, 65_536, 131_072][number as usize / 4];
                let mut drive = Drive::open(&socket, options).unwrap();
                assert_eq!(drive.has_shadow(), options.shadow);
                let mut runner = Runner::new(&mut drive, 0, bytes, 16, 8 * MB, number).unwrap();
                let done = runner.run(&mut drive, &verified(600, 16)).unwrap();
                assert_eq!(done.commands, 600);
            });
        }
    });
    let stats = serving.does(&["stats"]);
    assert_eq!(stats.lines().count(), 16, "{stats}");
}
