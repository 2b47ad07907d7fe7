//! Tags of objects and buckets.

use super::Api;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Most tags of an object, and their lengths in characters. S3's own limits.
const TAGS_MAX: usize = 10;
const KEY_MAX: usize = 128;
const VALUE_MAX: usize = 256;

/// Tags as XML has them.
fn from_set(tags: TagSet) -> Vec<(String, String)> {
    tags.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect()
}

fn to_set(tags: Vec<(String, String)>) -> TagSet {
    tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect()
}

/// Tells an object's tags.
pub async fn of_object(
    api: &Api,
    request: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let object = api.store.object(&request.input.bucket, &request.input.key)?;
    let object = object.ok_or_else(|| s3_error!(NoSuchKey))?;
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: to_set(object.tags), version_id: None }))
}

/// Gives an object other tags.
pub async fn put_on_object(
    api: &Api,
    request: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let input = request.input;
    let tags = checked(from_set(input.tagging.tag_set))?;
    api.store.change_object(&input.bucket, &input.key, move |object| object.tags = tags).await?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

/// Takes an object's tags away.
pub async fn delete_of_object(
    api: &Api,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let input = request.input;
    api.store.change_object(&input.bucket, &input.key, |object| object.tags.clear()).await?;
    Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
}

/// Tells a bucket's tags.
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

/// Gives a bucket other tags.
pub async fn put_on_bucket(
    api: &Api,
    request: S3Request<PutBucketTaggingInput>,
) -> S3Result<S3Response<PutBucketTaggingOutput>> {
    let input = request.input;
    let tags = checked_to(from_set(input.tagging.tag_set), BUCKET_TAGS_MAX)?;
    api.store.change_bucket(&input.bucket, move |bucket| bucket.tags = tags).await?;
    Ok(S3Response::new(PutBucketTaggingOutput::default()))
}

/// Takes a bucket's tags away.
pub async fn delete_of_bucket(
    api: &Api,
    request: S3Request<DeleteBucketTaggingInput>,
) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
    api.store.change_bucket(&request.input.bucket, |bucket| bucket.tags.clear()).await?;
    Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
}

/// Tags as the header x-amz-tagging has them: a URL's query.
///
/// # Errors
///
/// They are none, or too many.
pub fn from_header(text: Option<&str>) -> S3Result<Vec<(String, String)>> {
    let tags = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
    checked(tags.map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
}

/// Checks tags.
///
/// # Errors
///
/// There are too many, one is too long, or there are two of a name.
pub fn checked(tags: Vec<(String, String)>) -> S3Result<Vec<(String, String)>> {
    checked_to(tags, TAGS_MAX)
}

fn checked_to(tags: Vec<(String, String)>, max: usize) -> S3Result<Vec<(String, String)>> {
    if tags.len() > max {
        return Err(s3_error!(InvalidTag, "there are {max} tags at most"));
    }
    for (at, (key, value)) in tags.iter().enumerate() {
        let length = key.chars().count();
        if !(1..=KEY_MAX).contains(&length) || value.chars().count() > VALUE_MAX {
            return Err(s3_error!(
                InvalidTag,
                "a tag has a key of 1 to {KEY_MAX} characters and a value of {VALUE_MAX} at most"
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
