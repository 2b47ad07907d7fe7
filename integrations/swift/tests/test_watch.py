"""Silence, on real connections."""

import socket
import time

import pytest

from dcs_swift.watch import Overdue, Silent, Watch


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        served, _ = server.accept()
    with client, served:
        yield client, served


def test_who_sends_is_not_silent(pair):
    client, served = pair
    watch = Watch(served, True, 0.3)
    for _ in range(6):
        client.send(b"x")
        served.recv(1)
        time.sleep(0.1)
        watch.look()
        assert 0 < watch.pause() <= 0.3
    time.sleep(0.4)
    with pytest.raises(Silent):
        watch.look()


def test_what_nobody_read_is_not_silence(pair):
    client, served = pair
    client.send(b"x")
    watch = Watch(served, True, 0.1)
    time.sleep(0.3)
    watch.look()


def test_silence_before_the_request_does_not_count(pair):
    _, served = pair
    time.sleep(0.3)
    watch = Watch(served, True, 0.2)
    watch.look()
    assert watch.pause() <= 0.2


def test_who_takes_nothing_is_silent(pair):
    client, served = pair
    served.setblocking(False)
    watch = Watch(served, False, 0.3)
    time.sleep(0.4)
    # Nothing was sent yet: the disk may be slow.
    watch.look()
    with pytest.raises(BlockingIOError):
        while True:
            served.send(bytes(1 << 20))
    time.sleep(0.5)
    with pytest.raises(Silent):
        watch.look()
    client.recv(1)


def test_longest(pair):
    _, served = pair
    watch = Watch(served, True, 60, longest=0.1)
    assert watch.pause() <= 0.1
    time.sleep(0.15)
    with pytest.raises(Overdue):
        watch.look()
