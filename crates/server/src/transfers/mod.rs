//! Transfers of the server: moves objects' data by commands of the engine.
//!
//! ```text
//!   put   socket > [aws-chunked] > md5 > [sha256] > [checksum] > [crc64-nvme] > [compress] > [encrypt]
//!           > file, made durable, or memory where it is small, and from there to a pack
//!   get   file > [decrypt] > [decompress] > [crc64-nvme or md5, as expected] > [slice]
//!           > socket, behind the answer's head
//! ```

mod allocation;
mod patience;
mod permits;

pub use patience::Patience;
pub(crate) use patience::{ConnectionWaiter, TICK};
pub(crate) use permits::Permits;

use crate::encryption::{self, Key};
use crate::metrics::{Direction, Metrics};
use crate::store::record::{Algorithm, Compression};
use crate::store::{HeldSegment, Opened, StoreError, Target};
use allocation::Allocation;
use dcs::{
    Completion, Engine, Error, Mode, Op, Request, Session, Sink, Source, Statistics, Status, Transfer,
    TransferError,
};
use patience::{Awaited, Watch};
use rustix::fs::OFlags;
use rustix::io::ioctl_fionread;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Reason why data were not moved.
#[derive(Debug, thiserror::Error)]
pub enum DataPathError {
    /// The engine did not take the command.
    #[error(transparent)]
    Submit(#[from] Error),
    /// The transfer failed.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The server gave the transfer up.
    #[error("{why}: {transfer}")]
    GivenUp {
        /// Reason for that.
        why: GivenUp,
        /// Error of the transfer, with the work that it had done.
        transfer: TransferError,
    },
    /// A data file can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reason why the server gives a transfer up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenUp {
    /// The client moved too little for too long.
    #[error("the client moved too little for too long")]
    Slow,
    /// The client is gone.
    #[error("the client is gone")]
    Gone,
    /// The disk has no room for what is coming.
    #[error("the disk has no room for what is coming")]
    Full,
}

impl DataPathError {
    /// Returns the status of a failed transfer.
    pub fn status(&self) -> Option<Status> {
        match self {
            DataPathError::Transfer(error) => Some(error.status),
            DataPathError::GivenUp { why: GivenUp::Slow, .. } => Some(Status::Timeout),
            DataPathError::GivenUp { why: GivenUp::Gone, .. } => Some(Status::PeerReset),
            _ => None,
        }
    }

    /// Returns the work that a failed transfer had done.
    pub fn completion(&self) -> Option<&Completion> {
        match self {
            DataPathError::Transfer(transfer) | DataPathError::GivenUp { transfer, .. } => {
                Some(&transfer.completion)
            }
            _ => None,
        }
    }

    /// Returns true if the file system, or the user's quota on it, is full.
    pub fn is_full(&self) -> bool {
        let full = |errno: i32| {
            [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT].iter().any(|no| no.raw_os_error() == errno)
        };
        match self {
            DataPathError::GivenUp { why, .. } => *why == GivenUp::Full,
            DataPathError::Transfer(transfer) => full(transfer.errno),
            DataPathError::Io(error) => error.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// Returns true if the bytes that were read differ from those that were written. For commands whose source is a
    /// data file.
    pub fn is_damage(&self) -> bool {
        matches!(self.status(), Some(Status::DigestMismatch | Status::CorruptData | Status::TruncatedData))
    }

    /// Returns true if the destination has got nothing.
    pub fn sent_nothing(&self) -> bool {
        self.completion().is_none_or(|completion| completion.bytes_out == 0)
    }
}

/// Engine of a core, with the permits for its transfers.
///
/// ```text
///   clients   over a client's socket, which may hold the transfer up: watched
///   own       between files and memory: these always go on, whatever clients do
/// ```
#[derive(Debug)]
pub struct DataPath {
    clients: SessionShare,
    own: SessionShare,
    settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
    patience: Patience,
    engine: Engine,
}

/// A queue pair, and permits for its transfers, which it shares with those of other cores.
#[derive(Debug)]
struct SessionShare {
    session: Session,
    permits: Arc<Permits>,
}

/// State that the data paths of all cores share. Limits apply to all of them together.
struct Common {
    clients: Arc<Permits>,
    own: Arc<Permits>,
    metrics: Arc<Metrics>,
    patience: Patience,
}

/// Settings of transfers.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most transfers of clients at the same time.
    pub transfers: u16,
    /// Slowest acceptable rate of a client, in bytes a second.
    pub min_rate: u64,
    /// Time after which a slower client is given up; shorter while others wait for its permit.
    pub patience: Duration,
    /// True to have data on the disk before they are acknowledged.
    pub durable: bool,
    /// True to write large bodies past the page cache, since they must reach the disk anyway.
    pub direct: bool,
}

/// A piece of an answer: a range of one segment, through a chain.
#[derive(Debug)]
pub struct Piece {
    /// The segment's data.
    pub data: Data,
    /// Id of the segment.
    pub segment: u64,
    /// Range of its bytes.
    pub range: Range<u64>,
    /// Operators that the bytes pass.
    pub chain: Vec<Op>,
    /// Bytes that come out of the chain.
    pub length: u64,
}

/// A segment's data to read.
#[derive(Clone, Debug)]
pub enum Data {
    /// Data that are open.
    Open(Arc<Opened>),
    /// A file that is held, and opened when it is needed.
    Held(HeldSegment),
}

impl From<Opened> for Data {
    fn from(opened: Opened) -> Data {
        Data::Open(Arc::new(opened))
    }
}

impl Data {
    /// Returns true if they share a file with others.
    pub fn is_packed(&self) -> bool {
        matches!(self, Data::Open(opened) if opened.is_packed)
    }

    /// Makes the source for a range of the bytes.
    fn source(&self, range: Range<u64>) -> Result<Source, StoreError> {
        Ok(match self {
            Data::Open(opened) => {
                let begin = opened.range.start;
                Source::file(&opened.file, begin + range.start..begin + range.end)
            }
            Data::Held(held) => Source::file(&held.open()?, range),
        })
    }
}

/// Result of receiving data.
#[derive(Debug)]
pub struct Received {
    /// Bytes of plain data.
    pub size: u64,
    /// Bytes at rest.
    pub stored: u64,
    /// Bytes at rest, if their target is memory.
    pub bytes: Vec<u8>,
    /// MD5 of the plain data.
    pub md5: [u8; 16],
    /// SHA-256 of the plain data, if requested.
    pub sha256: Option<[u8; 32]>,
    /// Additional checksum, if requested.
    pub checksum: Option<Vec<u8>>,
    /// CRC-64/NVME of the plain data, if requested, or if it is the additional checksum.
    pub crc64: Option<Vec<u8>>,
    /// Checksum that came in the trailer.
    pub trailer: Option<Vec<u8>>,
}

/// Treatment of incoming data.
#[derive(Debug, Default)]
pub struct Intake {
    /// Operator that removes S3's framing, and the number of plain bytes, if the body is framed.
    pub framing: Option<(Op, u64)>,
    /// True to compute SHA-256, because the request was signed over it.
    pub sha256: bool,
    /// Additional checksum to compute.
    pub checksum: Option<Algorithm>,
    /// True to compute CRC-64/NVME, by which readers check the data.
    pub crc64: bool,
    /// Compression at rest.
    pub compression: Compression,
    /// Key and first counter block, if the data are to be encrypted.
    pub cipher: Option<([u8; 32], [u8; 16])>,
}

/// Compression levels that cost little and save most.
const GZIP_LEVEL: u8 = 1;
const ZSTD_LEVEL: u8 = 1;

/// Least bytes of a body that bypasses the page cache, if the settings allow that.
const DIRECT_MIN: u64 = 1 << 20;

/// Bytes of a cipher block (FIPS 197).
const CIPHER_BLOCK: u64 = 16;

/// Returns the operator of an additional checksum.
pub fn checksum_op(algorithm: Algorithm) -> Op {
    match algorithm {
        Algorithm::Crc32 => Op::Crc32,
        Algorithm::Crc32c => Op::Crc32c,
        Algorithm::Crc64Nvme => Op::Crc64Nvme,
        Algorithm::Sha1 => Op::Sha1,
        Algorithm::Sha256 => Op::Sha256,
    }
}

/// Returns the operator that encrypts or decrypts from this byte of the stream on. The byte must be the first of a
/// cipher block.
pub fn cipher_op(key: [u8; 32], counter: [u8; 16], from: u64) -> Op {
    debug_assert_eq!(from % CIPHER_BLOCK, 0);
    let counter = u128::from_be_bytes(counter).wrapping_add(u128::from(from / CIPHER_BLOCK));
    Op::Aes256Ctr { key, counter: counter.to_be_bytes() }
}

/// Returns the operators that turn a segment's bytes into plain data. `from`: the first byte, at the start of a cipher
/// block.
pub fn plain(compression: Compression, key: Option<&Key>, segment: u64, from: u64) -> Vec<Op> {
    let decrypt = key.map(|key| cipher_op(**key, encryption::counter(segment), from));
    let decompress = match compression {
        Compression::None => None,
        Compression::Gzip => Some(Op::Gunzip),
        Compression::Zstd => Some(Op::Unzstd),
    };
    decrypt.into_iter().chain(decompress).collect()
}

/// Returns true if files in this folder can be written past the page cache.
pub fn can_go_direct(folder: &Path) -> bool {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, rustix::fs::Mode::from_raw_mode(0o600)).is_ok()
}

/// Most transfers of the server's own at the same time.
const OWN_TRANSFERS_MAX: u16 = 64;

/// Blocks of an engine for reading ahead, in addition to those that transfers always have.
const READ_AHEAD_BLOCKS: u32 = 256;

/// Returns the sizes of an engine with room for that many transfers of clients, and for the server's own. Half of an
/// engine's blocks are guarantees, a quarter for each of two sessions.
fn sizes(transfers: u16) -> (u16, u32) {
    let (clients, own) = (u32::from(transfers), u32::from(OWN_TRANSFERS_MAX) + 1);
    let share = |clients: u32, own: u32| (clients + own).max(clients.max(own).div_ceil(3) * 4);
    let commands = share(clients, own);
    let blocks = share(
        clients * permits::TRANSFER_MIN + READ_AHEAD_BLOCKS,
        own * permits::TRANSFER_MIN + READ_AHEAD_BLOCKS,
    );
    (u16::try_from(commands).unwrap_or(u16::MAX), blocks)
}

/// Returns the most bytes at rest for `size` plain bytes. Compression makes incompressible data longer, to 9 bits a
/// byte with the fixed codes of zlib's quick level (RFC 1951 section 3.2.6), and adds a head and a foot.
pub(crate) fn stored_max(size: u64, compression: Compression) -> u64 {
    if compression == Compression::None { size } else { size + size / 8 + 1024 }
}

impl DataPath {
    /// Starts an engine with room for all transfers at once.
    ///
    /// # Errors
    ///
    /// Fails if the engine can't be started.
    pub fn start(engine: dcs::engine::Builder, settings: Settings) -> Result<DataPath, Error> {
        let metrics = Arc::<Metrics>::default();
        let permits = |transfers: u16| {
            Arc::new(Permits::new(u32::from(transfers) * permits::TRANSFER_MIN, metrics.clone()))
        };
        let (clients, own) = (permits(settings.transfers), permits(OWN_TRANSFERS_MAX));
        let patience = Patience::new(settings.patience, settings.min_rate);
        DataPath::open(engine, settings, Common { clients, own, metrics, patience })
    }

    /// Starts another engine for another core. Each has room for all transfers; limits, queues and counters apply to
    /// both together.
    ///
    /// # Errors
    ///
    /// Fails if the engine can't be started.
    pub fn for_another_core(&self, engine: dcs::engine::Builder) -> Result<DataPath, Error> {
        let common = Common {
            clients: self.clients.permits.clone(),
            own: self.own.permits.clone(),
            metrics: self.metrics.clone(),
            patience: self.patience.clone(),
        };
        DataPath::open(engine, self.settings, common)
    }

    fn open(engine: dcs::engine::Builder, settings: Settings, common: Common) -> Result<DataPath, Error> {
        let (commands, blocks) = sizes(settings.transfers);
        let engine = engine.sessions(2).commands(commands).blocks(blocks).start()?;
        // A cancelled transfer takes room in its session for a moment more.
        let share = |transfers: u16, permits| -> Result<SessionShare, Error> {
            let session = engine.session_with_depth((transfers * 2).min(dcs::session::DEPTH_MAX))?;
            Ok(SessionShare { session, permits })
        };
        let Common { clients, own, metrics, patience } = common;
        let (clients, own) = (share(settings.transfers, clients)?, share(OWN_TRANSFERS_MAX, own)?);
        Ok(DataPath { clients, own, settings, metrics, patience, engine })
    }

    /// Checks that the engine answers, by passing some bytes through an operator.
    ///
    /// # Errors
    ///
    /// [`DataPathError`]; also if another check is in progress.
    pub async fn check_health(&self) -> Result<(), DataPathError> {
        let (source, sink) = (Source::memory(b"does it answer?".to_vec()), Sink::memory(15));
        let request = self.own.session.request(source, [Op::Crc32c], sink).timeout(Duration::from_secs(5));
        request.submit()?.await?;
        Ok(())
    }

    /// Returns the engine's statistics.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }

    /// Returns the most transfers of clients, on all cores.
    pub fn transfers_max(&self) -> usize {
        self.settings.transfers.into()
    }

    /// Returns the longest wait of a transfer for a permit, on any core.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.clients.permits.longest_wait().max(self.own.permits.longest_wait())
    }

    /// Registers a client that waits for a connection, until this is dropped. Meanwhile the server waits less long for
    /// the others.
    pub(crate) fn call(&self) -> ConnectionWaiter {
        self.patience.call()
    }

    /// Returns a new client's account of time, which is full.
    pub fn patience(&self) -> Patience {
        self.patience.clone()
    }

    /// Takes a body of this many bytes from a socket to its target. A file is durable afterwards.
    ///
    /// # Errors
    ///
    /// [`DataPathError`]. A file may hold some of the data then.
    pub async fn receive(
        &self,
        socket: &TcpStream,
        length: u64,
        intake: &Intake,
        target: Target<'_>,
    ) -> Result<Received, DataPathError> {
        let _permits = self.clients.permits.take(permits::needed(&intake.chain())).await;
        let size = intake.framing.as_ref().map_or(length, |(_, size)| *size);
        let direct = matches!(target, Target::File(_)) && self.goes_direct(intake, size);
        let mut sink = intake.sink(target, size);
        // A client whose body is here already holds nothing up.
        let is_here = !direct && ioctl_fionread(socket).is_ok_and(|unread| unread >= length);
        let mut watch = (!is_here).then(|| self.watch(socket, Awaited::In(length)));
        if let (Target::File(file), Some(watch), true) = (target, &mut watch, direct) {
            watch.allocation = Allocation::begin(file, size)?;
            sink = if watch.allocation.is_some() { sink.cache(Mode::Off) } else { sink };
        }
        let request = self.intake(&self.clients, Source::socket(socket), Some(length), intake, sink);
        let completion = self.run(Direction::Put, self.durable(request, target), watch).await?;
        intake.received(completion)
    }

    /// Takes a body whose framing marks its end, so that its length need not be known: all bytes that come. Whatever
    /// feeds the socket must limit its patience with the client.
    ///
    /// # Errors
    ///
    /// [`DataPathError`]. A file may hold some of the data then.
    pub async fn receive_framed(
        &self,
        socket: &impl AsFd,
        intake: &Intake,
        target: Target<'_>,
    ) -> Result<Received, DataPathError> {
        let _permits = self.clients.permits.take(permits::needed(&intake.chain())).await;
        let size = intake.framing.as_ref().map_or(0, |(_, size)| *size);
        let (source, sink) = (Source::socket(socket), intake.sink(target, size));
        let request = self.intake(&self.clients, source, None, intake, sink);
        let completion = self.run(Direction::Put, self.durable(request, target), None).await?;
        intake.received(completion)
    }

    /// Returns an account of a client that holds a permit meanwhile.
    pub fn patience_with_a_place(&self) -> Patience {
        self.patience().holding(&self.clients.permits)
    }

    fn watch<'a>(&self, socket: &'a TcpStream, way: Awaited) -> Watch<'a> {
        Watch::new(socket, way, self.patience_with_a_place())
    }

    /// Takes an empty body, of which only the digests and what compression makes of nothing remain.
    ///
    /// # Errors
    ///
    /// [`DataPathError`].
    pub async fn take_nothing(&self, intake: &Intake, target: Target<'_>) -> Result<Received, DataPathError> {
        let _permits = self.own.permits.take(permits::needed(&intake.chain())).await;
        self.take_in(Source::memory(Vec::new()), 0, intake, target).await
    }

    /// Copies pieces to their target, as one stream.
    ///
    /// # Errors
    ///
    /// [`DataPathError`]. A file may hold some of the data then.
    pub async fn copy(
        &self,
        pieces: Vec<Piece>,
        intake: &Intake,
        target: Target<'_>,
    ) -> Result<Received, DataPathError> {
        let length = pieces.iter().map(|piece| piece.length).sum();
        let taking = permits::needed(&intake.chain());
        match pieces.as_slice() {
            [] => self.take_nothing(intake, target).await,
            [piece] if piece.chain.is_empty() => {
                let _permits = self.own.permits.take(taking).await;
                let source = piece.data.source(piece.range.clone())?;
                self.take_in(source, length, intake, target).await
            }
            pieces => {
                // Both commands get their permits at once: copies that each held one and waited for another would never
                // end.
                let sending = pieces.iter().map(|piece| permits::needed(&piece.chain)).max().unwrap_or(0);
                let _permits = self.own.permits.take(taking + sending).await;
                self.copy_through(pieces, length, intake, target).await
            }
        }
    }

    /// Copies by two commands with a pair of sockets between them. Digests cover the whole stream, so it must come from
    /// one source.
    async fn copy_through(
        &self,
        pieces: &[Piece],
        length: u64,
        intake: &Intake,
        target: Target<'_>,
    ) -> Result<Received, DataPathError> {
        let (from, to) = UnixStream::pair()?;
        from.set_nonblocking(true)?;
        to.set_nonblocking(true)?;
        let send = async {
            for piece in pieces {
                let sent = match self.forward(&self.own, &from, Vec::new(), piece, false) {
                    Ok(request) => self.run(Direction::Copy, request, None).await,
                    Err(error) => Err(error),
                };
                // The other side is told of a failure; it would wait for the rest otherwise.
                sent.inspect_err(|_| _ = from.shutdown(Shutdown::Both))?;
            }
            Ok::<(), DataPathError>(())
        };
        let take = async {
            let taken = self.take_in(Source::socket(&to), length, intake, target).await;
            taken.inspect_err(|_| _ = to.shutdown(Shutdown::Both))
        };
        let (sent, taken) = tokio::join!(send, take);
        sent.and(taken)
    }

    /// Takes this many bytes of the server's own to their target.
    async fn take_in(
        &self,
        source: Source,
        length: u64,
        intake: &Intake,
        target: Target<'_>,
    ) -> Result<Received, DataPathError> {
        let mut sink = intake.sink(target, length);
        if let Target::File(file) = target
            && self.goes_direct(intake, length)
            && let Some(allocation) = Allocation::begin(file, length)?
        {
            // All of the bytes are certain to come.
            sink = sink.cache(allocation.allocate_all()?);
        }
        let request = self.intake(&self.own, source, Some(length), intake, sink);
        let completion = self.run(Direction::Copy, self.durable(request, target), None).await?;
        intake.received(completion)
    }

    /// Returns true if a body of this many bytes bypasses the page cache.
    fn goes_direct(&self, intake: &Intake, size: u64) -> bool {
        self.settings.direct && intake.compression == Compression::None && size >= DIRECT_MIN
    }

    /// Requests that a file is on the disk when the command completes, if the settings say so. Data in memory become
    /// durable with their record.
    fn durable<'a>(&self, request: Request<'a>, target: Target<'_>) -> Request<'a> {
        match target {
            Target::File(_) if self.settings.durable => request.durable(),
            _ => request,
        }
    }

    /// Makes the command that takes data in: this many bytes, or all that come.
    fn intake<'a>(
        &self,
        share: &'a SessionShare,
        source: Source,
        length: Option<u64>,
        intake: &Intake,
        sink: Sink,
    ) -> Request<'a> {
        let request = share.session.request(source, intake.chain(), sink);
        match length {
            Some(length) => request.length(length),
            None => request,
        }
    }

    /// Reads a small piece.
    ///
    /// # Errors
    ///
    /// [`DataPathError`].
    pub async fn fetch(&self, piece: &Piece) -> Result<Vec<u8>, DataPathError> {
        let _permits = self.own.permits.take(permits::needed(&piece.chain)).await;
        let source = piece.data.source(piece.range.clone())?;
        let length =
            usize::try_from(piece.length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let request = self.own.session.request(source, piece.chain.iter().cloned(), Sink::memory(length));
        // The connection counts the bytes when it sends them.
        let fetched = request.submit()?.await?;
        let bytes = fetched.memory.unwrap_or_default();
        if bytes.len() != length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(bytes)
    }

    /// Passes a piece through its operators to a sink, without a deadline. Returns the bytes that came out.
    ///
    /// # Errors
    ///
    /// [`DataPathError`].
    pub async fn pass(&self, piece: &Piece, sink: Sink) -> Result<u64, DataPathError> {
        let _permits = self.own.permits.take(permits::needed(&piece.chain)).await;
        let source = piece.data.source(piece.range.clone())?;
        let request = self.own.session.request(source, piece.chain.iter().cloned(), sink);
        let passed = self.run(Direction::Check, request, None).await?;
        Ok(passed.bytes_out)
    }

    /// Sends a piece to a client after these bytes, which pass its operators too. `more`: other pieces follow at once.
    ///
    /// # Errors
    ///
    /// [`DataPathError`].
    pub async fn send(
        &self,
        socket: &TcpStream,
        head: Vec<u8>,
        piece: &Piece,
        more: bool,
    ) -> Result<Completion, DataPathError> {
        let _permits = self.clients.permits.take(permits::needed(&piece.chain)).await;
        let request = self.forward(&self.clients, socket, head, piece, more)?;
        self.run(Direction::Get, request, Some(self.watch(socket, Awaited::Out))).await
    }

    /// Makes the command that sends a piece.
    fn forward<'a>(
        &self,
        share: &'a SessionShare,
        socket: &impl AsFd,
        head: Vec<u8>,
        piece: &Piece,
        more: bool,
    ) -> Result<Request<'a>, DataPathError> {
        let source = piece.data.source(piece.range.clone())?;
        // A data file is never written to again. Blocks of a pack may become a hole when the transfer has ended, while
        // the socket still has their pages.
        let source = if piece.data.is_packed() { source } else { source.immutable() };
        let request = share.session.request(source, piece.chain.iter().cloned(), Sink::socket(socket));
        let request = if head.is_empty() { request } else { request.prefix(head) };
        Ok(if more { request.more() } else { request })
    }

    /// Has the engine carry a request out, and counts it. `watch`: the client that may hold it up.
    async fn run(
        &self,
        direction: Direction,
        request: Request<'_>,
        watch: Option<Watch<'_>>,
    ) -> Result<Completion, DataPathError> {
        let done = match (request.submit(), watch) {
            (Ok(transfer), None) => transfer.await.map_err(DataPathError::from),
            (Ok(transfer), Some(watch)) => watched(transfer, watch).await,
            (Err(error), _) => Err(error.into()),
        };
        self.metrics.moved(direction, &done);
        done
    }
}

/// Waits for a transfer, unless its client must be given up.
async fn watched(mut transfer: Transfer, mut watch: Watch<'_>) -> Result<Completion, DataPathError> {
    let mut given_up = None;
    loop {
        tokio::select! {
            biased;
            done = &mut transfer => return done.map_err(|transfer| match given_up {
                Some(why) => DataPathError::GivenUp { why, transfer },
                None => transfer.into(),
            }),
            () = tokio::time::sleep(TICK), if given_up.is_none() => {}
        }
        if let Err(why) = watch.look() {
            given_up = Some(why);
            transfer.cancel();
        }
    }
}

impl Intake {
    fn chain(&self) -> Vec<Op> {
        let mut chain = Vec::new();
        chain.extend(self.framing.as_ref().map(|(op, _)| op.clone()));
        chain.push(Op::Md5);
        if self.sha256 && self.checksum != Some(Algorithm::Sha256) {
            chain.push(Op::Sha256);
        }
        chain.extend(self.checksum.map(checksum_op));
        if self.crc64 && self.checksum != Some(Algorithm::Crc64Nvme) {
            chain.push(Op::Crc64Nvme);
        }
        match self.compression {
            Compression::None => {}
            Compression::Gzip => chain.push(Op::Gzip { level: GZIP_LEVEL }),
            Compression::Zstd => chain.push(Op::Zstd { level: ZSTD_LEVEL }),
        }
        chain.extend(self.cipher.map(|(key, counter)| cipher_op(key, counter, 0)));
        chain
    }

    /// Makes the sink for the data. `size`: bytes of the plain data.
    fn sink(&self, target: Target<'_>, size: u64) -> Sink {
        match target {
            Target::File(file) => Sink::file(file, 0),
            Target::Memory => {
                let most = stored_max(size, self.compression);
                Sink::memory(usize::try_from(most).unwrap_or(usize::MAX))
            }
        }
    }

    fn received(&self, completion: Completion) -> Result<Received, DataPathError> {
        let value = |op: &Op| {
            let found = completion.digests.iter().find(|digest| digest.operator as u8 == op.number());
            found.map(|digest| digest.bytes().to_vec())
        };
        let missing = || DataPathError::Io(io::Error::other("the engine returned no digest"));
        let md5 = value(&Op::Md5).and_then(|md5| md5.try_into().ok()).ok_or_else(missing)?;
        let sha256 = if self.sha256 {
            Some(value(&Op::Sha256).and_then(|value| value.try_into().ok()).ok_or_else(missing)?)
        } else {
            None
        };
        let checksum = match self.checksum {
            Some(algorithm) => Some(value(&checksum_op(algorithm)).ok_or_else(missing)?),
            None => None,
        };
        let size = self.framing.as_ref().map_or(completion.bytes_in, |(_, size)| *size);
        let trailer = self.framing.as_ref().and_then(|(op, _)| value(op));
        let (stored, bytes) = (completion.bytes_out, completion.memory.unwrap_or_default());
        let crc64 = value(&Op::Crc64Nvme);
        Ok(Received { size, stored, bytes, md5, sha256, checksum, crc64, trailer })
    }
}
