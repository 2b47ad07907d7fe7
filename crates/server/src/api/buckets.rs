//! Buckets: create, head, list, delete, location.

use super::Api;
use super::common::{now, timestamp};
use crate::store::StoreError;
use crate::store::record::Bucket;
use crate::users::Right;
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
    super::unsupported::only_owners(input.acl.as_ref().map(BucketCannedACL::as_str), granted)?;
    if input.object_lock_enabled_for_bucket == Some(true) {
        return Err(s3_error!(NotImplemented, "object locks are not supported"));
    }
    let ownership = input.object_ownership.as_ref().map(ObjectOwnership::as_str);
    if ownership.is_some_and(|ownership| ownership != ObjectOwnership::BUCKET_OWNER_ENFORCED) {
        return Err(s3_error!(NotImplemented, "object ownership is always BucketOwnerEnforced"));
    }
    let configuration = input.create_bucket_configuration.as_ref();
    if configuration
        .is_some_and(|configuration| configuration.bucket.is_some() || configuration.location.is_some())
    {
        return Err(s3_error!(NotImplemented, "directory buckets are not supported"));
    }
    let region = configuration.and_then(|configuration| configuration.location_constraint.as_ref());
    if region.is_some_and(|region| !["", REGION].contains(&region.as_str())) {
        return Err(s3_error!(
            InvalidLocationConstraint,
            "buckets are in {REGION}: leave LocationConstraint out, or name this region"
        ));
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

/// Deletes an empty bucket.
pub async fn delete(
    api: &Api,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    api.store.delete_bucket(&request.input.bucket).await?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

/// Checks that a bucket exists.
pub async fn head(api: &Api, request: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
    exists(api, &request.input.bucket)?;
    Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(REGION.to_string()), ..Default::default() }))
}

/// Region that buckets are said to be in. Signatures may name any other.
const REGION: &str = "us-east-1";

/// Returns a bucket's region. S3 sends none for us-east-1.
pub async fn location(
    api: &Api,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    exists(api, &request.input.bucket)?;
    Ok(S3Response::new(GetBucketLocationOutput::default()))
}

/// Most buckets on a page. S3's own limit.
const PAGE_MAX: i32 = 10_000;

/// Lists the buckets that the user may read, in pages if the client asks for them.
pub async fn list(
    api: &Api,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let input = request.input;
    let rights = api.access.rights(request.credentials.as_ref());
    let max = input.max_buckets.unwrap_or(PAGE_MAX);
    if !(1..=PAGE_MAX).contains(&max) {
        return Err(s3_error!(InvalidArgument, "max-buckets must be 1 to {PAGE_MAX}"));
    }
    let after = input.continuation_token.as_deref().map(super::list::after_token).transpose()?;
    let prefix = input.prefix.as_deref().unwrap_or_default();
    let here = input.bucket_region.as_deref().is_none_or(|region| region == REGION);
    let listed = |name: &str| {
        here && name.starts_with(prefix)
            && after.as_deref().is_none_or(|after| name > after)
            && rights.on(name) >= Right::Read
    };
    let mut buckets: Vec<_> = api.store.buckets()?.into_iter().filter(|(name, _)| listed(name)).collect();
    let more = buckets.len() > max as usize;
    buckets.truncate(max as usize);
    let next = buckets.last().filter(|_| more).map(|(name, _)| super::list::token(name));
    let buckets = buckets.into_iter().map(|(name, bucket)| s3s::dto::Bucket {
        name: Some(name),
        creation_date: Some(timestamp(bucket.created)),
        bucket_region: Some(REGION.to_string()),
    });
    let id = request.credentials.map(|credentials| credentials.access_key);
    let owner = Owner { id: id.clone(), display_name: id };
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets.collect()),
        owner: Some(owner),
        prefix: input.prefix,
        continuation_token: next,
    }))
}

/// Returns a bucket, or NoSuchBucket.
pub fn exists(api: &Api, name: &str) -> S3Result<Bucket> {
    api.store.bucket(name)?.ok_or_else(|| s3_error!(NoSuchBucket))
}
