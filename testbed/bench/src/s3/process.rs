//! A server under test: a process with its cores and a folder. Dropping it ends the process.

use super::contender::Contender;
use super::http::Peer;
use super::programs::{self, Programs};
use super::request::{ACCESS_KEY, BUCKET, SECRET_KEY, Writer};
use crate::failure::Failure;
use crate::harness::clocks::family;
use crate::harness::cores::{limit_files, stay_on};
use crate::interrupt;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden subcommand that becomes a server.
pub const BECOME: &str = "bench-become";
/// Time limit for a server to start.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of a log to show.
const TAIL: usize = 600;

/// A running server.
pub struct Server {
    child: Child,
    ends: Option<interrupt::Child>,
    log: PathBuf,
    pub address: String,
    /// True if it refuses a request with a wrong signature.
    pub checks_signatures: bool,
}

/// The hidden subcommand: moves to its cores, and becomes the program. It ends with the process that started it.
pub fn become_program(cores: &str, command: &[OsString]) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("bench server", &error);
    let cores: Option<Vec<usize>> = cores.split(',').map(|core| core.parse().ok()).collect();
    let (Some(cores), Some((program, arguments))) = (cores, command.split_first()) else {
        return Err(Failure::usage("bench server: cores and a command are needed"));
    };
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    stay_on(&cores).map_err(failed)?;
    limit_files().map_err(failed)?;
    Err(failed(Command::new(program).args(arguments).exec()))
}

impl Server {
    /// Starts the server over a folder of its own, and waits until it answers and has a bucket.
    pub fn start(
        contender: Contender,
        programs: &Programs,
        folder: &Path,
        cores: &[usize],
    ) -> io::Result<Server> {
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let log = folder.join("log");
        let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(BECOME).arg(cores.join(",")).arg("--").arg(programs.of(contender)?);
        configure(&mut command, contender, folder, &data, &address)?;
        let output = File::create(&log)?;
        command.current_dir(folder).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // A process group of its own: Ctrl-C goes to the parent, which ends its servers itself.
        let (child, ends) = interrupt::child_of(|| command.process_group(0).spawn(), Child::id)?;
        let mut server = Server { child, ends: Some(ends), log, address, checks_signatures: false };
        server.await_bucket(contender, &data)?;
        let forged = Writer::forger(&server.address)?.get("nothing");
        server.checks_signatures = Peer::new(&server.address).ask(&forged, &[])?.head.status == 403;
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the end of its log, for the cause of a failure.
    pub fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(TAIL)..];
        String::from_utf8_lossy(tail).trim().to_string()
    }

    fn await_bucket(&mut self, contender: Contender, data: &Path) -> io::Result<()> {
        let begun = Instant::now();
        let writer = Writer::new(&self.address, contender)?;
        let mut why = String::new();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("it ended at once, with {status}: {}", self.said())));
            }
            let Some(head) = writer.create_bucket() else {
                // Without buckets a folder is enough, and any answer will do.
                fs::create_dir_all(data.join(BUCKET))?;
                match Peer::new(&self.address).ask(&writer.get("nothing"), &[]) {
                    Ok(_) => return Ok(()),
                    Err(error) => why = error.to_string(),
                }
                std::thread::sleep(POLL_INTERVAL);
                continue;
            };
            match Peer::new(&self.address).ask(&head, &[]) {
                // The bucket existed already.
                Ok(answer) if answer.head.status == 409 || answer.head.status / 100 == 2 => return Ok(()),
                Ok(answer) => why = answer.refusal(),
                Err(error) => why = error.to_string(),
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the server has no bucket yet: {why}; {}", self.said()),
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.ends.take());
        // All of its group, since it may have children.
        let group = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Configures each server's address, folder and credentials. All other settings are its defaults.
fn configure(
    command: &mut Command,
    contender: Contender,
    folder: &Path,
    data: &Path,
    address: &str,
) -> io::Result<()> {
    match contender {
        Contender::Dcs | Contender::DcsNone | Contender::DcsVerify | Contender::DcsFiles => {
            let users = folder.join("users");
            fs::write(&users, format!("{ACCESS_KEY} {SECRET_KEY}\n"))?;
            fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            let level = if contender == Contender::DcsNone { "none" } else { "full" };
            command.arg("serve").arg(data).args(["--listen", address, "--durability", level]);
            command.arg("--users").arg(users);
            match contender {
                Contender::DcsVerify => _ = command.arg("--verify"),
                Contender::DcsFiles => _ = command.args(["--pack", "0"]),
                _ => {}
            }
        }
        Contender::Versitygw => {
            command.env("ROOT_ACCESS_KEY", ACCESS_KEY).env("ROOT_SECRET_KEY", SECRET_KEY);
            // Without --keep-alive it closes each connection after one answer.
            command.args(["--port", address, "--keep-alive", "--quiet", "posix"]).arg(data);
        }
        Contender::Minio => {
            command.env("MINIO_ROOT_USER", ACCESS_KEY).env("MINIO_ROOT_PASSWORD", SECRET_KEY);
            command.env("MINIO_BROWSER", "off").env("MINIO_UPDATE", "off").env("HOME", folder);
            command.args(["server", "--quiet", "--address", address]).arg(data);
        }
        Contender::Rclone => {
            // No other configuration.
            command.args(["--config", "/dev/null", "serve", "s3", "--addr", address]);
            command.arg("--auth-key").arg(format!("{ACCESS_KEY},{SECRET_KEY}")).arg(data);
        }
        Contender::Nginx | Contender::NginxPerl => {
            configure_nginx(command, contender, folder, data, address)?
        }
        Contender::NginxPreload | Contender::NginxMd5 | Contender::NginxMd5Threads => {
            let rules = folder.join("rules.toml");
            let rule =
                if contender == Contender::NginxPreload { "" } else { "[[rule]]\nthrough = \"md5\"\n" };
            let log = folder.join("digests");
            fs::write(&rules, format!("log = {log:?}\n{rule}"))?;
            command.arg("run").arg("--config").arg(rules).arg("--");
            command.arg(programs::nginx().map_err(io::Error::other)?.path);
            configure_nginx(command, contender, folder, data, address)?;
        }
    }
    Ok(())
}

fn configure_nginx(
    command: &mut Command,
    contender: Contender,
    folder: &Path,
    data: &Path,
    address: &str,
) -> io::Result<()> {
    let path = folder.join("nginx.conf");
    fs::write(&path, nginx(contender, folder, data, address))?;
    if contender == Contender::NginxPerl {
        fs::write(
            folder.join("Digests.pm"),
            PERL_HANDLER.replace("LOG_FILE", &folder.join("digests").to_string_lossy()),
        )?;
    }
    command.arg("-p").arg(folder).arg("-c").arg(path).arg("-e").arg(folder.join("log"));
    Ok(())
}

/// A handler that logs the MD5 of what is sent. It reads the file first, since nginx does not show it the body.
const PERL_HANDLER: &str = r#"package Digests;
use nginx;
use Digest::MD5;
open(my $log, '>>', 'LOG_FILE') or die;
$log->autoflush(1);
sub handler {
    my $request = shift;
    my $name = $request->filename;
    open(my $file, '<:raw', $name) or return HTTP_NOT_FOUND;
    my $size = -s $file;
    my $md5 = Digest::MD5->new;
    $md5->addfile($file);
    print $log $name, ' ', $size, ' ', $md5->hexdigest, "\n";
    $request->header_out('Content-Length', $size);
    $request->send_http_header('application/octet-stream');
    $request->sendfile($name) unless $request->header_only;
    return OK;
}
1;
"#;

/// One process is enough for one core, and easier to end.
fn nginx(contender: Contender, folder: &Path, data: &Path, address: &str) -> String {
    let (folder, data) = (folder.display(), data.display());
    let (load, http, server) = match contender {
        Contender::NginxPerl => (
            format!("load_module {};\n", programs::PERL_MODULE),
            format!("  perl_modules {folder};\n  perl_require Digests.pm;\n"),
            " location / { perl Digests::handler; }",
        ),
        Contender::NginxMd5Threads => (String::new(), String::new(), " aio threads;"),
        _ => Default::default(),
    };
    format!(
        "{load}daemon off;\nmaster_process off;\npid {folder}/pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n{http}  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  open_file_cache max=10000;\n\
         \x20 keepalive_requests 100000000;\n\
         \x20 client_body_temp_path {folder}/temporary; proxy_temp_path {folder}/temporary;\n\
         \x20 fastcgi_temp_path {folder}/temporary; uwsgi_temp_path {folder}/temporary; scgi_temp_path {folder}/temporary;\n\
         \x20 server {{ listen {address}; root {data};{server} }}\n}}\n"
    )
}

/// Returns the sum of the peak resident memory of a process and its children.
pub fn peak_rss(root: u32) -> io::Result<u64> {
    let mut sum = 0;
    for pid in family(root) {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        sum += kib.ok_or_else(|| io::Error::other("the process has no peak"))? << 10;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::clocks::Account;

    #[test]
    fn a_child_s_time_and_memory_count() {
        let mut child = Command::new("sh");
        child.args(["-c", "sleep 60 & i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done; wait"]);
        let (me, begun) = (std::process::id(), Instant::now());
        let before = Account::of(me).unwrap();
        let mut child = child.process_group(0).spawn().unwrap();
        // Other tests of this process count too: they may be faster than the shell.
        let enough = |child| {
            Account::of(me).unwrap().since(&before) >= Duration::from_millis(20) && family(child).len() == 2
        };
        while !enough(child.id()) && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(POLL_INTERVAL);
        }
        let used = Account::of(me).unwrap().since(&before);
        let (family, peak) = (family(child.id()), peak_rss(child.id()).unwrap());
        nix::sys::signal::killpg(
            nix::unistd::Pid::from_raw(child.id() as i32),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        child.wait().unwrap();
        assert!(used >= Duration::from_millis(20), "{used:?}");
        assert_eq!(family.len(), 2, "the shell and its sleep");
        assert!(peak > 200 << 10, "{peak}");
    }
}
