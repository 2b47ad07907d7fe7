//! Makes the operator that removes S3's aws-chunked framing from a body, using the request's headers.
//!
//! s3s has verified the headers' signature. That signature is the seed of the chunks' signatures, which the engine
//! verifies.

use crate::store::record::Algorithm;
use dcs::{AwsChunked, AwsSignature, Op};
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use s3s::auth::Credentials;
use s3s::{S3Result, s3_error};
use sha2::Sha256;

/// Returns the operator, and the number of bytes that come out of it.
///
/// # Errors
///
/// Fails if the headers lack something that the operator needs.
pub fn operator(
    headers: &HeaderMap,
    credentials: Option<&Credentials>,
    signed: bool,
    trailer: bool,
    announced: Option<Algorithm>,
) -> S3Result<(Op, u64)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let size = text("x-amz-decoded-content-length").and_then(|text| text.parse().ok());
    let size: u64 = size.ok_or_else(|| s3_error!(MissingContentLength, "x-amz-decoded-content-length"))?;
    let signature = if signed {
        let credentials = credentials
            .ok_or_else(|| s3_error!(AccessDenied, "signed chunks in a request without a signature"))?;
        let needs = || s3_error!(InvalidRequest, "signed chunks need the headers' signature");
        let authorization = text("authorization").ok_or_else(needs)?;
        let date = text("x-amz-date").ok_or_else(needs)?;
        Some(signature(authorization, date, credentials.secret_key.expose()).ok_or_else(needs)?)
    } else {
        None
    };
    let checksum = announced.map(operator_of);
    let chunked = AwsChunked { decoded_length: size, trailers: trailer, checksum, signature };
    Ok((Op::AwsChunked(Box::new(chunked)), size))
}

fn operator_of(algorithm: Algorithm) -> dcs::Operator {
    match algorithm {
        Algorithm::Crc32 => dcs::Operator::Crc32,
        Algorithm::Crc32c => dcs::Operator::Crc32c,
        Algorithm::Crc64Nvme => dcs::Operator::Crc64Nvme,
        Algorithm::Sha1 => dcs::Operator::Sha1,
        Algorithm::Sha256 => dcs::Operator::Sha256,
    }
}

/// Parses `AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/s3/aws4_request, SignedHeaders=.., Signature=..`.
fn signature(authorization: &str, date: &str, secret: &str) -> Option<AwsSignature> {
    let fields = authorization.strip_prefix("AWS4-HMAC-SHA256")?;
    let field =
        |name: &str| fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='));
    let (_, scope) = field("Credential")?.split_once('/')?;
    let seed = super::common::unhex(field("Signature")?)?.try_into().ok()?;
    let mut words = scope.split('/');
    let (day, region, service, last) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if last != "aws4_request" || words.next().is_some() {
        return None;
    }
    let timestamp = date.as_bytes().try_into().ok()?;
    Some(AwsSignature {
        key: signing_key(secret, day, region, service),
        seed,
        timestamp,
        scope: scope.to_string(),
    })
}

/// Computes the signing key of a day, a region and a service (AWS Signature Version 4, "Calculate the signature").
fn signing_key(secret: &str, day: &str, region: &str, service: &str) -> [u8; 32] {
    let first = format!("AWS4{secret}").into_bytes();
    [day, region, service, "aws4_request"]
        .iter()
        .fold(first, |key, word| {
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length");
            mac.update(word.as_bytes());
            mac.finalize().into_bytes().to_vec()
        })
        .try_into()
        .expect("HMAC-SHA256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signing_key_is_that_of_the_example() {
        // AWS General Reference, "Examples of how to derive a signing key".
        let key = signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20120215", "us-east-1", "iam");
        let expected = "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d";
        assert_eq!(crate::api::common::hex(&key), expected);
    }

    #[test]
    fn the_seed_is_the_signature_of_the_headers() {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIA/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;range, Signature={}",
            "4f".repeat(32)
        );
        let found = signature(&authorization, "20130524T000000Z", "secret").unwrap();
        assert_eq!((found.seed, found.scope.as_str()), ([0x4f; 32], "20130524/us-east-1/s3/aws4_request"));
        assert!(signature("AWS4-HMAC-SHA256 Credential=AKIA", "20130524T000000Z", "secret").is_none());
    }
}
