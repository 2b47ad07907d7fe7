//! PutObject.

use super::Api;
use super::absent::refuse_what_is_not;
use super::body::{self, Given};
use super::common::{checksum_out, checksum_type, etag, headers_of, hex, now};
use crate::rest::Veil;
use crate::store::Condition;
use crate::store::record::Object;
use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use s3s::dto::{ETagCondition, PutObjectInput, PutObjectOutput};
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// What an output says of encryption.
macro_rules! encryption_out {
    ($output:expr, $rest:expr) => {
        if $rest.encryption.is_managed() {
            $output.server_side_encryption = Some("AES256".to_string().into());
        }
        if let Some(key_md5) = $rest.encryption.customer_key_md5() {
            $output.sse_customer_algorithm = Some("AES256".to_string());
            $output.sse_customer_key_md5 = Some(key_md5.to_string());
        }
    };
}
pub(crate) use encryption_out;

/// Where an input's object is.
macro_rules! place_of {
    ($input:expr) => {
        crate::rest::Place { bucket: &$input.bucket, key: &$input.key }
    };
}
pub(crate) use place_of;

/// What an input says of encryption.
macro_rules! asked_of {
    ($input:expr) => {
        crate::rest::Asked {
            managed: $input.server_side_encryption.as_ref().map(|value| value.as_str()),
            customer_algorithm: $input.sse_customer_algorithm.as_deref(),
            customer_key: $input.sse_customer_key.as_deref(),
            customer_key_md5: $input.sse_customer_key_md5.as_deref(),
        }
    };
}
pub(crate) use asked_of;

/// What an input says of a customer's key, of an object that is there.
macro_rules! customer_of {
    ($input:expr) => {
        crate::rest::Asked {
            managed: None,
            customer_algorithm: $input.sse_customer_algorithm.as_deref(),
            customer_key: $input.sse_customer_key.as_deref(),
            customer_key_md5: $input.sse_customer_key_md5.as_deref(),
        }
    };
}
pub(crate) use customer_of;

/// The additional checksum that an input gives.
macro_rules! checksum_of {
    ($input:expr) => {
        crate::api::common::checksum_in([
            (crate::store::record::Algorithm::Crc32, $input.checksum_crc32.as_deref()),
            (crate::store::record::Algorithm::Crc32c, $input.checksum_crc32c.as_deref()),
            (crate::store::record::Algorithm::Crc64Nvme, $input.checksum_crc64nvme.as_deref()),
            (crate::store::record::Algorithm::Sha1, $input.checksum_sha1.as_deref()),
            (crate::store::record::Algorithm::Sha256, $input.checksum_sha256.as_deref()),
        ])?
    };
}
pub(crate) use checksum_of;

/// If-Match and If-None-Match of a request that writes.
///
/// # Errors
///
/// They are no conditions, or both are there.
pub fn condition(headers: &HeaderMap) -> S3Result<Condition> {
    let of = |name: HeaderName| {
        let Some(value) = headers.get(&name) else { return Ok(None) };
        let several = headers.get_all(&name).iter().nth(1).is_some() || value.as_bytes().contains(&b',');
        let parsed = ETagCondition::parse_http_header(value.as_bytes()).ok().filter(|_| !several);
        parsed.map(Some).ok_or_else(|| s3_error!(InvalidArgument, "{name} is * or one ETag"))
    };
    match (of(IF_MATCH)?, of(IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::None),
        (None, Some(ETagCondition::Any)) => Ok(Condition::Absent),
        (None, Some(ETagCondition::ETag(etag))) => Ok(Condition::Differs(etag.value().to_string())),
        (Some(ETagCondition::Any), None) => Ok(Condition::Present),
        (Some(ETagCondition::ETag(etag)), None) => Ok(Condition::Matches(etag.value().to_string())),
        _ => Err(s3_error!(NotImplemented, "a write has one condition: If-Match or If-None-Match")),
    }
}

/// Puts an object.
pub async fn put(api: &Api, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
    let input = &request.input;
    let bucket = api.store.bucket(&input.bucket)?.ok_or_else(|| s3_error!(NoSuchBucket))?;
    refuse_what_is_not!(input);
    let condition = condition(&request.headers)?;
    let (rest, key) = api.keys.for_new(place_of!(input), bucket.rest, &asked_of!(input))?;
    let wanted = input.checksum_algorithm.as_ref();
    let given = Given {
        content_md5: input.content_md5.as_deref(),
        checksum: checksum_of!(input),
        wanted: wanted.map(|name| super::common::algorithm(name.as_str())).transpose()?,
    };
    let headers = headers_of!(input);
    let tags = super::tags::from_header(input.tagging.as_deref())?;
    let (draft, segment) = body::take(api, (&request).into(), given, &rest, key.as_ref()).await?;
    let veil = Veil::of(&rest, key.as_ref())?;
    let (checksum, segment) = (segment.checksum.clone(), veil.segment(&segment));
    let object = Object {
        size: segment.size,
        etag: hex(&segment.md5),
        modified: now(),
        checksum: veil.object(checksum.as_ref()),
        in_parts: false,
        rest,
        headers,
        tags,
        quarantined: None,
        segments: if segment.size > 0 { vec![segment] } else { Vec::new() },
    };
    let mut output = PutObjectOutput { e_tag: Some(etag(&object.etag)), ..Default::default() };
    checksum_out!(output, &checksum);
    output.checksum_type = checksum.as_ref().map(checksum_type);
    encryption_out!(output, &object.rest);
    let drafts = if object.segments.is_empty() { Vec::new() } else { vec![draft] };
    api.store.put(&input.bucket, &input.key, object, drafts, condition).await?;
    Ok(S3Response::new(output))
}
