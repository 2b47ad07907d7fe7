"""What `crates/rtl` needs to build modules as models in Rust: Verilator's folder, the modules' sources, and the files with the sizes of
models instead, then the sizes, numbers and structures of the core, a line each."""

import re
from dataclasses import replace
from pathlib import Path

import verilator
from layouts import RTL, package
from modules import UNITS, Unit, files, sources

# The card's tests have up to five functions, each with queues of its own, and each queue has two commands and four blocks.
SIZES = {"Queues": 16, "Commands": 32, "Blocks": 64}

CONSTANTS = "Queues Commands Blocks BlockSize Window Units Pools Extents".split()
STRUCTURES = "queue_config_t transfer_t failure_t operation_id_t operation_t outcome_t extent_t".split()
ENUMS = "DoRead DoWrite DoProcess DoSnapshot DoFlush Moved Processed Digest Flushed Failed".split()


def run(args):
    known, widths, structs = (part[1] for part in package("core_pkg", tuple(SIZES.items())))
    print("root", Path(verilator.__file__).parent)
    for name in args.module:
        unit = replace(UNITS.get(name, Unit(name, None)), sizes=SIZES)
        for path in files(unit.top):
            print("source", path)
        for path in sources(args, unit):
            print("file", name, path)
    for name in CONSTANTS + ENUMS:
        print("constant", name, known[name])
    print("operators", *pool_operators(known))
    for name in STRUCTURES:
        print("struct", name, *(f"{field}:{width}" for field, width in structs[name]))
    return True


def pool_operators(known):
    """The operator's number of each pool."""
    text = (RTL / "core_pkg.sv").read_text()
    body = re.search(r"PoolOperator = '\{(.*?)\};", text, re.S)[1]
    found = {int(at): known[name] for at, name in re.findall(r"(\d+): dcs_pkg::(\w+)", body)}
    return [found[at] for at in range(len(found))]
