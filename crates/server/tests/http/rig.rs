//! A server on a temporary folder, and a client that speaks HTTP/1.1 byte by byte.

use dcs::Engine;
use dcs_server::access::Anonymous;
use dcs_server::encryption::Keys;
use dcs_server::server::{Config, Server};
use dcs_server::status::StatusFor;
use dcs_server::store::{Durability, Options, PACK_DEFAULT, Store};
use dcs_server::tls::Tls;
use dcs_server::transfers::{DataPath, Settings, can_go_direct};
use dcs_server::users::Users;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

pub struct Rig {
    pub address: SocketAddr,
    pub folder: tempfile::TempDir,
    pub store: Arc<Store>,
    /// Data path of each core.
    pub paths: Vec<Arc<DataPath>>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

pub struct Setting {
    pub verify: bool,
    pub keys: Keys,
    pub idle: Duration,
    pub min_rate: u64,
    pub patience: Duration,
    pub head_timeout: Duration,
    pub transfers: u16,
    pub connections: usize,
    pub tls: Option<Tls>,
    pub users: Users,
    pub anonymous: Anonymous,
    pub durability: Durability,
    /// Largest object that shares a pack, in bytes. 0 if a test looks at files.
    pub pack: u64,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            verify: false,
            keys: Keys::default(),
            idle: Duration::from_secs(20),
            min_rate: 1 << 10,
            patience: Duration::from_secs(30),
            head_timeout: Duration::from_secs(2),
            transfers: 64,
            connections: 100,
            tls: None,
            users: Users::parse("tester secret-of-tester").unwrap(),
            anonymous: Anonymous::All,
            durability: Durability::None,
            pack: PACK_DEFAULT,
        }
    }
}

/// Number of cores of each server: the same tests run in a binary with two.
fn cores() -> usize {
    if module_path!().starts_with("http_on_two_cores") { 2 } else { 1 }
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(Setting::default())
    }

    /// Starts a server whose objects have files, however small they are.
    pub fn with_files() -> Rig {
        Rig::with(Setting { pack: 0, ..Setting::default() })
    }

    pub fn with(setting: Setting) -> Rig {
        let makes_bucket = setting.tls.is_none() && setting.anonymous == Anonymous::All;
        let folder = tempfile::tempdir().unwrap();
        let (store, _) =
            Store::open(folder.path(), Options { durability: setting.durability, pack: setting.pack })
                .unwrap();
        let config = Config {
            users: setting.users,
            anonymous: setting.anonymous,
            connections: setting.connections,
            idle: setting.idle,
            head_timeout: setting.head_timeout,
            verify: setting.verify,
            tls: setting.tls,
            customer_keys_without_tls: false,
            status_for: StatusFor::Loopback,
        };
        let (stop, stopped) = watch::channel(false);
        let (tell, told) = std::sync::mpsc::channel();
        let (of_server, at) = (store.clone(), folder.path().to_path_buf());
        let (transfers, min_rate, patience) = (setting.transfers, setting.min_rate, setting.patience);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let direct = can_go_direct(&at);
                let durable = setting.durability == Durability::Full;
                let settings = Settings { transfers, min_rate, patience, durable, direct };
                let mut paths = vec![Arc::new(DataPath::start(Engine::builder(), settings).unwrap())];
                for _ in 1..cores() {
                    paths.push(Arc::new(paths[0].for_another_core(Engine::builder()).unwrap()));
                }
                let any = "127.0.0.1:0".parse().unwrap();
                let of_rig = paths.clone();
                let server =
                    Server::bind(any, config, of_server, paths, setting.keys, stopped).await.unwrap();
                tell.send((server.address().unwrap(), of_rig)).unwrap();
                server.run(Duration::from_secs(5)).await;
            });
        });
        let (address, paths) = told.recv().unwrap();
        let rig = Rig { address, folder, store, paths, stop, thread: Some(thread) };
        // Over TLS, or if requests must be signed, the test makes the bucket.
        if makes_bucket {
            assert_eq!(rig.client().ask("PUT", "/bucket", &[], b"").status, 200);
        }
        rig
    }

    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Returns the sizes of the data files. A file that the server removes meanwhile is left out.
    pub fn files(&self) -> Vec<u64> {
        let mut found: Vec<u64> = self.walk().iter().map(std::fs::Metadata::len).collect();
        found.sort_unstable();
        found
    }

    /// Returns the bytes of the disk that they take.
    pub fn allocated(&self) -> u64 {
        self.walk().iter().map(|data| data.blocks() * 512).sum()
    }

    fn walk(&self) -> Vec<std::fs::Metadata> {
        fn walk(folder: &Path, found: &mut Vec<std::fs::Metadata>) {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(data) if data.is_dir() => walk(&entry.path(), found),
                    Ok(data) => found.push(data),
                    Err(error) => {
                        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{:?}", entry.path())
                    }
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.folder.path().join("data"), &mut found);
        found
    }

    /// Waits until the data files have these sizes: unneeded files are removed a little later.
    pub fn has_files(&self, sizes: &[u64]) {
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while self.files() != sizes && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.files(), sizes);
    }

    pub fn stop(&mut self) {
        self.stop.send(true).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub struct Client {
    pub stream: TcpStream,
    /// Returns the bytes after an answer.
    rest: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn etag(&self) -> &str {
        self.headers["etag"].trim_matches('"')
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // A body does not wait for the acknowledgement of its head.
        stream.set_nodelay(true).unwrap();
        Client { stream, rest: Vec::new() }
    }

    pub fn ask(&mut self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        self.send_head(method, target, fields, body.len());
        self.stream.write_all(body).unwrap();
        self.answer(method)
    }

    pub fn send_head(&mut self, method: &str, target: &str, fields: &[(&str, &str)], length: usize) {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        if length > 0 {
            head += &format!("Content-Length: {length}\r\n");
        }
        self.stream.write_all((head + "\r\n").as_bytes()).unwrap();
    }

    /// Reads a head. Returns status and headers.
    pub fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more() > 0, "the connection ended: {:?}", String::from_utf8_lossy(&self.rest));
        };
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut fields);
        parsed.parse(&self.rest[..end]).unwrap();
        let headers = parsed
            .headers
            .iter()
            .map(|field| (field.name.to_ascii_lowercase(), String::from_utf8(field.value.to_vec()).unwrap()));
        let answer = Answer { status: parsed.code.unwrap(), headers: headers.collect(), body: Vec::new() };
        self.rest.drain(..end);
        answer
    }

    pub fn answer(&mut self, method: &str) -> Answer {
        let mut answer = self.head();
        let length = answer.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        if method == "HEAD" || matches!(answer.status, 100 | 204 | 304) {
            return answer;
        }
        while self.rest.len() < length && self.more() > 0 {}
        let length = length.min(self.rest.len());
        answer.body = self.rest.drain(..length).collect();
        answer
    }

    /// Reads this many bytes of a body.
    pub fn body(&mut self, length: usize, body: &mut Vec<u8>) {
        while self.rest.len() < length && self.more() > 0 {}
        body.extend(self.rest.drain(..length.min(self.rest.len())));
    }

    /// Returns true if the peer has ended the connection.
    pub fn ended(&mut self) -> bool {
        self.rest.is_empty() && self.more() == 0
    }

    fn more(&mut self) -> usize {
        let mut room = vec![0; 64 << 10];
        let read = loop {
            match self.stream.read(&mut room) {
                // A ring that this thread has used and closed may interrupt the call.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read.unwrap_or(0),
            }
        };
        self.rest.extend_from_slice(&room[..read]);
        read
    }
}
