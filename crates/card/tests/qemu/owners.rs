//! Tests of other owners of the card's devices: another process, and one whose mounts are not visible.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use dcs::Session;
use dcs_vfio::{Container, Function, VfioError};

use crate::files::{ODD, XFS, controllers, data, options, read, refused, says, shell, write};
use crate::wire;

const EBUSY: i32 = 16;

pub fn owners(session: &Session) {
    another_process(session);
    another_mount_namespace(session);
}

/// Checks that a second process gets an error, and takes nothing from the first one.
fn another_process(session: &Session) {
    let path = Path::new(XFS).join("wanted by another");
    std::fs::write(&path, data(100_000, 1)).unwrap();
    let test = "owners::another_process_in_the_guest";
    let program = std::env::current_exe().unwrap();
    let other = Command::new(program).args(["--ignored", "--exact", test, "--nocapture"]).status().unwrap();
    assert!(other.success());
    assert!(read(session, &File::open(&path).unwrap(), 0..100_000).unwrap() == data(100_000, 1));
}

#[test]
#[ignore = "runs in the guest of files_stay_where_they_are_while_the_card_has_them"]
fn another_process_in_the_guest() {
    says(&options(), "drives it: end that first");
    let of_disks = options().disks.into_iter().map(|disk| disk.function);
    for function in of_disks.chain([wire::nic().function]) {
        let error = Function::open(&Container::new().unwrap(), &function).unwrap_err();
        assert!(matches!(&error, VfioError::InUse(taken, _) if *taken == function), "{error}");
    }
}

/// Tests a disk that is mounted in another mount namespace.
fn another_mount_namespace(session: &Session) {
    let mut elsewhere = Command::new("unshare")
        .args(["-m", "sh", "-c", "echo ready; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(elsewhere.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    shell("umount /mnt/odd");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(ODD), "{mounts}");
    let device = OpenOptions::new().read(true).write(true).open("/dev/odd").unwrap();
    refused(write(session, &[1; 4096], &device, 0), EBUSY, "mounted");
    let error = dcs_vfio::take(&controllers()[6]).unwrap_err().to_string();
    assert!(error.contains("another program has /dev/nvme"), "{error}");
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    shell("mount -t ext4 /dev/odd /mnt/odd");
}
