//! Macros for fields that many of S3's inputs and outputs share, each in a type of its own.

/// Writes the encryption into an output.
macro_rules! encryption_out {
    ($output:expr, $at_rest:expr) => {
        if $at_rest.encryption.is_managed() {
            $output.server_side_encryption = Some("AES256".to_string().into());
        }
        if let Some(key_md5) = $at_rest.encryption.customer_key_md5() {
            $output.sse_customer_algorithm = Some("AES256".to_string());
            $output.sse_customer_key_md5 = Some(key_md5.to_string());
        }
    };
}
pub(crate) use encryption_out;

/// Returns the name of an input's object.
macro_rules! object_name_of {
    ($input:expr) => {
        crate::encryption::ObjectName { bucket: &$input.bucket, key: &$input.key }
    };
}
pub(crate) use object_name_of;

/// Reads an input's headers about encryption.
macro_rules! encryption_of {
    ($input:expr) => {
        crate::encryption::EncryptionHeaders {
            managed: $input.server_side_encryption.as_ref().map(|value| value.as_str()),
            customer_algorithm: $input.sse_customer_algorithm.as_deref(),
            customer_key: $input.sse_customer_key.as_deref(),
            customer_key_md5: $input.sse_customer_key_md5.as_deref(),
        }
    };
}
pub(crate) use encryption_of;

/// Reads an input's headers about a customer's key, for an existing object.
macro_rules! customer_key_of {
    ($input:expr) => {
        crate::encryption::EncryptionHeaders {
            managed: None,
            customer_algorithm: $input.sse_customer_algorithm.as_deref(),
            customer_key: $input.sse_customer_key.as_deref(),
            customer_key_md5: $input.sse_customer_key_md5.as_deref(),
        }
    };
}
pub(crate) use customer_key_of;

/// Reads an input's additional checksum.
macro_rules! checksum_of {
    ($input:expr) => {
        crate::api::common::checksum_in([
            (crate::store::record::Algorithm::Crc32, $input.checksum_crc32.as_deref()),
            (crate::store::record::Algorithm::Crc32c, $input.checksum_crc32c.as_deref()),
            (crate::store::record::Algorithm::Crc64Nvme, $input.checksum_crc64nvme.as_deref()),
            (crate::store::record::Algorithm::Sha1, $input.checksum_sha1.as_deref()),
            (crate::store::record::Algorithm::Sha256, $input.checksum_sha256.as_deref()),
        ])?
    };
}
pub(crate) use checksum_of;

/// Reads an input's headers that are stored with an object.
macro_rules! headers_of {
    ($input:expr) => {
        crate::store::record::Headers {
            content_type: $input.content_type.clone(),
            content_encoding: crate::api::common::without_aws_chunked($input.content_encoding.as_deref()),
            content_language: $input.content_language.clone(),
            content_disposition: $input.content_disposition.clone(),
            cache_control: $input.cache_control.clone(),
            expires: $input.expires.as_ref().map(crate::api::common::http_date),
            metadata: crate::api::common::metadata_in($input.metadata.clone())?,
        }
    };
}
pub(crate) use headers_of;

/// Fills an output's additional checksum fields.
macro_rules! checksum_out {
    ($output:expr, $checksum:expr) => {
        if let Some(checksum) = $checksum {
            use crate::store::record::Algorithm;
            let text = Some(crate::api::common::checksum_text(checksum));
            match checksum.algorithm {
                Algorithm::Crc32 => $output.checksum_crc32 = text,
                Algorithm::Crc32c => $output.checksum_crc32c = text,
                Algorithm::Crc64Nvme => $output.checksum_crc64nvme = text,
                Algorithm::Sha1 => $output.checksum_sha1 = text,
                Algorithm::Sha256 => $output.checksum_sha256 = text,
            }
        }
    };
}
pub(crate) use checksum_out;
