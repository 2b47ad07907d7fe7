"""What `crates/rtl` needs to build modules as models in Rust: Verilator's folder, the modules' sources, and the files with the sizes of
models instead, then the sizes, numbers and structures of the core, of a queue pair, of a NIC and of the bus, a line each."""

import re
from dataclasses import replace
from pathlib import Path

import verilator
from layouts import RTL, package
from modules import UNITS, Unit, files, sources

# The card's tests have up to five functions, each with queues of its own, and each queue has two commands and four blocks.
SIZES = {"Queues": 16, "Commands": 32, "Blocks": 64}

CONSTANTS = "Queues Commands Blocks BlockSize Window Units Pools Extents".split()
STRUCTURES = "queue_config_t transfer_t failure_t operation_id_t operation_t outcome_t extent_t word_at_t".split()
# Those of other packages, by the names that they have in Rust, and the structures in them.
OTHERS = {
    "queue_pair_t": ("nvme_pkg", "config_t", {}),
    "nic_layout_t": ("nic_pkg", "layout_t", {}),
    "nic_request_t": ("nic_pkg", "request_t", {"opened": "template_t"}),
    "nic_receive_layout_t": ("nic_pkg", "receive_layout_t", {}),
    "nic_receive_request_t": ("nic_pkg", "receive_request_t", {"opened": "template_t"}),
    "nic_received_t": ("nic_pkg", "received_t", {}),
    "bus_request_t": ("bus_pkg", "request_t", {"aw": "address_t", "w": "write_t", "ar": "address_t"}),
    "bus_response_t": ("bus_pkg", "response_t", {"b": "written_t", "r": "read_t"}),
}
# Those of the NIC, with "Nic" before their names.
NIC = "Connections Pending Entries Open Bind Acknowledged Advertise Resend Fail WillStop WasStopped".split()
NIC += "Buffers MostKept Listen Assign RingStops RingStopped".split()
ENUMS = "DoRead DoWrite DoProcess DoSnapshot DoFlush Moved Processed Digest Flushed Failed".split()


def run(args):
    sizes = tuple(SIZES.items())
    known, widths, structs = (part[1] for part in package("core_pkg", sizes))
    print("root", Path(verilator.__file__).parent)
    for name in args.module:
        unit = replace(UNITS.get(name, Unit(name, None)), sizes=SIZES)
        for path in files(unit.top):
            print("source", path)
        for path in sources(args, unit):
            print("file", name, path)
    for name in CONSTANTS + ENUMS:
        print("constant", name, known[name])
    print("constant", "Entries", package("nvme_pkg")[0][1]["Entries"])
    numbers = package("nic_pkg")[0][1]
    for name in NIC:
        print("constant", f"Nic{name}", numbers[name])
    print("operators", *pool_operators(known))
    for name in STRUCTURES:
        tell(name, structs[name])
    for name, (of, structure, inner) in OTHERS.items():
        others = package(of, sizes)[2][1]
        fields = []
        for field, width in others[structure]:
            parts = others[inner[field]] if field in inner else []
            fields += [(f"{field}_{part}", bits) for part, bits in parts] or [(field, width)]
        tell(name, fields)
    return True


def tell(name, fields):
    """A structure's fields. Of one of more than 64 bits there are several, from the highest on."""
    words = []
    for field, width in fields:
        count = -(-width // 64)
        words += [f"{field}:{width}"] if count == 1 else [f"{field}_{at}:64" for at in reversed(range(count))]
    print("struct", name, *words)


def pool_operators(known):
    """The operator's number of each pool."""
    text = (RTL / "core_pkg.sv").read_text()
    body = re.search(r"PoolOperator = '\{(.*?)\};", text, re.S)[1]
    found = {int(at): known[name] for at, name in re.findall(r"(\d+): dcs_pkg::(\w+)", body)}
    return [found[at] for at in range(len(found))]
