//! Parts shared by the tests: a folder, the library, its log, oracles, HTTP by hand.

use dcs_testkit::bytes;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
pub const COUNTER: &str = "fffffffffffffffffffffffffffffff0";

/// Returns the library that was built with this test.
pub fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let library = folder.join("libdcs_preload.so");
    assert!(library.is_file(), "no {}", library.display());
    library
}

/// A folder for one test. Other users may read it, since servers drop their privileges.
pub struct Place(pub tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Place(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// Returns a program with the library and these rules. Log and counters are in the folder.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, rules: &str) -> Command {
        let (log, counters) = (self.path("log"), self.path("counters"));
        let config = format!("log = {log:?}\ncounters = {counters:?}\n{rules}");
        // Servers write to it after they have dropped their privileges.
        std::fs::File::create(&log).unwrap();
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("DCS_PRELOAD_CONFIG", self.write("preload.toml", config));
        command.env_remove("DCS_PRELOAD_RULES");
        command
    }

    pub fn counters(&self) -> HashMap<&'static str, u64> {
        let counted = dcs_preload_rules::counters::read(&self.path("counters")).unwrap();
        counted.into_iter().map(|(counter, value)| (counter.name(), value)).collect()
    }

    /// Returns the log's events of a kind.
    pub fn log(&self, event: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("log")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        lines.filter(|line| line["event"] == event).collect()
    }

    /// Returns the lines of ranges that match, once there are that many.
    pub fn objects(&self, wanted: usize, which: impl Fn(&Value) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let objects: Vec<_> = self.log("object").into_iter().filter(&which).collect();
            if objects.len() >= wanted || begun.elapsed() > Duration::from_secs(10) {
                return objects;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Checks every digest of the log against hashlib, over the range that it names of the plain file that `plain` returns for a
    /// path. Returns their number.
    pub fn check_digests(&self, plain: impl Fn(&str) -> PathBuf) -> usize {
        let mut asked = Vec::new();
        for object in self.log("object") {
            for digest in object["digests"].as_array().into_iter().flatten() {
                let file = plain(object["path"].as_str().unwrap());
                let (offset, bytes) = (object["offset"].as_u64().unwrap(), digest["bytes"].as_u64().unwrap());
                let (operator, value) = (&digest["operator"], &digest["value"]);
                asked.push(format!(
                    "{} {} {offset} {bytes} {}",
                    operator.as_str().unwrap(),
                    value.as_str().unwrap(),
                    file.display()
                ));
            }
        }
        let list = self.write("digests", asked.join("\n"));
        output(Command::new("python3").args(["-c", CHECK]).arg(list));
        asked.len()
    }
}

const CHECK: &str = "
import sys, hashlib, zlib
for line in open(sys.argv[1]):
    name, value, offset, size, path = line.rstrip('\\n').split(' ', 4)
    with open(path, 'rb') as file:
        file.seek(int(offset))
        data = file.read(int(size))
    assert len(data) == int(size), line
    told = '%08x' % zlib.crc32(data) if name == 'crc32' else hashlib.new(name, data).hexdigest()
    assert told == value, (line, told)
";

/// Compiles a program of `tests/c`.
pub fn compile(place: &Place, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = place.path(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-g", "-O1"]);
    output(cc.arg(source).arg("-o").arg(&program));
    program
}

/// Runs a program that must succeed, and returns its output.
pub fn output(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}\n{err}", done.status);
    out.into_owned()
}

/// Returns the path of a program; without it, reports that the test is skipped.
pub fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(program)).find(|file| file.is_file());
    if found.is_none() {
        skip(&format!("{program} is not installed (Debian: {package}; make preload installs it)"));
    }
    found
}

/// Reports why a test cannot run, bypassing the harness, which hides the output of tests that pass. With `DCS_CLIENTS=demand` it
/// is a failure.
pub fn skip(why: &str) {
    assert!(std::env::var("DCS_CLIENTS").as_deref() != Ok("demand"), "{why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Encrypts a file by OpenSSL.
pub fn seal(plain: &Path, sealed: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["enc", "-aes-256-ctr", "-K", KEY, "-iv", COUNTER]);
    output(openssl.arg("-in").arg(plain).arg("-out").arg(sealed));
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server that ends with the test.
pub struct Server(pub Child);

impl Server {
    /// Starts a server, and waits until the port answers.
    pub fn start(command: &mut Command, port: u16) -> Server {
        let mut server = Server(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")));
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.0.try_wait().unwrap().is_none(), "it ended at once: {command:?}");
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not answer: {command:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Asks the server to end, and waits.
    pub fn end(mut self) {
        self.terminate();
        self.0.wait().unwrap();
        std::mem::forget(self);
    }

    fn terminate(&self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.terminate();
        let _ = self.0.wait();
    }
}

/// Sends a request on a persistent connection, and returns the body of the answer. `range`: first byte and last.
pub fn get(peer: &mut TcpStream, name: &str, range: Option<(usize, usize)>) -> Vec<u8> {
    let range = range.map(|(first, last)| format!("Range: bytes={first}-{last}\r\n")).unwrap_or_default();
    write!(peer, "GET /{name} HTTP/1.1\r\nHost: x\r\n{range}\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 20"), "{head}");
    let (_, length) = head.split_once("content-length: ").expect("a length");
    let mut body = vec![0; length.split("\r\n").next().unwrap().parse().unwrap()];
    peer.read_exact(&mut body).unwrap();
    body
}

/// Files of a web server: their names and sizes.
pub const FILES: [(&str, usize); 6] = [
    ("empty", 0),
    ("one", 1),
    ("page", 4096),
    ("odd", 123_457),
    ("mega", 1 << 20),
    ("large", (7 << 20) + 11),
];

/// Runs clients concurrently: whole files and ranges on persistent connections, a slow reader, one that leaves. Every byte is
/// compared.
pub fn load(port: u16, plain: &Path, clients: usize) {
    let contents: Vec<_> =
        FILES.iter().map(|(name, _)| (*name, std::fs::read(plain.join(name)).unwrap())).collect();
    std::thread::scope(|scope| {
        for client in 0..clients {
            let contents = &contents;
            scope.spawn(move || {
                let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for round in 0..FILES.len() {
                    let (name, bytes) = &contents[(client + round) % contents.len()];
                    assert!(get(&mut peer, name, None) == *bytes, "{name}");
                    if bytes.len() > 5000 {
                        let (first, last) = (client * 77 + round, bytes.len() - 1 - client * 13);
                        assert!(get(&mut peer, name, Some((first, last))) == bytes[first..=last], "{name}");
                    }
                }
            });
        }
        scope.spawn(|| slow_reader(port, &contents[5].1));
        scope.spawn(|| {
            let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
            write!(peer, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            peer.read_exact(&mut [0; 1000]).unwrap();
        });
    });
}

fn slow_reader(port: u16, expected: &[u8]) {
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(peer, "GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut all = Vec::new();
    let mut buffer = vec![0; 200_000];
    loop {
        std::thread::sleep(Duration::from_millis(5));
        match peer.read(&mut buffer).unwrap() {
            0 => break,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
    assert!(all.ends_with(expected) && all.len() < expected.len() + 1000);
}

/// Writes the files of [`FILES`] to `plain`, and encrypted to `sealed`.
pub fn files(place: &Place) -> (PathBuf, PathBuf) {
    let (plain, sealed) = (place.path("plain"), place.path("sealed"));
    std::fs::create_dir(&plain).unwrap();
    std::fs::create_dir(&sealed).unwrap();
    for (seed, (name, size)) in FILES.iter().enumerate() {
        std::fs::write(plain.join(name), bytes(*size, seed as u64)).unwrap();
        seal(&plain.join(name), &sealed.join(name));
    }
    (plain, sealed)
}

/// Counts the objects in the log that were sent whole, by file name.
pub fn whole(objects: &[Value]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for object in objects.iter().filter(|object| object["whole"] == true) {
        let path = Path::new(object["path"].as_str().unwrap());
        *counts.entry(path.file_name().unwrap().to_string_lossy().into_owned()).or_default() += 1;
    }
    counts
}
