"""Files and sockets for the tests."""

import contextlib
import os
import random
import socket
import threading

import pytest

MIB = 1 << 20


def data(size, seed=0):
    """Bytes that compress a little."""
    rng = random.Random(seed)
    piece = rng.randbytes(min(size, 100_000))
    words = b"the quick brown fox %d " % seed
    whole = (piece + words * 200) * (size // max(1, len(piece)) + 1)
    return whole[:size]


def descriptors():
    """What this process has open."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def make(tmp_path):
    """Writes a file and opens it for reading."""
    with contextlib.ExitStack() as stack:

        def write(content, name="file"):
            path = tmp_path / name
            path.write_bytes(content)
            return stack.enter_context(open(path, "rb"))

        yield write


@pytest.fixture
def target(tmp_path):
    """An empty file to be written, and read again."""
    with open(tmp_path / "target", "w+b") as file:
        yield file


def tcp_pair():
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    return one, other


@pytest.fixture(params=["tcp", "unix"])
def pair(request):
    """Two ends of a connection."""
    one, other = tcp_pair() if request.param == "tcp" else socket.socketpair()
    with one, other:
        yield one, other


@pytest.fixture
def tcp():
    one, other = tcp_pair()
    with one, other:
        yield one, other


class Reader(threading.Thread):
    """Reads a socket to its end."""

    def __init__(self, sock):
        super().__init__(daemon=True)
        self.sock = sock
        self.data = b""
        self.start()

    def run(self):
        pieces = []
        # A test may have closed it.
        with contextlib.suppress(OSError):
            while piece := self.sock.recv(MIB):
                pieces.append(piece)
        self.data = b"".join(pieces)

    def all(self):
        self.join(60)
        assert not self.is_alive(), "the peer still waits for data"
        return self.data


class Writer(threading.Thread):
    """Writes to a socket, then stops sending."""

    def __init__(self, sock, content):
        super().__init__(daemon=True)
        self.sock, self.content = sock, content
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            self.sock.sendall(self.content)
            self.sock.shutdown(socket.SHUT_WR)
