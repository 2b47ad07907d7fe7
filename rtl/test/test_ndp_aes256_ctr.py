"""AES-256 in counter mode against OpenSSL's command, and a published vector."""

import random
import subprocess

import cocotb
from jobs import SEEDS, Job, Unit, joined, lengths, pieces, record, words

KEY_WORDS, WORDS = 8, 12


def openssl(key, counter, data):
    command = ["openssl", "enc", "-aes-256-ctr", "-nosalt", "-K", key.hex(), "-iv", counter.hex()]
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


def moved(counter, blocks):
    return ((int.from_bytes(counter, "big") + blocks) % (1 << 128)).to_bytes(16, "big")


async def encipher(unit, state, data, final, chance):
    """Does a job; gives the state after it, with the key that it had, and its bytes."""
    after, out, cycles = await unit.run(Job(state, data, final, 0), WORDS, chance, first_out=KEY_WORDS)
    return state[:KEY_WORDS] + after[KEY_WORDS:], joined(out), cycles


@cocotb.test()
async def vector(dut):
    """SP 800-38A F.5.5, the first two blocks."""
    unit = Unit(dut)
    await unit.start()
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    coded = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
    _, out, _ = await encipher(unit, words(key + bytes(range(0xF0, 0x100))), plain, True, None)
    assert out == coded


@cocotb.test()
async def streams(dut):
    """Streams with keys of their own, cut into jobs, two at once on one unit; counters that wrap."""
    unit = Unit(dut)
    await unit.start()
    for seed in range(SEEDS):
        chance = random.Random(seed)
        todo = lengths(chance, 16)
        chance.shuffle(todo)
        active = []
        while todo or active:
            while todo and len(active) < 2:
                data, key = chance.randbytes(todo.pop()), chance.randbytes(32)
                counter = chance.choice([chance.randbytes(16), moved(bytes(16), -chance.randrange(5))])
                active.append([words(key + counter), openssl(key, counter, data), b"", list(pieces(chance, data, 16))])
            stream = chance.choice(active)
            piece, final = stream[3].pop(0)
            stream[0], out, _ = await encipher(unit, stream[0], piece, final, chance if chance.random() < 0.8 else None)
            stream[2] += out
            if final:
                active.remove(stream)
                assert stream[2] == stream[1], f"{len(stream[1])} bytes, seed {seed}"
    data = bytes(16 * 128)
    state, _, long = await encipher(unit, [0] * WORDS, data, False, None)
    assert state == words(bytes(32) + moved(bytes(16), 128))
    _, _, short = await encipher(unit, [0] * WORDS, data[:16], False, None)
    per_word = (long - short) / 127
    record(f"{per_word:g} cycles for 16 bytes, {short - per_word:g} more a job")
