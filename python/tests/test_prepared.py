"""Prepared transfers: bound once, submitted often."""

import hashlib
import os
import socket
import threading
import time

import dcs
import pytest

DATA = os.urandom(300_000)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(DATA)
    with open(path, "rb") as file:
        yield file


def receive(sock, count):
    data = bytearray()
    while len(data) < count:
        data += sock.recv(count - len(data))
    return bytes(data)


def test_pieces_go_to_a_socket_with_their_digests(source):
    near, far = socket.socketpair()
    with near, far:
        prepared = dcs.prepare(source, near, through=["md5"])
        source.close()  # it has a duplicate
        for offset, count in [(0, 64), (4096, 4096), (100, 1), (1, 100_000)]:
            prepared.submit(offset, count=count)
            received = receive(far, count)
            done = prepared.result(timeout=60)
            piece = DATA[offset : offset + count]
            assert received == piece
            assert done.hexdigest("md5") == hashlib.md5(piece).hexdigest()
            assert prepared.result() is not None, "again"


def test_a_file_is_written_at_its_offsets(source, tmp_path):
    with open(tmp_path / "to", "wb") as to:
        prepared = dcs.prepare(source, to, through=["sha256", dcs.aes256_ctr(b"k" * 32, b"i" * 16)])
        prepared.submit(10, 100, count=1000)
        assert prepared.result().bytes_out == 1000
    assert os.path.getsize(tmp_path / "to") == 1100


def test_what_cannot_be_is_said(source):
    near, far = socket.socketpair()
    with near, far:
        prepared = dcs.prepare(source, near)
        with pytest.raises(RuntimeError, match="nothing was submitted"):
            prepared.result()
        with pytest.raises(ValueError, match="no offsets"):
            prepared.submit(0, 7, count=10)
        prepared.submit(count=10)
        with pytest.raises(ValueError, match="under way"):
            while True:
                prepared.submit(count=10)
        assert prepared.result().bytes_out == 10
        prepared.submit(len(DATA), count=10)
        with pytest.raises(dcs.Error):
            prepared.result()
        prepared.close()
        with pytest.raises(RuntimeError, match="closed"):
            prepared.submit(count=1)
        with pytest.raises(dcs.Error):
            dcs.prepare(source, 10_000)
        with pytest.raises(TypeError):
            dcs.prepare(b"memory", near)


def test_a_failure_cannot_be_overlooked(source):
    near, far = socket.socketpair()
    with near, far:
        prepared = dcs.prepare(source, near)
        prepared.submit(len(DATA), count=10)
        while not prepared.done():
            time.sleep(0.001)
        with pytest.raises(ValueError, match="asked for"):
            prepared.submit(count=10)
        with pytest.raises(dcs.Error):
            prepared.result()
        prepared.submit(count=10)
        assert prepared.result().bytes_out == 10


def test_who_waits_is_woken_by_close(tmp_path):
    near, far = socket.socketpair()
    with near, far, open(tmp_path / "to", "wb") as to:
        prepared = dcs.prepare(far, to)
        prepared.submit(count=10)  # nobody sends them
        raised = []
        began = threading.Event()

        def wait():
            began.set()
            try:
                prepared.result()
            except RuntimeError as error:
                raised.append(str(error))

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        began.wait()
        prepared.close()
        waiter.join(60)
        assert raised == ["the prepared transfer is closed"]
