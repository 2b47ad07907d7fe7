"""The core in the Rust core's place: `crates/rtl`, whose tests run it beside the Rust core and in the card."""

import os
import subprocess
import sys

from modules import RTL


def run(args):
    if args.module and "engine" not in args.module:
        return True
    # The guest takes too long for every run of all tests. For this package alone cargo would build dependencies
    # again, with other features than all tests are built with.
    tests = ["core", "core_on_fabric", *([] if args.part == "quick" else ["core_in_guest"])]
    command = ["cargo", "test", "--workspace", "--features", "dcs-rtl/verilator", "--locked"]
    command += [word for test in tests for word in ("--test", test)] + ["--", "--nocapture"]
    environment = os.environ | {"DCS_RTL_COMMANDS": str(args.commands)}
    done = subprocess.run(command, cwd=RTL.parent, env=environment, capture_output=True, text=True)
    log = args.target / "core.log"
    log.write_text(done.stdout + done.stderr)
    said = [line for line in done.stdout.splitlines() if " as in the Rust core" in line or line.startswith("test result")]
    print("".join(f"core: {line}\n" for line in said), end="", flush=True)
    if done.returncode:
        print(f"core: failed, see {log}\n{done.stdout[-4000:]}{done.stderr[-4000:]}", file=sys.stderr)
    return done.returncode == 0
