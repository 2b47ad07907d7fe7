"""Receivers in lock-step with the Rust NIC: registers, bytes in the queue, grants, interrupts.

Time stands still until both have done all that they can, as in `test_d2d_tx.py`.
"""

import random

import cocotb
from bus import BEAT, Memory, pack, unpack
from cocotb.triggers import FallingEdge, ReadOnly
from d2d import (
    ALL,
    BYTE_COUNT,
    CLEAR,
    CONTROL,
    CREDIT,
    CREDIT_ADDRESS,
    DROPPED,
    GRANT,
    MOVED,
    PACKETS,
    PAUSE,
    PLACE,
    PLACES,
    RX_ADDRESS,
    START,
    STATUS,
    STREAMS,
    TAKEN,
    TEMPLATE,
    TIMES,
    TX_ADDRESS,
    WINDOW,
    Reference,
    access,
    start,
)
from jobs import SEEDS, record

COMPARED = (TX_ADDRESS, RX_ADDRESS, BYTE_COUNT, CREDIT_ADDRESS, GRANT, STATUS, MOVED, TAKEN, TIMES, CONTROL, DROPPED, PACKETS)
APERTURE = 0x80_0000_0000
# Steps of the machine, and states.
PICK, TURN, STORE = 1, 12, 16
CALC, IDLE = 7, 5


def template(payload):
    """The registers of a template without RTP. (Table II)"""
    headers = [
        "020000000001",
        "020000000002",
        "",
        "4500000000004000",
        "401100000a000001",
        "0a000002",
        "12341388",
        "",
        "",
        payload.to_bytes(2, "little").hex(),
    ]
    return [bytes.fromhex(text).ljust(8, b"\0") for text in headers]


class Writer:
    """Bursts to the aperture, as a sender writes them."""

    def __init__(self, dut, chance):
        self.dut, self.chance, self.driven = dut, chance, None
        self.burst, self.beats, self.answered = None, [], True
        self.offers_aw = self.offers_w = False

    def begin(self, address, data):
        first = address % BEAT
        padded = bytes(first) + data
        count = -(-len(padded) // BEAT)
        self.burst = pack("address_t", addr=address, len=count - 1, size=4, burst=1)
        self.beats = []
        for at in range(count):
            word = padded[at * BEAT : (at + 1) * BEAT]
            strobes = (1 << len(word)) - 1 & ~((1 << first) - 1 if at == 0 else 0)
            self.beats.append(pack("write_t", data=int.from_bytes(word, "little"), strb=strobes, last=int(at == count - 1)))
        self.answered = False

    def drive(self):
        self.offers_aw = self.burst is not None and (self.offers_aw or self.chance.random() < 0.7)
        self.offers_w = self.burst is None and bool(self.beats) and (self.offers_w or self.chance.random() < 0.7)
        self.takes = self.chance.random() < 0.7
        fields = {"b_ready": int(self.takes), "aw_valid": int(self.offers_aw), "w_valid": int(self.offers_w)}
        if self.offers_aw:
            fields["aw"] = self.burst
        if self.offers_w:
            fields["w"] = self.beats[0]
        bits = pack("request_t", **fields)
        if bits != self.driven:
            self.dut.aperture_bus_i.value = self.driven = bits

    def sample(self):
        if self.answered:
            return
        said = unpack("response_t", int(self.dut.aperture_bus_o.value))
        if self.offers_aw and said["aw_ready"]:
            self.burst, self.offers_aw = None, False
        elif self.offers_w and said["w_ready"]:
            self.beats.pop(0)
            self.offers_w = False
        if said["b_valid"] and self.takes:
            assert not self.beats and unpack("written_t", said["b"])["resp"] == 0
            self.answered = True


class Bench:
    def __init__(self, dut, seed):
        self.dut, self.chance, self.seed = dut, random.Random(seed), seed
        self.queue = Memory(dut.queue_bus_o, dut.queue_bus_i, self.chance)
        self.grants = Memory(dut.grant_bus_o, dut.grant_bus_i, self.chance, self.bad)
        self.writer = Writer(dut, self.chance)
        self.rust = Reference("nic")
        self.units = [1] * STREAMS
        self.good = [False] * STREAMS
        self.ended, self.told, self.sent = [], [], []
        self.parse = None
        self.runs = self.frames = self.written = 0
        self.quiet = 0

    def bad(self, at, data):
        return random.Random(f"{self.seed} {at} {data.hex()}").random() < 0.01

    async def cycle(self):
        dut = self.dut
        self.queue.drive()
        self.grants.drive()
        self.writer.drive()
        dut.parse_ready_i.value = int(self.parse is not None)
        if self.parse is not None:
            dut.parse_error_i.value, dut.parse_unit_i.value = self.parse
        await ReadOnly()
        self.queue.sample()
        self.grants.sample()
        self.writer.sample()
        asks = int(dut.parse_valid_o.value) and self.parse is None
        if asks and self.chance.random() < 0.5:
            number = int(dut.parse_stream_o.value)
            self.parse = (0, self.units[number]) if self.good[number] else (TEMPLATE, 0)
        elif not asks:
            self.parse = None
        step = int(dut.step_q.value)
        ended, told = int(dut.ended_o.value), int(dut.told_o.value)
        # A turn that changes nothing is one without work.
        turn = step == TURN and int(dut.step_d.value) == STORE and dut.c_d.value == dut.c_q.value
        self.quiet = self.quiet + 1 if step in (PICK, STORE) or turn else 0
        if told or ended and int(dut.ended_interrupt_o.value):
            self.ended.append(int(dut.ended_stream_o.value))
        said = {name: int(getattr(dut, f"{name}_ready_o").value) for name in ("access", "take", "consume")}
        if said["access"]:
            said["data"] = int(dut.access_data_o.value)
        if said["take"]:
            said["taken"] = [int(getattr(dut, f"take_{name}_o").value) for name in ("bytes", "at", "epoch")]
        await FallingEdge(dut.clk_i)
        return said

    async def ask(self, channel, **fields):
        """Asks on a channel until it is taken; gives what was said then."""
        dut = self.dut
        for name, value in fields.items():
            getattr(dut, f"{channel}_{name}_i").value = value
        getattr(dut, f"{channel}_valid_i").value = 1
        while not (said := await self.cycle())[channel]:
            pass
        getattr(dut, f"{channel}_valid_i").value = 0
        self.quiet = 0
        return said

    async def register(self, stream, number, halves=0, data=0):
        self.dut.access_i.value = access(stream, number, halves, data)
        return (await self.ask("access"))["data"]

    async def write(self, stream, number, value, halves=3):
        self.rust.write(stream, number, value, halves)
        await self.register(stream, number, halves, value)

    async def settle(self, stream=None):
        while (action := self.rust.ask("poll")) is not None:
            if action["kind"] == "write":
                data = bytes.fromhex(action["data"])
                self.sent.append((action["address"], data))
                if self.bad(action["address"], data):
                    self.rust.ask("write_failed", stream=action["stream"], run=action["run"])
            else:
                self.told.append(action["stream"])
        while self.quiet < 3 * STREAMS + 3 or not self.writer.answered:
            await self.cycle()
        assert self.grants.written == self.sent or sorted(self.grants.written) == sorted(self.sent), "grants"
        assert sorted(self.ended) == sorted(self.told), "interrupts"
        self.written += len(self.sent)
        self.grants.written.clear()
        self.sent, self.ended, self.told = [], [], []
        for number in range(STREAMS) if stream is None else [stream]:
            expected = self.rust.registers(number)
            assert (expected[STATUS] & 15 == CALC) == int(self.dut.ready_o.value) >> number & 1, "a unit is there"
            for register in COMPARED if stream is None else [STATUS, *self.chance.sample(COMPARED, 3)]:
                # The receiver's part does not have the sender's epoch and place.
                wanted = expected[register] & (3 << 16 if register == CONTROL else ALL)
                value = await self.register(number, register)
                assert value == wanted, f"register {register} of stream {number}: {value:x}, not {wanted:x}"

    # What drivers, senders and the wire do.

    async def begin(self, number):
        chance = self.chance
        unit = chance.choice([1, 4, 100, 256, 1316, 1472])
        self.units[number], self.good[number] = unit, chance.random() < 0.97
        for at, data in enumerate(template(unit if self.good[number] else 0)):
            self.rust.ask("write", at=0x2000 + 128 * number + 8 * at, bytes=data.hex())
        await self.write(number, BYTE_COUNT, chance.choice([0, chance.randrange(1, 3000), chance.randrange(1, 80_000)]))
        to = chance.choice([0, (number + 1) << 40 | 0x30, (number + 1) << 40 | 0x138])
        await self.write(number, CREDIT_ADDRESS, to)
        await self.write(number, TIMES, chance.choice([0, 1000, 5000]) << 32 | chance.choice([0, 0, 50_000]))
        await self.write(number, CONTROL, chance.randrange(4) << 16)
        await self.write(number, TX_ADDRESS, START | (PAUSE if chance.random() < 0.1 else 0))
        self.runs += 1

    async def data(self, number, state):
        """A write at the expected position, or one that is late, early, too long, or in another place."""
        chance, rust = self.chance, self.rust
        moved, taken, count = (rust.read(number, register) for register in (MOVED, TAKEN, BYTE_COUNT))
        position, room = moved, taken // CREDIT * CREDIT + WINDOW * CREDIT - moved
        length = min(256 - position % 256, chance.choice([256, 256, 256, chance.randint(1, 256)]))
        if chance.random() < 0.3:
            length = chance.choice([4096, 2048]) - position % 2048
        place = (state >> 16) % PLACES
        odd = chance.random()
        if odd < 0.04:
            position = max(position - chance.randint(1, 1000), 0)
        elif odd < 0.05:
            position += chance.randint(1, 300)
        elif odd < 0.07:
            place = chance.randrange(PLACES)
        elif odd > 0.02:
            length = min(length, room, count - moved if count else length)
        length = min(length, 4096 - position % 4096)
        if length <= 0:
            return False
        payload = random.Random(f"{number} {state >> 16} {position}").randbytes(length)
        offset = (number * PLACES + place) * PLACE + position % PLACE
        rust.ask("data", at=offset, bytes=payload.hex())
        self.writer.begin(offset, payload)
        while not self.writer.answered:
            await self.cycle()
        self.quiet = 0
        return True

    async def frame(self):
        """The wire is free."""
        frame = self.rust.ask("frame")
        if frame is None:
            return
        number, packet = frame["stream"], bytes.fromhex(frame["data"])[42:]
        if self.chance.random() < 0.3:
            said = await self.ask("take", stream=number, most=self.chance.randrange(len(packet)))
            assert said["taken"][0] == 0, "more was taken than was asked for"
        said = await self.ask("take", stream=number, most=self.units[number])
        length, at, epoch = said["taken"]
        assert length == len(packet), f"{length} bytes were taken, not {len(packet)}"
        ring = WINDOW * CREDIT
        held = b"".join(self.queue.store(number * ring + (at + i) % ring, 1) for i in range(length))
        assert held == packet, "bytes in the queue"
        await self.ask("consume", stream=number, bytes=length, epoch=epoch, error=0)
        self.frames += 1

    async def step(self):
        chance = self.chance
        number = chance.randrange(STREAMS)
        state = self.rust.read(number, STATUS)
        running = state & 15 not in (0, 5, 8)
        choice = chance.random()
        if choice < 0.15:
            self.rust.now += chance.choice([1, 1_000_000, chance.randrange(5_000_000), 60_000_000])
            self.dut.now_i.value = self.rust.now
            self.quiet = 0
        elif choice < 0.4:
            for _ in range(chance.randint(1, 6)):
                await self.frame()
        elif not running and choice < 0.8:
            await self.begin(number)
        elif choice < 0.9:
            for _ in range(chance.choice([1, 2, 8])):
                await self.data(number, state)
        elif choice < 0.95:
            await self.write(number, TX_ADDRESS, PAUSE * (not state >> 6 & 1), chance.choice([1, 3]))
        elif choice < 0.97:
            await self.write(number, BYTE_COUNT, chance.choice([0, 1, ALL, chance.randrange(60_000), 1 << 40]))
        elif choice < 0.98:
            await self.write(number, TX_ADDRESS, CLEAR)
        else:
            register = chance.choice([TIMES, CONTROL, STATUS, MOVED, GRANT])
            await self.write(number, register, chance.getrandbits(64), chance.randint(1, 3))


@cocotb.test()
async def lock_step(dut):
    inputs = ["now_i", "aperture_bus_i", "queue_bus_i", "grant_bus_i", "access_valid_i", "access_i", "parse_ready_i"]
    inputs += ["parse_error_i", "parse_unit_i", "take_valid_i", "take_stream_i", "take_most_i", "consume_valid_i"]
    inputs += ["consume_stream_i", "consume_bytes_i", "consume_epoch_i", "consume_error_i"]
    await start(dut, inputs)
    dut.aperture_i.value = APERTURE >> 12
    errors, runs, frames, grants = set(), 0, 0, 0
    for seed in range(SEEDS):
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
        dut.rst_ni.value, dut.now_i.value = 1, 0
        bench = Bench(dut, seed)
        bench.rust.ask("write", at=0x30, bytes=APERTURE.to_bytes(8, "little").hex())
        for at in range(250):
            await bench.step()
            await bench.settle(bench.chance.randrange(STREAMS) if at % 25 else None)
            errors.add(bench.rust.read(bench.chance.randrange(STREAMS), STATUS) >> 8 & 255)
        bench.rust.close()
        runs, frames, grants = runs + bench.runs, frames + bench.frames, grants + bench.written
    record(f"{runs} runs, {frames} packets, {grants} grants, errors {sorted(errors - {0})}")
    assert runs > 20 and frames > 30 and grants > 50


@cocotb.test()
async def cycles(dut):
    """Two blocks of data in writes of 256 bytes, where memory answers at once."""
    await start(dut, ("now_i", "access_valid_i", "take_valid_i", "consume_valid_i"))
    bench = Bench(dut, 0)
    bench.rust.close()
    bench.queue.chance = bench.grants.chance = None
    bench.chance.random = lambda: 0.0
    bench.units[0], bench.good[0] = 1472, True
    await bench.register(0, TX_ADDRESS, 3, START)
    for _ in range(3 * STREAMS):
        await bench.cycle()
    cycles = 0
    for at in range(0, 8192, 256):
        bench.writer.begin(PLACE + at, bytes(256))
        while not bench.writer.answered:
            await bench.cycle()
            cycles += 1
    assert await bench.register(0, MOVED) == 8192
    record(f"{cycles / 32:.1f} cycles for a write of 256 bytes")
