//! CopyObject and UploadPartCopy: the engine copies from files to a file.

use super::Api;
use super::body::BodyKind;
use super::common::{checksum_type, etag, hex, now, readable};
use super::fields::{
    checksum_out, customer_key_of, encryption_of, encryption_out, headers_of, object_name_of,
};
use super::get::{Conditions, pieces};
use super::put::condition;
use super::unsupported::refuse_unsupported;
use crate::encryption::{self, EncryptionHeaders, Key, ObjectName, Veil};
use crate::store::Draft;
use crate::store::record::{AtRest, Checksum, Headers, Object, Part, Segment};
use crate::transfers::Intake;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Source of a copy, and its conditions.
struct CopySourceArguments<'a> {
    source: &'a CopySource,
    headers: EncryptionHeaders<'a>,
    conditions: Conditions<'a>,
    range: Option<&'a str>,
}

/// Makes a copy's source of either input: both have the same fields.
macro_rules! copy_source_of {
    ($input:expr, $range:expr) => {
        CopySourceArguments {
            source: &$input.copy_source,
            headers: EncryptionHeaders {
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

impl CopySourceArguments<'_> {
    fn place(&self) -> S3Result<(&str, &str)> {
        match self.source {
            CopySource::Bucket { bucket, key, version_id: None } => Ok((bucket, key)),
            CopySource::Bucket { .. } => Err(s3_error!(NotImplemented, "versions are not supported")),
            _ => Err(s3_error!(NotImplemented, "a copy's source must be /bucket/key")),
        }
    }

    fn object(&self, api: &Api) -> S3Result<Object> {
        let (bucket, key) = self.place()?;
        let object = api.store.object(bucket, key)?;
        if object.is_none() {
            super::buckets::exists(api, bucket)?;
        }
        let object = readable(object)?;
        // A failed condition that gives a 304 for a read gives a 412 for a copy.
        self.conditions.check(&object).map_err(|_| s3_error!(PreconditionFailed))?;
        Ok(object)
    }

    fn range(&self, object: &Object) -> S3Result<std::ops::Range<u64>> {
        let Some(text) = self.range else { return Ok(0..object.size) };
        let wrong = || {
            s3_error!(InvalidArgument, "x-amz-copy-source-range must be bytes=FIRST-LAST within the object")
        };
        let range = s3s::dto::Range::parse(text).map_err(|_| wrong())?;
        match range {
            s3s::dto::Range::Int { last: Some(last), .. } if last < object.size => {
                range.check(object.size).map_err(|_| wrong())
            }
            _ => Err(wrong()),
        }
    }

    /// Copies to a draft, of a part of an upload or of a whole object. Returns the source, the draft, its segment with
    /// digests unveiled, and the additional checksum.
    async fn copy(
        &self,
        api: &Api,
        of: BodyKind,
        at_rest: &AtRest,
        key: Option<&Key>,
        checksum: Option<crate::store::record::Algorithm>,
    ) -> S3Result<(Object, Draft, Segment, Option<Checksum>)> {
        // An object that is replaced between the look-up and the opening of its files is looked up again.
        for _ in 0..8 {
            let object = self.object(api)?;
            let range = self.range(&object)?;
            if range.end - range.start > super::body::PUT_MAX {
                return Err(s3_error!(
                    EntityTooLarge,
                    "the object is too large for one copy: use UploadPartCopy"
                ));
            }
            let (bucket, name) = self.place()?;
            let old = api.keys.for_old(ObjectName { bucket, key: name }, &object.at_rest, &self.headers)?;
            // A copy must not make damaged data look sound. The digest of one whole segment is computed for
            // the copy anyway.
            let one = (object.segments.len() == 1 && range == (0..object.size)).then(|| &object.segments[0]);
            let read = (&object, None);
            let pieces = match pieces(api, self.place()?, read, &range, old.as_ref(), one.is_none()) {
                Ok(pieces) => pieces,
                Err(error) => {
                    super::get::check_unopenable(api, ObjectName { bucket, key: name }, &object, error)
                        .await?;
                    continue;
                }
            };
            let mut draft = of.draft(api, at_rest, range.end - range.start)?;
            let intake = Intake {
                checksum: of.checksum(checksum),
                crc64: of == BodyKind::Object,
                compression: at_rest.compression,
                cipher: key.map(|key| (**key, encryption::counter(draft.id()))),
                ..Intake::default()
            };
            let copied = api.path.copy(pieces, &intake, draft.target()).await;
            let mut copied = match copied {
                Ok(copied) => copied,
                Err(error) if error.is_damage() => {
                    return Err(self.damaged(api, &object, &error.to_string()).await);
                }
                Err(error) => return Err(super::body::failure(&error)),
            };
            let veil = Veil::of(&object.at_rest, old.as_ref())?;
            if one.is_some_and(|segment| veil.segment(segment).md5 != copied.md5) {
                return Err(self.damaged(api, &object, "its digest differs").await);
            }
            draft.fill(std::mem::take(&mut copied.bytes))?;
            let (segment, checksum) = super::body::segment(&draft, copied, intake.checksum);
            return Ok((object, draft, segment, checksum));
        }
        Err(s3_error!(SlowDown, "the object is replaced too often to be copied"))
    }

    /// Quarantines an object that a copy found to be damaged.
    async fn damaged(&self, api: &Api, object: &Object, why: &str) -> s3s::S3Error {
        if let (Ok((bucket, key)), Some(segment)) = (self.place(), object.segments.first()) {
            crate::scrub::quarantine(&api.store, bucket, key, segment.id, format!("damaged: {why}")).await;
        }
        s3_error!(InternalError, "the object is damaged: {}", why)
    }
}

/// Reads a directive. Returns true if the request's values replace the source's.
fn replaces(directive: Option<&str>) -> S3Result<bool> {
    match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => Err(s3_error!(InvalidArgument, "a directive must be COPY or REPLACE, not {other}")),
    }
}

/// Copies an object. The copy has one part, and the MD5 of its data as its ETag.
pub async fn object(
    api: &Api,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let input = &request.input;
    let bucket = super::buckets::exists(api, &input.bucket)?;
    refuse_unsupported!(input);
    let condition = condition(&request.headers)?;
    let from = copy_source_of!(input, None);
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
    let (at_rest, key) = api.keys.for_new(object_name_of!(input), bucket.defaults, &encryption_of!(input))?;
    let wanted =
        input.checksum_algorithm.as_ref().map(|name| super::common::algorithm(name.as_str())).transpose()?;
    let before = from.object(api)?;
    let checksum = wanted.or(before.checksum.as_ref().map(|checksum| checksum.algorithm));
    let (old, draft, segment, checksum) =
        from.copy(api, BodyKind::Object, &at_rest, key.as_ref(), checksum).await?;
    let veil = Veil::of(&at_rest, key.as_ref())?;
    let segment = veil.segment(&segment);
    let object = Object {
        size: segment.size,
        etag: hex(&segment.md5),
        modified: now(),
        checksum: veil.object(checksum.as_ref()),
        in_parts: false,
        at_rest,
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
    encryption_out!(output, &object.at_rest);
    let drafts = if object.segments.is_empty() { Vec::new() } else { vec![draft] };
    api.store.put(&input.bucket, &input.key, object, drafts, condition).await?;
    Ok(S3Response::new(output))
}

/// Copies an object, or a range of it, to a part of an upload.
pub async fn part(
    api: &Api,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let input = &request.input;
    let number = super::multipart::number(input.part_number)?;
    let upload = super::multipart::upload(api, &input.bucket, &input.key, &input.upload_id)?;
    let key = api.keys.for_old(object_name_of!(input), &upload.at_rest, &customer_key_of!(input))?;
    let from = copy_source_of!(input, input.copy_source_range.as_deref());
    let checksum = upload.checksum.map(|(algorithm, _)| algorithm);
    let (_, draft, segment, checksum) =
        from.copy(api, BodyKind::Part, &upload.at_rest, key.as_ref(), checksum).await?;
    let part = Part { modified: now(), segment: Veil::of(&upload.at_rest, key.as_ref())?.segment(&segment) };
    let mut result = CopyPartResult {
        e_tag: Some(etag(&hex(&part.segment.md5))),
        last_modified: Some(super::common::timestamp(part.modified)),
        ..Default::default()
    };
    checksum_out!(result, &checksum);
    let mut output = UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() };
    encryption_out!(output, &upload.at_rest);
    api.store.put_part(&input.bucket, &input.key, &input.upload_id, number, part, draft).await?;
    Ok(S3Response::new(output))
}
