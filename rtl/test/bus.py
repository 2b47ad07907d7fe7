"""Memory at the end of an AXI4 bus of `bus_pkg`: answers late, in bits, or not well, where asked for."""

from collections import deque

import layouts

BEAT = layouts.constants("bus_pkg")["BeatBytes"]
ERROR = 2


def pack(name, **values):
    return layouts.pack(name, "bus_pkg", **values)


def unpack(name, bits):
    return layouts.unpack(name, bits, "bus_pkg")


def shifts(name):
    """Where the fields of a structure begin, from its lowest bit."""
    at, found = 0, {}
    for field, width in reversed(layouts.package("bus_pkg")[2][1][name]):
        found[field] = at
        at += width
    return found


REQUEST, RESPONSE = shifts("request_t"), shifts("response_t")
VALID = sum(1 << REQUEST[f"{channel}_valid"] for channel in ("aw", "w", "ar"))
READY = sum(1 << REQUEST[f"{channel}_ready"] for channel in ("b", "r"))


class Memory:
    """Bytes by address. `bad` tells of a write, by address and bytes, if it is answered with an error."""

    def __init__(self, request, response, chance=None, bad=None):
        self.request, self.response, self.chance = request, response, chance
        self.bad = bad or (lambda address, data: False)
        self.bytes = {}
        # Addresses of which every access fails; the share of cycles in which a channel moves.
        self.broken, self.pace = range(0), 0.6
        self.reads, self.writes, self.beats, self.answers = deque(), deque(), deque(), deque()
        # What was written: address and bytes, in order, good or not.
        self.written = []
        self.offer = {"r": None, "b": None}
        self.ready, self.driven = {}, None

    def load(self, address, data):
        self.bytes.update(enumerate(data, address))

    def store(self, address, length):
        return bytes(self.bytes.get(address + at, 0xEE) for at in range(length))

    def may(self):
        return self.chance is None or self.chance.random() < self.pace

    def drive(self):
        """Before the cycle: what is offered and taken in it."""
        if self.offer["r"] is None and self.reads and self.may():
            at, left, identity = self.reads[0]
            data = int.from_bytes(self.store(at, BEAT), "little")
            self.offer["r"] = pack("read_t", id=identity, data=data, resp=ERROR * (at in self.broken), last=int(left == 0))
        if self.offer["b"] is None and self.answers and self.may():
            self.offer["b"] = self.answers[0]
        self.ready = {name: int(self.may()) for name in ("ar", "aw", "w")}
        bits = sum(self.ready[channel] << RESPONSE[f"{channel}_ready"] for channel in ("ar", "aw", "w"))
        for channel, offer in self.offer.items():
            if offer is not None:
                bits |= offer << RESPONSE[channel] | 1 << RESPONSE[f"{channel}_valid"]
        if bits != self.driven:
            self.response.value = self.driven = bits

    def sample(self):
        """In the cycle, when all is settled: what goes over."""
        bits = int(self.request.value)
        offers = any(offer is not None for offer in self.offer.values())
        if not (bits & VALID or offers and bits & READY):
            return
        said = unpack("request_t", bits)
        if said["ar_valid"] and self.ready["ar"]:
            burst = self.address(said["ar"])
            self.reads.append([burst["addr"] & ~(BEAT - 1), burst["len"], burst["id"]])
        if said["aw_valid"] and self.ready["aw"]:
            self.writes.append((self.address(said["aw"]), []))
        if said["r_ready"] and self.offer["r"] is not None:
            self.offer["r"] = None
            self.reads[0][0] += BEAT
            self.reads[0][1] -= 1
            if self.reads[0][1] < 0:
                self.reads.popleft()
        if said["w_valid"] and self.ready["w"]:
            self.beats.append(unpack("write_t", said["w"]))
        # A beat may come before its address.
        while self.beats and self.writes:
            self.beat(self.beats.popleft())
        if said["b_ready"] and self.offer["b"] is not None:
            self.offer["b"] = None
            self.answers.popleft()

    def address(self, bits):
        burst = unpack("address_t", bits)
        assert burst["burst"] == 1 and (burst["size"] == 4 or burst["len"] == 0)
        beats = burst["addr"] % BEAT // BEAT + burst["len"] + 1
        assert burst["addr"] // 4096 == ((burst["addr"] & ~(BEAT - 1)) + beats * BEAT - 1) // 4096, "a burst across 4 KiB"
        return burst

    def beat(self, beat):
        burst, data = self.writes[0]
        at = (burst["addr"] & ~(BEAT - 1)) + len(data) * BEAT
        data.append((at, beat["data"].to_bytes(BEAT, "little"), beat["strb"]))
        assert beat["last"] == (len(data) == burst["len"] + 1), "the mark of the last beat"
        if not beat["last"]:
            return
        self.writes.popleft()
        places = [(at + i, word[i]) for at, word, strobes in data for i in range(BEAT) if strobes >> i & 1]
        run = bytes(value for _, value in places)
        assert not places or [at for at, _ in places] == list(range(places[0][0], places[0][0] + len(places)))
        start = places[0][0] if places else burst["addr"]
        self.arrived(start, run, lambda bad: self.answers.append(pack("written_t", id=burst["id"], resp=ERROR * bad)))

    def arrived(self, start, run, answer):
        """A write is there as a whole. Subclasses have other things than memory at some addresses, and answer later."""
        bad = bool(start in self.broken or self.bad(start, run))
        if not bad:
            self.load(start, run)
        self.written.append((start, run))
        answer(bad)
