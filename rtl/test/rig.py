"""The rest of a server around `card`: hosts of its functions, the devices' bus, the card's window on it, two SSDs, a NIC with peers, and
what is left to software."""

import struct
from collections import deque

from bus import BEAT, VALID, Memory, pack, unpack
from layouts import constants, package
from layouts import pack as packed
from layouts import unpack as unpacked
from nic import Nic, ReceiveRing, parse, sound
from owner import MEMORY, Ring, World
from ssd import HEAD, TAIL, Ssd
from test_nic_controller import Connection as Sender
from test_nic_receive import Connection as Receiver

C, N, K = constants("core_pkg"), constants("nic_pkg"), constants("card_pkg")
SSDS, PEERS = 2, 6
# Those of the peers that take and send datagrams.
DATAGRAMS = (4, 5)
BLOCKS = 1 << 32
OWN = [BLOCKS + (C["Blocks"] + 4 * number) * 4096 for number in range(SSDS)]
WINDOW = range(BLOCKS, OWN[-1] + 4 * 4096)
DOORBELLS = 0x2_0000_0000
SEND_RING, SEND_TAIL = 0x2000_0000, 0x3000_3818
BUFFERS, RECEIVE_RING, RECEIVE_TAIL, BUFFER = 0x4000_0000, 0x5000_0000, 0x3000_2818, 2048
MASK = (1 << 32) - 1
# Ports of software that are heard at once; those whose names differ.
ALWAYS = ("set", "create", "delete")
VALIDS = {"create": "create_i", "delete": "delete_i"}
# Cycles without an acknowledgement, after which software has something sent again.
PATIENCE = 4000
# Descriptors that the receive ring has when a datagram comes: so there is a buffer for its payload.
UDP_ROOM = N["Buffers"] // 2 + 1


class Host:
    """A function's host: its memory, and what must be in it."""

    def __init__(self, func):
        self.func, self.memory, self.wanted, self.used = func, bytearray(MEMORY), bytearray(MEMORY), 4096
        # Places where anything may be.
        self.open = []

    def allocate(self, size):
        at = self.used
        self.used += (size + 63) // 64 * 64
        assert self.used <= MEMORY
        return at

    def store(self, at, data):
        """What software writes."""
        self.memory[at : at + len(data)] = self.wanted[at : at + len(data)] = data

    def check(self):
        for at, length in self.open:
            self.wanted[at : at + length] = self.memory[at : at + length]
        assert self.memory == self.wanted, f"host {self.func}: bytes that nobody should write"


class Slice:
    """A port that is one of several in a vector."""

    def __init__(self, port, number, count):
        self.port, self.width = port, len(port) // count
        self.shift, self.mask = number * self.width, (1 << self.width) - 1

    @property
    def value(self):
        return int(self.port.value) >> self.shift & self.mask


class Answers(Slice):
    """Those that are driven: the vector is what all of them say."""

    said = {}

    @property
    def value(self):
        return self.said[self.shift]

    @value.setter
    def value(self, bits):
        self.said[self.shift] = bits
        self.port.value = sum(part << shift for shift, part in self.said.items())


class HostBus(Memory):
    """What the card reads and writes of a host. `open` until the function is reset: then nothing comes any more."""

    def __init__(self, rig, host, count):
        self.host, self.open = host, True
        super().__init__(Slice(rig.dut.host_o, host.func, count), Answers(rig.dut.host_i, host.func, count), rig.chance)
        self.broken = range(MEMORY, 1 << 64)

    def load(self, address, data):
        self.host.memory[address : address + len(data)] = data

    def store(self, address, length):
        return bytes(self.host.memory[address : address + length]).ljust(length, b"\0")

    def sample(self):
        assert self.open or not self.request.value & VALID, f"host {self.host.func} is reached behind its function's reset"
        super().sample()


class Window:
    """Whoever reaches the card's window over the bus: one read and one write at a time, in their order."""

    def __init__(self, dut, chance):
        self.dut, self.chance = dut, chance
        self.reads, self.writes = deque(), deque()
        self.read = self.write = None
        self.offered = {"ar": None, "aw": None, "w": None}
        self.beats, self.data = deque(), b""

    def may(self, share=0.8):
        return self.chance is None or self.chance.random() < share

    def load(self, address, length, then, owner=None):
        self.reads.append((address, length, then, owner))

    def store(self, address, data, then=None, owner=None):
        self.writes.append((address, bytes(data), then, owner))

    def forget(self, owner):
        """A device was reset: what it would do is not done."""
        self.reads = deque(read for read in self.reads if read[3] is not owner)
        self.writes = deque(write for write in self.writes if write[3] is not owner)

    def busy(self, owner):
        return any(move is not None and move[3] is owner for move in (self.read, self.write))

    def address(self, address, length):
        first, last = address // BEAT, (address + length - 1) // BEAT
        assert address // 4096 == (address + length - 1) // 4096, "within a page"
        number = self.chance.randrange(16) if self.chance else 0
        return pack("address_t", addr=first * BEAT, id=number, len=last - first, size=4, burst=1), last - first + 1

    def drive(self):
        if self.read is None and self.reads and self.may():
            self.read, self.data = self.reads.popleft(), b""
            self.offered["ar"], _ = self.address(*self.read[:2])
        if self.write is None and self.writes and self.may():
            self.write = self.writes.popleft()
            address, data, *_ = self.write
            self.offered["aw"], count = self.address(address, len(data))
            skip = address % BEAT
            padded = bytes(skip) + data + bytes(-(skip + len(data)) % BEAT)
            for at in range(count):
                keep = sum(1 << place for place in range(BEAT) if skip <= at * BEAT + place < skip + len(data))
                word = int.from_bytes(padded[at * BEAT : (at + 1) * BEAT], "little")
                self.beats.append(pack("write_t", data=word, strb=keep, last=int(at == count - 1)))
        if self.offered["w"] is None and self.beats and self.may():
            self.offered["w"] = self.beats.popleft()
        self.ready = {"r_ready": int(self.may()), "b_ready": int(self.may())}
        fields = {name: bits or 0 for name, bits in self.offered.items()}
        fields |= {f"{name}_valid": int(bits is not None) for name, bits in self.offered.items()}
        self.dut.window_i.value = pack("request_t", **fields, **self.ready)

    def sample(self):
        if self.read is None and self.write is None:
            return
        seen = unpack("response_t", int(self.dut.window_o.value))
        for channel in self.offered:
            if self.offered[channel] is not None and seen[f"{channel}_ready"]:
                self.offered[channel] = None
        if seen["r_valid"] and self.ready["r_ready"]:
            beat = unpack("read_t", seen["r"])
            assert beat["resp"] == 0
            self.data += beat["data"].to_bytes(BEAT, "little")
            if beat["last"]:
                address, length, then, _ = self.read
                self.read = None
                then(self.data[address % BEAT :][:length])
        if seen["b_valid"] and self.ready["b_ready"]:
            assert unpack("written_t", seen["b"])["resp"] == 0
            then, self.write = self.write[2], None
            if then:
                then()


class Bus(Memory):
    """What the card reads and writes but hosts: memory, the NIC's rings, doorbells, its own window."""

    def __init__(self, rig):
        super().__init__(rig.dut.bus_o, rig.dut.bus_i, rig.chance)
        self.rig = rig

    def store(self, address, length):
        assert address >= MEMORY, "no host's memory is on the devices' bus"
        assert address not in WINDOW, "the card reads its own window"
        return super().store(address, length)

    def arrived(self, start, run, answer):
        rig = self.rig
        if start in WINDOW:
            return rig.window.store(start, run, lambda: answer(False))
        assert start >= MEMORY, "no host's memory is on the devices' bus"
        if start >= DOORBELLS:
            number, register = divmod(start - DOORBELLS, 0x1_0000)
            assert len(run) == 4
            ssd = rig.ssds[number]
            # One that is being reset doesn't hear it.
            if not ssd.off and not ssd.gone:
                ssd.rung(register, int.from_bytes(run, "little"))
            return answer(ssd.gone)
        self.bytes.update(enumerate(run, start))
        rig.nic.saw(start, run)
        rig.receiving.saw(start, run)
        return answer(False)


class CardSsd(Ssd):
    """An SSD that reaches rings and blocks by the card's window."""

    def __init__(self, rig, number, size, shift):
        self.blocks_at, self.own_at, self.window, self.off = BLOCKS, OWN[number], rig.window, False
        super().__init__(None, rig.chance, None, size, shift)

    def reset(self):
        super().reset()
        self.window.forget(self)

    def still(self, then):
        """What comes then, but not behind a reset."""
        epoch = self.epoch
        return then and (lambda *given: then(*given) if epoch == self.epoch else None)

    def get(self, index, then):
        self.window.load(self.own_at + BEAT * index, BEAT, self.still(then), self)

    def put(self, index, data, keep, then=None):
        low, high = (keep & -keep).bit_length() - 1, keep.bit_length()
        self.window.store(self.own_at + BEAT * index + low, bytes(data)[low:high], self.still(then), self)

    def give(self, address, data, then):
        self.window.store(address, data, self.still(then), self)

    def ask(self, address, count, then):
        self.window.load(address, count, self.still(then), self)

    def step(self):
        self.cycle += 1
        self.work(len(self.window.reads) < 8)


class CardNic(Nic):
    """A NIC that reads payload from the card's window."""

    window, epoch = None, 0

    def stop(self):
        super().stop()
        self.epoch += 1
        if self.window:
            self.window.forget(self)

    def fetch(self, address, length, then):
        if address in WINDOW:
            epoch = self.epoch
            self.window.load(address, length, lambda data: then(data) if epoch == self.epoch else None, self)
        else:
            super().fetch(address, length, then)


class Datagrams(Sender):
    """Datagrams to a peer, all of which arrive."""

    def __init__(self, chance):
        super().__init__(chance, False)

    def receive(self, seen):
        payload = seen["payload"]
        assert (seen["macs"], seen["addresses"], seen["ports"]) == (self.macs, self.addresses, self.ports)
        assert not seen["tcp"] and 0 < len(payload) <= self.most
        assert self.stream[len(self.got) :][: len(payload)] == payload, "a datagram"
        self.got += payload


class Peer:
    """A connection, or datagrams: what the peer of a card knows, and what the card's software knows."""

    def __init__(self, chance, tcp=True):
        self.sender, self.receiver = Sender(chance, True) if tcp else Datagrams(chance), Receiver(chance)
        sender, receiver = self.sender, self.receiver
        receiver.tcp, receiver.mac = tcp, sender.macs[6:]
        receiver.ours, receiver.theirs = sender.addresses[:4], sender.addresses[4:]
        receiver.port, receiver.peer = sender.ports[:2], sender.ports[2:]
        # What is to be sent, and how much was sent and told as received.
        self.to_send, self.sent, self.told = bytearray(), 0, 0
        # Software: what was acknowledged, and when.
        self.acknowledged, self.since = 0, 0
        # Directions that the card knows: events with its number are its own then. It has failed.
        self.known, self.failed = 0, False

    def is_ready(self):
        return self.known == 2 and not self.failed

    def frame(self, payload):
        number = self.receiver.first + self.sent & MASK
        self.told, self.sent = len(self.sender.got), self.sent + len(payload)
        ack = self.sender.first + self.told & MASK
        flags = 0x18 if payload else 0x10
        return self.receiver.frame(payload, number=number, ack=ack, window=self.sender.window, flags=flags)


class Rig(World):
    """A server with a host for each function; it has no owner, as the card is that itself."""

    def __init__(self, dut, chance, shifts=(9, 12), disk=1 << 20, patience=1000):
        super().__init__(dut, chance)
        count = int(dut.Hosts.value)
        self.hosts = [Host(func) for func in range(count)]
        self.host_buses = [HostBus(self, host, count) for host in self.hosts]
        # Frames that software was told of: the ring begins behind the last one.
        self.patience, self.enabled, self.gone = patience, 0, []
        self.window = Window(dut, chance)
        self.bus = Bus(self)
        self.ssds = [CardSsd(self, number, disk, shift) for number, shift in enumerate(shifts)]
        self.nic = CardNic(self.bus, SEND_RING, SEND_TAIL, int(dut.Advanced.value))
        self.nic.window = self.window
        self.receiving = ReceiveRing(self.bus, RECEIVE_RING, RECEIVE_TAIL, BUFFERS, N["Buffers"], BUFFER)
        self.peers = [Peer(chance, number not in DATAGRAMS) for number in range(PEERS)]
        self.wire, self.frames, self.resends, self.kept, self.loss = deque(), 0, 0, 0, 0.1
        # Frames in the NIC's ring of which software was not told yet.
        self.untold = deque()
        # Requests of software, by port: what is driven, and what is done when it was heard.
        self.asked = {name: deque() for name in ("set", "send", "receive", "return", "stop", "create", "delete")}

    async def start(self):
        for name in """bus_i host_i window_i set_valid_i send_valid_i receive_valid_i return_valid_i event_ready_i interrupt_ready_i
            cancel_ready_i ssd_enable_i""".split():
            self.drive(name, 0)
        config = 0
        for number, ssd in reversed(list(enumerate(self.ssds))):
            bells = {"tail_doorbell": DOORBELLS + number * 0x1_0000 + TAIL, "head_doorbell": DOORBELLS + number * 0x1_0000 + HEAD}
            places = {"blocks": BLOCKS, "own": OWN[number]}
            shift = ssd.size.bit_length() - 1
            bits = packed("config_t", "nvme_pkg", **bells, **places, name_space=1, shift=shift, number=1, patience=self.patience)
            config = config << sum(width for _, width in package("nvme_pkg")[2][1]["config_t"]) | bits
        self.drive("ssd_config_i", config)
        await super().start()
        while self.sees("ssd_ready_o") != (1 << SSDS) - 1:
            await self.step()
        self.enabled = (1 << SSDS) - 1
        self.drive("ssd_enable_i", self.enabled)

    def home(self, func):
        return self.hosts[func]

    def make(self, func, depth, weight, index=None):
        """A queue pair of a function; where one with its number was deleted, it takes its place."""
        index = len(self.rings) if index is None else index
        host = self.hosts[func]
        ring = Ring(host, index, depth, weight, 0, func)
        self.rings[index : index + 1] = [ring]
        host.open += [(ring.submission, 64 * depth), (ring.completion, 16 * depth)]
        driven = {"create_queue_i": index, "create_config_i": ring.config}
        self.ask("create", driven, lambda: setattr(ring, "there", True))

    def delete(self, ring):
        ring.going = True
        self.ask("delete", {"delete_queue_i": ring.index})

    # ---- What software says ----

    def ask(self, port, driven, then=None):
        self.asked[port].append((driven, then))

    def name(self, func, handle, kind, number=0, first=0, last=0, own=0, readable=1, writable=1):
        fields = {"kind": K[kind], "number": number, "own": own, "first": first, "last": last}
        target = packed("target_t", "card_pkg", **fields, readable=readable, writable=writable)
        self.ask("set", {"set_func_i": func, "set_handle_i": handle, "set_target_i": target})

    def send(self, kind, then=None, **fields):
        self.ask("send", {"send_i": packed("request_t", "nic_pkg", kind=N[kind], **fields)}, then)

    def receive(self, kind, then=None, **fields):
        self.ask("receive", {"receive_i": packed("receive_request_t", "nic_pkg", kind=N[kind], **fields)}, then)

    def open(self, number):
        peer = self.peers[number]

        def heard():
            peer.known += 1

        self.send("Open", heard, connection=number, opened=peer.sender.template())
        self.receive("Listen", heard, connection=number, opened=peer.receiver.template())

    def reopen(self, number):
        """A new connection in the place of one that nobody uses any more."""
        self.peers[number] = Peer(self.chance, number not in DATAGRAMS)
        self.open(number)

    def fail(self, number, status):
        self.peers[number].failed = True
        self.send("Fail", connection=number, first=status)
        self.receive("Broken", connection=number, status=status)

    async def reset_nic(self, status, turn):
        """The NIC loses what it has, and begins again with its first descriptor. What of TCP was received and not told comes again, as it
        was not acknowledged. Gives the connections of which datagrams are lost."""
        self.send("WillStop")
        self.receive("RingStops")
        while self.asked["send"] or self.asked["receive"]:
            await turn()
        for _ in range(self.chance.randrange(200)):
            await turn()
        self.nic.stop()
        self.receiving.head = self.receiving.tail = 0
        self.send("WasStopped", first=status)
        self.receive("RingStopped")
        lost, again = set(), []
        for frame in self.untold:
            number = self.sender_of(frame)
            if number is not None:
                (again.append(frame) if self.peers[number].sender.tcp else lost.add(number))
        self.wire.extendleft(reversed(again))
        self.untold.clear()
        # What comes behind lost datagrams would be taken for what was lost: their peers say no more.
        self.wire = deque(frame for frame in self.wire if self.sender_of(frame) not in lost)
        for number in lost:
            self.peers[number].to_send.clear()
        return lost

    def sender_of(self, frame):
        """The connection of a frame that was received."""
        return next((number for number, peer in enumerate(self.peers) if peer.receiver.theirs == frame[26:30]), None)

    def mind_ssds(self):
        """One that is broken is reset, and started when its rings are empty and it does nothing any more."""
        broken, ready = self.sees("ssd_broken_o"), self.sees("ssd_ready_o")
        for number, ssd in enumerate(self.ssds):
            bit = 1 << number
            if broken & bit and not ssd.off:
                assert number in self.gone, "an SSD is told to be broken"
                ssd.off = True
                ssd.reset()
            if ssd.off and self.enabled & bit and not self.window.busy(ssd):
                self.enabled &= ~bit
            elif ssd.off and not self.enabled & bit and ready & bit and self.chance.random() < 0.05:
                ssd.off = ssd.gone = False
                self.gone.remove(number)
                self.enabled |= bit

    def acknowledge(self, number, ack, window):
        peer = self.peers[number]
        got = ack - peer.sender.first & MASK
        if got <= peer.acknowledged or got > len(peer.sender.stream):
            return
        peer.acknowledged, peer.since = got, self.cycle
        self.send("Acknowledged", connection=number, first=ack, second=ack + window & MASK)

    def received(self, event):
        """A frame, of which the payload is kept for the core, or that is all software's."""
        self.untold.popleft()
        if event["kept"]:
            self.kept += 1
            number = event["connection"]
            peer = self.peers[number]
            if peer.known < 2 or not peer.sender.tcp:
                return
            told = (event["next"], 20_000)
            peer.sender.told.add(told)
            self.send("Advertise", connection=number, first=told[0], second=told[1])
            self.acknowledge(number, event["acknowledges"], event["window"])
            return
        frame = self.bus.store(BUFFERS + BUFFER * event["place"], event["length"])
        self.ask("return", {"return_i": event["place"]})
        number = self.sender_of(frame)
        if number is None or not self.peers[number].sender.tcp:
            return
        if int.from_bytes(frame[16:18], "big") > 40 and self.peers[number].is_ready():
            # There was no buffer to keep it in, or not for one before it: its peer sends it again.
            self.wire.append(frame)
        ack, window = struct.unpack(">I2xH", frame[42:50])
        self.acknowledge(number, ack, window)

    def timers(self):
        for number, peer in enumerate(self.peers):
            settled = peer.acknowledged == len(peer.sender.stream) or not peer.sender.tcp
            if settled or self.cycle - peer.since < PATIENCE:
                continue
            peer.since, self.resends = self.cycle, self.resends + 1
            first = peer.sender.first + peer.acknowledged & MASK
            self.send("Resend", connection=number, first=first, second=peer.sender.most)

    # ---- The network ----

    def network(self):
        chance = self.chance
        if chance.random() < 0.2:
            self.nic.work()
        for frame in self.nic.frames:
            seen = parse(frame)
            self.frames += 1
            # Those of connections that are not there any more are lost, too.
            peer = next((peer for peer in self.peers if peer.sender.addresses == seen["addresses"]), None)
            if peer and not (peer.sender.tcp and chance.random() < self.loss):
                peer.sender.receive(seen)
        self.nic.frames.clear()
        if chance.random() < 0.02 and len(self.wire) < 8:
            peer = chance.choice(self.peers)
            if peer.to_send:
                payload = bytes(peer.to_send[: chance.choice([1460, 1460, chance.randint(1, 1460)])])
                del peer.to_send[: len(payload)]
                self.wire.append(peer.frame(payload))
            elif peer.sender.tcp and peer.told < len(peer.sender.got):
                self.wire.append(peer.frame(b""))
        if self.wire and self.receiving.has_room() and chance.random() < 0.1:
            # A datagram that finds no buffer to be kept in is lost: its sender waits.
            late = self.receiving.room() < UDP_ROOM
            at = next((at for at, frame in enumerate(self.wire) if not late or frame[23] == 6), None)
            if at is None:
                return
            frame = self.wire[at]
            del self.wire[at]
            self.receiving.put(frame, sound(frame))
            self.untold.append(frame)

    # ---- A cycle ----

    def offer_host(self):
        bell = self.doorbells[0] if self.doorbells and self.may(0.5) else None
        self.bell = bell
        self.drive("doorbell_valid_i", int(bell is not None))
        if bell:
            # Whose it is comes with one that a host has no business to ring.
            func = bell[3] if len(bell) > 3 else self.rings[bell[0]].func
            for name, value in zip(("queue", "completion", "value", "func"), (*bell[:3], func)):
                self.drive(f"doorbell_{name}_i", value)
        for name in ("interrupt_ready_i", "event_ready_i", "deleted_ready_i"):
            self.drive(name, int(self.may()))
        self.drive("ssd_enable_i", self.enabled)
        self.drive("cancel_ready_i", (1 << SSDS) - 1 if self.may() else 0)
        for bus in (self.bus, *self.host_buses):
            bus.drive()
        self.window.drive()

    def offer_owner(self):
        for name, queue in self.asked.items():
            self.drive(VALIDS.get(name, f"{name}_valid_i"), int(bool(queue)))
            for port, value in queue[0][0].items() if queue else ():
                self.drive(port, value)

    def take_host(self):
        assert self.sees("doorbell_bad_o") == int(bool(self.bell) and len(self.bell) > 3)
        if self.bell:
            self.doorbells.pop(0)
        for bus in (self.bus, *self.host_buses):
            bus.sample()
        self.window.sample()
        if self.sees("interrupt_valid_o") and self.driven["interrupt_ready_i"]:
            self.interrupts.append(self.sees("interrupt_vector_o"))
            ring = self.rings[self.interrupts[-1] - 3]
            assert ring.func == self.sees("interrupt_func_o"), "an interrupt for another host"
            self.consume(ring)
        if self.sees("deleted_valid_o") and self.driven["deleted_ready_i"]:
            self.deleted(self.rings[self.sees("deleted_queue_o")])

    def deleted(self, ring):
        """A queue is gone: of its commands nothing is heard any more."""
        assert ring.going and not ring.gone
        ring.gone = True
        self.doorbells = [bell for bell in self.doorbells if bell[0] != ring.index]

    def take_owner(self):
        heard = {name: name in ALWAYS or self.sees(f"{name}_ready_o") for name in self.asked}
        event = None
        if self.sees("event_valid_o") and self.driven["event_ready_i"]:
            event = self.sees("event_o")
        for name, queue in self.asked.items():
            if queue and self.driven[VALIDS.get(name, f"{name}_valid_i")] and heard[name]:
                _, then = queue.popleft()
                if then:
                    then()
        if event is not None:
            self.received(unpacked("received_t", event, "nic_pkg"))
        cancelled = self.sees("cancel_valid_o") & self.driven["cancel_ready_i"]
        for number, ssd in enumerate(self.ssds):
            if cancelled >> number & 1:
                ssd.cancelled.add(self.sees("cancel_identifier_o") >> 16 * number & 0xFFFF)
            ssd.step()
        self.mind_ssds()
        self.network()
        if self.cycle % 100 == 0:
            self.timers()

    async def settle(self):
        """Until software has said everything."""
        while any(self.asked.values()):
            await self.step()
