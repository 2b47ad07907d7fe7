"""The codes against zlib, where it has them, and the bitwise definition otherwise; that against published check values."""

import zlib

import cocotb
from jobs import check_digest

# By the code's number in crc_pkg: polynomial, reflected; bits; the code of "123456789".
CODES = [
    (0xEDB88320, 32, 0xCBF43926),
    (0x82F63B78, 32, 0xE3069283),
    (0x9A6C9329AC4BC9B5, 64, 0xAE8B14860A799888),
]


def bitwise(polynomial, width, data):
    crc = (1 << width) - 1
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
    return crc ^ ((1 << width) - 1)


@cocotb.test()
async def streams(dut):
    polynomial, width, check = CODES[int(dut.Code.value)]

    def digest(data):
        return zlib.crc32(data) if width == 32 and check == 0xCBF43926 else bitwise(polynomial, width, data)

    def encode(state):
        return sum(word << 32 * at for at, word in enumerate(state))

    assert bitwise(polynomial, width, b"123456789") == check
    assert bitwise(CODES[1][0], 32, bytes(32)) == 0x8A9136AA, "RFC 3720 B.4"
    await check_digest(dut, [0] * (width // 32), digest, encode, dut._name, block=1)
