//! DeleteObject and DeleteObjects.

use super::Api;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Most keys of one request. S3's own limit.
const KEYS_MAX: usize = 1000;

/// Takes an object away. That there was none is no error.
pub async fn one(
    api: &Api,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let input = request.input;
    if input.version_id.is_some_and(|version| version != "null") {
        return Err(s3_error!(NotImplemented, "there are no versions"));
    }
    if input.if_match.is_some() {
        return Err(s3_error!(NotImplemented, "a deletion has no conditions"));
    }
    api.store.delete(&input.bucket, vec![input.key]).await?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}

/// Takes objects away.
pub async fn many(
    api: &Api,
    request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let input = request.input;
    let objects = input.delete.objects;
    if objects.len() > KEYS_MAX {
        return Err(s3_error!(MalformedXML, "a request deletes {KEYS_MAX} objects at most"));
    }
    let (versions, plain): (Vec<_>, Vec<_>) = objects.into_iter().partition(|object| {
        object.version_id.as_ref().is_some_and(|version| version != "null") || object.e_tag.is_some()
    });
    let keys: Vec<String> = plain.into_iter().map(|object| object.key).collect();
    api.store.delete(&input.bucket, keys.clone()).await?;
    let quiet = input.delete.quiet.unwrap_or(false);
    let deleted = keys.into_iter().map(|key| DeletedObject { key: Some(key), ..Default::default() });
    let errors = versions.into_iter().map(|object| Error {
        code: Some("NotImplemented".to_string()),
        key: Some(object.key),
        message: Some("there are no versions, and no conditions of a deletion".to_string()),
        version_id: object.version_id,
    });
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: (!quiet).then(|| deleted.collect()),
        errors: Some(errors.collect()),
        ..Default::default()
    }))
}
