"""The engine core between a host and an owner: random commands, and what a plain program makes of their bytes; the same commands
through the Rust core."""

import json
import os
import random
import subprocess

import cocotb
from cocotb.triggers import FallingEdge
from jobs import SEEDS, record
from layouts import constants, pack, unpack
from owner import RESULT, World
from scenario import POSITIONAL, SIZES, build, cancel, plain

C = constants("core_pkg")


class Checked(World):
    """Looks at every command that is done, and hands in digests."""

    def __init__(self, *given):
        super().__init__(*given)
        # Commands that somebody wanted to stop.
        self.cancelled = set()

    def offer_owner(self):
        super().offer_owner()
        ready = self.sees("digest_valid_o") and self.may()
        self.drive("digest_ready_i", 0)
        if ready:
            slot, at, index = (self.sees(f"digest_{name}_o") for name in ("command", "at", "index"))
            unit = self.slots[slot]["units"][at]
            value = unit.value()
            words = [unit.operator | len(value) << 8, unit.position]
            words += [int.from_bytes(value[low : low + 8], "little") for low in range(0, 64, 8)]
            self.drive("digest_i", words[index])
            self.drive("digest_ready_i", 1)

    def finished(self, command, entry):
        stopped = command.number in self.cancelled and entry["status"] == C["StatusCancelled"]
        if command.kind == "good" and not stopped:
            self.check_good(command, entry)
        if command.kind == "cancel":
            assert entry["status"] == 0 and entry["delivered"] in (0, 1 << 16), entry
        area = self.area(command)
        # A malformed entry has no result; the Rust core says which these are.
        if area and (command.kind != "spoiled" or area["finished"]):
            assert area["status"] == entry["status"] and area["stage"] == entry["stage"]
            assert area["bytes_out"] == entry["delivered"]
            assert area["queued"] <= area["finished"] and area["finished"] > 0
            self.check_times(command, area)

    def check_times(self, command, area):
        """Times of stages are those of the operations that there were."""
        state = self.traces.get(command.number)
        times = [[0] * 4 for _ in range(10)] if state is None else state["times"]
        for at, expected in enumerate(times):
            found = unpack("stage_times_t", area["stages"] >> 256 * at & (1 << 256) - 1)
            found = [found[name] for name in ("first_issue", "last_done", "busy", "operations")]
            # An operation is issued, and an answer taken, in a cycle before and after it is seen.
            assert found[3] == expected[3], f"command {command.number}, stage {at}: {found}, {expected}"
            if expected[3]:
                assert area["started"] <= found[0] <= max(expected[0], 1), f"stage {at}: {found}, {expected}"
                assert expected[1] <= found[1] <= area["finished"] and found[2] >= expected[2], f"stage {at}: {found}, {expected}"

    def area(self, command):
        """The result area of a command that names one."""
        return unpack("result_t", int.from_bytes(self.memory[command.result :][:RESULT], "little")) if command.result else None

    def check_good(self, command, entry):
        transfer, what = command.transfer, f"command {command.number}: {entry}"
        assert entry["status"] == 0 and entry["stage"] == 0, what
        data, digests = transfer.expected()
        assert entry["delivered"] == len(data), what
        state = self.traces[command.number]
        if transfer.destination_kind in POSITIONAL:
            places = [offset + at for offset, length in transfer.destination_extents for at in range(length)][: len(data)]
            assert len(state["file"]) == len(data), what
            found = bytes(state["file"][at] for at in places)
        else:
            found = bytes(state["file"][at] for at in range(len(state["file"])))
        assert found == data, f"{what}: other bytes"
        if command.result:
            area = self.area(command)
            assert area["bytes_in"] == len(data), what
            for at, operator in enumerate(transfer.chain):
                slot = unpack("digest_t", area["digests"] >> 640 * at & (1 << 640) - 1)
                value = digests.get(at, b"")
                assert slot["size"] == len(value) and slot["operator"] == (operator if value else 0), what
                assert slot["value"].to_bytes(64, "little")[: len(value)] == value, f"{what}: digest {at}"
                assert slot["covered"] == (len(data) if value else 0), what


def scenario(chance, world, count):
    """Random commands for the queues that there are."""
    commands = []
    for number in range(count):
        queue = chance.randrange(len(world.rings))
        result = world.allocate(RESULT) if chance.random() < 0.4 else 0
        address = world.allocate(2048) + chance.choice([0, 0, 1, 4, 7])
        command = build(chance, number, queue, number & 0xFFFF, result, address)
        world.memory[address : address + len(command.descriptor)] = command.descriptor
        commands.append(command)
    return commands


def stuck(world):
    """What has not ended, and what of it is with a device."""
    owed = [(command.number, command.kind, command.number in world.traces) for ring in world.rings for command in ring.owed]
    return owed, [(flight["slot"], flight["operation"]) for flight in world.flying.values()], len(world.bindings)


async def run(world, commands, chance, pause=200, cancels=0.0):
    """Submits the commands, each when its ring has room, until all are done; cancels some meanwhile."""
    todo, patience, stoppers = list(commands), 0, 0
    while todo or any(ring.owed for ring in world.rings) or not world.sees("idle_o"):
        if todo and world.rings[todo[0].queue].room() and (pause == 0 or chance.random() < 4 / pause):
            command = todo.pop(0)
            world.submit(command.queue, command.entry, command)
        ring = chance.choice(world.rings)
        victims = [command for command in ring.owed if command.kind != "cancel"]
        if victims and ring.room() and chance.random() < cancels:
            target = chance.choice(victims)
            stoppers += 1
            stopper = cancel(10_000 + stoppers, ring.index, ring.number, target.cid, 10_000 + stoppers)
            world.cancelled.add(target.number)
            world.submit(ring.index, stopper.entry, stopper)
        before = len(world.done)
        await world.step()
        patience = 0 if len(world.done) > before else patience + 1
        assert patience < 20_000, f"hangs: {stuck(world)}"



def rust(commands, world):
    """What the Rust core makes of the same commands."""
    program = os.environ.get("DCS_RTL_REFERENCE")
    if not program:
        return None
    queues = [{"function": ring.func, "tenant": ring.tenant, "depth": ring.depth, "number": ring.number} for ring in world.rings]
    asked = {"queues": queues, "block_size": 1 << C["BlockShift"], "commands": [command.plain() for command in commands]}
    done = subprocess.run([program], input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compare(world, command, other):
    """Both cores say the same of a command; gives how many operations were compared."""
    entry, state, area = world.done[command.number], world.traces.get(command.number), world.area(command)
    what = f"command {command.number} ({command.kind}): {entry}, in Rust {other}"
    assert (entry["status"], entry["stage"], entry["stage_index"]) == (other["status"], other["stage"], other["index"]), what
    assert bool(area and area["finished"]) == other["result"], what
    if entry["status"] and (command.kind == "fault" or (C["Slots"] and state)):
        # How far it came is a matter of time: so it is with slots where an operator fails, which may wait to be loaded.
        return 0
    assert entry["delivered"] == other["delivered"], what
    if state is None:
        assert not other["operations"], what
        return 0
    transfer = state["transfer"]
    fills = not transfer["parallel_reads"] and transfer["destination_kind"] not in POSITIONAL and transfer["operators"]
    if entry["status"] or fills:
        # What comes in one read after the other fills blocks here wherever there is a chain.
        return 0
    # Whether more follows a write is a matter of time here.
    assert sorted(map(tuple, state["trace"])) == sorted(tuple(words[:5]) for words in other["operations"]), what
    return len(state["trace"])


@cocotb.test()
async def random_commands(dut):
    """Every interleaving gives the plain program's bytes, and the Rust core's statuses and operations."""
    compared = total = most = loads = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        world = Checked(dut, chance, chance.choice([0.2, 2, 20]))
        await world.start()
        for weight in (1, 3, 2, 1):
            await world.create(chance.choice([2, 5, 16]), weight, chance.randrange(2), chance.randrange(4))
        commands = scenario(chance, world, 60)
        reference = rust(commands, world)
        await run(world, commands, chance, chance.choice([0, 20, 400]))
        assert len(world.interrupts) == len(world.done) == len(commands)
        most, loads = max(most, world.most), loads + world.loads
        for command in commands if reference else []:
            total += 1
            compared += compare(world, command, reference[command.number])
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
    record(f"{total} commands and {compared} operations as in the Rust core, {most} in flight at once")
    if C["Slots"]:
        assert loads > 0
        record(f"{loads} slots loaded")


@cocotb.test()
async def cancelled_commands(dut):
    """Commands are stopped wherever they are; what is not stopped is right, and everything comes back."""
    stopped = 0
    for seed in range(SEEDS):
        chance = random.Random(1000 + seed)
        world = Checked(dut, chance, chance.choice([4, 20]))
        await world.start()
        for weight in (1, 2):
            await world.create(16, weight)
        commands = [command for command in scenario(chance, world, 60) if command.kind == "good"]
        await run(world, commands, chance, chance.choice([0, 200]), 0.03)
        stopped += sum(entry["status"] == C["StatusCancelled"] for entry in world.done.values())
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
    assert stopped > 0
    record(f"{stopped} cancelled")


async def lone(dut, commands, kind=Checked):
    """Runs commands in one queue, as fast as everything can be; gives what became of each, and the world."""
    world = kind(dut)
    await world.start()
    await world.create(16)
    for command in commands(world):
        world.memory[command.address : command.address + len(command.descriptor)] = command.descriptor
        world.submit(0, command.entry, command)
    for _ in range(4000):
        await world.step()
        world.idle = not world.rings[0].owed and world.sees("idle_o")
        if world.idle:
            break
    done = [world.done.get(number) for number in range(len(world.done))]
    dut.rst_ni.value = 0
    await FallingEdge(dut.clk_i)
    return done, world


@cocotb.test()
async def a_device_that_hangs(dut):
    """Its command is stopped by Cancel or by its time, at the stage where it hangs; an identifier is in use until then."""
    for stage, told in ((0, ("StageSource", 0)), (2, ("StageOperator", 1)), (9, ("StageDestination", 0))):
        chain = [C["OpMd5"], C["OpCrc32c"]]

        def commands(world):
            hung = plain(0, 0, 7, None, chain, 9000)
            again = plain(1, 0, 7, None, [], 100)
            waits = plain(2, 0, 8, None, chain, 100, timeout_ms=1)
            hung.hangs = waits.hangs = stage
            hung.kind = again.kind = waits.kind = "stopped"
            stopper = cancel(3, 0, world.rings[0].number, 7, 9)
            other = cancel(4, 0, world.rings[0].number, 99, 10)
            own = cancel(5, 0, world.rings[0].number, 11, 11)
            own.kind = "stopped"
            for command in (hung, again, waits, stopper, other, own):
                command.address = 0
            return [hung, again, waits, stopper, other, own]

        done, world = await lone(dut, commands)
        stage_number, at = C[told[0]], told[1]
        found = [(entry["status"], entry["stage"], entry["stage_index"], entry["delivered"]) for entry in done]
        frontend = C["StageFrontend"]
        # Of the two with one identifier the one that is refused is told first.
        assert found[0] == (C["StatusCommandIdConflict"], frontend, 0, 0), found
        assert found[1][0] == C["StatusCancelled"], found
        assert found[2] == (C["StatusTimeout"], stage_number, at, 0), found
        assert found[3:5] == [(0, 0, 0, 1 << 16), (0, 0, 0, 0)], found
        assert found[5] == (C["StatusInvalidField"], frontend, 0, 0), found
        assert world.idle, "all that commands had has come back"


async def until(world, happens, most=2000):
    for _ in range(most):
        await world.step()
        if happens():
            return
    assert False, f"hangs: {stuck(world)}"


@cocotb.test()
async def a_device_that_outlives_its_command(dut):
    """Where not even an abort is answered the command ends in the end; its slot and its block are free when the device answers."""
    for stage, told in ((0, "StageSource"), (1, "StageOperator"), (9, "StageDestination"), (10, "StageDestination"), (-1, "StageSource")):
        world = Checked(dut)
        await world.start()
        await world.create(4)
        world.drive("grace_i", 1)
        # With -1 the source fails, and a digest does not tell its value.
        deaf = plain(0, 0, 7, None, [C["OpMd5"]], 9000, timeout_ms=1, flags=C["FlagDurable"] if stage == 10 else 0)
        deaf.hangs, deaf.deaf, deaf.kind, deaf.fault = stage, True, "stopped", (0, 4097, C["StatusReadError"]) if stage < 0 else None
        world.submit(0, deaf.entry, deaf)
        await until(world, lambda: 0 in world.done)
        entry = world.done[0]
        status = C["StatusReadError"] if stage < 0 else C["StatusTimeout"]
        assert (entry["status"], entry["stage"]) == (status, C[told]), entry
        flights = list(world.flying)
        assert flights and not world.sees("idle_o"), "a device has an operation still"
        blocks = {world.flying[key]["row"] for key in flights if world.flying[key]["operation"]["kind"] < C["DoSnapshot"]}
        free = world.sees("free_o")
        assert all(not free >> block & 1 for block in blocks) and free.bit_count() == C["Blocks"] - len(blocks)
        # Others have what it has not: its identifier, all slots but one, all blocks but those.
        others = [plain(1 + number, 0, 7 + number, None, [C["OpMd5"]], 6000) for number in range(3)]
        for command in others:
            command.address = 0
            world.submit(0, command.entry, command)
        await until(world, lambda: len(world.done) == 4)
        assert all(world.done[1 + number]["status"] == 0 for number in range(3))
        assert not world.sees("idle_o")
        # Its queue goes without it.
        if stage in (0, 10):
            world.drive("delete_queue_i", 0)
            world.drive("delete_i", 1)
            await world.step()
            world.drive("delete_i", 0)
            await until(world, lambda: world.sees("deleted_valid_o"))
            world.drive("deleted_ready_i", 1)
        for key in flights:
            world.flying[key]["due"] = world.cycle
        await until(world, lambda: world.sees("idle_o"))
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)


@cocotb.test()
async def cycles(dut):
    """From doorbell to operation and from the last answer to the completion entry, where nothing has to be waited for."""
    for name, place in (("inline", None), ("descriptor", 0x80000)):
        for chain in ([], [C["OpCrc32c"]]):

            def commands(world):
                command = plain(0, 0, 1, place, chain, 4096)
                command.address = place or 0
                return [command]

            seen = {}

            class Timed(Checked):
                def submit(self, queue, entry, command):
                    super().submit(queue, entry, command)
                    seen["doorbell"] = self.cycle

                def issue(self, operation, slot):
                    super().issue(operation, slot)
                    seen.setdefault("first", self.cycle)

                def perform(self, key):
                    seen["last"] = self.cycle
                    return super().perform(key)

            done, world = await lone(dut, commands, Timed)
            assert done[0]["status"] == 0
            record(
                f"{name}, {len(chain)} operators: {seen['first'] - seen['doorbell']} cycles to the first operation, "
                f"{seen['last'] - seen['first']} to the last answer, {done[0]['at'] - seen['last']} to the interrupt"
            )
