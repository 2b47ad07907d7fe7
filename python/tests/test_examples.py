"""The programs in examples/python."""

import hashlib
import http.client
import subprocess
import sys
from pathlib import Path

from conftest import MIB, data

EXAMPLES = Path(__file__).parents[2] / "examples/python"


def test_asyncio_digests(tmp_path):
    lines = []
    for at in range(100):
        content = data(at * 1000, at)
        (tmp_path / f"{at}").write_bytes(content)
        lines.append(f"{hashlib.md5(content).hexdigest()}  {tmp_path / str(at)}\n")
    command = [sys.executable, EXAMPLES / "asyncio_digests.py", *(tmp_path / f"{at}" for at in range(100))]
    done = subprocess.run(command, capture_output=True, timeout=60, text=True)
    assert done.stdout == "".join(lines), done.stderr


def test_compare():
    command = [sys.executable, EXAMPLES / "compare.py", "2", "1", "1"]
    done = subprocess.run(command, capture_output=True, timeout=60, text=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["loop", "dcs", "ratio"], done.stderr


def test_file_server(tmp_path):
    content = data(3 * MIB, 1)
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "empty").write_bytes(b"")
    command = [sys.executable, EXAMPLES / "file_server.py", tmp_path, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            address = server.stdout.readline().strip()[len("http://") : -1]
            connection = http.client.HTTPConnection(address, timeout=30)
            for _ in range(3):
                connection.request("GET", "/file")
                answer = connection.getresponse()
                raw = answer.read()
                assert raw == content
                connection.request("GET", "/empty")
                assert connection.getresponse().read() == b""
            connection.request("GET", "/none")
            assert connection.getresponse().status == 404
            # http.client drops trailers: once more by hand.
            connection.close()
            connection.connect()
            connection.sock.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: connection.sock.recv(MIB), b""))
            trailer = b"\r\n0\r\nContent-MD5-Hex: %s\r\n\r\n" % hashlib.md5(content).hexdigest().encode()
            assert answer.endswith(content + trailer)
        finally:
            server.kill()
