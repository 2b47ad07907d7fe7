"""The whole card between hosts of several functions, two SSDs and a NIC with peers that lose frames: bytes and digests against hashlib,
zlib and OpenSSL; functions that are hostile or reset, commands that are stopped, devices that are reset."""

import random

import cocotb
from cocotb.triggers import FallingEdge
from commands import CARD_MEMORY, HOST, MOST, SSD, Card, base
from jobs import SEEDS, record
from layouts import constants
from owner import MEMORY, RESULT
from rig import BLOCKS, BUFFERS, DOORBELLS, RECEIVE_RING, SEND_RING, SSDS
from scenario import BLOCK, SIZES, Command, Transfer, cancel, random_parameters, spoil, write

C = constants("core_pkg")
LOST = 0x070A


async def begin(dut, seed, kind=Card, **given):
    dut.rst_ni.value = 0
    card = kind(dut, random.Random(seed), **given)
    await card.start()
    for index in range(C["Queues"]):
        card.make(index % len(card.hosts), card.chance.choice([4, 16]), 1 + index // len(card.hosts))
    await card.settle()
    return card


async def end(dut):
    dut.rst_ni.value = 0
    await FallingEdge(dut.clk_i)


def length_of(chance, most=5):
    return chance.choice([1, BLOCK, chance.randrange(1, 3 * BLOCK), chance.randrange(1, most * BLOCK)])


def makers_of(card, count, most=5, functions=None):
    chance, makers = card.chance, []
    for _ in range(count):
        ends = chance.choice(["ssd", "memory", "nic"]), chance.choice(["ssd", "memory", "nic"])
        chain = [chance.choice([*SIZES, C["OpAes256Ctr"], C["OpAes256Xts"]]) for _ in range(chance.choice([0, 1, 1, 2, 4]))]
        func = chance.randrange(len(card.hosts)) if functions is None else chance.choice(functions)
        makers.append((func, *ends, chain, length_of(chance, most)))
    return makers


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
        await card.run([(at % len(card.hosts), *way, length_of(card.chance)) for at, way in enumerate(2 * ways)])
        said.append(card)
        await end(dut)
    record(summary(said))


@cocotb.test()
async def random_ways(dut):
    """All functions at once, from anywhere to anywhere, through chains of all operators, with prefixes, extents, entries of both forms."""
    said = []
    for seed in range(SEEDS):
        card = await begin(dut, 1000 + seed)
        await card.run(makers_of(card, 24))
        said.append(card)
        await end(dut)
    record(summary(said))


def total(cards, name):
    counts = {}
    for card in cards:
        for key, count in getattr(card, name).items():
            counts[key] = counts.get(key, 0) + count
    return sorted(counts.items())


def summary(cards):
    text = ", ".join(f"{way} {count}" for way, count in total(cards, "ways"))
    sums = [sum(getattr(card, name) for card in cards) for name in ("moved", "digests", "frames", "resends", "kept", "cycle")]
    return "{}: {} bytes, {} digests, {} frames sent, {} times again, {} received, in {} cycles".format(text, *sums)


def ends_of(cards):
    return ", ".join(f"{count} of status {status:#x}" for status, count in total(cards, "ends"))


@cocotb.test()
async def refused(dut):
    """What no handle of the function allows is refused, and reaches no device."""
    card = await begin(dut, 7)
    for func in range(2):
        card.name(func, 27, "MemoryTarget", first=0x8000, last=0x8FFF, writable=0)
        card.name(func, 28, "MemoryTarget", first=0x9000, last=0x9FFF)
        card.name(func, 29, "SsdTarget", 0, 8192 * func, 8192 * func + 8191)
    card.name(0, 30, "MemoryTarget", first=0, last=MEMORY - 1)
    card.name(1, 31, "MemoryTarget", first=0, last=MEMORY - 1)
    await card.settle()
    memory, block, flow = C["EndpointMemory"], C["EndpointBlock"], C["EndpointFlow"]
    source, destination = C["StageSource"], C["StageDestination"]
    good = (memory, 27, [(0x8000, 100)])
    there = (memory, 28, [(0x9000, 100)])
    cases = [
        ((memory, 3, [(0x8000, 100)]), there, source, "StatusBadHandle"),
        (good, (memory, 1 << 20, [(0x9000, 100)]), destination, "StatusBadHandle"),
        (good, (memory, 27, [(0x8800, 100)]), destination, "StatusDataTransferError"),
        (good, (block, 28, [(0, 100)]), destination, "StatusUnsupportedEndpoint"),
        (good, (flow, 29, []), destination, "StatusUnsupportedEndpoint"),
        (good, (memory, 28, [(0x9FA0, 100)]), destination, "StatusDataTransferError"),
        (good, (memory, 28, [(0x8FFF, 100)]), destination, "StatusDataTransferError"),
        (good, (memory, 28, [((1 << 62), 100)]), destination, "StatusDataTransferError"),
        ((block, 29, [(8150, 100)]), there, source, "StatusOutOfRange"),
        ((block, 29, [(8192, 100)]), there, source, "StatusOutOfRange"),
        ((block, 29, [((1 << 64) - 8192, 100)]), there, source, "StatusOutOfRange"),
    ]
    # Whole memory, but of another function; then its SSD's part.
    others = [[((memory, 31 - func, [(0x8000, 100)]), there, source, "StatusBadHandle")] for func in range(2)]
    others = [
        others[func] + [(good, (block, base(1 - func) + SSD, [(0, 512)]), destination, "StatusBadHandle")] for func in range(2)
    ]
    number = 0
    for func, host in enumerate(card.hosts[:2]):
        host.used = 0xA000
        for case in cases + others[func]:
            await refuse(card, number, func, *case)
            number += 1
    card.check()
    record(f"{number} refused")
    await end(dut)


async def refuse(card, number, func, one, other, stage, status):
    transfer = Transfer([], b"", one[0], bytes(100), one[2], other[0], other[2], 100)
    transfer.handles = (one[1], other[1], base(func) + HOST)
    address = card.hosts[func].allocate(1024)
    ring = next(ring for ring in card.rings if ring.func == func)
    command = Command(number, ring.index, b"", b"", 100, address=address)
    command.way = None
    write(card.chance, command, transfer, False, (number, 0, 0, 0, address))
    card.hosts[func].store(address, command.descriptor)
    card.submit(ring.index, command.entry, command)
    while number not in card.done:
        await card.turn()
    entry = card.done[number]
    assert (entry["status"], entry["stage"]) == (C[status], stage), f"{func}, {number}: {entry}"


@cocotb.test()
async def stopped(dut):
    """Commands are stopped wherever they are, by Cancel and by Abort; the others are right, and everything comes back."""
    said = []
    for seed in range(SEEDS):
        card = await begin(dut, 2000 + seed)

        async def stop(card=card):
            commands = [command for command in card.owed() if command.way]
            if not commands:
                return
            command = card.chance.choice(commands)
            command.excuses.add(C["StatusCancelled"])
            ring = card.rings[command.queue]
            if card.chance.random() < 0.5 or not ring.room():
                card.ask("stop", {"stop_queue_i": ring.index, "stop_cid_i": command.cid})
                return
            stopper = cancel(card.count, ring.index, ring.number, command.cid, card.count)
            stopper.way = None
            card.submit(ring.index, stopper.entry, stopper)

        await card.run(makers_of(card, 24, 8), stop, 0.0005)
        said.append(card)
        await end(dut)
    assert any(status == C["StatusCancelled"] for status, _ in total(said, "ends"))
    record(f"{ends_of(said)}; {summary(said)}")


@cocotb.test()
async def functions_reset(dut):
    """A function is reset with whatever it has, while the others go on: nothing reaches its host behind that, and it begins again."""
    said, resets = [], 0
    for seed in range(SEEDS):
        card = await begin(dut, 3000 + seed)
        card.makers = makers_of(card, 30, 8)
        for _ in range(3):
            for _ in range(card.chance.randrange(1000, 6000)):
                await card.turn()
            await card.reset(card.chance.randrange(len(card.hosts)), card.turn)
            resets += 1
        await card.run(card.makers)
        said.append(card)
        await end(dut)
    assert any(status == C["StatusQueueDeleted"] for status, _ in total(said, "ends"))
    record(f"{resets} resets; {ends_of(said)}; {summary(said)}")


@cocotb.test()
async def devices_reset(dut):
    """An SSD is gone and is reset, the NIC is reset, with whatever they have: what they had fails, the others are right."""
    said, resets = [], [0, 0]
    for seed in range(SEEDS):
        card = await begin(dut, 4000 + seed, patience=40)
        card.lost = []

        async def accident(card=card):
            chance = card.chance
            card.lost = [command for command in card.lost if command.number not in card.done]
            if card.lost:
                # It may not have been fetched yet.
                for command in card.lost:
                    card.ask("stop", {"stop_queue_i": command.queue, "stop_cid_i": command.cid})
                return
            if chance.random() < 0.5:
                for command in card.owed():
                    if command.way and any(number is not None and not card.peers[number].sender.tcp for number in command.flows[1:]):
                        command.excuses.add(LOST)
                lost = await card.reset_nic(LOST, card.turn)
                resets[1] += 1
                # Nobody sends the datagrams again that it lost: whoever waits for them is stopped.
                for command in card.owed():
                    if command.way and command.flows[0] in lost:
                        command.excuses.add(C["StatusCancelled"])
                        card.lost.append(command)
                return
            number = chance.randrange(SSDS)
            if number in card.gone:
                return
            card.gone.append(number)
            card.ssds[number].gone = True
            resets[0] += 1
            for command in card.owed():
                if command.way and number in card.disks_of(command):
                    command.excuses.add(C["StatusDeviceReset"])

        await card.run(makers_of(card, 24, 8), accident, 0.0002)
        said.append(card)
        await end(dut)
    assert all(resets)
    record(f"{resets[0]} SSDs gone, {resets[1]} resets of the NIC; {ends_of(said)}; {summary(said)}")


class Attacked(Card):
    """Function 1's host is hostile: it may have any status, and its part of the SSDs and a window of its memory may have any bytes."""

    windows = {1: (0x8000, 0xFFFF)}
    last = 0x10000

    async def start(self):
        await super().start()
        for loose in self.loose:
            loose.append((self.parts[1], self.part))
        # A result area at the end of all addresses goes on at the first one.
        self.hosts[1].open += [(0, 4096), (0x8000, MEMORY - 0x8000)]
        self.hosts[1].used = 4096

    def attack(self):
        """An entry, a doorbell of another function's queue, or a Cancel of its command."""
        chance = self.chance
        ring = chance.choice([ring for ring in self.rings if ring.func == 1])
        others = [other for other in self.rings if other.func != 1]
        if chance.random() < 0.2:
            self.doorbells.append((chance.choice(others).index, chance.randrange(2), chance.randrange(20), 1))
            return
        if not ring.room() or len(ring.owed) > 8:
            return
        self.attacks += 1
        if chance.random() < 0.2:
            victim = chance.choice([command for command in self.owed() if command.way] or [None])
            if victim:
                number = self.rings[victim.queue].number
                command = cancel(self.count, ring.index, number, victim.cid, self.count)
                command.way = None
                return self.submit(ring.index, command.entry, command)
        self.submit(ring.index, *self.hostile(ring))

    attacks = 0

    def hostile(self, ring):
        chance = self.chance
        places = [0x8000, 0xFF00, 0x10000, MEMORY, BLOCKS, DOORBELLS + 0x1008, SEND_RING, RECEIVE_RING, BUFFERS, CARD_MEMORY]
        places += [CARD_MEMORY + MEMORY, 1 << 63, (1 << 64) - 64]
        size = len(self.ssds[0].disk)
        offsets = [0, 0x8000, 0x9001, self.part - 100, size // 2, size - 512, (1 << 64) - size // 2, *places]
        kinds = [C["EndpointMemory"], C["EndpointMemory"], C["EndpointDeviceMemory"], C["EndpointBlock"], C["EndpointFlow"]]
        length = chance.choice([1, 100, 512, BLOCK, chance.randrange(1, 2 * BLOCK)])

        def one():
            kind = chance.choice(kinds)
            return kind, [] if kind == C["EndpointFlow"] else [(chance.choice(offsets), length)]

        source, destination = one(), one()
        prefix = bytes(chance.randrange(1, 200)) if chance.random() < 0.2 else b""
        chain = [chance.choice([*SIZES, C["OpAes256Ctr"]]) for _ in range(chance.choice([0, 0, 1, 2]))]
        transfer = Transfer(chain, prefix, source[0], bytes(length), source[1], destination[0], destination[1], length + len(prefix))
        numbers = [*range(MOST), *range(base(1), base(1) + MOST), *range(base(1), base(1) + MOST), *range(40)]
        transfer.handles = tuple(chance.choice(numbers) for _ in range(3))
        transfer.parameters = {at: random_parameters(chance, op) for at, op in enumerate(chain) if op not in SIZES}
        address = self.last
        self.last = (self.last + 2048) % (MEMORY - 0x20000) + 0x10000 if self.last + 2048 < MEMORY - 4096 else 0x10000
        result = chance.choice([0, address + 1500 - RESULT % 8, *places])
        command = Command(self.count, ring.index, b"", b"", length, address=address)
        inline = chance.random() < 0.4 and not prefix and not transfer.parameters and len(chain) <= 2
        write(chance, command, transfer, inline, (self.count & 0xFFFF, 0, 0, result, chance.choice([address, address, address, *places])))
        if chance.random() < 0.3:
            spoil(chance, command)
        self.hosts[1].memory[address : address + len(command.descriptor)] = command.descriptor
        command.way, command.func = None, 1
        return command.entry, command


@cocotb.test()
async def a_hostile_function(dut):
    """Whatever a function's host names, writes and rings: the others' commands are right, and no byte of theirs changes."""
    said, attacks = [], 0
    for seed in range(SEEDS):
        card = await begin(dut, 5000 + seed, Attacked)

        async def attack(card=card):
            card.attack()

        card.makers = makers_of(card, 16, 5, [func for func in range(len(card.hosts)) if func != 1])
        while card.makers or any(command.way for command in card.owed()):
            if card.chance.random() < 0.01:
                card.attack()
            await card.turn()
        # What waits for its connections ends with them.
        await card.reset(1, card.turn)
        await card.rest()
        attacks += card.attacks
        said.append(card)
        await end(dut)
    record(f"{attacks} attacks; {ends_of(said)}; {summary(said)}")
