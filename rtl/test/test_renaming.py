"""Renaming against queues of Python's, with slots too: every request, release, walk and load at random, and the cycles that they take."""

import random
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer
from jobs import SEEDS, record


# More turns than any weight.
NEVER = 1 << 9


class Plain:
    """The Rust core's renaming, but that of a pool's free units the lowest one is taken."""

    def __init__(self, pools, units, weights):
        self.free = [set(range(units)) for _ in range(pools)]
        self.lines = [[] for _ in range(pools)]
        self.functions, self.weights, self.func = len(weights), weights, {}
        # By pool and unit, rows of one function in turn.
        self.turns = {}

    def rename(self, pool, row):
        if self.free[pool]:
            unit = min(self.free[pool])
            self.free[pool].remove(unit)
            self.turns[pool, unit] = 1
            return pool, unit, row
        self.lines[pool].append(row)
        return None

    def release(self, pool, unit, last, turns=None):
        line = self.lines[pool]
        if line:
            turns = turns or self.turns[pool, unit]
            # The first of those whose function is next: the last one's again, while its weight is not spent.
            before = last if turns < self.weights[last] else last + 1
            row = line.pop(min(range(len(line)), key=lambda at: (self.func[line[at]] - before) % self.functions))
            self.turns[pool, unit] = turns + 1 if self.func[row] == last else 1
            return pool, unit, row
        self.free[pool].add(unit)
        return None

    def forget(self, pool, row):
        if row in self.lines[pool]:
            self.lines[pool].remove(row)


class PlainSlots(Plain):
    """Slots of all pools, and which pool one is loaded for: exactly. How long a slot has been idle before: within its bounds."""

    def __init__(self, pools, slots, weights, lag, linger):
        super().__init__(pools, 0, weights)
        self.lag, self.linger = lag, linger
        # Idle slots with the cycle since which they are; the one being loaded and its pool; whose turn it is, and grants to
        # others since; the function of the row that got the slot that was loaded last.
        self.idle = dict.fromkeys(range(slots), 0)
        self.loading, self.turn, self.late, self.func_last = None, 0, 0, 0
        for slot in self.idle:
            self.free[slot % pools].add(slot)

    def loaded(self):
        (slot, pool), self.loading = self.loading, None
        # Nobody's turn goes on.
        grant = self.release(pool, slot, self.func_last, NEVER)
        if grant:
            self.func_last, self.turns[pool, slot] = self.func[grant[2]], 1
        return grant

    def settle(self, cycle, event, calm, begun):
        """A cycle's event, and whether a load began in it; `calm` is a cycle in which one may begin for an idle slot."""
        waiting = [bool(line) for line in self.lines]
        loading = self.loading is not None
        wanted = waiting[self.turn] and not loading
        late, grant = self.late == self.lag, None
        if event and event[0] == self.release and wanted and late:
            assert begun == (event[2], self.turn), "a slot that others keep"
        else:
            grant = event and event[0](*event[1:])
            if begun:
                assert calm and not event and wanted and begun[1] == self.turn, "a load for nobody"
                since = self.idle[begun[0]]
                assert late or cycle - since >= self.linger, "a slot that was in use"
                self.free[next(pool for pool, slots in enumerate(self.free) if begun[0] in slots)].remove(begun[0])
            elif calm and wanted and self.idle:
                # What else would the cycle have been for?
                oldest = cycle - min(self.idle.values())
                assert not late and oldest < 2 * self.linger, "an idle slot that is not loaded"
        self.loading = begun or self.loading
        if begun or not waiting[self.turn] or (grant and grant[0] == self.turn):
            others = [pool for at in range(1, len(waiting) + 1) if waiting[pool := (self.turn + at) % len(waiting)]]
            self.turn, self.late = next(iter(others), self.turn), 0
        elif grant and not loading:
            self.late = min(self.late + 1, self.lag)
        free = set().union(*self.free)
        self.idle = {slot: self.idle.get(slot, cycle + 1) for slot in free}
        return grant


def weights(dut):
    """Of each function."""
    return [(3, 1, 2, 5)[at % 4] if int(dut.Weights.value) else 1 for at in range(int(dut.Functions.value))]


async def start(dut):
    for name in ("rename_valid_i", "release_valid_i", "forget_valid_i", "grant_ready_i", "load_ready_i", "rst_ni"):
        getattr(dut, name).value = 0
    dut.weight_i.value = sum(weight << 9 * at for at, weight in enumerate(weights(dut)))
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
        pools, units, self.rows = (int(getattr(dut, name).value) for name in ("Pools", "Units", "Rows"))
        self.functions = len(weights(dut))
        self.pools = pools
        self.slots = bool(int(dut.Slots.value))
        if self.slots:
            self.plain = PlainSlots(pools, units, weights(dut), int(dut.Lag.value), int(dut.Linger.value))
        else:
            self.plain = Plain(pools, units, weights(dut))
        # What happened in the last cycle, and whether an idle slot may have been chosen in it; the pools in demand.
        self.event, self.calm, self.cycle, self.base, self.is_loaded = None, False, 0, 0, False
        self.loads = self.diverted = 0
        # Grants that were decided and not told yet; those in use; the pool of every row that is not idle.
        self.decided, self.owned, self.where = deque(), set(), {}
        # What is asked for stays so until it is answered.
        self.rename = self.release = self.forget = None
        self.forgotten = 0

    def wish(self, chance, busy):
        idle = [row for row in range(self.rows) if row not in self.where]
        if self.rename is None and idle and chance.random() < busy:
            self.rename = {
                "pool": (self.base + chance.randrange(min(self.pools, 3))) % self.pools,
                "row": chance.choice(idle),
                "func": chance.randrange(self.functions),
            }
        if self.release is None and self.owned and chance.random() < 0.3:
            self.release = chance.choice(sorted(self.owned))
        if self.forget is None and self.where and chance.random() < 0.03:
            row = chance.choice(sorted(self.where))
            self.forget = {"pool": self.where[row], "row": row, "func": self.plain.func[row]}

    def settle(self):
        """What the last cycle came to."""
        if not self.slots:
            grant = self.event and self.event[0](*self.event[1:])
        else:
            load = (int(self.dut.load_unit_o.value), int(self.dut.load_pool_o.value)) if int(self.dut.load_valid_o.value) else None
            loading = self.plain.loading
            begun = load if loading is None else None
            assert begun or load is None or load == loading, "a load that changes"
            self.loads += begun is not None
            self.diverted += begun is not None and not self.calm
            grant = self.plain.settle(self.cycle, self.event, self.calm, begun)
        self.decided.extend([grant] if grant else [])
        self.event = None

    async def step(self, ready, load_ready=False):
        """A cycle."""
        dut, release = self.dut, self.release
        ask(dut, "rename", self.rename)
        ask(dut, "release", release and {"pool": release[0], "unit": release[1], "func": self.plain.func[release[2]]})
        ask(dut, "forget", self.forget)
        dut.grant_ready_i.value = int(ready)
        dut.load_ready_i.value = int(load_ready)
        await ReadOnly()
        self.settle()
        self.cycle += 1
        # A grant that is told now was decided before.
        told = int(dut.grant_valid_o.value)
        open = self.forget is None and (ready or not told)
        if told and ready:
            grant = tuple(int(getattr(dut, f"grant_{name}_o").value) for name in ("pool", "unit", "row"))
            assert grant == self.decided.popleft()
            self.owned.add(grant)
        renamed = self.rename is not None and int(dut.rename_ready_o.value)
        released = release is not None and int(dut.release_ready_o.value)
        assert not (renamed and released)
        # The rest of the plain state is that of the cycle's begin, as the module's.
        busy = self.owned or self.decided or any(self.plain.lines) or (self.slots and self.plain.loading)
        assert int(dut.all_free_o.value) == (not busy and not told)
        self.calm = open and not self.is_loaded and release is None and not renamed
        if open and self.is_loaded:
            assert not renamed and not released
            self.event, self.is_loaded = (self.plain.loaded,), False
        elif renamed:
            self.where[self.rename["row"]] = self.rename["pool"]
            self.plain.func[self.rename["row"]] = self.rename["func"]
            self.event = (self.plain.rename, self.rename["pool"], self.rename["row"])
            self.rename = None
        elif released:
            self.owned.remove(release)
            del self.where[release[2]]
            self.event = (self.plain.release, *release[:2], self.plain.func[release[2]])
            self.release = None
        if self.slots and load_ready and int(dut.load_valid_o.value):
            self.is_loaded = True
        if self.forget is not None and int(dut.forget_ready_o.value):
            pool, row = self.forget["pool"], self.forget["row"]
            found = row in self.plain.lines[pool]
            assert int(dut.forget_found_o.value) == found
            self.event = (self.plain.forget, pool, row)
            if found:
                self.forgotten += 1
                del self.where[self.forget["row"]]
            self.forget = None
        idle = not (self.where or self.decided or self.event or (self.slots and self.plain.loading))
        await FallingEdge(dut.clk_i)
        return idle


async def drain(bench):
    """Lets everything go, until no unit is in use."""
    for _ in range(10_000):
        bench.release = bench.release or next(iter(sorted(bench.owned)), None)
        if await bench.step(True, True):
            break
    assert not bench.where, f"rows still wait: {bench.where}"


async def loads_of_both_kinds(dut, bench):
    """While all slots are in demand one is loaded for a pool that waits; then one that has been idle for long."""
    chance, slots = random.Random(0), int(dut.Units.value)
    for count in range(4000):
        idle = [row for row in range(bench.rows) if row not in bench.where]
        if bench.rename is None and idle:
            waits = count > 200 and slots not in bench.where.values()
            bench.rename = {"pool": slots if waits else chance.randrange(slots), "row": idle[0], "func": 0}
        if bench.release is None and bench.owned and count > 100 and chance.random() < 0.3:
            bench.release = chance.choice(sorted(bench.owned))
        await bench.step(chance.random() < 0.7, True)
        if bench.diverted:
            break
    assert bench.diverted, "a pool waits for ever"
    await drain(bench)
    for _ in range(2 * int(dut.Linger.value)):
        await bench.step(True, True)
    before = bench.diverted, bench.loads
    bench.rename = {"pool": slots + 1, "row": 0, "func": 0}
    for _ in range(20):
        await bench.step(True, True)
    assert (bench.diverted, bench.loads) == (before[0], before[1] + 1), "an idle slot"
    await drain(bench)


@cocotb.test()
async def random_requests(dut):
    await start(dut)
    bench = Bench(dut)
    if bench.slots:
        await loads_of_both_kinds(dut, bench)
    for seed in range(SEEDS):
        chance = random.Random(seed)
        busy, load = chance.uniform(0.2, 0.9), chance.choice((0.01, 0.1, 1))
        for _ in range(2000):
            # Slots are loaded where other pools are in demand than before.
            if bench.slots and chance.random() < 0.005:
                bench.base, busy = chance.randrange(bench.pools), chance.choice((0.01, 0.1, 0.9))
            bench.wish(chance, busy)
            await bench.step(chance.random() < 0.7, chance.random() < load)
        await drain(bench)
    assert bench.forgotten > 0 and (bench.loads > 0) == bench.slots


async def cycle(dut, channel=None, fields=None):
    """A cycle in which something is asked for; stops in the next one."""
    if channel:
        ask(dut, channel, fields)
    await FallingEdge(dut.clk_i)
    if channel:
        ask(dut, channel, None)
    await ReadOnly()
    await Timer(1, "ns")


@cocotb.test()
async def cycles(dut):
    """From a request to the unit, and from a unit that is free to the next row: the paths of FlexCSV's table 1; with slots, to a load
    and after it."""
    slots, units = int(dut.Slots.value), int(dut.Units.value)
    # Those of pool 1.
    own = 1 if slots else units
    await start(dut)
    dut.grant_ready_i.value = 1
    await FallingEdge(dut.clk_i)
    for row in range(own + 1):
        await cycle(dut, "rename", {"pool": 1, "row": row, "func": 0})
        assert int(dut.grant_valid_o.value) == (row < own), "a unit a cycle later, or a place in the line"
    await cycle(dut)
    await cycle(dut, "release", {"pool": 1, "unit": 1 if slots else 0, "func": 0})
    assert int(dut.grant_valid_o.value) and int(dut.grant_row_o.value) == own, "its unit a cycle later"
    said = "1 cycle from a request to the grant, 1 cycle from a unit that is free to the next grant"
    if slots:
        for _ in range(2 * int(dut.Linger.value)):
            await cycle(dut)
        await cycle(dut, "rename", {"pool": units, "row": 9, "func": 0})
        begin = 1
        while not int(dut.load_valid_o.value):
            begin += 1
            await cycle(dut)
        assert int(dut.load_pool_o.value) == units
        dut.load_ready_i.value = 1
        await cycle(dut)
        dut.load_ready_i.value = 0
        end = 1
        while not int(dut.grant_valid_o.value):
            end += 1
            await cycle(dut)
        assert int(dut.grant_row_o.value) == 9
        said += f"; {begin} from a request to a load, where a slot has been idle for long, {end} from its end to the grant"
    record(said)
