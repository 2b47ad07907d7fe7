"""Transfers that a virtual drive's disk takes part in, as far as that shows without a drive: what cannot be is refused, and
nothing is moved. What the library does with a drive, the tests of dcs-csd show in a guest."""

import os
import socket

import pytest

import dcs


@pytest.fixture(scope="module")
def engine():
    with dcs.Engine(backend="drive") as engine:
        yield engine


def call(how, source, target, through, **options):
    """A transfer, or the same from a socket."""
    if how == "transfer":
        return dcs.transfer(source, target, through, **options).result()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(os.pread(source.fileno(), 1 << 16, 0))
        theirs.shutdown(socket.SHUT_WR)
        return dcs.recvfile(ours, target, through=through, **options)


@pytest.mark.parametrize("how", ["transfer", "recvfile"])
def test_a_destination_that_no_drive_has_is_refused_and_nothing_is_written(how, make, target, engine):
    source = make(bytes(range(256)) * 64)
    target.write(b"\xee" * 65536)
    target.flush()
    with pytest.raises(dcs.Error) as refused:
        call(how, source, target, "md5", near_storage=True, engine=engine)
    assert refused.value.status == "PATH_UNAVAILABLE", refused.value
    assert refused.value.bytes_out == 0
    assert os.pread(target.fileno(), 65536, 0) == b"\xee" * 65536
    # The same without the drive's help.
    if how == "recvfile":
        done = call(how, source, target, "md5", engine=engine)
        assert done.bytes_out == 16384 and os.pread(target.fileno(), 16384, 0) == bytes(range(256)) * 64


@pytest.mark.parametrize("how", ["transfer", "recvfile"])
def test_it_needs_operators_and_such_an_engine(how, make, target, engine):
    source = make(b"some bytes")
    with dcs.Engine() as kernel:
        for through, other in [("md5", kernel), ("md5", None), (None, engine), ([], engine)]:
            with pytest.raises(dcs.Error, match="near_storage needs operators") as refused:
                call(how, source, target, through, near_storage=True, engine=other)
            assert refused.value.status == "INVALID_FIELD", refused.value
    assert os.fstat(target.fileno()).st_size == 0


def test_a_source_that_no_drive_has_is_refused_and_not_read_by_the_kernel_instead(make, engine):
    with pytest.raises(dcs.Error) as refused:
        dcs.transfer(make(b"some bytes"), dcs.Memory(100), "md5", engine=engine).result()
    assert refused.value.status == "PATH_UNAVAILABLE", refused.value
    # Without operators, or from elsewhere, it goes as by the kernel.
    assert dcs.transfer(make(b"some bytes"), dcs.Memory(100), engine=engine).result().memory == b"some bytes"
    assert dcs.transfer(b"some bytes", dcs.Memory(100), "md5", engine=engine).result().memory == b"some bytes"


def test_backends_that_are_none_are_refused():
    with pytest.raises(ValueError, match="backend must be kernel or drive"):
        dcs.Engine(backend="card")
