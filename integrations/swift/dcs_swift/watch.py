"""Detects clients that are silent for too long: Swift's client_timeout, for bodies that bypass Swift.

The kernel knows when the last data arrived from a peer or went to it (TCP_INFO), so the bytes need not be examined. Time in which
this server is the slow side (bytes that arrived and were not read, or nothing to send) does not count against the client.
"""

import array
import fcntl
import socket
import struct
import termios
import time

# struct tcp_info of linux/tcp.h: eight bytes, then 32-bit words.
_LAST_DATA_SENT = struct.Struct("=I"), 8 + 4 * 9
_LAST_DATA_RECEIVED = struct.Struct("=I"), 8 + 4 * 11
_LENGTH = 8 + 4 * 12
# linux/sockios.h: bytes that the peer has not acknowledged.
_SIOCOUTQ = termios.TIOCOUTQ


class Silent(Exception):
    """The client exceeded client_timeout."""


class Overdue(Exception):
    """The upload took longer than max_upload_time."""


def _queued(sock, request):
    count = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), request, count)
    return count[0]


def _since(sock, field):
    word, offset = field
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH)
    return word.unpack_from(info, offset)[0] / 1000


class Watch:
    """`pause()` returns how long to wait; `look()` raises if that was too long."""

    def __init__(self, sock, receives, client_timeout, longest=None):
        self._sock = sock
        self.receives = receives
        self._client_timeout = client_timeout
        self._began = time.monotonic()
        self._until = None if longest is None else self._began + longest
        self._next = client_timeout

    def pause(self):
        if self._until is None:
            return self._next
        return max(0.0, min(self._next, self._until - time.monotonic()))

    def look(self):
        self.check_longest()
        now = time.monotonic()
        # A connection's earlier silence does not count.
        quiet = min(self._quiet(), now - self._began)
        if quiet >= self._client_timeout:
            raise Silent
        self._next = max(self._client_timeout - quiet, 0.05)

    def overrun(self):
        """For waits with the socket's own timeout, which is client_timeout."""
        raise Silent

    def check_longest(self):
        if self._until is not None and time.monotonic() >= self._until:
            raise Overdue

    def _quiet(self):
        try:
            if self.receives:
                return 0.0 if _queued(self._sock, termios.FIONREAD) else _since(self._sock, _LAST_DATA_RECEIVED)
            return _since(self._sock, _LAST_DATA_SENT) if _queued(self._sock, _SIOCOUTQ) else 0.0
        except OSError:
            # No longer connected: the transfer finds out by itself.
            return 0.0
