//! `dcs run`: what it refuses before a program starts, and that the program otherwise runs as usual.

use crate::run::{IV, KEY, Place};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const SEND: &str = "import os,socket,sys;a,b=socket.socketpair();f=open(sys.argv[1],'rb');\
                    n=os.sendfile(a.fileno(),f.fileno(),0,9999);sys.stdout.buffer.write(b.recv(n))";

/// Returns the library, if it was built: cargo test --workspace builds it.
pub fn library() -> Option<PathBuf> {
    let library = PathBuf::from(env!("CARGO_BIN_EXE_dcs")).with_file_name("libdcs_preload.so");
    if !library.is_file() {
        eprintln!("skipped: no {} (cargo build -p dcs-preload)", library.display());
        return None;
    }
    Some(library)
}

/// Runs `dcs run OPTIONS -- python3 -c SEND FILE`.
fn send(place: &Place, options: &str, file: &str) -> Command {
    let mut command = place.dcs(&format!("run {options} -- python3 -c"));
    command.args([SEND, file]);
    command
}

#[test]
fn a_program_runs_with_its_files_going_through_a_chain() {
    if library().is_none() {
        return;
    }
    let place = Place::new();
    place.write("file", b"abc");
    place.write("key", KEY.as_bytes());
    let done =
        send(&place, "--through md5 --path */file --log log --counters counted", "file").output().unwrap();
    assert_eq!((done.stdout.as_slice(), done.status.code()), (&b"abc"[..], Some(0)));
    let log = String::from_utf8(place.read("log")).unwrap();
    assert!(log.contains("900150983cd24fb0d6963f7d28e17f72"), "{log}");
    let shown = place.run("run --show counted").ok().stdout();
    assert!(shown.contains("engine_calls") && shown.contains("calls that the engine carried"), "{shown}");
    let shown: serde_json::Value =
        serde_json::from_str(&place.run("run --show counted --json").ok().stdout()).unwrap();
    assert_eq!(
        (&shown["engine_calls"], &shown["engine_bytes"], &shown["kernel_calls"]),
        (&1.into(), &3.into(), &0.into())
    );

    // The program sends a file that dcs copy encrypted, decrypted.
    place.run(&format!("copy file sealed --through aes256-ctr --key-file key --iv {IV}")).ok();
    assert_ne!(place.read("sealed"), b"abc");
    let options = format!("--through aes256-ctr --key-file key --iv {IV} --log log");
    assert_eq!(send(&place, &options, "sealed").output().unwrap().stdout, b"abc");

    // With a file of rules; on another port, the kernel's own sendfile.
    place.write("rules.toml", b"[[rule]]\nname = 'all'\nthrough = ['sha1', 'crc32c']\n");
    assert_eq!(send(&place, "--config rules.toml --log log", "file").output().unwrap().stdout, b"abc");
    let log = String::from_utf8(place.read("log")).unwrap();
    assert!(
        log.contains("\"rule\":\"all\"") && log.contains("a9993e364706816aba3e25717850c26c9cd0d89d"),
        "{log}"
    );
}

#[test]
fn the_program_is_what_the_user_named() {
    if library().is_none() {
        return;
    }
    let place = Place::new();
    let code = place.dcs("run --through md5 -- sh -c").arg("exit 7").status().unwrap().code();
    assert_eq!(code, Some(7), "the program's own code");
    let mut command = place.dcs("run -- env");
    let said = String::from_utf8(command.env("LD_PRELOAD", "libother.so").output().unwrap().stdout).unwrap();
    let line = said.lines().find(|line| line.starts_with("LD_PRELOAD=")).unwrap();
    assert!(line.contains("libdcs_preload.so:libother.so"), "{line}");
}

#[test]
fn what_cannot_work_is_refused_before_it_runs() {
    let place = Place::new();
    place.write("short", b"1234");
    place.write("rules", b"[[rule]]\nfile = 'x'\n");
    let shared = place.write("shared", b"");
    std::fs::set_permissions(shared, std::fs::Permissions::from_mode(0o666)).unwrap();
    for (line, code, said) in [
        ("run --through md6 -- true", 2, "there is no operator \"md6\""),
        ("run --through gzip -- true", 2, "until_close"),
        ("run --through aes256-xts -- true", 2, "cannot be applied here"),
        ("run --through aes256-ctr -- true", 2, "needs key_file and counter"),
        ("run --through aes256-ctr --key-file short --iv xattr:user.c -- true", 2, "has 4 bytes"),
        ("run --path */x -- true", 2, "say --through"),
        ("run --config rules -- true", 2, "unknown field `file`"),
        ("run --config none -- true", 7, "No such file"),
        ("run --through md5 --counters short -- true", 2, "not a file of dcs-preload's counters"),
        ("run --through md5 --counters shared -- true", 2, "other users may write it"),
        ("run --show short", 1, "not a file of dcs-preload's counters"),
        ("run --library none -- true", 7, "none"),
        ("run", 2, "PROGRAM"),
    ] {
        let done = place.run(line);
        assert_eq!(done.code(), code, "{line}: {}", done.stderr());
        assert!(done.stderr().contains(said), "{line}: {}", done.stderr());
    }
    if library().is_some() {
        let done = place.run("run -- no-such-program");
        assert!(done.code() == 7 && done.stderr().contains("no program"), "{}", done.stderr());
    }
}

/// The loader would silently leave the library out of a static program.
#[test]
fn a_static_program_is_refused() {
    if library().is_none() {
        return;
    }
    let place = Place::new();
    place.write("main.c", b"int main(void) { return 0; }\n");
    let mut cc = Command::new("cc");
    cc.args(["-static", "-o"]).arg(place.path("static")).arg(place.path("main.c"));
    assert!(cc.status().unwrap().success());
    let interpreter = place.path("static").display().to_string();
    script(&place, "script", &interpreter);
    script(&place, "of-a-script", &place.path("script").display().to_string());
    for program in ["./static", "./script", "./of-a-script"] {
        let done = place.run(&format!("run --through md5 -- {program}"));
        assert!(
            done.code() == 2 && done.stderr().contains("static is statically linked"),
            "{}",
            done.stderr()
        );
    }
    script(&place, "dynamic", "/bin/sh -e");
    place.run("run --through md5 -- ./dynamic").ok();
}

fn script(place: &Place, name: &str, interpreter: &str) {
    place.write(name, format!("#! {interpreter}\n").as_bytes());
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(name), mode).unwrap();
}

/// The loader leaves the library out of programs that get rights which their user has not.
#[test]
fn a_program_that_gains_rights_is_refused() {
    if library().is_none() {
        return;
    }
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("skipped: only root can make such programs");
        return;
    }
    let place = Place::new();
    let copy = |name: &str, mode: u32| {
        let program = place.path(name);
        std::fs::copy("/bin/sh", &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        program
    };
    let nobody = 65534;
    // Root's own, and another user's.
    copy("own", 0o4755);
    place.run("run --through md5 -- ./own -c true").ok();
    for (name, mode, said) in [("setuid", 0o4755, "is setuid"), ("setgid", 0o2755, "is setgid")] {
        let program = copy(name, mode);
        std::os::unix::fs::chown(&program, Some(nobody), Some(nobody)).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        let done = place.run(&format!("run --through md5 -- ./{name} -c true"));
        assert!(done.code() == 2 && done.stderr().contains(said), "{}", done.stderr());
    }
    // cap_net_bind_service, permitted and effective: nothing new for root, but for others.
    let program = copy("capable", 0o755);
    let mut value = [0_u32; 5].map(u32::to_le_bytes);
    (value[0], value[1]) = (0x0200_0001_u32.to_le_bytes(), (1_u32 << 10).to_le_bytes());
    rustix::fs::setxattr(
        &program,
        "security.capability",
        value.as_flattened(),
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    place.run("run --through md5 -- ./capable -c true").ok();
    let folder = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.path("."), folder).unwrap();
    let mut other = place.dcs("run --through md5 -- ./capable -c");
    let done = other.arg("true").uid(nobody).gid(nobody).output();
    match done {
        // The command may be where nobody else may go.
        Err(error) => eprintln!("skipped: {error}"),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.code() == Some(2) && said.contains("has file capabilities"), "{said}");
        }
    }
}
