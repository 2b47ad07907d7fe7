//! One stream: a file on its way through a chain into a socket, over as many calls as the program makes.

use crate::record::Record;
use crate::sys::{self, Errno, Identity};
use crate::units::{Pipes, Place, Units};
use dcs::{Completion, Op, Operator, Sink, Source, Transfer, TransferError};
use dcs_preload_rules::{Chain, Step};
use libc::c_int;
use serde_json::{Map, Value, json};

/// How long a call waits for the engine before it looks whether the transfer has failed.
const LOOK_MS: c_int = 20;

/// Where callers drive the engine: rounds of work, and how long to wait then for what the kernel does for it.
const ROUNDS: usize = 64;
const PAUSE_MS: c_int = 1;

/// Bytes of a block of AES.
const AES_BLOCK: u64 = 16;

/// Key and first counter block of a file.
pub type Cipher = ([u8; 32], [u8; 16]);

/// What a stream is begun with.
pub struct Beginning<'a> {
    pub file: Identity,
    /// Where in the file the program begins, and where the file ends.
    pub at: u64,
    pub end: u64,
    pub chain: &'a Chain,
    pub cipher: Option<Cipher>,
    /// What the log is to say of it.
    pub about: Map<String, Value>,
}

/// A stream.
pub struct Stream {
    file: Identity,
    about: Map<String, Value>,
    resizes: bool,
    changes: bool,
    pipes: Pipes,
    transfer: Progress,
    place: Place,
    /// Offsets in the file: of the first byte that the chain gets, and of its end.
    first: u64,
    end: u64,
    /// As far as the chain was fed; as far as the program was told.
    fed: u64,
    reported: u64,
    /// Bytes that come out first and are not the program's: it begins inside of a cipher's block.
    skip: usize,
    /// Bytes that the socket took.
    sent: u64,
}

/// A transfer, or what became of it.
enum Progress {
    Running(Transfer),
    Done(Result<Completion, TransferError>),
    /// Only for the moment in which it is looked at.
    Between,
}

/// What a call came to.
pub struct Carried {
    /// Bytes of the file.
    pub bytes: usize,
    pub stop: Stop,
}

/// Why it went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All that was asked for, or as much as the file or the socket had.
    Enough,
    /// The program is to be told.
    Errno(Errno),
    /// The transfer has failed.
    Engine,
}

/// Whether there is more.
enum Feed {
    Yes,
    /// The file is shorter than it was.
    Shrunk,
    Failed(Errno),
}

impl Stream {
    /// Begins a transfer. Nothing is fed yet.
    pub fn begin(units: &Units, beginning: Beginning<'_>) -> Result<Stream, String> {
        let Beginning { file, at, end, chain, cipher, about } = beginning;
        let skip = if chain.decrypts() { at % AES_BLOCK } else { 0 };
        let first = at - skip;
        let (place, pipes) = (units.place()?, units.pipes()?);
        let ops = chain.steps().iter().map(|step| operator(*step, cipher, first)).collect::<Option<Vec<_>>>();
        let ops = ops.ok_or("there is no key")?;
        let (source, sink) = (Source::handle(&pipes.source, ..), Sink::handle(&pipes.sink, 0));
        let request = place.session().request(source, ops, sink).length(end - first);
        let transfer = request.submit().map_err(|error| error.to_string())?;
        let (resizes, changes, skip) = (chain.resizes(), !chain.only_looks(), skip as usize);
        Ok(Stream {
            file,
            about,
            resizes,
            changes,
            pipes,
            transfer: Progress::Running(transfer),
            place,
            first,
            end,
            fed: first,
            reported: at,
            skip,
            sent: 0,
        })
    }

    /// Whether a call goes on where the last one ended.
    pub fn goes_on(&self, file: Identity, at: u64) -> bool {
        self.file == file && self.reported == at && at < self.end
    }

    /// The program was told of all of it.
    pub fn is_complete(&self) -> bool {
        self.reported == self.end
    }

    /// Other bytes come out than go in.
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Other numbers of bytes come out than go in.
    pub fn resizes(&self) -> bool {
        self.resizes
    }

    /// Carries one call.
    pub fn carry(&mut self, socket: c_int, file: c_int, count: usize) -> Carried {
        let begin = self.reported;
        let goal = self.end.min(begin.saturating_add(count as u64));
        let stop = match self.resizes {
            false => self.carry_same_length(socket, file, goal),
            true => self.carry_resized(socket, file, goal),
        };
        Carried { bytes: (self.reported - begin) as usize, stop }
    }

    /// What the socket took is what the program is told.
    fn carry_same_length(&mut self, socket: c_int, file: c_int, mut goal: u64) -> Stop {
        while self.reported < goal {
            match self.feed(file, goal) {
                Feed::Yes => {}
                Feed::Shrunk => goal = goal.min(self.fed),
                // What was fed before comes first.
                Feed::Failed(errno) if self.fed <= self.reported => return Stop::Errno(errno),
                Feed::Failed(_) => goal = self.fed,
            }
            let waiting = sys::waiting(&self.pipes.output);
            if waiting == 0 {
                if self.fed > self.reported && !self.has_ended() {
                    self.wait(false);
                } else if self.fed > self.reported {
                    return Stop::Engine;
                }
                continue;
            }
            if self.skip > 0 {
                self.skip -= sys::drop_bytes(&self.pipes.output, self.skip);
                continue;
            }
            let want = waiting.min((goal - self.reported) as usize);
            match sys::deliver(&self.pipes.output, socket, want) {
                Ok(bytes) => {
                    self.sent += bytes as u64;
                    self.reported += bytes as u64;
                    // The socket is full, or a signal came.
                    if bytes < want {
                        return Stop::Enough;
                    }
                }
                Err(errno) => return Stop::Errno(errno),
            }
        }
        Stop::Enough
    }

    /// The program is told what was fed; but of the last byte only when all that comes out is with the socket: then
    /// it may close it.
    fn carry_resized(&mut self, socket: c_int, file: c_int, goal: u64) -> Stop {
        let stop = loop {
            match self.feed(file, goal) {
                Feed::Yes => {}
                Feed::Shrunk => break Stop::Engine,
                Feed::Failed(errno) => break Stop::Errno(errno),
            }
            let waiting = sys::waiting(&self.pipes.output);
            if waiting > 0 {
                match sys::deliver(&self.pipes.output, socket, waiting) {
                    Ok(bytes) => {
                        self.sent += bytes as u64;
                        if bytes < waiting {
                            break Stop::Errno(sys::why_short(socket));
                        }
                    }
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
            } else {
                self.wait(self.fed < goal);
            }
        };
        self.reported = self.reported.max(self.fed.min(self.end - 1));
        stop
    }

    /// Feeds as much as was asked for and the pipe has room for.
    fn feed(&mut self, file: c_int, goal: u64) -> Feed {
        while self.fed < goal {
            match sys::feed(file, self.fed, &self.pipes.input, (goal - self.fed) as usize) {
                Ok(0) => return Feed::Shrunk,
                Ok(bytes) => self.fed += bytes as u64,
                Err(libc::EAGAIN) => break,
                Err(libc::EINTR) => {}
                Err(errno) => return Feed::Failed(errno),
            }
        }
        Feed::Yes
    }

    /// The transfer has ended, and all that came out of it was delivered.
    fn has_ended(&self) -> bool {
        let is_done = match &self.transfer {
            Progress::Running(transfer) => transfer.is_done(),
            _ => true,
        };
        is_done && sys::waiting(&self.pipes.output) == 0
    }

    /// Waits for something to come out, or for room to feed, but not for long.
    fn wait(&mut self, to_feed: bool) {
        let caller_drives = self.place.caller_drives();
        if caller_drives {
            for _ in 0..ROUNDS {
                self.work();
                if sys::waiting(&self.pipes.output) > 0 {
                    return;
                }
            }
        }
        let room = to_feed.then_some(&self.pipes.input);
        sys::wait(&self.pipes.output, room, if caller_drives { PAUSE_MS } else { LOOK_MS });
    }

    /// A bounded piece of the engine's work, where it has no thread.
    fn work(&mut self) {
        self.transfer = match std::mem::replace(&mut self.transfer, Progress::Between) {
            Progress::Running(transfer) => match transfer.try_wait() {
                Ok(done) => Progress::Done(done),
                Err(transfer) => Progress::Running(transfer),
            },
            other => other,
        };
    }

    /// Ends it, and logs what went through. False where the transfer had failed by itself.
    pub fn end(self, units: &Units, record: &Record, why: &str) -> bool {
        let complete = self.is_complete();
        let Stream { transfer, pipes, mut about, .. } = self;
        let done = match transfer {
            Progress::Running(transfer) => {
                if !complete {
                    transfer.cancel();
                }
                transfer.wait()
            }
            Progress::Done(done) => done,
            Progress::Between => return false,
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

/// The operator as it is for bytes from `first` on, which is a multiple of a cipher's block.
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
