"""Counts the bodies that the engine carried and those that were left to Swift, so that fallbacks are visible.

Each process of an object server keeps a file, `dcs-object-PID.json`, in Swift's recon_cache_path; `dcs-swift-counters`
adds them up. A line in the log reports them every few minutes, and a warning reports the first time that a body for the engine
is left to Swift for a given reason.
"""

import argparse
import atexit
import glob
import json
import os
import sys
import time
from collections import Counter

import eventlet

# Reasons that are not shortcomings: bodies that are not meant for the engine.
NOT_ELIGIBLE = {
    "empty",
    "smaller than dcs_min_size",
    "chunked or MIME body",
    "not a plain socket",
    "several ranges",
    "another backend",
}
_NAME = "dcs-object-{}.json"


class Counters:
    """Counters of one process. A forked child begins anew."""

    def __init__(self, logger, engine, folder=None, log_interval=300.0):
        self._logger, self._engine, self._folder = logger, engine, folder
        self._log_interval = log_interval
        self._pid = None
        atexit.register(self.at_exit)

    def _begin(self):
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._since = time.time()
        self._carried, self._carried_bytes, self._left, self._failed = Counter(), Counter(), Counter(), Counter()
        self._logged = time.monotonic()
        self._timer = None
        if self._folder:
            forget_the_dead(self._folder)

    def carried(self, verb, size):
        """Counts a body that was carried completely."""
        self._begin()
        self._carried[verb] += 1
        self._carried_bytes[verb] += size
        self._changed()

    def left(self, verb, reason):
        """Counts a body that Swift moved itself."""
        self._begin()
        if reason not in NOT_ELIGIBLE and not self._left[verb, reason]:
            self._logger.warning("dcs: left to Swift: %s, %s (further ones are counted)", verb, reason)
        self._left[verb, reason] += 1
        self._changed()

    def failed(self, verb, reason):
        """Counts a body that the engine began and did not complete."""
        self._begin()
        self._failed[verb, reason] += 1
        self._changed()

    def snapshot(self):
        self._begin()
        both = {"engine": self._engine, "pid": self._pid, "since": self._since, "updated": time.time()}
        for verb in ("GET", "PUT"):
            both[verb] = {
                "carried": self._carried[verb],
                "carried_bytes": self._carried_bytes[verb],
                "left": {why: count for (whose, why), count in self._left.items() if whose == verb},
                "failed": {why: count for (whose, why), count in self._failed.items() if whose == verb},
            }
        return both

    def _changed(self):
        # At most once a second, under any load; also if no other request follows.
        if self._timer is None:
            self._timer = eventlet.spawn_after(1.0, self._write)

    def _write(self):
        self._timer = None
        if self._folder:
            path = os.path.join(self._folder, _NAME.format(self._pid))
            try:
                with open(path + ".new", "w") as file:
                    json.dump(self.snapshot(), file)
                os.replace(path + ".new", path)
            except OSError as error:
                self._logger.warning("dcs: counters are not written to %s: %s", path, error)
                self._folder = None
        if time.monotonic() - self._logged >= self._log_interval:
            self._logged = time.monotonic()
            self._logger.info("dcs: %s", describe(self.snapshot()))

    def at_exit(self):
        """Logs and writes the final counts."""
        if self._pid == os.getpid():
            self._logger.info("dcs: %s", describe(self.snapshot()))
            if self._folder:
                self._write()


def describe(counts):
    """Returns a one-line description."""
    parts = [f"engine={counts['engine']}"]
    for verb in ("GET", "PUT"):
        of = counts[verb]
        left = "".join(f", {count} {why}" for why, count in sorted(of["left"].items()))
        failed = "".join(f", {count} {why}" for why, count in sorted(of["failed"].items()))
        parts.append(
            f"{verb} carried={of['carried']} bytes={of['carried_bytes']} "
            f"left={sum(of['left'].values())}{left} broken_off={sum(of['failed'].values())}{failed}"
        )
    return "; ".join(parts)


def eligible_share(counts):
    """Carried bodies among those that the engine should carry; None where there were none."""
    carried = sum(counts[verb]["carried"] for verb in ("GET", "PUT"))
    missed = sum(
        count
        for verb in ("GET", "PUT")
        for why, count in counts[verb]["left"].items()
        if why not in NOT_ELIGIBLE
    )
    missed += sum(counts[verb]["failed"].get("engine error", 0) for verb in ("GET", "PUT"))
    return carried / (carried + missed) if carried + missed else None


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _files(folder):
    for path in glob.glob(os.path.join(glob.escape(folder), _NAME.format("*"))):
        digits = path.rsplit("-", 1)[1].split(".")[0]
        if digits.isdigit():
            yield int(digits), path


def forget_the_dead(folder):
    """Removes files of processes that have ended."""
    for pid, path in _files(folder):
        if not _alive(pid):
            try:
                os.remove(path)
            except OSError:
                pass


def total(folder):
    """Returns the sum of all processes' counts in `folder`."""
    all_of = {"engine": "none", "processes": 0}
    for verb in ("GET", "PUT"):
        all_of[verb] = {"carried": 0, "carried_bytes": 0, "left": Counter(), "failed": Counter()}
    for _, path in _files(folder):
        with open(path) as file:
            counts = json.load(file)
        all_of["processes"] += 1
        all_of["engine"] = counts["engine"]
        for verb in ("GET", "PUT"):
            for field in ("carried", "carried_bytes"):
                all_of[verb][field] += counts[verb][field]
            for field in ("left", "failed"):
                all_of[verb][field].update(counts[verb][field])
    return all_of


def main():
    parser = argparse.ArgumentParser(
        prog="dcs-swift-counters", description="Shows the bodies that the engine carried in this machine's object servers."
    )
    parser.add_argument("folder", nargs="?", default="/var/cache/swift", help="recon_cache_path (%(default)s)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    given = parser.parse_args()
    try:
        os.listdir(given.folder)
    except OSError as error:
        sys.exit(f"{parser.prog}: {given.folder}: {error.strerror}; give it the recon_cache_path of object-server.conf")
    counts = total(given.folder)
    share = eligible_share(counts)
    if given.json:
        print(json.dumps({**counts, "eligible_share": share}))
    else:
        print(describe(counts))
        print("of the bodies that the engine should carry:", "none yet" if share is None else f"{share:.1%}")
