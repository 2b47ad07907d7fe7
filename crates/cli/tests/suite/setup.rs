//! `tools/setup`: it names what it installs, and can be refused. `tools/setup-preload` leaves nothing behind.

use crate::run::Place;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs it without a compiler, as root of a Debian that would install one. Returns its output and what was installed.
fn setup(install: Option<&str>) -> (i32, String, String) {
    let place = Place::new();
    std::fs::create_dir(place.path("bin")).unwrap();
    let program = |name: &str, text: &str| {
        let path = place.write(&format!("bin/{name}"), text.as_bytes());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("id", "#!/bin/sh\necho 0\n");
    program("uname", "#!/bin/sh\necho other\n");
    program("cargo", "#!/bin/sh\n");
    program("apt-get", &format!("#!/bin/sh\necho \"$@\" >>{}\n", place.path("installed").display()));
    symlink("/bin/sh", place.path("bin/sh")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/setup");
    let mut command = Command::new("/bin/sh");
    command.arg(script).env("PATH", place.path("bin")).env_remove("DCS_INSTALL").stdin(Stdio::null());
    if let Some(install) = install {
        command.env("DCS_INSTALL", install);
    }
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let installed = std::fs::read_to_string(place.path("installed")).unwrap_or_default();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap(), installed)
}

#[test]
fn what_is_installed_is_said_and_can_be_refused() {
    let (code, said, installed) = setup(None);
    assert!(
        code == 0 && said.contains("build-essential") && said.contains("DCS_INSTALL=no refuses"),
        "{said}"
    );
    assert!(installed.contains("install") && installed.contains("build-essential"), "{installed}");
    let (code, said, installed) = setup(Some("no"));
    assert!(code == 1 && said.contains("please install") && said.contains("build-essential"), "{said}");
    assert_eq!(installed, "");
}

/// While it installs servers, Debian is told not to start them; that ends however the set-up ends.
#[test]
fn nothing_stays_that_keeps_servers_from_starting() {
    for signal in ["TERM", "INT", "HUP"] {
        let place = Place::new();
        for folder in ["bin", "root", "root/usr", "root/usr/sbin"] {
            std::fs::create_dir(place.path(folder)).unwrap();
        }
        let policy = place.path("root/usr/sbin/policy-rc.d");
        let program = |name: &str, text: &str| {
            let path = place.write(&format!("bin/{name}"), text.as_bytes());
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        program("id", "#!/bin/sh\necho 0\n");
        let installs = format!("test -x {} && kill -{signal} $PPID", policy.display());
        program("apt-get", &format!("#!/bin/sh\n[ \"$1\" = update ] || {{ {installs}; }}\n"));
        for name in ["sh", "rm", "chmod"] {
            symlink(format!("/bin/{name}"), place.path("bin").join(name)).unwrap();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/setup-preload");
        let mut command = Command::new("/bin/sh");
        command.arg(script).env("PATH", place.path("bin")).env("DCS_SETUP_ROOT", place.path("root"));
        let output = command.env_remove("DCS_INSTALL").stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // If this test was started with a signal ignored, the set-up goes on to its end.
        assert!(said.contains("installing"), "{output:?}");
        assert!(!policy.exists(), "{signal}");
    }
}
