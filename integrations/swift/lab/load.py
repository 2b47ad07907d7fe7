"""The benchmark's clients: one process, one thread, a connection for each client, all concurrently by epoll.

It costs little compared with the servers: received data are dropped in the kernel (MSG_TRUNC), sent data come from a file
(sendfile). Like the clients of `dcs bench` it never sleeps on a socket, and pauses 50 us when there is nothing to do: waking
a client is work of the sender's kernel, which a client on another machine does not cause. Reads a JSON object with the work
from its standard input, and writes one with the results.
"""

import json
import os
import selectors
import socket
import sys
import time

from .cluster import cpu_s, engine_cpu_s

_PATIENCE = 120.0
_PAUSE = 50e-6
_READ = 4 << 20
# Python requires a buffer for data that the kernel then drops.
_NOWHERE = bytearray(_READ)


class Client:
    """One connection with one request in flight."""

    def __init__(self, spec, number):
        self.spec, self.number = spec, number
        self.socket = socket.create_connection((spec["host"], spec["port"]))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.requests = 0
        self.latencies = []
        self.payload = os.open(spec["payload"], os.O_RDONLY) if spec["job"] == "PUT" else -1

    def begin(self):
        """Returns a request's head."""
        spec = self.spec
        head = f"{spec['job']} {spec['path']}{self.number} HTTP/1.1\r\nHost: {spec['host']}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in spec["headers"].items())
        if spec["job"] == "PUT":
            head += f"Content-Length: {spec['size']}\r\nContent-Type: a/b\r\nX-Timestamp: {time.time():.5f}\r\n"
        self.began = time.monotonic()
        self.head = (head + "\r\n").encode()
        self.left_to_send = spec["size"] if spec["job"] == "PUT" else 0
        self.answer, self.body_left = b"", None

    @property
    def sends(self):
        return bool(self.head or self.left_to_send)

    def send(self):
        if self.head:
            more = socket.MSG_MORE if self.left_to_send else 0
            self.head = self.head[self.socket.send(self.head, more) :]
        if not self.head and self.left_to_send:
            at = self.spec["size"] - self.left_to_send
            self.left_to_send -= os.sendfile(self.socket.fileno(), self.payload, at, self.left_to_send)

    def receive(self):
        """Returns True when the answer is complete."""
        if self.body_left is None:
            self._receive_head()
        elif self.body_left:
            self._count(self.socket.recv_into(_NOWHERE, min(_READ, self.body_left), socket.MSG_TRUNC))
        return self.body_left == 0

    def _receive_head(self):
        # With as little as possible of the body.
        got = self.socket.recv(2048)
        if not got:
            raise OSError(f"the server closed after {self.requests} requests: {self.answer[:200]!r}")
        self.answer += got
        head, end, rest = self.answer.partition(b"\r\n\r\n")
        if not end:
            return
        lines = head.decode("latin-1").split("\r\n")
        if int(lines[0].split()[1]) not in (200, 201):
            raise OSError(f"{self.spec['job']} {self.spec['path']}{self.number}: {lines[0]}")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(fields["content-length"])
        if self.spec["job"] == "GET" and length != self.spec["size"]:
            raise OSError(f"{length} bytes were announced, {self.spec['size']} expected")
        self.body_left = length - len(rest)

    def _count(self, got):
        if not got:
            raise OSError(f"the body ended {self.body_left} bytes early")
        self.body_left -= got

    def end(self):
        self.requests += 1
        self.latencies.append(time.monotonic() - self.began)


def run(spec):
    clients = [Client(spec, number) for number in range(spec["clients"])]
    selector = selectors.EpollSelector()
    for client in clients:
        client.begin()
        selector.register(client.socket, selectors.EVENT_WRITE, client)
    mine, before = time.process_time(), _cpu(spec["pids"])
    began = time.monotonic()
    running, moved = len(clients), began
    while running:
        ready = selector.select(0)
        if not ready:
            if time.monotonic() - moved > _PATIENCE:
                raise OSError(f"nothing moved for {_PATIENCE:.0f} s")
            time.sleep(_PAUSE)
            continue
        moved = time.monotonic()
        for key, _ in ready:
            running -= _step(selector, key.data, spec, began)
    wall = time.monotonic() - began
    cpu = {}
    for name, after in _cpu(spec["pids"]).items():
        user, system = (late - early for late, early in zip(after, before[name]))
        cpu[name] = {"user": user, "system": system, "both": user + system}
    requests = sum(client.requests for client in clients)
    latencies = sorted(latency for client in clients for latency in client.latencies)
    return {
        "wall_s": wall,
        "requests": requests,
        "bytes": requests * spec["size"],
        "server_cpu_s": cpu,
        "client_cpu_s": time.process_time() - mine,
        "median_ms": 1e3 * latencies[len(latencies) // 2],
    }


def _cpu(pids):
    """Returns user and system time by server, and of the object server's engine separately."""
    return {"engine": engine_cpu_s(pids["object"])} | {name: cpu_s(pid) for name, pid in pids.items()}


def _step(selector, client, spec, began):
    """Returns 1 when this client has finished."""
    try:
        if client.sends:
            client.send()
            if not client.sends:
                selector.modify(client.socket, selectors.EVENT_READ, client)
            return 0
        if not client.receive():
            return 0
    except BlockingIOError:
        return 0
    client.end()
    if client.requests >= spec["least"] and time.monotonic() - began >= spec["seconds"]:
        selector.unregister(client.socket)
        client.socket.close()
        return 1
    client.begin()
    selector.modify(client.socket, selectors.EVENT_WRITE, client)
    return 0


def main():
    spec = json.load(sys.stdin)
    if spec.get("cores"):
        os.sched_setaffinity(0, spec["cores"])
    json.dump(run(spec), sys.stdout)


if __name__ == "__main__":
    main()
