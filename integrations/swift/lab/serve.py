"""Runs one of Swift's servers, its auditor or its replicator, with the storage policies of its own swift_dir: `python -m lab.serve object CONF -v`.

The servers' own programs read policies from /etc/swift only. Nothing else differs.
"""

import importlib
import os
import sys
from pathlib import Path

from swift.common.storage_policy import reload_storage_policies
from swift.common.utils import set_swift_dir

from lab.cluster import die_with_parent

MODULES = {
    "proxy": "swift.proxy.server",
    "account": "swift.account.server",
    "container": "swift.container.server",
    "object": "swift.obj.server",
    "auditor": "swift.obj.auditor",
    "replicator": "swift.obj.replicator",
}

if __name__ == "__main__":
    server = sys.argv.pop(1)
    # Also for the workers of a server.
    os.register_at_fork(after_in_child=die_with_parent)
    set_swift_dir(str(Path(sys.argv[1]).parent))
    reload_storage_policies()
    importlib.import_module(MODULES[server]).main()
