"""The NIC's receive path against a model of the ring: what is kept and gathered for the core, and what software gets.

Frames come in order and out of it, twice, damaged, in fragments, with options and flags, for others; what is to become
of each is told here by plain rules.
"""

import random
from collections import deque

import cocotb
import layouts
from bus import Memory
from cocotb.triggers import FallingEdge, ReadOnly
from d2d import start
from jobs import SEEDS, record
from layouts import package
from nic import ReceiveRing, sound

C = package("core_pkg")[0][1]
N = package("nic_pkg")[0][1]
BUFFERS, RING, TAIL = 0x4000_0000, 0x5000_0000, 0x3000_2818
ENTRIES, SIZE, BLOCK = N["Buffers"], 2048, 4096
COMMANDS, ROWS, CONNECTIONS = C["Commands"], C["Blocks"], N["Connections"]
MASK = (1 << 32) - 1
RESET, CANCELLED = 0x0706, C["StatusCancelled"]


def pack(name, **values):
    bits = 0
    for field, width in package("nic_pkg")[2][1][name]:
        bits = bits << width | values.pop(field, 0) & (1 << width) - 1
    assert not values, f"{name} has no {values}"
    return bits


def unpack(name, bits):
    fields = {}
    for field, width in reversed(package("nic_pkg")[2][1][name]):
        fields[field] = bits & (1 << width) - 1
        bits >>= width
    return fields


def little(data):
    return int.from_bytes(data, "little")


class Connection:
    def __init__(self, chance):
        self.tcp = chance.random() < 0.7
        self.mac, self.ours, self.theirs = chance.randbytes(6), chance.randbytes(4), chance.randbytes(4)
        self.port, self.peer = chance.randbytes(2), chance.randbytes(2)
        self.first = chance.choice([MASK - 2000, chance.getrandbits(32)])
        # What the peer sends, how much of that is kept, and how much the core has read.
        self.stream, self.kept, self.read = bytearray(), 0, 0
        self.held = bytearray()
        # Where the payload of each frame ends that was kept: those that are not read have a buffer.
        self.ends = deque()
        self.over = self.broken = False

    def buffers(self):
        """Buffers that it may have: the module is as far as this, or farther."""
        while self.ends and self.ends[0] <= self.read:
            self.ends.popleft()
        return len(self.ends)

    def template(self):
        fields = {"mac_source": little(self.mac), "source": little(self.ours), "destination": little(self.theirs)}
        fields |= {"source_port": little(self.port), "destination_port": little(self.peer), "next": self.first}
        return pack("template_t", tcp=int(self.tcp), **fields)

    def frame(self, payload, number=0, ack=0, window=0, flags=0x18, offset=5, fragment=b"\x40\0", options=0):
        """A frame of the peer's."""
        ports = self.peer + self.port
        if self.tcp:
            segment = ports + number.to_bytes(4, "big") + ack.to_bytes(4, "big") + bytes([offset << 4, flags])
            segment += window.to_bytes(2, "big") + bytes(4) + bytes(4 * (offset - 5)) + payload
        else:
            segment = ports + (8 + len(payload)).to_bytes(2, "big") + bytes(2) + payload
        ip = bytes([0x45 + options, 0]) + (20 + 4 * options + len(segment)).to_bytes(2, "big") + b"\x12\x34" + fragment
        ip += bytes([64, 6 if self.tcp else 17, 0, 0]) + self.theirs + self.ours + bytes(4 * options)
        return (self.mac + b"\x02\0\0\0\0\x09" + b"\x08\0" + ip + segment).ljust(60, b"\0")


class Bench:
    def __init__(self, dut, seed):
        self.dut, self.chance = dut, random.Random(seed)
        dut.place_i.value = pack("receive_layout_t", buffers=BUFFERS, ring=RING, tail=TAIL)
        self.memory = Memory(dut.bus_o, dut.bus_i, self.chance)
        self.ring = ReceiveRing(self.memory, RING, TAIL, BUFFERS, ENTRIES, SIZE)
        self.connections = [None] * CONNECTIONS
        self.owners = [None] * COMMANDS
        # Frames on their way, and what is expected of those that the ring has.
        self.wire, self.expected = deque(), deque()
        self.held, self.pending, self.serial = [], {}, 0
        self.offered = self.aborting = self.giving = None
        self.resting, self.spare = False, None
        self.kept = self.handed = self.read = self.aborted = self.dropped = self.cycles = 0

    # The NIC.

    def deliver(self):
        """A frame into the ring, if there is room."""
        if not self.wire or not self.ring.has_room():
            return
        frame, good, event = self.wire.popleft()
        status = sound(frame)
        if not good:
            status = self.chance.choice([status | 1 << 31, status | 1 << 30, status | 1 << 29, status & ~0x30, status & ~2])
        self.expected.append((self.ring.put(frame, status), frame, event))

    # Peers.

    def send(self):
        """The next frame of some peer, or some other frame."""
        chance = self.chance
        connection = chance.choice(self.connections)
        odd = chance.random()
        if odd < 0.05:
            frame = chance.choice([chance.randbytes(60), bytes(12) + b"\x08\x06" + bytes(46)])
            self.wire.append((frame, True, None))
            return
        if connection is None or connection.over or connection.broken:
            return
        payload = chance.randbytes(chance.choice([1, 1460 if connection.tcp else 1472, chance.randint(1, 1460)]))
        ack, window = chance.getrandbits(32), chance.getrandbits(16)
        index = self.connections.index(connection)
        sent = len(connection.stream)
        fields = {"number": connection.first + sent & MASK, "ack": ack, "window": window}
        event = (index, payload, ack, window)
        if odd > 0.25:
            connection.stream += payload
            fields["flags"] = chance.choice([0x10, 0x18])
            self.wire.append((connection.frame(payload, **fields), True, event))
            return
        # Each of these is software's, and no data of the stream: whoever sent it sends it again.
        good, frame = True, None
        if odd < 0.08:
            good, frame = False, connection.frame(payload, **fields)
        elif odd < 0.11:
            frame = connection.frame(payload[:1400], **fields, fragment=chance.choice([b"\x20\0", b"\0\x05"]))
        elif odd < 0.14:
            frame = connection.frame(payload[:1400], **fields, options=1)
        elif connection.tcp:
            change = chance.choice(["number", "flags", "offset", "empty"])
            if change == "number":
                fields["number"] = fields["number"] + chance.choice([1, 1000, -1, -500]) & MASK
            elif change == "flags":
                fields["flags"] = chance.choice([0x11, 0x12, 0x14, 0x30, 0x08])
            elif change == "offset":
                fields["offset"] = 8
            frame = connection.frame(b"" if change == "empty" else payload[:1400], **fields)
        else:
            frame = bytearray(connection.frame(payload, **fields))
            at = chance.choice([0, 26, 30, 34, 36, 39])
            frame[at] ^= 1
        self.wire.append((bytes(frame), good, None))

    # The module.

    async def cycle(self):
        dut, chance = self.dut, self.chance
        self.memory.drive()
        takes, accepts = chance.random() < 0.6, chance.random() < 0.6
        dut.event_ready_i.value, dut.outcome_ready_i.value = int(takes), int(accepts)
        if self.offered is None and chance.random() < 0.1:
            self.offered = self.issue()
            dut.operation_valid_i.value = int(self.offered is not None)
            if self.offered is not None:
                dut.operation_i.value = self.offered[0]
        if self.giving is None and self.held and chance.random() < 0.1:
            self.giving = self.held.pop(chance.randrange(len(self.held)))
            dut.return_valid_i.value, dut.return_i.value = 1, self.giving
        if self.aborting is None and self.pending and chance.random() < 0.002:
            self.aborting = chance.choice(sorted(self.pending))
            dut.abort_valid_i.value, dut.abort_i.value = 1, self.aborting
        await ReadOnly()
        self.memory.sample()
        for address, data in self.memory.written:
            self.ring.saw(address, data)
        self.memory.written.clear()
        if takes and int(dut.event_valid_o.value):
            self.event(unpack("received_t", int(dut.event_o.value)))
        if accepts and int(dut.outcome_valid_o.value):
            self.ended(layouts.unpack("outcome_t", int(dut.outcome_o.value)))
        ready = {n: int(getattr(dut, f"{n}_ready_o").value) for n in ("request", "operation", "return", "abort")}
        if chance.random() < 0.1:
            self.deliver()
        await FallingEdge(dut.clk_i)
        self.cycles += 1
        if self.offered and ready["operation"]:
            self.pending[self.offered[1]] = self.offered[2:]
            self.offered, dut.operation_valid_i.value = None, 0
        if ready["return"]:
            self.giving, dut.return_valid_i.value = None, 0
        if ready["abort"]:
            self.aborting, dut.abort_valid_i.value = None, 0
        return ready["request"]

    def event(self, said):
        place, frame, event = self.expected.popleft()
        assert said["place"] == place and said["length"] == len(frame)
        assert self.memory.store(BUFFERS + SIZE * place, len(frame)) == frame
        if event is not None and (self.connections[event[0]].over or self.connections[event[0]].broken):
            event = None
        if event is not None and not said["kept"]:
            self.drop(event[0])
            event = None
        assert said["kept"] == (event is not None), f"{frame.hex()}"
        if event is None:
            self.held.append(place)
            self.handed += 1
            return
        index, payload, ack, window = event
        connection = self.connections[index]
        connection.held += payload
        connection.ends.append(len(connection.held))
        assert said["connection"] == index
        if connection.tcp:
            wanted = connection.first + len(connection.held) & MASK
            assert (said["acknowledges"], said["window"], said["next"]) == (ack, window, wanted)
        self.kept += 1

    def drop(self, index):
        """Data for which there was no buffer: nothing that came behind them is the next data, and their peer sends all again."""
        connection = self.connections[index]
        everybody = sum(other.buffers() for other in self.connections if other)
        assert everybody >= N["MostKept"] or connection.buffers() >= N["MostKeptEach"], "there was room"
        self.dropped += 1
        if connection.tcp:
            connection.stream[:] = connection.held
            self.wire = deque(one for one in self.wire if one[2] is None or one[2][0] != index)
            told = (one if one[2] is None or one[2][0] != index else (*one[:2], None) for one in self.expected)
            self.expected = deque(told)

    def issue(self):
        chance = self.chance
        busy = {command for command, *_ in self.pending.values()}
        free = [c for c in range(COMMANDS) if c not in busy and c != self.spare]
        if not free or self.resting:
            return None
        command = chance.choice(free)
        rows = {layouts.unpack("operation_id_t", identity)["row"] for identity in self.pending}
        row = chance.choice([row for row in range(ROWS) if row not in rows])
        length = chance.choice([1, BLOCK, chance.randint(1, BLOCK)])
        begin = chance.randint(0, BLOCK - length)
        self.serial = self.serial + 1 & 255
        identity = layouts.pack("operation_id_t", serial=self.serial, row=row, command=command)
        self.memory.load(row * BLOCK, b"\x55" * BLOCK)
        bits = layouts.pack("operation_t", kind=C["DoRead"], id=identity, start=begin, length=length)
        return bits, identity, command, row, begin, length

    def ended(self, outcome):
        command, row, begin, length = self.pending.pop(outcome["id"])
        connection = self.connections[self.owners[command]]
        block = self.memory.store(row * BLOCK, BLOCK)
        moved = outcome["bytes"]
        if outcome["kind"] == C["Failed"]:
            assert connection.broken and outcome["status"] == RESET or outcome["status"] == CANCELLED
            self.aborted += 1
            moved = 0
        else:
            assert outcome["kind"] == C["Moved"] and moved <= length
            assert moved or (connection.over or connection.broken) and connection.read == len(connection.held)
            self.read += 1
        expected = bytes(connection.held[connection.read : connection.read + moved])
        assert block[begin : begin + moved] == expected, "bytes of the stream"
        assert block[:begin] + block[begin + moved :] == b"\x55" * (BLOCK - moved), "bytes beside them"
        connection.read += moved

    async def request(self, **fields):
        dut = self.dut
        dut.request_i.value = pack("receive_request_t", **fields)
        dut.request_valid_i.value = 1
        while not await self.cycle():
            pass
        dut.request_valid_i.value = 0


@cocotb.test()
async def receive(dut):
    names = ["request_valid_i", "request_i", "operation_valid_i", "operation_i", "abort_valid_i", "abort_i"]
    await start(dut, [*names, "outcome_ready_i", "event_ready_i", "return_valid_i", "return_i", "bus_i"])
    kept = handed = read = aborted = dropped = 0
    for seed in range(SEEDS):
        for name in ("rst_ni", "operation_valid_i", "abort_valid_i", "return_valid_i"):
            getattr(dut, name).value = 0
        await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        bench = Bench(dut, seed)
        for number in range(5):
            connection = bench.connections[number] = Connection(bench.chance)
            await bench.request(kind=N["Listen"], connection=number, opened=connection.template())
        # Of one connection nobody reads before the end: that stops no other. The first seed always has one.
        alone = 4 if seed % 2 == 0 else None
        bench.spare = None if alone is None else COMMANDS - 1
        bench.resting = True
        for command in range(COMMANDS):
            bench.owners[command] = command if command < 5 else bench.chance.randrange(5)
            if bench.owners[command] == alone:
                bench.owners[command] = 0
            await bench.request(kind=N["Assign"], connection=bench.owners[command], command=command)
        bench.resting = False
        for _ in range(250):
            if len(bench.wire) < 20:
                bench.send()
            for _ in range(bench.chance.randint(5, 60)):
                await bench.cycle()
        if alone is not None:
            bench.owners[bench.spare] = alone
            await bench.request(kind=N["Assign"], connection=alone, command=bench.spare)
            bench.spare = None
        # Connections end, some badly; everything that is kept is read, every read ends.
        limit = bench.cycles + 50_000
        for number in range(5):
            while bench.wire or bench.expected:
                await bench.cycle()
                assert bench.cycles < limit, f"frames of which nothing is told: {len(bench.wire)}, {len(bench.expected)}"
            bad = bench.chance.random() < 0.3
            await bench.request(kind=N["Broken"] if bad else N["Ended"], connection=number, status=RESET)
            bench.connections[number].over, bench.connections[number].broken = not bad, bad
        limit = bench.cycles + 20_000
        while bench.pending or bench.offered or any(c and c.read < len(c.held) for c in bench.connections):
            bench.resting = all(c is None or c.read == len(c.held) for c in bench.connections)
            await bench.cycle()
            assert bench.cycles < limit, f"reads that do not end: {bench.pending}"
        kept, handed, read = kept + bench.kept, handed + bench.handed, read + bench.read
        aborted, dropped = aborted + bench.aborted, dropped + bench.dropped
    record(f"{kept} frames kept, {handed} for software, {dropped} without a buffer, {read} reads, {aborted} given up")
    assert kept > 30 and handed > 5 and read > 30 and dropped > 5
