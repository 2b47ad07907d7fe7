"""Bodies are stored and returned unchanged, in every form, whole and in ranges; on the disk they have the form's contents."""

import gzip
import socket
import time

import pytest

from lab.cluster import FORMS

from .conftest import MIB, body_of, md5

SIZES = [1, 15, 16, 1000, 65536, MIB + 7, 20 * MIB + 3]
RANGES = [(0, 0), (0, 15), (1, 1), (5, 5000), (16, 31), (17, 70000), (65536, MIB), (MIB, MIB + 6), (0, MIB + 6)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_whole(objects, form, size):
    data = body_of(size, seed=size)
    name = objects.put(data, form)
    status, fields, got = objects.request("GET", name, form)
    assert (status, md5(got), int(fields["Content-Length"])) == (200, md5(data), size)
    status, fields, got = objects.request("HEAD", name, form)
    assert (status, fields["Content-Length"], fields["Etag"], got) == (200, str(size), f'"{md5(data)}"', b"")
    assert "X-Dcs-At-Rest" not in fields


@pytest.mark.parametrize("form", FORMS)
def test_empty(objects, form):
    name = objects.put(b"", form)
    assert objects.request("GET", name, form)[::2] == (200, b"")


@pytest.mark.parametrize("form", FORMS)
def test_ranges(objects, form):
    data = body_of(MIB + 7, seed=2)
    name = objects.put(data, form)
    for first, last in RANGES:
        status, fields, got = objects.request("GET", name, form, Range=f"bytes={first}-{last}")
        assert (status, got) == (206, data[first : last + 1]), (first, last)
        assert fields["Content-Range"] == f"bytes {first}-{last}/{len(data)}"
    assert objects.request("GET", name, form, Range="bytes=-100")[2] == data[-100:]
    status, _, got = objects.request("GET", name, form, Range="bytes=3-9,100-200")
    assert status == 206 and data[3:10] in got and data[100:201] in got
    assert objects.request("GET", name, form, Range=f"bytes={len(data)}-")[0] == 416


def test_on_disk_plain(objects):
    data = body_of(MIB)
    (file,) = objects.data_files(objects.put(data))
    assert file.read_bytes() == data


def test_on_disk_compressed(objects):
    data = body_of(5 * MIB)
    (file,) = objects.data_files(objects.put(data, "compressed"), "compressed")
    assert gzip.decompress(file.read_bytes()) == data
    assert file.stat().st_size < 0.7 * len(data)
    assert file.stat().st_blocks * 512 < 0.8 * len(data), "what was allocated for the body was given back"


def test_on_disk_encrypted(objects):
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from swift.obj.diskfile import read_metadata

    data = body_of(MIB + 5)
    name = objects.put(data, "encrypted")
    (file,) = objects.data_files(name, "encrypted")
    fields = dict(part.split("=") for part in read_metadata(str(file))["X-Dcs-At-Rest"].split(";")[1:])
    cipher = Cipher(algorithms.AES(bytes.fromhex("5a" * 32)), modes.CTR(bytes.fromhex(fields["iv"])))
    assert cipher.decryptor().update(file.read_bytes()) == data
    objects.put(data, "encrypted", name=name)
    (again,) = objects.data_files(name, "encrypted")
    assert read_metadata(str(again))["X-Dcs-At-Rest"].split("iv=")[1] != fields["iv"], "each write has its own counter"


@pytest.mark.parametrize("form", FORMS)
def test_chunked_is_left_to_swift(objects, form):
    data = body_of(3 * MIB)
    before = objects.cluster.counters()["PUT"]
    connection = objects.connect()
    chunks = (data[at : at + 100_000] for at in range(0, len(data), 100_000))
    headers = objects.headers(form, **{"Content-Type": "a/b", "Transfer-Encoding": "chunked"})
    connection.request("PUT", objects.path("chunked"), chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == 201
    connection.close()
    assert objects.request("GET", "chunked", form)[2] == data
    after = objects.cluster.counters()["PUT"]
    assert after["carried"] == before["carried"]
    why = "chunked or MIME body"
    assert after["left"][why] == before["left"].get(why, 0) + 1


def test_counted(objects):
    before = objects.cluster.counters()
    data = body_of(MIB)
    name = objects.put(data)
    objects.request("GET", name)
    objects.request("GET", name, Range="bytes=5-10")
    after = objects.cluster.counters()
    assert after["PUT"]["carried"] - before["PUT"]["carried"] == 1
    assert after["GET"]["carried"] - before["GET"]["carried"] == 2
    assert after["GET"]["carried_bytes"] - before["GET"]["carried_bytes"] == MIB + 6


@pytest.mark.parametrize("form", FORMS)
def test_metadata_of_a_post(objects, form):
    """The metadata about the form survive a change of metadata."""
    data = body_of(100_000)
    name = objects.put(data, form)
    assert objects.request("POST", name, form, X_Object_Meta_Colour="blue")[0] == 202
    status, fields, got = objects.request("GET", name, form)
    assert (status, fields["X-Object-Meta-Colour"], got) == (200, "blue", data)


def test_conditional(objects):
    data = body_of(100_000)
    name = objects.put(data)
    assert objects.request("GET", name, If_None_Match=f'"{md5(data)}"')[0] == 304
    assert objects.request("GET", name, If_Match='"else"')[0] == 412


def test_one_connection(objects):
    """Keep-alive: each answer's last segment is sent at once, each next request is understood."""
    data = body_of(300_000)
    connection = objects.connect()
    began = time.monotonic()
    for number in range(20):
        assert objects.request("PUT", f"k{number}", "plain", data, connection)[0] == 201
        assert objects.request("GET", f"k{number}", connection=connection)[2] == data
        assert objects.request("GET", f"k{number}", connection=connection, Range="bytes=7-99999")[2] == data[7:100_000]
    connection.close()
    assert time.monotonic() - began < 3, "a corked socket waits 200 ms for each answer"


def test_continue(objects):
    """A client that sends Expect: 100-continue, as the proxy does."""
    data = body_of(200_000)
    with socket.create_connection(("127.0.0.1", objects.cluster.ports["object"])) as sock:
        for number in range(3):
            lines = [f"PUT {objects.path(f'asked{number}')} HTTP/1.1", "Host: x", "Expect: 100-continue"]
            fields = objects.headers("plain", **{"Content-Length": str(len(data)), "Content-Type": "a/b"})
            lines += [f"{name}: {value}" for name, value in fields.items()]
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
            sock.sendall(data)
            assert sock.recv(1000).startswith(b"HTTP/1.1 201 ")
    assert objects.request("GET", "asked2")[2] == data


def test_head_and_body_in_one_segment(objects):
    """Data read ahead with the head come first, and the next request behind the body is not consumed."""
    for size in (1, 1000, 7000, 100_000):
        data = body_of(size)
        name = f"ahead{size}"
        fields = objects.headers("plain", **{"Content-Length": str(size), "Content-Type": "a/b"})
        put = [f"PUT {objects.path(name)} HTTP/1.1", "Host: x", *(f"{key}: {value}" for key, value in fields.items())]
        get = [f"GET {objects.path(name)} HTTP/1.1", "Host: x", "Connection: close"]
        with socket.create_connection(("127.0.0.1", objects.cluster.ports["object"])) as sock:
            sock.sendall("\r\n".join([*put, "", ""]).encode() + data + "\r\n".join([*get, "", ""]).encode())
            answers = b""
            while got := sock.recv(1 << 16):
                answers += got
        assert answers.startswith(b"HTTP/1.1 201 ") and b"HTTP/1.1 200 OK" in answers
        assert answers.endswith(b"\r\n\r\n" + data)


def test_through_the_proxy(objects):
    import http.client

    token, path = objects.cluster.token()
    connection = http.client.HTTPConnection("127.0.0.1", objects.cluster.ports["proxy"], timeout=30)
    data = body_of(9 * MIB + 1)

    def ask(method, what, body=None, **fields):
        connection.request(method, path + what, body, {"X-Auth-Token": token, **fields})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    for form in FORMS:
        assert ask("PUT", f"/{form}", **{"X-Storage-Policy": form})[0] in (201, 202)
        assert ask("PUT", f"/{form}/o", data)[0] == 201
        status, fields, got = ask("GET", f"/{form}/o")
        assert (status, fields["Etag"], got) == (200, md5(data), data)
        # A copy from one form to another.
        for target in FORMS:
            assert ask("PUT", f"/{target}", **{"X-Storage-Policy": target})[0] in (201, 202)
            assert ask("PUT", f"/{target}/copy-of-{form}", **{"X-Copy-From": f"/{form}/o", "Content-Length": "0"})[0] == 201
            assert ask("GET", f"/{target}/copy-of-{form}")[2] == data
        assert ask("PUT", f"/{form}/bad", data, ETag="0" * 32)[0] == 422
        assert ask("GET", f"/{form}/bad")[0] == 404
    connection.close()
