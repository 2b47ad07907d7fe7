"""Bodies in chunks that are signed each, and trailers (Signature Version 4, "Transferring payload in multiple chunks"): written
here byte by byte with hmac alone, and by minio's client. And what a connection does after an error."""

import base64
import datetime
import hashlib
import hmac
import http.client
import io
import re
import zlib

import minio
import pytest
from conftest import ACCESS, MIB, SECRET, body_of, data, keys_of, md5

EMPTY = hashlib.sha256(b"").hexdigest()
REGION = "us-east-1"


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256)


class Upload:
    """A PUT whose body is signed in chunks."""

    def __init__(self, server, path, content, trailer=False, chunk=65_536, secret=SECRET):
        self.server, self.path, self.content, self.trailer, self.chunk = server, path, content, trailer, chunk
        self.stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        self.scope = f"{self.stamp[:8]}/{REGION}/s3/aws4_request"
        self.key = f"AWS4{secret}".encode()
        for word in self.scope.split("/"):
            self.key = sign(self.key, word).digest()
        self.checksum = base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()

    def headers(self):
        kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if self.trailer else "")
        headers = {
            "content-encoding": "aws-chunked",
            "host": self.server.address,
            "x-amz-content-sha256": kind,
            "x-amz-date": self.stamp,
            "x-amz-decoded-content-length": str(len(self.content)),
        }
        if self.trailer:
            headers["x-amz-trailer"] = "x-amz-checksum-crc32"
        lines = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        names = ";".join(sorted(headers))
        request = f"PUT\n{self.path}\n\n{lines}\n{names}\n{kind}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{self.stamp}\n{self.scope}\n{digest}"
        self.signature = sign(self.key, text).hexdigest()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={ACCESS}/{self.scope},SignedHeaders={names},Signature={self.signature}"
        )
        return headers

    def next(self, kind, *rest):
        text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", self.stamp, self.scope, self.signature, *rest])
        self.signature = sign(self.key, text).hexdigest()
        return self.signature

    def body(self):
        framed = b""
        chunks = [self.content[at : at + self.chunk] for at in range(0, len(self.content), self.chunk)]
        for chunk in [*chunks, b""]:
            signature = self.next("PAYLOAD", EMPTY, hashlib.sha256(chunk).hexdigest())
            framed += f"{len(chunk):x};chunk-signature={signature}\r\n".encode() + chunk
            if chunk or not self.trailer:
                framed += b"\r\n"
        if self.trailer:
            line = f"x-amz-checksum-crc32:{self.checksum}"
            signature = self.next("TRAILER", hashlib.sha256(f"{line}\n".encode()).hexdigest())
            framed += f"{line}\r\nx-amz-trailer-signature:{signature}\r\n\r\n".encode()
        return framed

    def send(self, connection=None, change=lambda body: body, chunked=False):
        connection = connection or http.client.HTTPConnection(self.server.address, timeout=30)
        headers = self.headers()
        body = change(self.body())
        if chunked:
            pieces = (body[at : at + 50_001] for at in range(0, len(body), 50_001))
            connection.request("PUT", self.path, pieces, {**headers, "transfer-encoding": "chunked"}, encode_chunked=True)
        else:
            connection.request("PUT", self.path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        code = re.search("<Code>(.*)</Code>", text)
        return answer.status, code[1] if code else answer.headers["etag"]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("trailer", [False, True])
@pytest.mark.parametrize("size", [0, 1, 65_536, 200_000, 3 * MIB])
def test_signed_chunks(server, s3, bucket, size, trailer, chunked):
    content = data(size, 40)
    upload = Upload(server, f"/{bucket}/k", content, trailer)
    assert upload.send(chunked=chunked) == (200, f'"{md5(content)}"')
    got = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert got["Body"].read() == content and "ContentEncoding" not in got
    assert got.get("ChecksumCRC32") == (upload.checksum if trailer else None)


def flipped(at):
    return lambda body: body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


@pytest.mark.parametrize("trailer", [False, True])
def test_changed_chunks_are_refused(server, s3, bucket, trailer):
    content = data(200_000, 41)
    for change in (
        lambda body: body.replace(content[100_000:100_010], b"0123456789"),
        flipped(40),
        flipped(-6 if trailer else -8),
        lambda body: body[:5] + body[5:].replace(b"chunk-signature=", b"chunk-signature=0", 1)[:-1],
    ):
        status, code = Upload(server, f"/{bucket}/k", content, trailer).send(change=change)
        assert (status, code) in [(403, "SignatureDoesNotMatch"), (400, "InvalidRequest"), (400, "IncompleteBody")]
    assert Upload(server, f"/{bucket}/k", content, trailer, secret="another").send() == (403, "SignatureDoesNotMatch")
    wrong = Upload(server, f"/{bucket}/k", content, True)
    wrong.checksum = "AAAAAA=="
    assert wrong.send() == (400, "BadDigest")
    assert keys_of(s3, bucket) == []


def test_a_shortened_body_is_refused(server, s3, bucket):
    """Chunks are left out, and the body ends where HTTP says."""
    content = data(200_000, 42)
    for length in (100, 65_700, 140_000):
        for chunked in (False, True):
            found = Upload(server, f"/{bucket}/k", content).send(change=lambda body: body[:length], chunked=chunked)
            assert found[0] == 400, found
    assert keys_of(s3, bucket) == []


@pytest.mark.parametrize("chunked", [False, True])
def test_a_connection_goes_on(server, bucket, chunked):
    """One connection, request after request: after an object, and after an error with a body that nobody read."""
    connection = http.client.HTTPConnection(server.address, timeout=30)
    connection.connect()
    socket = connection.sock
    for at in range(5):
        content = data(50_000, at)
        upload = Upload(server, f"/{bucket}/k{at}", content, trailer=True)
        assert upload.send(connection, chunked=chunked) == (200, f'"{md5(content)}"')
        assert connection.sock is socket
    upload = Upload(server, "/no-such-bucket/k", content)
    assert upload.send(connection) == (404, "NoSuchBucket")
    assert Upload(server, f"/{bucket}/k", content).send(connection)[0] == 200
    assert connection.sock is socket


def test_minio(server, s3, bucket, tmp_path):
    client = minio.Minio(server.address, access_key=ACCESS, secret_key=SECRET, secure=False)
    assert client.bucket_exists(bucket) and not client.bucket_exists("no-such-bucket")
    for size in (0, 1, MIB, 12 * MIB):
        content = data(size, 43)
        put = client.put_object(bucket, f"a b/{size}", io.BytesIO(content), size, part_size=5 * MIB)
        assert size > 5 * MIB or put.etag == md5(content)
        got = client.get_object(bucket, f"a b/{size}")
        assert got.read() == content
        got.close()
        got.release_conn()
        assert client.stat_object(bucket, f"a b/{size}").size == size
    client.put_object(bucket, "stream", io.BytesIO(content), -1, part_size=5 * MIB)
    assert body_of(s3, bucket, "stream") == content
    client.fget_object(bucket, "stream", str(tmp_path / "to"))
    assert (tmp_path / "to").read_bytes() == content
    part = client.get_object(bucket, "stream", offset=7, length=9)
    assert part.read() == content[7:16]
    part.close()
    client.copy_object(bucket, "copy", minio.commonconfig.CopySource(bucket, "stream"))
    sources = [minio.commonconfig.ComposeSource(bucket, "stream"), minio.commonconfig.ComposeSource(bucket, "a b/1")]
    client.compose_object(bucket, "both", sources)
    assert body_of(s3, bucket, "both") == content + data(1, 43)
    assert len(list(client.list_objects(bucket, recursive=True))) == 7
    names = [minio.deleteobjects.DeleteObject(one.object_name) for one in client.list_objects(bucket, recursive=True)]
    assert list(client.remove_objects(bucket, names)) == []
    client.remove_bucket(bucket)
