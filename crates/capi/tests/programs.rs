//! The C API as C programs use it: they are compiled against `dcs.h` and `libdcs.so`, and run.
//!
//! The programs check what they can see; every digest and every byte that they name on their output is
//! checked here by Python's hashlib, zlib and by openssl, which share no code with the library.

use dcs_testkit::Random;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const CHECKER: &str = include_str!("c/check.py");
const SONAME: &str = concat!("libdcs.so.", env!("CARGO_PKG_VERSION_MAJOR"));
const INPUT: usize = 4 << 20;
const FLAGS: [&str; 6] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-g"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Makes a folder with the `libdcs.so` that was built with this test, under the names by which compilers and loaders
/// look for it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let built = deps().join("libdcs_capi.so");
        assert!(built.is_file(), "no {}", built.display());
        for name in ["libdcs.so", SONAME] {
            std::os::unix::fs::symlink(&built, folder.path().join(name)).unwrap();
        }
        folder
    });
    folder.path()
}

/// Returns the folder in which cargo left this test and what it was built with.
fn deps() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}\n{err}", done.status);
    out.into_owned()
}

/// Returns a command that runs a program with the library of this test: cargo's own search path has an older copy
/// first, if only this test was rebuilt.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", library());
    command
}

/// Compiles a C program into `folder`.
fn compile(source: &str, folder: &Path) -> PathBuf {
    let source = root().join(source);
    let program = folder.join(source.file_stem().unwrap());
    let mut cc = Command::new("cc");
    cc.args(FLAGS).arg("-I").arg(root().join("include")).arg(&source).arg("-o").arg(&program);
    cc.arg("-L").arg(library()).arg("-ldcs");
    output(&mut cc);
    program
}

/// Makes a folder with a file of random bytes and one of text.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut random = Random(1);
    std::fs::write(folder.path().join("input"), random.bytes(INPUT)).unwrap();
    let text: String =
        (0..40_000).map(|line| format!("line {line} of a text, {}\n", random.below(10))).collect();
    std::fs::write(folder.path().join("text"), text).unwrap();
    let module = wat::parse_file(root().join("sdk/examples/upper.wat")).unwrap();
    std::fs::write(folder.path().join("upper.wasm"), module).unwrap();
    folder
}

/// Runs one of `tests/c` in each way of driving an engine, and checks at least `claims` of its claims.
fn run(name: &str, claims: usize) {
    for (driver, io) in [("thread", "auto"), ("thread", "plain"), ("caller", "auto"), ("caller", "plain")] {
        let folder = folder();
        let program = compile(&format!("crates/capi/tests/c/{name}.c"), folder.path());
        let said = output(command(&program).arg(folder.path()).args([driver, io]));
        assert!(said.ends_with("end\n"), "{name} {driver} {io} broke off:\n{said}");
        let log = folder.path().join("claims");
        std::fs::write(&log, said).unwrap();
        let checked =
            output(Command::new("python3").args(["-c", CHECKER]).arg(&log).current_dir(folder.path()));
        let checked: usize = checked.trim().parse().unwrap();
        assert!(checked >= claims, "{name} {driver} {io}: {checked} claims, {claims} expected");
    }
}

#[test]
fn sendfile_and_recvfile() {
    run("sendfile", 60);
}

#[test]
fn transfers() {
    run("transfers", 20);
}

#[test]
fn prepared() {
    run("prepared", 8);
}

#[test]
fn modules() {
    run("modules", 0);
}

#[test]
fn failures() {
    run("failures", 1);
}

#[test]
fn no_key_is_left_in_memory() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    output(&mut command(&compile("crates/capi/tests/c/keys.c", folder.path())));
}

/// Returns the output of md5sum or sha256sum for a file.
fn sum(tool: &str, path: &Path) -> String {
    output(Command::new(tool).arg(path)).split(' ').next().unwrap().to_string()
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Returns the first line of a child's output.
fn first_line(child: &mut Child) -> String {
    use std::io::{BufRead, BufReader};
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// Returns one of the Rust library's examples, built as this test was. `tools/test` says that cargo has built them
/// with all tests; for the library's package alone dependencies have other features, and are built again.
fn rust_example(name: &str) -> PathBuf {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    let folder = EXAMPLES.get_or_init(|| {
        let profile = deps().parent().unwrap().to_path_buf();
        if std::env::var_os("DCS_WORKSPACE").is_none_or(|value| value != "built") {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "--package", "dcs-library", "--examples"]).current_dir(root());
            cargo.arg("--target-dir").arg(profile.parent().unwrap());
            if profile.ends_with("release") {
                cargo.arg("--release");
            }
            output(&mut cargo);
        }
        profile.join("examples")
    });
    folder.join(name)
}

/// Both ends of a transfer get the same, right digest, and the file arrives.
fn send_to_receiver(sender: &Path) {
    let folder = folder();
    let input = folder.path().join("input");
    let copy = folder.path().join("copy");
    let mut receiver = spawn(command(&compile("examples/c/recv_file.c", folder.path())).arg("0").arg(&copy));
    let listening = first_line(&mut receiver);
    let port = listening.trim().rsplit(' ').next().unwrap();
    let sent = output(command(sender).arg(&input).args(["127.0.0.1", port]));
    let received = receiver.wait_with_output().unwrap();
    assert!(received.status.success());
    let (received, md5) = (String::from_utf8(received.stdout).unwrap(), sum("md5sum", &input));
    assert!(sent.contains(&md5), "{sent} is not of {md5}");
    assert!(received.contains(&md5), "{received} is not of {md5}");
    assert_eq!(std::fs::read(&input).unwrap(), std::fs::read(&copy).unwrap());
}

#[test]
fn the_examples_send_and_receive_a_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    send_to_receiver(&compile("examples/c/send_file.c", folder.path()));
    send_to_receiver(&rust_example("send_file"));
}

#[test]
fn the_loop_examples_are_sha256sum() {
    let folder = folder();
    let c = compile("examples/c/eventfd_loop.c", folder.path());
    for program in [c, rust_example("eventfd_loop"), rust_example("future")] {
        let files = ["input", "text", "/dev/null"];
        let expected = output(Command::new("sha256sum").args(files).current_dir(folder.path()));
        let said = output(command(&program).args(files).current_dir(folder.path()));
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&said), sorted(&expected), "{}", program.display());
        let failed = command(&program).arg("nothing").current_dir(folder.path()).output().unwrap();
        assert!(!failed.status.success() && !failed.stderr.is_empty(), "{}", program.display());
    }
}

/// A program may have its own copy of a library that is linked in here: the symbols of one must not be taken for the
/// other's.
#[test]
fn the_library_exports_the_functions_of_the_header_alone() {
    let said = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libdcs.so")));
    let mut exported: Vec<&str> = said.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.sort();
    let header = std::fs::read_to_string(root().join("include/dcs.h")).unwrap();
    assert_eq!(exported, functions(&header));
}

/// Returns the functions that a header declares, without those that it defines (`static inline`).
fn functions(header: &str) -> Vec<&str> {
    let api = header.split_once("/* ---- Functions ---- */").unwrap().1;
    let code = api.lines().filter(|line| !line.trim_start().starts_with(['*', '/', '#']));
    let words = code.flat_map(|line| line.match_indices('(').map(|(at, _)| &line[..at]));
    let names = words.filter_map(|before| before.rsplit([' ', '*']).next());
    let mut names: Vec<&str> = names.filter(|name| name.starts_with("dcs_")).collect();
    names.sort();
    names.dedup();
    names
}

/// Programs that were linked with one version do not start with an incompatible one.
#[test]
fn the_library_has_its_soname() {
    let said = output(Command::new("readelf").arg("-d").arg(library().join("libdcs.so")));
    assert!(said.contains(&format!("soname: [{SONAME}]")), "{said}");
}
