"""The memory endpoint between a bus and block memory: any alignment and length, several operations at once, errors of the bus."""

import random

import cocotb
from blocks import SHIFT, Blocks
from bus import BEAT, Memory
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from jobs import SEEDS, record
from layouts import constants, pack, unpack

C = constants("core_pkg")
BLOCK = 1 << C["BlockShift"]
SIZE = 1 << 18


class Ram(Memory):
    """Memory that is compared as a whole."""

    def __init__(self, dut, chance):
        super().__init__(dut.bus_o, dut.bus_i, chance)
        self.bytes = bytearray(SIZE)

    def load(self, address, data):
        self.bytes[address : address + len(data)] = data

    def store(self, address, length):
        return bytes(self.bytes[address : address + length])


class Bench:
    def __init__(self, dut, chance):
        self.dut, self.chance, self.cycle = dut, chance, 0
        self.memory, self.blocks = Ram(dut, chance), Blocks(dut, chance, C["Blocks"] << SHIFT)
        # By row: the operation, what memory and block must be afterwards, and if it fails.
        self.flying, self.todo, self.done = {}, [], 0

    async def start(self):
        dut = self.dut
        for name in ("operation_valid_i", "outcome_ready_i", "bus_i", "read_ready_i", "read_done_i", "write_ready_i", "rst_ni"):
            getattr(dut, name).value = 0
        cocotb.start_soon(Clock(dut.clk_i, 4, unit="ns").start())
        for _ in range(3):
            await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1

    def issue(self, kind, row, address, start, length):
        """Offers an operation; blocks and places in memory are nobody else's meanwhile."""
        place = pack("operation_id_t", serial=self.done & 255, row=row, command=row % C["Commands"])
        bits = pack("operation_t", kind=C[kind], id=place, offset=0, start=start, length=length)
        self.flying[row] = (kind, place, address, row * BLOCK + start, length)
        self.dut.operation_valid_i.value = 1
        self.dut.operation_i.value = bits
        self.dut.address_i.value = address

    async def step(self):
        self.memory.drive()
        self.blocks.drive()
        ready = self.chance is None or self.chance.random() < 0.5
        self.dut.outcome_ready_i.value = int(ready)
        await ReadOnly()
        assert int(self.dut.operation_ready_o.value)
        self.memory.sample()
        self.blocks.sample()
        told = unpack("outcome_t", int(self.dut.outcome_o.value)) if int(self.dut.outcome_valid_o.value) and ready else None
        await FallingEdge(self.dut.clk_i)
        self.dut.operation_valid_i.value = 0
        self.cycle += 1
        return told


def beats(address, length):
    """The addresses of the bus that it takes."""
    return range(address // BEAT * BEAT, address + length)


@cocotb.test()
async def moves(dut):
    """What is moved is right, and nothing beside it changes; an error on the bus is told of its operation alone."""
    count = failed = most = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        bench = Bench(dut, chance)
        await bench.start()
        bench.memory.pace = chance.choice([1, 0.7, 0.2])
        bench.memory.bytes[:] = chance.randbytes(SIZE)
        bench.blocks.bytes[:] = chance.randbytes(len(bench.blocks.bytes))
        if chance.random() < 0.7:
            bench.memory.broken = range(0x20000, 0x21000)
        pieces, before, started = 60, {}, 0
        while started < pieces or bench.flying:
            row = chance.randrange(C["Blocks"])
            if started < pieces and row not in bench.flying and chance.random() < 0.2:
                start = chance.choice([0, chance.randrange(BLOCK)])
                length = chance.choice([1, BLOCK - start, chance.randrange(BLOCK - start) + 1, min(BLOCK - start, 40)])
                # Of its own 8 KiB.
                address = row * 2 * BLOCK + chance.choice([0, BLOCK - 1, chance.randrange(BLOCK)])
                kind = chance.choice(["DoRead", "DoWrite"])
                bench.issue(kind, row, address, start, length)
                area, block = slice(row * 2 * BLOCK, (row + 1) * 2 * BLOCK), slice(row * BLOCK, (row + 1) * BLOCK)
                before[row] = (bytearray(bench.memory.bytes[area]), bytearray(bench.blocks.bytes[block]))
                started += 1
            most = max(most, len(bench.flying))
            told = await bench.step()
            assert bench.cycle < 200_000, "hangs"
            if told is None:
                continue
            row = unpack("operation_id_t", told["id"])["row"]
            kind, place, address, at, length = bench.flying.pop(row)
            assert told["id"] == place
            memory, block = before.pop(row)
            area, own = slice(row * 2 * BLOCK, (row + 1) * 2 * BLOCK), slice(row * BLOCK, (row + 1) * BLOCK)
            inside, start = address - row * 2 * BLOCK, at - row * BLOCK
            bad = any(place in bench.memory.broken for place in beats(address, length))
            bench.done += 1
            count += 1
            if bad:
                failed += 1
                assert (told["kind"], told["status"]) == (C["Failed"], C["StatusDataTransferError"])
                continue
            assert (told["kind"], told["bytes"]) == (C["Moved"], length)
            if kind == "DoRead":
                block[start : start + length] = memory[inside : inside + length]
            else:
                memory[inside : inside + length] = block[start : start + length]
            assert bench.memory.bytes[area] == memory and bench.blocks.bytes[own] == block, f"{kind} {address:#x} {start} {length}"
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
    assert failed > 0
    record(f"{count} operations, {failed} with an error of the bus, {most} at once")


@cocotb.test()
async def cycles(dut):
    """What a block takes where nobody waits."""
    said = []
    for kind in ("DoRead", "DoWrite"):
        for address in (0x4000, 0x4001):
            bench = Bench(dut, None)
            await bench.start()
            bench.issue(kind, 3, address, 0, BLOCK)
            while await bench.step() is None:
                assert bench.cycle < 5000
            said.append(f"{kind} at {address:#x}: {bench.cycle}")
            dut.rst_ni.value = 0
            await FallingEdge(dut.clk_i)
    record(f"cycles of {BLOCK} bytes, {', '.join(said)}")
