//! `dcs serve` is killed again and again while clients change objects. Afterwards, acknowledged changes are there,
//! whole; others have happened or not; no file is left over.
//!
//! Each client has its own keys, so that it knows what they hold. An object's data say which operation wrote them.

use crate::run::Place;
use dcs_server::store::PACK_DEFAULT;
use dcs_testkit::Random;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 4;
const KEYS: u64 = 4;
/// S3's least size of a part that is not the last.
const PART: usize = 5 << 20;

/// Contents of a key after an operation: the data of that serial number, or nothing.
type Left = Option<u64>;

/// Makes the data of that operation. Some have two parts.
fn content(serial: u64) -> Vec<u8> {
    let mut random = Random(serial);
    let length = match random.below(40) {
        0 => PART as u64 + random.below(50_000),
        1..10 => random.below(200_000),
        _ => random.below(5_000),
    };
    let mut bytes = format!("{serial}\n").into_bytes();
    let word = random.below(u64::MAX).to_le_bytes();
    bytes.extend((0..length).map(|at| word[at as usize % 8].wrapping_add((at >> 3) as u8)));
    bytes
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(place: &Place, durability: &str, cores: u64) -> Server {
        let store = format!("store --cores {cores} --durability {durability}");
        let line = format!("serve {store} --listen 127.0.0.1:0 --anonymous all");
        let mut child = place.dcs(&line).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.ok()?.split_once("http://")?.1.to_string()));
        Server { child, address: address.expect("it starts after it was killed") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    stream: TcpStream,
}

impl Client {
    fn new(address: &str) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream })
    }

    /// Returns status, head and body of a complete answer.
    fn ask(&mut self, method: &str, target: &str, body: &[u8]) -> io::Result<(u16, String, Vec<u8>)> {
        let length = body.len();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        self.stream.write_all(&[head.as_bytes(), body].concat())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length =
            head.split_once("content-length: ").map_or("0", |(_, rest)| rest.split_once('\r').unwrap().0);
        let status = head[9..12].parse().unwrap();
        let mut body = vec![0; if status == 204 { 0 } else { length.parse().unwrap() }];
        self.stream.read_exact(&mut body)?;
        Ok((status, head, body))
    }

    /// Returns an answer that must be a success.
    fn good(&mut self, method: &str, target: &str, body: &[u8]) -> io::Result<(String, Vec<u8>)> {
        let (status, head, answer) = self.ask(method, target, body)?;
        assert!(matches!(status, 200 | 204), "{method} {target}: {head}{}", String::from_utf8_lossy(&answer));
        Ok((head, answer))
    }

    /// Returns the contents of a key, checked byte by byte, and the number of its files.
    fn left(&mut self, key: &str) -> io::Result<(Left, usize)> {
        let (status, head, body) = self.ask("GET", &format!("/bucket/{key}"), b"")?;
        if status == 404 {
            return Ok((None, 0));
        }
        assert_eq!(status, 200, "{key}: {}", String::from_utf8_lossy(&body));
        let end = body.iter().position(|byte| *byte == b'\n').expect("data begin with a number");
        let serial = std::str::from_utf8(&body[..end]).unwrap().parse().unwrap();
        assert!(body == content(serial), "{key}: the data of {serial} are others");
        let etag = head.split_once("etag: \"").unwrap().1.split_once('"').unwrap().0;
        // Small ones share files, unless they came in parts.
        let files = match etag.split_once('-') {
            Some((_, parts)) => parts.parse().unwrap(),
            None => usize::from(body.len() as u64 > PACK_DEFAULT),
        };
        Ok((Some(serial), files))
    }

    fn put_in_parts(&mut self, key: &str, data: &[u8], answers: &AtomicU64) -> io::Result<()> {
        let (_, begun) = self.good("POST", &format!("/bucket/{key}?uploads"), b"")?;
        let begun = String::from_utf8(begun).unwrap();
        let id = begun.split_once("<UploadId>").unwrap().1.split_once('<').unwrap().0.to_string();
        answers.fetch_add(1, Ordering::Relaxed);
        let mut parts = String::new();
        for (number, part) in (1..).zip(data.chunks(PART)) {
            let target = format!("/bucket/{key}?partNumber={number}&uploadId={id}");
            let (head, _) = self.good("PUT", &target, part)?;
            let etag = head.split_once("etag: \"").unwrap().1.split_once('"').unwrap().0;
            parts += &format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag></Part>");
            answers.fetch_add(1, Ordering::Relaxed);
        }
        let order = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        self.good("POST", &format!("/bucket/{key}?uploadId={id}"), order.as_bytes()).map(drop)
    }
}

/// Contents that one client's keys may have: the last acknowledged, and the last requested without an answer.
type Known = BTreeMap<String, Vec<Left>>;

/// Changes objects until the server is gone.
fn client(address: &str, mut known: Known, seed: u64, serials: &AtomicU64, answers: &AtomicU64) -> Known {
    let mut random = Random(seed);
    let keys: Vec<String> = known.keys().cloned().collect();
    let Ok(mut client) = Client::new(address) else { return known };
    loop {
        let key = &keys[random.below(KEYS) as usize];
        let serial = serials.fetch_add(1, Ordering::Relaxed);
        let may_hold = known.get_mut(key).unwrap();
        let kind = random.below(8);
        let (asked, wants) = match kind {
            0 => (client.good("DELETE", &format!("/bucket/{key}"), b"").map(drop), None),
            1 | 2 => (client.put_in_parts(key, &content(serial), answers), Some(serial)),
            3 => match client.left(key) {
                Ok((left, _)) => {
                    assert_eq!(vec![left], *may_hold, "{key} while the server runs");
                    (Ok(()), left)
                }
                Err(error) => (Err(error), may_hold[0]),
            },
            _ => (client.good("PUT", &format!("/bucket/{key}"), &content(serial)).map(drop), Some(serial)),
        };
        if let Err(error) = asked {
            assert!(error.kind() != ErrorKind::WouldBlock, "the server stands still");
            may_hold.push(wants);
            return known;
        }
        *may_hold = vec![wants];
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the data files.
fn files(place: &Place) -> usize {
    let folders = std::fs::read_dir(place.path("store/data")).into_iter().flatten().flatten();
    folders.map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().count()).sum()
}

/// Checks every key after a start. Returns what they hold from now on.
fn check(place: &Place, server: &Server, known: &mut [Known], round: u64) {
    let mut client = Client::new(&server.address).unwrap();
    let (_, uploads) = client.good("GET", "/bucket?uploads", b"").unwrap();
    for upload in String::from_utf8(uploads).unwrap().split("<Upload>").skip(1) {
        let of = |tag: &str| upload.split_once(tag).unwrap().1.split_once('<').unwrap().0;
        let target = format!("/bucket/{}?uploadId={}", of("<Key>"), of("<UploadId>"));
        client.good("DELETE", &target, b"").unwrap();
    }
    let mut expected = 0;
    for (key, may_hold) in known.iter_mut().flatten() {
        let (left, parts) = client.left(key).unwrap();
        assert!(may_hold.contains(&left), "round {round}, {key}: {left:?}, not one of {may_hold:?}");
        *may_hold = vec![left];
        expected += parts;
    }
    let until = Instant::now() + Duration::from_secs(10);
    while files(place) != expected && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(files(place), expected, "round {round}: data files");
}

#[test]
fn what_was_answered_outlives_the_server() {
    let rounds = std::env::var("DCS_SERVE_KILLS").map_or(8, |rounds| rounds.parse().unwrap());
    let place = Place::new();
    let of_client = |client| (0..KEYS).map(|key| (format!("{client}-{key}"), vec![None])).collect();
    let mut known: Vec<Known> = (0..CLIENTS).map(of_client).collect();
    let (serials, mut answered) = (AtomicU64::new(1), 0);
    for round in 0..=rounds {
        // One core and two, with each durability.
        let server = Server::start(&place, ["none", "metadata", "full"][round as usize % 3], 1 + round % 2);
        if round == 0 {
            Client::new(&server.address).unwrap().good("PUT", "/bucket", b"").unwrap();
        }
        check(&place, &server, &mut known, round);
        let answers = AtomicU64::new(0);
        // At a random point of the work, and at a random instant.
        let (most, pause) = (Random(round).below(120), Random(!round).below(3000));
        known = std::thread::scope(|scope| {
            let clients = known.into_iter().zip(0..).map(|(known, number)| {
                let (address, answers, serials) = (server.address.clone(), &answers, &serials);
                let seed = round * CLIENTS + number;
                scope.spawn(move || client(&address, known, seed, serials, answers))
            });
            let clients: Vec<_> = clients.collect();
            while answers.load(Ordering::Relaxed) < most && !clients.iter().all(|client| client.is_finished())
            {
                std::thread::sleep(Duration::from_micros(200));
            }
            std::thread::sleep(Duration::from_micros(pause));
            drop(server);
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        answered += answers.into_inner();
    }
    println!("killed {} times, after {answered} answers", rounds + 1);
    let server = Server::start(&place, "full", 2);
    check(&place, &server, &mut known, rounds + 1);
}
