"""Moves the bytes of a body: by the engine, or by loops with hashlib.

Greenlets call both, and neither blocks the hub for long: with the engine, its thread does the work while the greenlet waits for
its descriptor; the loops work as Swift's own do, but with larger reads. The loops exist for `dcs bench apps`, so that a gain from
larger reads is not credited to the engine.
"""

import errno
import hashlib
import os
from collections import namedtuple

from eventlet import sleep
from eventlet.hubs import trampoline

from .stored import AES, GZIP

# Places where a body can get stuck.
CLIENT, DISK, DATA, ENGINE = "client", "disk", "data", "engine"
# Statuses of the engine: those by which an operator reports damaged contents of a file, and those about an endpoint itself. All
# others are failures of the engine.
_DAMAGED = {"CORRUPT_DATA", "TRUNCATED_DATA", "DIGEST_MISMATCH"}
_OF_ENDS = {
    "READ_ERROR",
    "WRITE_ERROR",
    "END_OF_SOURCE",
    "OUT_OF_RANGE",
    "PEER_RESET",
    "CAPACITY_EXCEEDED",
    "ACCESS_DENIED",
    "DEVICE_RESET",
}
# Bytes of the body; bytes in the file; MD5 of the body in hexadecimal, or None.
Moved = namedtuple("Moved", "body stored md5")
_BLOCK = 1 << 20
_DIRECT = 1 << 20
# Blocks of an engine in addition to one for each request, and the most requests that get one.
_BLOCKS, _MOST = 256, 4096


class Stopped(Exception):
    """A body that was not moved completely. `damaged`: because of the object's file, which is to be quarantined."""

    def __init__(self, where, cause, body=0, damaged=False):
        super().__init__(f"{where}: {cause}")
        self.where = where
        self.errno = getattr(cause, "errno", None)
        self.body = body
        self.damaged = damaged


class _Look(Exception):
    pass


def judge(error, receives):
    """Returns where a transfer got stuck according to its `dcs.Error`, and whether the object's file is damaged."""
    if error.stage == "operator":
        damaged = error.status in _DAMAGED and not receives
        return (DATA if damaged else ENGINE), damaged
    ends = {"source": CLIENT, "destination": DISK} if receives else {"source": DISK, "destination": CLIENT}
    where = ends.get(error.stage, ENGINE) if error.status in _OF_ENDS else ENGINE
    short = error.status == "END_OF_SOURCE"
    unreadable = error.status == "READ_ERROR" and error.errno == errno.EIO
    return where, error.stage == "source" and where == DISK and (short or unreadable)


def _settle(transfer):
    """Waits until the engine has released its descriptors, whatever else happens."""
    while not transfer.done():
        try:
            trampoline(transfer.fileno(), read=True)
        except BaseException:  # noqa: B902: the caller raises what it has; closing a descriptor in use would be worse
            pass


class Engine:
    """Moves the bodies of all requests of a process with one engine: their MD5s share its multi-lane unit."""

    name = "dcs"

    def __init__(self, most=1024, cores=1):
        """`most`: concurrent requests of a process; `cores`: number of the engine's threads, or "all"."""
        import dcs

        self._dcs = dcs
        # A request may be delayed by its client and must not delay others: each has a command and a block, and there are some
        # spare ones. The same holds for each core, since requests placed by load may meet where lanes are shared.
        self._sizes = {"commands": max(most, 2), "depth": most, "blocks": most + _BLOCKS, "cores": cores}
        self._engine, self._pid = None, None
        # Keyed by the file system's device.
        self._direct = {}

    def _run(self, watch, source, destination, through, **options):
        """Returns a completion; raises `Stopped`, or whatever the watch raises."""
        transfer = self._submit(source, destination, through, options, watch)
        try:
            self._wait(transfer, watch)
            return transfer.result()
        except self._dcs.Error as error:
            where, damaged = judge(error, watch.receives)
            raise Stopped(where, error, error.bytes_in, damaged) from error
        finally:
            # Closes its descriptor now, and not when the exception with this frame is released.
            del transfer

    @staticmethod
    def _wait(transfer, watch):
        try:
            while not transfer.done():
                try:
                    trampoline(transfer.fileno(), read=True, timeout=watch.pause(), timeout_exc=_Look)
                except _Look:
                    watch.look()
        except BaseException:
            transfer.cancel()
            _settle(transfer)
            raise
        finally:
            del transfer

    def _mine(self):
        """Returns this process's engine: a forked worker makes its own."""
        if self._pid != os.getpid():
            try:
                self._engine, self._pid = self._dcs.Engine(**self._sizes), os.getpid()
            except self._dcs.Error as error:
                raise Stopped(ENGINE, error) from error
        return self._engine

    def _submit(self, source, destination, through, options, watch):
        engine = self._mine()
        while True:
            try:
                return self._dcs.transfer(source, destination, through, engine=engine, **options)
            except self._dcs.Error as error:
                if (error.stage, error.errno) != ("queue", errno.EAGAIN):
                    raise Stopped(ENGINE, error) from error
            # The engine has no place left: this request waits for one.
            sleep(0.01)
            watch.look()

    def send(self, sock, fd, start, stop, form, digest, watch):
        """Sends bytes `start` to `stop` of a body to a client; a cipher's from a multiple of 16 on."""
        through, offset, count = [], start, stop - start
        if form.kind == AES:
            through = [self._dcs.aes256_ctr(form.key.secret, form.iv_at(start))]
        elif form.kind == GZIP:
            # It can only be restored from its beginning.
            through, offset, count = [self._dcs.gunzip(), self._dcs.slice(start, stop - start)], 0, form.size
        if digest:
            through.append("md5")
        # A data file is never written to after it has its name.
        done = self._run(watch, fd, sock, through, offset=offset, count=count, immutable=True)
        return Moved(done.bytes_out, done.bytes_in, done.hexdigest("md5") if digest else None)

    def receive(self, sock, fd, count, prefix, form, watch):
        """Receives `count` bytes from a client, after `prefix`, which has arrived already, into a file from its beginning, encoded."""
        through = ["md5"]
        if form.kind == AES:
            through.append(self._dcs.aes256_ctr(form.key.secret, form.iv))
        elif form.kind == GZIP:
            through.append(self._dcs.gzip(form.level))
        cache = "off" if count >= _DIRECT and self._goes_past_cache(fd) else "auto"
        done = self._run(watch, sock, fd, through, count=count, prefix=prefix, destination_cache=cache)
        return Moved(done.bytes_in, done.bytes_out, done.hexdigest("md5"))

    def _goes_past_cache(self, fd):
        """Swift drops what it wrote from the page cache, once it is on the disk: large bodies need not go through it. Some
        file systems don't offer that."""
        device = os.fstat(fd).st_dev
        if device not in self._direct:
            try:
                os.close(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_DIRECT))
                self._direct[device] = True
            except OSError:
                self._direct[device] = False
        return self._direct[device]


class Loops:
    """Moves bytes with reads of 1 MiB, hashlib's MD5, and ordinary sends and writes."""

    name = "hashlib"

    def send(self, sock, fd, start, stop, form, digest, watch):
        md5 = hashlib.md5(usedforsecurity=False) if digest else None
        compressed = form.kind == GZIP
        decoder = form.decoder(0 if compressed else start)
        block = memoryview(bytearray(_BLOCK))
        at, left, skip, sent = (0, form.size, start, 0) if compressed else (start, stop - start, 0, 0)
        while left and sent < stop - start:
            try:
                got = os.preadv(fd, [block[: min(_BLOCK, left)]], at)
            except OSError as error:
                raise Stopped(DISK, error, sent, damaged=error.errno == errno.EIO) from error
            if not got:
                raise Stopped(DISK, OSError(errno.ENODATA, "the file is shorter than it was"), sent, damaged=True)
            at, left = at + got, left - got
            plain = memoryview(_decode(decoder, block[:got], not left, sent)) if decoder else block[:got]
            skipped = min(skip, len(plain))
            plain, skip = plain[skipped : skipped + stop - start - sent], skip - skipped
            if md5:
                md5.update(plain)
            try:
                sock.sendall(plain)
            except OSError as error:
                raise Stopped(CLIENT, error, sent) from error
            sent += len(plain)
        return Moved(sent, at, md5.hexdigest() if md5 else None)

    def receive(self, sock, fd, count, prefix, form, watch):
        md5 = hashlib.md5(usedforsecurity=False)
        encoder = form.encoder()
        block = memoryview(bytearray(_BLOCK))
        came, stored, data = 0, 0, memoryview(prefix)
        while True:
            md5.update(data)
            came += len(data)
            coded = encoder.update(data) if encoder else data
            if encoder and came == count:
                coded += encoder.finalize()
            stored += _write(fd, coded, stored, came)
            if came == count:
                return Moved(came, stored, md5.hexdigest())
            data = block[: self._some(sock, block[: min(_BLOCK, count - came)], watch, came)]

    @staticmethod
    def _some(sock, block, watch, came):
        try:
            got = sock.recv_into(block)
        except TimeoutError:
            watch.overrun()
        except OSError as error:
            raise Stopped(CLIENT, error, came) from error
        watch.check_longest()
        if not got:
            raise Stopped(CLIENT, OSError(errno.ECONNRESET, "the client ended early"), came)
        return got


def _decode(decoder, data, last, sent):
    try:
        return decoder.update(data) + (decoder.finalize() if last else b"")
    except OSError as error:
        raise Stopped(DATA, error, sent, damaged=True) from error


def _write(fd, data, offset, came):
    written = 0
    while written < len(data):
        try:
            written += os.pwrite(fd, data[written:], offset + written)
        except OSError as error:
            raise Stopped(DISK, error, came) from error
    return written


def make(conf):
    """Returns the carrier for the configuration of the object server's application."""
    name = conf.get("engine", Engine.name)
    if name == Engine.name:
        # Swift's own option, in [DEFAULT].
        return Engine(min(int(conf.get("max_clients", 1024)), _MOST), conf.get("dcs_cores", 1))
    if name == Loops.name:
        return Loops()
    raise ValueError(f"engine = {name}: expected one of {Engine.name}, {Loops.name}")
