"""The engine's memories over the bus: bursts of any size and length from one end to the other, and addresses behind the last one."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from jobs import SEEDS, record
from layouts import constants, pack, unpack

C = constants("core_pkg")
WORD, BLOCK = C["WordBytes"], 1 << C["BlockShift"]
ROWS = C["Blocks"] + 4
WORD_SHIFT = C["BlockShift"] - C["WordShift"]


class Bench:
    def __init__(self, dut, chance):
        self.dut, self.chance, self.cycle = dut, chance, 0
        self.bytes = bytearray(chance.randbytes(ROWS * BLOCK))
        # Reads that come later, by memory; what is offered on the channels; what is owed.
        self.coming = [[None, None], [None, None]]
        self.offered = {"ar": None, "aw": None, "w": None}
        self.beats, self.reads, self.writes, self.done = [], [], [], 0

    async def start(self):
        for name in ("bus_i", "read_ready_i", "read_done_i", "write_ready_i", "rst_ni"):
            getattr(self.dut, name).value = 0
        cocotb.start_soon(Clock(self.dut.clk_i, 4, unit="ns").start())
        for _ in range(3):
            await FallingEdge(self.dut.clk_i)
        self.dut.rst_ni.value = 1

    def burst(self):
        """A burst that crosses no 4 KiB."""
        chance = self.chance
        size = chance.choice([0, 1, 2, 3, 4, 4, 4])
        row = chance.choice([0, C["Blocks"] - 1, C["Blocks"], C["Blocks"] + 1, chance.randrange(ROWS), chance.randrange(64)])
        at = chance.randrange(BLOCK)
        most = min(256, (BLOCK - (at >> size << size)) >> size)
        count = chance.choice([1, most, chance.randrange(most) + 1])
        window = chance.getrandbits(40) << 18
        fields = {"addr": window | row * BLOCK + at, "id": chance.randrange(16), "len": count - 1, "size": size, "burst": 1}
        places = [row * BLOCK + at] + [row * BLOCK + (at >> size << size) + (beat << size) for beat in range(1, count)]
        return fields, places, row >= ROWS

    def plan(self):
        if self.offered["ar"] is None and not self.reads and self.chance.random() < 0.2:
            fields, places, bad = self.burst()
            # What is written at the same time is written elsewhere.
            if any(beat[1] // BLOCK == places[0] // BLOCK for beat in self.beats):
                return
            self.offered["ar"] = pack("address_t", "bus_pkg", **fields)
            self.reads = [(place, fields, bad, beat == len(places) - 1) for beat, place in enumerate(places)]
        if self.offered["aw"] is None and not self.writes and not self.beats and self.chance.random() < 0.2:
            fields, places, bad = self.burst()
            # What is read at the same time is read elsewhere.
            if any(read[0] // BLOCK == places[0] // BLOCK for read in self.reads):
                return
            self.offered["aw"] = pack("address_t", "bus_pkg", **fields)
            self.writes = [(fields, bad)]
            for beat, place in enumerate(places):
                end = (place >> fields["size"] << fields["size"]) + (1 << fields["size"])
                keep = sum(1 << at % WORD for at in range(place, end) if self.chance.random() < 0.9)
                data = self.chance.randbytes(WORD)
                last = int(beat == len(places) - 1)
                bits = pack("write_t", "bus_pkg", data=int.from_bytes(data, "little"), strb=keep, last=last)
                self.beats.append((bits, place // WORD * WORD, data, keep, bad))

    async def step(self):
        dut, chance = self.dut, self.chance
        if self.offered["w"] is None and self.beats and chance.random() < 0.8:
            self.offered["w"] = self.beats[0][0]
        ready = {name: int(chance.random() < 0.7) for name in ("r_ready", "b_ready")}
        fields = {}
        for channel, bits in self.offered.items():
            fields |= {channel: bits or 0, f"{channel}_valid": int(bits is not None)}
        dut.bus_i.value = pack("request_t", "bus_pkg", **fields, **ready)
        grants = chance.getrandbits(2) | chance.getrandbits(2)
        dut.read_ready_i.value = dut.write_ready_i.value = grants
        done = data = 0
        for memory in range(2):
            at = self.coming[memory].pop(0)
            if at is not None:
                done |= 1 << memory
                data |= int.from_bytes(self.bytes[at : at + WORD], "little") << 8 * WORD * memory
        dut.read_done_i.value, dut.read_data_i.value = done, data
        await ReadOnly()
        seen = unpack("response_t", int(dut.bus_o.value), "bus_pkg")
        asks, puts = int(dut.read_valid_o.value), int(dut.write_valid_o.value)
        for memory in range(2):
            base = memory * C["Blocks"] * BLOCK
            granted = grants >> memory & 1
            self.coming[memory].append(base + int(dut.read_at_o.value) * WORD if asks >> memory & granted else None)
            if puts >> memory & granted:
                at, keep = base + int(dut.write_at_o.value) * WORD, int(dut.write_keep_o.value)
                word = int(dut.write_data_o.value).to_bytes(WORD, "little")
                expected = self.beats[0]
                assert (at, word, keep) == expected[1:4] and not expected[4]
                for place in range(WORD):
                    if keep >> place & 1:
                        self.bytes[at + place] = word[place]
        self.answers(seen, ready)
        await FallingEdge(dut.clk_i)
        self.cycle += 1

    def answers(self, seen, ready):
        for channel in ("ar", "aw", "w"):
            if self.offered[channel] is not None and seen[f"{channel}_ready"]:
                self.offered[channel] = None
                if channel == "w":
                    self.beats.pop(0)
        if seen["r_valid"] and ready["r_ready"]:
            place, fields, bad, last = self.reads.pop(0)
            beat = unpack("read_t", seen["r"], "bus_pkg")
            assert (beat["id"], beat["resp"], beat["last"]) == (fields["id"], 3 * bad, int(last))
            if not bad:
                assert beat["data"].to_bytes(WORD, "little") == self.bytes[place // WORD * WORD : place // WORD * WORD + WORD]
            self.done += last
        if seen["b_valid"] and ready["b_ready"]:
            fields, bad = self.writes.pop(0)
            assert not self.beats and unpack("written_t", seen["b"], "bus_pkg") == {"id": fields["id"], "resp": 3 * bad}
            self.done += 1


@cocotb.test()
async def bursts(dut):
    """Bytes go where they belong, in both memories; each burst is answered with its number, once."""
    count = 0
    for seed in range(SEEDS):
        bench = Bench(dut, random.Random(seed))
        await bench.start()
        while bench.done < 100:
            bench.plan()
            await bench.step()
            assert bench.cycle < 100_000, "hangs"
        count += bench.done
        dut.rst_ni.value = 0
        await FallingEdge(dut.clk_i)
    record(f"{count} bursts")
