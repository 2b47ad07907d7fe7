//! Tags of objects and buckets.

use super::Api;
use crate::store::record::{Bucket, Compression};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Most tags of an object, and their lengths in characters. S3's own limits.
const TAGS_MAX: usize = 10;
const KEY_MAX: usize = 128;
const VALUE_MAX: usize = 256;

/// Converts tags from S3's type.
fn from_set(tags: TagSet) -> Vec<(String, String)> {
    tags.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect()
}

fn to_set(tags: Vec<(String, String)>) -> TagSet {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

/// Returns an object's tags.
pub async fn of_object(
    api: &Api,
    request: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    super::get::only_version(request.input.version_id.as_deref())?;
    let object = api.store.object(&request.input.bucket, &request.input.key)?;
    let object = object.ok_or_else(|| s3_error!(NoSuchKey))?;
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: to_set(object.tags), version_id: None }))
}

/// Replaces an object's tags.
pub async fn put_on_object(
    api: &Api,
    request: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let input = request.input;
    super::get::only_version(input.version_id.as_deref())?;
    let tags = checked(from_set(input.tagging.tag_set))?;
    api.store.change_object(&input.bucket, &input.key, move |object| object.tags = tags).await?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

/// Deletes an object's tags.
pub async fn delete_of_object(
    api: &Api,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let input = request.input;
    super::get::only_version(input.version_id.as_deref())?;
    api.store.change_object(&input.bucket, &input.key, |object| object.tags.clear()).await?;
    Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
}

/// Returns a bucket's tags.
pub async fn of_bucket(
    api: &Api,
    request: S3Request<GetBucketTaggingInput>,
) -> S3Result<S3Response<GetBucketTaggingOutput>> {
    let tags = super::buckets::exists(api, &request.input.bucket)?.tags;
    if tags.is_empty() {
        return Err(s3_error!(NoSuchTagSet));
    }
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set: to_set(tags) }))
}

/// Most tags of a bucket.
const BUCKET_TAGS_MAX: usize = 50;

/// Tag of a bucket that sets the compression of its new objects. S3 has no request for it.
const COMPRESSION: &str = "dcs:compression";

/// Returns the compression that a bucket's tags set.
fn compression(tags: &[(String, String)]) -> S3Result<Compression> {
    match tags.iter().find(|(key, _)| key == COMPRESSION).map(|(_, value)| value.as_str()) {
        None | Some("none") => Ok(Compression::None),
        Some("gzip") => Ok(Compression::Gzip),
        Some("zstd") => Ok(Compression::Zstd),
        Some(_) => Err(s3_error!(InvalidTag, "{COMPRESSION} must be gzip, zstd or none")),
    }
}

/// Replaces a bucket's tags; [`COMPRESSION`] sets how new objects are compressed.
pub async fn put_on_bucket(
    api: &Api,
    request: S3Request<PutBucketTaggingInput>,
) -> S3Result<S3Response<PutBucketTaggingOutput>> {
    let input = request.input;
    let tags = checked_to(from_set(input.tagging.tag_set), BUCKET_TAGS_MAX)?;
    let compression = compression(&tags)?;
    let change = move |bucket: &mut Bucket| {
        bucket.defaults.compression = compression;
        bucket.tags = tags;
    };
    api.store.change_bucket(&input.bucket, change).await?;
    Ok(S3Response::new(PutBucketTaggingOutput::default()))
}

/// Deletes a bucket's tags.
pub async fn delete_of_bucket(
    api: &Api,
    request: S3Request<DeleteBucketTaggingInput>,
) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
    let change = |bucket: &mut Bucket| {
        bucket.defaults.compression = Compression::None;
        bucket.tags.clear();
    };
    api.store.change_bucket(&request.input.bucket, change).await?;
    Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
}

/// Parses tags from the header x-amz-tagging, which is written like a URL's query.
///
/// # Errors
///
/// Fails if they are malformed or too many.
pub fn from_header(text: Option<&str>) -> S3Result<Vec<(String, String)>> {
    let tags = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
    checked(tags.map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
}

/// Checks tags.
///
/// # Errors
///
/// Fails if there are too many, one is too long, or two have the same key.
pub fn checked(tags: Vec<(String, String)>) -> S3Result<Vec<(String, String)>> {
    checked_to(tags, TAGS_MAX)
}

fn checked_to(tags: Vec<(String, String)>, max: usize) -> S3Result<Vec<(String, String)>> {
    if tags.len() > max {
        return Err(s3_error!(InvalidTag, "at most {max} tags are allowed"));
    }
    for (at, (key, value)) in tags.iter().enumerate() {
        let length = key.chars().count();
        if !(1..=KEY_MAX).contains(&length) || value.chars().count() > VALUE_MAX {
            return Err(s3_error!(
                InvalidTag,
                "a tag's key must have 1 to {KEY_MAX} characters, and its value at most {VALUE_MAX}"
            ));
        }
        if tags[..at].iter().any(|(earlier, _)| earlier == key) {
            return Err(s3_error!(InvalidTag, "two tags have the key {key}"));
        }
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_how_a_bucket_compresses() {
        let tagged =
            |value: &str| compression(&[("a".into(), "b".into()), (COMPRESSION.into(), value.into())]);
        assert_eq!(compression(&[]).unwrap(), Compression::None);
        assert_eq!(tagged("gzip").unwrap(), Compression::Gzip);
        assert_eq!(tagged("zstd").unwrap(), Compression::Zstd);
        assert_eq!(tagged("none").unwrap(), Compression::None);
        assert!(tagged("GZIP").is_err() && tagged("").is_err());
    }

    #[test]
    fn tags_come_as_a_query() {
        let tags = from_header(Some("a=1&b%20c=d%26")).unwrap();
        assert_eq!(tags, [("a".into(), "1".into()), ("b c".into(), "d&".into())]);
        assert!(from_header(Some("a=1&a=2")).is_err());
        assert!(from_header(Some("=1")).is_err());
        let many: Vec<String> = (0..11).map(|at| format!("k{at}=v")).collect();
        assert!(from_header(Some(&many.join("&"))).is_err());
        assert!(from_header(None).unwrap().is_empty());
    }
}
