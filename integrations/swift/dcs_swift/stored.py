"""Forms of an object's body on the disk: plain, encrypted (aes256-ctr) or compressed (gzip).

The metadata of the object's data file contain the form, so that each object can be read whatever its policy says
today. The codecs here are for bodies that Swift reads and writes itself (the auditor, ssync, several ranges, chunked uploads);
the engine has its own, and both make the same bytes.
"""

import errno
import os
import zlib
from dataclasses import dataclass
from hashlib import sha256

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from eventlet import sleep

# A name that no client can send: neither user's nor system metadata, so it never leaves the object server.
METADATA = "X-Dcs-At-Rest"
PLAIN, AES, GZIP = "plain", "aes256-ctr", "gzip"
KEY_BYTES = 32
_BLOCK = 16
# Of gzip's window size: with a header and a trailer.
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_STEP = 1 << 20


class FormError(Exception):
    """An object that can't be read here: its key is not the configured one, or its metadata are not understood."""


class Key:
    """The key of a server, and the name by which objects refer to it."""

    def __init__(self, secret):
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, this one has {len(secret)}")
        self.secret = secret
        self.name = sha256(b"dcs-swift key name" + secret).hexdigest()[:16]

    @classmethod
    def from_file(cls, path):
        """Reads a key of 64 hexadecimal digits."""
        with open(path) as file:
            text = file.read().strip()
        try:
            return cls(bytes.fromhex(text))
        except ValueError as error:
            raise ValueError(f"{path}: not a key of 64 hexadecimal digits: {error}") from None


@dataclass(frozen=True)
class Form:
    """Form of an object's file."""

    kind: str = PLAIN
    key: "Key | None" = None
    iv: bytes = b""
    level: int = 1
    # Bytes in the file; None if the same as the body's, or not known yet.
    size: "int | None" = None

    @classmethod
    def new(cls, kind, key=None, level=1):
        """Returns the form for an object to be written."""
        return cls(kind, key, os.urandom(_BLOCK) if kind == AES else b"", level)

    @classmethod
    def parse(cls, text, key):
        """Parses the form in `metadata`; `key` is the server's, or None."""
        kind, *fields = text.split(";")
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        try:
            if kind == AES:
                if key is None or key.name != values["key"]:
                    raise FormError(
                        f"the object is encrypted with the key {values['key']}, the server's is "
                        f"{key.name if key else 'not set (dcs_key_file)'}"
                    )
                return cls(AES, key, bytes.fromhex(values["iv"]))
            if kind == GZIP:
                return cls(GZIP, size=int(values["size"]))
        except (KeyError, ValueError) as error:
            raise FormError(f"{METADATA}: {text!r}: {error}") from None
        raise FormError(f"{METADATA}: {text!r} is not known to this version")

    def metadata(self, size):
        """Returns the form for the object's metadata; None for a plain one. `size`: bytes in the file."""
        if self.kind == AES:
            return f"{AES};key={self.key.name};iv={self.iv.hex()}"
        return f"{GZIP};size={size}" if self.kind == GZIP else None

    def iv_at(self, offset):
        """Returns the counter block of the byte at `offset`, a multiple of 16."""
        return ((int.from_bytes(self.iv, "big") + offset // _BLOCK) % (1 << 128)).to_bytes(_BLOCK, "big")

    def unaligned(self, offset):
        """Returns the bytes from `offset` to where a ranged transfer may begin."""
        return -offset % _BLOCK if self.kind == AES else 0

    def encoder(self):
        """Returns an object with `update` and `finalize`; None for plain bodies."""
        if self.kind == AES:
            return Cipher(algorithms.AES(self.key.secret), modes.CTR(self.iv)).encryptor()
        return _Gzip(self.level) if self.kind == GZIP else None

    def decoder(self, offset=0):
        """Like `encoder`; aes256-ctr begins anywhere, gzip at 0."""
        if self.kind == AES:
            cipher = Cipher(algorithms.AES(self.key.secret), modes.CTR(self.iv_at(offset))).decryptor()
            cipher.update(bytes(offset % _BLOCK))
            return cipher
        return _Gunzip() if self.kind == GZIP else None


class _Gzip:
    def __init__(self, level):
        self._stream = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)

    def update(self, data):
        return self._stream.compress(data)

    def finalize(self):
        return self._stream.flush()


class _Gunzip:
    """Decodes one member, with nothing behind it; anything else is an input/output error, as a bad sector is."""

    def __init__(self):
        self._stream = zlib.decompressobj(_GZIP_WINDOW)

    def update(self, data):
        try:
            plain = self._stream.decompress(data)
        except zlib.error as error:
            raise OSError(errno.EIO, f"gzip: {error}") from None
        if self._stream.unused_data:
            raise OSError(errno.EIO, "gzip: bytes behind the end")
        return plain

    def finalize(self):
        if not self._stream.eof:
            raise OSError(errno.EIO, "gzip: cut short")
        return b""


class DecodedFile:
    """A data file that reads as the body: has what Swift's own reader needs of a file object."""

    def __init__(self, file, form):
        self._file = file
        self._form = form
        self.seek(0)

    def fileno(self):
        return self._file.fileno()

    def tell(self):
        return self._at

    def close(self):
        self._file.close()

    def seek(self, offset):
        """Sets the position. gzip can only be read from its beginning: the next `read` does that."""
        direct = self._form.kind != GZIP
        self._file.seek(offset if direct else 0)
        self._decoder = self._form.decoder(offset if direct else 0)
        self._ready, self._ended = b"", False
        self._skip, self._at = (0 if direct else offset), offset

    def read(self, size):
        while self._skip and self._fill():
            # Other greenlets get their turn: the skipped part may be long.
            sleep()
            dropped = min(self._skip, len(self._ready))
            self._ready, self._skip = self._ready[dropped:], self._skip - dropped
        while len(self._ready) < size and self._fill(size):
            pass
        chunk, self._ready = self._ready[:size], self._ready[size:]
        self._at += len(chunk)
        return chunk

    def _fill(self, size=_STEP):
        """Returns False at the end."""
        if self._ended:
            return False
        data = self._file.read(max(size, 4096))
        self._ended = not data
        self._ready += self._decoder.update(data) if data else self._decoder.finalize()
        return True
