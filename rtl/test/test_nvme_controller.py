"""The NVMe controller between the core's operations and an SSD: bytes, statuses, aborts, lost completions, an SSD that is gone."""

import random

import cocotb
from blocks import SHIFT, Blocks
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from jobs import SEEDS, record
from layouts import constants, pack, unpack
from ssd import BLOCKS, HEAD, OWN, TAIL, Ssd

C = constants("core_pkg")
BLOCK = 1 << C["BlockShift"]
AREA = 2 * BLOCK
DISK = C["Blocks"] * AREA
READ_FAILURES = {0x80: "StatusOutOfRange", 0x81: "StatusCapacityExceeded", 0x286: "StatusAccessDenied"}
FAILED = {C[name] for name in (*READ_FAILURES.values(), "StatusReadError", "StatusWriteError")}


class Bench:
    def __init__(self, dut, chance, shift):
        self.dut, self.chance, self.shift, self.cycle, self.serial = dut, chance, shift, 0, 0
        self.blocks = Blocks(dut, chance, C["Blocks"] << SHIFT)
        self.blocks.bytes[:] = chance.randbytes(len(self.blocks.bytes))
        self.ssd = Ssd(dut, chance, self.blocks, DISK, shift)
        # What is with the controller, by row or ("flush", command); aborts that are to be told.
        self.flying, self.aborts, self.answers, self.resets = {}, [], {}, 0

    async def start(self):
        dut = self.dut
        for name in """operation_valid_i outcome_ready_i abort_valid_i bus_i own_read_valid_i own_write_valid_i read_ready_i read_done_i
            write_ready_i enable_i cancel_ready_i millis_i rst_ni""".split():
            getattr(dut, name).value = 0
        dut.config_i.value = pack(
            "config_t",
            "nvme_pkg",
            tail_doorbell=TAIL,
            head_doorbell=HEAD,
            blocks=BLOCKS,
            own=OWN,
            name_space=1,
            shift=self.shift,
            number=1,
            patience=20,
        )
        cocotb.start_soon(Clock(dut.clk_i, 4, unit="ns").start())
        for _ in range(3):
            await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1

    def issue(self, kind, key, offset, start, length):
        self.serial = (self.serial + 1) & 255
        row, command = (0, key[1]) if isinstance(key, tuple) else (key, key % C["Commands"])
        place = pack("operation_id_t", blockless=int(isinstance(key, tuple)), serial=self.serial, row=row, command=command)
        bits = pack("operation_t", kind=C[kind], id=place, offset=offset, start=start, length=length)
        self.flying[key] = [kind, place, offset, start, length, None, False]
        if kind != "DoFlush":
            self.flying[key][5] = (self.blocks.bytes[row * BLOCK : row * BLOCK + BLOCK], self.ssd.disk[row * AREA : row * AREA + AREA])
        self.dut.operation_valid_i.value, self.dut.operation_i.value = 1, bits

    async def step(self):
        dut, chance = self.dut, self.chance
        dut.millis_i.value = self.cycle // 250
        self.ssd.drive()
        self.blocks.drive()
        ready = chance.random() < 0.5
        dut.outcome_ready_i.value = int(ready)
        dut.cancel_ready_i.value = int(chance.random() < 0.5)
        dut.abort_valid_i.value = int(bool(self.aborts))
        if self.aborts:
            dut.abort_id_i.value = self.aborts[0]
        await ReadOnly()
        assert int(dut.operation_ready_o.value)
        self.ssd.sample()
        self.blocks.sample()
        if self.aborts and int(dut.abort_ready_o.value):
            self.aborts.pop(0)
        if int(dut.cancel_valid_o.value) and int(dut.cancel_ready_i.value):
            self.ssd.cancelled.add(int(dut.cancel_identifier_o.value))
        told = unpack("outcome_t", int(dut.outcome_o.value)) if ready and int(dut.outcome_valid_o.value) else None
        broken, empty = int(dut.broken_o.value), int(dut.ready_o.value)
        await FallingEdge(dut.clk_i)
        dut.operation_valid_i.value = 0
        self.cycle += 1
        if broken and int(dut.enable_i.value):
            # Software resets it, and starts it again when the rings are empty.
            self.ssd.reset()
            self.ssd.gone, self.resets = False, self.resets + 1
            dut.enable_i.value = 0
        elif empty and not int(dut.enable_i.value) and chance.random() < 0.05:
            dut.enable_i.value = 1
        if told is not None:
            self.check(told)

    def check(self, told):
        place = unpack("operation_id_t", told["id"])
        key = ("flush", place["command"]) if place["blockless"] else place["row"]
        kind, sent, offset, start, length, before, aborted = self.flying.pop(key)
        assert told["id"] == sent
        status = told["status"] if told["kind"] == C["Failed"] else 0
        self.answers[status] = self.answers.get(status, 0) + 1
        if told["kind"] == C["Failed"]:
            expected = FAILED | {C["StatusDeviceReset"]}
            expected |= {C["StatusCancelled"]} if aborted else set()
            if kind == "DoWrite" and (offset % self.ssd.size or start % 4):
                expected = {C["StatusUnsupportedEndpoint"], C["StatusDeviceReset"]} | ({C["StatusCancelled"]} if aborted else set())
            assert status in expected, (kind, offset, start, length, hex(status))
            return
        if kind == "DoFlush":
            assert told["kind"] == C["Flushed"]
            return
        bytes_, row = told["bytes"], key
        assert told["kind"] == C["Moved"] and 0 < bytes_ <= length
        if length >= 2 * self.ssd.size and offset % self.ssd.size == 0 and start % 4 == 0:
            assert bytes_ == length // self.ssd.size * self.ssd.size, "whole blocks at once"
        block, disk = before
        now_block, now_disk = self.blocks.bytes[row * BLOCK : row * BLOCK + BLOCK], self.ssd.disk[row * AREA : row * AREA + AREA]
        at = offset - row * AREA
        if kind == "DoRead":
            block[start : start + bytes_] = disk[at : at + bytes_]
            # Behind the bytes there may be the rest of a logical block.
            end = start + -(-bytes_ // self.ssd.size) * self.ssd.size
            assert now_block[: start + bytes_] == block[: start + bytes_] and now_block[end:] == block[end:]
        else:
            disk[at : at + bytes_] = block[start : start + bytes_]
            assert now_block == block
        assert now_disk == disk, f"{kind} {at} {start} {length} {bytes_}"


async def scenario(dut, chance, count, faults=0.0, aborts=0.0, accidents=0.0):
    bench = Bench(dut, chance, chance.choice([9, 12]))
    await bench.start()
    bench.ssd.faults, bench.ssd.slow = faults, chance.choice([2, 40, 1000])
    size, issued = bench.ssd.size, 0
    while not int(dut.enable_i.value):
        await bench.step()
    while issued < count or bench.flying:
        row = chance.randrange(C["Blocks"])
        # What comes while it is reset fails at once.
        patient = int(dut.enable_i.value) or chance.random() < 0.05
        if issued < count and patient and chance.random() < 0.1:
            flush = ("flush", row % C["Commands"])
            if chance.random() < 0.1 and flush not in bench.flying:
                bench.issue("DoFlush", flush, 0, 0, 0)
                issued += 1
            elif row not in bench.flying:
                start = chance.choice([0, 0, chance.randrange(BLOCK // 4) * 4, chance.randrange(BLOCK)])
                length = chance.choice([BLOCK - start, chance.randrange(BLOCK - start) + 1, 1, min(size, BLOCK - start)])
                offset = row * AREA + chance.choice([0, size * chance.randrange(BLOCK // size), chance.randrange(BLOCK)])
                bench.issue(chance.choice(["DoRead", "DoWrite"]), row, offset, start, length)
                issued += 1
        if bench.flying and chance.random() < aborts:
            flight = chance.choice(list(bench.flying.values()))
            if flight[1] not in bench.aborts:
                bench.aborts.append(flight[1])
                flight[6] = True
        if chance.random() < accidents:
            if chance.random() < 0.5:
                bench.ssd.lost = 1
            else:
                bench.ssd.gone = True
        await bench.step()
        assert bench.cycle < 400_000, f"hangs: {bench.flying}"
    dut.rst_ni.value = 0
    await FallingEdge(dut.clk_i)
    return bench


def said(answers):
    return ", ".join(f"{count} of status {status:#x}" for status, count in sorted(answers.items()))


@cocotb.test()
async def moves(dut):
    """Reads, writes and flushes, several commands at once: every byte is right, and none beside them changes."""
    answers, most, flushes = {}, 0, 0
    for seed in range(SEEDS):
        bench = await scenario(dut, random.Random(seed), 150)
        assert set(bench.answers) <= {0, C["StatusUnsupportedEndpoint"]}
        most, flushes = max(most, bench.ssd.most), flushes + bench.ssd.flushes
        for status, count in bench.answers.items():
            answers[status] = answers.get(status, 0) + count
    assert most > 4
    record(f"{said(answers)}; {most} with the SSD at once, {flushes} flushes")


@cocotb.test()
async def failures(dut):
    """Bad statuses, aborts, completions that are lost and an SSD that is gone: each operation is answered once, and nothing wrong is told."""
    answers, resets = {}, 0
    for seed in range(SEEDS):
        bench = await scenario(dut, random.Random(100 + seed), 300, 0.1, 0.002, 0.0001)
        resets += bench.resets
        for status, count in bench.answers.items():
            answers[status] = answers.get(status, 0) + count
    assert resets and C["StatusCancelled"] in answers and C["StatusReadError"] in answers
    record(f"{said(answers)}; {resets} resets")


class Prompt(random.Random):
    """Whoever asks it does everything at once, and nothing goes wrong."""

    def random(self):
        return 0.0


@cocotb.test()
async def cycles(dut):
    """A block of 4 KiB: from the operation to the doorbell, and from the completion entry to the outcome, where bus and memory answer at
    once."""
    bench = Bench(dut, Prompt(1), 12)
    bench.ssd.slow = 1
    await bench.start()
    bench.ssd.faults = -1.0
    while not int(dut.enable_i.value) or bench.cycle < 100:
        await bench.step()
    begun, rung, posted = bench.cycle, None, None
    bench.issue("DoRead", 0, 0, 0, BLOCK)
    while bench.flying:
        await bench.step()
        rung = rung or (bench.ssd.tail and bench.cycle)
        posted = posted or (bench.ssd.posted and not bench.ssd.writes and bench.ssd.write is None and bench.cycle)
        assert bench.cycle < begun + 2000
    record(f"{rung - begun} cycles from an operation to the doorbell, {bench.cycle - posted} from the completion entry to the outcome")
