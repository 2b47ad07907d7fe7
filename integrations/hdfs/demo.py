#!/usr/bin/env python3
"""HDFS's DataNodes with libdcs-preload.so: put, get, a balancer's move and the grep example, every byte checked; and the cost of
the digests for the sending DataNode.

usage: demo.py [--library FILE] [--dcs FILE] [--size MiB] [--runs N]
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile

import cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The balancer moves whole blocks: small ones bring it close to its target.
SMALL_BLOCK, BLOCK = 16 << 20, 64 << 20
GIB = 1 << 30


def check(condition, what):
    print(f"  {'ok' if condition else 'WRONG'}  {what}", flush=True)
    if not condition:
        sys.exit(f"demo: {what}: not so")


def say(line):
    print(line, flush=True)


class Engine:
    """The library with a chain, its log and its counters."""

    def __init__(self, library, folder, name, through):
        self.library, self.log, self.counters = library, folder / f"{name}.jsonl", folder / f"{name}.counters"
        rules = folder / f"{name}.toml"
        rule = f"[[rule]]\npath = '*/blk_*'\nthrough = '{through}'\n" if through else ""
        rules.write_text(f"log = '{self.log}'\ncounters = '{self.counters}'\n{rule}")
        self.environment = {"LD_PRELOAD": str(library), "DCS_PRELOAD_CONFIG": str(rules)}

    def counted(self, dcs):
        done = subprocess.run([dcs, "run", "--show", self.counters, "--json"], capture_output=True, check=True)
        return json.loads(done.stdout)

    def objects(self):
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] == "object"]

    def check_digests(self, blocks):
        """Checks every digest in the log against hashlib over that range of the block's file; returns how many covered a whole block."""
        whole = collections.Counter()
        for line in self.objects():
            file = pathlib.Path(line["path"])
            # The balancer removes blocks that it has moved.
            file = file if file.exists() else blocks.get(file.name)
            if not file:
                continue
            for digest in line["digests"]:
                with open(file, "rb") as data:
                    data.seek(line["offset"])
                    covered = data.read(digest["bytes"])
                if hashlib.new(digest["operator"], covered).hexdigest() != digest["value"]:
                    sys.exit(f"demo: a wrong digest: {line}")
            whole[file.name] += line["whole"]
        return whole


def write_data(folder, size):
    """Writes a file of random bytes, and one of text with a known number of matches."""
    noise, text = folder / "noise", folder / "text"
    with open(noise, "wb") as file:
        for _ in range(size):
            file.write(os.urandom(1 << 20))
    source = random.Random(1)
    words = ["alpha", "beta", "gamma", "delta"]
    with open(text, "w") as file:
        lines = [" ".join(source.choices(words, k=12)) + "\n" for _ in range(1_000_000)]
        file.writelines(lines)
    return noise, text, sum(line.count("gamma") for line in lines)


def same(one, other):
    return subprocess.run(["cmp", "-s", one, other]).returncode == 0


def works(options, folder):
    """Does real work on two DataNodes with the library, and checks everything."""
    say("put, get, balancer, grep with the library in both DataNodes (md5):")
    engine = Engine(options.library, folder, "works", "md5")
    noise, text, matches = write_data(folder, options.size)
    with cluster.Cluster(folder / "works", SMALL_BLOCK, f"{options.size * 2}m") as hdfs:
        hdfs.start_data("one", engine.environment)
        hdfs.shell("-put", noise, text, "/")
        hdfs.shell("-get", "/noise", folder / "back")
        check(same(noise, folder / "back"), f"get gives the {options.size} MiB that were put")
        whole = engine.check_digests(hdfs.blocks("one"))
        check(len(whole) == -(-(options.size << 20) // SMALL_BLOCK) and all(whole.values()),
              f"the log has the MD5 of each of its {len(whole)} blocks, as hashlib computes it")

        hdfs.client("org.apache.hadoop.examples.ExampleDriver", "grep", "/text", "/found", "gamma")
        found = hdfs.shell("-cat", "/found/part-r-00000").decode().split()
        check(found == [str(matches), "gamma"], f"the grep example finds {matches} matches")

        if hdfs.mounts:
            hdfs.start_data("two", engine.environment)
            # The balancer also writes a file of its own, to either.
            before = set(hdfs.blocks("one"))
            balance(hdfs)
            moved = set(hdfs.blocks("two")) & before
            blocks = hdfs.blocks("one") | hdfs.blocks("two")
            check(len(moved) > 0, f"the balancer moved {len(moved)} blocks to the other DataNode")
            whole = engine.check_digests(blocks)
            check(all(whole[name] >= 1 for name in moved), "the log has the MD5 of each that was moved")
            os.unlink(folder / "back")
            hdfs.shell("-get", "/noise", folder / "back")
            check(same(noise, folder / "back"), "get gives the same bytes from both")
        else:
            say("  skipped: the balancer needs small file systems, and mounting them is not allowed here")
        counted = engine.counted(options.dcs)
    say(f"  {json.dumps(counted)}")
    check(counted["engine_calls"] > 0 and not counted["fallback_calls"] and not counted["failed"],
          f"the engine carried {counted['engine_calls']} calls, {counted['engine_bytes'] >> 20} MiB; none fell back")


def balance(hdfs):
    """Makes one round of the balancer. That of Hadoop 3.4.2 fails on its own metrics when it begins a second one, with or
    without the library."""
    try:
        hdfs.client("org.apache.hadoop.hdfs.server.balancer.Balancer", "-threshold", "5")
    except RuntimeError as error:
        if "Metrics source" not in str(error):
            raise


def costs(options, folder):
    """Measures CPU seconds per GiB of a sending and a receiving DataNode, in turns."""
    noise = folder / "noise"
    contenders = {
        "stock": {},
        "library, no rule": Engine(options.library, folder, "none", "").environment,
        "crc32c": Engine(options.library, folder, "crc32c", "crc32c").environment,
        "md5": Engine(options.library, folder, "md5", "md5").environment,
    }
    gib = (options.size << 20) / GIB
    sent, received = collections.defaultdict(list), collections.defaultdict(list)
    with cluster.Cluster(folder / "costs", BLOCK, f"{options.size * 2}m") as hdfs:
        hdfs.start_data("one")
        hdfs.shell("-put", noise, "/noise")
        for run in range(options.runs):
            for name, environment in contenders.items():
                hdfs.stop("one")
                hdfs.start_data("one", environment)
                # The first one warms the JVM up.
                for _ in range(2):
                    before = hdfs.cpu("one")
                    hdfs.read_all("/noise")
                    after = hdfs.cpu("one")
                sent[name].append([(now - then) / gib for now, then in zip(after, before)])
        hdfs.stop("one")
        hdfs.start_data("one")
        for run in range(options.runs + 1):
            for checksum in ("CRC32C", "NULL"):
                hdfs.shell("-rm", "-skipTrash", "/noise")
                before = hdfs.cpu("one")
                hdfs.shell(f"-Ddfs.checksum.type={checksum}", "-put", noise, "/noise")
                after = hdfs.cpu("one")
                if run:
                    received[checksum].append([(now - then) / gib for now, then in zip(after, before)])
    say(f"\nCPU seconds per GiB of the DataNode that sends ({options.size} MiB, medians of {options.runs}):")
    table(sent)
    say("\nand of one that receives, with checksums and without:")
    table(received)


def table(costs):
    say("| | user | system | both |\n|---|---|---|---|")
    for name, runs in costs.items():
        user, system = (statistics.median(values) for values in zip(*runs))
        both = statistics.median(sum(run) for run in runs)
        say(f"| {name} | {user:.2f} | {system:.2f} | {both:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    release = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute() / "release"
    parser.add_argument("--library", type=pathlib.Path, default=release / "libdcs_preload.so")
    parser.add_argument("--dcs", type=pathlib.Path, default=release / "dcs")
    parser.add_argument("--size", type=int, default=512, help="MiB")
    parser.add_argument("--runs", type=int, default=3, help="0: no measurement")
    options = parser.parse_args()
    # LD_PRELOAD ignores a library that doesn't exist.
    for file in (options.library, options.dcs):
        if not file.is_file():
            parser.error(f"{file} is not there: make build")
    # Processes and mounts are cleaned up then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("demo: terminated"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        works(options, folder)
        if options.runs:
            costs(options, folder)
    say("\nall checks passed")


if __name__ == "__main__":
    main()
