"""Swift's own replicator, by ssync, from one device to another: bodies are sent decoded, and the receiver encodes them anew."""

import time

import pytest

from lab.cluster import FORMS

from .conftest import MIB, Objects, body_of, md5, running
from .test_failures import flip

SIZES = [0, 1, 17, 70_000, 3 * MIB + 5]


@pytest.fixture(scope="module")
def cluster():
    with running(copies=2) as cluster:
        yield cluster


@pytest.fixture
def objects(cluster):
    return Objects(cluster)


def at_rest(file):
    from swift.obj.diskfile import read_metadata

    return read_metadata(str(file)).get("X-Dcs-At-Rest")


def count_left(cluster):
    return cluster.counters()["PUT"]["left"].get("not a plain socket", 0)


@pytest.mark.parametrize("form", FORMS)
def test_objects_get_there(objects, form):
    cluster = objects.cluster
    bodies = {objects.put(body_of(size, seed=size), form): body_of(size, seed=size) for size in SIZES}
    before = count_left(cluster)
    said = cluster.replicate()
    assert count_left(cluster) == before + len(SIZES), said
    for name, data in bodies.items():
        status, fields, got = objects.request("GET", name, form, device="d2")
        assert (status, fields["Etag"], got) == (200, f'"{md5(data)}"', data)
        (sent,), (received,) = (objects.data_files(name, form, device) for device in ("d1", "d2"))
        how = at_rest(received)
        if form == "plain":
            assert how is None and received.read_bytes() == data
        elif form == "encrypted":
            assert how.startswith("aes256-ctr;") and how != at_rest(sent), "it has a counter block of its own"
            assert not data or received.read_bytes() not in (data, sent.read_bytes())
        else:
            assert how == f"gzip;size={received.stat().st_size}"
    big = body_of(SIZES[-1], seed=SIZES[-1])
    name = list(bodies)[-1]
    assert objects.request("GET", name, form, device="d2", Range="bytes=70001-80000")[2] == big[70001:80001]
    # Nothing remains to be done, and both copies are complete.
    before = count_left(cluster)
    cluster.replicate()
    assert count_left(cluster) == before
    cluster.audit()
    assert all(len(objects.data_files(name, form, device)) == 1 for name in bodies for device in ("d1", "d2"))


@pytest.mark.parametrize("form", FORMS)
def test_changes_get_there(objects, form):
    data = body_of(100_000)
    kept, gone = objects.put(data, form), objects.put(data, form)
    objects.cluster.replicate()
    assert objects.request("POST", kept, form, X_Object_Meta_Colour="blue")[0] == 202
    assert objects.request("DELETE", gone, form)[0] == 204
    objects.cluster.replicate()
    status, fields, got = objects.request("GET", kept, form, device="d2")
    assert (status, fields["X-Object-Meta-Colour"], got) == (200, "blue", data)
    assert objects.request("GET", gone, form, device="d2")[0] == 404
    # And an object whose metadata changed before it was ever sent.
    late = objects.put(data, form)
    assert objects.request("POST", late, form, X_Object_Meta_Colour="red")[0] == 202
    objects.cluster.replicate()
    status, fields, got = objects.request("GET", late, form, device="d2")
    assert (status, fields["X-Object-Meta-Colour"], got) == (200, "red", data)


@pytest.mark.parametrize("form", FORMS)
def test_damage_does_not_get_there(objects, form):
    """Sends neither a wrong byte, nor an object whose key the sender lacks."""
    whole, damaged = objects.put(body_of(MIB, seed=1), form), objects.put(body_of(MIB, seed=2), form)
    (file,) = objects.data_files(damaged, form)
    flip(file, file.stat().st_size // 2)
    objects.cluster.replicate()
    assert objects.request("GET", damaged, form, device="d2")[0] == 404
    assert not objects.data_files(damaged, form, "d2")
    # A stream that broke in the middle is repeated without it.
    until = time.monotonic() + 60
    while objects.request("GET", whole, form, device="d2")[0] != 200 and time.monotonic() < until:
        objects.cluster.audit()
        objects.cluster.replicate()
    assert objects.request("GET", whole, form, device="d2")[2] == body_of(MIB, seed=1)
    assert objects.request("GET", damaged, form, device="d2")[0] == 404
