"""A `dcs serve` of its own for each file of tests, and what the tests need around it. hashlib is the judge.

The environment names the program (DCS), and where other clients' programs are (RCLONE, MC); without the latter their tests are
skipped."""

import hashlib
import os
import random
import re
import subprocess
import sys
import uuid
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

ACCESS, SECRET = "tester", "secret-of-tester"
MIB = 1 << 20
# One byte, one that fits a socket's buffer, one that does not, one that clients send in parts.
SIZES = [0, 1, 1000, MIB, 20 * MIB + 7]
ODD_NAMES = [
    "with spaces and  two",
    "plus+and%percent%20and%2F",
    "grüße/日本語/😀",
    "a//b",
    "/slash first",
    "slash last/",
    "quotes'\"<&>",
    "semi;colon=equals?question#hash,comma",
    "~tilde_(paren)!*@:$[]{}|\\^`",
    "dots...and.ends.",
    "x" * 1000,
]


def data(size, seed=1):
    return random.Random(seed).randbytes(size)


def md5(content):
    return hashlib.md5(content).hexdigest()


class Server:
    """A server, and its folder."""

    def __init__(self, folder, *options):
        self.folder = folder
        (folder / "users").write_text(f"{ACCESS} {SECRET}\nother secret-of-other\n")
        (folder / "key").write_text("5a" * 32)
        for name in ("users", "key"):
            (folder / name).chmod(0o600)
        self.log = open(folder / "log", "wb")
        command = [os.environ["DCS"], "serve", folder / "objects", "--listen", "127.0.0.1:0"]
        command += ["--users", folder / "users", "--master-key", folder / "key", "--durability", "none"]
        command += ["--cores", os.environ.get("DCS_TEST_CORES", "1")]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"(https?)://(\S+)", line)
        assert found, f"{line}{(folder / 'log').read_text()}"
        self.address = found[2]
        self.url = f"{found[1]}://{self.address}"

    def stop(self):
        self.process.terminate()
        try:
            assert self.process.wait(40) == 0
        finally:
            self.process.kill()
            self.log.close()

    def client(self, access=ACCESS, secret=SECRET, **config):
        """boto3's, with some configuration. It tries once: a repetition would hide an error."""
        s3 = {"addressing_style": "path", **config.pop("s3", {})}
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=access,
            aws_secret_access_key=secret,
            region_name="us-east-1",
            config=Config(s3=s3, retries={"total_max_attempts": 1}, read_timeout=30, **config),
        )

    def requests(self):
        """The requests so far."""
        self.log.flush()
        return (self.folder / "log").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def s3(server):
    return server.client()


@pytest.fixture
def bucket(s3):
    """A bucket of a test's own."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def other(s3):
    """A second one."""
    name = f"o-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


def body_of(s3, bucket, key, **more):
    return s3.get_object(Bucket=bucket, Key=key, **more)["Body"].read()


def keys_of(s3, bucket, **more):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, **more)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def run(*command, env=None, stdin=None, fails=False, cwd=None):
    """Runs a client's program to its end, and tells what it printed."""
    command = [str(word) for word in command]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(env or {})}
    done = subprocess.run(command, env=environment, input=stdin, capture_output=True, timeout=120, cwd=cwd)
    text = (done.stdout + done.stderr).decode(errors="replace")
    assert (done.returncode != 0) == fails, f"{' '.join(command)}: {done.returncode}\n{text}"
    return done.stdout.decode(errors="replace") if not fails else text


def program(name):
    """One of the clients' programs from the same environment as this Python."""
    return Path(sys.executable).parent / name


def tree(folder):
    """Files under a folder by their names, with their contents' digests."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): md5(path.read_bytes()) for path in files}


def fill(folder):
    """Writes a folder of files, some with odd names; tells its tree."""
    for at, name in enumerate(["a.txt", "sub/b c.bin", "sub/deep/ü+%.dat", "empty", "sub/big", "sub/# & ;"]):
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data([10, 5000, 70_000, 0, 3 * MIB, 1][at], at))
    return tree(folder)


@pytest.fixture(autouse=True)
def what_the_server_said(request, server):
    """A failed test shows the requests that it made."""
    before = len(server.requests())
    yield
    if getattr(request.node, "failed", False):
        print("the server:", server.requests()[before:][-6000:])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().failed:
        item.failed = True
