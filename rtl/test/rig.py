"""The rest of a server around `card`: the bus, the card's window on it, two SSDs, a NIC with peers, and what is left to software."""

import struct
from collections import deque

from bus import BEAT, Memory, pack, unpack
from layouts import constants, package
from layouts import pack as packed
from layouts import unpack as unpacked
from nic import Nic, ReceiveRing, parse, sound
from owner import MEMORY, World
from ssd import HEAD, TAIL, Ssd
from test_nic_controller import Connection as Sender
from test_nic_receive import Connection as Receiver

C, N, K = constants("core_pkg"), constants("nic_pkg"), constants("card_pkg")
SSDS, PEERS = 2, 4
BLOCKS = 1 << 32
OWN = [BLOCKS + (C["Blocks"] + 2 * number) * 4096 for number in range(SSDS)]
WINDOW = range(BLOCKS, OWN[-1] + 2 * 4096)
DOORBELLS = 0x2_0000_0000
SEND_RING, SEND_TAIL = 0x2000_0000, 0x3000_3818
BUFFERS, RECEIVE_RING, RECEIVE_TAIL, BUFFER = 0x4000_0000, 0x5000_0000, 0x3000_2818, 2048
MASK = (1 << 32) - 1
# Cycles without an acknowledgement, after which software has something sent again.
PATIENCE = 4000


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

    def load(self, address, length, then):
        self.reads.append((address, length, then))

    def store(self, address, data, then=None):
        self.writes.append((address, bytes(data), then))

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
            address, data, _ = self.write
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
                address, length, then = self.read
                self.read = None
                then(self.data[address % BEAT :][:length])
        if seen["b_valid"] and self.ready["b_ready"]:
            assert unpack("written_t", seen["b"])["resp"] == 0
            then, self.write = self.write[2], None
            if then:
                then()


class Bus(Memory):
    """What the card reads and writes: memory of hosts, memory of the NIC's rings, doorbells, its own window."""

    def __init__(self, rig):
        super().__init__(rig.dut.bus_o, rig.dut.bus_i, rig.chance)
        self.rig = rig

    def store(self, address, length):
        if address < MEMORY:
            return bytes(self.rig.memory[address : address + length])
        assert address not in WINDOW, "the card reads its own window"
        return super().store(address, length)

    def arrived(self, start, run, answer):
        rig = self.rig
        if start in WINDOW:
            return rig.window.store(start, run, lambda: answer(False))
        if start < MEMORY:
            rig.memory[start : start + len(run)] = run
            return answer(False)
        if start >= DOORBELLS:
            number, register = divmod(start - DOORBELLS, 0x1_0000)
            assert len(run) == 4
            rig.ssds[number].rung(register, int.from_bytes(run, "little"))
            return answer(False)
        self.bytes.update(enumerate(run, start))
        rig.nic.saw(start, run)
        rig.receiving.saw(start, run)
        return answer(False)


class CardSsd(Ssd):
    """An SSD that reaches rings and blocks by the card's window."""

    def __init__(self, rig, number, size, shift):
        self.blocks_at, self.own_at, self.window = BLOCKS, OWN[number], rig.window
        super().__init__(None, rig.chance, None, size, shift)

    def get(self, index, then):
        self.window.load(self.own_at + BEAT * index, BEAT, then)

    def put(self, index, data, keep, then=None):
        low, high = (keep & -keep).bit_length() - 1, keep.bit_length()
        self.window.store(self.own_at + BEAT * index + low, bytes(data)[low:high], then)

    def give(self, address, data, then):
        self.window.store(address, data, then)

    def ask(self, address, count, then):
        self.window.load(address, count, then)

    def step(self):
        self.cycle += 1
        self.work(len(self.window.reads) < 8)


class CardNic(Nic):
    """A NIC that reads payload from the card's window."""

    window = None

    def fetch(self, address, length, then):
        if address in WINDOW:
            self.window.load(address, length, then)
        else:
            super().fetch(address, length, then)


class Peer:
    """A connection: what the peer of a card knows, and what the card's software knows."""

    def __init__(self, chance):
        self.sender, self.receiver = Sender(chance, True), Receiver(chance)
        sender, receiver = self.sender, self.receiver
        receiver.tcp, receiver.mac = True, sender.macs[6:]
        receiver.ours, receiver.theirs = sender.addresses[:4], sender.addresses[4:]
        receiver.port, receiver.peer = sender.ports[:2], sender.ports[2:]
        # What is to be sent, and how much was sent and told as received.
        self.to_send, self.sent, self.told = bytearray(), 0, 0
        # Software: what was acknowledged, and when.
        self.acknowledged, self.since = 0, 0

    def frame(self, payload):
        number = self.receiver.first + self.sent & MASK
        self.told, self.sent = len(self.sender.got), self.sent + len(payload)
        ack = self.sender.first + self.told & MASK
        flags = 0x18 if payload else 0x10
        return self.receiver.frame(payload, number=number, ack=ack, window=self.sender.window, flags=flags)


class Rig(World):
    """A server: its host is World's; it has no owner, as the card is that itself."""

    def __init__(self, dut, chance, shifts=(9, 12), disk=1 << 19):
        super().__init__(dut, chance)
        self.window = Window(dut, chance)
        self.bus = Bus(self)
        self.ssds = [CardSsd(self, number, disk, shift) for number, shift in enumerate(shifts)]
        self.nic = CardNic(self.bus, SEND_RING, SEND_TAIL, int(dut.Advanced.value))
        self.nic.window = self.window
        self.receiving = ReceiveRing(self.bus, RECEIVE_RING, RECEIVE_TAIL, BUFFERS, N["Buffers"], BUFFER)
        self.peers = [Peer(chance) for _ in range(PEERS)]
        self.wire, self.asked, self.frames, self.resends, self.kept, self.loss = deque(), {}, 0, 0, 0, 0.1
        # Requests of software, by port.
        self.asked = {"set": deque(), "send": deque(), "receive": deque(), "return": deque()}

    async def start(self):
        for name in """bus_i window_i set_valid_i send_valid_i receive_valid_i return_valid_i event_ready_i interrupt_ready_i cancel_ready_i
            ssd_enable_i""".split():
            self.drive(name, 0)
        config = 0
        for number, ssd in reversed(list(enumerate(self.ssds))):
            bells = {"tail_doorbell": DOORBELLS + number * 0x1_0000 + TAIL, "head_doorbell": DOORBELLS + number * 0x1_0000 + HEAD}
            places = {"blocks": BLOCKS, "own": OWN[number]}
            shift = ssd.size.bit_length() - 1
            bits = packed("config_t", "nvme_pkg", **bells, **places, name_space=1, shift=shift, number=1, patience=1000)
            config = config << sum(width for _, width in package("nvme_pkg")[2][1]["config_t"]) | bits
        self.drive("ssd_config_i", config)
        await super().start()
        while self.sees("ssd_ready_o") != (1 << SSDS) - 1:
            await self.step()
        self.drive("ssd_enable_i", (1 << SSDS) - 1)

    # ---- What software says ----

    def name(self, handle, kind, number=0, first=0, last=0, readable=1, writable=1):
        fields = {"kind": K[kind], "number": number, "readable": readable, "writable": writable, "first": first, "last": last}
        self.asked["set"].append((handle, packed("target_t", "card_pkg", **fields)))

    def open(self, number):
        sender, receiver = self.peers[number].sender, self.peers[number].receiver
        self.asked["send"].append(packed("request_t", "nic_pkg", kind=N["Open"], connection=number, opened=sender.template()))
        fields = {"kind": N["Listen"], "connection": number, "opened": receiver.template()}
        self.asked["receive"].append(packed("receive_request_t", "nic_pkg", **fields))

    def acknowledge(self, number, ack, window):
        peer = self.peers[number]
        got = ack - peer.sender.first & MASK
        if got <= peer.acknowledged or got > len(peer.sender.stream):
            return
        peer.acknowledged, peer.since = got, self.cycle
        fields = {"kind": N["Acknowledged"], "connection": number, "first": ack, "second": ack + window & MASK}
        self.asked["send"].append(packed("request_t", "nic_pkg", **fields))

    def received(self, event):
        """A frame, of which the payload is kept for the core, or that is all software's."""
        if event["kept"]:
            self.kept += 1
            number = event["connection"]
            told = (event["next"], 20_000)
            self.peers[number].sender.told.add(told)
            fields = {"kind": N["Advertise"], "connection": number, "first": told[0], "second": told[1]}
            self.asked["send"].append(packed("request_t", "nic_pkg", **fields))
            return self.acknowledge(number, event["acknowledges"], event["window"])
        frame = self.bus.store(BUFFERS + BUFFER * event["place"], event["length"])
        self.asked["return"].append(event["place"])
        number = next(n for n, peer in enumerate(self.peers) if peer.receiver.theirs == frame[26:30])
        ack, window = struct.unpack(">I2xH", frame[42:50])
        return self.acknowledge(number, ack, window)

    def timers(self):
        for number, peer in enumerate(self.peers):
            if peer.acknowledged == len(peer.sender.stream) or self.cycle - peer.since < PATIENCE:
                continue
            peer.since, self.resends = self.cycle, self.resends + 1
            first = peer.sender.first + peer.acknowledged & MASK
            fields = {"kind": N["Resend"], "connection": number, "first": first, "second": peer.sender.most}
            self.asked["send"].append(packed("request_t", "nic_pkg", **fields))

    # ---- The network ----

    def network(self):
        chance = self.chance
        if chance.random() < 0.2:
            self.nic.work()
        for frame in self.nic.frames:
            seen = parse(frame)
            self.frames += 1
            if chance.random() >= self.loss:
                next(peer for peer in self.peers if peer.sender.addresses == seen["addresses"]).sender.receive(seen)
        self.nic.frames.clear()
        if chance.random() < 0.02 and len(self.wire) < 8:
            peer = chance.choice(self.peers)
            if peer.to_send:
                payload = bytes(peer.to_send[: chance.choice([1460, 1460, chance.randint(1, 1460)])])
                del peer.to_send[: len(payload)]
                self.wire.append(peer.frame(payload))
            elif peer.told < len(peer.sender.got):
                self.wire.append(peer.frame(b""))
        if self.wire and self.receiving.has_room() and chance.random() < 0.1:
            frame = self.wire.popleft()
            self.receiving.put(frame, sound(frame))

    # ---- A cycle ----

    def offer_host(self):
        bell = self.doorbells[0] if self.doorbells and self.may(0.5) else None
        self.bell = bell
        self.drive("doorbell_valid_i", int(bell is not None))
        if bell:
            for name, value in zip(("queue", "completion", "value"), bell):
                self.drive(f"doorbell_{name}_i", value)
        for name in ("interrupt_ready_i", "event_ready_i"):
            self.drive(name, int(self.may()))
        self.drive("cancel_ready_i", (1 << SSDS) - 1 if self.may() else 0)
        self.bus.drive()
        self.window.drive()

    def offer_owner(self):
        for name, queue in self.asked.items():
            self.drive(f"{name}_valid_i", int(bool(queue)))
            if not queue:
                continue
            if name == "set":
                self.drive("set_handle_i", queue[0][0])
                self.drive("set_target_i", queue[0][1])
            else:
                self.drive(f"{name}_i", queue[0])

    def take_host(self):
        assert not self.sees("doorbell_bad_o") and not self.sees("ssd_broken_o")
        if self.bell:
            self.doorbells.pop(0)
        self.bus.sample()
        self.window.sample()
        if self.sees("interrupt_valid_o") and self.driven["interrupt_ready_i"]:
            self.interrupts.append(self.sees("interrupt_vector_o"))
            self.consume(self.rings[self.interrupts[-1] - 3])

    def take_owner(self):
        heard = {name: name == "set" or self.sees(f"{name}_ready_o") for name in self.asked}
        event = None
        if self.sees("event_valid_o") and self.driven["event_ready_i"]:
            event = self.sees("event_o")
        for name, queue in self.asked.items():
            if queue and self.driven[f"{name}_valid_i"] and heard[name]:
                queue.popleft()
        if event is not None:
            self.received(unpacked("received_t", event, "nic_pkg"))
        cancelled = self.sees("cancel_valid_o") & self.driven["cancel_ready_i"]
        for number, ssd in enumerate(self.ssds):
            if cancelled >> number & 1:
                ssd.cancelled.add(self.sees("cancel_identifier_o") >> 16 * number & 0xFFFF)
            ssd.step()
        self.network()
        if self.cycle % 100 == 0:
            self.timers()

    async def settle(self):
        """Until software has said everything."""
        while any(self.asked.values()):
            await self.step()
