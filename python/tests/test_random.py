"""Random transfers against a model of them."""

import hashlib
import socket
import tempfile
import zlib

from conftest import Reader, Writer
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

import dcs

KEY, IV = bytes(32), bytes(16)

#: name -> what through takes, what comes out, the digest that is told
MODEL = {
    "md5": ("md5", lambda data: data, lambda data: hashlib.md5(data).digest()),
    "sha256": (dcs.sha256(), lambda data: data, lambda data: hashlib.sha256(data).digest()),
    "crc32": ("crc32", lambda data: data, lambda data: zlib.crc32(data).to_bytes(4, "big")),
    "aes256-ctr": (
        dcs.aes256_ctr(KEY, IV),
        lambda data: Cipher(algorithms.AES(KEY), modes.CTR(IV)).encryptor().update(data),
        None,
    ),
}

chains = st.lists(st.sampled_from(sorted(MODEL)), max_size=6)
contents = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda piece, times: piece * times, st.binary(min_size=1, max_size=50), st.integers(1, 20_000)),
)


def expected(content, chain):
    values = []
    for name in chain:
        _, change, digest = MODEL[name]
        if digest:
            values.append((name, digest(content)))
        content = change(content)
    return content, values


def check(done, content, chain):
    out, values = expected(content, chain)
    assert [(digest.name, digest.value) for digest in done.values] == values
    assert (done.bytes_in, done.bytes_out) == (len(content), len(out))
    return out


@settings(max_examples=80, deadline=None)
@given(contents, st.binary(max_size=100), chains, st.data())
def test_sendfile(content, prefix, chain, more):
    offset = more.draw(st.integers(0, len(content)))
    count = more.draw(st.none() | st.integers(0, len(content) - offset))
    one, other = socket.socketpair()
    with one, other, tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        reader = Reader(other)
        total = None if count is None else count + len(prefix)
        through = [MODEL[name][0] for name in chain]
        done = dcs.sendfile(one, file, offset, total, through, prefix=prefix)
        one.shutdown(socket.SHUT_WR)
        end = None if count is None else offset + count
        assert reader.all() == check(done, prefix + content[offset:end], chain)


@settings(max_examples=80, deadline=None)
@given(contents, st.integers(0, 100), st.integers(0, 5000), chains, st.booleans())
def test_recvfile(content, in_prefix, offset, chain, counted):
    prefix = content[:in_prefix]
    one, other = socket.socketpair()
    with one, other, tempfile.TemporaryFile() as file:
        Writer(other, content[in_prefix:])
        through = [MODEL[name][0] for name in chain]
        count = len(content) if counted else None
        done = dcs.recvfile(one, file, offset, count, through, prefix=prefix)
        out = check(done, content, chain)
        file.seek(0)
        assert file.read() == (bytes(offset) + out if out else b"")


@settings(max_examples=80, deadline=None)
@given(contents, chains)
def test_memory(content, chain):
    through = [MODEL[name][0] for name in chain]
    into = bytearray(len(content))
    done = dcs.transfer(content, into, through).result(60)
    assert into == check(done, content, chain)
