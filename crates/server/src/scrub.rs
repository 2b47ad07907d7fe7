//! Reads objects as a reader would, to find those whose data are not what was put before a reader does.
//!
//! ```text
//!   record ---> data > [decrypt] > [decompress] > md5, as expected > nowhere
//!      ^                                                    |
//!      +---- quarantined, or released, if it is still the same record
//! ```
//!
//! The digest is of the plain data; the file's own bytes have none. If an object's key is not available (SSE-C, or
//! SSE-S3 without the master key), only the file's length can be checked.

use crate::encryption::{EncryptionHeaders, Keys, ObjectName};
use crate::store::record::{Object, Segment};
use crate::store::{Store, StoreError};
use crate::transfers::{Data, DataPath, DataPathError, Piece, plain};
use dcs::{Op, Operator, Sink, Status};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

/// Reason why the scrub could not finish.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    /// The records can't be read or changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sink for the data could not be made.
    #[error("/dev/null: {0}")]
    Nowhere(io::Error),
    /// The engine does not take commands any more.
    #[error(transparent)]
    Engine(DataPathError),
}

/// State of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The data are those that were put.
    Sound,
    /// The files have the right lengths. Nothing more can be known, for this reason.
    Unchecked(String),
    /// The data differ from what was put, as this shows.
    Damaged(String),
    /// A data file is missing.
    Missing(String),
    /// A data file has another length.
    WrongLength(String),
    /// The disk does not return the data. That may pass, so the object is not quarantined.
    Unreadable(String),
}

impl Verdict {
    /// Returns its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Sound => "sound",
            Verdict::Unchecked(_) => "unchecked",
            Verdict::Damaged(_) => "damaged",
            Verdict::Missing(_) => "missing",
            Verdict::WrongLength(_) => "wrong-length",
            Verdict::Unreadable(_) => "unreadable",
        }
    }

    /// Returns its details.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Verdict::Sound => None,
            Verdict::Unchecked(why)
            | Verdict::Damaged(why)
            | Verdict::Missing(why)
            | Verdict::WrongLength(why)
            | Verdict::Unreadable(why) => Some(why),
        }
    }

    /// Returns true if the object can't be read as it was put.
    pub fn is_bad(&self) -> bool {
        !matches!(self, Verdict::Sound | Verdict::Unchecked(_))
    }

    /// Returns true if that will not pass.
    fn is_lasting(&self) -> bool {
        self.is_bad() && !matches!(self, Verdict::Unreadable(_))
    }
}

/// Action taken on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// Quarantined: readers get an error at once from now on.
    Quarantined,
    /// Left in quarantine.
    Kept,
    /// Released from quarantine: it is sound and can be read again.
    Released,
}

impl Action {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Action::None => "none",
            Action::Quarantined => "quarantined",
            Action::Kept => "kept",
            Action::Released => "released",
        }
    }
}

/// An object that was checked.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Bucket of the object.
    pub bucket: String,
    /// Key of the object.
    pub key: String,
    /// Bytes of the plain data.
    pub size: u64,
    /// State of the object.
    pub verdict: Verdict,
    /// Action taken on it.
    pub action: Action,
}

impl Checked {
    /// Returns true if it must be reported.
    pub fn is_finding(&self) -> bool {
        self.verdict.is_bad() || self.action != Action::None
    }

    /// Returns true if the object can't be read as it was put.
    pub fn is_bad(&self) -> bool {
        self.verdict.is_bad() || self.action == Action::Kept
    }
}

/// Numbers of objects by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All objects.
    pub objects: u64,
    /// Bytes of their plain data.
    pub bytes: u64,
    /// Objects that are [`Verdict::Unchecked`].
    pub unchecked: u64,
    /// Objects that can't be read as they were put.
    pub bad: u64,
    /// Objects that were [`Action::Quarantined`].
    pub quarantined: u64,
    /// Objects that were [`Action::Released`].
    pub released: u64,
}

impl Tally {
    /// Counts an object.
    pub fn add(&mut self, checked: &Checked) {
        self.objects += 1;
        self.bytes += checked.size;
        self.unchecked += u64::from(matches!(checked.verdict, Verdict::Unchecked(_)));
        self.bad += u64::from(checked.is_bad());
        self.quarantined += u64::from(checked.action == Action::Quarantined);
        self.released += u64::from(checked.action == Action::Released);
    }
}

/// Checks the objects of a store.
pub struct Scrub {
    /// Store of the objects.
    pub store: Arc<Store>,
    /// Data path that reads them.
    pub path: Arc<DataPath>,
    /// Keys of encrypted objects.
    pub keys: Keys,
    /// Objects checked at the same time.
    pub in_flight: usize,
    /// Most bytes a second, if others need room.
    pub rate: Option<u64>,
    /// True if nothing is to be changed.
    pub dry_run: bool,
}

/// Quarantines an object with wrong data, so that readers get an error, if this segment is still one of its own.
pub(crate) async fn quarantine(store: &Store, bucket: &str, key: &str, segment: u64, reason: String) {
    match store.quarantine(bucket, key, segment, reason.clone()).await {
        Ok(true) => tracing::error!(bucket, key, reason, "an object is quarantined"),
        Ok(false) => tracing::debug!(bucket, key, "a damaged object was replaced meanwhile"),
        Err(error) => tracing::error!(bucket, key, %error, "a damaged object could not be quarantined"),
    }
}

/// Records read at a time: each may have ten thousand segments.
const PAGE: usize = 32;

impl Scrub {
    /// Checks every object, and reports each.
    ///
    /// # Errors
    ///
    /// [`ScrubError`] if not all objects were checked.
    pub async fn run(self, mut each: impl FnMut(&Checked)) -> Result<Tally, ScrubError> {
        let pass = Arc::new(Pass {
            nowhere: File::options().write(true).open("/dev/null").map_err(ScrubError::Nowhere)?,
            pace: self.rate.map(Pace::new),
            scrub: self,
        });
        let mut tally = Tally::default();
        let mut report = |checked: Checked| {
            tally.add(&checked);
            each(&checked);
        };
        let mut under_way = JoinSet::new();
        let mut after = None;
        loop {
            pass.scrub.store.settle().await?;
            let page = pass.scrub.store.objects_after(after.take(), PAGE)?;
            let Some((bucket, key, _)) = page.last() else { break };
            after = Some((bucket.clone(), key.clone()));
            for (bucket, key, object) in page {
                while under_way.len() >= pass.scrub.in_flight.max(1)
                    && let Some(done) = under_way.join_next().await
                {
                    report(joined(done)?);
                }
                under_way.spawn(pass.clone().check(bucket, key, object));
            }
        }
        while let Some(done) = under_way.join_next().await {
            report(joined(done)?);
        }
        Ok(tally)
    }
}

fn joined(done: Result<Result<Checked, ScrubError>, tokio::task::JoinError>) -> Result<Checked, ScrubError> {
    // Nobody aborts the tasks while they are awaited.
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Returns the result for an object of which only the name can be read. Nothing can be done: readers get an error
/// anyway.
fn unreadable(bucket: String, key: String, why: &StoreError) -> Checked {
    Checked { bucket, key, size: 0, verdict: Verdict::Damaged(why.to_string()), action: Action::None }
}

struct Pass {
    scrub: Scrub,
    nowhere: File,
    pace: Option<Pace>,
}

impl Pass {
    async fn check(
        self: Arc<Self>,
        bucket: String,
        key: String,
        record: Result<Object, StoreError>,
    ) -> Result<Checked, ScrubError> {
        let store = &self.scrub.store;
        let mut object = match record {
            Ok(object) => object,
            Err(why) => return Ok(unreadable(bucket, key, &why)),
        };
        let verdict = loop {
            let verdict = self.verdict(ObjectName { bucket: &bucket, key: &key }, &object).await?;
            if !verdict.is_bad() {
                break verdict;
            }
            // An object that was replaced meanwhile is gone for a good reason.
            match store.object(&bucket, &key) {
                Ok(Some(now)) if now.segments == object.segments => break verdict,
                Ok(Some(now)) => object = now,
                Ok(None) => break Verdict::Sound,
                Err(why @ StoreError::Damaged(_)) => return Ok(unreadable(bucket, key, &why)),
                Err(error) => return Err(error.into()),
            }
        };
        let action = self.act(&bucket, &key, &object, &verdict).await?;
        Ok(Checked { bucket, key, size: object.size, verdict, action })
    }

    async fn act(
        &self,
        bucket: &str,
        key: &str,
        object: &Object,
        verdict: &Verdict,
    ) -> Result<Action, ScrubError> {
        let store = &self.scrub.store;
        match (&object.quarantined, verdict) {
            (None, verdict) if verdict.is_lasting() && !self.scrub.dry_run => {
                let Some(segment) = object.segments.first() else { return Ok(Action::None) };
                let reason = format!("{}: {}", verdict.name(), verdict.reason().unwrap_or_default());
                let done = store.quarantine(bucket, key, segment.id, reason).await?;
                Ok(if done { Action::Quarantined } else { Action::None })
            }
            (None, _) => Ok(Action::None),
            (Some(_), Verdict::Sound) if !self.scrub.dry_run => {
                let segments = object.segments.clone();
                let release = move |now: &mut Object| {
                    if now.segments == segments {
                        now.quarantined = None;
                    }
                };
                match store.change_object(bucket, key, release).await {
                    // The object was deleted, so nothing is left to release.
                    Err(StoreError::NoSuchKey | StoreError::NoSuchBucket) => Ok(Action::None),
                    done => Ok(done.map(|()| Action::Released)?),
                }
            }
            (Some(_), _) => Ok(Action::Kept),
        }
    }

    async fn verdict(&self, place: ObjectName<'_>, object: &Object) -> Result<Verdict, ScrubError> {
        let key = self.scrub.keys.for_old(place, &object.at_rest, &EncryptionHeaders::default());
        let mut unchecked = None;
        for segment in &object.segments {
            let (store, of) = (self.scrub.store.clone(), segment.clone());
            // Opening waits for the disk.
            let opened = tokio::task::spawn_blocking(move || store.open_on_disk(&of)).await;
            let data = match opened.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
                Ok(opened) => Data::from(opened),
                Err(StoreError::NotFound) => {
                    return Ok(Verdict::Missing(format!("{segment} is not there")));
                }
                Err(StoreError::Damaged(why)) => return Ok(Verdict::WrongLength(why)),
                Err(error) => return Ok(Verdict::Unreadable(error.to_string())),
            };
            let key = match &key {
                Ok(key) => key.as_ref(),
                Err(why) => {
                    unchecked = Some(why.message().unwrap_or("its key is not available").to_string());
                    continue;
                }
            };
            let mut chain = plain(object.at_rest.compression, key, segment.id, 0);
            chain.push(Op::Expect { digest: Operator::Md5, value: segment.md5.to_vec() });
            let piece =
                Piece { data, segment: segment.id, range: 0..segment.stored, chain, length: segment.size };
            if let Some(verdict) = self.read(segment, &piece).await? {
                return Ok(verdict);
            }
        }
        Ok(unchecked.map_or(Verdict::Sound, Verdict::Unchecked))
    }

    /// Reads a segment. Returns its damage, if there is any.
    async fn read(&self, segment: &Segment, piece: &Piece) -> Result<Option<Verdict>, ScrubError> {
        let passed = match &self.pace {
            None => self.scrub.path.pass(piece, Sink::fd(&self.nowhere)).await,
            Some(pace) => self.read_slowly(pace, piece).await,
        };
        match passed {
            Ok(passed) if passed == segment.size => Ok(None),
            Ok(passed) => {
                let why = format!("{segment} gives {passed} bytes, not {}", segment.size);
                Ok(Some(Verdict::Damaged(why)))
            }
            Err(error) if error.is_damage() => Ok(Some(Verdict::Damaged(format!("{segment}: {error}")))),
            // The file was shortened while it was read.
            Err(error) if error.status() == Some(Status::EndOfSource) => {
                Ok(Some(Verdict::WrongLength(format!("{segment}: {error}"))))
            }
            Err(error) if error.status() == Some(Status::ReadError) => {
                Ok(Some(Verdict::Unreadable(format!("{segment}: {error}"))))
            }
            Err(error) => Err(ScrubError::Engine(error)),
        }
    }

    /// Reads at the pace at which the data are taken, so that the engine never has more than a socket holds.
    async fn read_slowly(&self, pace: &Pace, piece: &Piece) -> Result<u64, DataPathError> {
        let (from, to) = UnixStream::pair()?;
        from.set_nonblocking(true)?;
        to.set_nonblocking(true)?;
        let mut to = tokio::net::UnixStream::from_std(to)?;
        let send = async {
            let passed = self.scrub.path.pass(piece, Sink::socket(&from)).await;
            // Ends the data, which the reader is waiting for.
            from.shutdown(std::net::Shutdown::Both)?;
            passed
        };
        let take = async {
            let mut room = vec![0; 64 << 10];
            loop {
                match to.read(&mut room).await? {
                    0 => return Ok::<(), io::Error>(()),
                    read => pace.wait(read as u64).await,
                }
            }
        };
        let (sent, taken) = tokio::join!(send, take);
        taken.map_err(DataPathError::from).and(sent)
    }
}

/// Rate in bytes a second, shared by all readers.
struct Pace {
    rate: u64,
    next: Mutex<Instant>,
}

impl Pace {
    fn new(rate: u64) -> Pace {
        Pace { rate: rate.max(1), next: Mutex::new(Instant::now()) }
    }

    /// Waits until this many more bytes may be read.
    async fn wait(&self, bytes: u64) {
        let until = {
            let mut next = self.next.lock().expect("no code that holds it panics");
            let begin = (*next).max(Instant::now());
            *next = begin + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
            *next
        };
        tokio::time::sleep_until(until.into()).await;
    }
}
