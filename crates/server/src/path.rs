//! What moves where: an object's data as commands of the engine.
//!
//! ```text
//!   put   socket > [aws-chunked] > md5 > [sha256] > [checksum] > [compress] > [encrypt] > file, made durable
//!   get   file > [decrypt] > [decompress] > [md5, as expected] > [slice] > socket, behind the answer's head
//! ```

use crate::metrics::{Direction, Metrics};
use crate::rest::{self, Key};
use crate::store::record::{Algorithm, Compression};
use dcs::{
    Completion, Engine, Error, Mode, Op, Request, Session, Sink, Source, Statistics, Status, TransferError,
};
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::File;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Why data did not move.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The engine did not take the command.
    #[error(transparent)]
    Submit(#[from] Error),
    /// The transfer failed.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// Something else of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl PathError {
    /// The status of a transfer that failed.
    pub fn status(&self) -> Option<Status> {
        match self {
            PathError::Transfer(error) => Some(error.status),
            _ => None,
        }
    }

    /// Whether the bytes that were read are not those that were written. For commands whose source is a data file.
    pub fn is_damage(&self) -> bool {
        matches!(self.status(), Some(Status::DigestMismatch | Status::CorruptData | Status::TruncatedData))
    }

    /// Whether the destination has got nothing.
    pub fn sent_nothing(&self) -> bool {
        match self {
            PathError::Transfer(error) => error.completion.bytes_out == 0,
            _ => true,
        }
    }
}

/// The engine, and how many transfers may be in flight.
#[derive(Debug)]
pub struct DataPath {
    session: Session,
    /// For [`DataPath::answers`]: the engine keeps a place for every session.
    probe: Session,
    transfers: usize,
    pub(crate) metrics: Arc<Metrics>,
    places: Semaphore,
    min_rate: u64,
    durable: bool,
    direct: bool,
    engine: Engine,
}

/// How data are moved.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most transfers at a time.
    pub transfers: u16,
    /// A client that is slower is given up, in bytes a second.
    pub min_rate: u64,
    /// Data are on the disk before they are answered for.
    pub durable: bool,
    /// Large bodies go past the page cache: they have to be on the disk anyway.
    pub direct: bool,
}

/// A piece of an answer: of one file, through a chain.
#[derive(Debug)]
pub struct Piece {
    /// The data file.
    pub file: Arc<File>,
    /// Its segment's id.
    pub segment: u64,
    /// Which of its bytes.
    pub range: Range<u64>,
    /// What they pass.
    pub chain: Vec<Op>,
    /// Bytes that come out.
    pub length: u64,
}

/// What came of data that came in.
#[derive(Debug)]
pub struct Received {
    /// Bytes of plain data.
    pub size: u64,
    /// Bytes of the file.
    pub stored: u64,
    /// MD5 of the plain data.
    pub md5: [u8; 16],
    /// SHA-256 of the plain data, where it was asked for.
    pub sha256: Option<[u8; 32]>,
    /// The additional checksum, where one was asked for.
    pub checksum: Option<Vec<u8>>,
    /// The checksum that the trailer announced.
    pub trailer: Option<Vec<u8>>,
}

/// How data that come in are treated.
#[derive(Debug, Default)]
pub struct Intake {
    /// Takes S3's framing off; then the number of plain bytes.
    pub framing: Option<(Op, u64)>,
    /// Computes SHA-256, since the request was signed over it.
    pub sha256: bool,
    /// Computes this additional checksum.
    pub checksum: Option<Algorithm>,
    /// Compresses.
    pub compression: Compression,
    /// Encrypts: key and first counter block.
    pub cipher: Option<([u8; 32], [u8; 16])>,
}

/// Levels that cost little and gain most.
const GZIP_LEVEL: u8 = 1;
const ZSTD_LEVEL: u8 = 1;

/// A body of so many bytes goes past the page cache, where that is asked for.
const DIRECT_MIN: u64 = 1 << 20;

/// Bytes of a cipher block (FIPS 197).
const CIPHER_BLOCK: u64 = 16;

/// The operator of an additional checksum.
pub fn checksum_op(algorithm: Algorithm) -> Op {
    match algorithm {
        Algorithm::Crc32 => Op::Crc32,
        Algorithm::Crc32c => Op::Crc32c,
        Algorithm::Crc64Nvme => Op::Crc64Nvme,
        Algorithm::Sha1 => Op::Sha1,
        Algorithm::Sha256 => Op::Sha256,
    }
}

/// Encrypts or decrypts from this byte of the stream on, which must be the first of a cipher block.
pub fn cipher_op(key: [u8; 32], counter: [u8; 16], from: u64) -> Op {
    debug_assert_eq!(from % CIPHER_BLOCK, 0);
    let counter = u128::from_be_bytes(counter).wrapping_add(u128::from(from / CIPHER_BLOCK));
    Op::Aes256Ctr { key, counter: counter.to_be_bytes() }
}

/// The operators that make plain data of a segment's bytes. `from`: the first of them, the beginning of a cipher block.
pub fn plain(compression: Compression, key: Option<&Key>, segment: u64, from: u64) -> Vec<Op> {
    let decrypt = key.map(|key| cipher_op(**key, rest::counter(segment), from));
    let decompress = match compression {
        Compression::None => None,
        Compression::Gzip => Some(Op::Gunzip),
        Compression::Zstd => Some(Op::Unzstd),
    };
    decrypt.into_iter().chain(decompress).collect()
}

/// Whether files of this folder can be written past the page cache.
pub fn can_go_direct(folder: &Path) -> bool {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, rustix::fs::Mode::from_raw_mode(0o600)).is_ok()
}

impl DataPath {
    /// On this engine.
    ///
    /// # Errors
    ///
    /// The engine can't have a session of that depth.
    pub fn new(engine: Engine, settings: Settings) -> Result<DataPath, Error> {
        let Settings { transfers, min_rate, durable, direct } = settings;
        let session = engine.session_with_depth(transfers)?;
        let probe = engine.session_with_depth(1)?;
        let (transfers, places) = (transfers.into(), Semaphore::new(transfers.into()));
        let metrics = Arc::default();
        Ok(DataPath { session, probe, transfers, metrics, places, min_rate, durable, direct, engine })
    }

    /// Whether the engine answers: it takes some bytes through an operator.
    ///
    /// # Errors
    ///
    /// [`PathError`]; it may be that one asks already.
    pub async fn answers(&self) -> Result<(), PathError> {
        let (source, sink) = (Source::memory(b"does it answer?".to_vec()), Sink::memory(15));
        let request = self.probe.request(source, [Op::Crc32c], sink).timeout(Duration::from_secs(5));
        request.submit()?.await?;
        Ok(())
    }

    /// What the engine tells, and how many transfers it may have.
    pub fn statistics(&self) -> (Statistics, usize) {
        (self.engine.statistics(), self.transfers)
    }

    /// Waits for a place.
    async fn place(&self) -> SemaphorePermit<'_> {
        // A guard, since who waits may be dropped.
        let _waiting = (self.places.available_permits() == 0).then(|| Waiting::new(&self.metrics));
        self.places.acquire().await.expect("it is never closed")
    }

    /// A client that is slower than the least rate is given up.
    fn limit(&self, bytes: u64) -> Duration {
        Duration::from_secs(30).saturating_add(Duration::from_secs(bytes / self.min_rate.max(1)))
    }

    /// Takes a body of so many bytes from a socket to a file, which is durable then.
    ///
    /// # Errors
    ///
    /// [`PathError`]. The file has some of the data.
    pub async fn receive(
        &self,
        socket: &TcpStream,
        length: u64,
        intake: &Intake,
        file: &File,
    ) -> Result<Received, PathError> {
        let source = Source::socket(socket);
        self.take_in(source, Some(length), intake, file, Some(self.limit(length))).await
    }

    /// Takes a body with a framing that tells its end, so that nobody needs to know how long it is with it: all that comes.
    ///
    /// # Errors
    ///
    /// [`PathError`]. The file has some of the data.
    pub async fn receive_framed(
        &self,
        socket: &impl AsFd,
        intake: &Intake,
        file: &File,
    ) -> Result<Received, PathError> {
        let size = intake.framing.as_ref().map_or(0, |(_, size)| *size);
        self.take_in(Source::socket(socket), None, intake, file, Some(self.limit(size))).await
    }

    /// Takes an empty body: what is left of it is its digests, and what compression makes of nothing.
    ///
    /// # Errors
    ///
    /// [`PathError`].
    pub async fn take_nothing(&self, intake: &Intake, file: &File) -> Result<Received, PathError> {
        self.take_in(Source::memory(Vec::new()), Some(0), intake, file, None).await
    }

    /// Copies pieces to a file, as one stream.
    ///
    /// # Errors
    ///
    /// [`PathError`]. The file has some of the data.
    pub async fn copy(
        &self,
        pieces: Vec<Piece>,
        intake: &Intake,
        file: &File,
    ) -> Result<Received, PathError> {
        let length = pieces.iter().map(|piece| piece.length).sum();
        match pieces.as_slice() {
            [] => self.take_nothing(intake, file).await,
            [piece] if piece.chain.is_empty() => {
                let source = Source::file(&piece.file, piece.range.clone());
                self.take_in(source, Some(length), intake, file, None).await
            }
            pieces => {
                // Digests go over all of it, so all of it has to come from one source.
                let (from, to) = UnixStream::pair()?;
                from.set_nonblocking(true)?;
                to.set_nonblocking(true)?;
                let send = async {
                    for piece in pieces {
                        let sent = self.forward(Direction::Copy, &from, Vec::new(), piece, false).await;
                        // The other side is told of a failure: it would wait for the rest.
                        sent.inspect_err(|_| _ = from.shutdown(Shutdown::Both))?;
                    }
                    Ok::<(), PathError>(())
                };
                let take = async {
                    let taken = self.take_in(Source::socket(&to), Some(length), intake, file, None).await;
                    taken.inspect_err(|_| _ = to.shutdown(Shutdown::Both))
                };
                let (sent, taken) = tokio::join!(send, take);
                sent.and(taken)
            }
        }
    }

    /// Takes data from anywhere to a file: so many, or all that come.
    async fn take_in(
        &self,
        source: Source,
        length: Option<u64>,
        intake: &Intake,
        file: &File,
        limit: Option<Duration>,
    ) -> Result<Received, PathError> {
        let _place = self.place().await;
        let direction = if limit.is_some() { Direction::Put } else { Direction::Copy };
        let chain = intake.chain();
        let mut request = self.session.request(source, chain, self.destination(file, intake, length));
        if let Some(length) = length {
            request = request.length(length);
        }
        if self.durable {
            request = request.durable();
        }
        if let Some(limit) = limit {
            request = request.timeout(limit);
        }
        let completion = self.run(direction, request).await?;
        intake.received(&completion)
    }

    /// A data file, which has its room where it is written past the page cache: a file that grows is written one piece at a time.
    fn destination(&self, file: &File, intake: &Intake, length: Option<u64>) -> Sink {
        let size = intake.framing.as_ref().map_or(length, |(_, size)| Some(*size));
        let size = size.filter(|_| self.direct && intake.compression == Compression::None).unwrap_or(0);
        if size >= DIRECT_MIN && rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size).is_ok() {
            Sink::file(file, 0).cache(Mode::Off)
        } else {
            Sink::file(file, 0)
        }
    }

    /// Fetches a piece that is small.
    ///
    /// # Errors
    ///
    /// [`PathError`].
    pub async fn fetch(&self, piece: &Piece) -> Result<Vec<u8>, PathError> {
        let _place = self.place().await;
        let source = Source::file(&piece.file, piece.range.clone());
        let length =
            usize::try_from(piece.length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let request = self.session.request(source, piece.chain.iter().cloned(), Sink::memory(length));
        // The connection counts what it sends of it.
        let fetched = request.submit()?.await?;
        let bytes = fetched.memory.unwrap_or_default();
        if bytes.len() != length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(bytes)
    }

    /// Has a piece pass its operators to anywhere, in whatever time it takes: how many bytes came out.
    ///
    /// # Errors
    ///
    /// [`PathError`].
    pub async fn pass(&self, piece: &Piece, sink: Sink) -> Result<u64, PathError> {
        let _place = self.place().await;
        let source = Source::file(&piece.file, piece.range.clone());
        let request = self.session.request(source, piece.chain.iter().cloned(), sink);
        let passed = self.run(Direction::Check, request).await?;
        Ok(passed.bytes_out)
    }

    /// Sends a piece, behind these bytes, which pass its operators too. `more`: others follow at once.
    ///
    /// # Errors
    ///
    /// [`PathError`].
    pub async fn send(
        &self,
        socket: &impl AsFd,
        head: Vec<u8>,
        piece: &Piece,
        more: bool,
    ) -> Result<Completion, PathError> {
        self.forward(Direction::Get, socket, head, piece, more).await
    }

    async fn forward(
        &self,
        direction: Direction,
        socket: &impl AsFd,
        head: Vec<u8>,
        piece: &Piece,
        more: bool,
    ) -> Result<Completion, PathError> {
        let _place = self.place().await;
        let source = Source::file(&piece.file, piece.range.clone());
        // A segment is never written to again.
        let source = source.immutable();
        let mut request = self.session.request(source, piece.chain.iter().cloned(), Sink::socket(socket));
        if !head.is_empty() {
            request = request.prefix(head);
        }
        if more {
            request = request.more();
        }
        self.run(direction, request.timeout(self.limit(piece.length))).await
    }

    /// Has the engine carry a request out, and counts it.
    async fn run(&self, direction: Direction, request: Request<'_>) -> Result<Completion, PathError> {
        let done = match request.submit() {
            Ok(transfer) => transfer.await.map_err(PathError::from),
            Err(error) => Err(error.into()),
        };
        self.metrics.moved(direction, &done);
        done
    }
}

/// A transfer that waits for a place.
struct Waiting<'a>(&'a Metrics);

impl<'a> Waiting<'a> {
    fn new(metrics: &'a Metrics) -> Waiting<'a> {
        metrics.waiting.inc();
        Waiting(metrics)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.dec();
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
        match self.compression {
            Compression::None => {}
            Compression::Gzip => chain.push(Op::Gzip { level: GZIP_LEVEL }),
            Compression::Zstd => chain.push(Op::Zstd { level: ZSTD_LEVEL }),
        }
        chain.extend(self.cipher.map(|(key, counter)| cipher_op(key, counter, 0)));
        chain
    }

    fn received(&self, completion: &Completion) -> Result<Received, PathError> {
        let value = |op: &Op| {
            let found = completion.digests.iter().find(|digest| digest.operator as u8 == op.number());
            found.map(|digest| digest.bytes().to_vec())
        };
        let missing = || PathError::Io(io::Error::other("the engine has left out a digest"));
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
        Ok(Received { size, stored: completion.bytes_out, md5, sha256, checksum, trailer })
    }
}
