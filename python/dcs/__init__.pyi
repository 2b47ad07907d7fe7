"""Types of the package dcs. For documentation see help(dcs.sendfile) and docs/python.md."""

from asyncio import StreamWriter, WriteTransport
from collections.abc import Generator, Iterable
from typing import Any, Literal, Protocol, Self, TypedDict, final

from typing_extensions import Buffer

__all__ = [
    "Cancelled",
    "Completion",
    "Digest",
    "Disconnected",
    "Engine",
    "Error",
    "Memory",
    "Op",
    "Prepared",
    "Timeout",
    "Transfer",
    "aes256_ctr",
    "aes256_xts",
    "aes256_xts_decrypt",
    "aggregate",
    "aws_chunked",
    "bitmap",
    "blowfish_ctr",
    "crc32",
    "crc32c",
    "crc64_nvme",
    "default_engine",
    "filter",
    "grep",
    "gunzip",
    "gzip",
    "knn",
    "md5",
    "module",
    "prepare",
    "recvfile",
    "sendfile",
    "sha1",
    "sha256",
    "sha512",
    "slice",
    "transfer",
    "unzstd",
    "zstd",
]

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

_Descriptor = int | _HasFileno
# Without TLS, and with nothing left to write.
_Stream = WriteTransport | StreamWriter
_Through = str | Op | Iterable[str | Op]
_Mode = Literal["auto", "on", "off"]
_Element = Literal["u8", "f32"]
_Combination = Literal["and", "or"]
_Checksum = Literal["crc32", "crc32c", "crc64-nvme", "sha1", "sha256"]

class _StageTime(TypedDict):
    """Times of one stage, in seconds."""

    name: str
    first: float
    last: float
    busy: float
    operations: int

class _Breakdown(TypedDict):
    """Times of a transfer, in seconds."""

    queued: float
    run: float
    stages: list[_StageTime]

@final
class Engine:
    def __new__(
        cls,
        *,
        io: Literal["auto", "uring", "plain"] = "auto",
        block_size: int | None = None,
        blocks: int | None = None,
        window: int | None = None,
        commands: int | None = None,
        depth: int = 1024,
        spin: float | None = None,
        cores: int | Literal["all"] | None = None,
        core: int | None = None,
        cpus: list[int] | None = None,
        numa_node: int | None = None,
        nice: int | None = None,
        gpu: int | None = None,
        gpu_storage: _Mode = "auto",
        backend: Literal["kernel", "drive"] = "kernel",
    ) -> Self: ...
    def statistics(self) -> dict[str, int]: ...
    @property
    def cores(self) -> int: ...
    @property
    def uses_io_uring(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

def default_engine() -> Engine: ...
@final
class Op:
    @property
    def name(self) -> str: ...
    def on_gpu(self) -> Op: ...

@final
class Memory:
    def __new__(cls, capacity: int) -> Self: ...
    @property
    def capacity(self) -> int: ...

@final
class Digest:
    @property
    def name(self) -> str: ...
    @property
    def place(self) -> int: ...
    @property
    def covered(self) -> int: ...
    @property
    def value(self) -> bytes: ...
    def hexdigest(self) -> str: ...

@final
class Completion:
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...
    @property
    def digests(self) -> dict[str, bytes]: ...
    @property
    def values(self) -> list[Digest]: ...
    def hexdigest(self, name: str) -> str: ...
    @property
    def path(self) -> list[str]: ...
    @property
    def breakdown(self) -> _Breakdown: ...
    @property
    def memory(self) -> bytes | None: ...

@final
class Prepared:
    def submit(self, offset: int = 0, destination_offset: int = 0, *, count: int) -> None: ...
    def result(self, timeout: float | None = None) -> Completion: ...
    def done(self) -> bool: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...

@final
class Transfer:
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> Completion: ...
    def cancel(self) -> None: ...
    def fileno(self) -> int: ...
    def __await__(self) -> Generator[Any, None, Completion]: ...

class Error(OSError):
    errno: int
    strerror: str
    status: str
    stage: str
    operator: tuple[int, str] | None
    advice: str
    completion: Completion | None
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...

class Timeout(Error, TimeoutError): ...
class Disconnected(Error, ConnectionError): ...
class Cancelled(Error): ...

def sendfile(
    sock: _Descriptor | _Stream,
    file: _Descriptor,
    offset: int = 0,
    count: int | None = None,
    through: _Through | None = None,
    *,
    prefix: Buffer | None = None,
    timeout: float | None = None,
    more: bool = False,
    durable: bool = False,
    immutable: bool = False,
    engine: Engine | None = None,
) -> Completion: ...
def recvfile(
    sock: _Descriptor,
    file: _Descriptor,
    offset: int = 0,
    count: int | None = None,
    through: _Through | None = None,
    *,
    prefix: Buffer | None = None,
    durable: bool = False,
    timeout: float | None = None,
    near_storage: bool = False,
    engine: Engine | None = None,
) -> Completion: ...
def transfer(
    source: _Descriptor | Buffer,
    destination: _Descriptor | _Stream | Buffer | Memory,
    through: _Through | None = None,
    *,
    offset: int = 0,
    destination_offset: int = 0,
    count: int | None = None,
    prefix: Buffer | None = None,
    timeout: float | None = None,
    more: bool = False,
    durable: bool = False,
    immutable: bool = False,
    rid: int = 0,
    source_cache: _Mode = "auto",
    destination_cache: _Mode = "auto",
    zero_copy: _Mode = "auto",
    near_storage: bool = False,
    engine: Engine | None = None,
) -> Transfer: ...
def prepare(
    source: _Descriptor,
    destination: _Descriptor | _Stream,
    through: _Through | None = None,
    *,
    timeout: float | None = None,
    more: bool = False,
    durable: bool = False,
    immutable: bool = False,
    rid: int = 0,
    engine: Engine | None = None,
) -> Prepared: ...
def md5(expect: Buffer | str | None = None) -> Op: ...
def sha1(expect: Buffer | str | None = None) -> Op: ...
def sha256(expect: Buffer | str | None = None) -> Op: ...
def sha512(expect: Buffer | str | None = None) -> Op: ...
def crc32(expect: Buffer | str | int | None = None) -> Op: ...
def crc32c(expect: Buffer | str | int | None = None) -> Op: ...
def crc64_nvme(expect: Buffer | str | int | None = None) -> Op: ...
def aes256_ctr(key: Buffer, iv: Buffer) -> Op: ...
def aes256_xts(key: Buffer, unit_size: int = 4096, first_unit: int = 0) -> Op: ...
def aes256_xts_decrypt(key: Buffer, unit_size: int = 4096, first_unit: int = 0) -> Op: ...
def blowfish_ctr(key: Buffer, iv: Buffer) -> Op: ...
def gzip(level: int = 1) -> Op: ...
def gunzip() -> Op: ...
def zstd(level: int = 3) -> Op: ...
def unzstd() -> Op: ...
def slice(skip: int, take: int) -> Op: ...
def filter(expression: str) -> Op: ...
def aggregate(expression: str) -> Op: ...
def grep(pattern: str, *, ignore_case: bool = False, invert: bool = False, count: bool = False) -> Op: ...
def knn(k: int, element: _Element, query: Buffer) -> Op: ...
def bitmap(operation: _Combination | None = None, *, count: bool = False) -> Op: ...
def module(module: Buffer, parameter: Buffer | None = None) -> Op: ...
def aws_chunked(
    decoded_length: int,
    *,
    checksum: _Checksum | None = None,
    trailers: bool = False,
    signing_key: Buffer | None = None,
    seed_signature: Buffer | None = None,
    timestamp: str | None = None,
    scope: str | None = None,
) -> Op: ...
