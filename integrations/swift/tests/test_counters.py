"""The counters can be read from outside, and are right."""

import json
import logging
import os
import subprocess
import sys

import eventlet
import pytest

from dcs_swift.counters import Counters, eligible_share, total

LOGGER = logging.getLogger("test")


@pytest.fixture
def counters(tmp_path):
    return Counters(LOGGER, "dcs", str(tmp_path), log_interval=0)


def test_file(counters, tmp_path, caplog):
    caplog.set_level("INFO")
    counters.carried("GET", 100)
    counters.carried("GET", 50)
    counters.left("PUT", "chunked or MIME body")
    counters.left("PUT", "a reason")
    counters.left("PUT", "a reason")
    counters.failed("GET", "client went away")
    eventlet.sleep(1.3)
    written = json.loads((tmp_path / f"dcs-object-{os.getpid()}.json").read_text())
    assert written["GET"] == {"carried": 2, "carried_bytes": 150, "left": {}, "failed": {"client went away": 1}}
    assert written["PUT"]["left"] == {"chunked or MIME body": 1, "a reason": 2}
    assert caplog.text.count("left to Swift") == 1, "a reason is logged once"
    assert "GET carried=2 bytes=150" in caplog.text
    assert total(str(tmp_path))["GET"]["carried"] == 2


def test_command(counters, tmp_path):
    counters.carried("GET", 100)
    eventlet.sleep(1.3)
    command = [sys.executable, "-c", "from dcs_swift.counters import main; main()"]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0 and "GET carried=1 bytes=100" in done.stdout
    done = subprocess.run([*command, tmp_path / "nothing"], capture_output=True, text=True)
    assert done.returncode == 1 and "No such file or directory" in done.stderr and not done.stdout


def test_forgets_the_dead(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    file = tmp_path / f"dcs-object-{dead.pid}.json"
    file.write_text("{}")
    Counters(LOGGER, "dcs", str(tmp_path)).carried("GET", 1)
    assert not file.exists()


def test_child_begins_anew(counters):
    counters.carried("GET", 1)
    child = os.fork()
    if child == 0:
        os._exit(0 if counters.snapshot()["GET"]["carried"] == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert counters.snapshot()["GET"]["carried"] == 1


def test_share(counters):
    assert eligible_share(counters.snapshot()) is None
    counters.left("PUT", "empty")
    assert eligible_share(counters.snapshot()) is None
    counters.carried("GET", 1)
    assert eligible_share(counters.snapshot()) == 1.0
    counters.left("GET", "a reason")
    assert eligible_share(counters.snapshot()) == 0.5
