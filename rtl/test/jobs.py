"""Drives a unit: jobs in, state and data as words, state out; idle cycles and back-pressure where asked for."""

import os
import random
from dataclasses import dataclass

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

SEEDS = int(os.environ["DCS_SEEDS"])


def record(text):
    """Adds a figure to what the bench prints."""
    with open(os.environ["DCS_FIGURES"], "a") as figures:
        figures.write(f"{text}\n")


@dataclass
class Job:
    """What a unit is asked for: its state in words; the bytes; if they end the stream, and its length then."""

    state: list
    data: bytes
    final: bool
    length: int


class Unit:
    """A unit under test. `chance` decides about idle cycles and back-pressure; without it there are none."""

    def __init__(self, dut):
        self.dut = dut
        self.width = len(dut.data_i) // 8
        self.cycles = 0
        # The last job was an error.
        self.refused = False

    async def start(self):
        dut = self.dut
        for name in ("job_valid_i", "state_valid_i", "state_ready_i", "data_valid_i", "data_last_i", "rst_ni"):
            getattr(dut, name).value = 0
        cocotb.start_soon(Clock(dut.clk_i, 4, unit="ns").start())
        for _ in range(3):
            await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1

    def beats(self, data):
        """The data as words, what is there of each, and the mark of the last one."""
        pieces = [data[at : at + self.width] for at in range(0, len(data), self.width)] or [b""]
        for at, piece in enumerate(pieces):
            yield int.from_bytes(piece, "little"), (1 << len(piece)) - 1, at == len(pieces) - 1

    async def run(self, job, words, chance=None, first_out=0):
        """Does a job; gives its state afterwards, of this many words, what came out, and the cycles it took.

        Words of the state before `first_out` do not come out.

        Inputs change at the falling edge, where registers have settled; what goes over is read before the rising one.
        """
        dut = self.dut
        beats, state, out = list(self.beats(job.data)), [None] * words, []
        taken, given, started = 0, 0, self.cycles
        await FallingEdge(dut.clk_i)
        dut.job_valid_i.value = 1
        if hasattr(dut, "job_final_i"):
            dut.job_final_i.value = int(job.final)
            dut.job_length_i.value = job.length
        offered = fed = False
        while True:
            # What is offered stays until it is taken.
            if not offered:
                offered = taken < words and (chance is None or chance.random() < 0.5)
            if not fed:
                fed = given < len(beats) and (chance is None or chance.random() < 0.7)
            dut.state_valid_i.value = int(offered)
            dut.data_valid_i.value = int(fed)
            if fed:
                dut.data_i.value, dut.data_keep_i.value, last = beats[given]
                dut.data_last_i.value = int(last)
            else:
                noise = random.getrandbits(8 * self.width)
                dut.data_i.value, dut.data_keep_i.value, dut.data_last_i.value = noise, noise & 1, noise >> 1 & 1
            dut.state_ready_i.value = int(chance is None or chance.random() < 0.5)
            if hasattr(dut, "out_ready_i"):
                dut.out_ready_i.value = int(chance is None or chance.random() < 0.6)
            # The place is told by registers, so the word can follow it within the cycle.
            index = int(dut.index_o.value)
            here = offered and index < words
            dut.state_i.value = job.state[index] if here else random.getrandbits(32)
            await ReadOnly()
            if offered and int(dut.state_ready_o.value):
                taken, offered = taken + 1, False
            if fed and int(dut.data_ready_o.value):
                given, fed = given + 1, False
            if int(dut.state_valid_o.value) and int(dut.state_ready_i.value):
                index = int(dut.index_o.value)
                assert state[index] is None, f"word {index} came twice"
                state[index] = int(dut.state_o.value)
            if hasattr(dut, "out_valid_o") and int(dut.out_valid_o.value) and int(dut.out_ready_i.value):
                out.append((int(dut.out_o.value), int(dut.out_keep_o.value), int(dut.out_last_o.value)))
            ready = int(dut.job_ready_o.value)
            if hasattr(dut, "job_error_o"):
                self.refused = bool(dut.job_error_o.value)
            await FallingEdge(dut.clk_i)
            self.cycles += 1
            assert self.cycles - started < 1000 + 400 * len(beats), "the unit hangs"
            if ready:
                break
        dut.job_valid_i.value = 0
        assert given == len(beats) and taken == words and None not in state[first_out:]
        return state, out, self.cycles - started


def words(data):
    """Words of 32 bits, as a state has them."""
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def joined(out):
    """The bytes of words that came out; each but the last one is full, and nothing is behind the last one."""
    data = b""
    for at, (word, keep, last) in enumerate(out):
        assert last == (at == len(out) - 1) and (last or keep == 0xFFFF)
        size = keep.bit_length()
        assert keep == (1 << size) - 1 and word >> 8 * size == 0
        data += word.to_bytes(16, "little")[:size]
    return data


def lengths(chance, block=64):
    """Lengths around the ends of words and blocks, and a few at random."""
    edges = [0, 1, 3, 4, 5, 55, 56, 57, 59, 60, 63, 64, 65, 119, 120, 128]
    return edges + [chance.randrange(1, 20 * block) for _ in range(4)]


def pieces(chance, data, block=64):
    """The data in jobs: each a multiple of the block's size, but the last one any length."""
    while len(data) > block and chance.random() < 0.5:
        cut = block * chance.randrange(1, len(data) // block + 1)
        if cut == len(data):
            break
        yield data[:cut], False
        data = data[cut:]
    yield data, True


async def check_digest(dut, initial, digest, encode, name, block=64):
    """Streams of all lengths, each cut into jobs; two at once on one unit, job by job, as renaming does it.

    A job that does not end its stream is a multiple of `block` bytes; a cycle count is for that many, or for a word.
    """
    unit = Unit(dut)
    await unit.start()
    for seed in range(SEEDS):
        chance = random.Random(seed)
        todo = [chance.randbytes(length) for length in lengths(chance)]
        chance.shuffle(todo)
        active = []
        while todo or active:
            while todo and len(active) < 2:
                data = todo.pop()
                active.append([data, list(initial), 0, list(pieces(chance, data, block))])
            stream = chance.choice(active)
            data, state, done, rest = stream
            piece, final = rest.pop(0)
            stream[2] = done + len(piece)
            slow = chance if chance.random() < 0.8 else None
            job = Job(state, piece, final, stream[2])
            stream[1], _, _ = await unit.run(job, len(initial), slow)
            if final:
                active.remove(stream)
                assert encode(stream[1]) == digest(data), f"{name} of {len(data)} bytes, seed {seed}"
    size = max(block, unit.width)
    data = random.Random(1).randbytes(size * 32)
    _, _, long = await unit.run(Job(list(initial), data, False, len(data)), len(initial))
    _, _, short = await unit.run(Job(list(initial), data[:size], False, size), len(initial))
    per_block = (long - short) / 31
    record(f"{per_block:g} cycles for {size} bytes, {short - per_block:g} more a job")
