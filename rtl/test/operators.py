"""The operators by other programs: hashlib, zlib, OpenSSL's library, and tables of the codes."""

import ctypes
import hashlib
import zlib
from functools import cache

from layouts import constants
from test_ndp_aes256_xts import CRYPTO, openssl

C = constants("core_pkg")
CRYPTO.EVP_aes_256_ctr.restype = ctypes.c_void_p
HASHES = {C["OpMd5"]: "md5", C["OpSha1"]: "sha1", C["OpSha256"]: "sha256"}
CODES = {C["OpCrc32c"]: (0x82F63B78, 32), C["OpCrc64Nvme"]: (0x9A6C9329AC4BC9B5, 64)}


class Truncated(Exception):
    """XTS's last data unit has less than a block."""


@cache
def table(polynomial):
    made = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (polynomial if entry & 1 else 0)
        made.append(entry)
    return made


def code(polynomial, width, data):
    rows, state = table(polynomial), (1 << width) - 1
    for byte in data:
        state = state >> 8 ^ rows[(state ^ byte) & 255]
    return state ^ ((1 << width) - 1)


def digest(operator, data):
    if operator in HASHES:
        return hashlib.new(HASHES[operator], data).digest()
    if operator == C["OpCrc32"]:
        return zlib.crc32(data).to_bytes(4, "big")
    polynomial, width = CODES[operator]
    return code(polynomial, width, data).to_bytes(width // 8, "big")


def encipher(operator, block, data):
    """A cipher with its parameter block."""
    if operator == C["OpAes256Xts"]:
        size, number = int.from_bytes(block[64:68], "little"), int.from_bytes(block[72:80], "little")
        if 0 < len(data) % size < 16:
            raise Truncated
        return openssl(block[:64], size, number, data, True)
    context, out, length = CRYPTO.EVP_CIPHER_CTX_new(), ctypes.create_string_buffer(len(data) + 16), ctypes.c_int()
    assert CRYPTO.EVP_CipherInit_ex(context, CRYPTO.EVP_aes_256_ctr(), None, block[:32], block[32:48], 1) == 1
    assert CRYPTO.EVP_CipherUpdate(context, out, ctypes.byref(length), data, len(data)) == 1
    CRYPTO.EVP_CIPHER_CTX_free(context)
    assert length.value == len(data)
    return out.raw[: len(data)]
