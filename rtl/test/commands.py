"""Commands of a card's functions from anywhere to anywhere: each function has its own host, handles, parts of the SSDs and connections,
and all that it does is checked against those."""

import operators
from layouts import constants, unpack
from owner import MEMORY, RESULT
from rig import PEERS, SSDS, Rig
from scenario import BLOCK, SIZES, Command, Transfer, random_parameters, write
from test_engine_units import through

C = constants("core_pkg")
# Handles, from a function's first one on: memory of its host, memory of the card, parts of the SSDs, connections.
HOST, OWN, SSD, FLOW, MOST = 1, 2, 4, 6, 12
CARD_MEMORY = 0x7000_0000
PREFIX = bytes(at * 37 >> 3 & 255 for at in range(3000))
GUARD = 64
WINDOW = (0, MEMORY - 1)


def base(func):
    """Where a function's handles begin: no two have the same numbers."""
    return func * (MOST - 2)


class Card(Rig):
    # Windows of hosts' memory that handles name, where it is not all.
    windows = {}

    async def start(self):
        await super().start()
        # Parts of the SSDs: where each begins, and what of it was used; of the card's memory likewise.
        size = self.part = len(self.ssds[0].disk) // len(self.hosts) // BLOCK * BLOCK
        self.parts = [func * size for func in range(len(self.hosts))]
        self.places = [[0] * SSDS for _ in self.hosts]
        self.free = [CARD_MEMORY + func * MEMORY for func in range(len(self.hosts))]
        for host in self.hosts:
            host.store(64, PREFIX)
            first, last = self.windows.get(host.func, WINDOW)
            at, card_memory = base(host.func), self.free[host.func]
            self.name(host.func, at + HOST, "MemoryTarget", first=first, last=last)
            self.name(host.func, at + OWN, "MemoryTarget", first=card_memory, last=card_memory + MEMORY - 1, own=1)
            for number in range(SSDS):
                start = self.parts[host.func]
                self.name(host.func, at + SSD + number, "SsdTarget", number, start, start + size - 1)
            for number in self.flows(host.func):
                self.name(host.func, at + FLOW + number, "NicTarget", number)
        for number in range(PEERS):
            self.open(number)
        # What the disks have to have, and where anything may be; who uses a direction of a connection; what was moved.
        self.disks, self.loose = [bytearray(ssd.disk) for ssd in self.ssds], [[] for _ in self.ssds]
        self.sends, self.reads, self.moved, self.digests, self.ways, self.ends = set(), set(), 0, 0, {}, {}
        # Functions that are being reset; commands that are done, for a last look.
        self.resetting, self.count, self.quiet, self.kept_ends, self.makers, self.most = set(), 0, 0, [], [], 8
        await self.settle()

    def flows(self, func):
        return range(func, PEERS, len(self.hosts))

    # ---- Ends: each gives kind, handle, extents, and how its bytes are stored and seen ----

    def memory_end(self, func, own, length):
        if own:
            at = self.free[func] + GUARD + self.chance.randrange(32)
            self.free[func] = at + length + GUARD
            return C["EndpointDeviceMemory"], base(func) + OWN, [(at, length)]
        at = self.hosts[func].allocate(length + 2 * GUARD + 32) + GUARD + self.chance.randrange(32)
        cut = self.chance.randrange(length)
        two = cut and self.chance.random() < 0.3
        return C["EndpointMemory"], base(func) + HOST, [(at, cut), (at + cut, length - cut)] if two else [(at, length)]

    def ssd_end(self, func, number, length, writes):
        ssd, places, handle = self.ssds[number], self.places[func], base(func) + SSD + number
        at = places[number] + (0 if writes else self.chance.randrange(ssd.size))
        cut = self.chance.randrange(length) // ssd.size * ssd.size
        places[number] = (at + length + 2 * ssd.size) // ssd.size * ssd.size
        assert places[number] <= self.part
        if cut and writes and self.chance.random() < 0.3:
            # The second one is ahead by a block that nobody writes.
            return C["EndpointBlock"], handle, [(at, cut), (at + cut + ssd.size, length - cut)]
        return C["EndpointBlock"], handle, [(at, length)]

    def pieces(self, func, end):
        """What has an end's bytes, and where: the host's memory, the number of an SSD, or nothing for the card's memory."""
        kind, handle, extents = end
        where = self.hosts[func] if handle == base(func) + HOST else None
        start = 0
        if kind == C["EndpointBlock"]:
            where, start = handle - base(func) - SSD, self.parts[func]
        return where, [(start + at, length) for at, length in extents]

    def put(self, func, end, data):
        """Stores a source's bytes."""
        if end[0] == C["EndpointFlow"]:
            self.peers[end[1] - base(func) - FLOW].to_send += data
            return
        where, places = self.pieces(func, end)
        for at, length in places:
            piece, data = data[:length], data[length:]
            if isinstance(where, int):
                for disk in (self.ssds[where].disk, self.disks[where]):
                    disk[at : at + length] = piece
            elif where:
                where.store(at, piece)
            else:
                self.bus.load(at, piece)

    def seen(self, func, end):
        where, places = self.pieces(func, end)
        if where is None:
            return b"".join(self.bus.store(at, n) for at, n in places)
        memory = self.ssds[where].disk if isinstance(where, int) else where.memory
        return b"".join(bytes(memory[at : at + n]) for at, n in places)

    def around(self, func, end):
        """Bytes before and behind a destination in the card's memory; all of hosts' memory is compared at the end."""
        if end[1] != base(func) + OWN:
            return None
        low, high = end[2][0][0], end[2][-1][0] + end[2][-1][1]
        return [self.bus.store(at, GUARD) for at in (low - GUARD, high)]

    # ---- Commands ----

    def plan(self, func, source, destination, chain, length):
        """A command from one end to another; nothing if there is no room or a connection is in use, false if it would fail."""
        chance, host = self.chance, self.hosts[func]
        rings = [ring for ring in self.rings if ring.func == func and ring.there and ring.room()]
        if not rings:
            return None
        prefix = PREFIX[: chance.randrange(1, len(PREFIX))] if chance.random() < 0.15 else b""
        total = length + len(prefix)
        flows = [None, None]
        if source == "nic":
            free = [peer for peer in self.flows(func) if peer not in self.reads and self.peers[peer].is_ready()]
            if not free or len(self.reads) > 1:
                return None
            flows[0] = chance.choice(free)
        if destination == "nic":
            free = [peer for peer in self.flows(func) if peer not in self.sends and self.peers[peer].is_ready()]
            if not free:
                return None
            flows[1] = chance.choice(free)
        ends = []
        for place, (end, flow, size) in enumerate(((source, flows[0], length), (destination, flows[1], total))):
            if end == "nic":
                ends.append((C["EndpointFlow"], base(func) + FLOW + flow, []))
            elif end == "memory":
                ends.append(self.memory_end(func, chance.random() < 0.2, size))
            else:
                ends.append(self.ssd_end(func, chance.randrange(SSDS), size, place == 1))
        data = chance.randbytes(length)
        transfer = Transfer(chain, prefix, ends[0][0], data, ends[0][2], ends[1][0], ends[1][2], total)
        transfer.handles = (ends[0][1], ends[1][1], base(func) + HOST)
        transfer.parameters = {at: random_parameters(chance, op) for at, op in enumerate(chain) if op not in SIZES}
        expected, failure = through(transfer, prefix + data, len(chain))
        if failure is not None:
            # A data unit of XTS that is too short: engine_units' bench has it.
            return False
        self.put(func, ends[0], data)
        address, result = host.allocate(2048) + chance.choice([0, 8, 3, 13]), host.allocate(RESULT + 16) + 8 * chance.randrange(2)
        host.open.append((result, RESULT))
        command = Command(self.count, chance.choice(rings).index, b"", b"", length, address=address)
        inline = not prefix and len(chain) <= 2 and not transfer.parameters and chance.random() < 0.4
        inline = inline and max(len(end[2]) for end in ends) < 2
        flags = chance.choice([0, C["FlagDurable"]])
        write(chance, command, transfer, inline, (self.count, 0, flags, result, address))
        host.store(address, command.descriptor)
        command.func, command.ends, command.flows = func, ends, flows
        command.expected, command.given, command.way = expected, prefix + data, f"{source} -> {destination}"
        # Statuses that it may end with, besides success.
        command.excuses = {C["StatusDeviceReset"]} if set(self.disks_of(command)) & set(self.gone) else set()
        command.around = self.around(func, ends[1])
        if flows[0] is not None:
            self.reads.add(flows[0])
        if flows[1] is not None:
            self.sends.add(flows[1])
            self.peers[flows[1]].sender.stream += expected
        return command

    def disks_of(self, command):
        ends = [end for end in command.ends if end[0] == C["EndpointBlock"]]
        return [handle - base(command.func) - SSD for _, handle, _ in ends]

    def submit(self, queue, entry, command):
        super().submit(queue, entry, command)
        self.count += 1

    def work(self):
        """Sometimes gives the next command that can be given to its function."""
        if not self.makers or len(self.owed()) >= self.most or self.chance.random() > 0.02:
            return
        at = next((at for at, maker in enumerate(self.makers) if maker[0] not in self.resetting), None)
        command = None if at is None else self.plan(*self.makers[at])
        if command is not None:
            self.makers.pop(at)
        if command:
            self.submit(command.queue, command.entry, command)

    async def turn(self):
        self.work()
        await self.step()
        self.quiet += 1
        assert self.quiet < 60_000, f"hangs: {[(command.func, command.way, command.flows) for command in self.owed()]}"

    async def run(self, makers, then=None, share=0):
        """Does what the makers plan, several commands at once; now and then something else."""
        self.makers = makers
        while self.makers or self.owed() or not self.sees("idle_o"):
            if then and self.chance.random() < share:
                await then()
            await self.turn()
        await self.rest()

    async def rest(self):
        for _ in range(50):
            await self.step()
        self.check()

    def owed(self):
        return [command for ring in self.rings for command in ring.owed]

    def finished(self, command, entry):
        self.quiet = 0
        status = entry["status"]
        self.ends[status] = self.ends.get(status, 0) + 1
        if command.way is None:
            return
        what = f"command {command.number} of {command.func}, {command.way}, {command.transfer.chain}: {entry}"
        if status:
            assert status in command.excuses, what
            return self.abandon(command)
        assert entry["delivered"] == len(command.expected), what
        self.check_bytes(command, what)
        area = unpack("result_t", int.from_bytes(self.hosts[command.func].memory[command.result :][:RESULT], "little"))
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

    def check_bytes(self, command, what):
        """All has arrived, and nothing beside it has changed."""
        func, end, data = command.func, command.ends[1], command.expected
        destination = command.flows[1]
        if destination is not None:
            sender = self.peers[destination].sender
            assert len(sender.got) == len(sender.stream), f"{what}: ends before its peer has all"
        self.leave(command)
        if destination is not None:
            return
        assert self.seen(func, end) == data, f"{what}: other bytes"
        assert self.around(func, end) == command.around, f"{what}: bytes beside it"
        self.kept_ends.append((func, end, data))
        where, places = self.pieces(func, end)
        for at, length in places if where is not None else ():
            wanted = self.disks[where] if isinstance(where, int) else where.wanted
            wanted[at : at + length], data = data[:length], data[length:]

    def abandon(self, command):
        """It has ended somewhere: anything may be at its destination, and its connections are of no use any more."""
        where, places = self.pieces(command.func, command.ends[1])
        if isinstance(where, int):
            # Whole logical blocks, as far as they are its own.
            size = self.ssds[where].size
            self.loose[where] += [(at, -(-length // size) * size) for at, length in places]
        elif where:
            where.open += places
        for number in set(command.flows) - {None}:
            if not self.peers[number].failed:
                self.stop_users(number)
        self.leave(command)

    def leave(self, command):
        """Its directions are free. A connection that has failed is opened again when nobody uses it any more."""
        for users, number in zip((self.reads, self.sends), command.flows):
            users.discard(number)
        for number in set(command.flows) - {None}:
            is_used = number in self.reads or number in self.sends
            if self.peers[number].failed and not is_used and command.func not in self.resetting:
                self.reopen(number)

    def stop_users(self, number):
        """A connection fails, for all that use it."""
        self.fail(number, C["StatusPeerReset"])
        for command in self.owed():
            if command.way and number in command.flows:
                command.excuses.add(C["StatusPeerReset"])

    def check(self):
        """All of hosts' memory, of the disks, and of the streams; destinations in the card's memory as they were."""
        for host in self.hosts:
            host.check()
        for number, ssd in enumerate(self.ssds):
            for at, length in self.loose[number]:
                self.disks[number][at : at + length] = ssd.disk[at : at + length]
            assert ssd.disk == self.disks[number], f"SSD {number}: bytes that nobody should write"
        for peer in self.peers:
            assert peer.sender.got == peer.sender.stream, "a peer has other bytes"
        for func, end, data in self.kept_ends:
            assert self.seen(func, end) == data, "bytes that changed later"

    # ---- Functions come and go ----

    async def reset(self, func, turn):
        """A function's queues are deleted, whatever they have, and nothing reaches its host behind that; then it begins again."""
        self.resetting.add(func)
        rings = [ring for ring in self.rings if ring.func == func and not ring.going]
        for command in self.owed():
            # A hostile host has commands that are nobody's.
            if command.way and command.func == func:
                command.excuses |= {C["StatusQueueDeleted"], C["StatusPeerReset"]}
        # The host may take no completions any more: those for which there is no room are dropped.
        mute = self.chance.random() < 0.7
        for ring in rings:
            ring.mute = mute
            self.delete(ring)
        # Software ends its connections at some time.
        for _ in range(self.chance.randrange(400)):
            await turn()
        for number in self.flows(func):
            self.stop_users(number)
        since = self.cycle
        while not all(ring.gone for ring in rings):
            await turn()
            assert self.cycle - since < 60_000, f"function {func} is not reset: {[command.way for command in self.owed()]}"
        self.host_buses[func].open = False
        for ring in rings:
            for command in ring.owed:
                if command.way:
                    self.abandon(command)
            ring.owed.clear()
        for _ in range(1000):
            await turn()
        self.host_buses[func].open = True
        for number in self.flows(func):
            self.reads.discard(number)
            self.sends.discard(number)
            self.reopen(number)
        for ring in rings:
            self.make(func, ring.depth, 1 + self.chance.randrange(3), ring.index)
        while not all(self.rings[ring.index].there for ring in rings):
            await turn()
        self.resetting.remove(func)
