"""Compares stock Swift, the same hooks with hashlib in place of the engine, and the engine.

    python -m lab.bench [--json FILE] [--sizes 64K,1M,16M,64M] [--clients 1,8,32] [--servers object,proxy] ...

Each cell is measured with all contenders in turn before the next, `--runs` times, and medians are shown, so that a busy moment of
the machine affects all contenders. CPU seconds are those of the server's whole process, including the engine's threads; the
engine's own are shown too. `run bench` uses a separate network namespace with cubic congestion control, if that is permitted: BBR,
a default on many machines, costs more on loopback than all the rest. Objects are in memory (tmpfs) if there is enough, else on the
disk under $TMPDIR; Swift is told to leave them in the page cache, for all contenders alike.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import urllib.error
import urllib.request
from hashlib import md5
from pathlib import Path

from .cluster import CONTENDERS, Cluster, Missing, data_folder

_GIB = 1 << 30
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_OPTIONS = {"keep_cache_private": "true", "keep_cache_size": 64 * _GIB}
_CONTAINER = "bench"
JOBS = "PUT", "GET"
_LOAD_LIMIT_S = 900
# This machine lacks something.
SKIPPED = 9


def size_of(text):
    return int(text[:-1]) * _UNITS[text[-1].upper()] if text[-1].upper() in _UNITS else int(text)


def name_of(size):
    for unit, bytes_ in reversed(_UNITS.items()):
        if size % bytes_ == 0:
            return f"{size // bytes_} {unit}iB"
    return f"{size} B"


class Failed(Exception):
    """A run with a wrong answer, in the load's words."""


class Bench:
    """All contenders' clusters, measured in turn, and the results."""

    def __init__(self, given):
        self.given = given
        self.runs = {}
        cores = sorted(os.sched_getaffinity(0))
        # The clients' core is not one of the servers', if there are two.
        self.client_cores = cores[-1:]
        self.server_cores = cores[:-1] or cores
        # Each contender keeps its clients' objects for the duration of a cell; one of them writes its new objects next to the
        # old.
        most = max(given.sizes) * max(given.clients)
        self.folder = data_folder((len(given.contenders) + 1) * most + sum(given.sizes) + _GIB, given.data)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def payload(self, size):
        path = self.folder / f"payload-{size}"
        if not path.exists():
            with open(path, "wb") as file:
                for _ in range(0, size, 1 << 20):
                    file.write(os.urandom(min(size, 1 << 20)))
            os.truncate(path, size)
        return path

    def measure(self):
        """Makes all runs; contenders' clusters run at the same time and only one of them has work."""
        clusters = {}
        try:
            for contender in self.given.contenders:
                cluster = Cluster(
                    contender,
                    device_folder=self.folder / contender,
                    object_options=_OPTIONS,
                    cores=self.server_cores,
                )
                clusters[contender] = cluster.__enter__()
                self._container(cluster)
            for size in self.given.sizes:
                for clients in self.given.clients:
                    for server in self.given.servers:
                        self._cell(clusters, size, clients, server)
        finally:
            for cluster in clusters.values():
                cluster.__exit__()
        return [self._row(key, runs) for key, runs in self.runs.items()]

    def _container(self, cluster):
        token, path = cluster.token()
        url = f"http://127.0.0.1:{cluster.ports['proxy']}{path}/{_CONTAINER}"
        request = urllib.request.Request(url, method="PUT", headers={"X-Auth-Token": token})
        urllib.request.urlopen(request).close()

    def _cell(self, clusters, size, clients, server):
        for cluster in clusters.values():
            self._warm_up(cluster, server, size, clients)
        for run in range(self.given.runs):
            # The first in one run is the last in the next.
            order = self.given.contenders if run % 2 == 0 else self.given.contenders[::-1]
            for job in JOBS:
                for contender in order:
                    key = (contender, server, job, size, clients)
                    try:
                        measured = self._load(clusters[contender], *key[1:])
                    except Failed as why:
                        # Reported, but not part of the figures: an overloaded Swift answers 503.
                        print(f"{server:6} {job} {name_of(size):>7} {clients:2} clients  {contender}: failed: {why}", file=sys.stderr)
                        continue
                    self.runs.setdefault(key, []).append(measured)
                    self._say(*key, measured)
        for cluster in clusters.values():
            self._check(cluster, server, size, clients)
            shutil.rmtree(cluster.devices / "d1" / "objects", ignore_errors=True)

    def _warm_up(self, cluster, server, size, clients):
        """Stores each object twice, unmeasured: first PUTs into memory cost up to four times as much as later ones."""
        try:
            self._load(cluster, server, "PUT", size, clients, least=2, seconds=0)
        except Failed as why:
            print(f"{server:6} {name_of(size):>11}  {cluster.contender}: warm-up failed: {why}", file=sys.stderr)

    def _target(self, cluster, server):
        """Returns the path of an object without its number, and headers."""
        if server == "object":
            return f"/d1/0/AUTH_test/{_CONTAINER}/o", {}
        token, path = cluster.token()
        return f"{path}/{_CONTAINER}/p", {"X-Auth-Token": token}

    def _load(self, cluster, server, job, size, clients, least=None, seconds=None):
        path, headers = self._target(cluster, server)
        spec = {
            "host": "127.0.0.1",
            "port": cluster.ports[server],
            "path": path,
            "headers": headers,
            "job": job,
            "size": size,
            "clients": clients,
            "payload": str(self.payload(size)),
            "seconds": self.given.seconds if seconds is None else seconds,
            # Per client; with more, a slow server's largest cells would take minutes.
            "least": least or (1 if clients * size >= _GIB else 2),
            "cores": self.client_cores,
            "pids": {name: cluster.pid(name) for name in ("object", "proxy")},
        }
        command = [sys.executable, "-W", "ignore", "-m", "lab.load"]
        done = subprocess.run(
            command, input=json.dumps(spec), capture_output=True, text=True, timeout=_LOAD_LIMIT_S, cwd=Path(__file__).parent.parent
        )
        if done.returncode:
            raise Failed(done.stderr.strip().split("\n")[-1])
        return json.loads(done.stdout)

    def _check(self, cluster, server, size, clients):
        """Checks one object, outside of the measured time."""
        path, headers = self._target(cluster, server)
        url = f"http://127.0.0.1:{cluster.ports[server]}{path}0"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
                body, etag = answer.read(), answer.headers["Etag"].strip('"')
        except urllib.error.HTTPError as error:
            if (cluster.contender, server, "PUT", size, clients) in self.runs:
                raise RuntimeError(f"{cluster.contender}: an object that was stored is answered with {error}") from error
            print(f"{server:6} {name_of(size):>11}  {cluster.contender}: no PUT succeeded, nothing to check ({error})", file=sys.stderr)
            return
        expected = md5(self.payload(size).read_bytes()).hexdigest()
        if not (md5(body).hexdigest() == etag == expected):
            raise RuntimeError(f"{cluster.contender}: an object of {size} bytes came back wrong")

    def _say(self, contender, server, job, size, clients, run):
        cpu = run["server_cpu_s"]["object"]["both"] * _GIB / run["bytes"]
        user = run["server_cpu_s"]["object"]["user"] * _GIB / run["bytes"]
        print(
            f"{server:6} {job} {name_of(size):>7} {clients:2} clients  {contender:8}"
            f"{run['bytes'] / run['wall_s'] / 2**20:7.0f} MiB/s  object server {cpu:5.2f} CPU s/GiB, {user:.2f} of them its own",
            file=sys.stderr,
            flush=True,
        )

    @staticmethod
    def _row(key, runs):
        contender, server, job, size, clients = key
        per_gib = lambda value, run: value * _GIB / run["bytes"]  # noqa: E731
        row = {"contender": contender, "server": server, "job": job, "size": size, "clients": clients, "runs": len(runs)}
        row["mib_per_s"] = statistics.median(run["bytes"] / run["wall_s"] / 2**20 for run in runs)
        for name in ("object", "proxy"):
            for kind, field in (("both", "cpu_s_per_gib"), ("user", "user_s_per_gib")):
                row[f"{name}_{field}"] = statistics.median(per_gib(run["server_cpu_s"][name][kind], run) for run in runs)
        row["engine_cpu_s_per_gib"] = statistics.median(per_gib(run["server_cpu_s"]["engine"]["both"], run) for run in runs)
        row["client_cpu_s_per_gib"] = statistics.median(per_gib(run["client_cpu_s"], run) for run in runs)
        row["median_ms"] = statistics.median(run["median_ms"] for run in runs)
        row["requests"] = sum(run["requests"] for run in runs)
        return row


def with_ratios(rows):
    """Compares each row with stock's."""
    stock = {(row["server"], row["job"], row["size"], row["clients"]): row for row in rows if row["contender"] == "stock"}
    for row in rows:
        base = stock.get((row["server"], row["job"], row["size"], row["clients"]))
        if base:
            row["throughput_of_stock"] = row["mib_per_s"] / base["mib_per_s"]
            row["object_cpu_of_stock"] = row["object_cpu_s_per_gib"] / base["object_cpu_s_per_gib"]
    return rows


def table(rows):
    lines = [
        "through  job  object    clients  contender   MiB/s  of stock  object server  of stock  engine    proxy",
        "                                                              CPU s/GiB               of it     CPU s/GiB",
    ]
    order = sorted(rows, key=lambda row: (row["server"], row["job"], row["size"], row["clients"]))
    for row in order:
        proxy = f"{row['proxy_cpu_s_per_gib']:9.2f}" if row["server"] == "proxy" else " " * 9
        lines.append(
            f"{row['server']:7}  {row['job']:3}  {name_of(row['size']):8}  {row['clients']:7}  {row['contender']:9}"
            f"{row['mib_per_s']:8.0f}  {row.get('throughput_of_stock', 1):8.2f}  {row['object_cpu_s_per_gib']:13.2f}"
            f"  {row.get('object_cpu_of_stock', 1):8.2f}{row['engine_cpu_s_per_gib']:8.2f}{proxy}"
        )
    return "\n".join(lines)


def _list(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def options():
    parser = argparse.ArgumentParser(
        prog="lab.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.epilog = "Status: 0; 1 if a cell of the table has no figures because all of its runs failed; 9 if this machine lacks something."
    parser.add_argument("--contenders", type=_list(str), default=list(CONTENDERS), help="stock,hashlib,dcs")
    parser.add_argument("--servers", type=_list(str), default=["object", "proxy"], help="object,proxy")
    parser.add_argument("--sizes", type=_list(size_of), default=_list(size_of)("64K,1M,16M,64M"))
    parser.add_argument("--clients", type=_list(int), default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=3, help="minimum seconds of a run (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each cell (%(default)s)")
    parser.add_argument("--data", help="folder for the objects; memory if it is large enough")
    parser.add_argument("--json", help="file for the rows, one JSON object a line; - for standard output, without a table")
    return parser.parse_args()


def main():
    given = options()
    try:
        bench = Bench(given)
    except Missing as why:
        print(f"skipped: {why}", file=sys.stderr)
        return SKIPPED
    try:
        rows = with_ratios(bench.measure())
    finally:
        bench.close()
    if given.json:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        if given.json == "-":
            # Readers see from it what is missing.
            sys.stdout.write(text)
            return 0
        Path(given.json).write_text(text)
    print(table(rows))
    cells = len(given.contenders) * len(given.servers) * len(given.sizes) * len(given.clients) * len(JOBS)
    return 0 if len(rows) == cells else 1


if __name__ == "__main__":
    sys.exit(main())
