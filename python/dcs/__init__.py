"""sendfile and recvfile with digests, ciphers and compression on the way, by an engine that moves the bytes.

    import dcs

    done = dcs.sendfile(sock, file, through=["md5"])
    print(done.bytes_out, done.hexdigest("md5"))

``sendfile`` and ``recvfile`` wait; ``transfer`` starts one that can be waited for, awaited, or polled by its descriptor.
``prepare`` binds ends and operators once, for many small transfers.
Operators without parameters are named, others are made: ``dcs.aes256_ctr(key, iv)``, ``dcs.md5(expect=...)``. The manual
is docs/python.md.
"""

from ._dcs import (
    Completion,
    Digest,
    Engine,
    Memory,
    Op,
    Prepared,
    Transfer,
    aes256_ctr,
    aes256_xts,
    aes256_xts_decrypt,
    aggregate,
    aws_chunked,
    bitmap,
    blowfish_ctr,
    crc32,
    crc32c,
    crc64_nvme,
    default_engine,
    filter,
    grep,
    gunzip,
    gzip,
    knn,
    md5,
    module,
    prepare,
    recvfile,
    sendfile,
    sha1,
    sha256,
    sha512,
    slice,
    transfer,
    unzstd,
    zstd,
)
from ._errors import Cancelled, Disconnected, Error, Timeout

for _class in (Cancelled, Disconnected, Error, Timeout):
    _class.__module__ = "dcs"
del _class

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
