//! Honest clients: each has its own keys, knows what they hold, and checks every byte.

use super::about;
use super::http::{Answer, Connection};
use dcs_testkit::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Object that everybody may read: larger than sockets hold.
const BIG: (u64, usize) = (77, 12 << 20);

const KEYS: u64 = 3;

/// Time that a client waits, as aws and boto3 do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Results of the soak.
#[derive(Default)]
pub struct Report {
    /// Latencies by operation.
    latencies: BTreeMap<&'static str, Vec<Duration>>,
    pub failures: Vec<String>,
    /// Misbehaviours of hostile clients, and how often each happened.
    pub figures_of_hostile: BTreeMap<&'static str, usize>,
    /// Transfers that waited for a place.
    pub waits: f64,
    /// Kept connections that ended while they waited for a request, which was then sent on a new one.
    pub gave_way: usize,
    /// Connections that the server counts as sent away.
    pub sent_away: f64,
}

impl Report {
    pub fn requests(&self) -> usize {
        self.latencies.values().map(Vec::len).sum()
    }

    pub fn slowest(&self) -> Duration {
        self.latencies.values().flatten().max().copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, latencies) in &self.latencies {
            let mut sorted = latencies.clone();
            sorted.sort_unstable();
            let at = |part: usize| sorted[(sorted.len() - 1) * part / 1000];
            let (count, half, most) = (sorted.len(), at(500), at(990));
            writeln!(f, "{operation:>8} {count:>8}  p50 {half:?}  p99 {most:?}  longest {:?}", at(1000))?;
        }
        writeln!(f, "hostile: {:?}", self.figures_of_hostile)?;
        writeln!(f, "{} transfers waited for a place", self.waits)?;
        writeln!(
            f,
            "{} requests sent again: their kept connections had given way to new ones",
            self.gave_way
        )?;
        writeln!(f, "{} connections gave way to new ones, as the server counts", self.sent_away)?;
        writeln!(f, "{} failures", self.failures.len())?;
        self.failures.iter().take(20).try_for_each(|failure| writeln!(f, "  {failure}"))
    }
}

/// Makes the bucket and the object that everybody may read.
pub async fn prepare(address: SocketAddr) {
    let mut connection = Connection::new(address).await.unwrap();
    assert_eq!(connection.ask("PUT", "/bucket", "", b"").await.unwrap().status, 200);
    let big = data(BIG.0, BIG.1);
    assert_eq!(connection.ask("PUT", "/bucket/big", "", &big).await.unwrap().status, 200);
}

/// Returns one of the server's metrics.
pub async fn figure(address: SocketAddr, name: &str) -> f64 {
    let mut connection = Connection::new(address).await.unwrap();
    let metrics = connection.ask("GET", "/_dcs/metrics", "", b"").await.unwrap();
    let metrics = String::from_utf8(metrics.body).unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect(name).parse().unwrap()
}

/// Checks that health always answers, and is always good.
pub async fn watch_health(address: SocketAddr, until: Instant, report: Rc<RefCell<Report>>) {
    while Instant::now() < until {
        let begun = Instant::now();
        let asked = async { Connection::new(address).await?.ask("GET", "/_dcs/health", "", b"").await };
        let problem = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) if answer.status == 200 => None,
            Ok(Ok(answer)) => Some(String::from_utf8_lossy(&answer.body).into_owned()),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer".to_string()),
        };
        note(&mut report.borrow_mut(), begun.elapsed(), problem);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn note(report: &mut Report, took: Duration, problem: Option<String>) {
    report.latencies.entry("health").or_default().push(took);
    report.failures.extend(problem.map(|problem| format!("health: {problem}")));
}

/// An honest client.
pub struct Honest {
    address: SocketAddr,
    number: usize,
    pause: Duration,
    random: Random,
    connection: Option<Connection>,
    /// Contents of its keys.
    keys: [Option<(u64, usize)>; KEYS as usize],
    report: Rc<RefCell<Report>>,
}

impl Honest {
    pub fn new(address: SocketAddr, number: usize, pause: Duration, report: Rc<RefCell<Report>>) -> Honest {
        let random = Random(number as u64);
        Honest { address, number, pause, random, connection: None, keys: Default::default(), report }
    }

    pub async fn run(mut self, until: Instant) {
        // Clients do not all come at once.
        loop {
            let pause = about(&mut self.random, self.pause);
            if Instant::now() + pause >= until {
                return;
            }
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            let (operation, done) = match tokio::time::timeout(PATIENCE, self.operate()).await {
                Ok(done) => done,
                Err(_) => ("late", Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in a minute"))),
            };
            let mut report = self.report.borrow_mut();
            if let Err(error) = done {
                report.failures.push(format!("client {}: {operation}: {error}", self.number));
                self.connection = None;
            }
            report.latencies.entry(operation).or_default().push(begun.elapsed());
        }
    }

    async fn operate(&mut self) -> (&'static str, io::Result<()>) {
        let at = self.random.below(KEYS) as usize;
        match self.random.below(20) {
            0 => ("big", self.get_big().await),
            1 => ("part", self.get_part().await),
            2 => ("list", self.list().await),
            3 => ("copy", self.copy(at).await),
            4 => ("delete", self.delete(at).await),
            5..12 => ("put", self.put(at).await),
            _ => ("get", self.get(at).await),
        }
    }

    fn key(&self, at: usize) -> String {
        format!("/bucket/{}-{at}", self.number)
    }

    /// Sends a request on the kept connection, if there is one. If the server has closed it meanwhile, which it may,
    /// sends it on a new one: all of these clients' requests can be repeated.
    async fn ask(&mut self, method: &str, target: &str, fields: &str, body: &[u8]) -> io::Result<Answer> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        if let Some(mut kept) = self.connection.take() {
            match kept.ask(method, target, fields, body).await {
                Err(error)
                    if kept.was_idle()
                        && matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) =>
                {
                    self.report.borrow_mut().gave_way += 1;
                }
                answer => return self.keep(kept, answer?),
            }
        }
        let mut connection = Connection::new(self.address).await?;
        let answer = connection.ask(method, target, fields, body).await?;
        self.keep(connection, answer)
    }

    fn keep(&mut self, connection: Connection, answer: Answer) -> io::Result<Answer> {
        self.connection = (!answer.closes).then_some(connection);
        Ok(answer)
    }

    async fn put(&mut self, at: usize) -> io::Result<()> {
        let length = match self.random.below(16) {
            0 => (1 << 20) + self.random.below(3 << 20),
            1..8 => self.random.below(200_000),
            _ => self.random.below(8_000),
        };
        let (seed, length) = (self.random.below(u64::MAX), length as usize);
        let (key, body) = (self.key(at), data(seed, length));
        let answer = self.ask("PUT", &key, "", &body).await?;
        expect(&answer, answer.status == 200)?;
        self.keys[at] = Some((seed, length));
        Ok(())
    }

    async fn get(&mut self, at: usize) -> io::Result<()> {
        let answer = self.ask("GET", &self.key(at), "", b"").await?;
        let right = match self.keys[at] {
            Some((seed, length)) => answer.status == 200 && answer.body == data(seed, length),
            None => answer.status == 404,
        };
        expect(&answer, right)
    }

    async fn delete(&mut self, at: usize) -> io::Result<()> {
        let answer = self.ask("DELETE", &self.key(at), "", b"").await?;
        self.keys[at] = None;
        expect(&answer, answer.status == 204)
    }

    async fn copy(&mut self, at: usize) -> io::Result<()> {
        let to = (at + 1) % KEYS as usize;
        let fields = format!("x-amz-copy-source: {}\r\n", self.key(at));
        let answer = self.ask("PUT", &self.key(to), &fields, b"").await?;
        let there = self.keys[at].is_some();
        if there {
            self.keys[to] = self.keys[at];
        }
        expect(&answer, answer.status == if there { 200 } else { 404 })
    }

    async fn list(&mut self) -> io::Result<()> {
        let answer = self.ask("GET", &format!("/bucket?prefix={}-", self.number), "", b"").await?;
        let listed = String::from_utf8_lossy(&answer.body).matches("<Key>").count();
        expect(&answer, answer.status == 200 && listed == self.keys.iter().flatten().count())
    }

    async fn get_part(&mut self) -> io::Result<()> {
        let begin = self.random.below(BIG.1 as u64 - 64_000) as usize;
        let end = begin + 64_000;
        let fields = format!("Range: bytes={begin}-{}\r\n", end - 1);
        let answer = self.ask("GET", "/bucket/big", &fields, b"").await?;
        let right = data(BIG.0, end)[begin..] == answer.body;
        expect(&answer, answer.status == 206 && right)
    }

    async fn get_big(&mut self) -> io::Result<()> {
        let answer = self.ask("GET", "/bucket/big", "", b"").await?;
        let right = answer.body == data(BIG.0, BIG.1);
        expect(&answer, answer.status == 200 && right)
    }
}

fn expect(answer: &Answer, right: bool) -> io::Result<()> {
    if right {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)]).into_owned();
    Err(io::Error::other(format!("not what was to be expected: {} {body:?}", answer.head)))
}

/// Makes the data of that number: each block says which it is. It must be cheap, because one thread runs all clients.
pub fn data(seed: u64, length: usize) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let mut block = [seed as u8; BLOCK];
    block[8..16].copy_from_slice(&seed.to_le_bytes());
    let mut bytes = Vec::with_capacity(length + BLOCK);
    for number in 0..length.div_ceil(BLOCK) as u64 {
        block[..8].copy_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&block);
    }
    bytes.truncate(length);
    bytes
}
