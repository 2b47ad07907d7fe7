//! Routes each of S3's operations to its function.

use super::{Api, buckets, copy, delete, get, list, multipart, put, settings, tags, unsupported};
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

#[async_trait::async_trait]
impl S3 for Api {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        buckets::create(self, request).await
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        buckets::delete(self, request).await
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        buckets::head(self, request).await
    }

    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        buckets::list(self, request).await
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        buckets::location(self, request).await
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        put::put(self, request).await
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        get::get(self, request).await
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        get::head(self, request).await
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        list::v1(self, request).await
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        list::v2(self, request).await
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        delete::delete_object(self, request).await
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        delete::many(self, request).await
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        copy::object(self, request).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        copy::part(self, request).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        multipart::create(self, request).await
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        multipart::part(self, request).await
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        multipart::parts(self, request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        multipart::complete(self, request).await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        multipart::abort(self, request).await
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        tags::of_object(self, request).await
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        tags::put_on_object(self, request).await
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        tags::delete_of_object(self, request).await
    }

    async fn get_bucket_tagging(
        &self,
        request: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<S3Response<GetBucketTaggingOutput>> {
        tags::of_bucket(self, request).await
    }

    async fn put_bucket_tagging(
        &self,
        request: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<S3Response<PutBucketTaggingOutput>> {
        tags::put_on_bucket(self, request).await
    }

    async fn delete_bucket_tagging(
        &self,
        request: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
        tags::delete_of_bucket(self, request).await
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        list::uploads(self, request).await
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        get::attributes(self, request).await
    }

    async fn get_bucket_encryption(
        &self,
        request: S3Request<GetBucketEncryptionInput>,
    ) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
        settings::encryption(self, request).await
    }

    async fn put_bucket_encryption(
        &self,
        request: S3Request<PutBucketEncryptionInput>,
    ) -> S3Result<S3Response<PutBucketEncryptionOutput>> {
        settings::put_encryption(self, request).await
    }

    async fn delete_bucket_encryption(
        &self,
        request: S3Request<DeleteBucketEncryptionInput>,
    ) -> S3Result<S3Response<DeleteBucketEncryptionOutput>> {
        settings::delete_encryption(self, request).await
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        settings::versioning(self, request).await
    }

    async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        settings::bucket_acl(self, request).await
    }

    async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        settings::object_acl(self, request).await
    }

    async fn get_bucket_policy(
        &self,
        request: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<S3Response<GetBucketPolicyOutput>> {
        unsupported::none(self, &request.input.bucket, "NoSuchBucketPolicy")
    }

    async fn get_bucket_policy_status(
        &self,
        request: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
        unsupported::none(self, &request.input.bucket, "NoSuchBucketPolicy")
    }

    async fn get_bucket_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        unsupported::none(self, &request.input.bucket, "NoSuchCORSConfiguration")
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        unsupported::none(self, &request.input.bucket, "NoSuchLifecycleConfiguration")
    }

    async fn get_bucket_website(
        &self,
        request: S3Request<GetBucketWebsiteInput>,
    ) -> S3Result<S3Response<GetBucketWebsiteOutput>> {
        unsupported::none(self, &request.input.bucket, "NoSuchWebsiteConfiguration")
    }

    async fn get_bucket_replication(
        &self,
        request: S3Request<GetBucketReplicationInput>,
    ) -> S3Result<S3Response<GetBucketReplicationOutput>> {
        unsupported::none(self, &request.input.bucket, "ReplicationConfigurationNotFoundError")
    }

    async fn get_object_lock_configuration(
        &self,
        request: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        unsupported::none(self, &request.input.bucket, "ObjectLockConfigurationNotFoundError")
    }

    async fn get_public_access_block(
        &self,
        request: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
        unsupported::none(self, &request.input.bucket, "NoSuchPublicAccessBlockConfiguration")
    }

    async fn get_bucket_ownership_controls(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
        unsupported::none(self, &request.input.bucket, "OwnershipControlsNotFoundError")
    }

    async fn get_bucket_logging(
        &self,
        request: S3Request<GetBucketLoggingInput>,
    ) -> S3Result<S3Response<GetBucketLoggingOutput>> {
        buckets::exists(self, &request.input.bucket)?;
        Ok(S3Response::new(GetBucketLoggingOutput::default()))
    }

    async fn get_bucket_notification_configuration(
        &self,
        request: S3Request<GetBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketNotificationConfigurationOutput>> {
        buckets::exists(self, &request.input.bucket)?;
        Ok(S3Response::new(GetBucketNotificationConfigurationOutput::default()))
    }

    async fn get_bucket_accelerate_configuration(
        &self,
        request: S3Request<GetBucketAccelerateConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketAccelerateConfigurationOutput>> {
        buckets::exists(self, &request.input.bucket)?;
        Ok(S3Response::new(GetBucketAccelerateConfigurationOutput::default()))
    }

    async fn get_bucket_request_payment(
        &self,
        request: S3Request<GetBucketRequestPaymentInput>,
    ) -> S3Result<S3Response<GetBucketRequestPaymentOutput>> {
        buckets::exists(self, &request.input.bucket)?;
        Ok(S3Response::new(GetBucketRequestPaymentOutput {
            payer: Some(Payer::from_static(Payer::BUCKET_OWNER)),
        }))
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        list::versions(self, request).await
    }

    async fn post_object(&self, _: S3Request<PostObjectInput>) -> S3Result<S3Response<PostObjectOutput>> {
        Err(s3_error!(NotImplemented, "form uploads (POST) are not supported"))
    }
}
