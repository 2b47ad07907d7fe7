"""sendfile, recvfile and transfer on real sockets and files."""

import hashlib
import io
import mmap
import os
import socket
import ssl
import threading

import pytest
from conftest import MIB, Reader, Writer, data

import dcs


def md5(content):
    return hashlib.md5(content).digest()


@pytest.mark.parametrize("size", [0, 1, 65536, 5 * MIB + 7])
def test_sendfile(pair, make, size):
    one, other = pair
    content = data(size, size)
    reader = Reader(other)
    done = dcs.sendfile(one, make(content), through=["md5", "crc32c"])
    one.close()
    assert reader.all() == content
    assert (done.bytes_in, done.bytes_out) == (size, size)
    assert done.digests["md5"] == md5(content)
    assert list(done.digests) == ["crc32c", "md5"] or list(done.digests) == ["md5", "crc32c"]


@pytest.mark.parametrize("immutable", [False, True])
def test_sendfile_without_operators_goes_by_the_kernels_own_copy_of_what_nobody_writes_to(tcp, make, immutable):
    one, other = tcp
    one.setblocking(False)
    content = data(3 * MIB, 1)
    reader = Reader(other)
    done = dcs.sendfile(one, make(content), immutable=immutable)
    one.close()
    assert reader.all() == content
    assert ("the kernel's own copy" in done.path) == immutable
    assert done.digests == {} and done.values == []


@pytest.mark.parametrize("size", [0, 1, 5 * MIB + 7])
def test_an_immutable_file_is_sent_from_the_page_cache_after_its_digests(tcp, make, size):
    one, other = tcp
    one.setblocking(False)
    content = data(size, 12)
    file = make(content)
    reader = Reader(other)
    done = dcs.sendfile(one, file, through=["md5", "crc32"], immutable=True)
    again = dcs.transfer(file, one, ["md5"], offset=size // 2, immutable=True).result(60)
    one.close()
    assert reader.all() == content + content[size // 2 :]
    assert done.digests["md5"] == md5(content) and again.digests["md5"] == md5(content[size // 2 :])
    assert size < MIB or "zero-copy send" in done.path


def test_sendfile_range_and_prefix(pair, make):
    one, other = pair
    content = data(MIB, 2)
    file = make(content)
    reader = Reader(other)
    done = dcs.sendfile(one, file, 1000, 5 + 300_000, ["sha256"], prefix=b"head:")
    rest = dcs.sendfile(one.fileno(), file.fileno(), MIB - 10)
    one.close()
    sent = b"head:" + content[1000:301_000]
    assert reader.all() == sent + content[-10:]
    assert done.digests["sha256"] == hashlib.sha256(sent).digest(), "the prefix goes through the operators"
    assert done.bytes_in == done.bytes_out == len(sent)
    assert rest.bytes_out == 10
    assert file.tell() == 0, "the file's position is not moved"


def test_a_range_behind_the_end_of_the_file(tcp, make):
    file = make(b"0123456789")
    assert dcs.sendfile(tcp[0], file, 10).bytes_out == 0
    for offset, count in [(11, None), (1000, 0), (5, 6)]:
        with pytest.raises(dcs.Error) as caught:
            dcs.sendfile(tcp[0], file, offset, count)
        assert (caught.value.status, caught.value.errno, caught.value.bytes_out) == ("OUT_OF_RANGE", 34, 0)


@pytest.mark.parametrize("size", [0, 1, 65536, 5 * MIB + 7])
def test_recvfile(pair, target, size):
    one, other = pair
    content = data(size, size)
    Writer(other, content)
    done = dcs.recvfile(one, target, through=["md5"], durable=True)
    assert target.read() == content
    assert (done.bytes_in, done.bytes_out) == (size, size)
    assert done.digests["md5"] == md5(content)


def test_recvfile_range_and_prefix(pair, target):
    one, other = pair
    content = data(MIB, 3)
    target.write(b"x" * 20)
    target.flush()
    rest = threading.Thread(target=other.sendall, args=(content[100:300_000],))
    rest.start()
    done = dcs.recvfile(one, target, 10, 300_000, "md5", prefix=bytearray(content[:100]))
    assert done.digests["md5"] == md5(content[:300_000])
    target.seek(0)
    assert target.read() == b"x" * 10 + content[:300_000]
    rest.join(10)
    other.sendall(b"next")
    assert one.recv(100) == b"next", "nothing behind the count was read"


def test_recvfile_with_all_of_it_in_the_prefix(tcp, target):
    done = dcs.recvfile(tcp[0], target, count=4, prefix=b"body")
    assert (done.bytes_in, target.read()) == (4, b"body")


def test_a_peer_that_stops_early(pair, target):
    one, other = pair
    content = data(200_000, 4)
    Writer(other, content)
    with pytest.raises(dcs.Error) as caught:
        dcs.recvfile(one, target, count=300_000, through=["md5"])
    error = caught.value
    assert (error.status, error.stage, error.errno) == ("END_OF_SOURCE", "source", 61)
    assert error.completion.digests["md5"] == md5(content)
    assert error.bytes_in == 200_000 and error.bytes_out <= 200_000
    assert target.read() == content[: error.bytes_out]


def test_transfer_between_files(make, target):
    content = data(2 * MIB, 5)
    done = dcs.transfer(make(content), target, ["sha1"], offset=4096, destination_offset=7).result()
    assert target.read() == bytes(7) + content[4096:]
    assert done.digests["sha1"] == hashlib.sha1(content[4096:]).digest()


def test_transfer_past_the_page_cache(make, target):
    content = data(MIB, 6)
    done = dcs.transfer(make(content), target, source_cache="off", destination_cache="on", zero_copy="off").result()
    assert target.read() == content
    assert done.bytes_out == MIB


def test_transfer_from_and_to_memory(pair, make):
    one, other = pair
    content = data(MIB, 7)
    for source in (content, bytearray(content), memoryview(content)):
        back = dcs.transfer(other, dcs.Memory(MIB), ["md5"], count=MIB)
        dcs.transfer(source, one).result()
        assert back.result().memory == content
    into = bytearray(MIB + 10)
    done = dcs.transfer(make(content), into, ["md5"]).result()
    assert done.memory is None and done.bytes_out == MIB
    assert into == content + bytes(10)
    done = dcs.transfer(content, memoryview(into)[5:], offset=MIB - 3, destination_offset=1).result()
    assert into[:10] == content[:6] + content[-3:] + content[9:10]


def test_transfer_of_a_mapped_file(folder):
    content = data(MIB, 8)
    (folder / "mapped").write_bytes(content)
    with open(folder / "mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        done = dcs.transfer(mapped, dcs.Memory(0), [dcs.slice(0, 0), "md5"]).result()
        assert dcs.transfer(mapped, dcs.Memory(MIB), "md5").result().digests["md5"] == md5(content)
        assert done.memory == b""


def test_memory_is_lent_until_the_transfer_is_done(pair):
    into = bytearray(100)
    transfer = dcs.transfer(pair[0], into, count=100)
    with pytest.raises(BufferError):
        into.append(1)
    pair[1].sendall(b"x" * 100)
    transfer.result()
    into.append(1)
    assert into == b"x" * 100 + b"\1"


def test_memory_that_is_too_small(make):
    with pytest.raises(dcs.Error) as caught:
        dcs.transfer(make(b"12345"), dcs.Memory(4)).result()
    assert (caught.value.status, caught.value.stage) == ("OUT_OF_RANGE", "destination")
    with pytest.raises(dcs.Error) as caught:
        dcs.transfer(make(b"12345"), bytearray(4), ["gzip"]).result()
    assert (caught.value.status, caught.value.errno) == ("CAPACITY_EXCEEDED", 28)


def test_pipes(make):
    content = data(MIB, 9)
    out, into = os.pipe()
    try:
        back = dcs.transfer(out, dcs.Memory(MIB), ["md5"], count=MIB)
        dcs.transfer(make(content), into).result()
        assert back.result().memory == content
    finally:
        os.close(out)
        os.close(into)


def test_a_non_blocking_socket_is_waited_for(pair, make):
    one, other = pair
    one.setblocking(False)
    other.settimeout(10)
    content = data(4 * MIB, 10)
    transfer = dcs.transfer(make(content), one, ["md5"])
    assert not transfer.done(), "nobody reads, and so much does not fit into a socket"
    reader = Reader(other)
    assert transfer.result().digests["md5"] == md5(content)
    one.close()
    assert reader.all() == content


def test_descriptors_may_be_closed_once_it_is_submitted(tcp, folder):
    one, other = tcp
    content = data(4 * MIB, 11)
    (folder / "short-lived").write_bytes(content)
    with open(folder / "short-lived", "rb") as file:
        transfer = dcs.transfer(file, one, ["md5"])
    one.close()
    reader = Reader(other)
    assert transfer.result().digests["md5"] == md5(content)
    assert reader.all() == content


def test_order_by_request_id(tcp):
    one, other = tcp
    reader = Reader(other)
    pieces = [bytes([at]) * 300_000 for at in range(20)]
    transfers = [dcs.transfer(piece, one, ["md5"], rid=9) for piece in pieces]
    for piece, transfer in zip(pieces, transfers, strict=True):
        assert transfer.result().digests["md5"] == md5(piece)
    one.close()
    assert reader.all() == b"".join(pieces)


def test_what_a_completion_tells(tcp, make):
    Reader(tcp[1])
    done = dcs.sendfile(tcp[0], make(data(MIB)), through="md5")
    breakdown = done.breakdown
    assert breakdown["run"] > 0 and breakdown["queued"] >= 0
    assert [stage["name"] for stage in breakdown["stages"]] == ["source", "md5", "destination"]
    for stage in breakdown["stages"]:
        assert 0 <= stage["first"] <= stage["last"] <= breakdown["run"]
        assert stage["busy"] > 0 and stage["operations"] > 0
    assert done.path and all(isinstance(path, str) for path in done.path)
    assert repr(done) == f"<dcs.Completion: {MIB} bytes in, {MIB} bytes out md5 {done.hexdigest('md5')}>"
    with pytest.raises(KeyError, match="sha1.*it has: md5"):
        done.hexdigest("sha1")
    assert done.memory is None


def test_an_engine_of_ones_own(tcp, make):
    Reader(tcp[1])
    with dcs.Engine(io="plain", blocks=64, block_size=65536, commands=32, window=2, depth=8, spin=0) as engine:
        assert engine.uses_io_uring is False
        dcs.sendfile(tcp[0], make(data(MIB)), through=["md5"], engine=engine)
        counted = engine.statistics()
        assert (counted["fetched"], counted["completed"], counted["failed"]) == (1, 1, 0)
        assert counted["blocks"] == 64 and counted["operations"] > 16
    for use in (engine.statistics, lambda: dcs.transfer(b"", dcs.Memory(0), engine=engine)):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    engine.close()


def test_the_default_engine_is_one():
    engine = dcs.default_engine()
    assert dcs.default_engine() is engine
    before = engine.statistics()["completed"]
    dcs.transfer(b"12", dcs.Memory(2)).result()
    assert engine.statistics()["completed"] == before + 1
    engine.close()
    assert dcs.default_engine() is not engine, "one that was closed is replaced"


def test_an_engine_lives_as_long_as_its_transfers(tcp):
    transfer = dcs.transfer(tcp[0], dcs.Memory(3), engine=dcs.Engine(), count=3)
    tcp[1].sendall(b"abc")
    assert transfer.result(10).memory == b"abc"


def test_closing_an_engine_ends_its_transfers(tcp):
    engine = dcs.Engine()
    transfer = dcs.transfer(tcp[0], dcs.Memory(3), engine=engine, count=3)
    engine.close()
    with pytest.raises(dcs.Error) as caught:
        transfer.result(10)
    assert (caught.value.status, caught.value.errno) == ("QUEUE_DELETED", 108)
    assert not isinstance(caught.value, dcs.Disconnected)


def test_wrong_arguments(tcp, make, target, folder):
    sock, file = tcp[0], make(b"content")
    plain = b"", dcs.Memory(0)
    wrong = [
        (TypeError, "sock must be a descriptor.*not NoneType", lambda: dcs.sendfile(None, file)),
        (TypeError, "file must be.*not str: open the file first", lambda: dcs.sendfile(sock, "name")),
        (TypeError, "not PosixPath: open the file first", lambda: dcs.sendfile(sock, folder)),
        (TypeError, "file must be.*not bytes", lambda: dcs.sendfile(sock, b"bytes")),
        (TypeError, "sock must be.*not bool", lambda: dcs.sendfile(True, file)),
        (ValueError, "sock is not a descriptor", lambda: dcs.sendfile(1 << 40, file)),
        (TypeError, "destination can't be written", lambda: dcs.transfer(b"1", b"2")),
        (io.UnsupportedOperation, "fileno", lambda: dcs.sendfile(sock, io.StringIO("text"))),
        (ValueError, "sock is closed, or not a descriptor: -1", lambda: dcs.sendfile(-1, file)),
        (ValueError, "offset is negative: -1", lambda: dcs.sendfile(sock, file, -1)),
        (ValueError, "count is negative: -5", lambda: dcs.sendfile(sock, file, 0, -5)),
        (ValueError, "count includes the prefix.*2 bytes", lambda: dcs.sendfile(sock, file, 0, 1, prefix=b"12")),
        (TypeError, "", lambda: dcs.sendfile(sock, file, prefix="text")),
        (TypeError, "", lambda: dcs.sendfile(sock, file, "0")),
        (ValueError, "offset is 5, but the source is a stream", lambda: dcs.transfer(sock, target, offset=5)),
        (ValueError, "the destination is a stream", lambda: dcs.transfer(file, sock, destination_offset=5)),
        (ValueError, "offset is after", lambda: dcs.transfer(b"12", target, offset=3)),
        (ValueError, "offsets", lambda: dcs.transfer(b"12", dcs.Memory(2), destination_offset=1)),
        (ValueError, "capacity", lambda: dcs.Memory(-1)),
        (MemoryError, "", lambda: dcs.transfer(b"", dcs.Memory(1 << 60))),
        (ValueError, 'no operator "md6"; expected one of: md5', lambda: dcs.transfer(*plain, ["md6"])),
        (ValueError, "dcs.aes256_ctr", lambda: dcs.transfer(*plain, ["aes256-ctr"])),
        (TypeError, "through must be a list", lambda: dcs.transfer(*plain, [5])),
        (TypeError, "through must be a list", lambda: dcs.transfer(*plain, 5)),
        (ValueError, "at most 8 operators", lambda: dcs.transfer(*plain, ["md5"] * 9)),
        (ValueError, "timeout", lambda: dcs.transfer(*plain, timeout=0)),
        (ValueError, "timeout", lambda: dcs.transfer(*plain, timeout=-1)),
        (ValueError, "timeout", lambda: dcs.transfer(*plain, timeout=float("nan"))),
        (ValueError, "source_cache must be auto, on or off", lambda: dcs.transfer(*plain, source_cache="direct")),
        (TypeError, "engine", lambda: dcs.transfer(*plain, engine=5)),
        (ValueError, "io must be auto, uring or plain", lambda: dcs.Engine(io="fast")),
        (ValueError, "block_size must be a multiple", lambda: dcs.Engine(block_size=5)),
        (ValueError, "1 to 4096", lambda: dcs.Engine(depth=5000)),
        (ValueError, "spin", lambda: dcs.Engine(spin=-1)),
        (TypeError, "", lambda: dcs.Engine(lanes=4)),
        (ValueError, "key has 32 bytes, not 5", lambda: dcs.aes256_ctr(b"short", bytes(16))),
        (ValueError, "iv has 16 bytes", lambda: dcs.aes256_ctr(bytes(32), bytes(12))),
        (TypeError, "key must be bytes-like", lambda: dcs.aes256_ctr("a" * 32, bytes(16))),
        (ValueError, "halves", lambda: dcs.aes256_xts(bytes(64))),
        (ValueError, "unit_size", lambda: dcs.aes256_xts(bytes(range(64)), 100)),
        (ValueError, "level is 0 to 9, not 10", lambda: dcs.gzip(10)),
        (ValueError, "level is 1 to 19, not 0", lambda: dcs.zstd(0)),
        (ValueError, "must not be negative", lambda: dcs.slice(-1, 2)),
        (ValueError, "md5 has 16 bytes; expect has 2", lambda: dcs.md5("beef")),
        (ValueError, "not hexadecimal digits", lambda: dcs.md5("xy" * 16)),
        (TypeError, "only CRCs are numbers", lambda: dcs.md5(5)),
        (ValueError, "larger than 4 bytes", lambda: dcs.crc32(1 << 32)),
        (ValueError, "no trailer carries", lambda: dcs.aws_chunked(5, checksum="md5")),
        (ValueError, "all or none", lambda: dcs.aws_chunked(5, signing_key=bytes(32))),
    ]
    for kind, text, call in wrong:
        with pytest.raises(kind, match=text or None):
            call()
    assert dcs.default_engine().statistics()["transfers"] == 0


def test_closed_and_unfit_descriptors(tcp, make, target, folder):
    sock, file = tcp[0], make(b"content")
    number = os.dup(sock.fileno())
    os.close(number)
    for call, stage in [
        (lambda: dcs.sendfile(number, file), "destination"),
        (lambda: dcs.recvfile(number, target), "source"),
    ]:
        with pytest.raises(dcs.Error) as caught:
            call()
        assert (caught.value.errno, caught.value.status, caught.value.stage) == (9, "BAD_HANDLE", stage)
    gone = socket.socket()
    gone.close()
    with pytest.raises(ValueError, match="closed"):
        dcs.sendfile(gone, file)
    with pytest.raises(dcs.Error) as caught:
        dcs.transfer(b"x", file).result()
    assert (caught.value.status, caught.value.stage) == ("ACCESS_DENIED", "destination")
    folder = os.open(folder, os.O_RDONLY)
    try:
        with pytest.raises(dcs.Error, match="a directory") as caught:
            dcs.sendfile(sock, folder)
        assert (caught.value.status, caught.value.stage) == ("UNSUPPORTED_ENDPOINT", "source")
    finally:
        os.close(folder)


def test_tls_sockets_are_refused(tcp, make):
    context = ssl.create_default_context()
    with context.wrap_socket(tcp[0], server_hostname="localhost", do_handshake_on_connect=False) as tls:
        with pytest.raises(TypeError, match="sock is a TLS socket"):
            dcs.sendfile(tls, make(b"secret"))
