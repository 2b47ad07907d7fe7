"""AES-256 in XTS mode against OpenSSL's library, and IEEE 1619's vectors; the parameter says which direction."""

import ctypes
import random

import cocotb
from jobs import SEEDS, Job, Unit, joined, pieces, record, words
from modules import RTL

WORDS, NUMBER = 20, 17

CRYPTO = ctypes.CDLL("libcrypto.so.3")
CRYPTO.EVP_CIPHER_CTX_new.restype = CRYPTO.EVP_aes_256_xts.restype = ctypes.c_void_p
CRYPTO.EVP_CipherInit_ex.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_char_p] * 2 + [ctypes.c_int]
CRYPTO.EVP_CipherUpdate.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
CRYPTO.EVP_CIPHER_CTX_free.argtypes = [ctypes.c_void_p]


def openssl(key, size, number, data, encrypt):
    """The data in units of this size, the last one as long as it is."""
    done = b""
    for at in range(0, len(data), size):
        unit = data[at : at + size]
        tweak = (number + at // size).to_bytes(16, "little")
        context, cipher = CRYPTO.EVP_CIPHER_CTX_new(), CRYPTO.EVP_aes_256_xts()
        out, length = ctypes.create_string_buffer(len(unit)), ctypes.c_int()
        assert CRYPTO.EVP_CipherInit_ex(context, cipher, None, key, tweak, int(encrypt)) == 1
        assert CRYPTO.EVP_CipherUpdate(context, out, ctypes.byref(length), unit, len(unit)) == 1
        CRYPTO.EVP_CIPHER_CTX_free(context)
        assert length.value == len(unit)
        done += out.raw
    return done


def state_of(key, size, number):
    return words(key + size.to_bytes(4, "little") + number.to_bytes(12, "little"))


async def do(unit, state, data, final, chance):
    """Does a job; gives the state after it, its bytes, and its cycles."""
    after, out, cycles = await unit.run(Job(state, data, final, 0), WORDS, chance, first_out=NUMBER)
    return state[:NUMBER] + after[NUMBER:], joined(out), cycles


def encrypts(dut):
    return not int(dut.Inverse.value)


@cocotb.test()
async def vectors(dut):
    """IEEE 1619-2007 annex B, vectors 10 to 14."""
    unit = Unit(dut)
    await unit.start()
    key = bytes.fromhex(
        "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197169399375105820974944592"
    )
    plain = bytes(range(256)) * 2
    lines = (RTL.parent / "crates/ndp/tests/suite/xts-aes-256.txt").read_text().split()
    assert len(lines) == 10
    for number, coded in zip(lines[::2], lines[1::2]):
        given, expected = plain, bytes.fromhex(coded)
        if not encrypts(dut):
            given, expected = expected, given
        _, out, _ = await do(unit, state_of(key, 512, int(number, 16)), given, True, None)
        assert out == expected, f"unit {number}"


def lengths(chance, size):
    """None, whole units, and last units of every kind: whole blocks, and bytes behind them."""
    part = lambda: chance.choice([length for length in range(16, size + 1)])  # noqa: E731
    units = [0, size, 2 * size, 3 * size]
    units += [chance.randrange(3) * size + part() for _ in range(5)]
    return units + [size * chance.randrange(2) + 16 + extra for extra in (1, 15) if size > 16]


@cocotb.test()
async def streams(dut):
    """Streams of their own keys and sizes of units, cut into jobs, two at once on one unit; numbers past 64 bits."""
    unit = Unit(dut)
    await unit.start()
    for seed in range(SEEDS):
        chance = random.Random(seed)
        todo = [(size, length) for size in (16, 32, 64, 128, 512) for length in lengths(chance, size)]
        chance.shuffle(todo)
        active = []
        while todo or active:
            while todo and len(active) < 2:
                size, length = todo.pop()
                data, key = chance.randbytes(length), chance.randbytes(64)
                number = chance.choice([0, chance.getrandbits(64), 2**32 - 1, 2**64 - 1])
                expected = openssl(key, size, number, data, encrypts(dut))
                after = number + -(-length // size)
                jobs = list(pieces(chance, data, size))
                active.append([state_of(key, size, number), expected, b"", jobs, state_of(key, size, after)])
            stream = chance.choice(active)
            piece, final = stream[3].pop(0)
            stream[0], out, _ = await do(unit, stream[0], piece, final, chance if chance.random() < 0.8 else None)
            assert not unit.refused
            stream[2] += out
            if final:
                active.remove(stream)
                assert stream[2] == stream[1], f"{len(stream[1])} bytes, seed {seed}"
                assert stream[0] == stream[4]


@cocotb.test()
async def truncated(dut):
    """A last unit of 1 to 15 bytes is an error and doesn't come out; the next job is not."""
    unit = Unit(dut)
    await unit.start()
    chance = random.Random(1)
    for extra in (1, 7, 15):
        for units in (0, 1, 2):
            key, data = chance.randbytes(64), chance.randbytes(32 * units + extra)
            _, out, _ = await do(unit, state_of(key, 32, 5), data, True, chance)
            assert unit.refused
            assert out == openssl(key, 32, 5, data[: 32 * units], encrypts(dut))
            _, out, _ = await do(unit, state_of(key, 32, 5), data[: 32 * units], True, chance)
            assert not unit.refused
            assert out == openssl(key, 32, 5, data[: 32 * units], encrypts(dut))


@cocotb.test()
async def cycles(dut):
    unit = Unit(dut)
    await unit.start()
    key, said = bytes(range(64)), []
    for size in (4096, 512, 16):
        state = state_of(key, size, 0)
        _, _, long = await do(unit, state, bytes(3 * 4096), False, None)
        _, _, short = await do(unit, state, bytes(4096), False, None)
        per_word = (long - short) / 512
        said.append(f"{per_word:g} cycles for 16 bytes of units of {size}, {short - 256 * per_word:g} more a job")
    record("; ".join(said))
