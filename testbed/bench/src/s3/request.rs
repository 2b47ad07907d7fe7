//! Requests: presigned for S3 servers, plain for nginx.

use super::contender::Contender;
use rusty_s3::actions::{CreateBucket, GetObject, PutObject};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use std::io;
use std::time::Duration;

/// Credentials of a server that runs for minutes and is reachable from this machine only.
pub const ACCESS_KEY: &str = "dcs-bench-access";
pub const SECRET_KEY: &str = "dcs-bench-no-secret-at-all";
pub const REGION: &str = "us-east-1";
pub const BUCKET: &str = "bench";
/// Validity of a presigned URL: longer than a benchmark takes, and permitted.
const VALID: Duration = Duration::from_secs(24 * 3600);

/// Writes heads of requests to one server.
pub struct Writer {
    address: String,
    bucket: Bucket,
    credentials: Option<Credentials>,
}

impl Writer {
    pub fn new(address: &str, contender: Contender) -> io::Result<Writer> {
        let endpoint = format!("http://{address}").parse().map_err(io::Error::other)?;
        let bucket = Bucket::new(endpoint, UrlStyle::Path, BUCKET, REGION).map_err(io::Error::other)?;
        let credentials = contender.is_s3().then(|| Credentials::new(ACCESS_KEY, SECRET_KEY));
        Ok(Writer { address: address.to_string(), bucket, credentials })
    }

    /// Returns a writer that does not know the secret key.
    pub fn forger(address: &str) -> io::Result<Writer> {
        let mut writer = Writer::new(address, Contender::Dcs)?;
        writer.credentials = Some(Credentials::new(ACCESS_KEY, "another key"));
        Ok(writer)
    }

    /// Returns the request that creates the bucket; `None` for a server without buckets.
    pub fn create_bucket(&self) -> Option<String> {
        let credentials = self.credentials.as_ref()?;
        Some(self.head("PUT", CreateBucket::new(&self.bucket, credentials).sign(VALID), Some(0)))
    }

    pub fn put(&self, key: &str, length: u64) -> String {
        self.head(
            "PUT",
            PutObject::new(&self.bucket, self.credentials.as_ref(), key).sign(VALID),
            Some(length),
        )
    }

    pub fn get(&self, key: &str) -> String {
        self.head("GET", GetObject::new(&self.bucket, self.credentials.as_ref(), key).sign(VALID), None)
    }

    fn head(&self, method: &str, url: impl AsRef<str>, length: Option<u64>) -> String {
        let origin = format!("http://{}", self.address);
        let target = url.as_ref().strip_prefix(&origin).unwrap_or(url.as_ref());
        let length = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
        format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n{length}\r\n", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_requests_are_signed_and_others_are_not() {
        let address = "127.0.0.1:9000";
        let signed = Writer::new(address, Contender::Minio).unwrap();
        let put = signed.put("one", 7);
        assert!(put.starts_with("PUT /bench/one?") && put.ends_with("\r\n\r\n"), "{put}");
        assert!(put.contains("Host: 127.0.0.1:9000\r\n") && put.contains("Content-Length: 7\r\n"), "{put}");
        for part in ["X-Amz-Signature=", "X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-SignedHeaders=host"] {
            assert!(put.contains(part), "{part} in {put}");
        }
        assert!(!put.contains(SECRET_KEY));
        assert!(signed.create_bucket().unwrap().starts_with("PUT /bench/?X-Amz"));
        let plain = Writer::new(address, Contender::Nginx).unwrap();
        assert_eq!(plain.get("one"), "GET /bench/one HTTP/1.1\r\nHost: 127.0.0.1:9000\r\n\r\n");
        assert!(plain.create_bucket().is_none());
    }
}
