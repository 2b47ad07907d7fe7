"""Clients, workers and the whole object server are killed again and again, at any point, while objects of every form are written
and read: no acknowledged object is lost, none has a wrong ETag, no descriptor leaks, and on the disk there is nothing
that Swift's own cleanup leaves.

DCS_SWIFT_KILLS sets the number of kills; by default 24, or fewer if that takes more than a minute. The clients of every round end by being killed.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from lab.cluster import FORMS

from .conftest import Objects, body_of, md5, running

KILLS = int(os.environ.get("DCS_SWIFT_KILLS", 24))
LONGEST_S = None if "DCS_SWIFT_KILLS" in os.environ else 20
WORKERS = 2
CLIENTS_OF_A_FORM = 2
NAMES = 3
KINDS = ["clients", "worker", "server"]


@pytest.fixture(scope="module")
def cluster():
    with running(workers=WORKERS) as cluster:
        await_workers(cluster)
        yield cluster


@pytest.fixture(scope="module")
def objects(cluster):
    return Objects(cluster)


@pytest.fixture(scope="module")
def ledger():
    return Ledger()


@pytest.fixture(scope="module")
def before(objects):
    """Returns the number of descriptors of the server and its workers when they are idle and each has done everything once."""
    warm(objects)
    return len(objects.idle())


def await_workers(cluster, without=None):
    until = time.monotonic() + 30
    while True:
        workers = cluster.workers_of("object")
        if len(workers) == WORKERS and without not in workers:
            return
        assert time.monotonic() < until, workers
        time.sleep(0.01)


class Ledger:
    """The answers that clients got: by name, the last acknowledged body's ETag, and those that may have been stored later.

    A request can outlive its client: it waits for a worker that is still starting. Only a later acknowledged one ends that.
    """

    def __init__(self):
        self.acknowledged, self.possible, self.counts = {}, {}, Counter()

    def take(self, line, servers_live):
        word, *rest = line.split(maxsplit=2)
        self.counts[word] += 1
        assert word != "wrong", line
        assert word != "lost" or not servers_live, f"only clients were killed: {line}"
        if word == "begin":
            self.possible.setdefault(rest[0], []).append(rest[1])
        elif word == "done":
            self.acknowledged[rest[0]], self.possible[rest[0]] = rest[1], []

    def check(self, objects):
        """Checks each object that was ever begun."""
        for name, possible in self.possible.items():
            status, fields, got = objects.request("GET", name, form_of(name))
            if status == 404:
                assert name not in self.acknowledged, f"{name} was acknowledged and is lost"
                continue
            etag = md5(got)
            assert (status, fields["Etag"].strip('"')) == (200, etag), name
            assert etag in {self.acknowledged.get(name), *possible}, name
            if etag in possible:
                # From now on no earlier one is possible.
                self.acknowledged[name] = etag
                del possible[: possible.index(etag) + 1]


def form_of(name):
    return list(FORMS)[int(name[1])]


class Clients:
    """Runs processes until they are killed."""

    def __init__(self, port, round):
        program = [sys.executable, str(Path(__file__).with_name("client.py")), str(port)]
        self.files, self.processes = [], []
        for policy in range(len(FORMS)):
            for number in range(CLIENTS_OF_A_FORM):
                self.files.append(tempfile.TemporaryFile("w+"))
                command = [*program, str(policy), str(number), f"{round}{policy}{number}", str(NAMES)]
                self.processes.append(subprocess.Popen(command, stdout=self.files[-1]))

    def wait_for_work(self):
        """Waits until each has printed something."""
        until = time.monotonic() + 30
        while not all(os.fstat(file.fileno()).st_size for file in self.files):
            assert time.monotonic() < until
            time.sleep(0.01)

    def end(self):
        """Kills them, and returns the output of each."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            assert process.wait() == -signal.SIGKILL, "a client ended by itself"
        lines = []
        for file in self.files:
            file.seek(0)
            with file:
                lines += file.read().splitlines()
        return lines


def warm(objects):
    """Has every worker carry something of every form, with as many concurrent requests as there are clients."""
    names = {form: objects.put(body_of(2 << 20), form) for form in FORMS}

    def some():
        for form, name in names.items():
            objects.put(body_of(1 << 20), form)
            objects.request("GET", name, form)
            objects.request("GET", name, form, Range="bytes=5-70000")

    threads = [threading.Thread(target=some) for _ in range(CLIENTS_OF_A_FORM * len(FORMS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def leave_halfway(cluster, objects):
    """Kills clients in the middle of a body, of each form and in each direction: the server sees each of them disappear."""
    program = [sys.executable, str(Path(__file__).with_name("halfway.py")), str(cluster.ports["object"])]
    large = body_of(16 << 20)
    for policy, form in enumerate(FORMS):
        for verb, name in (("PUT", f"halfway{policy}"), ("GET", objects.put(large, form))):
            client = subprocess.run([*program, str(policy), verb, name], timeout=60)
            assert client.returncode == -signal.SIGKILL, "it ended by itself"


def went_away(cluster, verb):
    return cluster.counters()[verb]["failed"].get("client went away", 0)


def strike(kind, cluster, source):
    if kind == "worker":
        victim = source.choice(cluster.workers_of("object"))
        os.kill(victim, signal.SIGKILL)
        # Its parent starts another.
        await_workers(cluster, without=victim)
    elif kind == "server":
        cluster.kill("object")
        cluster.start_server("object")
        await_workers(cluster)


@pytest.mark.parametrize("kind", KINDS)
def test_kill(kind, cluster, objects, ledger, before):
    ledger.counts.clear()
    source = random.Random(kind)
    began, rounds = time.monotonic(), 0
    while rounds < max(KILLS // len(KINDS), 1) and (rounds < 2 or not LONGEST_S or time.monotonic() - began < LONGEST_S):
        clients = Clients(cluster.ports["object"], rounds)
        rounds += 1
        try:
            clients.wait_for_work()
            time.sleep(source.uniform(0, 0.5))
            strike(kind, cluster, source)
            # They continue for a while.
            time.sleep(source.uniform(0, 0.3) if kind != "clients" else 0)
        finally:
            said = clients.end()
        for line in said:
            ledger.take(line, servers_live=kind == "clients")
        assert objects.settled(before), Counter(objects.descriptors())
        ledger.check(objects)
    print(f"{kind}: {rounds} rounds, {dict(ledger.counts)}, {len(ledger.acknowledged)} objects")
    assert ledger.counts["done"] > rounds * len(FORMS), "the clients got something done"
    assert ledger.counts["begin"] > ledger.counts["done"], "none was killed in the midst"
    if kind == "clients":
        # Only this server's counters survive. The clients above may each have been killed between two bodies.
        seen = {verb: went_away(cluster, verb) + len(FORMS) for verb in ("PUT", "GET")}
        leave_halfway(cluster, objects)
        until = time.monotonic() + 30
        while any(went_away(cluster, verb) < count for verb, count in seen.items()):
            assert time.monotonic() < until, (cluster.counters(), seen)
    warm(objects)
    assert objects.settled(before), Counter(objects.descriptors())
    counts = cluster.counters()
    assert counts["PUT"]["carried"] and counts["GET"]["carried"]
    assert not counts["PUT"]["left"] and not counts["GET"]["left"], counts
    ledger.check(objects)
    check_disk(cluster, objects, ledger)


def check_disk(cluster, objects, ledger):
    """Checks that after Swift's own cleanup there is one file for each object, as its metadata say, and nothing else."""
    from swift.obj.diskfile import read_metadata

    root = cluster.devices / "d1"
    wanted = {f"/AUTH_test/c/{name}" for name in ledger.acknowledged}
    for index, form in enumerate(FORMS):
        folder = root / ("objects" + (f"-{index}" if index else "")) / "0"
        suffixes = [entry.name for entry in folder.iterdir() if entry.is_dir()]
        # As a replicator requests them: it cleans up in passing.
        assert replicate(objects, form, suffixes) == 200
        names = [read_metadata(str(file))["name"] for file in folder.rglob("*.data")]
        mine = [name for name in names if name.startswith("/AUTH_test/c/k")]
        assert len(names) == len(set(names)), "an object has two files"
        assert set(mine) == {name for name in wanted if form_of(name.rsplit("/", 1)[1]) == form}
    known = {"hashes.pkl", "hashes.invalid", ".lock", ".lock-replication"}
    strays = [file for file in root.rglob("*") if file.is_file() and file.suffix != ".data" and file.name not in known]
    assert not strays
    cluster.audit()
    assert not (root / "quarantined").exists(), list((root / "quarantined").rglob("*"))


def replicate(objects, form, suffixes):
    connection = objects.connect()
    connection.request("REPLICATE", f"/d1/0/{'-'.join(suffixes)}", headers=objects.headers(form))
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status
