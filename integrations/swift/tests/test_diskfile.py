"""Objects on the disk, with Swift's own disk files: failures that quarantine an object, and those that do not."""

import errno
import logging
import shutil
import socket
from hashlib import md5

import pytest
from swift.common.storage_policy import POLICIES
from swift.common.utils import Timestamp
from swift.obj.diskfile import DiskFileQuarantined, write_metadata

from dcs_swift import carrier
from dcs_swift.carrier import DATA, DISK, ENGINE, Stopped
from dcs_swift.diskfile import GzipManager, PlainManager
from lab.cluster import Missing, data_folder

BODY = bytes(range(256)) * 40


@pytest.fixture
def folder():
    try:
        folder = data_folder(1 << 20)
    except Missing as why:
        pytest.skip(str(why))
    (folder / "d1").mkdir()
    yield folder
    shutil.rmtree(folder)


def make(kind, folder):
    conf = {"devices": str(folder), "mount_check": "false", "dcs_min_size": "1", "fallocate_reserve": "0"}
    manager = kind(conf, Logger())
    manager.carrier = carrier.make({"engine": "hashlib"})
    with disk_file(manager).create(size=len(BODY)) as writer:
        writer.write(BODY)
        writer.chunks_finished()
        now = Timestamp.now().internal
        metadata = {"X-Timestamp": now, "Content-Length": str(len(BODY)), "Content-Type": "a/b", "ETag": md5(BODY).hexdigest()}
        writer.put(metadata)
        writer.commit(Timestamp(now))
    return manager


class Logger(logging.LoggerAdapter):
    """Methods of Swift's loggers that Python's lack."""

    def __init__(self):
        super().__init__(logging.getLogger("test"), {})

    def increment(self, metric):
        pass


def disk_file(manager):
    return manager.get_diskfile("d1", "0", "a", "c", "o", POLICIES[0])


def get(manager, by):
    """Makes a GET, whose body `by` carries."""
    manager.carrier = by
    ours, other = socket.socketpair()
    with ours, other, disk_file(manager).open() as opened:
        reader = opened.reader()
        reader.attach(ours, 5)
        reader.zero_copy_send(ours.fileno())
        return other.recv(1)


class Fails:
    """A carrier that fails as instructed."""

    def __init__(self, stopped):
        self._stopped = stopped

    def send(self, *_):
        raise self._stopped


@pytest.mark.parametrize(
    "stopped",
    [
        Stopped(ENGINE, OSError(errno.EIO, "INTERNAL_ERROR")),
        Stopped(ENGINE, OSError(errno.ENODATA, "anything")),
        Stopped(DISK, OSError(errno.ENOMEM, "READ_ERROR")),
    ],
)
def test_healthy_object_stays(folder, caplog, stopped):
    manager = make(PlainManager, folder)
    assert get(manager, Fails(stopped)) == b"", "the client sees its connection end"
    assert str(stopped) in caplog.text
    assert not (folder / "d1" / "quarantined").exists()
    with disk_file(manager).open() as opened:
        assert b"".join(opened.reader()) == BODY


@pytest.mark.parametrize("where", [DATA, DISK])
def test_damaged_object_is_quarantined(folder, where):
    manager = make(PlainManager, folder)
    get(manager, Fails(Stopped(where, OSError(errno.EIO, "damaged"), damaged=True)))
    assert len(list((folder / "d1" / "quarantined" / "objects").iterdir())) == 1


@pytest.mark.parametrize("length", [None, "many"])
@pytest.mark.parametrize("kind", [PlainManager, GzipManager])
def test_metadata_without_a_length(folder, kind, length):
    """Swift quarantines such an object, in any form."""
    manager = make(kind, folder)
    with disk_file(manager).open() as opened:
        metadata = opened.get_metadata()
        path = opened._data_file
    metadata.pop("Content-Length")
    if length:
        metadata["Content-Length"] = length
    write_metadata(path, metadata)
    with pytest.raises(DiskFileQuarantined):
        disk_file(manager).open()
