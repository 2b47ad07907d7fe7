"""Streams of MD5 and SHA-1 on two units of each, or in slots that are loaded with either: each job on the unit that renaming gives
it, digests against hashlib."""

import hashlib
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from jobs import SEEDS, pieces, record

MD5 = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]
POOLS = [("md5", MD5, "little"), ("sha1", [*MD5, 0xC3D2E1F0], "big")]


class Stream:
    """A stream, which is a row: its jobs one after the other, its state between them."""

    def __init__(self, chance, pool, data):
        self.pool, self.data = pool, data
        self.name, initial, self.order = POOLS[pool]
        self.state, self.done = list(initial), 0
        self.jobs = list(pieces(chance, data))
        self.places = set()
        self.begin()

    def begin(self):
        """Takes the next job."""
        piece, self.final = self.jobs.pop(0)
        self.done += len(piece)
        cut = [piece[at : at + 4] for at in range(0, len(piece), 4)] or [b""]
        self.beats = [(int.from_bytes(word, "little"), (1 << len(word)) - 1) for word in cut]
        self.taken = self.given = 0
        self.after = [None] * len(self.state)

    def check(self):
        digest = b"".join(word.to_bytes(4, self.order) for word in self.state)
        assert digest == hashlib.new(self.name, self.data).digest(), f"{self.name} of {len(self.data)} bytes"


class Bench:
    def __init__(self, dut):
        self.dut, self.units, self.rows = dut, int(dut.Units.value), int(dut.Rows.value)
        self.slots = bool(int(dut.Slots.value))
        self.all = self.units if self.slots else 2 * self.units
        # The pool of each unit; the cycles until a slot is loaded, and how often that was done.
        self.pools = [unit % 2 if self.slots else unit // self.units for unit in range(self.all)]
        self.loading, self.loads = None, 0
        # By row: the stream; rows that want a unit, in the order in which they ask; units at work, most at once by pool.
        self.streams, self.wanting, self.most = {}, [], [0, 0]
        self.expected, self.cycles = [[], []], 0

    async def start(self):
        dut = self.dut
        for name in ("rename_valid_i", "forget_valid_i", "state_valid_i", "state_ready_i", "data_valid_i", "load_ready_i", "rst_ni"):
            getattr(dut, name).value = 0
        cocotb.start_soon(Clock(dut.clk_i, 4, unit="ns").start())
        for _ in range(3):
            await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1

    def add(self, row, stream):
        self.streams[row] = stream
        self.wanting.append(row)

    def feed(self, chance):
        """Offers each unit at work the state and the data of its row."""
        dut, width = self.dut, (self.rows - 1).bit_length()
        busy, rows, index = int(dut.busy_o.value), int(dut.row_o.value), int(dut.index_o.value)
        fields = dict.fromkeys(("state_valid", "state", "data_valid", "data", "data_keep", "data_last", "final", "length"), 0)
        at_work = {}
        for unit in range(self.all):
            if not busy >> unit & 1:
                continue
            row = rows >> width * unit & (1 << width) - 1
            stream = at_work[unit] = self.streams[row]
            assert stream.pool == self.pools[unit], "a unit of another pool"
            fields["final"] |= stream.final << unit
            fields["length"] |= stream.done << 61 * unit
            if stream.taken < len(stream.state) and chance.random() < 0.8:
                fields["state_valid"] |= 1 << unit
                fields["state"] |= stream.state[(index >> 3 * unit & 7) % len(stream.state)] << 32 * unit
            if stream.given < len(stream.beats) and chance.random() < 0.9:
                word, keep = stream.beats[stream.given]
                fields["data_valid"] |= 1 << unit
                fields["data"] |= word << 32 * unit
                fields["data_keep"] |= keep << 4 * unit
                fields["data_last"] |= (stream.given == len(stream.beats) - 1) << unit
        for name, value in fields.items():
            getattr(dut, f"job_{name}_i" if name in ("final", "length") else f"{name}_i").value = value
        dut.state_ready_i.value = chance.getrandbits(self.all) | chance.getrandbits(self.all)
        rename = bool(self.wanting)
        dut.rename_valid_i.value = int(rename)
        if rename:
            dut.rename_row_i.value = self.wanting[0]
            dut.rename_pool_i.value = self.streams[self.wanting[0]].pool
        return at_work

    def load(self, chance, at_work):
        """The port that loads slots: it takes its time, and nobody works in a slot meanwhile."""
        dut, ready = self.dut, False
        if int(dut.load_valid_o.value):
            unit = int(dut.load_unit_o.value)
            assert unit not in at_work
            if self.loading is None:
                self.loading, self.loads = chance.randrange(300), self.loads + 1
                self.pools[unit] = None
            ready, self.loading = self.loading == 0, self.loading - 1
            if ready:
                self.pools[unit], self.loading = int(dut.load_pool_o.value), None
        dut.load_ready_i.value = int(ready)

    def take(self, at_work):
        """What went over in this cycle."""
        value = {name: int(getattr(self.dut, f"{name}_o").value) for name in ("state_ready", "state_valid", "data_ready")}
        offered = {name: int(getattr(self.dut, f"{name}_i").value) for name in ("state_valid", "state_ready", "data_valid")}
        state, index, done = (int(getattr(self.dut, f"{name}_o").value) for name in ("state", "index", "done"))
        for unit, stream in at_work.items():
            stream.places.add(unit)
            stream.taken += offered["state_valid"] & value["state_ready"] & 1 << unit != 0
            stream.given += offered["data_valid"] & value["data_ready"] & 1 << unit != 0
            if offered["state_ready"] & value["state_valid"] & 1 << unit:
                place = index >> 3 * unit & 7
                assert stream.after[place] is None
                stream.after[place] = state >> 32 * unit & 0xFFFFFFFF
        if self.wanting and int(self.dut.rename_ready_o.value):
            row = self.wanting.pop(0)
            self.expected[self.streams[row].pool].append(row)
        return [unit for unit in at_work if done >> unit & 1]

    def finish(self, stream, row):
        assert None not in stream.after and stream.given == len(stream.beats)
        stream.state = stream.after
        if stream.jobs:
            stream.begin()
            self.wanting.append(row)
        else:
            stream.check()
            del self.streams[row]

    async def step(self, chance, before):
        """A cycle; gives the units at work."""
        await FallingEdge(self.dut.clk_i)
        at_work = self.feed(chance)
        for unit in sorted(set(at_work) - set(before)):
            row = next(row for row, stream in self.streams.items() if stream is at_work[unit])
            assert row == self.expected[self.pools[unit]].pop(0), "a row that overtakes"
        self.load(chance, at_work)
        for pool in range(2):
            self.most[pool] = max(self.most[pool], sum(self.pools[unit] == pool for unit in at_work))
        await ReadOnly()
        over = self.take(at_work)
        rows = {id(stream): row for row, stream in self.streams.items()}
        for unit in over:
            stream = at_work.pop(unit)
            self.finish(stream, rows[id(stream)])
        self.cycles += 1
        return at_work


@cocotb.test()
async def streams(dut):
    """More streams than units: every digest is right, rows get units in the order in which they asked, all units work."""
    bench = Bench(dut)
    await bench.start()
    spread = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        # Mostly of one kind, then of the other.
        kinds = [at < 12 if chance.random() < 0.8 else chance.randrange(2) for at in range(24)]
        todo = [(int(kind), chance.randbytes(chance.randrange(1500))) for kind in kinds]
        at_work, idle = {}, set(range(bench.rows))
        made = []
        for _ in range(60_000):
            idle = set(range(bench.rows)) - set(bench.streams)
            if todo and idle and chance.random() < 0.2:
                made.append(Stream(chance, *todo.pop()))
                bench.add(chance.choice(sorted(idle)), made[-1])
            at_work = await bench.step(chance, at_work)
            if not (todo or bench.streams):
                break
        assert not bench.streams and not todo, "the pools hang"
        spread += sum(len(stream.places) > 1 for stream in made)
    assert bench.most == [bench.units] * 2, "not all units work at once"
    assert (bench.loads > SEEDS) == bench.slots
    assert spread > 0, "no stream was on two units"
    await FallingEdge(dut.clk_i)
    await FallingEdge(dut.clk_i)
    await FallingEdge(dut.clk_i)
    assert int(dut.all_free_o.value)
    of_each = "slots, all for MD5 or for SHA-1," if bench.slots else "units of each"
    record(f"{bench.units} {of_each} at work at once; {spread} streams on more than one unit; {bench.loads} loads")
