"""Clients' programs: the AWS CLI, s3cmd, and rclone and mc where they are."""

import json
import os

import pytest
from conftest import ACCESS, MIB, SECRET, SIZES, body_of, data, fill, keys_of, md5, program, run, tree


@pytest.fixture
def aws(server, tmp_path):
    (tmp_path / "config").write_text("[default]\ns3 =\n  addressing_style = path\n  multipart_chunksize = 5MB\n")
    environment = {
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_PAGER": "",
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def call(*words, **more):
        return run(program("aws"), "--endpoint-url", server.url, *words, env=environment | more.pop("env", {}), **more)

    return call


@pytest.fixture
def s3cmd(server, tmp_path):
    config = f"""[default]
access_key = {ACCESS}
secret_key = {SECRET}
host_base = {server.address}
host_bucket = {server.address}
use_https = False
bucket_location = us-east-1
multipart_chunk_size_mb = 5
max_retries = 1
"""
    (tmp_path / "s3cfg").write_text(config)
    return lambda *words, **more: run(program("s3cmd"), "-c", tmp_path / "s3cfg", *words, **more)


def other_program(variable):
    """A program that the environment names."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no program")
    return os.environ[variable]


@pytest.fixture
def rclone(server, tmp_path):
    found = other_program("RCLONE")
    environment = {
        "RCLONE_CONFIG": str(tmp_path / "none"),
        "RCLONE_CONFIG_S_TYPE": "s3",
        "RCLONE_CONFIG_S_PROVIDER": "Other",
        "RCLONE_CONFIG_S_ACCESS_KEY_ID": ACCESS,
        "RCLONE_CONFIG_S_SECRET_ACCESS_KEY": SECRET,
        "RCLONE_CONFIG_S_ENDPOINT": server.url,
        "RCLONE_LOW_LEVEL_RETRIES": "1",
        "RCLONE_RETRIES": "1",
    }

    def call(*words, **more):
        return run(found, *words, env=environment | more.pop("env", {}), **more)

    return call


@pytest.fixture
def mc(server, tmp_path):
    found = other_program("MC")
    environment = {"MC_HOST_s": f"http://{ACCESS}:{SECRET}@{server.address}", "MC_CONFIG_DIR": str(tmp_path / "mc")}

    def call(*words, **more):
        return run(found, *words, env=environment | more.pop("env", {}), **more)

    return call


def test_aws_copies(aws, s3, bucket, tmp_path):
    for size in SIZES:
        content = data(size, 30)
        (tmp_path / "from").write_bytes(content)
        aws("s3", "cp", tmp_path / "from", f"s3://{bucket}/a b/{size}")
        assert body_of(s3, bucket, f"a b/{size}") == content
        aws("s3", "cp", f"s3://{bucket}/a b/{size}", tmp_path / "to")
        assert (tmp_path / "to").read_bytes() == content
    aws("s3", "mv", f"s3://{bucket}/a b/{SIZES[-1]}", f"s3://{bucket}/moved")
    assert body_of(s3, bucket, "moved") == content
    assert f"a b/{SIZES[-1]}" not in keys_of(s3, bucket)
    listing = aws("s3", "ls", "--recursive", f"s3://{bucket}/")
    assert [line.split(None, 3)[2] for line in listing.splitlines()] == [*map(str, sorted(SIZES[:-1], key=str)), str(SIZES[-1])]
    assert "PRE a b/" in aws("s3", "ls", f"s3://{bucket}/")


def test_aws_pipes(aws, s3, bucket):
    content = data(7 * MIB, 31)
    aws("s3", "cp", "-", f"s3://{bucket}/pipe", stdin=content)
    assert body_of(s3, bucket, "pipe") == content
    aws("s3", "cp", "-", f"s3://{bucket}/small", stdin=b"small")
    assert aws("s3", "cp", f"s3://{bucket}/small", "-") == "small"


def test_aws_syncs(aws, s3, bucket, tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    files = fill(tmp_path / "from")
    aws("s3", "sync", tmp_path / "from", f"s3://{bucket}/folder")
    assert keys_of(s3, bucket) == sorted((f"folder/{name}" for name in files), key=str.encode)
    aws("s3", "sync", f"s3://{bucket}/folder", tmp_path / "to")
    assert tree(tmp_path / "to") == files
    assert aws("s3", "sync", tmp_path / "from", f"s3://{bucket}/folder").strip() == "", "nothing is new"
    (tmp_path / "from" / "a.txt").unlink()
    aws("s3", "sync", "--delete", tmp_path / "from", f"s3://{bucket}/folder")
    assert len(keys_of(s3, bucket)) == len(files) - 1
    aws("s3", "rm", "--recursive", f"s3://{bucket}/")
    assert keys_of(s3, bucket) == []
    aws("s3", "rb", f"s3://{bucket}")


def test_aws_api(aws, s3, bucket, tmp_path):
    name = f"{bucket}-2"
    aws("s3", "mb", f"s3://{name}")
    assert name in aws("s3", "ls")
    for algorithm in ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"):
        (tmp_path / "k").write_bytes(data(9 * MIB, 32))
        aws("s3", "cp", "--checksum-algorithm", algorithm, tmp_path / "k", f"s3://{name}/{algorithm}")
        aws("s3", "cp", "--checksum-mode", "ENABLED", f"s3://{name}/{algorithm}", tmp_path / "to")
        assert (tmp_path / "to").read_bytes() == data(9 * MIB, 32)
    found = json.loads(aws("s3api", "head-object", "--bucket", name, "--key", "SHA256", "--checksum-mode", "ENABLED"))
    assert found["ChecksumSHA256"].endswith("-2") and found["ETag"].endswith('-2"')
    aws("s3", "rb", "--force", f"s3://{name}")
    (tmp_path / "key").write_bytes(data(32, 33))
    sse = ["--sse-c", "AES256", "--sse-c-key", f"fileb://{tmp_path}/key"]
    aws("s3", "cp", *sse, tmp_path / "k", f"s3://{bucket}/sse")
    aws("s3", "cp", *sse, f"s3://{bucket}/sse", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == data(9 * MIB, 32)
    url = aws("s3", "presign", f"s3://{bucket}/sse").strip()
    assert url.startswith("http://127.0.0.1:")


def test_aws_says_why(aws, s3, bucket):
    assert "(NoSuchBucket)" in aws("s3", "ls", "s3://no-such-bucket", fails=True)
    wrong = {"AWS_SECRET_ACCESS_KEY": "another-secret"}
    assert "(SignatureDoesNotMatch)" in aws("s3", "ls", fails=True, env=wrong)
    assert "(404)" in aws("s3", "cp", f"s3://{bucket}/none", "-", fails=True)
    assert "(BucketAlreadyOwnedByYou)" in aws("s3", "mb", f"s3://{bucket}", fails=True)


def test_s3cmd_copies(s3cmd, s3, bucket, tmp_path):
    for size in SIZES:
        content = data(size, 34)
        (tmp_path / "from").write_bytes(content)
        s3cmd("put", tmp_path / "from", f"s3://{bucket}/ü +/{size}")
        assert body_of(s3, bucket, f"ü +/{size}") == content
        s3cmd("get", "--force", f"s3://{bucket}/ü +/{size}", tmp_path / "to")
        assert (tmp_path / "to").read_bytes() == content
    listing = s3cmd("ls", "--recursive", f"s3://{bucket}")
    assert len(listing.splitlines()) == len(SIZES)
    assert f"s3://{bucket}/ü +/1" in listing
    s3cmd("cp", f"s3://{bucket}/ü +/1", f"s3://{bucket}/copy")
    s3cmd("mv", f"s3://{bucket}/copy", f"s3://{bucket}/moved")
    assert body_of(s3, bucket, "moved") == data(1, 34)
    info = s3cmd("info", f"s3://{bucket}/moved")
    assert md5(data(1, 34)) in info and "FULL_CONTROL" in info
    assert "Location:  us-east-1" in s3cmd("info", f"s3://{bucket}")
    s3cmd("modify", "--add-header", "Cache-Control: max-age=9", f"s3://{bucket}/moved")
    assert s3.head_object(Bucket=bucket, Key="moved")["CacheControl"] == "max-age=9"
    assert f"s3://{bucket}" in s3cmd("ls")
    assert s3cmd("du", f"s3://{bucket}").split()[0] == str(sum(SIZES) + 1)
    s3cmd("del", "--recursive", "--force", f"s3://{bucket}")
    assert keys_of(s3, bucket) == []
    s3cmd("rb", f"s3://{bucket}")
    s3cmd("mb", f"s3://{bucket}")


def test_s3cmd_syncs(s3cmd, s3, bucket, tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    files = fill(tmp_path / "from")
    s3cmd("sync", f"{tmp_path}/from/", f"s3://{bucket}/folder/")
    assert len(keys_of(s3, bucket)) == len(files)
    s3cmd("sync", f"s3://{bucket}/folder/", f"{tmp_path}/to/")
    assert tree(tmp_path / "to") == files
    assert "upload" not in s3cmd("sync", f"{tmp_path}/from/", f"s3://{bucket}/folder/"), "nothing is new"
    (tmp_path / "from" / "a.txt").unlink()
    s3cmd("sync", "--delete-removed", f"{tmp_path}/from/", f"s3://{bucket}/folder/")
    assert len(keys_of(s3, bucket)) == len(files) - 1


def test_s3cmd_uploads(s3cmd, s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    assert upload in s3cmd("multipart", f"s3://{bucket}")
    s3cmd("abortmp", f"s3://{bucket}/k", upload)
    assert upload not in s3cmd("multipart", f"s3://{bucket}")
    url = s3cmd("signurl", f"s3://{bucket}/k", "+60").strip()
    assert url.startswith("http://127.0.0.1:")


def test_rclone(rclone, s3, bucket, tmp_path):
    (tmp_path / "from").mkdir()
    files = fill(tmp_path / "from")
    (tmp_path / "from" / "large").write_bytes(data(SIZES[-1], 35))
    files["large"] = md5(data(SIZES[-1], 35))
    small = ["--s3-upload-cutoff", "8M", "--s3-chunk-size", "5M"]
    rclone("sync", *small, tmp_path / "from", f"s:{bucket}/folder")
    rclone("check", "--download", tmp_path / "from", f"s:{bucket}/folder")
    rclone("check", tmp_path / "from", f"s:{bucket}/folder")
    rclone("sync", f"s:{bucket}/folder", tmp_path / "to")
    assert tree(tmp_path / "to") == files
    rclone("copyto", f"s:{bucket}/folder/a.txt", f"s:{bucket}/ü +%/copy")
    rclone("moveto", f"s:{bucket}/ü +%/copy", f"s:{bucket}/moved")
    assert body_of(s3, bucket, "moved") == (tmp_path / "from" / "a.txt").read_bytes()
    rclone("rcat", f"s:{bucket}/pipe", stdin=b"from a pipe")
    assert rclone("cat", "--offset", "5", f"s:{bucket}/pipe") == "a pipe"
    names = rclone("lsf", "--recursive", "--files-only", f"s:{bucket}/folder").splitlines()
    assert sorted(names) == sorted(files)
    rclone("mkdir", f"s:{bucket}-2")
    rclone("rmdir", f"s:{bucket}-2")
    rclone("purge", f"s:{bucket}")


def test_mc(mc, s3, bucket, tmp_path):
    """It signs each chunk of a body."""
    (tmp_path / "from").mkdir()
    files = fill(tmp_path / "from")
    for size in SIZES:
        (tmp_path / "from" / str(size)).write_bytes(data(size, 36))
        files[str(size)] = md5(data(size, 36))
    mc("mb", f"s/{bucket}-2")
    mc("cp", "--recursive", f"{tmp_path}/from/", f"s/{bucket}/folder/")
    mc("mirror", f"s/{bucket}/folder", tmp_path / "to")
    assert tree(tmp_path / "to") == files
    mc("mirror", "--overwrite", "--remove", tmp_path / "from", f"s/{bucket}-2")
    assert keys_of(s3, f"{bucket}-2") == sorted(files, key=str.encode)
    assert mc("diff", tmp_path / "from", f"s/{bucket}-2").strip() == ""
    mc("pipe", f"s/{bucket}/pipe", stdin=b"from a pipe")
    assert mc("cat", f"s/{bucket}/pipe") == "from a pipe"
    mc("tag", "set", f"s/{bucket}/pipe", "a=1&b=2")
    assert json.loads(mc("--json", "tag", "list", f"s/{bucket}/pipe"))["tagset"] == {"a": "1", "b": "2"}
    assert json.loads(mc("--json", "stat", f"s/{bucket}/pipe"))["size"] == 11
    mc("ls", "--recursive", f"s/{bucket}")
    mc("ls", "--versions", f"s/{bucket}")
    mc("mv", f"s/{bucket}/pipe", f"s/{bucket}/moved")
    mc("du", f"s/{bucket}")
    mc("share", "download", f"s/{bucket}/moved")
    mc("rm", "--recursive", "--force", f"s/{bucket}")
    mc("rb", "--force", f"s/{bucket}-2")
    assert keys_of(s3, bucket) == []
