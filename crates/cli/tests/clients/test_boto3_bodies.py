"""boto3: checksums, signed bodies, presigned URLs, encryption, and who is refused."""

import base64
import hashlib
import io
import os
import time

import botocore.httpchecksum
import botocore.session
import pytest
import requests
from awscrt import checksums
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError, FlexibleChecksumError
from conftest import ACCESS, MIB, SECRET, SIZES, body_of, data, md5
from s3transfer.crt import (
    BotocoreCRTCredentialsWrapper,
    BotocoreCRTRequestSerializer,
    CRTTransferManager,
    create_s3_crt_client,
)
from test_boto3_objects import error

CRCS = {"CRC32": (checksums.crc32, 4), "CRC32C": (checksums.crc32c, 4), "CRC64NVME": (checksums.crc64nvme, 8)}
ALGORITHMS = [*CRCS, "SHA1", "SHA256"]


def checksum(algorithm, content):
    if algorithm in CRCS:
        function, size = CRCS[algorithm]
        return base64.b64encode(function(content).to_bytes(size, "big")).decode()
    return base64.b64encode(hashlib.new(algorithm, content).digest()).decode()


def with_trailers(client):
    """Has boto3 frame bodies as it does over TLS: aws-chunked, the checksum in the trailer."""

    def change(params, **_):
        chosen = params["context"].get("checksum", {}).get("request_algorithm")
        if chosen:
            chosen["in"] = "trailer"

    for operation in ("PutObject", "UploadPart"):
        client.meta.events.register(f"before-call.s3.{operation}", change)
    return client


class Pipe(io.RawIOBase):
    """A body that can't be read twice, whose length nobody knows."""

    def __init__(self, content):
        self.content = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, room):
        return self.content.readinto(room)


@pytest.mark.parametrize("size", [0, 1, MIB + 1, 6 * MIB])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("place", ["header", "trailer"])
def test_checksums(server, bucket, algorithm, size, place):
    s3 = server.client() if place == "header" else with_trailers(server.client())
    content = data(size, 11)
    put = s3.put_object(Bucket=bucket, Key="k", Body=content, ChecksumAlgorithm=algorithm)
    field, expected = f"Checksum{algorithm}", checksum(algorithm, content)
    assert (put[field], put["ChecksumType"], put["ETag"]) == (expected, "FULL_OBJECT", f'"{md5(content)}"')
    # boto3 checks what it reads, too.
    got = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert got[field] == expected and got["Body"].read() == content
    assert "ContentEncoding" not in got
    assert s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")[field] == expected
    attributes = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["Checksum", "ObjectSize"])
    assert (attributes["Checksum"][field], attributes["ObjectSize"]) == (expected, size)
    result = s3.copy_object(Bucket=bucket, Key="c", CopySource=f"{bucket}/k")["CopyObjectResult"]
    assert result[field] == expected


@pytest.mark.parametrize("calculation", ["when_supported", "when_required"])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("trailers", [False, True])
def test_configurations(server, bucket, calculation, signed, trailers):
    s3 = server.client(
        s3={"payload_signing_enabled": signed},
        request_checksum_calculation=calculation,
        response_checksum_validation=calculation,
    )
    s3 = with_trailers(s3) if trailers else s3
    for size in SIZES:
        content = data(size, 12)
        put = s3.put_object(Bucket=bucket, Key=f"{size}", Body=io.BytesIO(content))
        assert put["ETag"] == f'"{md5(content)}"' and body_of(s3, bucket, f"{size}") == content
        assert ("ChecksumCRC32" in put) == (calculation == "when_supported")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": f"{size}"} for size in SIZES]})
    assert len(answer["Deleted"]) == len(SIZES)


def test_wrong_checksums_are_refused(server, s3, bucket):
    content = data(70_000, 13)
    wrong_md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    assert error(s3.put_object, Bucket=bucket, Key="k", Body=content, ContentMD5=wrong_md5) == ("BadDigest", 400)
    assert error(s3.put_object, Bucket=bucket, Key="k", Body=content, ContentMD5="x") == ("InvalidDigest", 400)
    right_md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
    s3.put_object(Bucket=bucket, Key="right", Body=content, ContentMD5=right_md5)
    for algorithm in ALGORITHMS:
        given = {f"Checksum{algorithm}": checksum(algorithm, b"other")}
        assert error(s3.put_object, Bucket=bucket, Key="k", Body=content, **given) == ("BadDigest", 400)
        given = {f"Checksum{algorithm}": "AAAA"}
        assert error(s3.put_object, Bucket=bucket, Key="k", Body=content, **given) == ("InvalidRequest", 400)
    assert error(s3.get_object, Bucket=bucket, Key="k") == ("NoSuchKey", 404)
    assert body_of(s3, bucket, "right") == content


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_wrong_trailers_are_refused(server, bucket, algorithm, monkeypatch):
    s3 = with_trailers(server.client())
    name = botocore.httpchecksum._CHECKSUM_CLS[algorithm.lower()]
    monkeypatch.setattr(name, "digest", lambda self: b"\0" * len(base64.b64decode(checksum(algorithm, b""))))
    found = error(s3.put_object, Bucket=bucket, Key="k", Body=data(9000), ChecksumAlgorithm=algorithm)
    assert found == ("BadDigest", 400)
    assert error(s3.head_object, Bucket=bucket, Key="k")[1] == 404


@pytest.mark.parametrize("trailers", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_checksums_of_parts(server, bucket, algorithm, trailers, tmp_path):
    s3 = with_trailers(server.client()) if trailers else server.client()
    content = data(11 * MIB + 5, 14)
    (tmp_path / "k").write_bytes(content)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.upload_file(str(tmp_path / "k"), bucket, "k", ExtraArgs={"ChecksumAlgorithm": algorithm}, Config=config)
    assert body_of(s3, bucket, "k") == content
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    parts = [content[at : at + 5 * MIB] for at in range(0, len(content), 5 * MIB)]
    if algorithm == "CRC64NVME" or head["ChecksumType"] == "FULL_OBJECT":
        assert head[f"Checksum{algorithm}"] == checksum(algorithm, content)
    else:
        both = b"".join(base64.b64decode(checksum(algorithm, part)) for part in parts)
        assert head[f"Checksum{algorithm}"] == f"{checksum(algorithm, both)}-3"
    attributes = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectParts"])["ObjectParts"]
    found = [part[f"Checksum{algorithm}"] for part in attributes["Parts"]]
    assert found == [checksum(algorithm, part) for part in parts]


@pytest.mark.parametrize("algorithm", CRCS)
def test_checksums_of_whole_objects_from_parts(s3, bucket, algorithm):
    content = data(5 * MIB + 9, 15)
    kind = {"ChecksumAlgorithm": algorithm, "ChecksumType": "FULL_OBJECT"}
    here = {"Bucket": bucket, "Key": "k"}
    here["UploadId"] = s3.create_multipart_upload(**here, **kind)["UploadId"]
    parts, field = [], f"Checksum{algorithm}"
    for number, part in enumerate([content[: 5 * MIB], content[5 * MIB :]], 1):
        done = s3.upload_part(**here, PartNumber=number, Body=part, ChecksumAlgorithm=algorithm)
        parts.append({"PartNumber": number, "ETag": done["ETag"], field: done[field]})
    listed = s3.list_parts(**here)
    assert [part[field] for part in listed["Parts"]] == [part[field] for part in parts]
    assert (listed["ChecksumAlgorithm"], listed["ChecksumType"]) == (algorithm, "FULL_OBJECT")
    wrong = {field: checksum(algorithm, b"other"), "ChecksumType": "FULL_OBJECT"}
    call, upload = s3.complete_multipart_upload, {"MultipartUpload": {"Parts": parts}}
    assert error(call, **here, **upload, **wrong) == ("BadDigest", 400)
    right = {field: checksum(algorithm, content), "ChecksumType": "FULL_OBJECT"}
    assert call(**here, **upload, **right)[field] == right[field]


def test_a_body_of_unknown_length(s3, bucket):
    """boto3 sends it in parts."""
    content = data(9 * MIB, 16)
    s3.upload_fileobj(io.BufferedReader(Pipe(content)), bucket, "k", Config=TransferConfig(multipart_chunksize=5 * MIB))
    assert body_of(s3, bucket, "k") == content


def test_the_common_runtime(server, s3, bucket, tmp_path):
    """The C client behind boto3, which has connections, framings and checksums of its own."""
    session = botocore.session.Session()
    session.set_credentials(ACCESS, SECRET)
    given = {"region_name": "us-east-1", "endpoint_url": server.url, "config": Config(s3={"addressing_style": "path"})}
    provider = BotocoreCRTCredentialsWrapper(session.get_credentials()).to_crt_credentials_provider()
    client = create_s3_crt_client("us-east-1", provider, use_ssl=False, part_size=8 * MIB)
    with CRTTransferManager(client, BotocoreCRTRequestSerializer(session, given)) as manager:
        for size in SIZES:
            content = data(size, 17)
            (tmp_path / "from").write_bytes(content)
            manager.upload(str(tmp_path / "from"), bucket, "k").result(60)
            assert body_of(s3, bucket, "k") == content
            to = tmp_path / f"to {size}"
            manager.download(bucket, "k", str(to)).result(60)
            # It tells its result before the file has its name.
            until = time.monotonic() + 10
            while not to.exists() and time.monotonic() < until:
                time.sleep(0.01)
            assert to.read_bytes() == content
        manager.upload(io.BufferedReader(Pipe(content)), bucket, "pipe").result(60)
        assert body_of(s3, bucket, "pipe") == content
        manager.delete(bucket, "pipe").result(60)
        assert error(s3.head_object, Bucket=bucket, Key="pipe")[1] == 404


@pytest.fixture
def presigner(server):
    """boto3 presigns with version 2 of the signatures unless it is told not to."""
    return server.client(signature_version="s3v4")


def test_presigned_urls_of_version_2_are_refused(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    assert "AWSAccessKeyId" in url
    refused = requests.get(url, timeout=30)
    assert refused.status_code == 400 and "AWS4-HMAC-SHA256" in refused.text


def test_presigned_urls(presigner, bucket):
    s3 = presigner
    content = data(MIB, 18)
    here = {"Bucket": bucket, "Key": "a b/ü+%"}
    url = s3.generate_presigned_url("put_object", Params=here)
    put = requests.put(url, data=content, timeout=30)
    assert (put.status_code, put.headers["etag"]) == (200, f'"{md5(content)}"')
    got = requests.get(s3.generate_presigned_url("get_object", Params=here), timeout=30)
    assert (got.status_code, got.content) == (200, content)
    head = requests.head(s3.generate_presigned_url("head_object", Params=here), timeout=30)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(MIB), b"")
    named = s3.generate_presigned_url("get_object", Params={**here, "ResponseContentDisposition": "attachment"})
    assert requests.get(named, timeout=30).headers["content-disposition"] == "attachment"
    ranged = requests.get(url_of(s3, here), headers={"range": "bytes=1-3"}, timeout=30)
    assert (ranged.status_code, ranged.content) == (206, content[1:4])
    typed = s3.generate_presigned_url("put_object", Params={**here, "ContentType": "text/plain"})
    assert requests.put(typed, data=b"x", headers={"content-type": "image/png"}, timeout=30).status_code == 403
    assert requests.put(typed, data=b"x", headers={"content-type": "text/plain"}, timeout=30).status_code == 200
    # From a generator: without a length.
    assert requests.put(url, data=iter([b"a", b"b"]), timeout=30).status_code == 411


def url_of(s3, here):
    return s3.generate_presigned_url("get_object", Params=here)


def test_presigned_urls_end_and_are_for_one_request(presigner, bucket):
    s3 = presigner
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    here = {"Bucket": bucket, "Key": "k"}
    short = s3.generate_presigned_url("get_object", Params=here, ExpiresIn=1)
    assert requests.get(short, timeout=30).status_code == 200
    time.sleep(2.2)
    late = requests.get(short, timeout=30)
    assert late.status_code == 403 and "<Code>AccessDenied</Code>" in late.text
    url = url_of(s3, here)
    for other in (url.replace("/k?", "/other?"), url[:-1] + ("0" if url[-1] != "0" else "1"), url + "&partNumber=1"):
        refused = requests.get(other, timeout=30)
        assert refused.status_code == 403 and "<Code>SignatureDoesNotMatch</Code>" in refused.text
    assert requests.delete(url, timeout=30).status_code == 403
    assert requests.put(url, data=b"other", timeout=30).status_code == 403
    assert body_of(s3, bucket, "k") == b"x"


def test_a_form_is_posted(s3, bucket):
    conditions = [["content-length-range", 1, 1000]]
    form = s3.generate_presigned_post(bucket, "from a form", Conditions=conditions)
    answer = requests.post(form["url"], data=form["fields"], files={"file": b"content"}, timeout=30)
    # There is no POST of forms; it has to be said, and nothing to be kept.
    assert answer.status_code == 501 and "<Code>NotImplemented</Code>" in answer.text
    assert error(s3.get_object, Bucket=bucket, Key="from a form") == ("NoSuchKey", 404)


def test_strangers_are_refused(server, s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    big = data(3 * MIB, 19)
    for who, code in [
        (server.client(secret="another-secret"), "SignatureDoesNotMatch"),
        (server.client(access="nobody"), "InvalidAccessKeyId"),
    ]:
        assert error(who.get_object, Bucket=bucket, Key="k") == (code, 403)
        assert error(who.put_object, Bucket=bucket, Key="k", Body=b"y") == (code, 403)
        assert error(who.put_object, Bucket=bucket, Key="k", Body=big) == (code, 403)
        assert error(with_trailers(who).put_object, Bucket=bucket, Key="k", Body=big) == (code, 403)
        assert error(who.list_buckets) == (code, 403)
        assert error(who.head_object, Bucket=bucket, Key="k") == ("403", 403)
        assert error(who.delete_object, Bucket=bucket, Key="k") == (code, 403)
    nobody = requests.get(f"{server.url}/{bucket}/k", timeout=30)
    assert nobody.status_code == 403 and "<Code>AccessDenied</Code>" in nobody.text
    assert body_of(s3, bucket, "k") == b"x"


def test_keys_of_customers(server, s3, bucket):
    key, content = os.urandom(32), data(6 * MIB, 20)
    mine = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}
    put = s3.put_object(Bucket=bucket, Key="k", Body=content, **mine)
    key_md5 = base64.b64encode(hashlib.md5(key).digest()).decode()
    assert (put["SSECustomerAlgorithm"], put["SSECustomerKeyMD5"]) == ("AES256", key_md5)
    assert body_of(s3, bucket, "k", **mine) == content
    assert body_of(s3, bucket, "k", **mine, Range="bytes=1000003-2000004") == content[1_000_003:2_000_005]
    assert s3.head_object(Bucket=bucket, Key="k", **mine)["ContentLength"] == len(content)
    assert error(s3.get_object, Bucket=bucket, Key="k") == ("InvalidRequest", 400)
    other = {**mine, "SSECustomerKey": os.urandom(32)}
    assert error(s3.get_object, Bucket=bucket, Key="k", **other)[1] in (400, 403)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.upload_fileobj(io.BytesIO(content), bucket, "parts", ExtraArgs=mine, Config=config)
    assert body_of(s3, bucket, "parts", **mine) == content
    source = {"CopySourceSSECustomerAlgorithm": "AES256", "CopySourceSSECustomerKey": key}
    s3.copy_object(Bucket=bucket, Key="plain", CopySource=f"{bucket}/k", **source)
    assert body_of(s3, bucket, "plain") == content
    files = [path.read_bytes() for path in (server.folder / "objects" / "data").rglob("*") if path.is_file()]
    assert sum(content[:64] in found for found in files) == 1, "only the plain copy has them"


def test_keys_of_the_server(server, s3, bucket):
    content = data(100_000, 21)
    put = s3.put_object(Bucket=bucket, Key="k", Body=content, ServerSideEncryption="AES256")
    got = s3.get_object(Bucket=bucket, Key="k")
    assert put["ServerSideEncryption"] == got["ServerSideEncryption"] == "AES256"
    assert got["Body"].read() == content and got["ETag"] == f'"{md5(content)}"'
    assert error(s3.get_bucket_encryption, Bucket=bucket)[0] == "ServerSideEncryptionConfigurationNotFoundError"
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    (found,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert found["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    s3.put_object(Bucket=bucket, Key="by default", Body=content)
    assert s3.head_object(Bucket=bucket, Key="by default")["ServerSideEncryption"] == "AES256"
    assert body_of(s3, bucket, "by default", Range="bytes=7-99") == content[7:100]
    s3.delete_bucket_encryption(Bucket=bucket)
    kms = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "x"}
    assert error(s3.put_object, Bucket=bucket, Key="k", Body=b"", **kms)[1] in (400, 501)
    files = [path.read_bytes() for path in (server.folder / "objects" / "data").rglob("*") if path.is_file()]
    assert not any(content[:64] in found for found in files)


def test_damage_in_transit_is_seen_by_clients(s3, bucket, server):
    """boto3 finds what the disk has changed: the checksum that the server tells is that of what was put."""
    content = data(2 * MIB, 22)
    s3.put_object(Bucket=bucket, Key="k", Body=content)
    files = (path for path in (server.folder / "objects" / "data").rglob("*") if path.is_file())
    (path,) = (path for path in files if path.read_bytes() == content)
    with path.open("r+b") as file:
        file.seek(MIB)
        file.write(b"changed")
    with pytest.raises(FlexibleChecksumError):
        body_of(s3, bucket, "k")
