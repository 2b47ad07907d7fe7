"""Writes objects and reads them, until it is killed: `client.py PORT POLICY NUMBER SEED NAMES`.

Prints a line for each step, which tells what was acknowledged: `begin NAME MD5`, `done NAME MD5`; `wrong ...`
for an answer that no server may give, however it is killed; `lost ...` for a connection that broke.
"""

import http.client
import random
import socket
import sys
import time
from hashlib import md5

SIZES = [1000, 70_000, 1 << 20, 3 << 20]
PIECE = 128 << 10
PAUSE_S = 0.004


def say(*words):
    print(*words, flush=True)


def slowly(data):
    """Sends piece by piece: a whole body would fit into the socket's buffers at once, and arrive after its client's death."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]
        time.sleep(PAUSE_S)


def exchange(port, method, name, policy, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.sock = socket.socket()
    try:
        # Small buffers between the two.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE)
        connection.sock.settimeout(30)
        connection.sock.connect(("127.0.0.1", port))
        fields = {"X-Timestamp": f"{time.time():.5f}", "X-Backend-Storage-Policy-Index": policy, "Content-Type": "a/b"}
        connection.request(method, f"/d1/0/AUTH_test/c/{name}", body, {**fields, **{key.replace("_", "-"): value for key, value in headers.items()}})
        answer = connection.getresponse()
        got = b""
        while piece := answer.read(PIECE):
            got += piece
            time.sleep(PAUSE_S)
        if len(got) != int(answer.headers["Content-Length"]):
            raise http.client.IncompleteRead(got)
        return answer.status, answer.headers, got
    finally:
        connection.close()


def read(port, name, policy, data, source):
    """Checks an acknowledged object that only this client writes, whole or a part."""
    first, last = sorted(source.sample(range(len(data)), 2))
    wanted, headers = source.choice([(data, {}), (data[first : last + 1], {"Range": f"bytes={first}-{last}"})])
    status, fields, got = exchange(port, "GET", name, policy, **headers)
    if status != (206 if headers else 200) or got != wanted or fields["Etag"].strip('"') != md5(data).hexdigest():
        say("wrong", "GET", name, status, headers, len(got), len(wanted), fields["Etag"])


def main():
    port, policy, number, seed, names = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    source = random.Random(seed)
    # Half of it can be compressed.
    bulk = b"".join(source.randbytes(512) + bytes(512) for _ in range(4096))
    while True:
        name = f"k{policy}-{number}-{source.randrange(names)}"
        start = source.randrange(1 << 20)
        data = bulk[start : start + source.choice(SIZES)]
        etag = md5(data).hexdigest()
        say("begin", name, etag)
        try:
            status, _, _ = exchange(port, "PUT", name, policy, slowly(data), Content_Length=str(len(data)))
            if status != 201:
                say("wrong", "PUT", name, status)
                continue
            say("done", name, etag)
            read(port, name, policy, data, source)
        except (OSError, http.client.HTTPException) as error:
            say("lost", repr(error))
            time.sleep(0.02)


if __name__ == "__main__":
    main()
