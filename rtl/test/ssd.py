"""An SSD behind an NVMe queue pair: it fetches entries, moves bytes and writes completions in its own time; and it can fail.

Here it reaches the controller's memory by the ports of that, and blocks at once; subclasses have a bus for both.
"""

from blocks import WORD
from bus import Memory
from layouts import pack

ENTRIES, COMPLETIONS, PAGE = 16, 512, 256
TAIL, HEAD = 0x1008, 0x100C
BLOCKS, OWN = 1 << 32, 1 << 33


class Bells(Memory):
    """The bus on which doorbells are rung."""

    def __init__(self, dut, chance, ssd):
        super().__init__(dut.bus_o, dut.bus_i, chance)
        self.ssd = ssd

    def arrived(self, start, run, answer):
        if not self.ssd.gone:
            value = int.from_bytes(run, "little")
            assert start in (TAIL, HEAD) and len(run) == 4 and value < ENTRIES
            self.ssd.rung(start, value)
        answer(self.ssd.gone)


class Ssd:
    blocks_at, own_at = BLOCKS, OWN

    def __init__(self, dut, chance, blocks, size, shift):
        self.dut, self.chance, self.blocks, self.disk, self.size = dut, chance, blocks, bytearray(chance.randbytes(size)), 1 << shift
        self.bells = Bells(dut, chance, self) if dut is not None else None
        # What goes over its ports: words to be read and to be written, each with what comes then.
        self.reads, self.coming, self.writes, self.read, self.write = [], [], [], None, None
        self.faults, self.slow, self.gone, self.cycle, self.most, self.flushes = 0.0, 40, False, 0, 0, 0
        self.cancelled, self.epoch = set(), 0
        self.reset()

    def reset(self):
        """It knows nothing, and does nothing that it was told before."""
        self.tail = self.fetched = self.head = self.posted = 0
        self.phase, self.commands, self.lost = 1, [], 0
        self.epoch += 1
        self.reads, self.writes, self.write = [], [], None

    def rung(self, register, value):
        if register == TAIL:
            # An entry that was not fetched is never written over.
            assert (value - self.fetched) % ENTRIES >= (self.tail - self.fetched) % ENTRIES, "the ring is overrun"
            self.tail = value
        else:
            assert (value - self.head) % ENTRIES <= (self.posted - self.head) % ENTRIES
            self.head = value

    # ---- Its side of the controller's memory ----

    def get(self, index, then):
        epoch = self.epoch
        self.reads.append((index, lambda data: then(data) if epoch == self.epoch else None))

    def put(self, index, data, keep, then=None):
        self.writes.append((index, int.from_bytes(data, "little"), keep, then, self.epoch))

    def drive(self):
        self.bells.drive()
        if self.read is None and self.reads and self.chance.random() < 0.7:
            self.read = self.reads.pop(0)
        if self.write is None and self.writes and self.chance.random() < 0.7:
            self.write = self.writes.pop(0)
        self.dut.own_read_valid_i.value = int(self.read is not None)
        if self.read:
            self.dut.own_read_at_i.value = self.read[0]
        self.dut.own_write_valid_i.value = int(self.write is not None)
        if self.write:
            self.dut.own_write_at_i.value, self.dut.own_write_data_i.value, self.dut.own_write_keep_i.value = self.write[:3]

    def sample(self):
        self.cycle += 1
        self.bells.sample()
        if int(self.dut.own_read_done_o.value):
            self.coming.pop(0)(int(self.dut.own_read_data_o.value).to_bytes(WORD, "little"))
        if self.read and int(self.dut.own_read_ready_o.value):
            self.coming.append(self.read[1])
            self.read = None
        if self.write and int(self.dut.own_write_ready_o.value):
            if self.write[3] and self.write[4] == self.epoch:
                self.write[3]()
            self.write = None
        self.work(not self.reads and self.read is None)

    def work(self, may_fetch):
        """What it does by itself in a cycle."""
        if self.gone:
            return
        if self.fetched != self.tail and may_fetch and self.chance.random() < 0.3:
            self.fetch()
        for command in [command for command in self.commands if command["due"] <= self.cycle]:
            self.commands.remove(command)
            self.execute(command)

    def fetch(self):
        """Reads the next entry; its command is due in its time."""
        parts = []
        slot, self.fetched = self.fetched, (self.fetched + 1) % ENTRIES

        def arrived(data):
            parts.append(data)
            if len(parts) < 4:
                return
            entry = b"".join(parts)
            command = {
                "opcode": entry[0],
                "cid": int.from_bytes(entry[2:4], "little"),
                "prp": int.from_bytes(entry[24:32], "little"),
                "lba": int.from_bytes(entry[40:48], "little"),
                "count": int.from_bytes(entry[48:50], "little") + 1,
                "due": self.cycle + self.chance.randrange(self.slow),
            }
            assert entry[4:8] == (1).to_bytes(4, "little") and entry[1] == 0 and not any(entry[8:24]) and not any(entry[32:40])
            assert command["cid"] not in [other["cid"] for other in self.commands], "an identifier of two commands"
            self.commands.append(command)
            self.most = max(self.most, len(self.commands))

        for word in range(4):
            self.get(slot * 4 + word, arrived)

    def execute(self, command):
        status = 0
        if command["cid"] in self.cancelled and self.chance.random() < 0.7:
            status = 0x07
        elif self.chance.random() < self.faults:
            status = self.chance.choice([0x80, 0x81, 0x286, 0x281, 0x182, 0x02])
        if self.lost and not status:
            # It is done, but nobody is told.
            self.lost -= 1
            return
        if status or command["opcode"] == 0:
            self.flushes += command["opcode"] == 0
            return self.complete(command, status)
        start, count = command["lba"] * self.size, command["count"] * self.size
        assert start + count <= len(self.disk)
        prp = command["prp"]
        assert prp % 4 == 0 and prp % 4096 + count <= 4096, "a command within a page"
        if prp < self.own_at:
            if command["opcode"] == 2:
                return self.give(prp, self.disk[start : start + count], lambda: self.complete(command, 0))

            def came(data):
                self.disk[start : start + count] = data
                self.complete(command, 0)

            return self.ask(prp, count, came)
        assert prp == self.own_at + 4096
        words = count // WORD
        if command["opcode"] == 2:
            for word in range(words):
                last = word == words - 1
                data = self.disk[start + word * WORD : start + word * WORD + WORD]
                self.put(PAGE + word, data, (1 << WORD) - 1, (lambda: self.complete(command, 0)) if last else None)
            return None
        parts = []

        def arrived(data):
            parts.append(data)
            if len(parts) == words:
                self.disk[start : start + count] = b"".join(parts)
                self.complete(command, 0)

        for word in range(words):
            self.get(PAGE + word, arrived)
        return None

    def give(self, address, data, then):
        """Writes into a block."""
        at = address - self.blocks_at
        self.blocks.bytes[at : at + len(data)] = data
        then()

    def ask(self, address, count, then):
        """Reads from a block."""
        at = address - self.blocks_at
        then(self.blocks.bytes[at : at + count])

    def complete(self, command, status):
        assert (self.posted + 1) % ENTRIES != self.head, "the completion ring is overrun"
        fields = {"identifier": command["cid"], "number": 1, "head": self.fetched, "phase": self.phase, "status": status}
        entry = pack("completion_t", "nvme_pkg", **fields).to_bytes(16, "little")
        index = COMPLETIONS + self.posted
        self.posted = (self.posted + 1) % ENTRIES
        if self.posted == 0:
            self.phase ^= 1
        if self.chance.random() < 0.5:
            # In two pieces, of which that with the phase bit comes later.
            self.put(index, entry, 0x0FFF)
            self.put(index, entry, 0xF000)
        else:
            self.put(index, entry, 0xFFFF)
