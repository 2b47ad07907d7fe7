"""A pytest plugin: puts this package's classes where Swift's unit tests look for Swift's own.

`DCS_SWIFT_TEST=stock` leaves everything unchanged; `hashlib` and `dcs` select the carrier of bodies. Every size is carried, so that
the tests' small bodies are too. At the end it writes the counters to the file that `DCS_SWIFT_COUNTERS` names.
"""

import atexit
import builtins
import json
import os
import tempfile

_ENGINE = os.environ.get("DCS_SWIFT_TEST", "dcs")
_FOLDER = tempfile.gettempdir()
_counters = []


def _instead():
    from swift.obj import diskfile, server

    from dcs_swift import diskfile as our_diskfile
    from dcs_swift import server as our_server

    stock, ours = server.ObjectController, our_server.ObjectController

    class Controller(ours):
        def __init__(self, conf, logger=None):
            super().__init__({"engine": _ENGINE, "dcs_min_size": "1", "recon_cache_path": _FOLDER, **conf}, logger)
            _counters.append(self.dcs_counters)
            # Hundreds of servers in one process need not report at its end.
            atexit.unregister(self.dcs_counters.at_exit)

    class Manager(our_diskfile.PlainManager):
        def __init__(self, conf, logger):
            super().__init__({"dcs_min_size": "1", **conf}, logger)

    # Tests patch classes by the names under which they find them.
    for mine, replaced in ((Manager, diskfile.DiskFileManager), (our_diskfile.DiskFile, diskfile.DiskFile), (Controller, stock)):
        mine.__module__, mine.__name__, mine.__qualname__ = replaced.__module__, replaced.__name__, replaced.__qualname__
    # Swift's own code says `super(ObjectController, self)`, and now finds another class by this name.
    server.super = lambda cls, self: builtins.super(stock if cls is Controller else cls, self)
    server.ObjectController = Controller
    diskfile.DiskFileManager = Manager
    diskfile.DiskFile = our_diskfile.DiskFile


if _ENGINE != "stock":
    _instead()


def _sum():
    both = {"carried": 0, "failed": 0, "left": {}}
    for counters in _counters:
        counts = counters.snapshot()
        for verb in ("GET", "PUT"):
            both["carried"] += counts[verb]["carried"]
            both["failed"] += sum(counts[verb]["failed"].values())
            for why, count in counts[verb]["left"].items():
                both["left"][why] = both["left"].get(why, 0) + count
    return both


def pytest_sessionfinish():
    path = os.environ.get("DCS_SWIFT_COUNTERS")
    if path:
        with open(path, "w") as file:
            json.dump(_sum(), file)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"bodies: {json.dumps(_sum())}")
