"""Senders in lock-step with the Rust SSD: registers, writes to the receiver, interrupts.

Time stands still until both have done all that they can. So it does not matter that hardware takes cycles for it, and
how long memory takes; whatever differs is a difference in meaning.
"""

import random

import cocotb
from bus import Memory
from cocotb.triggers import FallingEdge, ReadOnly
from d2d import (
    ALL,
    BASE_CREDITS,
    BYTE_COUNT,
    CLEAR,
    CONTROL,
    CREDIT,
    DROPPED,
    GRANT,
    MOVED,
    PAUSE,
    QUEUE,
    RATE,
    READ,
    START,
    STATUS,
    STREAMS,
    TAKEN,
    TASK_LIST,
    TASKS,
    TIMES,
    TX_ADDRESS,
    WINDOW,
    Reference,
    access,
    start,
)
from jobs import SEEDS, record

BLOCKS, BLOCK = 1 << 20, 4096
COMPARED = (TX_ADDRESS, RATE, BASE_CREDITS, BYTE_COUNT, GRANT, STATUS, MOVED, TAKEN, TIMES, CONTROL, DROPPED)
# Steps of the machine.
PICK, PARSE, MULTIPLY, DIVIDE, TURN, STORE = 1, 4, 5, 6, 8, 12
IDLE = 5


def address(stream, place=0):
    return (stream + 1) << 32 | place << 20


class Stream:
    """What the bench knows of a stream: its tasks, its reads, what its receiver has got."""

    def __init__(self):
        self.memory, self.tail = [], 0
        self.pushed, self.reads = 0, []
        self.place = self.epoch = self.taken = 0


class Bench:
    def __init__(self, dut, seed):
        self.dut, self.chance, self.seed = dut, random.Random(seed), seed
        self.memory = Memory(dut.bus_o, dut.bus_i, self.chance, self.bad)
        self.rust = Reference("ssd", BLOCKS)
        self.streams = [Stream() for _ in range(STREAMS)]
        self.pending = {}
        self.ended, self.told, self.sent = [], [], {stream: [] for stream in range(STREAMS)}
        self.parse = None
        self.runs = self.writes = 0
        self.quiet = 0
        self.cycles = 0

    def bad(self, at, data):
        return at >> 32 and random.Random(f"{self.seed} {at} {data.hex()}").random() < 0.002

    async def cycle(self):
        """A cycle of the module; gives what it says when all is settled."""
        dut = self.dut
        self.memory.drive()
        dut.parse_ready_i.value = int(self.parse is not None)
        if self.parse is not None:
            dut.parse_error_i.value, dut.parse_bytes_i.value = self.parse
        await ReadOnly()
        self.memory.sample()
        asks = int(dut.parse_valid_o.value) and self.parse is None
        if asks and self.chance.random() < 0.5:
            self.parse = self.owner(int(dut.parse_stream_o.value))
        elif not asks:
            self.parse = None
        step = int(dut.step_q.value)
        # A turn that changes nothing is one without work.
        turn = step == TURN and int(dut.step_d.value) == STORE and dut.c_d.value == dut.c_q.value
        self.quiet = self.quiet + 1 if step in (PICK, STORE) or turn else 0
        if int(dut.ended_o.value):
            self.quiet = 0
            if int(dut.ended_interrupt_o.value):
                self.ended.append(int(dut.ended_stream_o.value))
        said = {name: int(getattr(dut, f"{name}_ready_o").value) for name in ("access", "push")}
        said["data"] = int(dut.access_data_o.value)
        await FallingEdge(dut.clk_i)
        self.cycles += 1
        return said

    def owner(self, number):
        """What the tasks of a stream come to."""
        stream = self.streams[number]
        tasks = stream.memory[: stream.tail]
        good = len(tasks) == stream.tail and tasks and all(b and lba + b <= BLOCKS for lba, b in tasks)
        total = sum(blocks for _, blocks in tasks) * BLOCK if good else 0
        count = self.rust.read(number, BYTE_COUNT)
        return (0, total) if good and count <= total else (TASKS, 0)

    async def register(self, stream, number, halves=0, data=0):
        dut = self.dut
        dut.access_i.value = access(stream, number, halves, data)
        dut.access_valid_i.value = 1
        while True:
            said = await self.cycle()
            if said["access"]:
                break
        dut.access_valid_i.value = 0
        self.quiet = 0
        return said["data"]

    async def write(self, stream, number, value, halves=3):
        """Writes a register of both."""
        self.rust.write(stream, number, value, halves)
        if number == TX_ADDRESS and halves & 1:
            if value & 3:
                self.streams[stream].pushed, self.streams[stream].reads = 0, []
            if value & CLEAR:
                self.streams[stream].tail = 0
        if number == TASK_LIST:
            self.streams[stream].tail = min(value & 0xFFFF_FFFF, 16)
        else:
            await self.register(stream, number, halves, value)

    async def settle(self, stream=None):
        """Lets both do all that they can, and compares."""
        while (action := self.rust.ask("poll")) is not None:
            kind = action["kind"]
            if kind == "write":
                data = bytes.fromhex(action["data"])
                self.sent[action["stream"]].append((action["address"], data))
                if self.bad(action["address"], data):
                    self.rust.ask("write_failed", stream=action["stream"], run=action["run"])
            elif kind == "interrupt":
                self.told.append(action["stream"])
            else:
                number = self.stream_of(action["lba"])
                self.streams[number].reads.append(action["token"])
                self.pending[action["token"]] = (number, action["lba"], action["blocks"])
        while self.quiet < 3 * STREAMS + 3:
            await self.cycle()
        await self.compare(range(STREAMS) if stream is None else [stream])

    async def compare(self, streams):
        wrote = {number: [] for number in range(STREAMS)}
        for at, data in self.memory.written:
            wrote[(at >> 32) - 1].append((at, data))
        assert wrote == self.sent, "writes to the receivers"
        self.writes += len(self.memory.written)
        self.memory.written.clear()
        self.sent = {number: [] for number in range(STREAMS)}
        assert sorted(self.ended) == sorted(self.told), "interrupts"
        self.ended, self.told = [], []
        for stream in streams:
            expected = self.rust.registers(stream)
            for number in COMPARED if len(streams) > 1 else [STATUS, *self.chance.sample(COMPARED, 3)]:
                is_word = number == BASE_CREDITS
                value = await self.register(stream, number)
                wanted = expected[number] & 0xFFFF_FFFF if is_word else expected[number]
                # A stream that is no sender is told of by the receiver's part.
                if not expected[STATUS] >> 4 & 3 and number in (STATUS, GRANT):
                    value, wanted = value & 0xFFFF, (wanted & 0xFFFF) if number == STATUS else 0
                    value = value if number == STATUS else 0
                assert value == wanted, f"register {number} of stream {stream}: {value:x}, not {wanted:x}"

    def stream_of(self, lba):
        return lba >> 16

    # What drivers, receivers and media do.

    async def begin(self, number):
        """A run as a driver starts it, or not quite."""
        chance, stream = self.chance, self.streams[number]
        odd = chance.random() < 0.15
        tasks = [(number << 16 | chance.randrange(1 << 15), chance.choice([1, 1, 2, 5])) for _ in range(chance.randint(1, 5))]
        if odd and chance.random() < 0.3:
            tasks[-1] = chance.choice([(BLOCKS - 1, 2), (number << 16, 0)])
        stream.memory = tasks
        base = 0x1000 + 4096 + number * 16 * 16
        for at, (lba, blocks) in enumerate(tasks):
            self.rust.ask("write", at=base + 16 * at, bytes=lba.to_bytes(8, "little").hex())
            self.rust.ask("write", at=base + 16 * at + 8, bytes=blocks.to_bytes(8, "little").hex())
        await self.write(number, TASK_LIST, len(tasks))
        total = sum(blocks for _, blocks in tasks) * BLOCK
        count = chance.choice([0, total, chance.randint(1, max(total, 1)), total + odd])
        await self.write(number, BYTE_COUNT, count)
        granularity = chance.choice([1, 100, 1638, 5000])
        rate = chance.choice([0, 0, chance.randrange(1, 1 << 30), 2_500_000])
        await self.write(number, RATE, (0 if odd and chance.random() < 0.3 else granularity) << 40 | rate)
        place = chance.choice([2 * WINDOW, 6, 4])
        await self.write(number, BASE_CREDITS, chance.randint(0 if odd else 1, place // 2 + odd))
        await self.write(number, TIMES, chance.choice([0, 20_000, 300_000]))
        if chance.random() < 0.9:
            stream.epoch = stream.epoch + 1 & 0xFFFF
            stream.place = stream.epoch % 4
        await self.write(number, CONTROL, place << 32 | chance.randrange(4) << 16 | stream.epoch)
        command = START | (PAUSE if chance.random() < 0.1 else 0)
        at = address(number, stream.place)
        if odd and chance.random() < 0.3:
            at = chance.choice([at + 8, (1 << 64) - 4096])
        stream.taken = 0
        if chance.random() < 0.2:
            await self.write(number, TX_ADDRESS, at, 2)
            await self.write(number, TX_ADDRESS, at | command, 1)
        else:
            await self.write(number, TX_ADDRESS, at | command)
        self.runs += 1

    async def grant(self, number):
        """A grant of what was sent, or a lost, old, doubled or wrong one."""
        chance, stream = self.chance, self.streams[number]
        moved, end = self.rust.read(number, MOVED), self.rust.read(number, BYTE_COUNT)
        whole = -(-moved // CREDIT) if moved == end else moved // CREDIT
        stream.taken = max(stream.taken, chance.randint(stream.taken, max(whole, stream.taken)))
        if chance.random() < 0.5:
            stream.taken = max(whole, stream.taken)
        taken, epoch, marks = stream.taken, stream.epoch, 0
        odd = chance.random()
        if odd < 0.1:
            taken = max(taken - chance.randint(0, 3), 0)
        elif odd < 0.12:
            epoch = epoch + chance.choice([1, -1, 0x7FFF, 0x8000]) & 0xFFFF
        elif odd < 0.14:
            taken += chance.randint(1, 50)
        elif odd < 0.15:
            marks = 1
        elif odd < 0.2:
            marks = 2
        value = marks << 48 | epoch << 32 | taken
        if chance.random() < 0.3:
            await self.write(number, GRANT, value, 1)
            await self.write(number, GRANT, value, 2)
        else:
            await self.write(number, GRANT, value)
        if chance.random() < 0.1:
            await self.write(number, GRANT, value)

    async def read_done(self):
        chance = self.chance
        token = chance.choice(sorted(self.pending))
        number, lba, blocks = self.pending.pop(token)
        stream = self.streams[number]
        data = random.Random(lba).randbytes(blocks * BLOCK)
        fails = chance.random() < 0.01
        self.rust.ask("read_done", token=token, bytes=None if fails else data.hex())
        if token not in stream.reads:
            return
        if fails:
            return await self.push(number, 0, READ)
        stream.reads[stream.reads.index(token)] = data
        pushed = 0
        while stream.reads and isinstance(stream.reads[0], bytes):
            for byte in stream.reads.pop(0):
                self.memory.bytes[number * QUEUE + stream.pushed % QUEUE] = byte
                stream.pushed += 1
                pushed += 1
        await self.push(number, pushed, 0)

    async def push(self, number, count, error):
        dut = self.dut
        dut.push_stream_i.value, dut.push_bytes_i.value, dut.push_error_i.value = number, count, error
        dut.push_valid_i.value = 1
        while not (await self.cycle())["push"]:
            pass
        dut.push_valid_i.value = 0
        self.quiet = 0

    async def step(self):
        chance = self.chance
        number = chance.randrange(STREAMS)
        state = self.rust.read(number, STATUS)
        running = state & 15 not in (0, 5, 8)
        choice = chance.random()
        if choice < 0.25:
            # A timer fires where both can see it.
            self.rust.now += chance.choice([1, 1000, 50_000, 700_000, chance.randrange(10_000_000), 25_000_000])
            self.dut.now_i.value = self.rust.now
            self.quiet = 0
        elif choice < 0.55 and self.pending:
            return await self.read_done()
        elif not running:
            await self.begin(number)
        elif choice < 0.9:
            await self.grant(number)
        elif choice < 0.94:
            await self.write(number, TX_ADDRESS, address(number, self.streams[number].place) | PAUSE * (not state >> 6 & 1), 1)
        elif choice < 0.96:
            await self.write(number, BYTE_COUNT, chance.choice([0, 1, ALL, chance.randrange(60_000), 1 << 40]))
        elif choice < 0.97:
            await self.write(number, TX_ADDRESS, address(number, self.streams[number].place) | CLEAR)
        else:
            register = chance.choice([RATE, BASE_CREDITS, TIMES, CONTROL, STATUS, MOVED, DROPPED])
            await self.write(number, register, chance.getrandbits(64), chance.randint(1, 3))
            if register == CONTROL:
                self.streams[number].epoch = self.rust.read(number, CONTROL) & 0xFFFF
        return number


@cocotb.test()
async def lock_step(dut):
    inputs = ("now_i", "access_valid_i", "access_i", "parse_ready_i", "parse_error_i", "parse_bytes_i")
    await start(dut, (*inputs, "push_valid_i", "push_stream_i", "push_bytes_i", "push_error_i", "bus_i"))
    errors, ends, runs, writes = set(), 0, 0, 0
    for seed in range(SEEDS):
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
        dut.rst_ni.value, dut.now_i.value = 1, 0
        bench = Bench(dut, seed)
        for at in range(250):
            await bench.step()
            await bench.settle(bench.chance.randrange(STREAMS) if at % 25 else None)
            status = bench.rust.read(bench.chance.randrange(STREAMS), STATUS)
            errors.add(status >> 8 & 255)
            ends += status & 15 == IDLE
        bench.rust.close()
        runs, writes = runs + bench.runs, writes + bench.writes
    record(f"{runs} runs, {writes} writes to receivers, {ends} times at an end, errors {sorted(errors - {0})}")
    assert runs > 10 and writes > 100


@cocotb.test()
async def cycles(dut):
    """Five blocks without a pace, where memory answers at once."""
    await start(dut, ("now_i", "access_valid_i", "push_valid_i"))
    bench = Bench(dut, 0)
    bench.memory.chance, bench.bad = None, None
    bench.memory.bad = lambda at, data: False
    stream = bench.streams[0]
    stream.memory, stream.tail = [(0, 5)], 1
    for number, value in ((BYTE_COUNT, 0), (RATE, 0), (BASE_CREDITS, WINDOW), (CONTROL, 2 * WINDOW << 32)):
        await bench.register(0, number, 3, value)
    bench.rust.close()
    bench.owner = lambda number: (0, 5 * BLOCK)
    await bench.register(0, TX_ADDRESS, 3, address(0) | START)
    begun = bench.cycles
    while int(dut.step_q.value) in (PARSE, MULTIPLY, DIVIDE):
        await bench.cycle()
    started = bench.cycles - begun
    await bench.push(0, 5 * BLOCK, 0)
    begun = bench.cycles
    while len(bench.memory.written) < 5 * BLOCK // 256:
        await bench.cycle()
    each = (bench.cycles - begun) / len(bench.memory.written)
    record(f"{started} cycles for a start, {each:.1f} for a write of 256 bytes, the other streams' turns among them")
