"""Lints, simulates, proves, synthesizes and places the modules in this folder, and runs the core beside the Rust core; see tools/rtl,
which runs it."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "tools"), str(HERE / "test")]

import area  # noqa: E402
import bench  # noqa: E402
import body  # noqa: E402
import core  # noqa: E402
import diagram  # noqa: E402
import formal  # noqa: E402
import lint  # noqa: E402
import speed  # noqa: E402

PARTS = {"lint": lint.run, "test": bench.run, "core": core.run, "formal": formal.run, "area": area.run, "speed": speed.run}

# For every run of all tests: few, since they may take 40 seconds. The others run in `make rtl`.
QUICK = ["ndp_md5", "ndp_sha256", "ndp_crc32", "ndp_aes256_ctr", "engine", "uoe", "nic_controller"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="where results are kept")
    parser.add_argument("--seeds", type=int, default=8, help="how many seeds each bench runs")
    parser.add_argument("--commands", type=int, default=100_000, help="how many commands both cores are given")
    parser.add_argument("--parts", action="store_true", help="area of each module within, none of them dissolved")
    parser.add_argument("--without", action="append", default=[], metavar="MODULE", help="area without what is in these modules")
    parser.add_argument("part", choices=[*PARTS, "body", "diagram", "quick", "all"])
    parser.add_argument("module", nargs="*", help="only these modules")
    args = parser.parse_args()
    parts = {"all": list(PARTS), "quick": ["lint", "test", "core"]}.get(args.part, [args.part])
    if args.part == "quick":
        args.seeds, args.commands, args.module = 1, 2000, QUICK
    runs = PARTS | {"body": body.run, "diagram": diagram.run}
    sys.exit(0 if all([runs[part](args) for part in parts]) else 1)


if __name__ == "__main__":
    main()
