"""SHA-256 against Python's hashlib."""

import hashlib

import cocotb
from jobs import check_digest

INITIAL = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]


@cocotb.test()
async def streams(dut):
    def encode(state):
        return b"".join(word.to_bytes(4, "big") for word in state)

    await check_digest(dut, INITIAL, lambda data: hashlib.sha256(data).digest(), encode, "sha256")
