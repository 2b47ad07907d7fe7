#!/usr/bin/env python3
"""Hadoop's grep example on a real HDFS (DCS, figure 2.13): a stock job, and the same job whose mappers get the lines that dcs finds
in the DataNode's block files. Checks what is found against GNU grep.

usage: grep.py [--dcs FILE] [--size MiB] [--runs N] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import cluster

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GIB = 1 << 30
# Rare: one line in 10,000. Frequent: one in five.
PATTERNS = {"rare": "ERROR", "frequent": "status=[45][0-9]{2} "}
WAYS = ("stock", "near storage")
COUNTERS = {"near_bytes": "bytes near storage", "hdfs_bytes": "bytes through HDFS"}


def write_log(path, size):
    """Writes a log of lines of some 110 bytes: the same for the same size."""
    source = random.Random(1)
    pieces = []
    for _ in range(1 << 16):
        level = "ERROR" if source.random() < 1e-4 else source.choice(("INFO", "WARN", "DEBUG"))
        status = source.choice((200, 201, 204, 301, 304, 200, 200, 200, 404, 503))
        pieces.append(f"2026-03-0{source.randrange(1, 10)}T{source.randrange(24):02}:{source.randrange(60):02} {level} "
                      f"worker-{source.randrange(64)} request={source.getrandbits(64):016x} status={status} "
                      f"bytes={source.randrange(1 << 20)} {source.random() * 100:.2f}ms\n")
    with open(path, "w") as file:
        left = size << 20
        while left > 0:
            source.shuffle(pieces)
            text = "".join(pieces)
            file.write(text[:left])
            left -= len(text)


class Job:
    """One run of the example, and what it took."""

    def __init__(self, hdfs, way, pattern, options):
        out = f"/found-{time.monotonic_ns()}"
        more = []
        if way != "stock":
            more = ["-Dmapreduce.job.inputformat.class=NearStorageInputFormat", f"-Ddcs.command={options.dcs}",
                    f"-Ddcs.datanode={hdfs.data_folder('one')}/dn"]
        before = hdfs.cpu("one")
        text, self.seconds, self.job_cpu = hdfs.job(
            "org.apache.hadoop.examples.ExampleDriver", "grep", *more, "/log", out, pattern)
        self.node_cpu = sum(hdfs.cpu("one")) - sum(before)
        # Each task says its own, the job their sum.
        self.counters = {key: max(map(int, re.findall(rf"{name}=(\d+)", text)), default=0) for key, name in COUNTERS.items()}
        lines = hdfs.shell("-cat", f"{out}/part-r-00000").decode().splitlines()
        self.found = {text: int(count) for count, text in (line.split("\t") for line in lines)}
        hdfs.shell("-rm", "-r", "-skipTrash", out)


def expected(log, pattern):
    """The matches and their numbers, by GNU grep."""
    found = subprocess.run(["grep", "-aoE", pattern, log], env=os.environ | {"LC_ALL": "C"}, capture_output=True, check=True).stdout
    counts = {}
    for match in found.decode().splitlines():
        counts[match] = counts.get(match, 0) + 1
    return counts


def build(hdfs, folder):
    """Compiles the input format into the cluster's class path."""
    classes = hdfs.folder / "classes"
    subprocess.run(["javac", "-cp", f"{cluster.jars()}/*", "-d", classes, HERE / "NearStorageInputFormat.java"], check=True)


def measure(options, folder, hdfs):
    rows = []
    for name, pattern in PATTERNS.items():
        matches = expected(folder / "log", pattern)
        runs = {way: [] for way in WAYS}
        # The first of each warms the page cache up.
        for run in range(options.runs + 1):
            for way in WAYS:
                job = Job(hdfs, way, pattern, options)
                if job.found != matches:
                    sys.exit(f"grep: {way}, {pattern}: {job.found} where grep finds {matches}")
                whole = options.size << 20
                if way != "stock" and not (job.counters["near_bytes"] > 0.99 * whole
                                           and sum(job.counters.values()) == whole):
                    sys.exit(f"grep: not near storage: {job.counters}")
                if run:
                    runs[way].append(job)
        for way in WAYS:
            rows.append(row(name, pattern, way, runs[way], sum(matches.values()), options.size / 1024))
    return rows


def refuse_damage(options, hdfs):
    """Checks that a block with a wrong byte fails the job next to the blocks, as it does an HDFS client."""
    block = max(hdfs.blocks("one").values(), key=lambda file: file.stat().st_size)
    # Not at its ends, which are read through HDFS.
    middle = block.stat().st_size // 2
    with open(block, "r+b") as file:
        file.seek(middle)
        byte = file.read(1)
        file.seek(middle)
        file.write(bytes([byte[0] ^ 1]))
        file.flush()
        try:
            Job(hdfs, "near storage", PATTERNS["rare"], options)
        except RuntimeError as error:
            if "--through, crc32c=" not in str(error):
                raise
        else:
            sys.exit("grep: a damaged block was searched as if it were whole")
        finally:
            file.seek(middle)
            file.write(byte)


def row(name, pattern, way, jobs, matches, gib):
    def median(of):
        return round(statistics.median(map(of, jobs)), 3)

    return {
        "event": "measurement", "hadoop_grep": name, "pattern": pattern, "by": way, "gib": gib, "matches": matches, "runs": len(jobs),
        "seconds": median(lambda job: job.seconds), "job_cpu_s": median(lambda job: job.job_cpu),
        "datanode_cpu_s": median(lambda job: job.node_cpu), "cpu_s": median(lambda job: job.job_cpu + job.node_cpu),
        "datanode_sent_bytes": None if way == "stock" else jobs[0].counters["hdfs_bytes"],
    }


def table(rows):
    print("| pattern | by | s | job's CPU s | DataNode's CPU s | both |\n|---|---|---|---|---|---|")
    for found in rows:
        print(f"| `{found['pattern']}` | {found['by']} | {found['seconds']:.1f} | {found['job_cpu_s']:.1f} | "
              f"{found['datanode_cpu_s']:.1f} | {found['cpu_s']:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    release = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute() / "release"
    parser.add_argument("--dcs", type=pathlib.Path, default=release / "dcs")
    parser.add_argument("--size", type=int, default=2048, help="MiB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--block", type=int, default=128, help="MiB")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if not options.dcs.is_file():
        parser.error(f"{options.dcs} is not there: make build")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("grep: terminated"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_log(folder / "log", options.size)
        with cluster.Cluster(folder / "hdfs", options.block << 20, f"{options.size + 256}m") as hdfs:
            build(hdfs, folder)
            hdfs.start_data("one")
            hdfs.shell("-put", folder / "log", "/log")
            rows = measure(options, folder, hdfs)
            refuse_damage(options, hdfs)
    table(rows)
    if options.json:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
