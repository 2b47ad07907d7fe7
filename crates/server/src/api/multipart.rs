//! Multipart uploads: create, put parts, list, complete, abort.

use super::Api;
use super::body::{self, BodyKind, GivenDigests};
use super::common::{self, checksum_type, etag, hex, now, timestamp};
use super::fields::{
    checksum_of, checksum_out, customer_key_of, encryption_of, encryption_out, headers_of, object_name_of,
};
use super::put::condition;
use super::unsupported::refuse_unsupported;
use crate::encryption::{Key, Veil};
use crate::store::StoreError;
use crate::store::record::{Algorithm, AtRest, Checksum, Object, Part, Segment, Upload};
use md5::{Digest, Md5};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Most parts of an upload. S3's own limit, like the least size of a part that is not the last.
const PARTS_MAX: i32 = 10_000;
const PART_MIN: u64 = 5 << 20;

/// Checks a part's number.
///
/// # Errors
///
/// Fails if it is out of range.
pub fn number(number: i32) -> S3Result<u16> {
    let valid =
        (1..=PARTS_MAX).contains(&number).then_some(number).and_then(|number| u16::try_from(number).ok());
    valid.ok_or_else(|| s3_error!(InvalidArgument, "a part's number must be 1 to {PARTS_MAX}"))
}

/// Finds an upload.
///
/// # Errors
///
/// Fails with NoSuchUpload.
pub fn upload(api: &Api, bucket: &str, key: &str, id: &str) -> S3Result<Upload> {
    api.store.upload(bucket, key, id)?.ok_or_else(|| s3_error!(NoSuchUpload))
}

/// Begins an upload.
pub async fn create(
    api: &Api,
    request: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let input = &request.input;
    let bucket = super::buckets::exists(api, &input.bucket)?;
    refuse_unsupported!(input);
    let (at_rest, _) = api.keys.for_new(object_name_of!(input), bucket.defaults, &encryption_of!(input))?;
    let algorithm =
        input.checksum_algorithm.as_ref().map(|name| common::algorithm(name.as_str())).transpose()?;
    let checksum = algorithm.map(|algorithm| kind(algorithm, input.checksum_type.as_ref())).transpose()?;
    let mut output = CreateMultipartUploadOutput {
        bucket: Some(input.bucket.clone()),
        key: Some(input.key.clone()),
        checksum_algorithm: checksum.and(input.checksum_algorithm.clone()),
        checksum_type: checksum.map(|(_, full)| type_name(full)),
        ..Default::default()
    };
    encryption_out!(output, &at_rest);
    let upload = Upload {
        initiated: now(),
        owner: owner(request.credentials.as_ref()),
        at_rest,
        headers: headers_of!(input),
        tags: super::tags::from_header(input.tagging.as_deref())?,
        checksum,
    };
    output.upload_id = Some(api.store.create_upload(&input.bucket, &input.key, upload).await?);
    Ok(S3Response::new(output))
}

fn owner(credentials: Option<&s3s::auth::Credentials>) -> String {
    credentials.map(|credentials| credentials.access_key.clone()).unwrap_or_default()
}

/// Returns true if the object's checksum covers the object's own bytes: CRCs may, CRC-64 must, hashes can't.
fn kind(algorithm: Algorithm, asked: Option<&ChecksumType>) -> S3Result<(Algorithm, bool)> {
    let hash = matches!(algorithm, Algorithm::Sha1 | Algorithm::Sha256);
    let full = match asked.map(ChecksumType::as_str) {
        None => algorithm == Algorithm::Crc64Nvme,
        Some("FULL_OBJECT") => true,
        Some(_) => false,
    };
    if full && hash || !full && algorithm == Algorithm::Crc64Nvme {
        return Err(s3_error!(InvalidRequest, "this checksum algorithm does not support that type"));
    }
    Ok((algorithm, full))
}

fn type_name(full: bool) -> ChecksumType {
    let name = if full { ChecksumType::FULL_OBJECT } else { ChecksumType::COMPOSITE };
    name.to_string().into()
}

/// Takes a part.
pub async fn part(api: &Api, request: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
    let input = &request.input;
    let number = number(input.part_number)?;
    let upload = upload(api, &input.bucket, &input.key, &input.upload_id)?;
    let key = api.keys.for_old(object_name_of!(input), &upload.at_rest, &customer_key_of!(input))?;
    let given = GivenDigests {
        content_md5: input.content_md5.as_deref(),
        checksum: checksum_of!(input),
        wanted: upload.checksum.map(|(algorithm, _)| algorithm),
    };
    let (draft, segment, checksum) =
        body::take(api, BodyKind::Part, (&request).into(), given, &upload.at_rest, key.as_ref()).await?;
    let wanted = upload.checksum.map(|(algorithm, _)| algorithm);
    if wanted.is_some() && wanted != checksum.as_ref().map(|checksum| checksum.algorithm) {
        return Err(s3_error!(InvalidRequest, "the part's checksum has another algorithm than the upload's"));
    }
    let part = Part { modified: now(), segment: Veil::of(&upload.at_rest, key.as_ref())?.segment(&segment) };
    let mut output = UploadPartOutput { e_tag: Some(etag(&hex(&part.segment.md5))), ..Default::default() };
    checksum_out!(output, &checksum);
    encryption_out!(output, &upload.at_rest);
    api.store.put_part(&input.bucket, &input.key, &input.upload_id, number, part, draft).await?;
    Ok(S3Response::new(output))
}

/// Lists parts.
pub async fn parts(api: &Api, request: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
    let input = request.input;
    let upload = upload(api, &input.bucket, &input.key, &input.upload_id)?;
    let max = input.max_parts.unwrap_or(1000).clamp(0, 1000);
    let marker = input.part_number_marker.unwrap_or(0);
    let after = u16::try_from(marker.clamp(0, PARTS_MAX)).unwrap_or(0);
    let mut parts = api.store.parts(&input.bucket, &input.key, &input.upload_id, after, max as usize + 1)?;
    let truncated = parts.len() > max as usize;
    parts.truncate(max as usize);
    let next = parts.last().map(|(number, _)| i32::from(*number)).filter(|_| truncated);
    // Without the customer's key the answer has no checksums.
    let key = match customer_key_of!(input) {
        headers if headers.customer_key.is_some() => {
            api.keys.for_old(object_name_of!(input), &upload.at_rest, &headers)?
        }
        _ => None,
    };
    let veil = Veil::of(&upload.at_rest, key.as_ref()).ok();
    let parts = parts.into_iter().map(|(number, part)| {
        let mut listed = s3s::dto::Part {
            part_number: Some(number.into()),
            size: i64::try_from(part.segment.size).ok(),
            e_tag: Some(etag(&hex(&part.segment.md5))),
            last_modified: Some(timestamp(part.modified)),
            ..Default::default()
        };
        if let Some(veil) = &veil {
            checksum_out!(listed, &veil.segment(&part.segment).checksum);
        }
        listed
    });
    Ok(S3Response::new(ListPartsOutput {
        parts: Some(parts.collect()),
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        is_truncated: Some(truncated),
        max_parts: Some(max),
        part_number_marker: Some(marker),
        next_part_number_marker: next,
        owner: Some(Owner { id: Some(upload.owner.clone()), display_name: Some(upload.owner.clone()) }),
        initiator: Some(Initiator { id: Some(upload.owner.clone()), display_name: Some(upload.owner) }),
        checksum_type: upload.checksum.map(|(_, full)| type_name(full)),
        checksum_algorithm: upload.checksum.map(|(algorithm, _)| common::algorithm_name(algorithm)),
        ..Default::default()
    }))
}

/// Completes an upload: makes an object of its parts.
pub async fn complete(
    api: &Api,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let input = &request.input;
    let condition = condition(&request.headers)?;
    let named = input.multipart_upload.as_ref().and_then(|parts| parts.parts.as_deref()).unwrap_or_default();
    let Some(upload) = api.store.upload(&input.bucket, &input.key, &input.upload_id)? else {
        return again(api, input, named).map(S3Response::new);
    };
    let there = Parts::of(api, input, &upload)?;
    let parts = there.chosen(named)?;
    let segments: Vec<Segment> = parts.iter().map(|(_, part)| part.segment.clone()).collect();
    let checksum =
        upload.checksum.map(|checksum| combined(checksum, &there.unveiled(&segments)?)).transpose()?;
    check_given(input, checksum.as_ref())?;
    let object = Object {
        size: segments.iter().map(|segment| segment.size).sum(),
        etag: etag_of(&segments),
        modified: now(),
        segments,
        in_parts: true,
        at_rest: upload.at_rest,
        headers: upload.headers,
        tags: upload.tags,
        checksum: there.veiled(checksum.as_ref())?,
        quarantined: None,
    };
    if input.mpu_object_size.is_some_and(|size| u64::try_from(size) != Ok(object.size)) {
        return Err(s3_error!(
            InvalidRequest,
            "the object has {} bytes, not as many as the request says",
            object.size
        ));
    }
    let mut output = CompleteMultipartUploadOutput {
        bucket: Some(input.bucket.clone()),
        key: Some(input.key.clone()),
        e_tag: Some(etag(&object.etag)),
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        checksum_type: checksum.as_ref().map(checksum_type),
        ..Default::default()
    };
    checksum_out!(output, &checksum);
    if object.at_rest.encryption.is_managed() {
        output.server_side_encryption = Some("AES256".to_string().into());
    }
    let numbers = parts.iter().map(|(number, _)| *number).collect();
    let store = &api.store;
    match store.complete(&input.bucket, &input.key, &input.upload_id, numbers, object, condition).await {
        // Another request for the same upload came first.
        Err(StoreError::NoSuchUpload) => again(api, input, named).map(S3Response::new),
        done => done.map(|()| S3Response::new(output)).map_err(Into::into),
    }
}

/// Compares the object's checksum with the one that a request gives. A checksum of parts' checksums also says how many
/// parts there are.
fn check_given(input: &CompleteMultipartUploadInput, made: Option<&Checksum>) -> S3Result<()> {
    let count = made.and_then(|made| made.parts).map(|parts| format!("-{parts}")).unwrap_or_default();
    let without = |given: &Option<String>| {
        given.as_ref().map(|text| text.strip_suffix(&count).unwrap_or(text).to_string())
    };
    let given = [
        (Algorithm::Crc32, without(&input.checksum_crc32)),
        (Algorithm::Crc32c, without(&input.checksum_crc32c)),
        (Algorithm::Crc64Nvme, without(&input.checksum_crc64nvme)),
        (Algorithm::Sha1, without(&input.checksum_sha1)),
        (Algorithm::Sha256, without(&input.checksum_sha256)),
    ];
    let given = common::checksum_in(given.each_ref().map(|(algorithm, text)| (*algorithm, text.as_deref())))?;
    let same =
        |(algorithm, value)| made.is_some_and(|made| made.algorithm == algorithm && made.value == value);
    if given.is_some_and(|given| !same(given)) {
        return Err(s3_error!(BadDigest, "the object's checksum differs from the given one"));
    }
    let asked = input.checksum_type.as_ref().map(ChecksumType::as_str);
    if asked.is_some_and(|asked| made.is_none_or(|made| checksum_type(made).as_str() != asked)) {
        return Err(s3_error!(InvalidRequest, "the upload's checksum has another type"));
    }
    Ok(())
}

/// Answers a repeated completion, from a client that did not get the first answer. Succeeds if the object is still the
/// one that the upload made of the named parts.
fn again(
    api: &Api,
    input: &CompleteMultipartUploadInput,
    named: &[CompletedPart],
) -> S3Result<CompleteMultipartUploadOutput> {
    let (bucket, key) = (&input.bucket, &input.key);
    let object = match api.store.is_of_upload(bucket, key, &input.upload_id)? {
        true => api.store.object(bucket, key)?,
        false => None,
    };
    let object = object.ok_or_else(|| s3_error!(NoSuchUpload))?;
    let tags = named.iter().map(|part| part.e_tag.as_ref().map(ETag::value).unwrap_or_default().to_string());
    if !tags.eq(object.segments.iter().map(|segment| hex(&segment.md5))) {
        return Err(s3_error!(NoSuchUpload));
    }
    let managed = object.at_rest.encryption.is_managed();
    Ok(CompleteMultipartUploadOutput {
        bucket: Some(bucket.clone()),
        key: Some(key.clone()),
        e_tag: Some(etag(&object.etag)),
        location: Some(format!("/{bucket}/{key}")),
        server_side_encryption: managed.then(|| "AES256".to_string().into()),
        ..Default::default()
    })
}

/// Parts of an upload that is being completed, and the key that veils their digests.
struct Parts {
    at_rest: AtRest,
    key: Option<Key>,
    parts: Vec<(u16, Part)>,
}

impl Parts {
    fn of(api: &Api, input: &CompleteMultipartUploadInput, upload: &Upload) -> S3Result<Parts> {
        let parts = api.store.parts(&input.bucket, &input.key, &input.upload_id, 0, PARTS_MAX as usize)?;
        // Parts without checksums need no key.
        let key = match customer_key_of!(input) {
            headers if headers.customer_key.is_some() => {
                api.keys.for_old(object_name_of!(input), &upload.at_rest, &headers)?
            }
            _ => None,
        };
        Ok(Parts { at_rest: upload.at_rest.clone(), key, parts })
    }

    fn veil(&self) -> S3Result<Veil<'_>> {
        Veil::of(&self.at_rest, self.key.as_ref())
    }

    fn unveiled(&self, segments: &[Segment]) -> S3Result<Vec<Segment>> {
        let veil = self.veil()?;
        Ok(segments.iter().map(|segment| veil.segment(segment)).collect())
    }

    fn veiled(&self, checksum: Option<&Checksum>) -> S3Result<Option<Checksum>> {
        checksum.map_or(Ok(None), |checksum| Ok(self.veil()?.object(Some(checksum))))
    }

    /// Returns the parts that a request names, after checking that they are the ones that were put.
    fn chosen(&self, named: &[CompletedPart]) -> S3Result<Vec<(u16, Part)>> {
        if named.is_empty() {
            return Err(s3_error!(MalformedXML, "an upload is completed with at least one part"));
        }
        let number_of = |part: &CompletedPart| part.part_number.unwrap_or(0);
        if named.windows(2).any(|two| number_of(&two[0]) >= number_of(&two[1])) {
            return Err(s3_error!(InvalidPartOrder));
        }
        let mut chosen: Vec<(u16, Part)> = Vec::with_capacity(named.len());
        for (at, part) in named.iter().enumerate() {
            let number = number(number_of(part))?;
            let found = self.one(number, part)?;
            if found.segment.size < PART_MIN && at + 1 < named.len() {
                return Err(s3_error!(EntityTooSmall, "part {number} has fewer than {PART_MIN} bytes"));
            }
            chosen.push((number, found.clone()));
        }
        Ok(chosen)
    }

    fn one(&self, number: u16, named: &CompletedPart) -> S3Result<&Part> {
        let invalid = || s3_error!(InvalidPart, "part {number} does not exist, or has another ETag");
        let found = self.parts.binary_search_by_key(&number, |(number, _)| *number);
        let (_, found) = &self.parts[found.map_err(|_| invalid())?];
        let tag = named.e_tag.as_ref().map(ETag::value).unwrap_or_default();
        if tag != hex(&found.segment.md5) {
            return Err(invalid());
        }
        if let Some((algorithm, given)) = checksum_of!(named) {
            let made = self.veil()?.segment(&found.segment).checksum;
            if !made.is_some_and(|made| made.algorithm == algorithm && made.value == given) {
                return Err(invalid());
            }
        }
        Ok(found)
    }
}

/// Computes the ETag: the MD5 of the parts' MD5s, and the number of parts.
fn etag_of(segments: &[Segment]) -> String {
    let mut md5 = Md5::new();
    segments.iter().for_each(|segment| md5.update(segment.md5));
    format!("{}-{}", hex(&md5.finalize()), segments.len())
}

/// Computes the object's additional checksum from its parts'.
fn combined((algorithm, full): (Algorithm, bool), segments: &[Segment]) -> S3Result<Checksum> {
    let values: Option<Vec<&[u8]>> =
        segments.iter().map(|segment| Some(segment.checksum.as_ref()?.value.as_slice())).collect();
    let values = values.ok_or_else(|| s3_error!(InvalidPart, "a part has no checksum"))?;
    if !full {
        let parts = u16::try_from(segments.len()).ok();
        return Ok(Checksum { algorithm, value: digest(algorithm, &values.concat()), parts });
    }
    let known = match algorithm {
        Algorithm::Crc32 => crc_fast::CrcAlgorithm::Crc32IsoHdlc,
        Algorithm::Crc32c => crc_fast::CrcAlgorithm::Crc32Iscsi,
        Algorithm::Crc64Nvme => crc_fast::CrcAlgorithm::Crc64Nvme,
        _ => return Err(s3_error!(InvalidRequest, "this checksum algorithm cannot cover a whole object")),
    };
    let number = |value: &[u8]| value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let mut parts = segments.iter().zip(values);
    let first = parts.next().map_or(0, |(_, value)| number(value));
    let sum = parts.fold(first, |sum, (segment, value)| {
        crc_fast::checksum_combine(known, sum, number(value), segment.size)
    });
    let size = common::checksum_size(algorithm);
    Ok(Checksum { algorithm, value: sum.to_be_bytes()[8 - size..].to_vec(), parts: None })
}

/// Computes a checksum of a few bytes: the parts' checksums.
fn digest(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
    let crc = |known| crc_fast::checksum(known, bytes).to_be_bytes();
    match algorithm {
        Algorithm::Crc32 => crc(crc_fast::CrcAlgorithm::Crc32IsoHdlc)[4..].to_vec(),
        Algorithm::Crc32c => crc(crc_fast::CrcAlgorithm::Crc32Iscsi)[4..].to_vec(),
        Algorithm::Crc64Nvme => crc(crc_fast::CrcAlgorithm::Crc64Nvme).to_vec(),
        Algorithm::Sha1 => sha1::Sha1::digest(bytes).to_vec(),
        Algorithm::Sha256 => sha2::Sha256::digest(bytes).to_vec(),
    }
}

/// Aborts an upload.
pub async fn abort(
    api: &Api,
    request: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let input = &request.input;
    api.store.abort_upload(&input.bucket, &input.key, &input.upload_id).await?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(bytes: &[u8], algorithm: Algorithm) -> Segment {
        let value = digest(algorithm, bytes);
        Segment {
            id: 0,
            size: bytes.len() as u64,
            stored: 0,
            md5: Md5::digest(bytes).into(),
            checksum: Some(Checksum { algorithm, value, parts: None }),
        }
    }

    #[test]
    fn crcs_of_parts_make_that_of_the_whole() {
        let data: Vec<u8> = (0..100_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let segments: Vec<Segment> = data.chunks(30_001).map(|part| segment(part, algorithm)).collect();
            assert_eq!(combined((algorithm, true), &segments).unwrap().value, digest(algorithm, &data));
        }
        let segments: Vec<Segment> = data.chunks(30_001).map(|part| segment(part, Algorithm::Sha1)).collect();
        assert!(combined((Algorithm::Sha1, true), &segments).is_err());
        assert_eq!(combined((Algorithm::Sha1, false), &segments).unwrap().parts, Some(4));
    }

    #[test]
    fn an_etag_of_parts_is_s3_s() {
        let segments = [segment(b"a", Algorithm::Crc32), segment(b"b", Algorithm::Crc32)];
        // printf %s 0cc175b9c0f1b6a831c399e26977266192eb5ffee6ae2fec3ad71c777531578f | xxd -r -p | md5sum
        assert_eq!(etag_of(&segments), "96e024ba2074fe77e8e965ba43a704be-2");
    }
}
