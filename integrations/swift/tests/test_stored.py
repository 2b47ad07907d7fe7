"""Forms of bodies, compared with gzip's own module and an independent use of `cryptography`."""

import errno
import gzip
import io
import os
import random

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dcs_swift.stored import AES, GZIP, DecodedFile, Form, FormError, Key

KEY = Key(bytes(range(32)))
DATA = random.Random(1).randbytes(100_000) + bytes(200_000)


def encode(form, data, step=70_001):
    encoder = form.encoder()
    coded = b"".join(encoder.update(data[at : at + step]) for at in range(0, len(data), step))
    return coded + encoder.finalize()


@pytest.mark.parametrize("kind", [AES, GZIP])
def test_metadata_say_how_to_read(kind):
    form = Form.new(kind, KEY)
    coded = encode(form, DATA)
    again = Form.parse(form.metadata(len(coded)), KEY)
    assert (again.kind, again.iv) == (form.kind, form.iv)
    assert again.size == (len(coded) if kind == GZIP else None)
    assert DecodedFile(io.BytesIO(coded), again).read(len(DATA) + 1) == DATA


def test_gzip_is_gzip():
    assert gzip.decompress(encode(Form.new(GZIP), DATA)) == DATA


@pytest.mark.parametrize("iv", [bytes(16), b"\xff" * 16, os.urandom(16)])
def test_cipher_begins_anywhere(iv):
    """Holds also if the counter's low half overflows."""
    form = Form(AES, KEY, iv)
    coded = Cipher(algorithms.AES(KEY.secret), modes.CTR(iv)).encryptor().update(DATA)
    for offset in (0, 1, 15, 16, 17, 65_537):
        assert form.decoder(offset).update(coded[offset:]) == DATA[offset:]
        assert (offset + form.unaligned(offset)) % 16 == 0 and 0 <= form.unaligned(offset) < 16


@pytest.mark.parametrize("kind", [AES, GZIP])
@pytest.mark.parametrize("chunk", [1000, 65536, 1 << 20])
def test_file_reads_as_the_body(kind, chunk):
    form = Form.new(kind, KEY)
    file = DecodedFile(io.BytesIO(encode(form, DATA)), form)
    for offset in (0, 1, 99_999, len(DATA) - 1, len(DATA), 5):
        file.seek(offset)
        assert file.tell() == offset
        got = b"".join(iter(lambda: file.read(chunk), b""))
        assert got == DATA[offset:] and file.tell() == len(DATA)


@pytest.mark.parametrize("damage", [lambda coded: coded[:-1], lambda coded: coded + b"x", lambda coded: b"x" + coded[1:]])
def test_damaged_gzip_is_an_error_of_the_disk(damage):
    form = Form.new(GZIP)
    file = DecodedFile(io.BytesIO(damage(encode(form, DATA))), form)
    with pytest.raises(OSError) as caught:
        while file.read(65536):
            pass
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize(
    "text", ["", "zstd;size=1", "gzip", "gzip;size=x", "aes256-ctr;iv=00", f"aes256-ctr;key={KEY.name};iv=zz"]
)
def test_unknown_forms(text):
    with pytest.raises(FormError):
        Form.parse(text, KEY)


def test_other_key():
    text = Form.new(AES, KEY).metadata(0)
    for key in (None, Key(bytes(32))):
        with pytest.raises(FormError, match="is encrypted with the key"):
            Form.parse(text, key)


def test_key_files(tmp_path):
    path = tmp_path / "key"
    path.write_text("00" * 32 + "\n")
    assert Key.from_file(path).secret == bytes(32)
    for text in ("", "00" * 31, "zz" * 32):
        path.write_text(text)
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            Key.from_file(path)
