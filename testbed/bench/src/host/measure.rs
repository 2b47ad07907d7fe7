//! One run of one contender: server, client and hogs in separate processes, a round to check, a round to measure.

use super::contender::Contender;
use super::contenders::PYTHON;
use super::data::{Data, is_small};
use super::job::Job;
use super::protocol::{
    Account, ClientRound, ClientTask, Extent, Item, Listening, Piece, Round, Serve, Signal, StreamAccount,
};
use super::verify;
use crate::harness::contender::Named;
use crate::harness::cores::stay_on;
use crate::harness::counters::Counted;
use crate::harness::data::Direction;
use crate::harness::figures::Marks;
use crate::harness::load::Setting;
use crate::harness::process::Helper;
use std::io;
use std::process::{Child, Command, Stdio};

/// Bytes of the objects that are checked in all repetitions but the first: not a whole number of blocks.
const SHORT_OBJECT: u64 = (256 << 10) + 13;
pub const SERVER: &str = "bench-server";
pub const CLIENT: &str = "bench-client";
pub const HOG: &str = "bench-hog";
pub const MEMORY_HOG: &str = "bench-memory-hog";
/// Bytes that a memory hog goes through: several times a last level of cache.
const MEMORY_HOG_BYTES: usize = 512 << 20;
const CACHE_LINE: usize = 64;

/// Set-up that is the same for all contenders and repetitions.
pub struct Scenario<'a> {
    pub job: Job,
    pub data: &'a Data,
    pub streams: usize,
    pub hogs: usize,
    pub memory_hogs: usize,
    pub counters: bool,
    pub open_once: bool,
    pub setting: Setting,
}

/// Results of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub marks: Marks,
    /// Output bytes per input byte.
    pub output_ratio: f64,
    pub size: u64,
    /// Latencies in microseconds, sorted.
    pub latency_us: Vec<f32>,
    pub library: String,
    pub counted: Option<Counted>,
}

/// A process that only spins, or takes memory bandwidth, until this is dropped.
struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hidden subcommand of a hog.
pub fn hog(cores: &[usize]) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    stay_on(cores)?;
    let mut state = 1u64;
    loop {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// The hidden subcommand of a hog of memory: writes to a byte of each cache line, again and again.
pub fn memory_hog(cores: &[usize]) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    stay_on(cores)?;
    let mut memory = vec![1u8; MEMORY_HOG_BYTES];
    loop {
        memory.iter_mut().step_by(CACHE_LINE).for_each(|byte| *byte = byte.wrapping_add(1));
        std::hint::black_box(&mut memory);
    }
}

impl Scenario<'_> {
    pub fn is_small(&self) -> bool {
        is_small(self.data.pool.size)
    }

    /// Runs a contender once. `whole`: checks whole objects, not only their beginnings.
    pub fn run(&self, contender: Contender, streams: &[Vec<Item>], whole: bool) -> io::Result<Run> {
        let receives = self.job.direction == Direction::Receive;
        if receives {
            self.data.blank_copies()?;
        } else if self.setting.cold {
            self.data.drop_from_page_cache()?;
        }
        let mut server = self.start_server(contender, streams)?;
        let Listening { address, library } = server.hear()?;
        let task = ClientTask {
            address,
            job: self.job.clone(),
            streams: streams.iter().map(|items| items.iter().map(piece).collect()).collect(),
            pool: Some(self.data.pool.path.clone()),
            server_pid: server.pid(),
            cores: self.setting.client_cores.clone(),
        };
        let mut client = Helper::start(CLIENT, &task)?;
        let length = if whole { self.data.pool.size } else { self.data.pool.size.min(SHORT_OBJECT) };
        self.check(contender, streams, length, &mut server, &mut client)?;
        if self.setting.cold && !receives {
            self.data.drop_from_page_cache()?;
        }
        let (marks, account) = self.measure(&mut server, &mut client)?;
        if receives && self.job.keeps_length() {
            // Checks the last objects of the measured round.
            let checked = streams.iter().zip(&account.streams);
            for (items, stream) in checked.filter(|(_, stream)| stream.objects > 0) {
                let item = &items[(stream.objects as usize - 1) % items.len()];
                let known = if item.expected.is_empty() { &stream.digests } else { &item.expected };
                self.check_file(contender, item, &std::fs::read(&item.path)?, self.data.pool.size, known)?;
            }
        }
        let sum = |bytes: fn(&StreamAccount) -> u64| account.streams.iter().map(bytes).sum::<u64>();
        let (bytes_in, bytes_out) = (sum(|stream| stream.bytes_in), sum(|stream| stream.bytes_out));
        let (mut latency_us, counted) = (account.latency_us, account.counted);
        latency_us.sort_by(f32::total_cmp);
        let output_ratio = bytes_out as f64 / bytes_in.max(1) as f64;
        Ok(Run { marks, output_ratio, size: self.data.pool.size, latency_us, library, counted })
    }

    fn start_server(&self, contender: Contender, streams: &[Vec<Item>]) -> io::Result<Helper> {
        let serve = Serve {
            contender,
            job: self.job.clone(),
            streams: streams.to_vec(),
            open_once: self.open_once,
            cold: self.setting.cold,
            small: self.is_small(),
            same_operators: false,
            counters: self.counters,
            cores: self.setting.server_cores.clone(),
        };
        if contender != Contender::Python {
            return Helper::start(SERVER, &serve);
        }
        let mut helper = Helper::spawn(Command::new("python3").args(["-c", PYTHON]))?;
        helper.tell(&serve)?;
        Ok(helper)
    }

    /// Moves one object for each stream, on separate connections, and checks every byte and digest.
    fn check(
        &self,
        contender: Contender,
        streams: &[Vec<Item>],
        length: u64,
        server: &mut Helper,
        client: &mut Helper,
    ) -> io::Result<()> {
        let folder = self.data.folder.join("stored");
        std::fs::create_dir_all(&folder)?;
        let store = (self.job.direction == Direction::Send).then(|| folder.clone());
        let extent = Extent::First;
        client.tell(&ClientRound { length, extent, store, warm_s: 0.0, measure_s: 0.0 })?;
        server.tell(&Round { length, extent })?;
        let account: Account = server.hear()?;
        let over_the_wire: u64 = client.hear()?;
        agree(self.job.direction, &account, over_the_wire)?;
        for (number, (items, stream)) in streams.iter().zip(&account.streams).enumerate() {
            let delivered = match self.job.direction {
                Direction::Send => std::fs::read(folder.join(number.to_string()))?,
                Direction::Receive => {
                    let mut copy = std::fs::read(&items[0].path)?;
                    copy.truncate(stream.bytes_out as usize);
                    copy
                }
            };
            self.check_file(contender, &items[0], &delivered, length, &stream.digests)?;
        }
        Ok(())
    }

    fn check_file(
        &self,
        contender: Contender,
        item: &Item,
        delivered: &[u8],
        length: u64,
        digests: &[String],
    ) -> io::Result<()> {
        let original = &self.data.pool.object(item.offset)[..length as usize];
        let mut job = self.job.clone();
        if !contender.does_the_chain() {
            job.chain.clear();
        }
        match verify::object(&job, original, delivered, digests)? {
            None => Ok(()),
            Some(wrong) => {
                let text =
                    format!("{} delivered a wrong object at {length} bytes: {wrong}", contender.name());
                Err(io::Error::other(text))
            }
        }
    }

    fn measure(&self, server: &mut Helper, client: &mut Helper) -> io::Result<(Marks, Account)> {
        let mut hogs = Vec::new();
        for _ in 0..self.hogs {
            hogs.push(start_hog(HOG, &self.setting.server_cores)?);
        }
        for core in self.setting.client_cores.iter().rev().cycle().take(self.memory_hogs) {
            hogs.push(start_hog(MEMORY_HOG, &[*core])?);
        }
        let (length, extent) = (self.data.pool.size, Extent::UntilStopped);
        let (warm_s, measure_s) = (self.setting.warm_s, self.setting.measure_s);
        client.tell(&ClientRound { length, extent, store: None, warm_s, measure_s })?;
        server.tell(&Round { length, extent })?;
        client.hear::<()>()?;
        server.tell(&Signal::Begin)?;
        let marks: Marks = client.hear()?;
        server.tell(&Signal::End)?;
        server.tell(&Signal::Stop)?;
        drop(hogs);
        let account: Account = server.hear()?;
        let over_the_wire: u64 = client.hear()?;
        agree(self.job.direction, &account, over_the_wire)?;
        if marks.bytes == 0 {
            let text = format!("no data moved in {:.1} s: use a longer --seconds", marks.wall_s);
            return Err(io::Error::other(text));
        }
        Ok((marks, account))
    }
}

fn start_hog(name: &str, cores: &[usize]) -> io::Result<Hog> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(name).args(cores.iter().map(ToString::to_string));
    Ok(Hog(command.stdin(Stdio::null()).spawn()?))
}

fn piece(item: &Item) -> Piece {
    Piece { file: None, offset: item.offset, length: item.length }
}

/// Checks that the server and the client saw the same bytes.
pub fn agree(direction: Direction, account: &Account, over_the_wire: u64) -> io::Result<()> {
    let side = match direction {
        Direction::Send => |stream: &StreamAccount| stream.bytes_out,
        Direction::Receive => |stream: &StreamAccount| stream.bytes_in,
    };
    let told: u64 = account.streams.iter().map(side).sum();
    let wrong: u64 = account.streams.iter().map(|stream| stream.wrong).sum();
    if told != over_the_wire {
        let text = format!("{told} bytes were reported, but {over_the_wire} went over the wire");
        return Err(io::Error::other(text));
    }
    if wrong > 0 {
        return Err(io::Error::other(format!("{wrong} objects had wrong digests")));
    }
    Ok(())
}
