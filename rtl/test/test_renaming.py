"""Renaming against queues of Python's; every request, release and walk at random, and the cycles that they take."""

import random
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from jobs import SEEDS, record


class Plain:
    """The Rust core's renaming, but that of a pool's free units the lowest one is taken."""

    def __init__(self, pools, units, functions):
        self.free = [set(range(units)) for _ in range(pools)]
        self.lines = [[] for _ in range(pools)]
        self.functions, self.func = functions, {}

    def rename(self, pool, row, func):
        self.func[row] = func
        if self.free[pool]:
            unit = min(self.free[pool])
            self.free[pool].remove(unit)
            return pool, unit, row
        self.lines[pool].append(row)
        return None

    def release(self, pool, unit, last):
        line = self.lines[pool]
        if line:
            # The first of those whose function is next.
            return pool, unit, line.pop(min(range(len(line)), key=lambda at: (self.func[line[at]] - last - 1) % self.functions))
        self.free[pool].add(unit)
        return None

    def forget(self, pool, row):
        found = row in self.lines[pool]
        if found:
            self.lines[pool].remove(row)
        return found


async def start(dut):
    for name in ("rename_valid_i", "release_valid_i", "forget_valid_i", "grant_ready_i", "rst_ni"):
        getattr(dut, name).value = 0
    cocotb.start_soon(Clock(dut.clk_i, 4, unit="ns").start())
    for _ in range(3):
        await FallingEdge(dut.clk_i)
    dut.rst_ni.value = 1


def ask(dut, channel, fields):
    """Asks for something, or for nothing."""
    getattr(dut, f"{channel}_valid_i").value = int(fields is not None)
    for name, value in (fields or {}).items():
        getattr(dut, f"{channel}_{name}_i").value = value


class Bench:
    """Asks the module and the plain queues for the same, and compares what they answer."""

    def __init__(self, dut):
        self.dut = dut
        names = ("Pools", "Units", "Rows", "Functions")
        pools, units, self.rows, self.functions = (int(getattr(dut, name).value) for name in names)
        self.pools = pools
        self.plain = Plain(pools, units, self.functions)
        # Grants that were decided and not told yet; those in use; the pool of every row that is not idle.
        self.decided, self.owned, self.where = deque(), set(), {}
        # What is asked for stays so until it is answered.
        self.rename = self.release = self.forget = None
        self.forgotten = 0

    def wish(self, chance, busy):
        idle = [row for row in range(self.rows) if row not in self.where]
        if self.rename is None and idle and chance.random() < busy:
            self.rename = {
                "pool": chance.randrange(min(self.pools, 3)),
                "row": chance.choice(idle),
                "func": chance.randrange(self.functions),
            }
        if self.release is None and self.owned and chance.random() < 0.3:
            self.release = chance.choice(sorted(self.owned))
        if self.forget is None and self.where and chance.random() < 0.03:
            row = chance.choice(sorted(self.where))
            self.forget = {"pool": self.where[row], "row": row, "func": self.plain.func[row]}

    async def step(self, ready):
        """A cycle."""
        dut, release = self.dut, self.release
        ask(dut, "rename", self.rename)
        ask(dut, "release", release and {"pool": release[0], "unit": release[1], "func": self.plain.func[release[2]]})
        ask(dut, "forget", self.forget)
        dut.grant_ready_i.value = int(ready)
        await ReadOnly()
        # A grant that is told now was decided before.
        if int(dut.grant_valid_o.value) and ready:
            grant = tuple(int(getattr(dut, f"grant_{name}_o").value) for name in ("pool", "unit", "row"))
            assert grant == self.decided.popleft()
            self.owned.add(grant)
        renamed = self.rename is not None and int(dut.rename_ready_o.value)
        released = release is not None and int(dut.release_ready_o.value)
        assert not (renamed and released)
        grant = None
        if renamed:
            self.where[self.rename["row"]] = self.rename["pool"]
            grant = self.plain.rename(**self.rename)
            self.rename = None
        if released:
            self.owned.remove(release)
            del self.where[release[2]]
            grant = self.plain.release(*release[:2], self.plain.func[release[2]])
            self.release = None
        self.decided.extend([grant] if grant else [])
        if self.forget is not None and int(dut.forget_ready_o.value):
            found = self.plain.forget(self.forget["pool"], self.forget["row"])
            assert int(dut.forget_found_o.value) == found
            if found:
                self.forgotten += 1
                del self.where[self.forget["row"]]
            self.forget = None
        idle = not (self.where or self.decided)
        assert int(dut.all_free_o.value) == (not self.owned and not self.decided and not any(self.plain.lines)) or (
            renamed or released
        )
        await FallingEdge(dut.clk_i)
        return idle


@cocotb.test()
async def random_requests(dut):
    await start(dut)
    bench = Bench(dut)
    for seed in range(SEEDS):
        chance = random.Random(seed)
        busy = chance.uniform(0.2, 0.9)
        for _ in range(2000):
            bench.wish(chance, busy)
            await bench.step(chance.random() < 0.7)
        # Lets everything go, until no unit is in use.
        for _ in range(10_000):
            bench.release = bench.release or next(iter(sorted(bench.owned)), None)
            if await bench.step(True):
                break
        assert not bench.where, f"rows still wait: {bench.where}"
    assert bench.forgotten > 0


@cocotb.test()
async def cycles(dut):
    """From a request to the unit, and from a unit that is free to the next row: the paths of FlexCSV's table 1."""
    units = int(dut.Units.value)
    await start(dut)
    dut.grant_ready_i.value = 1
    for row in range(units + 1):
        await FallingEdge(dut.clk_i)
        ask(dut, "rename", {"pool": 1, "row": row, "func": 0})
        await FallingEdge(dut.clk_i)
        ask(dut, "rename", None)
        await ReadOnly()
        assert int(dut.grant_valid_o.value) == (row < units), "a unit a cycle later, or a place in the line"
    await FallingEdge(dut.clk_i)
    ask(dut, "release", {"pool": 1, "unit": 0, "func": 0})
    await FallingEdge(dut.clk_i)
    ask(dut, "release", None)
    await ReadOnly()
    assert int(dut.grant_valid_o.value) and int(dut.grant_row_o.value) == units, "its unit a cycle later"
    record("1 cycle from a request to the grant, 1 cycle from a unit that is free to the next grant")
