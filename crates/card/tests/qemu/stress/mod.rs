//! Stress: other programs truncate, punch, extend, overwrite, map, move, share, merge and delete files while the card reads and writes
//! them, from and to memory, other files and a network.
//!
//! Every 512 bytes of every file name their file, their position in it, and the time of their writing. No byte of another file may come out
//! of a file, and none may get into one.

mod disturb;
mod pool;
mod tally;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dcs::card::extents;
use dcs::{Op, Session, Sink, Source, TransferError};

use self::pool::{Entry, FILE_MAX, FILES, PAGE, Pool, SECTOR, look, pages, sectors, versions};
use self::tally::Tally;
use crate::files::{EXT4, XFS, create, engine};
use crate::wire::{self, Line, Wire};
use dcs_testkit::Random;

/// Steps that must occur on each file system, and on one that shares blocks.
const DONE: [&str; 7] =
    ["read", "written", "copied", "sent", "received", "defragmented", "mapped and written"];
const SHARING: [&str; 2] = ["shared", "merged"];

/// Pause of a peer.
const PAUSE: Duration = Duration::from_secs(3);

/// Most reads of a file that others write to, until each of its sectors is whole.
const READS_MAX: usize = 10;

#[test]
#[ignore = "runs in the guest of whatever_others_do_to_files_the_card_touches_no_other_file"]
fn the_stress_in_the_guest() {
    let seconds: u64 = std::env::var("DCS_FILES_SECONDS").unwrap().parse().unwrap();
    // Others wait for an eighth of that, less than peers pause; the card has three quarters to release a file.
    std::fs::write("/proc/sys/fs/lease-break-time", "16").unwrap();
    let engine = engine();
    let wire = Wire::new(&engine);
    for folder in [EXT4, XFS] {
        let pool = Pool::new(folder.into());
        let tally = Tally::default();
        // These are never touched.
        let bystanders: Vec<u64> = (0..8).map(|at| 1 << 32 | at).collect();
        for number in &bystanders {
            std::fs::write(pool.path(*number), sectors(*number, 0, FILE_MAX / 2, 7)).unwrap();
        }
        let mut chance = Random(0x5eed);
        (0..FILES / 2).for_each(|_| pool.new_file(&mut chance));
        let end = Instant::now() + Duration::from_secs(seconds) / 2;
        let goes_on = || {
            let done = tally.has_all(&DONE) && (folder != XFS || tally.has_all(&SHARING));
            Instant::now() < end || !done
        };
        std::thread::scope(|scope| {
            for seed in 1..=3u64 {
                let session = engine.session().unwrap();
                let (pool, tally, wire, goes_on) = (&pool, &tally, &wire, &goes_on);
                let mut chance = Random(seed << 40);
                scope.spawn(move || {
                    let mut line = None;
                    while goes_on() {
                        let what = chance.below(6);
                        let mut user = User { session: &session, pool, tally, chance: &mut chance };
                        tally.add("rounds");
                        match what {
                            0 => user.write(),
                            1 => user.receive(wire, &mut line),
                            2 | 3 => user.send(wire, &mut line),
                            _ => user.read(),
                        }
                    }
                });
            }
            for seed in 1..=2u64 {
                let (pool, tally, goes_on) = (&pool, &tally, &goes_on);
                scope.spawn(move || {
                    let mut chance = Random(seed << 20);
                    while goes_on() {
                        disturb::disturb(pool, &mut chance, tally);
                    }
                });
            }
            scope.spawn(|| say(&tally, &goes_on));
        });
        look_at_all(&pool, &bystanders);
        println!("@{folder}: {tally}");
    }
    drop((wire, engine));
    println!("@guest's end");
}

/// Prints every minute what was done so far.
fn say(tally: &Tally, goes_on: &impl Fn() -> bool) {
    let mut last = Instant::now();
    while goes_on() {
        std::thread::sleep(Duration::from_millis(200));
        if last.elapsed() >= Duration::from_secs(60) {
            last = Instant::now();
            println!("so far: {tally}");
        }
    }
}

/// Checks that all files contain only their own bytes, read from the disk, not from the kernel's cache.
fn look_at_all(pool: &Pool, bystanders: &[u64]) {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    for entry in pool.all() {
        let bytes = std::fs::read(pool.path(entry.number)).unwrap();
        versions(&bytes[..bytes.len() / SECTOR * SECTOR], entry.whose, 0, "afterwards");
    }
    for number in bystanders {
        let bytes = std::fs::read(pool.path(*number)).unwrap();
        assert!(bytes == sectors(*number, 0, FILE_MAX / 2, 7), "an untouched file");
    }
}

/// A user of the card.
struct User<'a> {
    session: &'a Session,
    pool: &'a Pool,
    tally: &'a Tally,
    chance: &'a mut Random,
}

impl User<'_> {
    /// Reads a part of a file to memory.
    fn read(&mut self) {
        let Some((entry, file, begin, length)) = self.part() else { return };
        let source = Source::file(&file, begin..begin + length);
        match self.session.transfer(source, [Op::Crc32c], Sink::memory(length as usize)).unwrap().wait() {
            Ok(done) => {
                versions(&done.memory.unwrap(), entry.whose, begin, "read by the card");
                self.tally.add("read");
            }
            Err(error) => self.tally.failed("read", &error),
        }
    }

    /// Sends a part of a file to a peer, which checks what it receives.
    fn send(&mut self, wire: &Wire, line: &mut Option<Line>) {
        let Some((entry, file, begin, length)) = self.part() else { return };
        let Line { card, peer } = line.take().unwrap_or_else(|| wire.connect());
        let source = Source::file(&file, begin..begin + length);
        let request = self.session.request(source, [Op::Crc32c], Sink::connection(&card));
        let (acknowledged, pause) = (self.chance.below(2) == 0, self.pause());
        let transfer = if acknowledged { request.acknowledged() } else { request }.submit().unwrap();
        let (got, done) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| wire::take(&peer, length, pause));
            // A stream that was cut goes no further: the connection is reset where it failed.
            let done = transfer.wait().map(|_| card);
            (reader.join().unwrap(), done)
        });
        let whole = &got[..got.len() / SECTOR * SECTOR];
        versions(whole, entry.whose, begin, "sent by the card");
        match done {
            Ok(card) => {
                assert_eq!(got.len() as u64, length, "every byte that was sent comes to the peer");
                *line = Some(Line { card, peer });
                self.tally.add("sent");
            }
            Err(error) => self.tally.failed("send", &error),
        }
    }

    /// Writes memory or another file to a file.
    fn write(&mut self) {
        let copied = self.pool.any(self.chance).filter(|_| self.chance.below(2) == 0);
        let from = copied.and_then(|entry| Some((File::open(self.pool.path(entry.number)).ok()?, entry)));
        let length = match &from {
            Some((file, _)) => file.metadata().map_or(0, |metadata| metadata.len()) / PAGE * PAGE,
            None => pages(self.chance, FILE_MAX) + PAGE,
        };
        let whose = from.as_ref().map(|(_, entry)| entry.whose);
        let Some((entry, file)) = self.destination(whose, length) else { return };
        let source = match &from {
            Some((from, _)) => Source::file(from, ..length),
            None => Source::memory(sectors(entry.whose, 0, length, entry.number)),
        };
        let done = self.session.transfer(source, [Op::Md5], Sink::file(&file, 0)).unwrap().wait();
        let what = if from.is_some() { "copied" } else { "written" };
        self.written(what, &entry, &file, length, done.map(drop));
    }

    /// Receives a peer's bytes into a file.
    fn receive(&mut self, wire: &Wire, line: &mut Option<Line>) {
        let length = pages(self.chance, FILE_MAX) + PAGE;
        let Some((entry, file)) = self.destination(None, length) else { return };
        let Line { card, peer } = line.take().unwrap_or_else(|| wire.connect());
        let bytes = sectors(entry.whose, 0, length, entry.number);
        let request = self.session.request(Source::connection(&card), [Op::Md5], Sink::file(&file, 0));
        let transfer = request.length(length).submit().unwrap();
        let pause = self.pause();
        let done = std::thread::scope(|scope| {
            let writer = scope.spawn(|| wire::give(&peer, &bytes, pause));
            // Bytes that the card did not take are lost with the connection.
            let done = transfer.wait().map(|_| card);
            let sent = writer.join().unwrap();
            done.inspect(|_| sent.unwrap())
        });
        let done = done.map(|card| *line = Some(Line { card, peer }));
        self.written("received", &entry, &file, length, done);
    }

    /// Returns the pause of a peer: usually none, sometimes long enough for another program to want the file.
    fn pause(&mut self) -> Duration {
        if self.chance.below(8) == 0 { PAUSE } else { Duration::ZERO }
    }

    /// Chooses a part of a file, sometimes beyond its end.
    fn part(&mut self) -> Option<(Entry, File, u64, u64)> {
        let entry = self.pool.any(self.chance)?;
        let file = File::open(self.pool.path(entry.number)).ok()?;
        let size = file.metadata().map_or(0, |metadata| metadata.len()) / SECTOR as u64;
        let begin = self.chance.below(size);
        let rest = if self.chance.below(16) == 0 { size } else { size - begin };
        let length = self.chance.below(rest) + 1;
        Some((entry, file, begin * SECTOR as u64, length * SECTOR as u64))
    }

    /// Makes a new file for the card to write, which others can choose from now on.
    fn destination(&mut self, whose: Option<u64>, length: u64) -> Option<(Entry, File)> {
        if self.pool.is_full() {
            let entry = self.pool.any(self.chance)?;
            self.pool.remove(entry.number);
            return None;
        }
        let number = self.pool.number();
        let file = create(&self.pool.path(number));
        let entry = self.pool.add(number, whose.unwrap_or(number));
        if length == 0 || extents::prepare(&file, length).is_err() {
            self.pool.remove(number);
            return None;
        }
        Some((entry, file))
    }

    /// Checks a file that the card has written, or failed to write.
    fn written(&self, what: &str, entry: &Entry, file: &File, length: u64, done: Result<(), TransferError>) {
        if let Err(error) = done {
            self.tally.failed(what, &error);
            return self.pool.remove(entry.number);
        }
        let mut bytes = vec![0; length as usize];
        let mut all = file.read_exact_at(&mut bytes, 0).is_ok();
        let untouched = entry.touched.load(Ordering::SeqCst) == 0;
        for _ in 0..READS_MAX {
            // ext4 lets one read what another is writing, half of it in one version and half in the next. Wrong bytes on the disk stay
            // wrong.
            let Err(wrong) = look(&bytes, entry.whose, 0) else { break };
            assert!(!untouched, "{what} by the card: {wrong}");
            println!("{what}, and read while it was written to: {wrong}");
            self.tally.add("read while it was written to");
            all = file.read_exact_at(&mut bytes, 0).is_ok();
        }
        let found = versions(&bytes, entry.whose, 0, &format!("{what} by the card"));
        if untouched {
            let right = |version: &Option<u64>| what == "copied" || *version == Some(entry.number);
            assert!(all && found.iter().all(right), "what was {what} is not what is read");
        }
        self.tally.add(what);
    }
}
