"""Waiting for transfers: select, asyncio, threads."""

import asyncio
import hashlib
import select
import socket
import threading
import time
import weakref

import pytest
from conftest import MIB, Reader, data

import dcs


def readable(transfer, timeout=0.0):
    return bool(select.select([transfer], [], [], timeout)[0])


def test_select(pair):
    transfer = dcs.transfer(pair[0], dcs.Memory(5), count=5)
    assert not readable(transfer, 0.05)
    pair[1].sendall(b"hello")
    assert readable(transfer, 10)
    assert readable(transfer), "it stays so"
    assert transfer.result(0).memory == b"hello"
    assert readable(transfer)
    assert transfer.fileno() == transfer.fileno()


def test_select_of_one_that_is_done():
    transfer = dcs.transfer(b"1", dcs.Memory(1))
    transfer.result()
    assert readable(transfer)


def test_select_of_one_that_fails(pair):
    transfer = dcs.transfer(pair[0], dcs.Memory(5), count=5)
    transfer.fileno()
    transfer.cancel()
    assert readable(transfer, 10)
    with pytest.raises(dcs.Cancelled):
        transfer.result(0)


def test_epoll_of_many():
    with select.epoll() as epoll:
        pairs = [socket.socketpair() for _ in range(50)]
        waiting = {}
        for at, (one, _) in enumerate(pairs):
            transfer = dcs.transfer(one, dcs.Memory(8), ["md5"], count=8)
            epoll.register(transfer, select.EPOLLIN)
            waiting[transfer.fileno()] = at, transfer
        for at in reversed(range(50)):
            pairs[at][1].sendall(b"%08d" % at)
        while waiting:
            for fd, _ in epoll.poll(10):
                at, transfer = waiting.pop(fd)
                assert transfer.done()
                assert transfer.result().digests["md5"] == hashlib.md5(b"%08d" % at).digest()
                epoll.unregister(fd)
        for one, other in pairs:
            one.close()
            other.close()


def test_result_with_a_limit(pair):
    transfer = dcs.transfer(pair[0], dcs.Memory(1), count=1)
    for limit in (0, -1, 0.05):
        with pytest.raises(TimeoutError) as caught:
            transfer.result(limit)
        assert not isinstance(caught.value, dcs.Error), "it goes on"
    assert repr(transfer) == "<dcs.Transfer, running>"
    pair[1].sendall(b"1")
    assert transfer.result(10).memory == b"1"
    assert transfer.result() is transfer.result(), "the same answer each time"
    assert repr(transfer) == "<dcs.Transfer, done>"
    weakref.ref(transfer)


def test_asyncio_many_at_once():
    async def one(at):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            content = data(200_000 + at, at)
            back = dcs.transfer(theirs, dcs.Memory(MIB), ["md5"])
            sent = await dcs.transfer(content, ours, ["md5"])
            ours.shutdown(socket.SHUT_WR)
            got = await back
            assert got.memory == content
            return sent.digests["md5"] == got.digests["md5"] == hashlib.md5(content).digest()

    async def main():
        return await asyncio.gather(*(one(at) for at in range(40)))

    assert all(asyncio.run(main()))


def test_asyncio_lets_other_tasks_run(pair):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticker = asyncio.create_task(tick())
        transfer = dcs.transfer(pair[0], dcs.Memory(1), count=1)
        asyncio.get_running_loop().call_later(0.2, pair[1].sendall, b"1")
        done = await transfer
        ticker.cancel()
        return done.memory, ticks

    memory, ticks = asyncio.run(main())
    assert memory == b"1" and ticks > 5


def test_asyncio_errors_and_cancelling(pair):
    async def main():
        with pytest.raises(dcs.Timeout):
            await dcs.transfer(pair[0], dcs.Memory(1), timeout=0.05)
        transfer = dcs.transfer(pair[0], dcs.Memory(1))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(transfer, 0.05)
        assert transfer.done(), "the engine has let go of it"
        with pytest.raises(dcs.Cancelled):
            transfer.result(0)
        waits = [asyncio.ensure_future(_wait(dcs.transfer(b"1", dcs.Memory(1)))) for _ in range(3)]
        assert [done.memory for done in await asyncio.gather(*waits)] == [b"1"] * 3

        # Several tasks may await one.
        shared = dcs.transfer(pair[1], dcs.Memory(1), count=1)
        waits = [asyncio.ensure_future(_wait(shared)) for _ in range(3)]
        await asyncio.sleep(0.02)
        pair[0].sendall(b"2")
        assert [done.memory for done in await asyncio.gather(*waits)] == [b"2"] * 3

    async def _wait(transfer):
        return await transfer

    asyncio.run(main())
    pair[1].sendall(b"1")
    assert pair[0].recv(1) == b"1", "a cancelled transfer takes nothing that comes later"


def test_the_lock_is_released_while_a_thread_waits(pair):
    counted = 0
    waiting = threading.Thread(target=lambda: dcs.recvfile(pair[0], open("/dev/null", "wb"), count=1))
    waiting.start()
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        counted += 1
    assert waiting.is_alive()
    assert counted > 1000
    pair[1].sendall(b"1")
    waiting.join(10)
    assert not waiting.is_alive()


def test_threads_share_an_engine_and_its_lanes(folder):
    contents = [data(4 * MIB, seed) for seed in range(8)]
    for at, content in enumerate(contents):
        (folder / f"{at}").write_bytes(content)
    before = dcs.default_engine().statistics()
    failures = []

    def work(at):
        try:
            one, other = socket.socketpair()
            with one, other, open(folder / f"{at}", "rb") as file:
                reader = Reader(other)
                done = dcs.sendfile(one, file, through=["md5"])
                one.shutdown(socket.SHUT_WR)
                assert reader.all() == contents[at]
                assert done.digests["md5"] == hashlib.md5(contents[at]).digest()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not failures and not any(thread.is_alive() for thread in threads)
    after = dcs.default_engine().statistics()
    assert after["completed"] - before["completed"] == 8 and after["failed"] == before["failed"]


def test_many_threads_wait_for_one_transfer(pair):
    transfer = dcs.transfer(pair[0], dcs.Memory(1), count=1)
    results = []
    threads = [threading.Thread(target=lambda: results.append(transfer.result(30).memory)) for _ in range(8)]
    [thread.start() for thread in threads]
    time.sleep(0.05)
    pair[1].sendall(b"1")
    [thread.join(30) for thread in threads]
    assert results == [b"1"] * 8
