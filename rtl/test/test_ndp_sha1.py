"""SHA-1 against Python's hashlib."""

import hashlib

import cocotb
from jobs import check_digest

INITIAL = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0]


@cocotb.test()
async def streams(dut):
    def encode(state):
        return b"".join(word.to_bytes(4, "big") for word in state)

    await check_digest(dut, INITIAL, lambda data: hashlib.sha1(data).digest(), encode, "sha1")
