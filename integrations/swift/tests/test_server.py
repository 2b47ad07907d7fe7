"""Behaviour of the object server's application itself."""

import eventlet
import pytest
from eventlet.green import socket

from dcs_swift import server


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def test_a_client_that_sends_the_rest_is_let_finish(pair):
    client, served = pair
    sender = eventlet.spawn(client.sendall, bytes(1 << 20))
    served.settimeout(7)
    with eventlet.Timeout(60):
        server._let_finish(served, 1 << 20)
        sender.wait()
    assert served.gettimeout() == 7
    served.settimeout(0)
    with pytest.raises(BlockingIOError):
        served.recv(1)


def test_a_client_that_drips_is_not_waited_for(pair, monkeypatch):
    monkeypatch.setattr(server, "_LINGER_LONGEST", 0.5)
    client, served = pair

    def drip():
        while True:
            client.sendall(b".")
            eventlet.sleep(0.01)

    dripper = eventlet.spawn(drip)
    with eventlet.Timeout(60):
        server._let_finish(served, 1 << 40)
    assert not dripper.dead
    dripper.kill()


def test_a_client_that_says_nothing_is_not_waited_for(pair, monkeypatch):
    monkeypatch.setattr(server, "_LINGER", 0.1)
    with eventlet.Timeout(60):
        server._let_finish(pair[1], 1 << 40)
