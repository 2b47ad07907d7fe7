"""boto3: objects, listings, conditions, buckets."""

import datetime
import io

import pytest
from botocore.exceptions import ClientError
from boto3.s3.transfer import TransferConfig
from conftest import MIB, ODD_NAMES, SIZES, body_of, data, keys_of, md5


def error(call, **arguments):
    """The error's code and the answer's status."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize("size", SIZES)
def test_put_and_get(s3, bucket, size):
    content = data(size)
    put = s3.put_object(Bucket=bucket, Key="k", Body=content)
    assert put["ETag"] == f'"{md5(content)}"'
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == content
    assert (got["ContentLength"], got["ETag"]) == (size, put["ETag"])
    head = s3.head_object(Bucket=bucket, Key="k")
    assert (head["ContentLength"], head["ETag"]) == (size, put["ETag"])
    assert head["ContentType"] == "binary/octet-stream" and head["AcceptRanges"] == "bytes"
    age = datetime.datetime.now(datetime.timezone.utc) - head["LastModified"]
    assert -2 < age.total_seconds() < 60


@pytest.mark.parametrize("size", SIZES)
def test_transfers_in_parts(s3, bucket, size, tmp_path):
    content = data(size, 2)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.upload_fileobj(io.BytesIO(content), bucket, "k", Config=config)
    s3.download_file(bucket, "k", str(tmp_path / "k"), Config=config)
    assert (tmp_path / "k").read_bytes() == content
    etag = s3.head_object(Bucket=bucket, Key="k")["ETag"].strip('"')
    if size > 5 * MIB:
        parts = [content[at : at + 5 * MIB] for at in range(0, size, 5 * MIB)]
        assert etag == f"{md5(b''.join(bytes.fromhex(md5(part)) for part in parts))}-{len(parts)}"
    else:
        assert etag == md5(content)


@pytest.mark.parametrize("key", ODD_NAMES)
def test_odd_names(s3, bucket, other, key):
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    assert body_of(s3, bucket, key) == key.encode()
    assert keys_of(s3, bucket) == [key]
    assert [entry["Key"] for entry in s3.list_objects(Bucket=bucket)["Contents"]] == [key]
    assert keys_of(s3, bucket, Prefix=key[:3]) == [key]
    s3.copy_object(Bucket=other, Key=key, CopySource={"Bucket": bucket, "Key": key})
    assert body_of(s3, other, key) == key.encode()
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]})
    assert [entry["Key"] for entry in deleted["Deleted"]] == [key] and "Errors" not in deleted
    s3.delete_object(Bucket=other, Key=key)
    assert keys_of(s3, bucket) == keys_of(s3, other) == []


def test_listing_many(s3, bucket):
    names = sorted(f"{at % 7}/{at:04} ü" for at in range(1203))
    for name in names:
        s3.put_object(Bucket=bucket, Key=name, Body=b"")
    assert keys_of(s3, bucket) == names
    assert keys_of(s3, bucket, PaginationConfig={"PageSize": 100}) == names
    assert keys_of(s3, bucket, StartAfter=names[1000]) == names[1001:]
    old = s3.get_paginator("list_objects").paginate(Bucket=bucket, PaginationConfig={"PageSize": 500})
    assert [entry["Key"] for page in old for entry in page["Contents"]] == names
    folders = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert [entry["Prefix"] for entry in folders["CommonPrefixes"]] == [f"{at}/" for at in range(7)]
    assert folders["KeyCount"] == 7 and "Contents" not in folders and not folders["IsTruncated"]
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": 2}
    )
    assert [entry["Prefix"] for page in pages for entry in page["CommonPrefixes"]] == [f"{at}/" for at in range(7)]
    one = s3.list_objects_v2(Bucket=bucket, Prefix="3/", Delimiter="/", MaxKeys=1, FetchOwner=True)
    assert one["IsTruncated"] and one["Contents"][0]["Size"] == 0 and "Owner" in one["Contents"][0]
    assert error(s3.delete_bucket, Bucket=bucket) == ("BucketNotEmpty", 409)
    for at in range(0, len(names), 1000):
        objects = [{"Key": name} for name in names[at : at + 1000]]
        answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        assert "Errors" not in answer and "Deleted" not in answer
    assert keys_of(s3, bucket) == []
    s3.delete_bucket(Bucket=bucket)


def test_ranges(s3, bucket):
    content = data(MIB + 3, 3)
    s3.put_object(Bucket=bucket, Key="k", Body=content)
    for text, found in [
        ("bytes=0-0", content[:1]),
        ("bytes=100-200000", content[100:200_001]),
        ("bytes=1048570-", content[1048570:]),
        ("bytes=-5", content[-5:]),
        ("bytes=5-99999999", content[5:]),
        ("bytes=-99999999", content),
    ]:
        got = s3.get_object(Bucket=bucket, Key="k", Range=text)
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
        first = len(content) - len(found) if text.startswith("bytes=-") else int(text[6:].split("-")[0])
        assert got["ContentRange"] == f"bytes {first}-{first + len(found) - 1}/{len(content)}"
        assert got["Body"].read() == found
        head = s3.head_object(Bucket=bucket, Key="k", Range=text)
        assert (head["ContentLength"], head["ContentRange"]) == (len(found), got["ContentRange"])
        assert head["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert error(s3.get_object, Bucket=bucket, Key="k", Range=f"bytes={len(content)}-") == ("InvalidRange", 416)
    # What is no range is passed over (RFC 9110 section 14.2).
    assert body_of(s3, bucket, "k") == content


def test_conditional_reads(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"content")["ETag"]
    at = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    early, late = at - datetime.timedelta(hours=1), at + datetime.timedelta(hours=1)
    for call in (s3.get_object, s3.head_object):
        for met in [{"IfMatch": etag}, {"IfNoneMatch": '"x"'}, {"IfModifiedSince": early}, {"IfUnmodifiedSince": late}]:
            assert call(Bucket=bucket, Key="k", **met)["ETag"] == etag
        for unmet in [{"IfNoneMatch": etag}, {"IfModifiedSince": late}]:
            assert error(call, Bucket=bucket, Key="k", **unmet) == ("304", 304)
        for unmet in [{"IfMatch": '"x"'}, {"IfUnmodifiedSince": early}]:
            assert error(call, Bucket=bucket, Key="k", **unmet)[1] == 412
    # The connection goes on after each of them.
    assert body_of(s3, bucket, "k") == b"content"


def test_conditional_writes(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    assert error(s3.put_object, Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert error(s3.put_object, Bucket=bucket, Key="k", Body=b"2", IfMatch='"x"') == ("PreconditionFailed", 412)
    assert error(s3.put_object, Bucket=bucket, Key="none", Body=b"2", IfMatch=etag) == ("NoSuchKey", 404)
    assert body_of(s3, bucket, "k") == b"1"
    s3.put_object(Bucket=bucket, Key="k", Body=b"3", IfMatch=etag)
    assert body_of(s3, bucket, "k") == b"3"
    source = {"Bucket": bucket, "Key": "k"}
    assert error(s3.copy_object, Bucket=bucket, Key="c", CopySource=source, CopySourceIfMatch='"x"')[1] == 412


def test_metadata_and_headers(s3, bucket):
    headers = {
        "ContentType": "text/plain; charset=utf-8",
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "ContentDisposition": 'attachment; filename="a b.txt"',
        "CacheControl": "max-age=60",
        "Metadata": {"name": "value with  blanks", "number": "7"},
    }
    expires = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Expires=expires, **headers)

    def check(key, wanted):
        for call in (s3.get_object, s3.head_object):
            found = call(Bucket=bucket, Key=key)
            assert {name: found.get(name) for name in wanted} == wanted

    check("k", headers | {"Expires": expires})
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "k"})
    check("copy", headers)
    new = {"ContentType": "image/png", "Metadata": {"other": "1"}}
    s3.copy_object(
        Bucket=bucket, Key="k", CopySource={"Bucket": bucket, "Key": "k"}, MetadataDirective="REPLACE", **new
    )
    check("k", new | {"ContentEncoding": None})
    upload = s3.create_multipart_upload(Bucket=bucket, Key="parts", **headers)["UploadId"]
    etag = s3.upload_part(Bucket=bucket, Key="parts", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    s3.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=upload, MultipartUpload=parts)
    check("parts", headers)
    got = s3.get_object(Bucket=bucket, Key="k", ResponseContentType="text/html", ResponseCacheControl="no-store")
    assert (got["ContentType"], got["CacheControl"]) == ("text/html", "no-store")
    many = {f"name{at}": "x" * 200 for at in range(11)}
    assert error(s3.put_object, Bucket=bucket, Key="k", Body=b"", Metadata=many)[0] == "MetadataTooLarge"


def test_tags(s3, bucket):
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b c", "Value": "ü&="}]
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="a=1&b%20c=%C3%BC%26%3D")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == tags
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 2
    assert s3.head_object(Bucket=bucket, Key="k")["TagCount"] == 2
    s3.copy_object(Bucket=bucket, Key="c", CopySource={"Bucket": bucket, "Key": "k"})
    assert s3.get_object_tagging(Bucket=bucket, Key="c")["TagSet"] == tags
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": tags[:1]})
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == tags[:1]
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    twice = {"TagSet": [tags[0], tags[0]]}
    assert error(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=twice) == ("InvalidTag", 400)
    assert error(s3.get_bucket_tagging, Bucket=bucket) == ("NoSuchTagSet", 404)
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags
    s3.delete_bucket_tagging(Bucket=bucket)
    assert error(s3.get_bucket_tagging, Bucket=bucket)[0] == "NoSuchTagSet"


def test_copies(s3, bucket, other):
    content = data(12 * MIB, 5)
    s3.put_object(Bucket=bucket, Key="k", Body=content)
    source = {"Bucket": bucket, "Key": "k"}
    result = s3.copy_object(Bucket=other, Key="c", CopySource=source)["CopyObjectResult"]
    assert result["ETag"] == f'"{md5(content)}"' and body_of(s3, other, "c") == content
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.copy(source, other, "parts", Config=config)
    assert body_of(s3, other, "parts") == content
    assert s3.head_object(Bucket=other, Key="parts")["ETag"].endswith('-3"')
    assert error(s3.copy_object, Bucket=bucket, Key="k", CopySource=source) == ("InvalidRequest", 400)
    assert error(s3.copy_object, Bucket=bucket, Key="x", CopySource=f"{bucket}/none") == ("NoSuchKey", 404)
    assert error(s3.copy_object, Bucket=bucket, Key="x", CopySource="no-such-bucket/k") == ("NoSuchBucket", 404)


def test_uploads_in_parts(s3, bucket):
    first, last = data(5 * MIB, 6), data(1000, 7)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    here = {"Bucket": bucket, "Key": "k", "UploadId": upload}
    put = [s3.upload_part(**here, PartNumber=number, Body=body)["ETag"] for number, body in [(2, last), (1, first)]]
    assert put == [f'"{md5(last)}"', f'"{md5(first)}"']
    listed = s3.list_parts(**here)
    assert [(part["PartNumber"], part["Size"], part["ETag"]) for part in listed["Parts"]] == [
        (1, 5 * MIB, put[1]),
        (2, 1000, put[0]),
    ]
    assert not listed["IsTruncated"] and listed["Parts"][0]["LastModified"]
    page = s3.list_parts(**here, MaxParts=1)
    assert page["IsTruncated"] and page["NextPartNumberMarker"] == 1
    assert s3.list_parts(**here, PartNumberMarker=1)["Parts"][0]["PartNumber"] == 2
    uploads = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [(one["Key"], one["UploadId"]) for one in uploads] == [("k", upload)]
    assert error(s3.get_object, Bucket=bucket, Key="k") == ("NoSuchKey", 404)

    def complete(*parts):
        return {"MultipartUpload": {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts]}}

    call = s3.complete_multipart_upload
    assert error(call, **here, **complete((2, put[0]), (1, put[1]))) == ("InvalidPartOrder", 400)
    assert error(call, **here, **complete((1, put[0]))) == ("InvalidPart", 400)
    assert error(call, **here, **complete((1, put[1]), (3, put[1]))) == ("InvalidPart", 400)
    s3.upload_part(**here, PartNumber=3, Body=b"small")
    three = complete((1, put[1]), (2, put[0]), (3, f'"{md5(b"small")}"'))
    assert error(call, **here, **three) == ("EntityTooSmall", 400)
    done = call(**here, **complete((1, put[1]), (2, put[0])))
    both = md5(bytes.fromhex(md5(first) + md5(last)))
    assert (done["ETag"], done["Bucket"], done["Key"]) == (f'"{both}-2"', bucket, "k")
    assert body_of(s3, bucket, "k") == first + last
    part = s3.get_object(Bucket=bucket, Key="k", PartNumber=2)
    assert part["Body"].read() == last and part["PartsCount"] == 2
    assert s3.head_object(Bucket=bucket, Key="k", PartNumber=1)["ContentLength"] == 5 * MIB
    assert error(s3.list_parts, **here) == ("NoSuchUpload", 404)
    attributes = s3.get_object_attributes(
        Bucket=bucket, Key="k", ObjectAttributes=["ETag", "ObjectSize", "ObjectParts", "StorageClass", "Checksum"]
    )
    # S3 leaves the quotation marks out there; boto3 takes it either way.
    assert attributes["ETag"].strip('"') == f"{both}-2" and attributes["ObjectSize"] == 5 * MIB + 1000
    assert attributes["ObjectParts"]["TotalPartsCount"] == 2


def test_given_up_uploads(s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="a b")["UploadId"]
    here = {"Bucket": bucket, "Key": "a b", "UploadId": upload}
    s3.upload_part(**here, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(**here)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    assert error(s3.upload_part, **here, PartNumber=2, Body=b"x") == ("NoSuchUpload", 404)
    assert error(s3.abort_multipart_upload, **here) == ("NoSuchUpload", 404)
    s3.delete_bucket(Bucket=bucket)


def test_part_copies(s3, bucket):
    content = data(11 * MIB, 8)
    s3.put_object(Bucket=bucket, Key="from", Body=content)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="to")["UploadId"]
    here = {"Bucket": bucket, "Key": "to", "UploadId": upload}
    parts = []
    for number, (first, last) in enumerate([(5 * MIB, 10 * MIB - 1), (1, 100)], 1):
        source = {"CopySource": f"{bucket}/from", "CopySourceRange": f"bytes={first}-{last}"}
        result = s3.upload_part_copy(**here, PartNumber=number, **source)["CopyPartResult"]
        assert result["ETag"] == f'"{md5(content[first : last + 1])}"'
        parts.append({"PartNumber": number, "ETag": result["ETag"]})
    s3.complete_multipart_upload(**here, MultipartUpload={"Parts": parts})
    assert body_of(s3, bucket, "to") == content[5 * MIB : 10 * MIB] + content[1:101]


def test_buckets(s3, bucket):
    assert bucket in [one["Name"] for one in s3.list_buckets()["Buckets"]]
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None
    assert s3.head_bucket(Bucket=bucket)["BucketRegion"] == "us-east-1"
    assert error(s3.create_bucket, Bucket=bucket) == ("BucketAlreadyOwnedByYou", 409)
    assert error(s3.head_bucket, Bucket="no-such-bucket") == ("404", 404)
    assert error(s3.list_objects_v2, Bucket="no-such-bucket") == ("NoSuchBucket", 404)
    assert error(s3.get_object, Bucket="no-such-bucket", Key="k") == ("NoSuchBucket", 404)
    assert error(s3.put_object, Bucket="no-such-bucket", Key="k", Body=b"x" * MIB) == ("NoSuchBucket", 404)
    assert error(s3.delete_object, Bucket="no-such-bucket", Key="k") == ("NoSuchBucket", 404)
    assert error(s3.delete_bucket, Bucket="no-such-bucket") == ("NoSuchBucket", 404)
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    assert s3.get_bucket_acl(Bucket=bucket)["Grants"][0]["Permission"] == "FULL_CONTROL"
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert s3.get_object_acl(Bucket=bucket, Key="k")["Owner"]
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)
    elsewhere = {"LocationConstraint": "eu-central-1"}
    assert error(s3.create_bucket, Bucket=bucket, CreateBucketConfiguration=elsewhere)[0] == "InvalidLocationConstraint"
    s3.create_bucket(Bucket=bucket, ACL="private")
    s3.delete_bucket(Bucket=bucket)


def test_what_a_bucket_has_not(s3, bucket):
    """Clients ask for it, and know these answers to mean that there is none."""
    assert error(s3.get_bucket_policy, Bucket=bucket) == ("NoSuchBucketPolicy", 404)
    assert error(s3.get_bucket_cors, Bucket=bucket) == ("NoSuchCORSConfiguration", 404)
    assert error(s3.get_bucket_lifecycle_configuration, Bucket=bucket) == ("NoSuchLifecycleConfiguration", 404)
    assert error(s3.get_bucket_website, Bucket=bucket) == ("NoSuchWebsiteConfiguration", 404)
    assert error(s3.get_bucket_replication, Bucket=bucket) == ("ReplicationConfigurationNotFoundError", 404)
    assert error(s3.get_object_lock_configuration, Bucket=bucket) == ("ObjectLockConfigurationNotFoundError", 404)
    assert error(s3.get_public_access_block, Bucket=bucket) == ("NoSuchPublicAccessBlockConfiguration", 404)
    assert error(s3.get_bucket_ownership_controls, Bucket=bucket) == ("OwnershipControlsNotFoundError", 404)
    assert error(s3.get_bucket_policy_status, Bucket=bucket) == ("NoSuchBucketPolicy", 404)
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket=bucket)
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    assert error(s3.get_bucket_policy, Bucket="no-such-bucket") == ("NoSuchBucket", 404)
    versions = s3.list_object_versions(Bucket=bucket)
    assert "Versions" not in versions
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    (version,) = s3.list_object_versions(Bucket=bucket)["Versions"]
    assert (version["Key"], version["VersionId"], version["IsLatest"]) == ("k", "null", True)
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k", "VersionId": "null"}]})
    assert keys_of(s3, bucket) == []


def test_what_is_not_implemented_is_refused(s3, bucket):
    """Nothing that a client relies on is taken and forgotten."""
    on = {"Status": "Enabled"}
    assert error(s3.put_bucket_versioning, Bucket=bucket, VersioningConfiguration=on) == ("NotImplemented", 501)
    assert error(s3.put_bucket_policy, Bucket=bucket, Policy="{}") == ("NotImplemented", 501)
    for acl in ("public-read", "public-read-write"):
        assert error(s3.put_object, Bucket=bucket, Key="k", Body=b"x", ACL=acl)[1] in (400, 501)
    assert body_of(s3, bucket, s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="private") and "k") == b"x"


def test_virtual_hosts_are_not_paths(server, s3, bucket):
    """A key may look like anything in a URL."""
    for key in ["..", "a/../b", "./c", "%2e%2e", "a/./b"]:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
        assert body_of(s3, bucket, key) == key.encode()
    assert len(keys_of(s3, bucket)) == 5


def test_an_empty_file_and_then_another(server, bucket):
    """boto3 waits for leave to send an empty file, too; its next answer on the connection depends on it."""
    s3 = server.client(max_pool_connections=1)
    for content in (b"", b"content", b"", data(70_000)):
        assert s3.put_object(Bucket=bucket, Key="k", Body=io.BytesIO(content))["ETag"] == f'"{md5(content)}"'
        assert error(s3.put_object, Bucket=bucket, Key="k", Body=io.BytesIO(b""), IfNoneMatch="*")[1] == 412
