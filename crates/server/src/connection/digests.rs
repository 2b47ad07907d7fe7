//! Checks the digests that a request gives of a small body, which s3s does not check.

use crate::api::common::{BASE64, checksum_in, unhex};
use crate::store::record::Algorithm;
use base64::Engine as _;
use crc_fast::CrcAlgorithm;
use http::{HeaderMap, HeaderValue, StatusCode};
use md5::{Digest, Md5};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use sha1::Sha1;
use sha2::Sha256;

/// Digests that a body must have, and its running digests.
pub(crate) struct Digests(Vec<(Running, Vec<u8>, S3Error)>);

enum Running {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    /// Fields: the CRC, and the bytes of the body so far.
    Crc(crc_fast::Digest, usize),
}

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} digests", self.0.len())
    }
}

impl Digests {
    /// Reads the digests from the headers. `checksums`: the additional checksums are the body's, not an object's.
    ///
    /// # Errors
    ///
    /// Fails if a digest is malformed, or the body comes in S3's framing, where nobody would compare the checksum in
    /// its trailer.
    pub(crate) fn of(headers: &HeaderMap, checksums: bool) -> S3Result<Digests> {
        let text = |name: &str| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
        let payload = text("x-amz-content-sha256").unwrap_or_default();
        let mut digests = Vec::new();
        if payload.starts_with("STREAMING-") {
            return Err(s3_error!(NotImplemented, "a body in XML must not be framed as {payload}"));
        }
        if let Some(expected) = unhex(payload).filter(|sha256| sha256.len() == 32) {
            digests.push((Running::Sha256(Sha256::new()), expected, sha256_mismatch()));
        }
        if let Some(text) = text("content-md5") {
            let expected = BASE64.decode(text).ok().filter(|md5| md5.len() == 16);
            let expected = expected.ok_or_else(|| s3_error!(InvalidDigest))?;
            let error = s3_error!(BadDigest, "the body's MD5 differs from Content-MD5");
            digests.push((Running::Md5(Md5::new()), expected, error));
        }
        let of = |algorithm, name| (algorithm, text(name));
        let given = checksum_in([
            of(Algorithm::Crc32, "x-amz-checksum-crc32"),
            of(Algorithm::Crc32c, "x-amz-checksum-crc32c"),
            of(Algorithm::Crc64Nvme, "x-amz-checksum-crc64nvme"),
            of(Algorithm::Sha1, "x-amz-checksum-sha1"),
            of(Algorithm::Sha256, "x-amz-checksum-sha256"),
        ]);
        if checksums && let Some((algorithm, expected)) = given? {
            let error = s3_error!(BadDigest, "the body's checksum differs from the given one");
            digests.push((running(algorithm), expected, error));
        }
        Ok(Digests(digests))
    }

    /// Adds the body's next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for (running, ..) in &mut self.0 {
            match running {
                Running::Md5(digest) => digest.update(bytes),
                Running::Sha1(digest) => digest.update(bytes),
                Running::Sha256(digest) => digest.update(bytes),
                Running::Crc(digest, _) => digest.update(bytes),
            }
        }
    }

    /// Compares the digests of all bytes with the given ones.
    ///
    /// # Errors
    ///
    /// Fails if one differs.
    pub(crate) fn check(self) -> S3Result<()> {
        for (running, expected, error) in self.0 {
            let found = match running {
                Running::Md5(digest) => digest.finalize().to_vec(),
                Running::Sha1(digest) => digest.finalize().to_vec(),
                Running::Sha256(digest) => digest.finalize().to_vec(),
                Running::Crc(digest, size) => digest.finalize().to_be_bytes()[8 - size..].to_vec(),
            };
            if found != expected {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Returns the error for a body that is not the one that was signed.
pub(crate) fn sha256_mismatch() -> S3Error {
    let code = S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into());
    let mut error = S3Error::with_message(code, "the data's SHA-256 differs from x-amz-content-sha256");
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

fn running(algorithm: Algorithm) -> Running {
    let crc = |algorithm, size| Running::Crc(crc_fast::Digest::new(algorithm), size);
    match algorithm {
        Algorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc, 4),
        Algorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi, 4),
        Algorithm::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme, 8),
        Algorithm::Sha1 => Running::Sha1(Sha1::new()),
        Algorithm::Sha256 => Running::Sha256(Sha256::new()),
    }
}
