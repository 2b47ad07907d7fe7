"""Both carriers move the same bytes: files and connections of this process, a greenlet for each side."""

import errno
import gc
import hashlib
import os
import random
import resource

import eventlet
import pytest
from eventlet import patcher
from eventlet.green import socket

from dcs_swift import carrier
from dcs_swift.carrier import CLIENT, DATA, DISK, ENGINE, Stopped
from dcs_swift.stored import AES, GZIP, PLAIN, Form, Key
from dcs_swift.watch import Overdue, Silent, Watch

DATA_OF = random.Random(3).randbytes(1_500_000) + bytes(1_500_007)
KEY = Key(bytes(range(32)))


@pytest.fixture(params=[("dcs", "1"), ("dcs", "2"), ("hashlib", "1")], ids=" ".join)
def moves(request):
    engine, cores = request.param
    if engine == "dcs":
        pytest.importorskip("dcs")
    return carrier.make({"engine": engine, "dcs_cores": cores})


@pytest.fixture
def pair():
    server = eventlet.listen(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    served, _ = server.accept()
    served.settimeout(5)
    yield client, served
    for each in (client, served, server):
        each.close()


def read_all(sock, count):
    parts = []
    while count and (got := sock.recv(min(count, 1 << 16))):
        parts.append(got)
        count -= len(got)
    return b"".join(parts)


@pytest.mark.parametrize("kind", [PLAIN, AES, GZIP])
@pytest.mark.parametrize("ahead", [0, 1, 5000, len(DATA_OF)])
def test_there_and_back(moves, pair, tmp_path, kind, ahead):
    client, served = pair
    form = Form.new(kind, KEY)
    sender = eventlet.spawn(client.sendall, DATA_OF[ahead:])
    with open(tmp_path / "object", "w+b") as file:
        watch = Watch(served, True, 5)
        moved = moves.receive(served, file.fileno(), len(DATA_OF), DATA_OF[:ahead], form, watch)
        sender.wait()
        assert moved.body == len(DATA_OF) and moved.stored == os.fstat(file.fileno()).st_size
        assert moved.md5 == hashlib.md5(DATA_OF).hexdigest()
        file.seek(0)
        decoder = form.decoder()
        assert (decoder.update(file.read()) + decoder.finalize() if decoder else file.read()) == DATA_OF
        reader = eventlet.spawn(read_all, client, len(DATA_OF))
        again = Form(form.kind, KEY, form.iv, size=moved.stored)
        sent = moves.send(served, file.fileno(), 0, len(DATA_OF), again, True, Watch(served, False, 5))
        assert reader.wait() == DATA_OF
        assert sent == (len(DATA_OF), moved.stored, moved.md5)


@pytest.mark.parametrize("kind", [PLAIN, AES, GZIP])
def test_range(moves, pair, tmp_path, kind):
    client, served = pair
    form = Form.new(kind, KEY)
    encoder = form.encoder()
    coded = encoder.update(DATA_OF) + encoder.finalize() if encoder else DATA_OF
    form = Form(kind, KEY, form.iv, size=len(coded))
    (tmp_path / "object").write_bytes(coded)
    with open(tmp_path / "object", "rb") as file:
        reader = eventlet.spawn(read_all, client, 99_999)
        sent = moves.send(served, file.fileno(), 160_000, 259_999, form, False, Watch(served, False, 5))
        assert reader.wait() == DATA_OF[160_000:259_999]
        assert sent.md5 is None and sent.body == 99_999


def test_client_ends_early(moves, pair, tmp_path):
    client, served = pair
    client.sendall(DATA_OF[:1000])
    client.shutdown(socket.SHUT_WR)
    with open(tmp_path / "object", "wb") as file, pytest.raises(Stopped) as caught:
        moves.receive(served, file.fileno(), 5000, b"", Form(), Watch(served, True, 5))
    assert caught.value.where == CLIENT


def test_client_is_silent(moves, pair, tmp_path):
    _, served = pair
    served.settimeout(0.3)
    with open(tmp_path / "object", "wb") as file, pytest.raises(Silent):
        moves.receive(served, file.fileno(), 5000, b"abc", Form(), Watch(served, True, 0.3))


def test_client_leaves(moves, pair, tmp_path):
    client, served = pair
    (tmp_path / "object").write_bytes(DATA_OF * 5)
    with open(tmp_path / "object", "rb") as file, pytest.raises(Stopped) as caught:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        moves.send(served, file.fileno(), 0, 5 * len(DATA_OF), Form(), True, Watch(served, False, 5))
    assert caught.value.where == CLIENT


def test_file_that_can_not_be_written(moves, pair, tmp_path):
    client, served = pair
    (tmp_path / "object").write_bytes(b"")
    client.sendall(DATA_OF[:1000])
    with open("/dev/full", "wb") as file, pytest.raises(Stopped) as caught:
        moves.receive(served, file.fileno(), 1000, b"", Form(), Watch(served, True, 5))
    assert caught.value.where == DISK


def test_damaged_gzip(moves, pair, tmp_path):
    client, served = pair
    encoder = Form.new(GZIP).encoder()
    coded = bytearray(encoder.update(DATA_OF) + encoder.finalize())
    coded[len(coded) // 3] ^= 0x55
    (tmp_path / "object").write_bytes(coded)
    reader = eventlet.spawn(read_all, client, len(DATA_OF))
    with open(tmp_path / "object", "rb") as file, pytest.raises(Stopped) as caught:
        moves.send(served, file.fileno(), 0, len(DATA_OF), Form(GZIP, size=len(coded)), True, Watch(served, False, 5))
    assert (caught.value.where, caught.value.damaged) == (DATA, True)
    served.shutdown(socket.SHUT_RDWR)
    assert len(reader.wait()) < len(DATA_OF)


def test_file_that_is_cut(moves, pair, tmp_path):
    """The file is truncated while it is being sent."""
    client, served = pair
    (tmp_path / "object").write_bytes(DATA_OF * 10)
    with open(tmp_path / "object", "rb") as file:
        watch = Watch(served, False, 5)
        sends = eventlet.spawn(moves.send, served, file.fileno(), 0, 10 * len(DATA_OF), Form(), True, watch)
        # It has begun, and cannot go on to the end: nobody reads.
        client.recv(1, socket.MSG_PEEK)
        os.truncate(tmp_path / "object", 9 * len(DATA_OF))
        got = read_all(client, 9 * len(DATA_OF))
        with pytest.raises(Stopped) as caught:
            sends.wait()
    assert got == DATA_OF * 9
    assert (caught.value.where, caught.value.damaged) == (DISK, True)


def test_file_that_is_too_short(moves, pair, tmp_path):
    """Swift finds the damage when the object is opened the next time."""
    _, served = pair
    (tmp_path / "object").write_bytes(DATA_OF[:5000])
    with open(tmp_path / "object", "rb") as file, pytest.raises(Stopped) as caught:
        moves.send(served, file.fileno(), 0, 9000, Form(), True, Watch(served, False, 5))
    assert caught.value.where == DISK


def test_gzip_that_was_cut(moves, pair, tmp_path):
    """All bytes that the metadata announce are there, but the stream continues behind them."""
    _, served = pair
    encoder = Form.new(GZIP).encoder()
    coded = (encoder.update(DATA_OF[:9000]) + encoder.finalize())[:5000]
    (tmp_path / "object").write_bytes(coded)
    with open(tmp_path / "object", "rb") as file, pytest.raises(Stopped) as caught:
        moves.send(served, file.fileno(), 0, 9000, Form(GZIP, size=5000), True, Watch(served, False, 5))
    assert (caught.value.where, caught.value.damaged) == (DATA, True)


# Meaning of a GET's failure: stage, status, errno; place, damaged.
OF_A_GET = [
    ("operator", "CORRUPT_DATA", errno.EBADMSG, DATA, True),
    ("operator", "TRUNCATED_DATA", errno.EBADMSG, DATA, True),
    ("operator", "DIGEST_MISMATCH", errno.EBADMSG, DATA, True),
    ("operator", "BAD_PARAMETER", errno.EINVAL, ENGINE, False),
    ("operator", "OUT_OF_RESOURCES", errno.ENOBUFS, ENGINE, False),
    ("operator", "CAPACITY_EXCEEDED", errno.ENOSPC, ENGINE, False),
    ("operator", "INTERNAL_ERROR", errno.EIO, ENGINE, False),
    ("operator", "CANCELLED", errno.ECANCELED, ENGINE, False),
    ("source", "END_OF_SOURCE", errno.ENODATA, DISK, True),
    ("source", "READ_ERROR", errno.EIO, DISK, True),
    ("source", "READ_ERROR", errno.ENOMEM, DISK, False),
    ("source", "OUT_OF_RANGE", errno.ERANGE, DISK, False),
    ("source", "DEVICE_RESET", errno.ENXIO, DISK, False),
    ("source", "INTERNAL_ERROR", errno.EIO, ENGINE, False),
    ("source", "BAD_HANDLE", errno.EBADF, ENGINE, False),
    ("source", "QUEUE_DELETED", errno.ESHUTDOWN, ENGINE, False),
    ("destination", "PEER_RESET", errno.ECONNRESET, CLIENT, False),
    ("destination", "WRITE_ERROR", errno.EIO, CLIENT, False),
    ("destination", "INTERNAL_ERROR", errno.EIO, ENGINE, False),
    ("queue", "OUT_OF_RESOURCES", errno.EAGAIN, ENGINE, False),
    ("frontend", "INVALID_FIELD", errno.EINVAL, ENGINE, False),
]
OF_A_PUT = [
    ("operator", "CORRUPT_DATA", errno.EBADMSG, ENGINE, False),
    ("source", "END_OF_SOURCE", errno.ENODATA, CLIENT, False),
    ("source", "READ_ERROR", errno.EIO, CLIENT, False),
    ("source", "QUEUE_DELETED", errno.ESHUTDOWN, ENGINE, False),
    ("destination", "CAPACITY_EXCEEDED", errno.ENOSPC, DISK, False),
    ("destination", "WRITE_ERROR", errno.EIO, DISK, False),
]


@pytest.mark.parametrize(
    "receives, stage, status, number, where, damaged",
    [(False, *row) for row in OF_A_GET] + [(True, *row) for row in OF_A_PUT],
)
def test_what_a_failure_means(receives, stage, status, number, where, damaged):
    dcs = pytest.importorskip("dcs")
    error = dcs.Error(number, status)
    error.stage, error.status = stage, status
    assert carrier.judge(error, receives) == (where, damaged)


def test_full_engine(pair, tmp_path):
    """A request waits for its turn, but no longer than it may take."""
    pytest.importorskip("dcs")
    client, served = pair
    engine = carrier.Engine(most=1)
    with open(tmp_path / "object", "wb") as file, open(tmp_path / "second", "wb") as second:
        first = eventlet.spawn(engine.receive, served, file.fileno(), 1000, b"", Form(), Watch(served, True, 60))
        eventlet.sleep(0.1)
        with pytest.raises(Overdue):
            engine.receive(served, second.fileno(), 1000, b"", Form(), Watch(served, True, 60, longest=0.3))
        client.sendall(bytes(1000))
        assert first.wait().body == 1000


def test_engine_that_can_not_start(pair, tmp_path):
    """Too few descriptors for an engine: reported at once, and the next request tries again."""
    pytest.importorskip("dcs")
    client, served = pair
    engine = carrier.make({})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(tmp_path / "object", "wb") as file:
        resource.setrlimit(resource.RLIMIT_NOFILE, (file.fileno() + 1, limits[1]))
        try:
            with pytest.raises(Stopped) as caught:
                engine.receive(served, file.fileno(), 1000, b"", Form(), Watch(served, True, 5))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert (caught.value.where, caught.value.damaged) == (ENGINE, False)
        client.sendall(bytes(1000))
        assert engine.receive(served, file.fileno(), 1000, b"", Form(), Watch(served, True, 5)).body == 1000


def test_killed_greenlet_lets_go(moves, pair, tmp_path):
    """A greenlet that is ended in the middle frees its descriptors."""
    client, served = pair
    with open(tmp_path / "object", "wb") as file:
        # Objects made at the first transfer stay.
        client.sendall(bytes(1000))
        moves.receive(served, file.fileno(), 1000, b"", Form(), Watch(served, True, 5))
    # Engines of other tests.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with open(tmp_path / "object", "wb") as file:
        waits = eventlet.spawn(moves.receive, served, file.fileno(), 5000, b"", Form(), Watch(served, True, 60))
        eventlet.sleep(0.2)
        waits.kill()
        with pytest.raises(BaseException):
            waits.wait()
    eventlet.sleep(0.2)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_others_run_meanwhile(moves, pair, tmp_path):
    """A greenlet that waits for a client delays no other."""
    client, served = pair
    turns = []

    def count_then_send():
        for _ in range(20):
            eventlet.sleep(0.01)
            turns.append(1)
        client.sendall(b"x" * 1000)

    # If no other greenlet runs, a thread ends the wait.
    rescue = patcher.original("threading").Timer(20, client.fd.sendall, [b"x" * 1000])
    rescue.start()
    eventlet.spawn(count_then_send)
    with open(tmp_path / "object", "wb") as file:
        moves.receive(served, file.fileno(), 1000, b"", Form(), Watch(served, True, 60))
    rescue.cancel()
    assert len(turns) == 20


def test_unknown_engine():
    with pytest.raises(ValueError, match="expected one of dcs, hashlib"):
        carrier.make({"engine": "card"})
