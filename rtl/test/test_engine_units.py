"""The engine with its units and block memory: the bench only reads and writes. Bytes and digests against hashlib, zlib, OpenSSL."""

import random

import cocotb
import operators
from cocotb.triggers import FallingEdge
from jobs import SEEDS, record
from layouts import constants, pack, unpack
from owner import NEVER, World
from scenario import BLOCK, POSITIONAL, SIZES, TO_END, build, plain, random_parameters, write
from test_engine import Checked, run

C = constants("core_pkg")
WORD = C["WordBytes"]
SHIFT = C["BlockShift"] - C["WordShift"]


class Real(Checked):
    """Bytes are where the hardware has them: what is read is written to block memory, what is written comes from there."""

    def __init__(self, *given):
        super().__init__(*given)
        # Words to be written, words to be read, and those that were asked for.
        self.puts, self.gets, self.coming = [], [], []
        self.put = self.get = None
        # Outcomes whose bytes are in block memory.
        self.told = []

    def issue(self, operation, slot):
        super().issue(operation, slot)
        key, place = operation["id"], unpack("operation_id_t", operation["id"])
        assert operation["kind"] in (C["DoRead"], C["DoWrite"], C["DoFlush"])
        if operation["kind"] == C["DoWrite"]:
            flight = self.flying[key]
            hangs, flight["due"] = flight["due"] == NEVER, NEVER
            start, end = operation["start"], operation["start"] + operation["length"]
            words = list(range(start // WORD, (end - 1) // WORD + 1))
            self.gets += [(place["row"] << SHIFT | word, word, None if hangs or word != words[-1] else key) for word in words]

    def perform(self, key):
        operation = self.flying[key]["operation"]
        row, start = self.flying[key]["row"], operation["start"]
        # One that is aborted may be fetching its words still.
        self.gets = [(at, word, None if last == key else last) for at, word, last in self.gets]
        self.coming = [(row_, word, None if last == key else last) for row_, word, last in self.coming]
        outcome = super().perform(key)
        said = unpack("outcome_t", outcome)
        if operation["kind"] != C["DoRead"] or said["kind"] != C["Moved"] or said["bytes"] == 0:
            return outcome
        content, end = self.blocks[row][1], start + said["bytes"]
        for word in range(start // WORD, (end - 1) // WORD + 1):
            here = range(word * WORD, word * WORD + WORD)
            keep = sum((start <= at < end) << at % WORD for at in here)
            noise = [content[at] if start <= at < end else at * 7 & 255 for at in here]
            self.puts.append([row << SHIFT | word, int.from_bytes(bytes(noise), "little"), keep, None])
        self.puts[-1][3] = outcome
        return None

    def offer_owner(self):
        if self.outcome is None and self.told:
            self.outcome = self.told.pop(0)
        World.offer_owner(self)
        if self.put is None and self.puts and self.may(0.9):
            self.put = self.puts.pop(0)
        self.drive("block_write_valid_i", int(self.put is not None))
        if self.put:
            for name, value in zip(("at", "data", "keep"), self.put):
                self.drive(f"block_write_{name}_i", value)
        if self.get is None and self.gets and self.may(0.9):
            self.get = self.gets.pop(0)
        self.drive("block_read_valid_i", int(self.get is not None))
        if self.get:
            self.drive("block_read_at_i", self.get[0])

    def take_owner(self):
        super().take_owner()
        if self.put and self.sees("block_write_ready_o"):
            if self.put[3] is not None:
                self.told.append(self.put[3])
            self.put = None
        if self.sees("block_read_done_o"):
            row, word, last = self.coming.pop(0)
            data = self.sees("block_read_data_o").to_bytes(WORD, "little")
            self.blocks[row][1][word * WORD : word * WORD + WORD] = data
            if last in self.flying:
                self.flying[last]["due"] = self.later()
        if self.get and self.sees("block_read_ready_o"):
            at, word, last = self.get
            self.coming.append((at >> SHIFT, word, last))
            self.get = None

    def finished(self, command, entry):
        if command.kind == "good":
            self.check_good(command, entry)
        self.check_digests(command, entry)

    def check_good(self, command, entry):
        transfer, what = command.transfer, f"command {command.number}: {entry}"
        data, failure = through(transfer, transfer.given(), len(transfer.chain))
        stopped = command.number in self.cancelled and entry["status"] == C["StatusCancelled"]
        if stopped:
            return
        if command.bad is not None:
            failure = (C["StatusBadParameter"], command.bad)
        if failure:
            found = (entry["status"], entry["stage"], entry["stage_index"])
            assert found == (failure[0], C["StageOperator"], failure[1]), f"{what}, expected {failure}"
            if failure[0] == C["StatusDigestMismatch"]:
                # Whatever the source is, the end of its bytes is kept back.
                assert entry["delivered"] < max(len(transfer.given()), 1), what
                self.kept_back += transfer.length == TO_END and len(transfer.given()) >= BLOCK
            return
        assert entry["status"] == 0 and entry["delivered"] == len(data), what
        state = self.traces[command.number]
        if transfer.destination_kind in POSITIONAL:
            places = [offset + at for offset, length in transfer.destination_extents for at in range(length)][: len(data)]
            assert len(state["file"]) == len(data), what
            found = bytes(state["file"][at] for at in places)
        else:
            found = bytes(state["file"][at] for at in range(len(state["file"])))
        assert found == data, f"{what}: other bytes"

    def check_digests(self, command, entry):
        """Digests are those of the bytes that they cover, however a command ended."""
        area = self.area(command)
        if not area or not area["finished"]:
            return
        transfer, what = command.transfer, f"command {command.number}: {entry}"
        given = transfer.given()
        for at, operator in enumerate(transfer.chain):
            told = unpack("digest_t", area["digests"] >> 640 * at & (1 << 640) - 1)
            if not told["size"]:
                assert operator not in SIZES or entry["status"], what
                continue
            data, failure = through(transfer, given[: told["covered"]], at, False)
            if failure is None:
                value = operators.digest(operator, data)
                assert (told["operator"], told["size"]) == (operator, len(value)), what
                assert told["value"] == int.from_bytes(value, "little"), f"{what}: digest {at}"
                if entry["status"] == 0:
                    assert told["covered"] == len(given), what
                self.digests = self.digests + 1

    digests = kept_back = 0


def through(transfer, data, places, compares=True):
    """The data behind so many operators; with the status and place of the first one that fails."""
    for at, operator in enumerate(transfer.chain[:places]):
        block = transfer.parameters.get(at)
        if operator not in SIZES:
            try:
                data = operators.encipher(operator, block, data)
            except operators.Truncated:
                return data, (C["StatusTruncatedData"], at)
        elif compares and block and block != operators.digest(operator, data):
            return data, (C["StatusDigestMismatch"], at)
    return data, None


def demand(chance, command):
    """Gives digests the value that they must have, sometimes another one; or a parameter block that is none."""
    transfer, command.bad = command.transfer, None
    if not command.descriptor or command.kind != "good" or chance.random() < 0.5:
        return
    for at, operator in enumerate(transfer.chain):
        if operator in SIZES and chance.random() < 0.5:
            data, failure = through(transfer, transfer.given(), at, False)
            if failure is None:
                value = bytearray(operators.digest(operator, data))
                value[chance.randrange(len(value))] ^= chance.random() < 0.2
                transfer.parameters[at] = bytes(value)
    if transfer.chain and chance.random() < 0.15:
        at = chance.randrange(len(transfer.chain))
        if transfer.chain[at] in SIZES:
            command.bad, transfer.parameters[at] = at, bytes(SIZES[transfer.chain[at]] - 1)
        elif transfer.chain[at] == C["OpAes256Xts"]:
            block = bytearray(random_parameters(chance, C["OpAes256Xts"]))
            wrong = chance.randrange(4)
            if wrong == 0:
                block[32:64] = block[:32]
            else:
                block[64 + (wrong == 2) * 4] = 1 + (wrong == 3) * 23
            command.bad, transfer.parameters[at] = at, bytes(block)
    write(chance, command, transfer, False, command.words)


def commands_of(chance, world, count):
    commands = []
    while len(commands) < count:
        number, queue = len(commands), chance.randrange(len(world.rings))
        result, address = world.used, world.used + C["ResultSize"]
        command = build(chance, number, queue, number, result, address)
        if command.kind == "spoiled" or command.fault and 0 < command.fault[0] < 9:
            continue
        demand(chance, command)
        world.allocate(C["ResultSize"])
        world.allocate(len(command.descriptor) + 8)
        world.memory[address : address + len(command.descriptor)] = command.descriptor
        commands.append(command)
    return commands


@cocotb.test()
async def random_chains(dut):
    """Random chains of all operators through all of the engine; expected digests, wrong ones, bad keys; some are cancelled."""
    kinds, digests, moved, kept = {}, 0, 0, 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        world = Real(dut, chance, chance.choice([0.2, 2]))
        await world.start()
        for weight in (1, 2):
            await world.create(chance.choice([5, 16]), weight)
        commands = commands_of(chance, world, 40)
        await run(world, commands, chance, chance.choice([0, 20, 400]), chance.choice([0, 0.0005]))
        for command in commands:
            status = world.done[command.number]["status"]
            kinds[status] = kinds.get(status, 0) + 1
            moved += world.done[command.number]["delivered"]
        digests, kept = digests + world.digests, kept + world.kept_back
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
    said = ", ".join(f"{count} of status {status:#x}" for status, count in sorted(kinds.items()))
    record(f"{sum(kinds.values())} commands ({said}), {moved} bytes, {digests} digests, {kept} ends kept back")


async def several(dut, chain, count, length, parameters):
    """Commands of one kind at once; gives the cycles until all are done."""
    world = Real(dut)
    await world.start()
    await world.create(16)
    for number in range(count):
        address, result = world.allocate(1024), world.allocate(C["ResultSize"])
        command = plain(number, 0, number, address, chain, length, result=result)
        command.transfer.parameters, command.bad, command.address = dict(parameters), None, address
        write(random.Random(number), command, command.transfer, False, command.words)
        world.memory[address : address + len(command.descriptor)] = command.descriptor
        world.submit(0, command.entry, command)
    while world.rings[0].owed or not world.sees("idle_o"):
        await world.step()
        assert world.cycle < 100_000
    dut.rst_ni.value = 0
    await FallingEdge(dut.clk_i)
    return max(entry["at"] for entry in world.done.values())


@cocotb.test()
async def units_at_once(dut):
    """Two commands need little more time than one, as there are two units of each; and what a block takes."""
    said = []
    for operator in [*SIZES, C["OpAes256Ctr"], C["OpAes256Xts"]]:
        parameters = {} if operator in SIZES else {0: bytes(range(64)) + (512).to_bytes(16, "little")}
        if operator == C["OpAes256Ctr"]:
            parameters = {0: bytes(range(48))}
        one, two, long = [
            await several(dut, [operator], count, length, parameters)
            for count, length in ((1, BLOCK), (2, BLOCK), (1, 3 * BLOCK))
        ]
        if operator in list(SIZES)[:3]:
            assert two < 1.5 * one, "the units do not work at once"
        said.append(f"{operator}: {one}, {two}, {(long - one) / 2:g}")
    record(f"operator: cycles of one command of a block, two, and for each further block: {'; '.join(said)}")
