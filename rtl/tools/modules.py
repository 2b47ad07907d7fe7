"""The modules that are checked on their own, and the files that each needs, packages first."""

import re
from dataclasses import dataclass, field
from pathlib import Path

RTL = Path(__file__).resolve().parent.parent


@dataclass
class Unit:
    """A module with parameters."""

    top: str
    # test/test_BENCH.py is its bench; none where it is tested with another module alone.
    bench: str | None
    parameters: dict = field(default_factory=dict)
    # Other sizes than those of the core's package.
    sizes: dict = field(default_factory=dict)


UNITS = {
    "ndp_md5": Unit("ndp_md5", "ndp_md5"),
    "ndp_sha1": Unit("ndp_sha1", "ndp_sha1"),
    "ndp_sha256": Unit("ndp_sha256", "ndp_sha256"),
    "ndp_crc32": Unit("ndp_crc", "ndp_crc"),
    "ndp_crc32_128": Unit("ndp_crc", "ndp_crc", {"DataWidth": 128}),
    "ndp_crc32_512": Unit("ndp_crc", "ndp_crc", {"DataWidth": 512}),
    "ndp_crc32c": Unit("ndp_crc", "ndp_crc", {"Code": 1}),
    "ndp_crc32c_512": Unit("ndp_crc", "ndp_crc", {"Code": 1, "DataWidth": 512}),
    "ndp_crc64_nvme": Unit("ndp_crc", "ndp_crc", {"Code": 2}),
    "ndp_aes256_ctr": Unit("ndp_aes256_ctr", "ndp_aes256_ctr"),
    "ndp_aes256_xts": Unit("ndp_aes256_xts", "ndp_aes256_xts"),
    "ndp_aes256_xts_decrypt": Unit("ndp_aes256_xts", "ndp_aes256_xts", {"Inverse": 1}),
    "ndp_pool": Unit("ndp_pool", "ndp_pool"),
    "ndp_slots": Unit("ndp_pool", "ndp_pool", {"Slots": 1, "Units": 4}),
    "renaming": Unit("renaming", "renaming"),
    "renaming_equal": Unit("renaming", "renaming", {"Weights": 0}),
    "renaming_slots": Unit("renaming", "renaming", {"Slots": 1, "Linger": 64}),
    "engine": Unit("engine", "engine"),
    "engine_slots": Unit("engine", "engine", sizes={"Slots": 1, "Units": 4, "Linger": 64}),
    "frontend": Unit("frontend", None),
    "validate": Unit("validate", None),
    "order": Unit("order", None, {"Commands": 16, "KeyWidth": 50}),
    "sequencer": Unit("sequencer", None),
    "scoreboard": Unit("scoreboard", None),
    "credit": Unit("credit", None),
    "completion": Unit("completion", None),
    "engine_units": Unit("engine_units", "engine_units"),
    "memory_endpoint": Unit("memory_endpoint", "memory_endpoint"),
    "nvme_controller": Unit("nvme_controller", "nvme_controller"),
    "block_port": Unit("block_port", "block_port"),
    "card": Unit("card", "card"),
    "card_advanced": Unit("card", "card", {"Advanced": 1, "Hosts": 3}),
    "d2d_tx": Unit("d2d_tx", "d2d_tx"),
    "d2d_rx": Unit("d2d_rx", "d2d_rx"),
    "uoe": Unit("uoe", "uoe"),
    "nic_controller": Unit("nic_controller", "nic_controller"),
    "nic_receive": Unit("nic_receive", "nic_receive"),
    "nic_controller_advanced": Unit("nic_controller", "nic_controller", {"Advanced": 1}),
}


def files(top):
    """The files of a module, of the packages that it imports, and of the modules in it: packages first."""
    packages, modules, seen = [], [], set()

    def visit(name):
        seen.add(name)
        text = (RTL / f"{name}.sv").read_text()
        for package in re.findall(r"\b(\w+_pkg)::", text):
            if package not in packages and package != name:
                visit(package)
        for module in re.findall(r"^ +(\w+) (?:#\(|u_\w+ \()", text, re.M):
            if (RTL / f"{module}.sv").is_file() and module not in seen:
                visit(module)
        (packages if name.endswith("_pkg") else modules).append(name)

    visit(top)
    return [RTL / f"{name}.sv" for name in packages + modules]


def resized(text, sizes):
    """A package with other sizes: each stands on a line of its own."""
    for name, value in sizes.items():
        text, count = re.subn(rf"(localparam int unsigned {name} +=) \d+;", rf"\1 {value};", text)
        if count > 1:
            raise SystemExit(f"{name} stands there {count} times")
    return text


def sources(args, unit):
    """The files of a unit; where it has sizes of its own, with another package."""
    found = files(unit.top)
    if not unit.sizes:
        return found
    folder = args.target / "sizes" / "-".join(f"{name}{value}" for name, value in unit.sizes.items())
    folder.mkdir(parents=True, exist_ok=True)
    at = found.index(RTL / "core_pkg.sv")
    other, text = folder / "core_pkg.sv", resized(found[at].read_text(), unit.sizes)
    if not other.exists() or other.read_text() != text:
        other.write_text(text)
    return [*found[:at], other, *found[at + 1 :]]


def chosen(args):
    """The units that were asked for."""
    unknown = set(args.module) - set(UNITS)
    if unknown:
        raise SystemExit(f"no such module: {', '.join(sorted(unknown))}; there are {', '.join(UNITS)}")
    return {name: UNITS[name] for name in UNITS if not args.module or name in args.module}
