//! Converts between S3's types and the store's: headers, times, tags, checksums, errors.

use crate::store::StoreError;
use crate::store::record::{Algorithm, Checksum, Headers, Object, Time};
use base64::Engine as _;
pub use base64::engine::general_purpose::STANDARD as BASE64;
use s3s::dto::{ETag, ETagCondition, Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time.
pub fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Converts a time to S3's type.
pub fn timestamp(time: Time) -> Timestamp {
    (UNIX_EPOCH + Duration::from_millis(time)).into()
}

/// Converts S3's time to seconds since 1970, the resolution of HTTP's dates.
pub fn seconds(timestamp: &Timestamp) -> u64 {
    let mut text = Vec::new();
    let formatted = timestamp.format(TimestampFormat::EpochSeconds, &mut text);
    let text = String::from_utf8(text).unwrap_or_default();
    formatted.ok().and_then(|()| text.split('.').next()?.parse().ok()).unwrap_or(0)
}

/// Converts an ETag to S3's type.
pub fn etag(value: &str) -> ETag {
    ETag::Strong(value.to_string())
}

/// Formats bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses hexadecimal.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| (byte as char).to_digit(16);
    let bytes = pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8));
    rest.is_empty().then(|| bytes.collect()).flatten()
}

/// Returns Content-Encoding without `aws-chunked`, which describes only the transfer.
pub fn without_aws_chunked(value: Option<&str>) -> Option<String> {
    let words = value?.split(',').map(str::trim).filter(|word| !word.eq_ignore_ascii_case("aws-chunked"));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(","))
}

/// Formats a date as HTTP writes it (RFC 9110 section 5.6.7).
pub fn http_date(timestamp: &Timestamp) -> String {
    let mut text = Vec::new();
    let _ = timestamp.format(TimestampFormat::HttpDate, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Most bytes of user metadata, names and values together. S3's own limit.
const METADATA_MAX: usize = 2048;

/// Checks a request's user metadata.
///
/// # Errors
///
/// Fails if they have more bytes than S3 allows.
pub fn metadata_in(metadata: Option<s3s::dto::Metadata>) -> S3Result<Vec<(String, String)>> {
    let mut list: Vec<(String, String)> = metadata.into_iter().flatten().collect();
    if list.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > METADATA_MAX {
        return Err(s3_error!(MetadataTooLarge, "user metadata may have at most {METADATA_MAX} bytes"));
    }
    list.sort();
    Ok(list)
}

/// Converts user metadata to S3's type.
pub fn metadata_out(headers: &Headers) -> Option<s3s::dto::Metadata> {
    let metadata: s3s::dto::Metadata = headers.metadata.iter().cloned().collect();
    (!metadata.is_empty()).then_some(metadata)
}

/// Returns true if an object with this ETag meets a condition.
pub fn matches(condition: &ETagCondition, found: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(etag) => etag.value() == found,
    }
}

/// Formats a checksum in base64. A checksum of parts' checksums is followed by their number.
pub fn checksum_text(checksum: &Checksum) -> String {
    let value = BASE64.encode(&checksum.value);
    match checksum.parts {
        Some(parts) => format!("{value}-{parts}"),
        None => value,
    }
}

/// Returns COMPOSITE or FULL_OBJECT.
pub fn checksum_type(checksum: &Checksum) -> s3s::dto::ChecksumType {
    let name = if checksum.parts.is_some() { "COMPOSITE" } else { "FULL_OBJECT" };
    name.to_string().into()
}

/// Returns the additional checksum that a request gives or announces: its algorithm, and its bytes if a header has
/// them.
///
/// # Errors
///
/// Fails if there are two, or one is malformed.
pub fn checksum_in(given: [(Algorithm, Option<&str>); 5]) -> S3Result<Option<(Algorithm, Vec<u8>)>> {
    let mut given = given.into_iter().filter_map(|(algorithm, value)| Some((algorithm, value?)));
    let Some((algorithm, value)) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        return Err(s3_error!(InvalidRequest, "a request may have at most one additional checksum"));
    }
    let bytes = BASE64.decode(value).ok().filter(|bytes| bytes.len() == checksum_size(algorithm));
    let bytes =
        bytes.ok_or_else(|| s3_error!(InvalidRequest, "the additional checksum is malformed: {value}"))?;
    Ok(Some((algorithm, bytes)))
}

/// Returns a checksum's size in bytes.
pub fn checksum_size(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Crc32 | Algorithm::Crc32c => 4,
        Algorithm::Crc64Nvme => 8,
        Algorithm::Sha1 => 20,
        Algorithm::Sha256 => 32,
    }
}

/// Finds an algorithm by S3's name for it, or by the name of its header.
///
/// # Errors
///
/// Fails for an unknown name.
pub fn algorithm(name: &str) -> S3Result<Algorithm> {
    let name = name.to_ascii_uppercase();
    match name.strip_prefix("X-AMZ-CHECKSUM-").unwrap_or(&name) {
        "CRC32" => Ok(Algorithm::Crc32),
        "CRC32C" => Ok(Algorithm::Crc32c),
        "CRC64NVME" => Ok(Algorithm::Crc64Nvme),
        "SHA1" => Ok(Algorithm::Sha1),
        "SHA256" => Ok(Algorithm::Sha256),
        other => Err(s3_error!(InvalidRequest, "unknown checksum algorithm {other}")),
    }
}

/// Returns the error for a full disk (RFC 4918 section 11.5).
pub fn full() -> S3Error {
    let code = S3ErrorCode::Custom("StorageFull".into());
    let mut error = S3Error::with_message(code, "the server's disk is full");
    error.set_status_code(http::StatusCode::INSUFFICIENT_STORAGE);
    error
}

/// Returns S3's name of an algorithm.
pub fn algorithm_name(algorithm: Algorithm) -> s3s::dto::ChecksumAlgorithm {
    let name = match algorithm {
        Algorithm::Crc32 => "CRC32",
        Algorithm::Crc32c => "CRC32C",
        Algorithm::Crc64Nvme => "CRC64NVME",
        Algorithm::Sha1 => "SHA1",
        Algorithm::Sha256 => "SHA256",
    };
    s3s::dto::ChecksumAlgorithm::from_static(name)
}

/// Converts the store's errors to those that clients get.
impl From<StoreError> for S3Error {
    fn from(error: StoreError) -> S3Error {
        match &error {
            StoreError::NoSuchBucket => s3_error!(NoSuchBucket),
            StoreError::BucketExists => s3_error!(BucketAlreadyExists),
            StoreError::BucketNotEmpty => s3_error!(BucketNotEmpty),
            StoreError::NoSuchKey => s3_error!(NoSuchKey),
            StoreError::NoSuchUpload => s3_error!(NoSuchUpload),
            StoreError::ConditionFailed => s3_error!(PreconditionFailed),
            StoreError::NoSpace => full(),
            StoreError::InvalidPart(number) => {
                s3_error!(InvalidPart, "part {number} does not exist, or was replaced")
            }
            StoreError::Stopped(_) | StoreError::Closed => s3_error!(ServiceUnavailable, "{error}"),
            _ => {
                tracing::error!(%error, "the store");
                s3_error!(InternalError, "{error}")
            }
        }
    }
}

/// Checks that an object exists and can be read.
///
/// # Errors
///
/// Fails if it does not exist, or was found damaged.
pub fn readable(object: Option<Object>) -> S3Result<Object> {
    let object = object.ok_or_else(|| s3_error!(NoSuchKey))?;
    match &object.quarantined {
        None => Ok(object),
        Some(why) => {
            let mut error = s3_error!(InternalError, "the object is damaged, and kept from readers: {why}");
            error.set_status_code(http::StatusCode::INTERNAL_SERVER_ERROR);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_encoding_is_about_the_object() {
        assert_eq!(without_aws_chunked(Some("aws-chunked")), None);
        assert_eq!(without_aws_chunked(Some("aws-chunked,gzip")).as_deref(), Some("gzip"));
        assert_eq!(without_aws_chunked(Some("gzip, br")).as_deref(), Some("gzip,br"));
    }

    #[test]
    fn checksums_are_checked() {
        let given = |crc32, sha1| {
            let rest = [(Algorithm::Crc32c, None), (Algorithm::Crc64Nvme, None), (Algorithm::Sha256, None)];
            checksum_in([(Algorithm::Crc32, crc32), (Algorithm::Sha1, sha1), rest[0], rest[1], rest[2]])
        };
        assert_eq!(given(None, None).unwrap(), None);
        assert_eq!(given(Some("AAAAAA=="), None).unwrap(), Some((Algorithm::Crc32, vec![0; 4])));
        assert!(given(Some("AAAA"), None).is_err());
        assert!(given(Some("AAAAAA=="), Some("AAAAAA==")).is_err());
    }

    #[test]
    fn times_are_seconds_for_http() {
        assert_eq!(seconds(&timestamp(1_700_000_000_999)), 1_700_000_000);
    }
}
