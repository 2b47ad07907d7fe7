"""Engines with several cores."""

import hashlib
import os
import socket

import pytest
from conftest import data

import dcs


@pytest.mark.parametrize("cores", [1, 2, "all"])
def test_many_transfers_at_once(make, cores):
    with dcs.Engine(cores=cores, io="auto") as engine:
        assert engine.cores == (len(os.sched_getaffinity(0)) if cores == "all" else cores)
        contents = [data(100_000 + at, at) for at in range(50)]
        chains = [["md5"], ["sha1", "md5"], [], ["crc32c"]]
        transfers = [
            dcs.transfer(make(content, str(at)), dcs.Memory(len(content)), chains[at % 4], engine=engine)
            for at, content in enumerate(contents)
        ]
        for at, (content, transfer) in enumerate(zip(contents, transfers, strict=True)):
            done = transfer.result()
            assert done.memory == content
            if at % 4 < 2:
                assert done.digests["md5"] == hashlib.md5(content).digest()
        assert engine.statistics()["completed"] == 50


def test_request_ids_keep_their_order(make):
    with dcs.Engine(cores=3) as engine:
        one, other = socket.socketpair()
        with one, other:
            transfers = [dcs.transfer(b"%03d" % at, one, rid=7, engine=engine) for at in range(40)]
            for transfer in transfers:
                transfer.result()
            one.shutdown(socket.SHUT_WR)
            got = b"".join(iter(lambda: other.recv(4096), b""))
        assert got == b"".join(b"%03d" % at for at in range(40))


def test_a_closed_engine_ends_what_is_on_all_cores():
    engine = dcs.Engine(cores=2)
    one, other = socket.socketpair()
    with one, other:
        waiting = [dcs.transfer(one, dcs.Memory(1), count=1, engine=engine) for _ in range(6)]
        engine.close()
        for transfer in waiting:
            with pytest.raises(dcs.Error) as caught:
                transfer.result()
            assert caught.value.status == "QUEUE_DELETED"


@pytest.mark.parametrize(
    "options",
    [{"cores": 0}, {"cores": -1}, {"cores": "both"}, {"cores": True}, {"cores": 2, "cpus": [0]}, {"numa_node": 5000}],
)
def test_cores_that_cannot_be(options):
    with pytest.raises(ValueError):
        dcs.Engine(**options)


def test_cpus():
    allowed = sorted(os.sched_getaffinity(0))
    with dcs.Engine(cpus=allowed, cores="all") as engine:
        assert engine.cores == len(allowed)
