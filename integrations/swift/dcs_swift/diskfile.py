"""The backends of storage policies: Swift's replication backend, with bodies carried by the engine and kept in a form.

On the disk a plain object is the same as Swift's own, so a policy can be switched to this backend and back. Other
forms are read by this backend only; the metadata of an object tell its form (`stored`).
"""

import os
import random
import socket

from eventlet import tpool
from swift.common.utils import drop_buffer_cache, fdatasync
from swift.obj import diskfile as df
from swift.obj.server import EventletPlungerString

from . import carrier, stored
from .carrier import CLIENT, Stopped
from .counters import Counters
from .stored import METADATA, DecodedFile, Form
from .watch import Silent, Watch

# Below this size the hooks cost more than they save.
DEFAULT_MIN_SIZE = 262144


class _Final:
    """A finished digest, in place of Swift's hash object."""

    def __init__(self, hexadecimal):
        self._hexadecimal = hexadecimal

    def hexdigest(self):
        return self._hexadecimal


class Reader(df.DiskFileReader):
    """Swift's reader until `attach` gives it the client's socket."""

    _client = None

    def attach(self, sock, client_timeout):
        self._client, self._client_timeout = sock, client_timeout

    @property
    def _form(self):
        return self._diskfile.form

    def _why_not(self, length):
        """Returns why Swift has to send it; None if the engine can."""
        if not length:
            return "empty"
        if length < self.manager.min_size:
            return "smaller than dcs_min_size"
        return None

    def can_zero_copy_send(self):
        """Called by Swift's object server before it answers a GET of the whole object."""
        return self._client is not None and self._why_not(self._obj_size) is None

    def zero_copy_send(self, wsockfd):
        """Called by Swift's object server after the head of its answer went out."""
        self._carry(0, self._obj_size)

    def __iter__(self):
        if self._client is not None:
            self._left(self._obj_size)
        return super().__iter__()

    def app_iter_range(self, start, stop):
        return Range(self, start or 0, self._obj_size if stop is None else stop)

    def range(self, start, stop):
        """Returns an iterator for one range, once it is known whether there is a socket."""
        if self._client is not None:
            if self._why_not(stop - start) is None:
                return self._carried_range(start, stop)
            self._left(stop - start)
            # Bodies left to Swift are counted once.
            self._client = None
        return super().app_iter_range(start, stop)

    def _left(self, length):
        self.manager.counters.left("GET", self._why_not(length) or "another backend")

    def _carried_range(self, start, stop):
        _cork(self._client, True)
        # Has eventlet send the head of the answer.
        yield EventletPlungerString()
        self._carry(start, stop)
        yield b""

    def _carry(self, start, stop):
        """Sends the body; if the client does not get all of it, its connection is closed."""
        sock = self._client
        whole = start == 0 and stop == self._obj_size
        try:
            self._send(sock, start, stop, whole)
            self.manager.counters.carried("GET", stop - start)
            # Swift's object server sets it and never clears it: the last segment would wait for 200 ms.
            _cork(sock, False)
        except (Stopped, Silent) as stopped:
            self._broke_off(stopped)
            _shut(sock)
        except BaseException:
            self.manager.counters.failed("GET", "interrupted")
            _shut(sock)
            raise
        finally:
            self.close()

    def _send(self, sock, start, stop, whole):
        fd = self._fp.fileno()
        digest = whole and random.random() < self._etag_validate_frac
        watch = Watch(sock, False, self._client_timeout)
        at = start + self._head(sock, start, stop)
        moved = self.manager.carrier.send(sock, fd, at, stop, self._form, digest, watch) if at < stop else None
        if whole:
            # As if Swift had read the file: `close` compares these with the metadata, and quarantines.
            self._started_at_0 = self._read_to_eof = True
            self._bytes_read = moved.body
            self._md5_of_sent_bytes = moved.md5
        self._drop_cache(fd, 0 if self._form.size else start, moved.stored if moved else 0)

    def _head(self, sock, start, stop):
        """Sends the part of a cipher's block with which a range begins, since such blocks are carried whole."""
        length = min(self._form.unaligned(start), stop - start)
        if length:
            self._fp.seek(start)
            try:
                sock.sendall(self._fp.read(length))
            except OSError as error:
                raise Stopped(CLIENT, error) from error
        return length

    def _broke_off(self, stopped):
        if isinstance(stopped, Silent):
            self.manager.counters.failed("GET", "client timeout")
            self._logger.info("dcs: GET of %s: the client took nothing for client_timeout", self._data_file)
        elif stopped.where == CLIENT:
            self.manager.counters.failed("GET", "client went away")
        else:
            self.manager.counters.failed("GET", f"{stopped.where} error")
            self._logger.error("dcs: GET of %s: %s", self._data_file, stopped)
            if stopped.damaged:
                self._quarantine(str(stopped))


class Range:
    """The body of an answer that is one range: Swift creates it before it can get the client's socket."""

    def __init__(self, reader, start, stop):
        self._reader, self._start, self._stop = reader, start, stop

    def attach(self, sock, client_timeout):
        self._reader.attach(sock, client_timeout)

    def __iter__(self):
        return iter(self._reader.range(self._start, self._stop))

    def close(self):
        self._reader.close()


def _cork(sock, on):
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)
    except OSError:
        # Not connected any more.
        pass


def _shut(sock):
    """Ends a connection on which a body stopped midway; Swift's server then finds it closed."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


class Writer(df.DiskFileWriter):
    """Swift's writer, which can also take a whole body from a socket; in both cases the object gets its form."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._form = self.manager.new_form() if self._extension == ".data" else Form()
        self._encoder = self._form.encoder()
        self._stored = 0

    def receive(self, sock, count, prefix, watch):
        """Raises `Stopped`, and whatever `watch` raises."""
        moved = self.manager.carrier.receive(sock, self._fd, count, prefix, self._form, watch)
        self._upload_size, self._stored = moved.body, moved.stored
        self._chunks_etag = _Final(moved.md5)
        self._encoder = None
        os.lseek(self._fd, moved.stored, os.SEEK_SET)
        self._trim()

    def write(self, chunk):
        """Does the same as Swift's, with encoding."""
        if self._encoder is None:
            return super().write(chunk)
        if not self._fd:
            raise ValueError("Writer is not open")
        self._chunks_etag.update(chunk)
        self._upload_size += len(chunk)
        self._store(self._encoder.update(chunk))

    def _store(self, data):
        while data:
            written = os.write(self._fd, data)
            self._stored += written
            data = data[written:]
        diff = self._stored - self._last_sync
        if diff >= self._bytes_per_sync:
            tpool.execute(fdatasync, self._fd)
            drop_buffer_cache(self._fd, self._last_sync, diff)
            self._last_sync = self._stored

    def chunks_finished(self):
        self._finish()
        return super().chunks_finished()

    def put(self, metadata):
        self._finish()
        # A body that came by ssync was decoded by its sender.
        metadata.pop(METADATA, None)
        how = self._form.metadata(self._stored)
        if how:
            metadata[METADATA] = how
        return super().put(metadata)

    def _finish(self):
        if self._encoder is not None:
            encoder, self._encoder = self._encoder, None
            self._store(encoder.finalize())
            self._trim()

    def _trim(self):
        """Frees the space that was allocated for the body and not needed."""
        if self._form.kind == stored.GZIP:
            os.ftruncate(self._fd, self._stored)


class DiskFile(df.DiskFile):
    reader_cls = Reader
    writer_cls = Writer

    form = Form()

    def _verify_data_file(self, data_file, fp, current_time):
        """Swift's, which compares the file's size with the body's."""
        how = self._datafile_metadata.get(METADATA)
        try:
            self.form = Form.parse(how, self.manager.key) if how else Form()
        except stored.FormError as error:
            # Not damaged, and so not quarantined.
            self._logger.error("dcs: %s: %s", data_file, error)
            fp.close()
            raise df.DiskFileStateChanged() from error
        length = self._metadata.get("Content-Length")
        # An invalid length is left to Swift too, which quarantines the object.
        if self.form.size is None or not _is_number(length):
            return super()._verify_data_file(data_file, fp, current_time)
        self._metadata["Content-Length"] = str(self.form.size)
        try:
            super()._verify_data_file(data_file, fp, current_time)
        finally:
            self._metadata["Content-Length"] = length
        self._content_length = int(length)
        return self._content_length

    def reader(self, *args, **kwargs):
        reader = super().reader(*args, **kwargs)
        if self.form.kind != stored.PLAIN:
            reader._fp = DecodedFile(reader._fp, self.form)
        return reader

    def get_datafile_metadata(self):
        """For ssync, which sends bodies decoded."""
        metadata = dict(super().get_datafile_metadata())
        metadata.pop(METADATA, None)
        return metadata


def _is_number(text):
    try:
        int(text)
    except (TypeError, ValueError):
        return False
    return True


class PlainManager(df.DiskFileManager):
    """`diskfile_module = egg:dcs-swift#plain.fs`: new objects are stored as Swift's own are."""

    diskfile_cls = DiskFile
    kind = stored.PLAIN

    def __init__(self, conf, logger):
        super().__init__(conf, logger)
        self.min_size = int(conf.get("dcs_min_size", DEFAULT_MIN_SIZE))
        self.gzip_level = int(conf.get("dcs_gzip_level", 1))
        path = conf.get("dcs_key_file")
        self.key = stored.Key.from_file(path) if path else None
        if self.kind == stored.AES and self.key is None:
            raise ValueError("dcs_key_file is not set: it names the file with the key of encrypted policies")
        # The object server sets both; other daemons have no clients.
        self.carrier = None
        self.counters = Counters(logger, "none")

    def new_form(self):
        return Form.new(self.kind, self.key, self.gzip_level)


class AesManager(PlainManager):
    """`diskfile_module = egg:dcs-swift#aes256-ctr.fs`: new objects are encrypted with the key in dcs_key_file."""

    kind = stored.AES


class GzipManager(PlainManager):
    """`diskfile_module = egg:dcs-swift#gzip.fs`: new objects are compressed, at dcs_gzip_level."""

    kind = stored.GZIP


def carry(managers, conf, counters):
    """Gives the object server's managers the carrier; returns False if none is of this package."""
    ours = [manager for manager in managers if isinstance(manager, PlainManager)]
    by = carrier.make(conf)
    for manager in ours:
        manager.carrier, manager.counters = by, counters
    return bool(ours)
