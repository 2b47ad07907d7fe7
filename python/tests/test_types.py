"""The stubs say what is there, and what they promise type-checks."""

import subprocess
import sys

USES = """
import dcs, socket

async def use(sock: socket.socket, path: str) -> bytes:
    with open(path, "rb") as file, dcs.Engine(depth=8) as engine:
        done = dcs.sendfile(sock, file, 0, None, ["md5", dcs.gzip(6)], prefix=b"", timeout=1.5, engine=engine)
        again: dcs.Completion = await dcs.transfer(bytearray(5), dcs.Memory(5), "md5")
        try:
            dcs.recvfile(sock.fileno(), file, through=(dcs.crc32(expect=5),), durable=True)
        except dcs.Error as error:
            print(error.errno, error.status, error.bytes_out)
        print(done.breakdown["stages"][0]["busy"], again.memory)
        return done.digests["md5"]
"""


def test_stubs_and_what_is_there_agree(tmp_path):
    command = [sys.executable, "-m", "mypy.stubtest", "dcs", "--ignore-disjoint-bases"]
    # Its cache goes into the current folder.
    done = subprocess.run(command, capture_output=True, timeout=100, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ordinary_uses_type_check(tmp_path):
    (tmp_path / "uses.py").write_text(USES)
    command = [sys.executable, "-m", "mypy", "--strict", tmp_path / "uses.py", "--cache-dir", tmp_path / "cache"]
    done = subprocess.run(command, capture_output=True, timeout=100, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "uses.py").write_text("import dcs\ndcs.sendfile('name', 5)\n")
    done = subprocess.run(command, capture_output=True, timeout=100, text=True)
    assert done.returncode == 1 and 'Argument 1 to "sendfile"' in done.stdout
