"""Bodies that the engine does not carry take Swift's own path: they are right, and each is counted with the reason."""

import http.client
import json

import pytest

from lab.cluster import BENCH_PIPELINE, ERASURE, FORMS

from .conftest import MIB, Objects, body_of, md5, running

BOUNDARY = "the-boundary"
ENCRYPTING = BENCH_PIPELINE.replace("slo proxy-logging", "slo keymaster encryption proxy-logging")


class Account:
    """Requests through the proxy."""

    def __init__(self, cluster):
        self.cluster = cluster
        token, self.path = cluster.token()
        self.token = {"X-Auth-Token": token}

    def ask(self, method, what, body=None, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", self.cluster.ports["proxy"], timeout=30)
        headers = {**self.token, **{key.replace("_", "-"): value for key, value in fields.items()}}
        connection.request(method, self.path + what, body, headers, encode_chunked="Transfer-Encoding" in headers)
        answer = connection.getresponse()
        got = answer.status, answer.headers, answer.read()
        connection.close()
        return got

    def round_trip(self, where, data, chunked=False):
        """Sends a PUT, then GETs of the whole object, of one range and of two."""
        chunks = (data[at : at + 100_000] for at in range(0, len(data), 100_000))
        status, fields, _ = self.ask("PUT", where, *([chunks] if chunked else [data]), **how_sent(chunked))
        assert (status, fields["Etag"].strip('"')) == (201, md5(data))
        status, fields, got = self.ask("GET", where)
        assert (status, fields["Etag"].strip('"'), md5(got)) == (200, md5(data), md5(data))
        status, _, got = self.ask("GET", where, Range="bytes=5-70000")
        assert (status, got) == (206, data[5:70001])
        status, _, got = self.ask("GET", where, Range="bytes=3-9,100-200")
        assert status == 206 and data[3:10] in got and data[100:201] in got


def how_sent(chunked):
    return {"Transfer_Encoding": "chunked"} if chunked else {}


def grown(before, after, verb):
    """Returns how many were carried, and how many were left, by reason."""
    left = {why: count - before[verb]["left"].get(why, 0) for why, count in after[verb]["left"].items()}
    return after[verb]["carried"] - before[verb]["carried"], {why: count for why, count in left.items() if count}


@pytest.mark.parametrize("chunked", [False, True])
def test_erasure_coding(chunked):
    """Fragments: two of data, one of parity. The other policy of the same server is carried."""
    pytest.importorskip("pyeclib", reason="pyeclib, which erasure coding needs, is not installed")
    with running(forms=["plain", ERASURE], copies=3) as cluster:
        account = Account(cluster)
        for form in cluster.forms:
            assert account.ask("PUT", f"/{form}", X_Storage_Policy=form)[0] in (201, 202)
        data = body_of(3 * MIB + 7)
        before = cluster.counters()
        account.round_trip(f"/{ERASURE}/o", data, chunked)
        after = cluster.counters()
        assert grown(before, after, "PUT") == (0, {"another backend": 3})
        carried, left = grown(before, after, "GET")
        # Each of three answers consists of two fragments.
        assert carried == 0 and set(left) == {"another backend"} and left["another backend"] >= 6
        assert account.ask("PUT", f"/{ERASURE}/bad", data, ETag="0" * 32)[0] == 422
        assert account.ask("GET", f"/{ERASURE}/bad")[0] == 404
        # From one policy to the other.
        before = cluster.counters()
        account.round_trip("/plain/o", data)
        assert account.ask("PUT", f"/{ERASURE}/copy", X_Copy_From="/plain/o", Content_Length="0")[0] == 201
        assert account.ask("GET", f"/{ERASURE}/copy")[2] == data
        after = cluster.counters()
        assert grown(before, after, "PUT") == (3, {"another backend": 3})


def test_encryption_in_the_proxy():
    """Its bodies are sent in MIME parts, with the metadata behind them; it reads an ordinary body."""
    with running(pipeline=ENCRYPTING) as cluster:
        account, objects = Account(cluster), Objects(cluster)
        data = body_of(2 * MIB + 3)
        for form in FORMS:
            assert account.ask("PUT", f"/{form}", X_Storage_Policy=form)[0] in (201, 202)
            before = cluster.counters()
            account.round_trip(f"/{form}/o", data)
            after = cluster.counters()
            assert grown(before, after, "PUT") == (0, {"chunked or MIME body": 1})
            # The whole object, and one range; the proxy requests several ranges as it received them.
            assert grown(before, after, "GET") == (2, {"several ranges": 1})
            assert len(objects.data_files(form=form)) == 1
            assert account.ask("PUT", f"/{form}/bad", data, ETag="0" * 32)[0] == 422
            assert account.ask("GET", f"/{form}/bad")[0] == 404
        (file,) = objects.data_files(form="plain")
        assert file.stat().st_size == len(data) and data[:64] not in file.read_bytes(), "the proxy encrypted it"


def parts(data, footers, digest=None):
    text = json.dumps(footers).encode()
    lines = [
        f"--{BOUNDARY}\r\nX-Document: object body\r\n\r\n".encode() + data,
        f"--{BOUNDARY}\r\nX-Document: object metadata\r\nContent-MD5: {digest or md5(text)}\r\n\r\n".encode() + text,
        f"--{BOUNDARY}--\r\n".encode(),
    ]
    return b"\r\n".join(lines)


@pytest.mark.parametrize("form", FORMS)
def test_mime_parts(objects, form):
    data = body_of(MIB + 11, seed=3)
    before = objects.cluster.counters()

    def put(name, body):
        headers = {
            "Content-Type": "a/b",
            "X-Backend-Obj-Content-Length": str(len(data)),
            "X-Backend-Obj-Metadata-Footer": "yes",
            "X-Backend-Obj-Multipart-Mime-Boundary": BOUNDARY,
            "Transfer-Encoding": "chunked",
            "Expect": "100-continue",
        }
        connection = objects.connect()
        chunks = (body[at : at + 70_000] for at in range(0, len(body), 70_000))
        connection.request("PUT", objects.path(name), chunks, objects.headers(form, **headers), encode_chunked=True)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    footers = {"Etag": md5(data), "X-Object-Meta-Colour": "blue"}
    assert put(f"mime-{form}", parts(data, footers)) == 201
    status, fields, got = objects.request("GET", f"mime-{form}", form)
    assert (status, fields["Etag"], fields["X-Object-Meta-Colour"], got) == (200, f'"{md5(data)}"', "blue", data)
    assert put(f"mime-bad-{form}", parts(data, {"Etag": "0" * 32})) == 422
    assert put(f"mime-bad-{form}", parts(data, footers, digest="0" * 32)) == 422
    assert objects.request("GET", f"mime-bad-{form}", form)[0] == 404
    assert grown(before, objects.cluster.counters(), "PUT") == (0, {"chunked or MIME body": 3})
