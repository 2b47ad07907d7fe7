//! Bucket settings: default encryption, versioning (there is none), access lists (the owner has everything).

use super::Api;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Returns the bucket's default encryption of new objects.
pub async fn encryption(
    api: &Api,
    request: S3Request<GetBucketEncryptionInput>,
) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
    let bucket = super::buckets::exists(api, &request.input.bucket)?;
    if !bucket.defaults.encrypted {
        return Err(s3_error!(ServerSideEncryptionConfigurationNotFoundError));
    }
    let default = ServerSideEncryptionByDefault {
        kms_master_key_id: None,
        sse_algorithm: ServerSideEncryption::AES256.to_string().into(),
    };
    let rule = ServerSideEncryptionRule {
        apply_server_side_encryption_by_default: Some(default),
        bucket_key_enabled: Some(false),
    };
    let configuration = ServerSideEncryptionConfiguration { rules: vec![rule] };
    Ok(S3Response::new(GetBucketEncryptionOutput {
        server_side_encryption_configuration: Some(configuration),
    }))
}

/// Turns default encryption on.
pub async fn put_encryption(
    api: &Api,
    request: S3Request<PutBucketEncryptionInput>,
) -> S3Result<S3Response<PutBucketEncryptionOutput>> {
    let input = request.input;
    let rules = input.server_side_encryption_configuration.rules;
    let default = match rules.as_slice() {
        [rule] => rule.apply_server_side_encryption_by_default.as_ref(),
        _ => None,
    };
    let algorithm = default.map(|default| default.sse_algorithm.as_str());
    if algorithm != Some(ServerSideEncryption::AES256) {
        return Err(s3_error!(NotImplemented, "a bucket's encryption must be one rule with AES256"));
    }
    if !api.keys.has_master() {
        return Err(s3_error!(InvalidRequest, "the server has no master key: start it with --master-key"));
    }
    api.store.change_bucket(&input.bucket, |bucket| bucket.defaults.encrypted = true).await?;
    Ok(S3Response::new(PutBucketEncryptionOutput::default()))
}

/// Turns default encryption off.
pub async fn delete_encryption(
    api: &Api,
    request: S3Request<DeleteBucketEncryptionInput>,
) -> S3Result<S3Response<DeleteBucketEncryptionOutput>> {
    api.store.change_bucket(&request.input.bucket, |bucket| bucket.defaults.encrypted = false).await?;
    Ok(S3Response::new(DeleteBucketEncryptionOutput::default()))
}

/// Answers that versioning was never turned on.
pub async fn versioning(
    api: &Api,
    request: S3Request<GetBucketVersioningInput>,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    super::buckets::exists(api, &request.input.bucket)?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}

fn everything(owner: &str) -> (Option<Owner>, Option<Grants>) {
    let grantee = Grantee {
        display_name: Some(owner.to_string()),
        email_address: None,
        id: Some(owner.to_string()),
        type_: Type::CANONICAL_USER.to_string().into(),
        uri: None,
    };
    let grant =
        Grant { grantee: Some(grantee), permission: Some(Permission::FULL_CONTROL.to_string().into()) };
    (Some(Owner { id: Some(owner.to_string()), display_name: Some(owner.to_string()) }), Some(vec![grant]))
}

/// Answers with the only access list that buckets have: the owner has everything.
pub async fn bucket_acl(
    api: &Api,
    request: S3Request<GetBucketAclInput>,
) -> S3Result<S3Response<GetBucketAclOutput>> {
    let bucket = super::buckets::exists(api, &request.input.bucket)?;
    let (owner, grants) = everything(&bucket.owner);
    Ok(S3Response::new(GetBucketAclOutput { owner, grants }))
}

/// Answers with the only access list that objects have: the owner has everything.
pub async fn object_acl(
    api: &Api,
    request: S3Request<GetObjectAclInput>,
) -> S3Result<S3Response<GetObjectAclOutput>> {
    let bucket = super::buckets::exists(api, &request.input.bucket)?;
    super::get::only_version(request.input.version_id.as_deref())?;
    api.store.object(&request.input.bucket, &request.input.key)?.ok_or_else(|| s3_error!(NoSuchKey))?;
    let (owner, grants) = everything(&bucket.owner);
    Ok(S3Response::new(GetObjectAclOutput { owner, grants, ..Default::default() }))
}
