"""Swift's own tests: unit tests of disk file and object server, and the functional tests against a running cluster.

    python -m lab.suites SWIFT-SOURCES [--engine dcs|hashlib|stock] [--beside-stock] [--only unit|functional] [--forms plain,encrypted]

Every test has to pass; with --beside-stock, every one that passes in stock Swift, which is then run first. The engine must also
carry at least nine tenths of the bodies for it, or the tests would show nothing.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dcs_swift.counters import describe, eligible_share

from .cluster import TEST_PIPELINE, Cluster, Missing, data_folder

UNIT = ["test/unit/obj/test_diskfile.py", "test/unit/obj/test_server.py"]
FUNCTIONAL = [f"test/functional/{name}.py" for name in ("tests", "test_object", "test_slo", "test_dlo", "test_protocol")]
LEAST_SHARE = 0.9
_GIB = 1 << 30
_LAB = Path(__file__).resolve().parent.parent
CONFIGURATION = """\
[func_test]
auth_uri = http://127.0.0.1:{port}/auth/v1.0
account = test
username = tester
password = testing
s3_access_key = test:tester
s3_secret_key = testing
account2 = test2
username2 = tester2
password2 = testing2
username3 = tester3
password3 = testing3
s3_access_key2 = test:tester2
s3_secret_key2 = testing2
s3_access_key3 = test:tester3
s3_secret_key3 = testing3
collate = C
insecure = no
storage_domain =
[unit_test]
fake_syslog = False
"""


def _pytest(sources, tests, environment, extra=()):
    """Returns exit status, the last line's counts, names of the tests that passed, and all output."""
    command = [sys.executable, "-m", "pytest", "-q", "-rp", "--no-header", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(
        [*command, *extra, *tests], cwd=sources, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    last = re.findall(r"^.*\d (?:passed|failed|errors?)\b.* in [\d.]+s.*$", done.stdout, re.MULTILINE)[-1:]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", "".join(last))}
    return done.returncode, counts, set(re.findall(r"^PASSED (.+)$", done.stdout, re.MULTILINE)), done.stdout


def _as_stock(code, passed, stock):
    """Returns whether a run succeeded: all tests passed, or all of `stock`, the names of those that pass there."""
    # 1: some failed. Anything other than that and 0 is not a complete run.
    if stock is None or code not in (0, 1):
        return code == 0
    for name in sorted(stock - passed):
        print(f"FAILED: passes in stock Swift: {name}")
    return bool(passed) and stock <= passed


def unit(sources, engine, stock=None):
    """Returns what passed; None if something failed that must pass."""
    folder = data_folder(_GIB)
    counters = folder / "counters.json"
    environment = {
        "TMPDIR": str(folder),
        "PYTHONPATH": os.pathsep.join([str(_LAB), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "DCS_SWIFT_TEST": engine,
        "DCS_SWIFT_COUNTERS": str(counters),
    }
    try:
        code, counts, passed, said = _pytest(sources, UNIT, environment, ["-p", "lab.stock_tests_plugin"])
        bodies = json.loads(counters.read_text()) if counters.exists() else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"unit tests, {engine}: {counts}, bodies {bodies}", flush=True)
    failed = not _as_stock(code, passed, stock)
    if engine != "stock" and not (bodies and bodies["carried"]):
        print("FAILED: no body was carried")
        failed = True
    return _told(failed, passed, said)


def _told(failed, passed, said):
    if failed:
        said = re.sub(r"^PASSED .*\n", "", said, flags=re.MULTILINE)
        print(said[:4000], "...", said[-4000:], sep="\n")
    return None if failed else passed


def functional(sources, engine, form="plain", stock=None):
    """Like `unit`."""
    folder = data_folder(2 * _GIB)
    options = {"disable_fallocate": "true", "keep_cache_private": "true", "keep_cache_size": _GIB}
    if engine != "stock":
        options["dcs_min_size"] = 1
    try:
        with Cluster(engine, None, folder, [form], TEST_PIPELINE, options) as cluster:
            configuration = cluster.folder / "test.conf"
            configuration.write_text(CONFIGURATION.format(port=cluster.ports["proxy"]))
            environment = {"SWIFT_TEST_CONFIG_FILE": str(configuration), "TMPDIR": tempfile.gettempdir()}
            code, counts, passed, said = _pytest(sources, FUNCTIONAL, environment)
            carried = cluster.counters() if engine != "stock" else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"functional tests, {engine}, objects {form}: {counts}", flush=True)
    failed = not _as_stock(code, passed, stock)
    if carried:
        share = eligible_share(carried)
        print(f"  {describe(carried)}\n  of the bodies that the engine should carry: {share or 0:.1%}", flush=True)
        if share is None or share < LEAST_SHARE:
            print(f"FAILED: less than {LEAST_SHARE:.0%}")
            failed = True
    return _told(failed, passed, said)


def _in_stock(suite, sources):
    """Returns the names of the tests that pass in stock Swift: some may fail there."""
    passed = suite(sources, "stock", stock=frozenset())
    if passed is None:
        sys.exit("FAILED: the tests do not run in stock Swift")
    return passed


def main():
    parser = argparse.ArgumentParser(prog="lab.suites", description=__doc__.split("\n")[0])
    parser.add_argument("sources", type=Path, help="unpacked sources of Swift, with its tests")
    parser.add_argument("--engine", default="dcs", choices=["stock", "hashlib", "dcs"])
    parser.add_argument("--beside-stock", action="store_true", help="run stock Swift first: tests that pass there must pass")
    parser.add_argument("--only", choices=["unit", "functional"])
    parser.add_argument("--forms", default="plain", help="forms of the functional tests' objects: plain,encrypted,compressed")
    given = parser.parse_args()
    passed = []
    try:
        if given.only != "functional":
            stock = _in_stock(unit, given.sources) if given.beside_stock else None
            passed.append(unit(given.sources, given.engine, stock))
        if given.only != "unit":
            stock = _in_stock(functional, given.sources) if given.beside_stock else None
            passed += [functional(given.sources, given.engine, form, stock) for form in given.forms.split(",")]
    except Missing as why:
        print(f"skipped: {why}")
        passed += [None] if os.environ.get("DCS_CLIENTS") == "demand" else []
    return 1 if None in passed else 0


if __name__ == "__main__":
    sys.exit(main())
