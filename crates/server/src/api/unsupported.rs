//! Answers for features that no bucket has here: clients ask for them and understand these answers. Also refuses
//! settings that would otherwise be taken and ignored.

use super::Api;
use http::StatusCode;
use s3s::dto::{BucketCannedACL, ObjectCannedACL};
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result, s3_error};

/// Answers with the error of this code, for a setting that the bucket does not have.
pub fn none<T>(api: &Api, bucket: &str, code: &'static str) -> S3Result<S3Response<T>> {
    super::buckets::exists(api, bucket)?;
    let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::Custom(code.into()));
    let mut error = S3Error::with_message(code, "the bucket does not have this setting");
    error.set_status_code(StatusCode::NOT_FOUND);
    Err(error)
}

/// Checks the access list of a write: nobody but the owner may be granted anything.
///
/// # Errors
///
/// Fails if it grants something to others.
pub fn only_owners(acl: Option<&str>, granted: bool) -> S3Result<()> {
    let owners = [
        ObjectCannedACL::PRIVATE,
        ObjectCannedACL::BUCKET_OWNER_FULL_CONTROL,
        ObjectCannedACL::BUCKET_OWNER_READ,
        BucketCannedACL::PRIVATE,
    ];
    if granted || acl.is_some_and(|acl| !owners.contains(&acl)) {
        return Err(s3_error!(
            AccessControlListNotSupported,
            "access lists are not supported: only the owner has access"
        ));
    }
    Ok(())
}

/// Refuses what an input asks for and the server does not have: access lists, locks, keys of a key service.
macro_rules! refuse_unsupported {
    ($input:expr) => {
        crate::api::unsupported::only_owners(
            $input.acl.as_ref().map(|acl| acl.as_str()),
            $input.grant_full_control.is_some()
                || $input.grant_read.is_some()
                || $input.grant_read_acp.is_some()
                || $input.grant_write_acp.is_some(),
        )?;
        if $input.object_lock_legal_hold_status.is_some()
            || $input.object_lock_mode.is_some()
            || $input.object_lock_retain_until_date.is_some()
            || $input.website_redirect_location.is_some()
        {
            return Err(s3s::s3_error!(
                NotImplemented,
                "object locks and website redirects are not supported"
            ));
        }
        if $input.storage_class.as_ref().is_some_and(|class| class.as_str() != "STANDARD") {
            return Err(s3s::s3_error!(InvalidStorageClass, "the only storage class is STANDARD"));
        }
    };
}
pub(crate) use refuse_unsupported;
