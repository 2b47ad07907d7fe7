"""An 82574 or 82576 as a transmit ring has it: descriptors in, frames out, by the data sheets. Checksums and segments are made here."""

ENTRIES = 64


def fold(total):
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def summed(data):
    data = bytes(data) + bytes(len(data) % 2)
    return fold(sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)))


class Nic:
    def __init__(self, memory, ring, tail, advanced):
        self.memory, self.ring, self.register, self.advanced = memory, ring, tail, advanced
        self.frames = []
        self.stop()

    def stop(self):
        self.head = self.tail = 0
        self.waits = False
        self.context, self.pieces, self.options = None, [], 0
        for at in range(ENTRIES):
            self.memory.load(self.ring + 16 * at, bytes(16))

    def saw(self, address, data):
        """A write on the bus: to the tail, or to a descriptor that must not be the NIC's then."""
        if address == self.register:
            self.tail = int.from_bytes(data, "little")
            assert self.tail < ENTRIES
        elif self.ring <= address < self.ring + 16 * ENTRIES:
            at = (address - self.ring) // 16
            owned = (at - self.head) % ENTRIES < (self.tail - self.head) % ENTRIES
            assert not owned, "a descriptor that the NIC has yet to do is overwritten"

    def work(self):
        """Does a descriptor, if there is one."""
        if self.waits or self.head == self.tail:
            return
        place = self.ring + 16 * self.head
        words = [int.from_bytes(self.memory.store(place + 4 * at, 4), "little") for at in range(4)]
        self.head = (self.head + 1) % ENTRIES
        assert words[2] >> 29 & 1, "extended or advanced descriptors"
        kind = words[2] >> 20 & 15
        if kind == (2 if self.advanced else 0):
            self.context = words
            return
        assert kind == (3 if self.advanced else 1)
        if not self.pieces:
            self.options, self.payload = words[3] >> 8 & 3, words[3] >> 14
            self.segment = words[2] >> (31 if self.advanced else 26) & 1
        self.waits = True
        self.fetch(words[0] | words[1] << 32, words[2] & 0xFFFF, lambda data: self.fetched(place, words, data))

    def fetch(self, address, length, then):
        """Reads headers or payload. In subclasses they may come later."""
        then(self.memory.store(address, length))

    def fetched(self, place, words, data):
        self.waits = False
        self.pieces.append(data)
        if words[2] >> 24 & 1:
            frame = b"".join(self.pieces)
            self.pieces = []
            self.emit(frame)
            if words[2] >> 27 & 1:
                self.memory.bytes[place + 12] = self.memory.bytes[place + 12] | 1

    def emit(self, frame):
        context = self.context
        if self.advanced:
            link, network = context[0] >> 9 & 127, context[0] & 511
            tcp, header = context[2] >> 11 & 1, context[3] >> 8 & 255
        else:
            link, transport = context[0] & 255, context[1] & 255
            assert context[0] >> 8 & 255 == link + 10 and context[0] >> 16 == transport - 1
            network, tcp = transport - link, context[2] >> 24 & 1
            assert context[1] >> 8 & 255 == transport + (16 if tcp else 6)
            header = (context[3] >> 8 & 255) - transport
        start = link + network
        if not self.segment:
            if self.advanced:
                assert self.payload == len(frame)
            self.frames.append(self.checked(bytearray(frame), link, start, tcp, 0))
            return
        headers = start + header
        payload, size = frame[headers:], context[3] >> 16
        told = self.payload if self.advanced else context[2] & 0xFFFFF
        assert tcp and told == len(payload)
        for at in range(0, len(payload), size):
            piece = payload[at : at + size]
            part = bytearray(frame[:headers] + piece)
            part[link + 2 : link + 4] = (len(part) - link).to_bytes(2, "big")
            identification = int.from_bytes(part[link + 4 : link + 6], "big") + at // size
            part[link + 4 : link + 6] = (identification & 0xFFFF).to_bytes(2, "big")
            number = int.from_bytes(part[start + 4 : start + 8], "big") + at
            part[start + 4 : start + 8] = (number & 0xFFFF_FFFF).to_bytes(4, "big")
            self.frames.append(self.checked(part, link, start, tcp, len(part) - start))

    def checked(self, frame, link, start, tcp, more):
        if self.options & 1:
            frame[link + 10 : link + 12] = (0xFFFF - summed(frame[link:start])).to_bytes(2, "big")
        if self.options & 2:
            at = start + (16 if tcp else 6)
            value = 0xFFFF - fold(summed(frame[start:]) + more)
            frame[at : at + 2] = (value or 0xFFFF if not tcp else value).to_bytes(2, "big")
        return bytes(frame)


class ReceiveRing:
    """The receive ring of either: frames into the buffers that are posted, by any descriptor."""

    def __init__(self, memory, ring, tail, buffers, entries, size):
        self.memory, self.ring, self.register, self.buffers = memory, ring, tail, buffers
        self.entries, self.size, self.head, self.tail = entries, size, 0, 0

    def saw(self, address, data):
        if address == self.register:
            self.tail = int.from_bytes(data, "little")

    def has_room(self):
        return self.head != self.tail

    def room(self):
        return (self.tail - self.head) % self.entries

    def put(self, frame, status):
        """Gives the frame's buffer."""
        at = self.head
        place = self.ring + 16 * at
        buffer = int.from_bytes(self.memory.store(place, 8), "little")
        number, beside = divmod(buffer - self.buffers, self.size)
        assert beside == 0 and 0 <= number < self.entries and self.memory.store(place + 8, 8) == bytes(8)
        self.memory.load(buffer, frame)
        self.memory.load(place, bytes(8) + status.to_bytes(4, "little") + len(frame).to_bytes(2, "little") + bytes(2))
        self.head = (at + 1) % self.entries
        return number


def sound(frame):
    """The status of a frame that is whole, and whose checksums are right."""
    return 1 | 2 | 1 << 6 | 1 << (5 if frame[23] == 6 else 4)


def parse(frame):
    """What a host sees of a frame, all of whose lengths and checksums it checks."""
    assert frame[12:14] == b"\x08\x00" and frame[14] == 0x45
    ip = frame[14:]
    assert int.from_bytes(ip[2:4], "big") == len(ip) and summed(ip[:20]) == 0xFFFF and ip[6:8] == b"\x40\0"
    segment, kind = ip[20:], ip[9]
    pseudo = ip[12:20] + bytes([0, kind]) + len(segment).to_bytes(2, "big")
    assert summed(pseudo + segment) == 0xFFFF
    seen = {"macs": frame[:12], "service": ip[1], "ttl": ip[8], "addresses": ip[12:20], "ports": segment[:4], "tcp": kind == 6}
    if kind == 17:
        assert int.from_bytes(segment[4:6], "big") == len(segment) and segment[6:8] != b"\0\0"
        return {**seen, "payload": segment[8:]}
    assert kind == 6 and segment[12:14] == b"\x50\x18" and segment[18:20] == b"\0\0"
    numbers = [int.from_bytes(segment[at:to], "big") for at, to in ((4, 8), (8, 12), (14, 16))]
    return {**seen, "number": numbers[0], "acknowledges": numbers[1], "window": numbers[2], "payload": segment[20:]}
