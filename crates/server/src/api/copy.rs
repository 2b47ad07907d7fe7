//! CopyObject and UploadPartCopy: files to a file, by the engine.

use super::Api;
use super::absent::refuse_what_is_not;
use super::common::{checksum_out, checksum_type, etag, headers_of, hex, now, readable};
use super::get::{Conditions, pieces};
use super::put::{asked_of, condition, customer_of, encryption_out, place_of};
use crate::path::Intake;
use crate::rest::{self, Asked, Key, Place, Veil};
use crate::store::Draft;
use crate::store::record::{Checksum, Headers, Object, Part, Rest, Segment};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Where a copy comes from, and on what conditions.
struct From<'a> {
    source: &'a CopySource,
    asked: Asked<'a>,
    conditions: Conditions<'a>,
    range: Option<&'a str>,
}

/// The same fields of both inputs.
macro_rules! from_of {
    ($input:expr, $range:expr) => {
        From {
            source: &$input.copy_source,
            asked: Asked {
                managed: None,
                customer_algorithm: $input.copy_source_sse_customer_algorithm.as_deref(),
                customer_key: $input.copy_source_sse_customer_key.as_deref(),
                customer_key_md5: $input.copy_source_sse_customer_key_md5.as_deref(),
            },
            conditions: Conditions {
                if_match: $input.copy_source_if_match.as_ref(),
                if_none_match: $input.copy_source_if_none_match.as_ref(),
                if_modified_since: $input.copy_source_if_modified_since.as_ref(),
                if_unmodified_since: $input.copy_source_if_unmodified_since.as_ref(),
            },
            range: $range,
        }
    };
}

impl From<'_> {
    fn place(&self) -> S3Result<(&str, &str)> {
        match self.source {
            CopySource::Bucket { bucket, key, version_id: None } => Ok((bucket, key)),
            CopySource::Bucket { .. } => Err(s3_error!(NotImplemented, "there are no versions")),
            _ => Err(s3_error!(NotImplemented, "a copy's source is /bucket/key")),
        }
    }

    fn object(&self, api: &Api) -> S3Result<Object> {
        let (bucket, key) = self.place()?;
        let object = api.store.object(bucket, key)?;
        if object.is_none() {
            super::buckets::exists(api, bucket)?;
        }
        let object = readable(object)?;
        // What would be 304 for who reads is 412 for who copies.
        self.conditions.check(&object).map_err(|_| s3_error!(PreconditionFailed))?;
        Ok(object)
    }

    fn range(&self, object: &Object) -> S3Result<std::ops::Range<u64>> {
        let Some(text) = self.range else { return Ok(0..object.size) };
        let wrong =
            || s3_error!(InvalidArgument, "x-amz-copy-source-range is bytes=FIRST-LAST within the object");
        let range = s3s::dto::Range::parse(text).map_err(|_| wrong())?;
        match range {
            s3s::dto::Range::Int { last: Some(last), .. } if last < object.size => {
                range.check(object.size).map_err(|_| wrong())
            }
            _ => Err(wrong()),
        }
    }

    /// Copies to a data file: what is there then, with its digests unveiled.
    async fn copy(
        &self,
        api: &Api,
        rest: &Rest,
        key: Option<&Key>,
        checksum: Option<crate::store::record::Algorithm>,
    ) -> S3Result<(Object, Draft, Segment)> {
        // An object that is replaced between the look-up and the opening of its files is looked up again.
        for _ in 0..8 {
            let object = self.object(api)?;
            let range = self.range(&object)?;
            if range.end - range.start > super::body::PUT_MAX {
                return Err(s3_error!(EntityTooLarge, "a copy of so much goes in parts"));
            }
            let (bucket, name) = self.place()?;
            let old = api.keys.for_old(Place { bucket, key: name }, &object.rest, &self.asked)?;
            // Damage is not to be copied and called sound. The digest of one whole segment is computed for the copy anyway.
            let one = (object.segments.len() == 1 && range == (0..object.size)).then(|| &object.segments[0]);
            let pieces = match pieces(api, self.place()?, &object, &range, old.as_ref(), one.is_none()) {
                Ok(pieces) => pieces,
                Err(error) => {
                    super::get::broken(api, Place { bucket, key: name }, &object, error).await?;
                    continue;
                }
            };
            let draft = api.store.draft_for(super::body::room(rest, range.end - range.start))?;
            let intake = Intake {
                checksum,
                compression: rest.compression,
                cipher: key.map(|key| (**key, rest::counter(draft.id()))),
                ..Intake::default()
            };
            let copied = api.path.copy(pieces, &intake, draft.file()).await;
            let copied = match copied {
                Ok(copied) => copied,
                Err(error) if error.is_damage() => {
                    return Err(self.damaged(api, &object, &error.to_string()).await);
                }
                Err(error) => return Err(super::body::failure(&error)),
            };
            let veil = Veil::of(&object.rest, old.as_ref())?;
            if one.is_some_and(|segment| veil.segment(segment).md5 != copied.md5) {
                return Err(self.damaged(api, &object, "its digest is another").await);
            }
            let value = copied.checksum.zip(checksum);
            let segment = Segment {
                id: draft.id(),
                size: copied.size,
                stored: copied.stored,
                md5: copied.md5,
                checksum: value.map(|(value, algorithm)| Checksum { algorithm, value, parts: None }),
            };
            return Ok((object, draft, segment));
        }
        Err(s3_error!(SlowDown, "the object is replaced too often to be copied"))
    }

    /// Nobody reads what a copy found to be damaged.
    async fn damaged(&self, api: &Api, object: &Object, why: &str) -> s3s::S3Error {
        if let (Ok((bucket, key)), Some(segment)) = (self.place(), object.segments.first()) {
            crate::scrub::quarantine(&api.store, bucket, key, segment.id, format!("damaged: {why}")).await;
        }
        s3_error!(InternalError, "the object is damaged: {}", why)
    }
}

/// What a directive says: what is in the request replaces what the source has.
fn replaces(directive: Option<&str>) -> S3Result<bool> {
    match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => Err(s3_error!(InvalidArgument, "a directive is COPY or REPLACE, not {other}")),
    }
}

/// Copies an object. It has one part then, and the MD5 of its data for an ETag.
pub async fn object(
    api: &Api,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let input = &request.input;
    let bucket = super::buckets::exists(api, &input.bucket)?;
    refuse_what_is_not!(input);
    let condition = condition(&request.headers)?;
    let from = from_of!(input, None);
    let replaces_headers = replaces(input.metadata_directive.as_ref().map(MetadataDirective::as_str))?;
    let replaces_tags = replaces(input.tagging_directive.as_ref().map(TaggingDirective::as_str))?;
    if from.place()? == (input.bucket.as_str(), input.key.as_str()) && !replaces_headers && !replaces_tags {
        let same = input.server_side_encryption.is_none() && input.sse_customer_key.is_none();
        if same && input.storage_class.is_none() {
            return Err(s3_error!(
                InvalidRequest,
                "a copy onto itself must change metadata, tags or encryption"
            ));
        }
    }
    let given: Headers = headers_of!(input);
    let tags = super::tags::from_header(input.tagging.as_deref())?;
    let (rest, key) = api.keys.for_new(place_of!(input), bucket.rest, &asked_of!(input))?;
    let wanted =
        input.checksum_algorithm.as_ref().map(|name| super::common::algorithm(name.as_str())).transpose()?;
    let before = from.object(api)?;
    let checksum = wanted.or(before.checksum.as_ref().map(|checksum| checksum.algorithm));
    let (old, draft, segment) = from.copy(api, &rest, key.as_ref(), checksum).await?;
    let veil = Veil::of(&rest, key.as_ref())?;
    let (checksum, segment) = (segment.checksum.clone(), veil.segment(&segment));
    let object = Object {
        size: segment.size,
        etag: hex(&segment.md5),
        modified: now(),
        checksum: veil.object(checksum.as_ref()),
        in_parts: false,
        rest,
        headers: if replaces_headers { given } else { old.headers },
        tags: if replaces_tags { tags } else { old.tags },
        quarantined: None,
        segments: if segment.size > 0 { vec![segment] } else { Vec::new() },
    };
    let mut result = CopyObjectResult {
        e_tag: Some(etag(&object.etag)),
        last_modified: Some(super::common::timestamp(object.modified)),
        checksum_type: checksum.as_ref().map(checksum_type),
        ..Default::default()
    };
    checksum_out!(result, &checksum);
    let mut output = CopyObjectOutput { copy_object_result: Some(result), ..Default::default() };
    encryption_out!(output, &object.rest);
    let drafts = if object.segments.is_empty() { Vec::new() } else { vec![draft] };
    api.store.put(&input.bucket, &input.key, object, drafts, condition).await?;
    Ok(S3Response::new(output))
}

/// Copies an object, or some of its bytes, to a part of an upload.
pub async fn part(
    api: &Api,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let input = &request.input;
    let number = super::multipart::number(input.part_number)?;
    let upload = super::multipart::upload(api, &input.bucket, &input.key, &input.upload_id)?;
    let key = api.keys.for_old(place_of!(input), &upload.rest, &customer_of!(input))?;
    let from = from_of!(input, input.copy_source_range.as_deref());
    let checksum = upload.checksum.map(|(algorithm, _)| algorithm);
    let (_, draft, segment) = from.copy(api, &upload.rest, key.as_ref(), checksum).await?;
    let part = Part { modified: now(), segment: Veil::of(&upload.rest, key.as_ref())?.segment(&segment) };
    let mut result = CopyPartResult {
        e_tag: Some(etag(&hex(&part.segment.md5))),
        last_modified: Some(super::common::timestamp(part.modified)),
        ..Default::default()
    };
    checksum_out!(result, &segment.checksum);
    let mut output = UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() };
    encryption_out!(output, &upload.rest);
    api.store.put_part(&input.bucket, &input.key, &input.upload_id, number, part, draft).await?;
    Ok(S3Response::new(output))
}
