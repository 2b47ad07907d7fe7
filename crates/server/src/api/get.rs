//! GetObject and HeadObject.

use super::Api;
use super::common::{checksum_type, etag, matches, metadata_out, readable, seconds, timestamp};
use super::fields::{checksum_out, customer_key_of, encryption_out, object_name_of};
use crate::connection::exchange::Exchange;
use crate::connection::response::Status;
use crate::encryption::{Key, ObjectName, Veil};
use crate::store::record::{self, Algorithm, Compression, Object, Segment};
use crate::store::{Moment, StoreError};
use crate::transfers::{Data, Piece, plain};
use dcs::{Op, Operator};
use http::{HeaderMap, StatusCode};
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
    /// Checks the conditions in the order of RFC 9110 section 13.2.2.
    ///
    /// # Errors
    ///
    /// Fails if one is not met: 412, or 304 for a conditional read.
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

/// Evaluates If-Range. True if the client has the rest of this object, so that the range is enough; otherwise it gets
/// everything (RFC 9110 section 13.1.5).
fn if_range_matches(object: &Object, headers: &HeaderMap) -> bool {
    let Some(wanted) = headers.get(http::header::IF_RANGE) else { return true };
    let etag = etag(&object.etag).to_http_header();
    let modified = super::common::http_date(&timestamp(object.modified));
    etag.is_ok_and(|etag| etag == *wanted) || modified.as_bytes() == wanted.as_bytes()
}

/// Returns the range of an object's bytes that a request asks for, and true if that is only a part of them.
fn range_of(
    object: &Object,
    range: Option<s3s::dto::Range>,
    part: Option<i32>,
) -> S3Result<(Range<u64>, bool)> {
    match (range, part) {
        (Some(_), Some(_)) => Err(s3_error!(InvalidRequest, "give a range or a part number, not both")),
        (None, None) => Ok((0..object.size, false)),
        (Some(range), None) => match range.check(object.size) {
            // The last bytes of an empty object are not a range (RFC 9110 section 14.4).
            Ok(range) => Ok((range, object.size > 0)),
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

/// Returns the pieces of segments that make up a range of an object, whose record was read after the moment, if
/// there is one. With `verify`, pieces that are whole segments fail if the data are not what was put.
///
/// # Errors
///
/// Fails if a data file is gone or damaged.
pub fn pieces(
    api: &Api,
    place: (&str, &str),
    (object, read_after): (&Object, Option<Moment>),
    range: &Range<u64>,
    key: Option<&Key>,
    verify: bool,
) -> Result<Vec<Piece>, StoreError> {
    let mut wanted = Vec::new();
    let mut begin = 0;
    for segment in &object.segments {
        let end = begin + segment.size;
        let inner = range.start.max(begin)..range.end.min(end);
        if inner.start < inner.end {
            wanted.push((segment, inner.start - begin..inner.end - begin));
        }
        begin = end;
    }
    let data: Vec<Data> = match wanted.as_slice() {
        [(segment, _)] => vec![api.store.open_segment_of(segment, read_after)?.into()],
        // There may be ten thousand, so they are opened one after the other.
        many => {
            let segments: Vec<_> = many.iter().map(|(segment, _)| *segment).collect();
            api.store.hold(place, object, &segments)?.into_iter().map(Data::Held).collect()
        }
    };
    let pieces = wanted.into_iter().zip(data);
    pieces.map(|((segment, wanted), data)| piece(data, object, segment, wanted, key, verify)).collect()
}

fn piece(
    data: Data,
    object: &Object,
    segment: &Segment,
    wanted: Range<u64>,
    key: Option<&Key>,
    verify: bool,
) -> Result<Piece, StoreError> {
    let length = wanted.end - wanted.start;
    let whole = length == segment.size;
    let compressed = object.at_rest.compression != Compression::None;
    // Compressed data are read from the beginning; others from the cipher block that holds the first byte.
    let from = if compressed { 0 } else { wanted.start - wanted.start % 16 };
    let to = if compressed { segment.stored } else { wanted.end };
    let from = if key.is_some() || compressed { from } else { wanted.start };
    let mut chain = plain(object.at_rest.compression, key, segment.id, from);
    let skip = wanted.start - from;
    if whole && verify {
        let veil = Veil::of(&object.at_rest, key).map_err(|_| StoreError::Invalid("no key"))?;
        chain.push(expected(&veil.segment(segment)));
    } else if skip > 0 || (compressed && !whole) {
        chain.push(Op::Slice { skip, take: length });
    }
    Ok(Piece { data, segment: segment.id, range: from..to, chain, length })
}

/// Returns the operator that fails if the data are not those that were put: by their CRC-64, which costs much less
/// than an MD5. Segments that older versions wrote, and parts with another checksum, have only the MD5.
fn expected(segment: &Segment) -> Op {
    match &segment.checksum {
        Some(record::Checksum { algorithm: Algorithm::Crc64Nvme, value, .. }) => {
            Op::Expect { digest: Operator::Crc64Nvme, value: value.clone() }
        }
        _ => Op::Expect { digest: Operator::Md5, value: segment.md5.to_vec() },
    }
}

/// Reads an input's conditions.
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

/// Sets the fields that both outputs share.
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
        encryption_out!($output, &$object.at_rest);
    };
}

/// Gets an object. The engine sends its data.
pub async fn get(api: &Api, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
    let input = &request.input;
    only_version(input.version_id.as_deref())?;
    // An object that is replaced between the look-up and the opening of its files is looked up again.
    for _ in 0..8 {
        let moment = api.store.now();
        let object = find(api, &input.bucket, &input.key)?;
        let key = api.keys.for_old(object_name_of!(input), &object.at_rest, &customer_key_of!(input))?;
        conditions_of!(input).check(&object)?;
        let asked = input.range.filter(|_| if_range_matches(&object, &request.headers));
        let (range, partial) = range_of(&object, asked, input.part_number)?;
        let place = (input.bucket.as_str(), input.key.as_str());
        let read = (&object, Some(moment));
        let pieces = match pieces(api, place, read, &range, key.as_ref(), api.verify) {
            Ok(pieces) => pieces,
            Err(error) => {
                check_unopenable(api, object_name_of!(input), &object, error).await?;
                continue;
            }
        };
        let exchange = request.extensions.get::<Arc<Exchange>>();
        let exchange = exchange.ok_or_else(|| s3_error!(InternalError, "the request has no connection"))?;
        exchange.answer_with(&input.bucket, &input.key, pieces);
        let mut output = GetObjectOutput {
            content_length: i64::try_from(range.end - range.start).ok(),
            tag_count: i32::try_from(object.tags.len()).ok().filter(|count| *count > 0),
            parts_count: parts_count(&object, input.part_number),
            ..Default::default()
        };
        object_out!(output, object);
        let wants_checksum = input.checksum_mode.as_ref().is_some_and(|mode| mode.as_str() == "ENABLED");
        if wants_checksum {
            let checksum = checksum_of(&object, key.as_ref(), partial, input.part_number)?;
            checksum_out!(output, &checksum);
            output.checksum_type = object.checksum.as_ref().filter(|_| checksum.is_some()).map(checksum_type);
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

/// Checks an object whose data files could not be opened. That is not an error if the object was replaced meanwhile.
///
/// # Errors
///
/// Fails if a file is lost or has another length; the object is quarantined then.
pub async fn check_unopenable(
    api: &Api,
    place: ObjectName<'_>,
    object: &Object,
    error: StoreError,
) -> S3Result<()> {
    let reason = match &error {
        StoreError::NotFound => match object.segments.first() {
            Some(segment) if segment.is_packed() => format!("missing: {segment} are not there"),
            _ => "missing: a data file does not exist".to_string(),
        },
        StoreError::Damaged(why) => format!("wrong-length: {why}"),
        _ => return Err(error.into()),
    };
    let now = api.store.object(place.bucket, place.key)?;
    let Some(segment) =
        object.segments.first().filter(|_| now.is_some_and(|now| now.segments == object.segments))
    else {
        return Ok(());
    };
    crate::scrub::quarantine(&api.store, place.bucket, place.key, segment.id, reason.clone()).await;
    readable(Some(Object { quarantined: Some(reason), ..object.clone() })).map(drop)
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end.max(range.start + 1) - 1)
}

/// Returns the checksum of the answer's data, if there is one: of the object, or of one of its parts.
fn checksum_of(
    object: &Object,
    key: Option<&Key>,
    partial: bool,
    part: Option<i32>,
) -> S3Result<Option<crate::store::record::Checksum>> {
    let veil = Veil::of(&object.at_rest, key)?;
    let at = part.and_then(|part| usize::try_from(part - 1).ok());
    match at {
        Some(at) if object.in_parts => Ok(veil.segment(&object.segments[at]).checksum),
        // The object has one part, which is this.
        Some(_) => Ok(veil.object(object.checksum.as_ref())),
        None if partial => Ok(None),
        None => Ok(veil.object(object.checksum.as_ref())),
    }
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

/// Answers HEAD of an object.
pub async fn head(api: &Api, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
    let input = &request.input;
    only_version(input.version_id.as_deref())?;
    let object = find(api, &input.bucket, &input.key)?;
    let key = api.keys.for_old(object_name_of!(input), &object.at_rest, &customer_key_of!(input))?;
    conditions_of!(input).check(&object)?;
    let asked = input.range.filter(|_| if_range_matches(&object, &request.headers));
    let (range, partial) = range_of(&object, asked, input.part_number)?;
    let mut output = HeadObjectOutput {
        content_length: i64::try_from(range.end - range.start).ok(),
        parts_count: parts_count(&object, input.part_number),
        ..Default::default()
    };
    object_out!(output, object);
    if input.checksum_mode.as_ref().is_some_and(|mode| mode.as_str() == "ENABLED") {
        let checksum = checksum_of(&object, key.as_ref(), partial, input.part_number)?;
        checksum_out!(output, &checksum);
        output.checksum_type = object.checksum.as_ref().filter(|_| checksum.is_some()).map(checksum_type);
    }
    output.content_range = partial.then(|| content_range(&range, object.size));
    overridden(input, &mut output);
    let mut response = S3Response::new(output);
    if partial {
        response.extensions.insert(Status(StatusCode::PARTIAL_CONTENT));
    }
    if !object.tags.is_empty() {
        response.headers.insert("x-amz-tagging-count", object.tags.len().into());
    }
    Ok(response)
}

/// Sets headers that the client overrides by parameters. For a GET, s3s does this.
fn overridden(input: &HeadObjectInput, output: &mut HeadObjectOutput) {
    let instead = |asked: &Option<String>, own: &mut Option<String>| {
        if asked.is_some() {
            own.clone_from(asked);
        }
    };
    instead(&input.response_content_type, &mut output.content_type);
    instead(&input.response_content_encoding, &mut output.content_encoding);
    instead(&input.response_content_language, &mut output.content_language);
    instead(&input.response_content_disposition, &mut output.content_disposition);
    instead(&input.response_cache_control, &mut output.cache_control);
    if input.response_expires.is_some() {
        output.expires.clone_from(&input.response_expires);
    }
}

/// Refuses versions other than the one that S3 calls `null`.
///
/// # Errors
///
/// Fails for any other version.
pub fn only_version(asked: Option<&str>) -> S3Result<()> {
    match asked {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "versions are not supported")),
    }
}

/// Returns the requested attributes of an object.
pub async fn attributes(
    api: &Api,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let input = &request.input;
    only_version(input.version_id.as_deref())?;
    let object = find(api, &input.bucket, &input.key)?;
    // Attributes of data under a customer's key are for that customer only. They don't need the server's own key.
    let key = match object.at_rest.encryption.customer_key_md5() {
        Some(_) => api.keys.for_old(object_name_of!(input), &object.at_rest, &customer_key_of!(input))?,
        None => None,
    };
    let veil = Veil::of(&object.at_rest, key.as_ref())?;
    // s3s takes a header's line for one name, but a line may have several.
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
    if let Some(found) = veil.object(object.checksum.as_ref()).filter(|_| wants(ObjectAttributes::CHECKSUM)) {
        let mut checksum = Checksum { checksum_type: Some(checksum_type(&found)), ..Default::default() };
        checksum_out!(checksum, Some(&found));
        output.checksum = Some(checksum);
    }
    if object.in_parts && wants(ObjectAttributes::OBJECT_PARTS) {
        output.object_parts =
            Some(attributes_of_parts(&object, &veil, input.part_number_marker, input.max_parts));
    }
    Ok(S3Response::new(output))
}

fn attributes_of_parts(
    object: &Object,
    veil: &Veil<'_>,
    marker: Option<i32>,
    max: Option<i32>,
) -> GetObjectAttributesParts {
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
            checksum_out!(part, &veil.segment(segment).checksum);
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
