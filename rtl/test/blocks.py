"""Block memory, for the bench of a module that reads and writes it."""

from layouts import constants

C = constants("core_pkg")
WORD = C["WordBytes"]
SHIFT = C["BlockShift"] - C["WordShift"]


class Blocks:
    """Block memory, for a module that is one of its readers and one of its writers."""

    def __init__(self, dut, chance, words):
        self.dut, self.chance = dut, chance
        self.bytes = bytearray(words * WORD)
        self.coming = [None, None]

    def drive(self):
        for port in (self.dut.read_ready_i, self.dut.write_ready_i):
            port.value = int(self.chance is None or self.chance.random() < 0.7)
        at = self.coming.pop(0)
        self.dut.read_done_i.value = int(at is not None)
        if at is not None:
            self.dut.read_data_i.value = int.from_bytes(self.bytes[at * WORD : at * WORD + WORD], "little")

    def sample(self):
        asks = int(self.dut.read_valid_o.value) and int(self.dut.read_ready_i.value)
        self.coming.append(int(self.dut.read_at_o.value) if asks else None)
        if int(self.dut.write_valid_o.value) and int(self.dut.write_ready_i.value):
            at, keep = int(self.dut.write_at_o.value), int(self.dut.write_keep_o.value)
            data = int(self.dut.write_data_o.value).to_bytes(WORD, "little")
            for place in range(WORD):
                if keep >> place & 1:
                    self.bytes[at * WORD + place] = data[place]
