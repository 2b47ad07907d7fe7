"""Is killed in the middle of a body that the object server moves: `halfway.py PORT POLICY PUT|GET NAME`.

For a PUT the server has answered 100, and has received a part; for a GET it has sent a part, and the rest fits into no buffer.
"""

import os
import signal
import socket
import sys
import time

PART = 1 << 20


def main():
    port, policy, verb, name = sys.argv[1:]
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", int(port)))
    head = f"{verb} /d1/0/AUTH_test/c/{name} HTTP/1.1\r\nHost: x\r\nX-Timestamp: {time.time():.5f}\r\nX-Backend-Storage-Policy-Index: {policy}\r\n"
    if verb == "PUT":
        head += f"Content-Type: a/b\r\nContent-Length: {2 * PART}\r\nExpect: 100-continue\r\n"
    sock.sendall(head.encode() + b"\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        got = sock.recv(1)
        assert got, answer
        answer += got
    assert answer.split()[1] == (b"100" if verb == "PUT" else b"200"), answer
    if verb == "PUT":
        sock.sendall(bytes(PART))
    else:
        sock.recv(PART // 16, socket.MSG_WAITALL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
