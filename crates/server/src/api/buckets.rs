//! Buckets: create, head, list, delete, location.

use super::Api;
use super::common::{now, timestamp};
use crate::store::StoreError;
use crate::store::record::Bucket;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Makes a bucket.
pub async fn create(
    api: &Api,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let owner =
        request.credentials.as_ref().map(|credentials| credentials.access_key.clone()).unwrap_or_default();
    let input = &request.input;
    let granted = input.grant_full_control.is_some()
        || input.grant_read.is_some()
        || input.grant_read_acp.is_some()
        || input.grant_write.is_some()
        || input.grant_write_acp.is_some();
    super::absent::only_owners(input.acl.as_ref().map(BucketCannedACL::as_str), granted)?;
    if input.object_lock_enabled_for_bucket == Some(true) {
        return Err(s3_error!(NotImplemented, "objects have no locks"));
    }
    let name = request.input.bucket;
    let bucket = Bucket { created: now(), owner: owner.clone(), ..Bucket::default() };
    match api.store.create_bucket(&name, bucket).await {
        Err(StoreError::BucketExists) => {
            let own = api.store.bucket(&name)?.is_some_and(|bucket| bucket.owner == owner);
            let error = if own { s3_error!(BucketAlreadyOwnedByYou) } else { s3_error!(BucketAlreadyExists) };
            return Err(error);
        }
        made => made?,
    }
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) }))
}

/// Takes an empty bucket away.
pub async fn delete(
    api: &Api,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    api.store.delete_bucket(&request.input.bucket).await?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

/// Whether there is such a bucket.
pub async fn head(api: &Api, request: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
    exists(api, &request.input.bucket)?;
    Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(REGION.to_string()), ..Default::default() }))
}

/// The region that buckets are said to be in. Signatures may name any other.
const REGION: &str = "us-east-1";

/// S3 says nothing for us-east-1.
pub async fn location(
    api: &Api,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    exists(api, &request.input.bucket)?;
    Ok(S3Response::new(GetBucketLocationOutput::default()))
}

/// All buckets.
pub async fn list(
    api: &Api,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let prefix = request.input.prefix.as_deref().unwrap_or_default();
    let buckets = api.store.buckets()?.into_iter().filter(|(name, _)| name.starts_with(prefix));
    let buckets = buckets.map(|(name, bucket)| s3s::dto::Bucket {
        name: Some(name),
        creation_date: Some(timestamp(bucket.created)),
        ..Default::default()
    });
    let id = request.credentials.map(|credentials| credentials.access_key);
    let owner = Owner { id: id.clone(), display_name: id };
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets.collect()),
        owner: Some(owner),
        prefix: request.input.prefix,
        ..Default::default()
    }))
}

/// The bucket, which must be there.
pub fn exists(api: &Api, name: &str) -> S3Result<Bucket> {
    api.store.bucket(name)?.ok_or_else(|| s3_error!(NoSuchBucket))
}
