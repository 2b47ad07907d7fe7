"""boto3 and the AWS CLI over TLS, where they send checksums in trailers, and HTTP's chunks, on their own."""

import io

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from conftest import ACCESS, MIB, SECRET, SIZES, Server, body_of, data, md5, program, run


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    run("openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-out", cert, "-keyout", key, *names)
    server = Server(folder, "--tls-cert", cert, "--tls-key", key)
    server.cert = str(cert)
    yield server
    server.stop()


@pytest.fixture
def s3(server):
    keys = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=server.url, verify=server.cert, **keys)


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_boto3(s3, bucket, algorithm):
    sent = []
    s3.meta.events.register("before-send.s3.PutObject", lambda request, **_: sent.append(request.headers))
    for size in SIZES:
        content = data(size, 50)
        put = s3.put_object(Bucket=bucket, Key="k", Body=content, ChecksumAlgorithm=algorithm)
        assert put["ETag"] == f'"{md5(content)}"' and body_of(s3, bucket, "k") == content
    assert {headers["X-Amz-Content-SHA256"] for headers in sent} == {b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"}
    assert {headers["Transfer-Encoding"] for headers in sent} == {b"chunked"}
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.upload_fileobj(io.BytesIO(content), bucket, "parts", Config=config, ExtraArgs={"ChecksumAlgorithm": algorithm})
    assert body_of(s3, bucket, "parts") == content


def test_aws(server, s3, bucket, tmp_path):
    keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    environment = {**keys, "AWS_CA_BUNDLE": server.cert, "AWS_EC2_METADATA_DISABLED": "true"}
    content = data(SIZES[-1], 51)
    aws = [program("aws"), "--endpoint-url", server.url]
    run(*aws, "s3", "cp", "-", f"s3://{bucket}/k", stdin=content, env=environment)
    assert body_of(s3, bucket, "k") == content
    run(*aws, "s3", "cp", f"s3://{bucket}/k", tmp_path / "to", env=environment)
    assert (tmp_path / "to").read_bytes() == content
