//! One stream: a file on its way through a chain into a socket, over any number of the program's calls.

use crate::patience::{CHECK_INTERVAL_MS, Patience};
use crate::record::Record;
use crate::staging::Staging;
use crate::sys::{self, Errno, Identity};
use crate::units::{Permit, Pipes, Units};
use dcs::{Completion, Op, Operator, Sink, Source, Transfer, TransferError};
use dcs_preload_rules::{Chain, Step};
use libc::c_int;
use serde_json::{Map, Value, json};

/// Rounds of work if callers drive the engine, and the wait afterwards for the kernel's work on it.
const ROUNDS: usize = 64;
const PAUSE_MS: c_int = 1;

/// Least room that counts: less is a page that is not free yet.
const ROOM_MIN: usize = 4096;

/// Bytes of a block of AES.
const AES_BLOCK: u64 = 16;

/// Key and first counter block of a file.
pub type Cipher = ([u8; 32], [u8; 16]);

/// Arguments for beginning a stream.
pub struct StreamOptions<'a> {
    pub file: Identity,
    /// Offset at which the program begins, and the end of the file.
    pub at: u64,
    pub end: u64,
    pub chain: &'a Chain,
    pub cipher: Option<Cipher>,
    /// Fields for the log.
    pub about: Map<String, Value>,
}

/// A stream.
pub struct Stream {
    file: Identity,
    about: Map<String, Value>,
    resizes: bool,
    changes: bool,
    pipes: Pipes,
    /// Bytes that came out and that a blocking socket has not taken yet.
    staged: Option<Staging>,
    transfer: Progress,
    patience: Patience,
    place: Permit,
    /// Offset of the first byte that the chain gets, and of the end.
    first: u64,
    end: u64,
    /// Offset up to which the chain was fed, and up to which the program was told.
    fed: u64,
    reported: u64,
    /// Leading output bytes that are not the program's, if it begins inside of a cipher's block.
    skip: usize,
    /// Bytes that the socket took.
    sent: u64,
}

/// A transfer, or its result.
enum Progress {
    Running(Transfer),
    Done(Result<Completion, TransferError>),
    /// Placeholder while the state is being replaced.
    Between,
}

/// Result of a call.
pub struct Carried {
    /// Bytes of the file.
    pub bytes: usize,
    pub stop: Stop,
}

/// Reason why the call went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything was sent, or as much as the file or the socket had.
    Enough,
    /// An error for the program.
    Errno(Errno),
    /// The transfer failed, or the engine makes no progress.
    Engine,
}

/// Result of delivering to a socket.
struct Delivered {
    bytes: usize,
    /// True if the socket took less than it was given.
    is_short: bool,
}

/// Result of one splice of the file.
enum Fed {
    All,
    /// The pipe is full.
    Some,
    /// The file has no more bytes.
    End,
}

/// Result of feeding.
enum Feed {
    Yes,
    /// The file is shorter than it was.
    Shrunk,
    Failed(Errno),
}

impl Stream {
    /// Begins a transfer. Nothing is fed yet.
    pub fn begin(units: &Units, beginning: StreamOptions<'_>) -> Result<Stream, String> {
        let StreamOptions { file, at, end, chain, cipher, about } = beginning;
        let skip = if chain.decrypts() { at % AES_BLOCK } else { 0 };
        let first = at - skip;
        let (place, pipes) = (units.place()?, units.pipes()?);
        let ops = chain.steps().iter().map(|step| operator(*step, cipher, first)).collect::<Option<Vec<_>>>();
        let ops = ops.ok_or("there is no key")?;
        let (source, sink) = (Source::handle(&pipes.source, ..), Sink::handle(&pipes.sink, 0));
        let request = place.session().request(source, ops, sink).length(end - first);
        let transfer = request.submit().map_err(|error| error.to_string())?;
        let (resizes, changes, skip) = (chain.resizes(), !chain.keeps_data(), skip as usize);
        Ok(Stream {
            file,
            about,
            resizes,
            changes,
            pipes,
            staged: None,
            transfer: Progress::Running(transfer),
            patience: Patience::default(),
            place,
            first,
            end,
            fed: first,
            reported: at,
            skip,
            sent: 0,
        })
    }

    /// Returns true if a call continues where the last one ended.
    pub fn goes_on(&self, file: Identity, at: u64) -> bool {
        self.file == file && self.reported == at && at < self.end
    }

    /// Returns true if the program was told of all of it.
    pub fn is_complete(&self) -> bool {
        self.reported == self.end
    }

    /// Returns true if the chain changes the data.
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Returns true if the chain changes their length.
    pub fn resizes(&self) -> bool {
        self.resizes
    }

    /// Carries one call.
    pub fn carry(&mut self, units: &Units, socket: c_int, file: c_int, count: usize) -> Carried {
        let begin = self.reported;
        let goal = self.end.min(begin.saturating_add(count as u64));
        self.patience.renew();
        let stop = match self.resizes {
            false => self.carry_same_length(units, socket, file, goal),
            true => self.carry_resized(units, socket, file, goal),
        };
        Carried { bytes: (self.reported - begin) as usize, stop }
    }

    /// Carries a call whose bytes keep their number: the program is told what the socket took.
    fn carry_same_length(&mut self, units: &Units, socket: c_int, file: c_int, mut goal: u64) -> Stop {
        while self.reported < goal {
            match self.feed(units, file, goal) {
                Feed::Yes => {}
                Feed::Shrunk => goal = goal.min(self.fed),
                // Bytes that were fed before come first.
                Feed::Failed(errno) if self.fed <= self.reported => return Stop::Errno(errno),
                Feed::Failed(_) => goal = self.fed,
            }
            let waiting = self.waiting();
            if waiting == 0 {
                if self.fed > self.reported && (self.has_ended() || !self.wait(false)) {
                    return Stop::Engine;
                }
                continue;
            }
            if self.skip > 0 {
                self.skip -= sys::drop_bytes(&self.pipes.output, self.skip);
                continue;
            }
            let want = waiting.min((goal - self.reported) as usize);
            match self.deliver(units, socket, want) {
                Ok(delivered) => {
                    self.reported += delivered.bytes as u64;
                    // The socket is full, or a signal came.
                    if delivered.is_short {
                        return Stop::Enough;
                    }
                }
                Err(errno) => return Stop::Errno(errno),
            }
        }
        Stop::Enough
    }

    /// Carries a call whose bytes change their number: the program is told what was fed, except the last byte. That is
    /// reported only when the socket has the whole output, because the program may then close it.
    fn carry_resized(&mut self, units: &Units, socket: c_int, file: c_int, goal: u64) -> Stop {
        let stop = loop {
            match self.feed(units, file, goal) {
                Feed::Yes => {}
                Feed::Shrunk => break Stop::Engine,
                Feed::Failed(errno) => break Stop::Errno(errno),
            }
            let waiting = self.waiting();
            if waiting > 0 {
                match self.deliver(units, socket, waiting) {
                    Ok(delivered) if delivered.is_short => break Stop::Errno(sys::why_short(socket)),
                    Ok(_) => {}
                    Err(errno) => break Stop::Errno(errno),
                }
            } else if self.has_ended() {
                if self.fed < self.end {
                    break Stop::Engine;
                }
                self.reported = self.end;
                return Stop::Enough;
            } else if self.fed == goal && goal < self.end {
                break Stop::Enough;
            } else if !self.wait(self.fed < goal) {
                break Stop::Engine;
            }
        };
        self.reported = self.reported.max(self.fed.min(self.end - 1));
        stop
    }

    /// Feeds as much as was requested and the pipe has room for.
    fn feed(&mut self, units: &Units, file: c_int, goal: u64) -> Feed {
        while self.fed < goal {
            let room = self.pipes.room();
            if room < ROOM_MIN {
                break;
            }
            match self.feed_once(units, file, room.min((goal - self.fed) as usize)) {
                Ok(Fed::End) => return Feed::Shrunk,
                Ok(Fed::All) => {}
                Ok(Fed::Some) => break,
                Err(libc::EINTR) => {}
                Err(errno) => return Feed::Failed(errno),
            }
        }
        Feed::Yes
    }

    /// Feeds once. If the file must be waited for, the engine's pipe is not locked meanwhile.
    fn feed_once(&mut self, units: &Units, file: c_int, count: usize) -> Result<Fed, Errno> {
        let mut staging = units.staging()?;
        let taken = staging.take_file(file, self.fed, count)?;
        let given = staging.give_pipe(&self.pipes.input);
        self.fed += given as u64;
        // Bytes without room are thrown away with the pipe, and taken from the file again.
        units.keep_staging(staging);
        Ok(match given {
            _ if taken == 0 => Fed::End,
            given if given < taken => Fed::Some,
            _ => Fed::All,
        })
    }

    /// Moves up to this many bytes of output to the socket, and waits as it does. If that may take long, the engine's
    /// pipe is not locked meanwhile.
    fn deliver(&mut self, units: &Units, socket: c_int, want: usize) -> Result<Delivered, Errno> {
        if self.staged.is_none() && sys::is_nonblocking(socket) {
            let bytes = sys::deliver(&self.pipes.output, socket, want)?;
            return Ok(self.delivered(bytes, want));
        }
        let mut staging = self.staged.take().map_or_else(|| units.staging(), Ok)?;
        let more = want.saturating_sub(staging.held());
        // If no more can be taken now, what is there goes.
        let _ = if more > 0 { staging.take_pipe(&self.pipes.output, more) } else { Ok(0) };
        let want = want.min(staging.held());
        let given = staging.give_socket(socket, want);
        match staging.held() {
            0 => units.keep_staging(staging),
            _ => self.staged = Some(staging),
        }
        given.map(|bytes| self.delivered(bytes, want))
    }

    fn delivered(&mut self, bytes: usize, want: usize) -> Delivered {
        self.patience.renew();
        self.sent += bytes as u64;
        Delivered { bytes, is_short: bytes < want }
    }

    /// Returns the bytes of output to deliver.
    fn waiting(&self) -> usize {
        self.staged.as_ref().map_or(0, Staging::held) + sys::waiting(&self.pipes.output)
    }

    /// Returns true if the transfer has ended, and its whole output was delivered.
    fn has_ended(&self) -> bool {
        let is_done = match &self.transfer {
            Progress::Running(transfer) => transfer.is_done(),
            _ => true,
        };
        is_done && self.waiting() == 0
    }

    /// Waits for output, or for room to feed, but not long. Returns false if the engine must be given up.
    fn wait(&mut self, to_feed: bool) -> bool {
        let caller_drives = self.place.caller_drives();
        if caller_drives {
            for _ in 0..ROUNDS {
                self.work();
                if sys::waiting(&self.pipes.output) > 0 {
                    return true;
                }
            }
        }
        let room = to_feed.then_some(&self.pipes.input);
        let in_vain =
            sys::wait(&self.pipes.output, room, if caller_drives { PAUSE_MS } else { CHECK_INTERVAL_MS });
        caller_drives || !in_vain || !self.patience.is_over(&self.place)
    }

    /// Does a bounded piece of the engine's work, if it has no thread.
    fn work(&mut self) {
        self.transfer = match std::mem::replace(&mut self.transfer, Progress::Between) {
            Progress::Running(transfer) => match transfer.try_wait() {
                Ok(done) => Progress::Done(done),
                Err(transfer) => Progress::Running(transfer),
            },
            other => other,
        };
    }

    /// Ends the stream, and logs what went through. Returns false if the transfer had failed by itself.
    pub fn end(self, units: &Units, record: &Record, why: &str) -> bool {
        let complete = self.is_complete();
        let Stream { transfer, pipes, place, mut patience, mut about, .. } = self;
        patience.renew();
        let done = match transfer {
            Progress::Running(transfer) => {
                if !complete {
                    transfer.cancel();
                }
                patience.finish(transfer, &place)
            }
            Progress::Done(done) => Some(done),
            Progress::Between => None,
        };
        let Some(done) = done else {
            about.insert("ended".into(), why.into());
            about.insert("error".into(), "the engine did nothing for too long".into());
            record.line("object", about);
            return false;
        };
        let (completion, error) = match done {
            Ok(completion) => (completion, None),
            Err(error) => {
                let cancelled = error.status == dcs::Status::Cancelled;
                let said = (complete || !cancelled).then(|| error.to_string());
                (*error.completion, said)
            }
        };
        if complete && error.is_none() {
            units.keep(pipes);
        }
        let good = error.is_none();
        about.insert("offset".into(), self.first.into());
        about.insert("bytes".into(), completion.bytes_in.into());
        about.insert("sent".into(), self.sent.into());
        about.insert("file_size".into(), self.end.into());
        about.insert("whole".into(), (self.first == 0 && complete && good).into());
        about.insert("ended".into(), why.into());
        about.insert("digests".into(), digests(&completion));
        if let Some(error) = error {
            about.insert("error".into(), error.into());
        }
        record.line("object", about);
        good
    }
}

fn digests(completion: &Completion) -> Value {
    let one = |digest: &dcs::Digest| json!({"operator": digest.operator.name(), "value": digest.to_string(), "bytes": digest.covered});
    Value::Array(completion.digests.iter().map(one).collect())
}

/// Makes the operator for bytes from `first` on, which is a multiple of a cipher's block.
fn operator(step: Step, cipher: Option<Cipher>, first: u64) -> Option<Op> {
    Some(match step {
        Step::Ctr => {
            let (key, counter) = cipher?;
            let counter = u128::from_be_bytes(counter).wrapping_add(u128::from(first / AES_BLOCK));
            Op::Aes256Ctr { key, counter: counter.to_be_bytes() }
        }
        Step::Resize(Operator::Gzip, level) => Op::Gzip { level },
        Step::Resize(Operator::Zstd, level) => Op::Zstd { level },
        // All others have no parameters.
        Step::Resize(operator, _) | Step::Digest(operator) => {
            Op::Raw { number: operator as u8, parameter: Vec::new() }
        }
    })
}
