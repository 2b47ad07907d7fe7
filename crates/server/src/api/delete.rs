//! DeleteObject and DeleteObjects.

use super::Api;
use super::put::condition;
use crate::store::Condition;
use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

/// Most keys in one request. S3's own limit.
const KEYS_MAX: usize = 1000;

/// Longest key, in bytes. S3's own limit.
const KEY_MAX: usize = 1024;

/// Deletes an object. A missing one is not an error, unless a condition demands it.
pub async fn delete_object(
    api: &Api,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let condition = condition(&request.headers)?;
    let input = request.input;
    super::get::only_version(input.version_id.as_deref())?;
    for done in api.store.delete_if(&input.bucket, vec![(input.key, condition)]).await? {
        done?;
    }
    Ok(S3Response::new(DeleteObjectOutput::default()))
}

/// Returns the condition of one object in a DeleteObjects request.
fn condition_of(object: &ObjectIdentifier) -> S3Result<Condition> {
    if object.key.len() > KEY_MAX {
        return Err(s3_error!(KeyTooLongError, "Your key is too long."));
    }
    super::get::only_version(object.version_id.as_deref())?;
    if object.last_modified_time.is_some() || object.size.is_some() {
        return Err(s3_error!(NotImplemented, "a deletion's only condition is an ETag"));
    }
    Ok(object.e_tag.as_ref().map_or(Condition::None, |etag| match etag.value() {
        "*" => Condition::Present,
        value => Condition::Matches(value.to_string()),
    }))
}

/// Deletes objects.
pub async fn many(
    api: &Api,
    request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let input = request.input;
    let objects = input.delete.objects;
    if !(1..=KEYS_MAX).contains(&objects.len()) || objects.iter().any(|object| object.key.is_empty()) {
        return Err(s3_error!(MalformedXML, "a request deletes 1 to {KEYS_MAX} objects, each with a key"));
    }
    let (mut keys, mut errors) = (Vec::new(), Vec::new());
    for object in objects {
        match condition_of(&object) {
            Ok(condition) => keys.push((object.key, condition)),
            Err(error) => errors.push(refused(object.key, &error)),
        }
    }
    let done = api.store.delete_if(&input.bucket, keys.clone()).await?;
    let mut deleted = Vec::new();
    for ((key, _), done) in keys.into_iter().zip(done) {
        match done {
            Ok(_) => deleted.push(DeletedObject { key: Some(key), ..Default::default() }),
            Err(error) => errors.push(refused(key, &error.into())),
        }
    }
    let quiet = input.delete.quiet.unwrap_or(false);
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: (!quiet).then_some(deleted),
        errors: Some(errors),
        ..Default::default()
    }))
}

fn refused(key: String, error: &S3Error) -> Error {
    Error {
        code: Some(error.code().as_str().to_string()),
        key: Some(key),
        message: error.message().map(str::to_string),
        version_id: None,
    }
}
