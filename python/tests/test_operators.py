"""Every operator against hashlib, zlib, cryptography and zstandard."""

import array
import base64
import csv
import gzip
import hashlib
import io
import re
import struct
import zlib

import pytest
import zstandard
from conftest import data
from cryptography.hazmat.decrepit.ciphers.algorithms import Blowfish
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import dcs

KEY, IV = bytes(range(32)), bytes(range(100, 116))
XTS_KEY = bytes(range(64))
# In WebAssembly, by hand: passes data on, and takes no parameter.
PASSES = base64.b64decode(
    "AGFzbQEAAAABEANgAAF/YAF/AX9gAn9/AX8DBAMAAQIFAwEAAQcwBAZtZW1vcnkCAAxkY3Nfb3BlcmF0b3IAAAlkY3Nfc3RhcnQA"
    "AQhkY3Nfc3RlcAACCh4DBABBAAsEACAACxIAQRQgADYCAEEYIAA2AgAgAQsLGgEAQQALFAEAAAAABAAAAAQAAAAEAAAABAAA"
)


def reflected_crc(content, polynomial, bits):
    """Bit by bit, as the standards write it."""
    mask = (1 << bits) - 1
    value = mask
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
    return ((value ^ mask) & mask).to_bytes(bits // 8, "big")


def run(content, through, capacity=None):
    """From memory to memory."""
    into = dcs.Memory(len(content) * 2 + 4096 if capacity is None else capacity)
    return dcs.transfer(content, into, through).result(60)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4095, 200_000, 1_500_000])
@pytest.mark.parametrize("name", ["md5", "sha1", "sha256", "sha512"])
def test_digests(name, size):
    content = data(size, size)
    done = run(content, [name])
    assert done.memory == content
    assert done.digests == {name: hashlib.new(name, content).digest()}
    assert done.hexdigest(name) == hashlib.new(name, content).hexdigest()
    assert (done.bytes_in, done.bytes_out) == (size, size)


@pytest.mark.parametrize("size", [0, 1, 9, 3000])
def test_crcs(size):
    content = data(size, 7)
    digests = run(content, ["crc32", "crc32c", "crc64-nvme"]).digests
    assert digests["crc32"] == zlib.crc32(content).to_bytes(4, "big")
    assert digests["crc32c"] == reflected_crc(content, 0x82F63B78, 32)
    assert digests["crc64-nvme"] == reflected_crc(content, 0x9A6C9329AC4BC9B5, 64)


def test_crc_of_the_standards_check_string():
    digests = run(b"123456789", ["crc32", "crc32c", "crc64-nvme"]).digests
    assert {name: value.hex() for name, value in digests.items()} == {
        "crc32": "cbf43926",
        "crc32c": "e3069283",
        "crc64-nvme": "ae8b14860a799888",
    }


@pytest.mark.parametrize("size", [0, 1, 16, 100_001])
def test_aes256_ctr(size):
    content = data(size, 1)
    expected = Cipher(algorithms.AES(KEY), modes.CTR(IV)).encryptor().update(content)
    assert run(content, [dcs.aes256_ctr(KEY, IV)]).memory == expected
    assert run(expected, [dcs.aes256_ctr(KEY, bytearray(IV))]).memory == content


def test_aes256_xts():
    content = data(4096 * 5, 2)
    expected = b""
    for unit in range(5):
        tweak = modes.XTS((unit + 3).to_bytes(16, "little"))
        encryptor = Cipher(algorithms.AES(XTS_KEY), tweak).encryptor()
        expected += encryptor.update(content[unit * 4096 :][:4096])
    done = run(content, [dcs.aes256_xts(XTS_KEY, first_unit=3)])
    assert done.memory == expected
    assert run(expected, [dcs.aes256_xts_decrypt(XTS_KEY, 4096, 3)]).memory == content


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_gzip(level):
    content = data(300_000, 3)
    packed = run(content, ["md5", dcs.gzip(level), "sha1"])
    assert gzip.decompress(packed.memory) == content
    assert packed.digests["md5"] == hashlib.md5(content).digest()
    assert packed.digests["sha1"] == hashlib.sha1(packed.memory).digest()
    assert run(gzip.compress(content), ["gunzip"], len(content)).memory == content


def test_gunzip_takes_members_in_a_row():
    assert run(gzip.compress(b"one ") + gzip.compress(b"two"), [dcs.gunzip()]).memory == b"one two"


@pytest.mark.parametrize("level", [1, 3, 19])
def test_zstd(level):
    content = data(300_000, 4)
    packed = run(content, [dcs.zstd(level)]).memory
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == content
    packed = zstandard.ZstdCompressor(level).compress(content)
    assert run(packed, ["unzstd"], len(content)).memory == content
    assert run(packed, [dcs.unzstd()], len(content)).memory == content


def test_slice():
    content = data(100_000, 5)
    assert run(content, [dcs.slice(10, 70_000)]).memory == content[10:70_010]
    with pytest.raises(dcs.Error) as caught:
        run(content, [dcs.slice(99_999, 2)])
    assert caught.value.stage == "operator"
    assert caught.value.operator == (0, "slice")


def test_grep():
    content = b"".join(b"%d %s\r\n" % (at, word) for at, word in enumerate([b"info", b"Error", b"\0\xff", b"ERROR"] * 5_000))
    lines = content.splitlines(keepends=True)
    assert run(content, [dcs.grep(r"^1\d* ERROR")]).memory == b"".join(
        line for line in lines if re.search(rb"^1\d* ERROR", line)
    )
    assert run(content, [dcs.grep("error", ignore_case=True, count=True)]).memory == b"10000\n"
    quiet = run(content, [dcs.grep("error", ignore_case=True, invert=True)]).memory
    assert quiet == b"".join(line for line in lines if b"error" not in line.lower())
    with pytest.raises(ValueError, match="pattern: unclosed group"):
        dcs.grep("(")
    with pytest.raises(dcs.Error) as caught:
        run(b"x" * (1 << 20) + b"x\n", [dcs.grep("y")])
    assert (caught.value.operator, caught.value.status) == ((0, "grep"), "CORRUPT_DATA")


def test_filter_and_aggregate():
    rows = [(at, at % 97 / 4, ["plain", 'with "marks", and\nlines'][at % 2]) for at in range(20_000)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("id", "price", "note"), *rows])
    content = text.getvalue().encode()
    kept = run(content, [dcs.filter("price>20")]).memory
    assert list(csv.reader(io.StringIO(kept.decode(), newline=""))) == [["id", "price", "note"]] + [
        [str(field) for field in row] for row in rows if row[1] > 20
    ]
    prices = [row[1] for row in rows if row[1] > 20]
    results = run(content, [dcs.filter("price>20"), dcs.aggregate("count;sum(price);min(price);max(#2)")]).memory
    assert [float(field) for field in results.split(b",")] == [len(prices), sum(prices), min(prices), max(prices)]
    for wrong in (lambda: dcs.filter("price"), lambda: dcs.aggregate("median(price)")):
        with pytest.raises(ValueError, match="COLUMN"):
            wrong()


def test_filter_and_aggregate_of_binary_rows():
    rows = [(at % 1000, at / 8, b"city%d" % (at % 7)) for at in range(50_000)]
    content = b"".join(struct.pack("<Id8s", *row) for row in rows)
    kept = [row for row in rows if row[0] >= 900]
    chain = [dcs.filter("-w20:u32@0>=900")]
    assert run(content, chain).memory == b"".join(struct.pack("<Id8s", *row) for row in kept)
    functions = "count;sum(u32@0);sum(f64@4);max(f64@4);count(text8@12)"
    results = run(content, [*chain, dcs.aggregate("-w20:" + functions)]).memory.split(b",")
    prices = [row[1] for row in kept]
    assert [float(field) for field in results] == [len(kept), sum(row[0] for row in kept), sum(prices), max(prices), len(kept)]
    assert len(run(content, [dcs.filter("-w20:text8@12=city3")]).memory) == 20 * sum(row[2] == b"city3" for row in rows)
    with pytest.raises(dcs.Error) as caught:
        run(content[:-1], chain)
    assert (caught.value.operator, caught.value.status) == ((0, "filter"), "TRUNCATED_DATA")
    with pytest.raises(ValueError, match="TYPE|u32@8"):
        dcs.filter("-w20:price>5")


def test_blowfish():
    content, key, iv = data(70_001, 9), bytes(range(16)), bytes([0xFF] * 7 + [0xFE])
    blocks = -(-len(content) // 8)
    first = int.from_bytes(iv, "big")
    counters = b"".join(((first + at) % 2**64).to_bytes(8, "big") for at in range(blocks))
    encryptor = Cipher(Blowfish(key), modes.ECB()).encryptor()
    stream = encryptor.update(counters) + encryptor.finalize()
    sealed = run(content, [dcs.blowfish_ctr(key, iv)]).memory
    assert sealed == bytes(a ^ b for a, b in zip(content, stream))
    assert run(sealed, [dcs.blowfish_ctr(key, iv)]).memory == content
    with pytest.raises(ValueError, match="4 to 56"):
        dcs.blowfish_ctr(b"abc", iv)


@pytest.mark.parametrize("element", ["u8", "f32"])
def test_knn(element):
    kind, size = ("B", 16) if element == "u8" else ("f", 4)
    values = array.array(kind, data(size * 5000, 11) if element == "u8" else [byte / 4 for byte in data(size * 5000, 11)])
    query = values[100:100 + size]
    rows = [values[at : at + size] for at in range(0, len(values), size)]
    expected = sorted((sum((a - b) ** 2 for a, b in zip(row, query)), at) for at, row in enumerate(rows))[:7]
    lines = run(values.tobytes(), [dcs.knn(7, element, query)]).memory.decode().split()
    assert [(float(distance), int(at)) for at, distance in (line.split(",") for line in lines)] == expected
    for wrong in (lambda: dcs.knn(0, element, query), lambda: dcs.knn(1, "u9", query), lambda: dcs.knn(1, element, b"")):
        with pytest.raises(ValueError):
            wrong()


def roaring(values):
    """The format's simplest form: containers of up to 4,096 values as arrays, the others as bits."""
    pages = {}
    for value in sorted(values):
        pages.setdefault(value >> 16, []).append(value & 0xFFFF)
    containers = []
    for page in pages.values():
        if len(page) <= 4096:
            containers.append(struct.pack(f"<{len(page)}H", *page))
        else:
            containers.append(sum(1 << value for value in page).to_bytes(8192, "little"))
    head = struct.pack("<II", 12346, len(pages)) + b"".join(struct.pack("<HH", key, len(page) - 1) for key, page in pages.items())
    at = len(head) + 4 * len(pages)
    offsets = b"".join(struct.pack("<I", at + sum(map(len, containers[:nth]))) for nth in range(len(pages)))
    return head + offsets + b"".join(containers)


def test_module():
    content = data(100_000)
    done = run(content, [dcs.module(PASSES), "md5"])
    assert done.memory == content and done.digests["md5"] == hashlib.md5(content).digest()
    with pytest.raises(dcs.Error) as caught:
        run(content, [dcs.module(PASSES, b"y")])
    assert caught.value.status == "BAD_PARAMETER"
    with pytest.raises(ValueError, match="WebAssembly"):
        dcs.module(PASSES[:-1])
    with pytest.raises(TypeError, match="bytes-like"):
        dcs.module("upper.wasm")


def test_bitmap():
    one, other = {*range(0, 200_000, 7), 1_000_000}, {*range(0, 200_000, 3), 1_000_000, 2_000_000}
    bits = lambda values: sum(1 << value for value in values).to_bytes(max(values) // 8 + 1, "little")
    both = roaring(one) + roaring(other)
    into = 1 << 20
    assert run(roaring(one), ["bitmap"], into).memory == bits(one)
    assert run(both, [dcs.bitmap("and")], into).memory == bits(one & other)
    assert run(both, [dcs.bitmap("or")], into).memory == bits(one | other)
    assert run(both, [dcs.bitmap("or", count=True)]).memory == b"%d\n" % len(one | other)
    with pytest.raises(dcs.Error) as caught:
        run(both, [dcs.bitmap()], into)
    assert (caught.value.operator, caught.value.status) == ((0, "bitmap"), "CORRUPT_DATA")
    with pytest.raises(ValueError, match="and or or"):
        dcs.bitmap("xor")


def chunked(content, trailer=b""):
    pieces = [content[at : at + 70_000] for at in range(0, len(content), 70_000)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


def test_aws_chunked():
    content = data(200_000, 6)
    done = run(chunked(content), [dcs.aws_chunked(len(content)), "md5"])
    assert done.memory == content
    assert done.digests["md5"] == hashlib.md5(content).digest()
    trailer = b"x-amz-checksum-crc32:y/Q5Jg==\r\n"
    done = run(chunked(b"123456789", trailer), [dcs.aws_chunked(9, checksum="crc32"), "crc32"])
    assert done.digests["aws-chunked"] == done.digests["crc32"] == bytes.fromhex("cbf43926")
    with pytest.raises(dcs.Error) as caught:
        run(chunked(content), [dcs.aws_chunked(len(content) - 1)])
    assert (caught.value.status, caught.value.operator) == ("FRAMING_ERROR", (0, "aws-chunked"))


def test_aws_chunked_takes_amazons_example():
    # Amazon S3 API Reference, "Signature calculations for the Authorization header: transferring payload in multiple
    # chunks": 66560 bytes of "a", with the example's key.
    import hmac

    key = b"AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    for word in (b"20130524", b"us-east-1", b"s3", b"aws4_request"):
        key = hmac.digest(key, word, "sha256")
    seed = bytes.fromhex("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9")
    content = b"a" * 66560
    signatures = [
        b"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        b"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        b"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ]
    body = b"".join(
        b"%x;chunk-signature=%s\r\n%s\r\n" % (len(piece), signature, piece)
        for signature, piece in zip(signatures, (content[:65536], content[65536:], b""), strict=True)
    )

    def signed(body):
        op = dcs.aws_chunked(
            len(content),
            signing_key=key,
            seed_signature=seed,
            timestamp="20130524T000000Z",
            scope="20130524/us-east-1/s3/aws4_request",
        )
        return run(body, op)

    assert signed(body).memory == content
    with pytest.raises(dcs.Error) as caught:
        signed(body.replace(b"aaaa\r\n0;", b"aaab\r\n0;"))
    assert caught.value.status == "SIGNATURE_MISMATCH"


@pytest.mark.parametrize("name", ["md5", "sha1", "sha256", "sha512", "crc32"])
def test_expected_digests(name):
    content = data(500_000, 8)
    make = getattr(dcs, name)
    value = run(content, [name]).digests[name]
    for right in (value, bytearray(value), value.hex(), value.hex().upper()):
        assert run(content, [make(expect=right)]).memory == content
    wrong = bytes([value[0] ^ 1]) + value[1:]
    with pytest.raises(dcs.Error) as caught:
        run(content, ["crc32c", make(wrong)])
    error = caught.value
    assert (error.status, error.stage, error.operator) == ("DIGEST_MISMATCH", "operator", (1, name))
    assert error.errno == 74, "EBADMSG"
    assert error.completion.digests[name] == value
    assert error.bytes_out < len(content)


def test_expected_crc_as_a_number():
    assert run(b"123456789", [dcs.crc32(zlib.crc32(b"123456789"))]).bytes_out == 9
    assert run(b"123456789", [dcs.crc32c(expect=0xE3069283), dcs.crc64_nvme(0xAE8B14860A799888)]).bytes_out == 9


def test_an_operator_twice():
    content = data(10_000, 9)
    done = run(content, ["md5", dcs.aes256_ctr(KEY, IV), "md5"])
    first, second = done.values
    assert first.value == done.digests["md5"] == hashlib.md5(content).digest()
    assert second.value == hashlib.md5(done.memory).digest()
    assert [digest.place for digest in done.values] == [0, 2]
    assert [digest.covered for digest in done.values] == [10_000, 10_000]
    assert second.hexdigest() == second.value.hex()


def test_keys_are_not_shown():
    op = dcs.aes256_ctr(KEY, IV)
    assert repr(op) == "<dcs.Op: aes256-ctr>"
    assert op.name == "aes256-ctr"
