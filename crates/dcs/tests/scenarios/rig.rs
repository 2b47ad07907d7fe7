//! Things that all scenarios share: the backends, a watchdog, data, a process of one's own.

use dcs::engine::Builder;
use dcs::{Completion, Driver, Engine, Io, Session, Stage, Status, TransferError};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Bytes of a block in these tests: small, so that little data make many blocks.
pub const BLOCK: usize = 8 * 1024;

/// Time that a scenario may take on one backend before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(100);

/// One backend in one mode.
#[derive(Clone, Debug)]
pub struct Backend {
    pub name: &'static str,
    pub driver: Driver,
    pub io: Io,
}

/// Every backend in every mode. A card is a line more here.
pub const BACKENDS: [Backend; 4] = [
    Backend { name: "kernel, thread, io_uring", driver: Driver::Thread, io: Io::Uring },
    Backend { name: "kernel, thread, plain", driver: Driver::Thread, io: Io::Plain },
    Backend { name: "kernel, caller, io_uring", driver: Driver::Caller, io: Io::Uring },
    Backend { name: "kernel, caller, plain", driver: Driver::Caller, io: Io::Plain },
];

impl Backend {
    /// An engine with small blocks.
    pub fn builder(&self) -> Builder {
        Engine::builder().driver(self.driver).io(self.io).block_size(BLOCK as u32).blocks(160)
    }

    pub fn start(&self) -> Engine {
        self.builder().start().unwrap()
    }

    pub fn has_thread(&self) -> bool {
        self.driver == Driver::Thread
    }

    pub fn has_ring(&self) -> bool {
        self.io == Io::Uring
    }
}

/// The world of a scenario: an engine that must be clean again afterwards.
pub struct Bench {
    pub backend: Backend,
    pub engine: Engine,
    pub session: Session,
}

/// Runs a scenario on every backend, each with a fresh engine. Afterwards the engine must still move bytes,
/// and have everything back that it lent.
pub fn for_each_backend(scenario: impl Fn(&Bench)) {
    for backend in BACKENDS {
        watched(backend.name, || {
            let engine = backend.start();
            let session = engine.session().unwrap();
            let bench = Bench { backend, engine, session };
            scenario(&bench);
            bench.assert_sound();
        });
    }
}

/// Ends the process where `work` does not end: a hung test would say nothing.
pub fn watched<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (done, waiting) = channel::<()>();
    let name = format!("{} ({what})", std::thread::current().name().unwrap_or("?"));
    let dog = std::thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    let result = work();
    drop(done);
    dog.join().unwrap();
    result
}

impl Bench {
    /// One more good transfer works, and nothing was leaked.
    pub fn assert_sound(&self) {
        let bytes = data(3 * BLOCK + 5);
        let done = self.copy(&bytes);
        assert!(done.memory.unwrap() == bytes, "{}", self.backend.name);
        self.assert_nothing_lent();
    }

    /// Memory to memory, through md5.
    pub fn copy(&self, bytes: &[u8]) -> Completion {
        let source = dcs::Source::memory(bytes);
        let sink = dcs::Sink::memory(bytes.len());
        self.session.transfer(source, [dcs::Op::Md5], sink).unwrap().wait().unwrap()
    }

    /// All blocks, slots and units are back, soon.
    pub fn assert_nothing_lent(&self) {
        let idle = || {
            let statistics = self.engine.statistics();
            statistics.is_idle && statistics.blocks_free == statistics.blocks && statistics.transfers == 0
        };
        assert!(
            eventually(idle),
            "{}: something is lent out still: {:?}",
            self.backend.name,
            self.engine.statistics()
        );
    }
}

/// Waits for a condition, up to five seconds.
pub fn eventually(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    condition()
}

/// Bytes that do not repeat and half of which compress.
pub fn data(length: usize) -> Vec<u8> {
    noise(length as u64 + 1, length)
}

/// Bytes by a seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = dcs_testkit::bytes(length, seed);
    bytes.chunks_mut(1000).step_by(2).for_each(|chunk| chunk.fill(b'.'));
    bytes
}

/// A failure as the tests compare it: status, stage, place in the chain, bytes delivered.
pub type Verdict = (Status, Stage, Option<u8>, u64);

pub fn verdict(error: &TransferError) -> Verdict {
    (error.status, error.stage, error.operator.map(|(at, _)| at), error.completion.bytes_out)
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn skip(what: &str, why: &str) {
    println!("skipped: {what}: {why}");
}

/// Runs a system tool; tells its output, or what went wrong.
pub fn tool(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
}

const ALONE: &str = "DCS_SCENARIO_ALONE";

/// Runs the body of the test of this name in a process of its own, where it may count descriptors, measure
/// the processor and change limits.
pub fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).to_string());
    print!("{}{}", said[0], said[1]);
    assert!(child.status.success(), "{test}: {}", child.status);
    assert!(said[0].contains("1 passed"), "{test} is not the name of a test");
}

/// Open descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The targets of its open descriptors.
pub fn open_files() -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect()
}
