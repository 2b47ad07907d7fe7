//! Finds the contenders' programs, and builds those that are missing, of pinned versions, with Go, into the user's cache folder.

use super::contender::Contender;
use crate::failure::{Exit, Failure};
use crate::harness::contender::Named;
use crate::interrupt;
use crate::report::Report;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Programs that are available, with their versions; for the others, the reason.
#[derive(Default)]
pub struct Programs {
    found: HashMap<Contender, Program>,
    pub missing: Vec<(Contender, String)>,
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub version: String,
}

/// A Go module that builds one.
struct Module {
    name: &'static str,
    package: &'static str,
    version: &'static str,
}

const VERSITYGW: Module =
    Module { name: "versitygw", package: "github.com/versity/versitygw/cmd/versitygw", version: "v1.8.0" };
/// Go knows no versions of it: the newest commit that the module proxy has, of 12 February 2026.
const MINIO: Module = Module {
    name: "minio",
    package: "github.com/minio/minio",
    version: "v0.0.0-20260212201848-7aac2a2c5b7c",
};
const RCLONE: Module = Module { name: "rclone", package: "github.com/rclone/rclone", version: "v1.76.0" };

/// Debian's path is not in every user's PATH.
const NGINX: [&str; 2] = ["nginx", "/usr/sbin/nginx"];
/// Debian's path of nginx's Perl module.
pub const PERL_MODULE: &str = "/usr/lib/nginx/modules/ngx_http_perl_module.so";
const TAIL: usize = 400;

impl Programs {
    /// Finds the programs of some contenders; builds those that are missing if `build` is set.
    pub fn find(contenders: &[Contender], build: bool, report: &Report) -> Programs {
        let mut programs = Programs::default();
        for contender in contenders {
            match find(*contender, build, report) {
                Ok(program) => drop(programs.found.insert(*contender, program)),
                Err(why) => programs.missing.push((*contender, why)),
            }
        }
        programs
    }

    pub fn has(&self, contender: Contender) -> bool {
        self.found.contains_key(&contender)
    }

    pub fn of(&self, contender: Contender) -> io::Result<&Path> {
        let program = self.found.get(&contender).map(|program| program.path.as_path());
        program.ok_or_else(|| io::Error::other(format!("{} is not available", contender.name())))
    }

    pub fn version(&self, contender: Contender) -> &str {
        self.found.get(&contender).map_or("?", |program| &program.version)
    }

    /// Fails if a contender that was named is not available.
    pub fn demand(&self) -> Result<(), Failure> {
        match self.missing.first() {
            Some((contender, why)) => {
                Err(Failure::new(Exit::NotFound, format!("{}: {why}", contender.name()))
                    .advise("leave it out of --contenders, or provide what is missing"))
            }
            None => Ok(()),
        }
    }
}

fn find(contender: Contender, build: bool, report: &Report) -> Result<Program, String> {
    match contender {
        Contender::Dcs | Contender::DcsNone | Contender::DcsVerify | Contender::DcsFiles => dcs(),
        Contender::Versitygw => VERSITYGW.find(build, report),
        Contender::Minio => MINIO.find(build, report),
        Contender::Rclone => RCLONE.find(build, report),
        Contender::Nginx => nginx(),
        Contender::NginxPreload | Contender::NginxMd5 | Contender::NginxMd5Threads => {
            let dcs = dcs()?;
            succeeds(&dcs.path, &["run", "true"]).ok_or("dcs run does not find its library")?;
            Ok(Program { version: nginx()?.version, ..dcs })
        }
        Contender::NginxPerl => match Path::new(PERL_MODULE).exists() {
            true => nginx(),
            false => {
                Err("nginx's Perl module is not installed (apt-get install libnginx-mod-http-perl)".into())
            }
        },
    }
}

fn dcs() -> Result<Program, String> {
    let path = crate::command::find().map_err(|failure| failure.line)?;
    succeeds(&path, &["serve", "--help"]).ok_or("this dcs has no serve command")?;
    Ok(Program { path, version: env!("CARGO_PKG_VERSION").into() })
}

/// Runs a program; `Some` if it succeeds.
fn succeeds(program: &Path, arguments: &[&str]) -> Option<()> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().ok()?.success().then_some(())
}

pub fn nginx() -> Result<Program, String> {
    for name in NGINX {
        let Ok(output) = Command::new(name).arg("-v").stdin(Stdio::null()).output() else { continue };
        // nginx version: nginx/1.22.1
        let said = String::from_utf8_lossy(&output.stderr);
        let version = said.rsplit('/').next().unwrap_or_default().trim().to_string();
        return Ok(Program { path: name.into(), version });
    }
    Err("it is not installed (apt-get install nginx-light)".into())
}

/// Returns the folder of all that is built.
pub fn cache() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let parent = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")));
    parent.map(|parent| parent.join("dcs").join("serve"))
}

impl Module {
    fn find(&self, build: bool, report: &Report) -> Result<Program, String> {
        let cache = cache().ok_or("no folder to build in: HOME is not set")?;
        let path = cache.join(format!("{}-{}", self.name, self.version)).join(self.name);
        let program = Program { path, version: self.version.into() };
        if program.path.is_file() {
            return Ok(program);
        }
        if !build {
            return Err("not built yet; the first run builds it".into());
        }
        if Command::new("go").arg("version").stdin(Stdio::null()).stdout(Stdio::null()).status().is_err() {
            return Err("Go is needed to build it, and is not installed".into());
        }
        let text = format!("building {} {}, once: some minutes", self.name, self.version);
        if !report.shows_progress() {
            report.remark(&text);
        }
        let _step = report.step(text);
        self.build(&cache, &program.path)?;
        Ok(program)
    }

    /// Builds a program, which appears in its place only when complete.
    fn build(&self, cache: &Path, to: &Path) -> Result<(), String> {
        let failed = |error: io::Error| format!("it cannot be built in {}: {error}", cache.display());
        fs::create_dir_all(cache).map_err(failed)?;
        // One build at a time, over all processes.
        let lock = File::create(cache.join("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if to.is_file() {
            return Ok(());
        }
        let make = || tempfile::Builder::new().prefix("building.").tempdir_in(cache);
        let (folder, _leftover) = interrupt::folder_of(make).map_err(failed)?;
        let log = folder.path().join("log");
        let output = File::create(&log).map_err(failed)?;
        let mut go = Command::new("nice");
        go.args(["go", "install", "-p", "2", "-trimpath", "-modcacherw", "-ldflags=-s -w"]);
        go.arg(format!("{}@{}", self.package, self.version));
        go.env("GOPATH", cache.join("go")).env("GOMODCACHE", cache.join("go/pkg/mod"));
        go.env("GOCACHE", cache.join("go-build")).env("GOBIN", folder.path()).env("CGO_ENABLED", "0");
        go.current_dir(folder.path()).stdin(Stdio::null());
        go.stdout(output.try_clone().map_err(failed)?).stderr(output);
        let (mut child, ends) = interrupt::child_of(|| go.spawn(), Child::id).map_err(failed)?;
        let status = child.wait();
        drop(ends);
        if !status.map_err(failed)?.success() {
            let text = fs::read(&log).unwrap_or_default();
            let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).replace('\n', "; ");
            return Err(format!("go could not build it: {}", tail.trim()));
        }
        let parent = to.parent().ok_or("it has no folder")?;
        fs::create_dir_all(parent).map_err(failed)?;
        fs::rename(folder.path().join(self.name), to).map_err(failed)
    }
}
