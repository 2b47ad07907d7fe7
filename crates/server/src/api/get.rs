//! GetObject and HeadObject.

use super::Api;
use super::common::{checksum_out, checksum_type, etag, matches, metadata_out, readable, seconds, timestamp};
use super::put::{customer_of, encryption_out};
use crate::connection::{Exchange, Status};
use crate::path::{Piece, plain};
use crate::rest::Key;
use crate::store::StoreError;
use crate::store::record::{Compression, Object, Segment};
use dcs::{Op, Operator};
use http::StatusCode;
use s3s::dto::{
    Checksum, ETagCondition, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts,
    GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, ObjectAttributes, ObjectPart,
    Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use std::ops::Range;
use std::sync::Arc;

/// A request's conditions (RFC 9110 section 13).
pub struct Conditions<'a> {
    /// If-Match.
    pub if_match: Option<&'a ETagCondition>,
    /// If-None-Match.
    pub if_none_match: Option<&'a ETagCondition>,
    /// If-Modified-Since.
    pub if_modified_since: Option<&'a Timestamp>,
    /// If-Unmodified-Since.
    pub if_unmodified_since: Option<&'a Timestamp>,
}

impl Conditions<'_> {
    /// In the order of RFC 9110 section 13.2.2.
    ///
    /// # Errors
    ///
    /// One isn't met: 412, or 304 for who only asks for news.
    pub fn check(&self, object: &Object) -> S3Result<()> {
        let modified = object.modified / 1000;
        match (self.if_match, self.if_unmodified_since) {
            (Some(condition), _) if !matches(condition, &object.etag) => {
                return Err(s3_error!(PreconditionFailed));
            }
            (None, Some(since)) if modified > seconds(since) => return Err(s3_error!(PreconditionFailed)),
            _ => {}
        }
        match (self.if_none_match, self.if_modified_since) {
            (Some(condition), _) if matches(condition, &object.etag) => Err(not_modified(object)),
            (None, Some(since)) if modified <= seconds(since) => Err(not_modified(object)),
            _ => Ok(()),
        }
    }
}

fn not_modified(object: &Object) -> S3Error {
    let mut error = S3Error::new(S3ErrorCode::NotModified);
    let mut headers = http::HeaderMap::new();
    if let Ok(etag) = etag(&object.etag).to_http_header() {
        headers.insert(http::header::ETAG, etag);
    }
    error.set_headers(headers);
    error.set_status_code(StatusCode::NOT_MODIFIED);
    error
}

/// Which of an object's bytes are asked for, and whether that is a part of them.
fn range_of(
    object: &Object,
    range: Option<s3s::dto::Range>,
    part: Option<i32>,
) -> S3Result<(Range<u64>, bool)> {
    match (range, part) {
        (Some(_), Some(_)) => Err(s3_error!(InvalidRequest, "a range or a part, not both")),
        (None, None) => Ok((0..object.size, false)),
        (Some(range), None) => match range.check(object.size) {
            Ok(range) => Ok((range, true)),
            Err(_) => {
                let mut error = s3_error!(InvalidRange);
                let mut headers = http::HeaderMap::new();
                if let Ok(value) = format!("bytes */{}", object.size).parse() {
                    headers.insert(http::header::CONTENT_RANGE, value);
                }
                error.set_headers(headers);
                Err(error)
            }
        },
        (None, Some(1)) if !object.in_parts => Ok((0..object.size, true)),
        (None, Some(number)) => {
            let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
            let none = || {
                let message = format!("the object has {} parts", object.segments.len().max(1));
                let mut error =
                    S3Error::with_message(S3ErrorCode::Custom("InvalidPartNumber".into()), message);
                error.set_status_code(StatusCode::RANGE_NOT_SATISFIABLE);
                error
            };
            let at = at.filter(|at| object.in_parts && *at < object.segments.len()).ok_or_else(none)?;
            let begin = object.segments[..at].iter().map(|segment| segment.size).sum();
            Ok((begin..begin + object.segments[at].size, true))
        }
    }
}

/// The pieces of files that are these bytes of an object. `verify`: those of whole segments fail where they are not what was put.
///
/// # Errors
///
/// A data file is gone or damaged.
pub fn pieces(
    api: &Api,
    object: &Object,
    range: &Range<u64>,
    key: Option<&Key>,
    verify: bool,
) -> Result<Vec<Piece>, StoreError> {
    let mut pieces = Vec::new();
    let mut begin = 0;
    for segment in &object.segments {
        let end = begin + segment.size;
        let wanted = range.start.max(begin)..range.end.min(end);
        if wanted.start < wanted.end {
            let inner = wanted.start - begin..wanted.end - begin;
            pieces.push(piece(api, object, segment, inner, key, verify)?);
        }
        begin = end;
    }
    Ok(pieces)
}

fn piece(
    api: &Api,
    object: &Object,
    segment: &Segment,
    wanted: Range<u64>,
    key: Option<&Key>,
    verify: bool,
) -> Result<Piece, StoreError> {
    let file = Arc::new(api.store.open_segment(segment)?);
    let length = wanted.end - wanted.start;
    let whole = length == segment.size;
    let compressed = object.rest.compression != Compression::None;
    // Compressed data are read from their beginning; others from the cipher block on that is asked for.
    let from = if compressed { 0 } else { wanted.start - wanted.start % 16 };
    let to = if compressed { segment.stored } else { wanted.end };
    let from = if key.is_some() || compressed { from } else { wanted.start };
    let mut chain = plain(object.rest.compression, key, segment.id, from);
    let skip = wanted.start - from;
    if whole && verify {
        chain.push(Op::Expect { digest: Operator::Md5, value: segment.md5.to_vec() });
    } else if skip > 0 || (compressed && !whole) {
        chain.push(Op::Slice { skip, take: length });
    }
    Ok(Piece { file, segment: segment.id, range: from..to, chain, length })
}

/// What an input has of conditions.
macro_rules! conditions_of {
    ($input:expr) => {
        Conditions {
            if_match: $input.if_match.as_ref(),
            if_none_match: $input.if_none_match.as_ref(),
            if_modified_since: $input.if_modified_since.as_ref(),
            if_unmodified_since: $input.if_unmodified_since.as_ref(),
        }
    };
}

/// What both outputs have.
macro_rules! object_out {
    ($output:expr, $object:expr) => {
        $output.accept_ranges = Some("bytes".to_string());
        $output.content_type =
            Some($object.headers.content_type.clone().unwrap_or_else(|| "binary/octet-stream".to_string()));
        $output.content_encoding = $object.headers.content_encoding.clone();
        $output.content_language = $object.headers.content_language.clone();
        $output.content_disposition = $object.headers.content_disposition.clone();
        $output.cache_control = $object.headers.cache_control.clone();
        $output.expires = $object
            .headers
            .expires
            .as_deref()
            .and_then(|text| Timestamp::parse(s3s::dto::TimestampFormat::HttpDate, text).ok());
        $output.metadata = metadata_out(&$object.headers);
        $output.e_tag = Some(etag(&$object.etag));
        $output.last_modified = Some(timestamp($object.modified));
        encryption_out!($output, &$object.rest);
    };
}

/// Gets an object: its data are the engine's to send.
pub async fn get(api: &Api, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
    let input = &request.input;
    // An object that is replaced between the look-up and the opening of its files is looked up again.
    for _ in 0..8 {
        let object = find(api, &input.bucket, &input.key)?;
        let key = api.keys.for_old(&object.rest, &customer_of!(input))?;
        conditions_of!(input).check(&object)?;
        let (range, partial) = range_of(&object, input.range, input.part_number)?;
        let pieces = match pieces(api, &object, &range, key.as_ref(), api.verify) {
            Ok(pieces) => pieces,
            Err(StoreError::NotFound) => continue,
            Err(error) => return Err(error.into()),
        };
        let exchange = request.extensions.get::<Arc<Exchange>>();
        let exchange = exchange.ok_or_else(|| s3_error!(InternalError, "a request without a connection"))?;
        exchange.answer_with(&input.bucket, &input.key, pieces);
        let mut output = GetObjectOutput {
            content_length: i64::try_from(range.end - range.start).ok(),
            tag_count: i32::try_from(object.tags.len()).ok().filter(|count| *count > 0),
            parts_count: parts_count(&object, input.part_number),
            ..Default::default()
        };
        object_out!(output, object);
        let wants_checksum = input.checksum_mode.as_ref().is_some_and(|mode| mode.as_str() == "ENABLED");
        if wants_checksum && !partial {
            checksum_out!(output, &object.checksum);
            output.checksum_type = object.checksum.as_ref().map(checksum_type);
        }
        let mut response = S3Response::new(output);
        if partial {
            response.output.content_range = Some(content_range(&range, object.size));
            response.status = Some(StatusCode::PARTIAL_CONTENT);
        }
        return Ok(response);
    }
    Err(s3_error!(SlowDown, "the object is replaced too often to be read"))
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end.max(range.start + 1) - 1)
}

fn parts_count(object: &Object, part: Option<i32>) -> Option<i32> {
    let asked = part.is_some() && object.in_parts;
    asked.then(|| i32::try_from(object.segments.len()).ok()).flatten()
}

fn find(api: &Api, bucket: &str, key: &str) -> S3Result<Object> {
    let object = api.store.object(bucket, key)?;
    if object.is_none() && api.store.bucket(bucket)?.is_none() {
        return Err(s3_error!(NoSuchBucket));
    }
    readable(object)
}

/// Tells of an object.
pub async fn head(api: &Api, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
    let input = &request.input;
    let object = find(api, &input.bucket, &input.key)?;
    api.keys.for_old(&object.rest, &customer_of!(input))?;
    conditions_of!(input).check(&object)?;
    let (range, partial) = range_of(&object, input.range, input.part_number)?;
    let mut output = HeadObjectOutput {
        content_length: i64::try_from(range.end - range.start).ok(),
        parts_count: parts_count(&object, input.part_number),
        ..Default::default()
    };
    object_out!(output, object);
    if input.checksum_mode.as_ref().is_some_and(|mode| mode.as_str() == "ENABLED") && !partial {
        checksum_out!(output, &object.checksum);
        output.checksum_type = object.checksum.as_ref().map(checksum_type);
    }
    output.content_range = partial.then(|| content_range(&range, object.size));
    let mut response = S3Response::new(output);
    if partial {
        response.extensions.insert(Status(StatusCode::PARTIAL_CONTENT));
    }
    if !object.tags.is_empty() {
        response.headers.insert("x-amz-tagging-count", object.tags.len().into());
    }
    Ok(response)
}

/// Tells the attributes of an object that are asked for.
pub async fn attributes(
    api: &Api,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let input = &request.input;
    let object = find(api, &input.bucket, &input.key)?;
    // s3s takes a header's line for a name; it may have several.
    let lines = input.object_attributes.iter();
    let asked: Vec<&str> = lines.flat_map(|line| line.as_str().split(',')).map(str::trim).collect();
    let wants = |name: &str| asked.contains(&name);
    let mut output = GetObjectAttributesOutput {
        last_modified: Some(timestamp(object.modified)),
        e_tag: wants(ObjectAttributes::ETAG).then(|| etag(&object.etag)),
        object_size: i64::try_from(object.size).ok().filter(|_| wants(ObjectAttributes::OBJECT_SIZE)),
        storage_class: wants(ObjectAttributes::STORAGE_CLASS).then(|| "STANDARD".to_string().into()),
        ..Default::default()
    };
    if let Some(found) = object.checksum.as_ref().filter(|_| wants(ObjectAttributes::CHECKSUM)) {
        let mut checksum = Checksum { checksum_type: Some(checksum_type(found)), ..Default::default() };
        checksum_out!(checksum, &object.checksum);
        output.checksum = Some(checksum);
    }
    if object.in_parts && wants(ObjectAttributes::OBJECT_PARTS) {
        output.object_parts = Some(attributes_of_parts(&object, input.part_number_marker, input.max_parts));
    }
    Ok(S3Response::new(output))
}

fn attributes_of_parts(object: &Object, marker: Option<i32>, max: Option<i32>) -> GetObjectAttributesParts {
    let from = usize::try_from(marker.unwrap_or(0)).unwrap_or(0);
    let max = max.unwrap_or(1000).clamp(0, 1000);
    let numbered = object.segments.iter().zip(1..).skip(from).take(max as usize);
    let parts: Vec<ObjectPart> = numbered
        .map(|(segment, number)| {
            let mut part = ObjectPart {
                part_number: Some(number),
                size: i64::try_from(segment.size).ok(),
                ..Default::default()
            };
            checksum_out!(part, &segment.checksum);
            part
        })
        .collect();
    let last = parts.last().and_then(|part| part.part_number);
    let truncated = from + parts.len() < object.segments.len();
    GetObjectAttributesParts {
        total_parts_count: i32::try_from(object.segments.len()).ok(),
        max_parts: Some(max),
        part_number_marker: Some(marker.unwrap_or(0)),
        next_part_number_marker: last.filter(|_| truncated),
        is_truncated: Some(truncated),
        parts: Some(parts),
    }
}
