"""What fails: timeouts, cancelling, peers that go, damaged data. What had been done is always told."""

import contextlib
import gzip
import hashlib
import os
import pickle
import select
import socket
import struct
import threading
import time
import tty

import pytest
from conftest import MIB, Reader, Writer, data, descriptors

import dcs


def is_idle():
    engine = dcs.default_engine()
    for _ in range(200):
        if engine.statistics()["is_idle"]:
            return True
        time.sleep(0.01)
    return False


def test_timeout(pair, make):
    content = data(32 * MIB, 1)
    before = time.monotonic()
    with pytest.raises(dcs.Timeout) as caught:
        dcs.sendfile(pair[0], make(content), through=["md5"], timeout=0.25)
    assert 0.2 < time.monotonic() - before < 5
    error = caught.value
    assert isinstance(error, dcs.Error) and isinstance(error, TimeoutError) and isinstance(error, OSError)
    assert (error.status, error.errno) == ("TIMEOUT", 110)
    assert 0 < error.bytes_out < len(content), "nobody read: the socket's buffers are full"
    pair[1].setblocking(False)
    received = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            received += pair[1].recv(MIB)
    assert len(received) == error.bytes_out, "what was delivered is told exactly"
    assert received == content[: len(received)]
    digest = error.completion.values[0]
    assert digest.value == hashlib.md5(content[: digest.covered]).digest()


@pytest.mark.parametrize("end", [0, 1], ids=["master", "slave"])
def test_a_terminal_that_takes_nothing_stops_nobody(make, end):
    content = data(MIB, 5)
    ends = os.openpty()
    try:
        tty.setraw(ends[1])
        stalled = dcs.transfer(make(content), ends[end], ["md5"])
        # The first bytes have come, and the terminal has room for a few more only: the rest waits for a reader. Whether
        # select(2) calls it full says nothing: a pseudo-terminal may have room again without waking its writer.
        assert select.select([ends[1 - end]], [], [], 60)[0]
        for _ in range(50):
            assert dcs.transfer(b"abc", dcs.Memory(3)).result(60).memory == b"abc"
            time.sleep(0.002)
        assert not stalled.done()
        stalled.cancel()
        with pytest.raises(dcs.Cancelled) as caught:
            stalled.result(60)
        received = b""
        while len(received) < caught.value.bytes_out:
            received += os.read(ends[1 - end], MIB)
        assert received == content[: len(received)]
    finally:
        for fd in ends:
            os.close(fd)


def test_timeout_of_a_silent_peer(pair, target):
    with pytest.raises(dcs.Timeout) as caught:
        dcs.recvfile(pair[0], target, count=10, timeout=0.1)
    assert caught.value.completion.bytes_in == 0


def test_cancel(pair, target):
    transfer = dcs.transfer(pair[0], target, ["md5"])
    pair[1].sendall(b"some")
    time.sleep(0.05)
    assert not transfer.done()
    transfer.cancel()
    with pytest.raises(dcs.Cancelled) as caught:
        transfer.result(10)
    assert (caught.value.status, caught.value.errno) == ("CANCELLED", 125)
    assert transfer.done()
    transfer.cancel()
    with pytest.raises(dcs.Cancelled):
        transfer.result()
    pair[1].sendall(b"more")
    assert is_idle()


def test_cancel_by_another_thread(pair):
    transfer = dcs.transfer(pair[0], dcs.Memory(10))
    threading.Timer(0.1, transfer.cancel).start()
    with pytest.raises(dcs.Cancelled):
        transfer.result(10)


def test_letting_go_of_a_transfer_cancels_it(pair):
    into = bytearray(10)
    transfers = [dcs.transfer(pair[0], dcs.Memory(10)), dcs.transfer(pair[0], into)]
    del transfers
    into.append(1)
    assert is_idle()


def test_cancel_after_the_end():
    transfer = dcs.transfer(b"12", dcs.Memory(2))
    transfer.result()
    transfer.cancel()
    assert transfer.result().memory == b"12"


def test_a_peer_that_resets(tcp, make):
    one, other = tcp
    content = data(32 * MIB, 2)

    def reset():
        other.recv(100_000, socket.MSG_WAITALL)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()

    threading.Thread(target=reset).start()
    with pytest.raises(dcs.Disconnected) as caught:
        dcs.sendfile(one, make(content), through=["md5"])
    error = caught.value
    assert isinstance(error, ConnectionError)
    assert (error.stage, error.status) == ("destination", "PEER_RESET")
    assert 100_000 <= error.bytes_out < len(content)
    assert error.completion.digests["md5"]
    assert "destination" in str(error) and error.advice


def test_a_peer_that_resets_while_it_sends(tcp, target):
    one, other = tcp
    other.sendall(b"x" * 1000)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transfer = dcs.transfer(one, target, count=2000)
    time.sleep(0.05)
    other.close()
    with pytest.raises(dcs.Disconnected) as caught:
        transfer.result(10)
    assert caught.value.stage == "source"
    assert caught.value.bytes_in in (0, 1000)


def test_no_sigpipe(make):
    one, other = socket.socketpair()
    with one:
        other.close()
        with pytest.raises(dcs.Disconnected):
            dcs.sendfile(one, make(b"content"))


def test_damaged_data(pair, target):
    packed = bytearray(gzip.compress(data(MIB, 3)))
    packed[len(packed) // 2] ^= 0xFF
    Writer(pair[1], bytes(packed))
    with pytest.raises(dcs.Error) as caught:
        dcs.recvfile(pair[0], target, through=["md5", "gunzip"])
    assert caught.value.status == "CORRUPT_DATA"
    assert caught.value.operator == (1, "gunzip")
    assert caught.value.errno == 74


def test_a_full_disk(tcp):
    Writer(tcp[1], b"content")
    with open("/dev/full", "wb") as full, pytest.raises(dcs.Error) as caught:
        dcs.recvfile(tcp[0], full)
    assert (caught.value.errno, caught.value.stage) == (28, "destination")


def test_a_copy_onto_what_is_still_to_be_read(folder):
    (folder / "one").write_bytes(b"0123456789" * 1000)
    with open(folder / "one", "r+b") as file:
        with pytest.raises(dcs.Error, match="overlaps the source") as caught:
            dcs.transfer(file, file, ["md5"], offset=100, count=1000).result(30)
        assert (caught.value.status, caught.value.stage) == ("OVERLAP", "destination")
        assert "ranges that do not overlap" in caught.value.advice
        # Bytes that are written where they were read are no trouble.
        assert dcs.transfer(file, file, ["md5"], count=1000).result(30).bytes_out == 1000
    assert (folder / "one").read_bytes() == b"0123456789" * 1000


def test_a_file_that_shrinks(tcp, folder):
    content = data(64 * MIB, 4)
    (folder / "shrinks").write_bytes(content)
    with open(folder / "shrinks", "r+b") as file:
        transfer = dcs.transfer(file, tcp[0], ["md5"])
        assert tcp[1].recv(1) == content[:1], "it has begun"
        file.truncate(40 * MIB)
        Reader(tcp[1])
        with pytest.raises(dcs.Error) as caught:
            transfer.result(30)
    assert (caught.value.status, caught.value.stage) == ("END_OF_SOURCE", "source")
    assert caught.value.bytes_out <= 40 * MIB


def test_more_transfers_than_the_queue_has_room_for(pair):
    with dcs.Engine(depth=4) as engine:
        transfers = [dcs.transfer(pair[0], dcs.Memory(1), engine=engine) for _ in range(4)]
        with pytest.raises(dcs.Error, match="depth") as caught:
            dcs.transfer(pair[0], dcs.Memory(1), engine=engine)
        assert caught.value.errno == 11, "EAGAIN"
        transfers[0].cancel()
        with pytest.raises(dcs.Cancelled):
            transfers[0].result()
        dcs.transfer(b"1", dcs.Memory(1), engine=engine).result(10)


def test_the_same_error_each_time(pair):
    transfer = dcs.transfer(pair[0], dcs.Memory(1), timeout=0.01)
    errors = []
    for _ in range(2):
        with pytest.raises(dcs.Timeout) as caught:
            transfer.result()
        errors.append(caught.value)
    assert errors[0] is errors[1]


def test_errors_can_be_pickled():
    with pytest.raises(dcs.Error) as caught:
        dcs.transfer(b"123", dcs.Memory(3), [dcs.md5(bytes(16))]).result()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.status, copy.errno, str(copy)) == ("DIGEST_MISMATCH", 74, str(caught.value))
    assert copy.completion is None and copy.bytes_out == 0


def test_no_descriptor_is_left(make, target):
    file = make(data(10_000, 5))
    one, other = socket.socketpair()
    with one, other:
        dcs.sendfile(one, file, through=["md5"])
        other.recv(20_000)
        before = descriptors()
        for at in range(1000):
            transfer = dcs.transfer(file, one, ["md5"])
            if at % 2:
                transfer.fileno()
            transfer.result()
            assert len(other.recv(10_000, socket.MSG_WAITALL)) == 10_000
            if at % 10 == 0:
                abandoned = dcs.transfer(other, target)
                abandoned.fileno()
                del abandoned
                with contextlib.suppress(dcs.Error):
                    dcs.sendfile(one, target.fileno(), 5, 50)
        del transfer
        assert is_idle()
        # The engine's thread lets go of the last one a moment after it has told that it is done.
        until = time.monotonic() + 5
        while descriptors() != before and time.monotonic() < until:
            time.sleep(0.01)
        assert descriptors() == before
