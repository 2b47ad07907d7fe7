"""The NIC's send path against a model of the NIC's ring and peers that lose, acknowledge and close their windows.

Every frame is checked as a host checks it. What TCP decides, the bench decides: acknowledgements, windows, what is sent
again, when a connection has failed.
"""

import random

import cocotb
import layouts
from bus import Memory
from cocotb.triggers import FallingEdge, ReadOnly
from d2d import start
from jobs import SEEDS, record
from layouts import package
from nic import Nic, parse

C = package("core_pkg")[0][1]
N = package("nic_pkg")[0][1]
HEADERS, RING, TAIL = 0x1000_0000, 0x2000_0000, 0x3000_3818
COMMANDS, ROWS, BLOCK = C["Commands"], C["Blocks"], 4096
MASK = (1 << 32) - 1
RESET, LOST = 0x0706, 0x070A


def pack(name, **values):
    bits = 0
    for field, width in package("nic_pkg")[2][1][name]:
        bits = bits << width | values.pop(field, 0) & (1 << width) - 1
    assert not values, f"{name} has no {values}"
    return bits


def little(data):
    return int.from_bytes(data, "little")


class Connection:
    """A connection and its peer."""

    def __init__(self, chance, tcp):
        self.tcp = tcp
        self.most = chance.choice([536, 1000, 1460]) if tcp else chance.choice([300, 1472])
        self.macs, self.addresses, self.ports = chance.randbytes(12), chance.randbytes(8), chance.randbytes(4)
        self.service, self.ttl = chance.randrange(256), chance.randint(1, 255)
        self.first = chance.choice([MASK - 3000, chance.getrandbits(32)])
        # All that was taken, and what the peer has of it; datagrams that are on their way, by operation.
        self.stream, self.got, self.datagrams = b"", bytearray(), []
        self.pieces = {}
        self.window = chance.choice([5000, 20_000])
        self.told = {(0, 0)}
        self.failed = False
        self.rest = 0

    def template(self):
        first = self.first
        fields = {"mac_destination": little(self.macs[:6]), "mac_source": little(self.macs[6:])}
        fields |= {"source": little(self.addresses[:4]), "destination": little(self.addresses[4:])}
        fields |= {"source_port": little(self.ports[:2]), "destination_port": little(self.ports[2:])}
        fields |= {"next": first, "sent": first, "acknowledged": first, "limit": first + self.window}
        return pack("template_t", tcp=int(self.tcp), service=self.service, ttl=self.ttl, most=self.most, **fields)

    def receive(self, seen):
        assert (seen["macs"], seen["addresses"], seen["ports"]) == (self.macs, self.addresses, self.ports)
        assert (seen["service"], seen["ttl"], seen["tcp"]) == (self.service, self.ttl, self.tcp)
        payload = seen["payload"]
        assert 0 < len(payload) <= self.most
        if not self.tcp:
            # In an operation's order; those before it were lost in a NIC that was reset.
            run = next((run for run in self.datagrams if payload in run), None)
            assert run is not None, "a datagram"
            del run[: run.index(payload) + 1]
            return
        assert (seen["acknowledges"], seen["window"]) in self.told
        at = seen["number"] - self.first & MASK
        assert self.stream[at : at + len(payload)] == payload, "a segment"
        assert at + len(payload) <= len(self.got) + self.window + 20_000, "beyond the window"
        self.pieces[at] = max(self.pieces.get(at, b""), payload, key=len)
        while any(at <= len(self.got) < at + len(piece) for at, piece in self.pieces.items()):
            at, piece = next((a, p) for a, p in self.pieces.items() if a <= len(self.got) < a + len(p))
            self.got += piece[len(self.got) - at :]


class Bench:
    def __init__(self, dut, seed):
        self.dut, self.chance = dut, random.Random(seed)
        dut.place_i.value = pack("layout_t", headers=HEADERS, ring=RING, tail=TAIL)
        self.memory = Memory(dut.bus_o, dut.bus_i, self.chance)
        self.nic = Nic(self.memory, RING, TAIL, int(dut.Advanced.value))
        self.connections, self.owners = [None] * N["Connections"], [None] * COMMANDS
        # Operations by their bits: command, connection, bytes, and where they end in its stream.
        self.pending, self.serial = {}, 0
        self.loss = self.chance.choice([0, 0.1, 0.3])
        self.done = self.frames = self.resends = self.failures = self.stops = self.cycles = 0
        self.offered = None
        # The core has nothing more to do.
        self.resting = False

    async def cycle(self):
        dut, chance = self.dut, self.chance
        self.memory.drive()
        accepts = chance.random() < 0.6
        dut.outcome_ready_i.value = int(accepts)
        if self.offered is None and chance.random() < 0.3:
            self.offered = self.issue()
            dut.operation_valid_i.value = int(self.offered is not None)
            if self.offered is not None:
                dut.operation_i.value = self.offered
        await ReadOnly()
        self.memory.sample()
        for address, data in self.memory.written:
            self.nic.saw(address, data)
        self.memory.written.clear()
        if chance.random() < 0.2:
            self.nic.work()
        for frame in self.nic.frames:
            self.wire(frame)
        self.nic.frames.clear()
        taken = self.offered is not None and int(dut.operation_ready_o.value)
        if taken:
            self.took(self.offered)
            self.offered = None
        if int(dut.outcome_valid_o.value) and accepts:
            self.ended(int(dut.outcome_o.value))
        request = int(dut.request_ready_o.value)
        await FallingEdge(dut.clk_i)
        if taken:
            dut.operation_valid_i.value = 0
        self.cycles += 1
        return request

    def wire(self, frame):
        seen = parse(frame)
        connection = next(c for c in self.connections if c and c.addresses == seen["addresses"])
        self.frames += 1
        if connection.tcp and self.chance.random() < self.loss:
            return
        connection.receive(seen)

    def issue(self):
        """The core's next operation: one at a time for each command, in a block of its own."""
        chance = self.chance
        busy = {command for command, *_ in self.pending.values()}
        free = [c for c in range(COMMANDS) if c not in busy and self.owners[c] is not None]
        free = [c for c in free if not self.connections[self.owners[c]].failed]
        if not free or self.resting:
            return None
        command = chance.choice(free)
        used = {layouts.unpack("operation_id_t", identity)["row"] for identity in self.pending}
        row = chance.choice([row for row in range(ROWS) if row not in used])
        length = chance.choice([1, BLOCK, chance.randint(1, BLOCK)])
        begin = chance.randint(0, BLOCK - length)
        self.serial = self.serial + 1 & 255
        identity = layouts.pack("operation_id_t", serial=self.serial, row=row, command=command)
        data = chance.randbytes(length)
        self.memory.load(row * BLOCK + begin, data)
        self.next = (command, self.owners[command], data)
        return layouts.pack("operation_t", kind=C["DoWrite"], id=identity, start=begin, length=length)

    def took(self, operation):
        command, number, data = self.next
        connection = self.connections[number]
        connection.stream += data
        if not connection.tcp:
            connection.datagrams.append([data[at : at + connection.most] for at in range(0, len(data), connection.most)])
        identity = layouts.unpack("operation_t", operation)["id"]
        self.pending[identity] = (command, number, data, len(connection.stream))

    def ended(self, bits):
        outcome = layouts.unpack("outcome_t", bits)
        _, number, data, end = self.pending.pop(outcome["id"])
        connection = self.connections[number]
        if outcome["kind"] == C["Failed"]:
            assert connection.failed and outcome["status"] == RESET or not connection.tcp and outcome["status"] == LOST
            self.failures += 1
            return
        assert outcome["kind"] == C["Moved"] and outcome["bytes"] == len(data)
        if connection.tcp:
            assert connection.acknowledged >= end, "a block that is not acknowledged is given back"
        self.done += 1

    async def request(self, **fields):
        dut = self.dut
        dut.request_i.value = pack("request_t", **fields)
        dut.request_valid_i.value = 1
        while not await self.cycle():
            pass
        dut.request_valid_i.value = 0

    async def open(self, number):
        connection = Connection(self.chance, self.chance.random() < 0.7)
        connection.acknowledged = 0
        self.connections[number] = connection
        await self.request(kind=N["Open"], connection=number, opened=connection.template())

    async def software(self):
        """What TCP decides now and then."""
        chance = self.chance
        number = chance.randrange(len(self.connections))
        connection, choice = self.connections[number], chance.random()
        busy = any(n == number for _, n, *_ in self.pending.values()) or self.offered and self.next[1] == number
        if connection is None or connection.failed:
            if not busy:
                await self.open(number)
            return
        if choice < 0.05:
            values = chance.getrandbits(32), chance.getrandbits(16)
            connection.told.add(values)
            await self.request(kind=N["Advertise"], connection=number, first=values[0], second=values[1])
        elif choice < 0.06:
            connection.failed = True
            await self.request(kind=N["Fail"], connection=number, first=RESET)
        elif connection.tcp and len(connection.got) > connection.acknowledged:
            await self.acknowledge(number, connection)
        elif connection.tcp and busy:
            # Nothing new came: the first segment that is missing, or everything, is sent again.
            connection.rest += 1
            if connection.rest > 4:
                connection.rest = 0
                self.resends += 1
                length = chance.choice([connection.most, connection.window])
                first = connection.first + connection.acknowledged & MASK
                await self.request(kind=N["Resend"], connection=number, first=first, second=length)

    async def acknowledge(self, number, connection):
        connection.acknowledged = got = len(connection.got)
        first = connection.first + got & MASK
        fields = {"first": first, "second": first + connection.window & MASK}
        await self.request(kind=N["Acknowledged"], connection=number, **fields)

    async def stop(self):
        """The NIC is reset: what it had is lost."""
        await self.request(kind=N["WillStop"])
        for _ in range(self.chance.randrange(50)):
            await self.cycle()
        self.nic.stop()
        await self.request(kind=N["WasStopped"], first=LOST)
        self.stops += 1


@cocotb.test()
async def send(dut):
    await start(dut, ("request_valid_i", "request_i", "operation_valid_i", "operation_i", "outcome_ready_i", "bus_i"))
    done = frames = resends = failures = stops = 0
    for seed in range(SEEDS):
        dut.rst_ni.value = 0
        dut.operation_valid_i.value = 0
        await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        bench = Bench(dut, seed)
        for number in range(6):
            await bench.open(number)
        for command in range(COMMANDS):
            bench.owners[command] = bench.chance.randrange(6)
            await bench.request(kind=N["Bind"], connection=bench.owners[command], command=command)
        for _ in range(200):
            for _ in range(bench.chance.randint(5, 40)):
                await bench.cycle()
            await bench.software()
            if bench.chance.random() < 0.01:
                await bench.stop()
        # Everything that was taken ends.
        bench.resting, bench.loss, limit = True, 0, bench.cycles + 40_000
        while bench.pending or bench.offered is not None:
            await bench.cycle()
            if bench.cycles % 20 == 0:
                await bench.software()
            assert bench.cycles < limit, f"operations that do not end: {bench.pending.keys()}"
        done, frames = done + bench.done, frames + bench.frames
        resends, failures, stops = resends + bench.resends, failures + bench.failures, stops + bench.stops
    record(f"{done} operations, {frames} frames, {resends} times sent again, {failures} failed, {stops} resets")
    assert done > 40 and frames > 100 and resends > 3


@cocotb.test()
async def cycles(dut):
    """A block of 4 KiB: from the operation to the doorbell, where memory answers at once; TCP, a segmented frame."""
    await start(dut, ("request_valid_i", "operation_valid_i"))
    bench = Bench(dut, 0)
    bench.memory.chance = None
    await bench.request(kind=N["Open"], connection=0, opened=Connection(random.Random(1), True).template())
    await bench.request(kind=N["Bind"], connection=0, command=0)
    # Nothing comes between.
    bench.chance.random = lambda: 0.99
    identity = layouts.pack("operation_id_t", command=0)
    dut.operation_i.value = layouts.pack("operation_t", kind=C["DoWrite"], id=identity, length=BLOCK)
    dut.operation_valid_i.value = 1
    count = 0
    while not bench.nic.tail:
        taken = int(dut.operation_ready_o.value)
        await bench.cycle()
        if taken:
            dut.operation_valid_i.value = 0
        count += 1
    record(f"{count} cycles from an operation to the doorbell")
