"""The whole card between a host, two SSDs and a NIC with peers that lose frames: bytes and digests against hashlib, zlib and OpenSSL."""

import random

import cocotb
import operators
from cocotb.triggers import FallingEdge
from jobs import SEEDS, record
from layouts import constants, unpack
from owner import MEMORY, RESULT
from rig import PEERS, SSDS, Rig
from scenario import BLOCK, SIZES, Command, Transfer, random_parameters, write
from test_engine_units import through

C = constants("core_pkg")
# Handles: memory of the host, memory of the card, the SSDs, connections.
HOST, OWN, SSD, FLOW = 1, 2, 4, 8
CARD_MEMORY = 0x7000_0000
PREFIX = bytes(at * 37 >> 3 & 255 for at in range(3000))
GUARD = 64


class Card(Rig):
    async def start(self):
        await super().start()
        self.memory[64 : 64 + len(PREFIX)] = PREFIX
        self.name(HOST, "MemoryTarget", first=0, last=MEMORY - 1)
        self.name(OWN, "MemoryTarget", first=CARD_MEMORY, last=CARD_MEMORY + MEMORY - 1)
        for number, ssd in enumerate(self.ssds):
            self.name(SSD + number, "SsdTarget", number, 0, len(ssd.disk) - 1)
        for number in range(PEERS):
            self.name(FLOW + number, "NicTarget", number)
            self.open(number)
        self.places, self.free = [0] * SSDS, CARD_MEMORY
        # What the disks have to have, who uses a direction of a connection, what was moved.
        self.disks = [bytearray(ssd.disk) for ssd in self.ssds]
        self.sends, self.reads, self.moved, self.digests, self.ways = set(), set(), 0, 0, {}
        await self.settle()

    # ---- Ends: each gives kind, handle, extents, and how its bytes are stored and seen ----

    def memory_end(self, own, length):
        if own:
            at = self.free + GUARD + self.chance.randrange(32)
            self.free = at + length + GUARD
            return C["EndpointDeviceMemory"], OWN, [(at, length)]
        at = self.allocate(length + 2 * GUARD + 32) + GUARD + self.chance.randrange(32)
        cut = self.chance.randrange(length)
        return C["EndpointMemory"], HOST, [(at, cut), (at + cut, length - cut)] if cut and self.chance.random() < 0.3 else [(at, length)]

    def ssd_end(self, number, length, writes):
        ssd = self.ssds[number]
        at = self.places[number] + (0 if writes else self.chance.randrange(ssd.size))
        cut = self.chance.randrange(length) // ssd.size * ssd.size
        self.places[number] = (at + length + 2 * ssd.size) // ssd.size * ssd.size
        assert self.places[number] <= len(ssd.disk)
        if cut and writes and self.chance.random() < 0.3:
            # The second one is ahead by a block that nobody writes.
            return C["EndpointBlock"], SSD + number, [(at, cut), (at + cut + ssd.size, length - cut)]
        return C["EndpointBlock"], SSD + number, [(at, length)]

    def put(self, end, data):
        """Stores a source's bytes."""
        kind, handle, extents = end
        if kind == C["EndpointFlow"]:
            self.peers[handle - FLOW].to_send += data
            return
        for at, length in extents:
            piece, data = data[:length], data[length:]
            if kind == C["EndpointBlock"]:
                for disk in (self.ssds[handle - SSD].disk, self.disks[handle - SSD]):
                    disk[at : at + length] = piece
            elif handle == HOST:
                self.memory[at : at + length] = piece
            else:
                self.bus.load(at, piece)

    def seen(self, end):
        kind, handle, extents = end
        disk = self.ssds[handle - SSD].disk if kind == C["EndpointBlock"] else None
        pieces = [disk[at : at + n] if disk else self.memory[at : at + n] if handle == HOST else self.bus.store(at, n) for at, n in extents]
        return b"".join(map(bytes, pieces))

    def around(self, end):
        """Bytes before and behind a destination in memory."""
        _, handle, extents = end
        low, high = extents[0][0], extents[-1][0] + extents[-1][1]
        places = [(low - GUARD, GUARD), (high, GUARD)]
        return [bytes(self.memory[at : at + n]) if handle == HOST else self.bus.store(at, n) for at, n in places]

    # ---- Commands ----

    def plan(self, number, source, destination, chain, length):
        """A command from one end to another; nothing if a connection is in use, false if it would fail."""
        chance = self.chance
        prefix = PREFIX[: chance.randrange(1, len(PREFIX))] if chance.random() < 0.15 else b""
        total = length + len(prefix)
        flows = [None, None]
        if source == "nic":
            free = [peer for peer in range(PEERS) if peer not in self.reads]
            if not free or len(self.reads) > 1:
                return None
            flows[0] = chance.choice(free)
        if destination == "nic":
            free = [peer for peer in range(PEERS) if peer not in self.sends]
            if not free:
                return None
            flows[1] = chance.choice(free)
        ends = []
        for place, (end, flow, size) in enumerate(((source, flows[0], length), (destination, flows[1], total))):
            if end == "nic":
                ends.append((C["EndpointFlow"], FLOW + flow, []))
            elif end == "memory":
                ends.append(self.memory_end(chance.random() < 0.2, size))
            else:
                ends.append(self.ssd_end(chance.randrange(SSDS), size, place == 1))
        data = chance.randbytes(length)
        transfer = Transfer(chain, prefix, ends[0][0], data, ends[0][2], ends[1][0], ends[1][2], total)
        transfer.handles = (ends[0][1], ends[1][1], HOST)
        transfer.parameters = {at: random_parameters(chance, op) for at, op in enumerate(chain) if op not in SIZES}
        expected, failure = through(transfer, prefix + data, len(chain))
        if failure is not None:
            # A data unit of XTS that is too short: engine_units' bench has it.
            return False
        self.put(ends[0], data)
        address, result = self.allocate(2048) + chance.choice([0, 8, 3, 13]), self.allocate(RESULT + 16) + 8 * chance.randrange(2)
        command = Command(number, chance.randrange(len(self.rings)), b"", b"", length, address=address)
        inline = not prefix and len(chain) <= 2 and not transfer.parameters and chance.random() < 0.4
        inline = inline and max(len(end[2]) for end in ends) < 2
        flags = chance.choice([0, C["FlagDurable"]])
        write(chance, command, transfer, inline, (number, 0, flags, result, address))
        self.memory[address : address + len(command.descriptor)] = command.descriptor
        command.ends, command.flows, command.expected, command.given = ends, flows, expected, prefix + data
        command.way = f"{source} -> {destination}"
        if destination == "memory":
            command.around = self.around(ends[1])
        if flows[0] is not None:
            self.reads.add(flows[0])
        if flows[1] is not None:
            self.sends.add(flows[1])
            self.peers[flows[1]].sender.stream += expected
        return command

    def finished(self, command, entry):
        if command.way is None:
            return
        what = f"command {command.number}, {command.way}, {command.transfer.chain}: {entry}"
        assert (entry["status"], entry["delivered"]) == (0, len(command.expected)), what
        source, destination = command.flows
        if destination is None:
            found = self.seen(command.ends[1])
            assert found == command.expected, f"{what}: other bytes"
            self.settled(command)
        else:
            sender = self.peers[destination].sender
            assert len(sender.got) == len(sender.stream), f"{what}: ends before its peer has all"
            self.sends.discard(destination)
        self.reads.discard(source)
        area = unpack("result_t", int.from_bytes(self.memory[command.result :][:RESULT], "little"))
        assert area["bytes_in"] == len(command.given), what
        for at, operator in enumerate(command.transfer.chain):
            told = unpack("digest_t", area["digests"] >> 640 * at & (1 << 640) - 1)
            if operator in SIZES:
                data, _ = through(command.transfer, command.given, at, False)
                value = operators.digest(operator, data)
                assert told["value"].to_bytes(64, "little")[: told["size"]] == value, f"{what}: digest {at}"
                assert told["covered"] == len(data), what
                self.digests += 1
        self.moved += len(command.expected)
        self.ways[command.way] = self.ways.get(command.way, 0) + 1

    def settled(self, command):
        """Nothing beside the destination has changed; the disk's own copy takes what was written."""
        kind, handle, extents = command.ends[1]
        if kind != C["EndpointBlock"]:
            assert self.around(command.ends[1]) == command.around, f"{command.way}: bytes beside it"
            return
        data = command.expected
        for at, length in extents:
            self.disks[handle - SSD][at : at + length], data = data[:length], data[length:]

    def check(self):
        """All of the disks, and of the streams."""
        for number, ssd in enumerate(self.ssds):
            assert ssd.disk == self.disks[number], f"SSD {number}: bytes that nobody should write"
        for peer in self.peers:
            assert peer.sender.got == peer.sender.stream, "a peer has other bytes"


async def begin(dut, seed, **given):
    dut.rst_ni.value = 0
    card = Card(dut, random.Random(seed), **given)
    await card.start()
    for weight in (1, 2):
        await card.create(16, weight)
    return card


async def run(card, makers, most=8):
    """Does what the makers plan, several commands at once."""
    count, quiet = 0, 0
    while makers or any(ring.owed for ring in card.rings) or not card.sees("idle_o"):
        owed = sum(len(ring.owed) for ring in card.rings)
        if makers and owed < most and (card.chance is None or card.chance.random() < 0.02):
            command = card.plan(count, *makers[0])
            if command:
                card.submit(command.queue, command.entry, command)
                makers.pop(0)
                count += 1
            elif command is False:
                makers.pop(0)
        done = len(card.done)
        await card.step()
        quiet = 0 if len(card.done) > done else quiet + 1
        assert quiet < 60_000, f"hangs: {[command.way for ring in card.rings for command in ring.owed]}"
    for _ in range(50):
        await card.step()
    card.check()


def length_of(chance):
    return chance.choice([1, BLOCK, chance.randrange(1, 3 * BLOCK), chance.randrange(1, 5 * BLOCK)])


@cocotb.test()
async def papers_ways(dut):
    """SSD -> md5 -> memory, SSD -> aes256-ctr -> SSD, SSD -> md5 -> NIC, NIC -> crc32c -> SSD and memory."""
    said = []
    for seed in range(SEEDS):
        card = await begin(dut, seed)
        ways = [
            ("ssd", "memory", [C["OpMd5"]]),
            ("ssd", "ssd", [C["OpAes256Ctr"]]),
            ("ssd", "nic", [C["OpMd5"]]),
            ("nic", "ssd", [C["OpCrc32c"]]),
            ("nic", "memory", [C["OpCrc32c"]]),
        ]
        await run(card, [(*way, length_of(card.chance)) for way in 2 * ways])
        said.append(card)
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
    record(summary(said))


@cocotb.test()
async def random_ways(dut):
    """From anywhere to anywhere, through chains of all operators, with prefixes, extents and entries of both forms."""
    said = []
    for seed in range(SEEDS):
        card = await begin(dut, 1000 + seed)
        chance, makers = card.chance, []
        for _ in range(20):
            ends = chance.choice(["ssd", "memory", "nic"]), chance.choice(["ssd", "memory", "nic"])
            chain = [chance.choice([*SIZES, C["OpAes256Ctr"], C["OpAes256Xts"]]) for _ in range(chance.choice([0, 1, 1, 2, 4]))]
            makers.append((*ends, chain, length_of(chance)))
        await run(card, makers)
        said.append(card)
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
    record(summary(said))


def summary(cards):
    ways = {}
    for card in cards:
        for way, count in card.ways.items():
            ways[way] = ways.get(way, 0) + count
    text = ", ".join(f"{way} {count}" for way, count in sorted(ways.items()))
    sums = [sum(getattr(card, name) for card in cards) for name in ("moved", "digests", "frames", "resends", "kept", "cycle")]
    return "{}: {} bytes, {} digests, {} frames sent, {} times again, {} received, in {} cycles".format(text, *sums)


@cocotb.test()
async def refused(dut):
    """What no handle allows is refused, and reaches no device."""
    card = await begin(dut, 7)
    card.name(20, "MemoryTarget", first=0x8000, last=0x8FFF, writable=0)
    card.name(21, "MemoryTarget", first=0x9000, last=0x9FFF)
    card.name(22, "SsdTarget", 0, 0, 8191)
    await card.settle()
    memory, block, flow = C["EndpointMemory"], C["EndpointBlock"], C["EndpointFlow"]
    source, destination = C["StageSource"], C["StageDestination"]
    good = (memory, 20, [(0x8000, 100)])
    cases = [
        ((memory, 30, [(0x8000, 100)]), (memory, 21, [(0x9000, 100)]), source, "StatusBadHandle"),
        (good, (memory, 1 << 20, [(0x9000, 100)]), destination, "StatusBadHandle"),
        (good, (memory, 20, [(0x8800, 100)]), destination, "StatusDataTransferError"),
        (good, (block, 21, [(0, 100)]), destination, "StatusUnsupportedEndpoint"),
        (good, (flow, SSD, []), destination, "StatusUnsupportedEndpoint"),
        (good, (memory, 21, [(0x9FA0, 100)]), destination, "StatusDataTransferError"),
        (good, (memory, 21, [(0x8FFF, 100)]), destination, "StatusDataTransferError"),
        (good, (memory, 21, [((1 << 62), 100)]), destination, "StatusDataTransferError"),
        ((block, 22, [(8150, 100)]), (memory, 21, [(0x9000, 100)]), source, "StatusOutOfRange"),
    ]
    before, disks = bytes(card.memory[0x8000:0xA000]), [bytes(ssd.disk) for ssd in card.ssds]
    card.used = 0xA000
    for number, (one, other, stage, status) in enumerate(cases):
        transfer = Transfer([], b"", one[0], bytes(100), one[2], other[0], other[2], 100)
        transfer.handles = (one[1], other[1], HOST)
        address = card.allocate(1024)
        command = Command(number, 0, b"", b"", 100, address=address)
        command.way = None
        write(card.chance, command, transfer, False, (number, 0, 0, 0, address))
        card.memory[address : address + len(command.descriptor)] = command.descriptor
        card.submit(0, command.entry, command)
        while number not in card.done:
            await card.step()
            assert card.cycle < 100_000
        entry = card.done[number]
        assert (entry["status"], entry["stage"]) == (C[status], stage), f"{number}: {entry}"
    assert bytes(card.memory[0x8000:0xA000]) == before and disks == [bytes(ssd.disk) for ssd in card.ssds]
    record(f"{len(cases)} refused")
