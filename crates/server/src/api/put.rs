//! PutObject.

use super::Api;
use super::body::{self, BodyKind, GivenDigests};
use super::common::{checksum_type, etag, hex, now};
use super::fields::{checksum_of, checksum_out, encryption_of, encryption_out, headers_of, object_name_of};
use super::unsupported::refuse_unsupported;
use crate::encryption::Veil;
use crate::store::Condition;
use crate::store::record::Object;
use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use s3s::dto::{ETagCondition, PutObjectInput, PutObjectOutput};
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Reads If-Match and If-None-Match of a write.
///
/// # Errors
///
/// Fails if one is malformed, or both are there.
pub fn condition(headers: &HeaderMap) -> S3Result<Condition> {
    let of = |name: HeaderName| {
        let Some(value) = headers.get(&name) else { return Ok(None) };
        let several = headers.get_all(&name).iter().nth(1).is_some() || value.as_bytes().contains(&b',');
        let parsed = ETagCondition::parse_http_header(value.as_bytes()).ok().filter(|_| !several);
        parsed.map(Some).ok_or_else(|| s3_error!(InvalidArgument, "{name} must be * or one ETag"))
    };
    match (of(IF_MATCH)?, of(IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::None),
        (None, Some(ETagCondition::Any)) => Ok(Condition::Absent),
        (None, Some(ETagCondition::ETag(etag))) => Ok(Condition::Differs(etag.value().to_string())),
        (Some(ETagCondition::Any), None) => Ok(Condition::Present),
        (Some(ETagCondition::ETag(etag)), None) => Ok(Condition::Matches(etag.value().to_string())),
        _ => Err(s3_error!(NotImplemented, "a write may have one condition: If-Match or If-None-Match")),
    }
}

/// Puts an object.
pub async fn put(api: &Api, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
    let input = &request.input;
    let bucket = api.store.bucket(&input.bucket)?.ok_or_else(|| s3_error!(NoSuchBucket))?;
    refuse_unsupported!(input);
    let condition = condition(&request.headers)?;
    let (at_rest, key) = api.keys.for_new(object_name_of!(input), bucket.defaults, &encryption_of!(input))?;
    let wanted = input.checksum_algorithm.as_ref();
    let given = GivenDigests {
        content_md5: input.content_md5.as_deref(),
        checksum: checksum_of!(input),
        wanted: wanted.map(|name| super::common::algorithm(name.as_str())).transpose()?,
    };
    let headers = headers_of!(input);
    let tags = super::tags::from_header(input.tagging.as_deref())?;
    let (draft, segment, checksum) =
        body::take(api, BodyKind::Object, (&request).into(), given, &at_rest, key.as_ref()).await?;
    let veil = Veil::of(&at_rest, key.as_ref())?;
    let segment = veil.segment(&segment);
    let object = Object {
        size: segment.size,
        etag: hex(&segment.md5),
        modified: now(),
        checksum: veil.object(checksum.as_ref()),
        in_parts: false,
        at_rest,
        headers,
        tags,
        quarantined: None,
        segments: if segment.size > 0 { vec![segment] } else { Vec::new() },
    };
    let mut output = PutObjectOutput { e_tag: Some(etag(&object.etag)), ..Default::default() };
    checksum_out!(output, &checksum);
    output.checksum_type = checksum.as_ref().map(checksum_type);
    encryption_out!(output, &object.at_rest);
    let drafts = if object.segments.is_empty() { Vec::new() } else { vec![draft] };
    api.store.put(&input.bucket, &input.key, object, drafts, condition).await?;
    Ok(S3Response::new(output))
}
