"""Packets byte for byte as the Rust NIC makes them of the same templates and data, and legacy frames before them.

The bench stands in for `d2d_rx`: it has the queues, and gives out units.
"""

import random

import cocotb
from bus import Memory
from cocotb.triggers import FallingEdge, ReadOnly
from d2d import BYTE_COUNT, CREDIT, PLACE, RX_ADDRESS, START, STATUS, STREAMS, TX_ADDRESS, WINDOW, Reference, access, start
from jobs import SEEDS, record

RING = WINDOW * CREDIT
WORDS = 10


def swapped(value, length=2):
    return value.to_bytes(length, "big")


def template(chance, good):
    """The registers of a template (Table II), and the bytes of a packet that they say."""
    rtp, tag = chance.random() < 0.5, chance.random() < 0.5
    most = 1460 if rtp else 1472
    unit = chance.choice([2, 1316, most, chance.randint(1, 64), chance.randint(1, most)])
    flag = chance.choice([0, 0x40])
    words = [
        chance.randbytes(6),
        bytes([chance.randrange(128) * 2]) + chance.randbytes(5),
        b"\x81\x00" + chance.randbytes(6) if tag else bytes(2) + chance.randbytes(6),
        bytes([0x45]) + chance.randbytes(5) + bytes([flag, 0]),
        bytes([chance.randint(1, 255), 17]) + chance.randbytes(6),
        chance.randbytes(8),
        chance.randbytes(8),
        (b"\x80" if rtp else b"\0") + chance.randbytes(7),
        chance.randbytes(8),
        unit.to_bytes(2, "little") + chance.randbytes(6),
    ]
    if not good:
        at, word = chance.choice(
            [
                (0, bytes(8)),
                (1, b"\x01" + bytes(7)),
                (2, b"\x81\x01" + bytes(6)),
                (3, bytes([0x46]) + bytes(7)),
                (3, bytes([0x45]) + bytes(5) + b"\x20\0"),
                (3, bytes([0x45]) + bytes(6) + b"\x01"),
                (4, b"\0\x11" + bytes(6)),
                (4, b"\x40\x06" + bytes(6)),
                (5, bytes(4) + b"\x01\x01\x01\x01"),
                (6, b"\x01\x01" + bytes(6)),
                (7, b"\x81" + bytes(7)),
                (9, bytes(8)),
                (9, (most + 1).to_bytes(2, "little")),
            ]
        )
        words[at] = word
    return [word.ljust(8, b"\0") for word in words], unit, rtp


def zero_sum(words):
    """Two bytes of payload with which UDP's checksum would come to zero."""
    parts = words[4][4:8] + words[5][:4] + words[6][:4] + swapped(17) + swapped(10) * 2
    total = sum(int.from_bytes(parts[at : at + 2], "big") for at in range(0, len(parts), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return swapped(0xFFFF - total)


class Stream:
    def __init__(self):
        self.words = [bytes(8)] * WORDS
        self.unit, self.begins, self.received, self.taken, self.fixed = 1, 0, 0, 0, None
        self.running, self.epoch, self.end, self.broken = False, 0, 0, False


class Bench:
    def __init__(self, dut, seed):
        self.dut, self.chance = dut, random.Random(seed)
        self.memory = Memory(dut.queue_bus_o, dut.queue_bus_i, self.chance)
        self.rust = Reference("nic")
        self.streams = [Stream() for _ in range(STREAMS)]
        self.legacy, self.frame = [], bytearray()
        # Frames that came: the stream, or None, and the bytes.
        self.frames, self.served = [], None
        self.offers = False
        self.packets = self.templates = self.cycles = 0
        self.driven = {}

    def set(self, name, value):
        if self.driven.get(name) != value:
            getattr(self.dut, name).value = self.driven[name] = value

    def left(self, stream):
        """The bytes of the next packet of a stream; 0: there is none yet."""
        queued = stream.received - stream.taken
        if not stream.running:
            return 0
        return stream.unit if queued >= stream.unit else queued if stream.received == stream.end else 0

    async def cycle(self):
        dut, chance = self.dut, self.chance
        self.memory.drive()
        ready = sum(1 << number for number, stream in enumerate(self.streams) if self.left(stream))
        self.set("ready_i", ready)
        beats = self.legacy[0] if self.legacy else None
        # The first beat of a legacy frame is there at once, so that no other frame may go before.
        self.offers = bool(beats) and (self.offers or beats[0][3] or chance.random() < 0.7)
        self.set("legacy_valid_i", int(self.offers))
        if self.offers:
            data, keep, last, _ = beats[0]
            self.set("legacy_data_i", data), self.set("legacy_keep_i", keep), self.set("legacy_last_i", last)
        accepts = chance.random() < 0.7
        self.set("frame_ready_i", int(accepts))
        takes, consumes = chance.random() < 0.5, chance.random() < 0.5
        self.set("consume_ready_i", int(consumes))
        asked = int(dut.take_valid_o.value) and takes
        self.set("take_ready_i", int(asked))
        if asked:
            self.take(int(dut.take_stream_o.value))
        await ReadOnly()
        self.memory.sample()
        if self.offers and int(dut.legacy_ready_o.value):
            beats.pop(0)
            self.offers = False
            if not beats:
                self.legacy.pop(0)
        if int(dut.frame_valid_o.value) and accepts:
            size = int(dut.frame_keep_o.value).bit_length()
            last = int(dut.frame_last_o.value)
            assert int(dut.frame_keep_o.value) == (1 << size) - 1 and (last or size == 16) and size
            self.frame += int(dut.frame_data_o.value).to_bytes(16, "little")[:size]
            if last:
                self.frames.append((None if int(dut.frame_legacy_o.value) else self.served, bytes(self.frame)))
                self.frame.clear()
        if int(dut.consume_valid_o.value) and consumes:
            number = int(dut.consume_stream_o.value)
            stream = self.streams[number]
            assert number == self.served and int(dut.consume_epoch_o.value) == stream.epoch
            stream.broken = int(dut.consume_error_o.value) != 0
            self.served = None
        said = {name: int(getattr(dut, f"{name}_ready_o").value) for name in ("access", "parse")}
        if said["access"]:
            said["data"] = int(dut.access_data_o.value)
        if said["parse"]:
            said["error"], said["unit"] = int(dut.parse_error_o.value), int(dut.parse_unit_o.value)
        await FallingEdge(dut.clk_i)
        self.cycles += 1
        return said

    def take(self, number):
        stream = self.streams[number]
        length = self.left(stream)
        assert length and self.served is None
        self.set("take_bytes_i", length)
        self.set("take_at_i", (stream.begins + stream.taken) % RING)
        self.set("take_epoch_i", stream.epoch)
        stream.taken += length
        self.served = number

    async def ask(self, channel):
        self.set(f"{channel}_valid_i", 1)
        while not (said := await self.cycle())[channel]:
            pass
        self.set(f"{channel}_valid_i", 0)
        return said

    async def register(self, stream, number, halves=0, data=0):
        self.set("access_i", access(stream, number, halves, data))
        return (await self.ask("access"))["data"]

    async def begin(self, number):
        """Writes a template, some of it by halves, and starts."""
        chance, stream, rust = self.chance, self.streams[number], self.rust
        words, unit, rtp = template(chance, chance.random() < 0.7)
        for at, word in enumerate(words):
            place, value = 0x2000 + 128 * number + 8 * at, int.from_bytes(word, "little")
            if chance.random() < 0.2:
                rust.ask("write", at=place, bytes=word[:4].hex())
                rust.ask("write", at=place + 4, bytes=word[4:].hex())
                await self.register(number, at, 1, value)
                await self.register(number, at, 2, value)
            else:
                rust.ask("write", at=place, bytes=word.hex())
                await self.register(number, at, 3, value)
        end = chance.randrange(1, min(6000, 20 * unit))
        rust.write(number, BYTE_COUNT, end)
        rust.write(number, TX_ADDRESS, START)
        self.set("parse_stream_i", number)
        said = await self.ask("parse")
        status = rust.read(number, STATUS)
        assert said["error"] == status >> 8 & 255, f"the check of {[word.hex() for word in words]}"
        stream.running = not said["error"]
        if stream.running:
            assert said["unit"] == unit
        stream.fixed = zero_sum(words) if unit == 2 and not rtp else None
        stream.unit, stream.end, stream.epoch = unit, end, status >> 16
        stream.received = stream.taken = 0
        stream.begins = chance.choice([0, chance.randrange(RING), RING - chance.randint(1, 2000)])
        self.templates += 1

    def data(self, number):
        chance, stream = self.chance, self.streams[number]
        length = min(stream.end - stream.received, stream.taken + RING - stream.received, chance.randint(1, 3000), 5 * stream.unit + 1)
        if not stream.running or length <= 0:
            return
        payload = chance.randbytes(length)
        if stream.fixed:
            payload = (stream.fixed * length)[stream.received % 2 : stream.received % 2 + length]
        base = self.rust.read(number, RX_ADDRESS)
        for at in range(0, length, 1000):
            piece = payload[at : at + 1000]
            position = (stream.received + at) % PLACE
            split = min(len(piece), PLACE - position)
            self.rust.ask("data", at=base + position, bytes=piece[:split].hex())
            if split < len(piece):
                self.rust.ask("data", at=base, bytes=piece[split:].hex())
        for at, byte in enumerate(payload):
            self.memory.bytes[number * RING + (stream.begins + stream.received + at) % RING] = byte
        stream.received += length

    async def drain(self):
        """Lets all frames out, and compares."""
        limit = self.cycles + 40_000
        while self.legacy or self.served is not None or any(self.left(stream) for stream in self.streams):
            await self.cycle()
            assert self.cycles < limit, "a packet that does not leave"
        for _ in range(3):
            await self.cycle()
        came = {}
        for stream, frame in self.frames:
            came.setdefault(stream, []).append(frame)
        kinds = [stream is None for stream, _ in self.frames]
        assert kinds == sorted(kinds, reverse=True), "legacy frames go first"
        expected = {}
        while (frame := self.rust.ask("frame")) is not None:
            expected.setdefault(frame["stream"], []).append(bytes.fromhex(frame["data"]))
        for stream, frames in expected.items():
            assert [f.hex() for f in came.get(stream, [])] == [f.hex() for f in frames], f"frames of {stream}"
        assert came.keys() == expected.keys()
        self.packets += sum(stream is not None for stream, _ in self.frames)
        self.frames.clear()

    async def step(self):
        chance = self.chance
        self.rust.now += chance.choice([1, 1000, 11_111, chance.randrange(1 << 40)])
        self.set("now_i", self.rust.now)
        for number in chance.sample(range(STREAMS), 3):
            stream = self.streams[number]
            if not stream.running or stream.taken == stream.end:
                await self.begin(number)
        for _ in range(chance.choice([0, 0, 1, 3])):
            frame = chance.randbytes(chance.randint(14, 200))
            self.rust.ask("legacy", bytes=frame.hex())
            words = [frame[at : at + 16] for at in range(0, len(frame), 16)]
            self.legacy.append(
                [
                    (int.from_bytes(word, "little"), (1 << len(word)) - 1, int(at == len(words) - 1), at == 0)
                    for at, word in enumerate(words)
                ]
            )
        for number in chance.sample(range(STREAMS), 3):
            self.data(number)
        await self.drain()
        number, at = chance.randrange(STREAMS), chance.randrange(WORDS)
        wanted = self.rust.ask("read", at=0x2000 + 128 * number + 8 * at, length=8)
        assert await self.register(number, at) == int.from_bytes(bytes.fromhex(wanted), "little")


async def ready(dut):
    inputs = ["now_i", "access_valid_i", "access_i", "parse_valid_i", "parse_stream_i", "ready_i", "take_ready_i"]
    inputs += ["take_bytes_i", "take_at_i", "take_epoch_i", "consume_ready_i", "legacy_valid_i", "legacy_data_i"]
    await start(dut, [*inputs, "legacy_keep_i", "legacy_last_i", "frame_ready_i", "queue_bus_i", "link_i"])
    dut.link_i.value = 1


@cocotb.test()
async def packets(dut):
    await ready(dut)
    packets = templates = 0
    for seed in range(SEEDS):
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        bench = Bench(dut, seed)
        for _ in range(25):
            await bench.step()
        if seed == 0:
            # Without a link nothing starts, and nothing leaves.
            bench.rust.ask("link", up=False)
            dut.link_i.value = 0
            for stream in bench.streams:
                stream.running = False
            await bench.begin(0)
            assert not bench.streams[0].running
            dut.link_i.value = 1
        packets, templates = packets + bench.packets, templates + bench.templates
        bench.rust.close()
    record(f"{packets} packets of {templates} templates")
    assert packets > 20 and templates > 10


@cocotb.test()
async def cycles(dut):
    """A packet of 1,316 bytes, where memory and MAC are always ready."""
    await ready(dut)
    bench = Bench(dut, 0)
    bench.chance.random = lambda: 0.0
    bench.memory.chance = None
    bench.chance.choice = lambda options: options[1] if len(options) == 5 else options[0]
    while not bench.streams[0].running:
        await bench.begin(0)
    stream = bench.streams[0]
    stream.end = stream.received = 3 * stream.unit
    before, times = 0, []
    while bench.left(stream) or bench.served is not None:
        await bench.cycle()
        if len(bench.frames) > len(times):
            times.append(bench.cycles - before)
            before = bench.cycles
    bench.rust.close()
    record(f"{times[-1]} cycles from a packet of {stream.unit} bytes to the next one")
