"""A cluster for the tests of a file, and requests to its object server. hashlib, gzip and the openssl of `cryptography` are the judges.

`DCS_SWIFT_TEST` selects the carrier of bodies: `dcs` (the default) or `hashlib`.
"""

import hashlib
import http.client
import itertools
import os
import random
import shutil
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from lab.cluster import FORMS, Cluster, Missing, data_folder

ENGINE = os.environ.get("DCS_SWIFT_TEST", "dcs")
CLIENT_TIMEOUT = 2
MIB = 1 << 20
_numbers = itertools.count()


def body_of(size, seed=1):
    """Returns bytes of which half can be compressed."""
    source = random.Random(seed)
    return b"".join(source.randbytes(512) + bytes(512) for _ in range(size // 1024 + 1))[:size]


def md5(data):
    return hashlib.md5(data).hexdigest()


class Objects:
    """The object server of a cluster, addressed as the proxy does."""

    def __init__(self, cluster):
        self.cluster = cluster

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.cluster.ports["object"], timeout=30)

    @staticmethod
    def path(name, device="d1"):
        return f"/{device}/0/AUTH_test/c/{name}"

    def headers(self, form, **more):
        index = self.cluster.forms.index(form)
        return {"X-Timestamp": f"{time.time():.5f}", "X-Backend-Storage-Policy-Index": str(index), **more}

    def request(self, method, name, form="plain", body=None, connection=None, device="d1", **headers):
        """Returns status, headers, body."""
        mine = connection or self.connect()
        more = {key.replace("_", "-"): value for key, value in headers.items()}
        if method in ("PUT", "POST"):
            more.setdefault("Content-Type", "a/b")
        mine.request(method, self.path(name, device), body, self.headers(form, **more))
        answer = mine.getresponse()
        got = answer.read()
        if connection is None:
            mine.close()
        return answer.status, answer.headers, got

    def put(self, data, form="plain", name=None, **headers):
        name = name or f"o{next(_numbers)}"
        status, fields, _ = self.request("PUT", name, form, data, **headers)
        assert status == 201, self.cluster.log("object")[-3000:]
        assert fields["Etag"].strip('"') == md5(data)
        return name

    def data_files(self, name=None, form="plain", device="d1"):
        """Returns the files of one object, or of all of a policy."""
        index = self.cluster.forms.index(form)
        root = self.cluster.devices / device / ("objects" + (f"-{index}" if index else ""))
        files = sorted(root.rglob("*.data"))
        if name is None:
            return files
        wanted = f"/AUTH_test/c/{name}"
        from swift.obj.diskfile import read_metadata

        return [file for file in files if read_metadata(str(file))["name"] == wanted]

    def descriptors(self):
        """Returns the targets of the descriptors of the object server and its workers, except those of its threads, which each open one when
        first used."""
        targets = []
        for pid in (self.cluster.pid("object"), *self.cluster.workers_of("object")):
            folder = f"/proc/{pid}/fd"
            for fd in os.listdir(folder):
                try:
                    targets.append(os.readlink(f"{folder}/{fd}"))
                except FileNotFoundError:
                    pass
        return [target for target in targets if "eventpoll" not in target]

    def idle(self):
        """Returns its descriptors when they have not changed for a moment."""
        last, since = None, time.monotonic()
        while time.monotonic() - since < 0.25:
            now = self.descriptors()
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.05)
        return last

    def settled(self, before, limit=15):
        """Returns whether the descriptors soon are no more than before.

        eventlet leaves a connection that was reset to Python's garbage collector, in stock Swift too: requests make it run."""
        until = time.monotonic() + limit
        while len(self.descriptors()) > before and time.monotonic() < until:
            for _ in range(20):
                self.request("HEAD", "nothing")
            time.sleep(0.1)
        return len(self.descriptors()) <= before


@contextmanager
def running(**different):
    """A cluster, if this machine can run one; otherwise the test is skipped."""
    try:
        folder = data_folder(1 << 30)
    except Missing as why:
        pytest.skip(str(why))
    options = {"client_timeout": CLIENT_TIMEOUT, "dcs_min_size": 1, "keep_cache_private": "true"}
    try:
        with Cluster(ENGINE, device_folder=folder, **{"forms": FORMS, "object_options": options, **different}) as cluster:
            yield cluster
    except Missing as why:
        pytest.skip(str(why))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster():
    with running() as cluster:
        yield cluster


@pytest.fixture
def objects(cluster):
    """Checks that each test finds the server without descriptors of others, and leaves none."""
    mine = Objects(cluster)
    for form in cluster.forms:
        mine.request("GET", mine.put(body_of(1000), form), form)
    before = mine.idle()
    yield mine
    assert mine.settled(len(before)), Counter(mine.descriptors()) - Counter(before)
