//! Real S3 clients against `dcs serve`: tests/clients/*.py. The first run installs the clients from PyPI, in pinned
//! versions, into the user's cache folder. If that fails, the tests are skipped and say why; with `DCS_CLIENTS=demand`
//! they fail.
//!
//! rclone is used if the environment names it (`RCLONE=PATH`), if it is installed, or if `dcs bench s3` has built it;
//! mc if the environment names it (`MC=PATH`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

fn cache() -> Result<PathBuf, String> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let parent = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")));
    parent.map(|parent| parent.join("dcs")).ok_or_else(|| "HOME is not set".into())
}

/// Returns a folder's name for these requirements (FNV-1a).
fn name_of(requirements: &str) -> String {
    let hash = requirements
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("python-{hash:016x}")
}

/// Returns the Python that has the clients.
fn python() -> Result<PathBuf, String> {
    let requirements = sources().join("requirements.txt");
    let text = fs::read_to_string(&requirements).map_err(|error| error.to_string())?;
    let parent = cache()?.join("clients");
    let folder = parent.join(name_of(&text));
    let (python, whole) = (folder.join("bin/python"), folder.join("whole"));
    let failed = |error: std::io::Error| format!("{}: {error}", parent.display());
    fs::create_dir_all(&parent).map_err(failed)?;
    let lock = File::create(parent.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if whole.exists() {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--requirement",
    ]);
    run(install.arg(&requirements))?;
    fs::write(&whole, "").map_err(failed)?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", said.trim())) }
}

/// Finds rclone.
fn rclone() -> Option<PathBuf> {
    let works =
        |path: &Path| Command::new(path).arg("version").output().is_ok_and(|done| done.status.success());
    let built = fs::read_dir(cache().ok()?.join("serve")).into_iter().flatten().flatten();
    let built = built.filter(|entry| entry.file_name().to_string_lossy().starts_with("rclone-"));
    std::iter::once(PathBuf::from("rclone"))
        .chain(built.map(|entry| entry.path().join("rclone")))
        .find(|path| works(path))
}

/// Has pytest run a file of tests on a server with this number of cores.
fn pytest(file: &str, cores: u32) {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            assert!(std::env::var("DCS_CLIENTS").as_deref() != Ok("demand"), "{why}");
            return println!("skipped: the clients are not available: {why}");
        }
    };
    let mut command = Command::new(python);
    command
        .args(["-m", "pytest", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider"])
        .arg(sources().join(file));
    command.env("DCS_TEST_CORES", cores.to_string());
    command.env("DCS", env!("CARGO_BIN_EXE_dcs")).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    if let Some(path) = rclone().filter(|_| std::env::var_os("RCLONE").is_none()) {
        command.env("RCLONE", path);
    }
    let output = command.output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    println!("{text}");
}

// With one core and with two: each way that an object can come and go.

#[test]
fn boto3_has_objects() {
    [1, 2].into_iter().for_each(|cores| pytest("test_boto3_objects.py", cores));
}

#[test]
fn boto3_has_bodies() {
    [1, 2].into_iter().for_each(|cores| pytest("test_boto3_bodies.py", cores));
}

#[test]
fn bodies_are_signed_in_chunks() {
    [1, 2].into_iter().for_each(|cores| pytest("test_chunks.py", cores));
}

// With two cores: what these send comes the same ways, and each run of a program takes most of a second.

#[test]
fn programs_have_folders() {
    pytest("test_programs.py", 2);
}

#[test]
fn bodies_come_over_tls() {
    pytest("test_tls.py", 2);
}
