"""Object server and clients are killed again and again, at any point: no acknowledged object is lost, no ETag is wrong, no
descriptor stays behind.

DCS_SWIFT_KILLS says how often (20).
"""

import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time

from .conftest import MIB, Objects, body_of, md5

KILLS = int(os.environ.get("DCS_SWIFT_KILLS", 20))
NAMES = 8
CLIENT = """
import http.client, sys, time
port, seed = int(sys.argv[1]), int(sys.argv[2])
while True:
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = bytes([seed % 256]) * (8 << 20)
    c.request("PUT", f"/d1/0/AUTH_test/c/killed{seed % 4}", body, {"X-Timestamp": f"{time.time():.5f}", "Content-Type": "a/b"})
    c.getresponse().read()
    c.request("GET", f"/d1/0/AUTH_test/c/killed{seed % 4}")
    c.getresponse().read()
"""


class Writer(threading.Thread):
    """Writes its own objects over and over, and remembers what was acknowledged."""

    def __init__(self, objects, number, stop):
        super().__init__(daemon=True)
        self.objects, self.number, self.stop = objects, number, stop
        # By name: the last acknowledged body's ETag, and those that may have come through later.
        self.acknowledged, self.possible, self.puts = {}, {}, 0

    def run(self):
        source = random.Random(self.number)
        while not self.stop.is_set():
            name = f"w{self.number}-{source.randrange(NAMES)}"
            data = body_of(source.choice([1000, 70_000, 2 * MIB]), seed=source.random())
            etag = md5(data)
            try:
                status, _, _ = self.objects.request("PUT", name, body=data)
            except (OSError, http.client.HTTPException):
                # Nobody knows.
                self.possible.setdefault(name, set()).add(etag)
                time.sleep(0.05)
                continue
            if status == 201:
                self.acknowledged[name], self.possible[name] = etag, set()
                self.puts += 1


def test_object_server_is_killed(cluster):
    objects = Objects(cluster)
    stop = threading.Event()
    writers = [Writer(objects, number, stop) for number in range(4)]
    for writer in writers:
        writer.start()
    source = random.Random(5)
    for _ in range(KILLS):
        time.sleep(source.uniform(0.05, 0.6))
        cluster.kill("object", signal.SIGKILL)
        cluster.start_server("object")
    time.sleep(0.5)
    stop.set()
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    puts = 0
    for writer in writers:
        puts += writer.puts
        for name, etag in writer.acknowledged.items():
            status, fields, got = objects.request("GET", name)
            assert status == 200, f"{name} was acknowledged and is lost"
            assert md5(got) == fields["Etag"].strip('"')
            assert md5(got) == etag or md5(got) in writer.possible[name]
    assert puts > KILLS, "the writers got something done between the kills"
    quarantine = cluster.devices / "d1" / "quarantined"
    assert not quarantine.exists(), list(quarantine.rglob("*"))


def test_clients_are_killed(objects):
    before = len(objects.descriptors())
    command = [sys.executable, "-c", CLIENT, str(objects.cluster.ports["object"])]
    source = random.Random(6)
    for seed in range(KILLS):
        clients = [subprocess.Popen([*command, str(4 * seed + number)]) for number in range(4)]
        time.sleep(source.uniform(0.1, 0.5))
        for client in clients:
            client.kill()
            client.wait()
    assert objects.settled(before), objects.descriptors()
    for number in range(4):
        status, fields, got = objects.request("GET", f"killed{number}")
        assert status in (200, 404)
        if status == 200:
            assert md5(got) == fields["Etag"].strip('"') and len(set(got)) == 1
