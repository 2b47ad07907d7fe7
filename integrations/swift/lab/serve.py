"""Runs one of Swift's servers, or its auditor, with the storage policies of its own swift_dir: `python -m lab.serve object CONF -v`.

The servers' own programs take policies from /etc/swift alone. Nothing else is different.
"""

import importlib
import sys
from pathlib import Path

from swift.common.storage_policy import reload_storage_policies
from swift.common.utils import set_swift_dir

MODULES = {
    "proxy": "swift.proxy.server",
    "account": "swift.account.server",
    "container": "swift.container.server",
    "object": "swift.obj.server",
    "auditor": "swift.obj.auditor",
}

if __name__ == "__main__":
    server = sys.argv.pop(1)
    set_swift_dir(str(Path(sys.argv[1]).parent))
    reload_storage_policies()
    importlib.import_module(MODULES[server]).main()
