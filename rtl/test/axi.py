"""The other side of a module's buses: memory behind AXI4, and block memory; idle cycles and back-pressure by `chance`."""

from dataclasses import dataclass

from layouts import constants, pack, unpack

B = constants("bus_pkg")
C = constants("core_pkg")
BEAT, WORD = B["BeatBytes"], C["WordBytes"]
SHIFT = C["BlockShift"] - C["WordShift"]
ERROR = 2


@dataclass
class Burst:
    """A burst under way: the address of its next beat."""

    at: int
    left: int
    size: int
    id: int
    bad: bool = False


class Memory:
    """Memory on a bus that a module masters by `request` and `response`. Subclasses change what an address means."""

    def __init__(self, dut, chance, size=1 << 20, request="bus_o", response="bus_i"):
        self.dut, self.chance, self.bytes = dut, chance, bytearray(size)
        self.request, self.response = request, response
        # Bursts, and beats and answers that wait for their turn.
        self.reads, self.writes, self.beats, self.answers = [], [], [], []
        self.read = self.answer = None
        # Addresses at which every access fails.
        self.broken = range(0)
        self.stalls = 0.3

    def load(self, at):
        """A beat at an address that is a multiple of its size; nothing if that fails."""
        return self.bytes[at : at + BEAT] if at + BEAT <= len(self.bytes) else None

    def store(self, at, data, keep):
        """Stores the bytes that are kept; false if that fails."""
        if at + BEAT > len(self.bytes):
            return False
        for place in range(BEAT):
            if keep >> place & 1:
                self.bytes[at + place] = data[place]
        return True

    def may(self):
        return self.chance is None or self.chance.random() >= self.stalls

    def offer(self):
        """Before the clock's edge: what the module sees."""
        if self.read is None and self.reads and self.may():
            burst = self.reads[0]
            aligned = burst.at // BEAT * BEAT
            data = None if burst.at in self.broken else self.load(aligned)
            resp = 0 if data is not None else ERROR
            bits = int.from_bytes(data or bytes(BEAT), "little")
            self.read = pack("read_t", "bus_pkg", id=burst.id, data=bits, resp=resp, last=int(burst.left == 1))
        if self.answer is None and self.answers and self.may():
            self.answer = self.answers.pop(0)
        ready = {name: int(self.may()) for name in ("aw_ready", "w_ready", "ar_ready")}
        said = pack(
            "response_t",
            "bus_pkg",
            **ready,
            r=self.read or 0,
            r_valid=int(self.read is not None),
            b=self.answer or 0,
            b_valid=int(self.answer is not None),
        )
        self.ready = ready
        getattr(self.dut, self.response).value = said

    def take(self):
        """What goes over at this edge."""
        seen = unpack("request_t", int(getattr(self.dut, self.request).value), "bus_pkg")
        if seen["ar_valid"] and self.ready["ar_ready"]:
            self.reads.append(self.burst(seen["ar"]))
        if self.read is not None and seen["r_ready"]:
            burst = self.reads[0]
            burst.at, burst.left, self.read = burst.at + (1 << burst.size), burst.left - 1, None
            if not burst.left:
                self.reads.pop(0)
        if seen["aw_valid"] and self.ready["aw_ready"]:
            self.writes.append(self.burst(seen["aw"]))
        if seen["w_valid"] and self.ready["w_ready"]:
            self.beats.append(unpack("write_t", seen["w"], "bus_pkg"))
        while self.beats and self.writes:
            self.write(self.beats.pop(0))
        if self.answer is not None and seen["b_ready"]:
            self.answer = None

    def burst(self, bits):
        asked = unpack("address_t", bits, "bus_pkg")
        assert asked["burst"] == B["BurstIncrement"]
        count, size = asked["len"] + 1, asked["size"]
        last = asked["addr"] // (1 << size) * (1 << size) + count * (1 << size) - 1
        assert asked["addr"] >> 12 == last >> 12, "a burst crosses 4 KiB"
        return Burst(asked["addr"], count, size, asked["id"])

    def write(self, beat):
        burst = self.writes[0]
        data = beat["data"].to_bytes(BEAT, "little")
        good = burst.at not in self.broken and self.store(burst.at // BEAT * BEAT, data, beat["strb"])
        burst.bad |= not good
        burst.at, burst.left = burst.at + (1 << burst.size), burst.left - 1
        assert beat["last"] == (burst.left == 0), "the last beat is marked"
        if not burst.left:
            self.answers.append(pack("written_t", "bus_pkg", id=burst.id, resp=ERROR * burst.bad))
            self.writes.pop(0)


class Blocks:
    """Block memory, for a module that is one of its readers and one of its writers. `prefix` names the module's ports."""

    def __init__(self, dut, chance, words, prefix=""):
        self.dut, self.chance, self.prefix = dut, chance, prefix
        self.bytes = bytearray(words * WORD)
        self.coming = [None, None]

    def port(self, name):
        return getattr(self.dut, f"{self.prefix}{name}")

    def offer(self):
        for name in ("read_ready_i", "write_ready_i"):
            self.port(name).value = int(self.chance is None or self.chance.random() < 0.7)
        at = self.coming.pop(0)
        self.port("read_done_i").value = int(at is not None)
        if at is not None:
            self.port("read_data_i").value = int.from_bytes(self.bytes[at * WORD : at * WORD + WORD], "little")

    def take(self):
        asks = int(self.port("read_valid_o").value) and int(self.port("read_ready_i").value)
        self.coming.append(int(self.port("read_at_o").value) if asks else None)
        if int(self.port("write_valid_o").value) and int(self.port("write_ready_i").value):
            at, keep = int(self.port("write_at_o").value), int(self.port("write_keep_o").value)
            data = int(self.port("write_data_o").value).to_bytes(WORD, "little")
            for place in range(WORD):
                if keep >> place & 1:
                    self.bytes[at * WORD + place] = data[place]
