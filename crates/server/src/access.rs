//! //! Authorises requests: checks their senders' rights, and that the server understands all of each request.

use crate::connection::digests::Digests;
use crate::connection::exchange::Exchange;
use crate::connection::xml_body::{XML_MAX, XmlBody};
use crate::operations;
use crate::store::Store;
use crate::users::{Right, Rights, Users};
use http::HeaderMap;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::Credentials;
use s3s::dto::{CopyObjectInput, CopySource, UploadPartCopyInput};
use s3s::{S3Request, S3Result, s3_error};
use std::sync::Arc;

/// The rights of clients without credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing.
    #[default]
    Nothing,
    /// Read objects, and list them.
    Read,
    /// Everything.
    All,
}

/// Authorises requests.
#[derive(Clone, Debug)]
pub struct Access {
    users: Users,
    anonymous: Anonymous,
    store: Arc<Store>,
}

/// The reads that clients without credentials may make.
const ANONYMOUS_READS: [&str; 6] =
    ["GetObject", "HeadObject", "ListObjects", "ListObjectsV2", "HeadBucket", "GetBucketLocation"];

impl Access {
    /// Makes the check for these users.
    pub fn new(users: Users, anonymous: Anonymous, store: Arc<Store>) -> Access {
        Access { users, anonymous, store }
    }

    /// Returns the rights of a client with these credentials.
    pub fn rights(&self, credentials: Option<&Credentials>) -> Rights {
        match (credentials, self.anonymous) {
            (Some(credentials), _) => self.users.rights(&credentials.access_key),
            (None, Anonymous::All) => Rights::Everywhere(Right::Administer),
            (None, Anonymous::Read) => Rights::Everywhere(Right::Read),
            (None, Anonymous::Nothing) => Rights::Everywhere(Right::None),
        }
    }

    fn need(&self, credentials: Option<&Credentials>, right: Right, bucket: &str) -> S3Result<()> {
        if self.rights(credentials).on(bucket) >= right {
            return Ok(());
        }
        let who = credentials.map_or("who does not sign", |credentials| &credentials.access_key);
        let what = match right {
            Right::Read | Right::None => "read",
            Right::Write => "write to",
            Right::Administer => "administer",
        };
        Err(s3_error!(AccessDenied, "Access Denied: {who} may not {what} the bucket {bucket}"))
    }

    /// Checks that the bucket belongs to the owner that the client expects.
    fn owner(&self, headers: &HeaderMap, header: &str, bucket: &str) -> S3Result<()> {
        let Some(expected) = headers.get(header) else { return Ok(()) };
        match self.store.bucket(bucket)? {
            Some(found) if found.owner.as_bytes() != expected.as_bytes() => Err(s3_error!(
                AccessDenied,
                "Access Denied: the bucket {bucket} does not belong to the owner in {header}"
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the user may read the source of a copy.
    fn source<T>(&self, request: &S3Request<T>, source: &CopySource) -> S3Result<()> {
        // The operation refuses other sources.
        let CopySource::Bucket { bucket, .. } = source else { return Ok(()) };
        self.need(request.credentials.as_ref(), Right::Read, bucket)?;
        self.owner(&request.headers, "x-amz-source-expected-bucket-owner", bucket)
    }
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let name = context.s3_op().name().to_string();
        let user = context.credentials().map(|credentials| credentials.access_key.clone());
        // For the log and the metrics.
        let exchange = context.extensions_mut().get::<Arc<Exchange>>().cloned();
        if let Some(exchange) = &exchange {
            exchange.name(name.clone(), user.clone());
        }
        let unnamed = self.anonymous != Anonymous::All && !ANONYMOUS_READS.contains(&name.as_str());
        if user.is_none() && (self.anonymous == Anonymous::Nothing || unnamed) {
            return Err(s3_error!(AccessDenied, "Access Denied: the request is not signed"));
        }
        let operation = operations::find(&name)?;
        let bucket = context.s3_path().get_bucket_name();
        if let Some(bucket) = bucket {
            self.need(context.credentials(), operation.needs, bucket)?;
        }
        operation.understands(context.method(), context.uri(), context.headers())?;
        if let Some(bucket) = bucket {
            self.owner(context.headers(), "x-amz-expected-bucket-owner", bucket)?;
        }
        let Some(exchange) = exchange else { return Ok(()) };
        if let Some(xml) = operation.xml() {
            if exchange.length() > Some(XML_MAX) {
                return Err(s3_error!(
                    MaxMessageLengthExceeded,
                    "a request in XML has at most {XML_MAX} bytes"
                ));
            }
            let digests = Digests::of(context.headers(), xml.checksums)?;
            exchange.expect(XmlBody::new(digests, xml.tags))?;
        }
        exchange.authorise();
        Ok(())
    }

    async fn copy_object(&self, request: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        self.source(request, &request.input.copy_source)
    }

    async fn upload_part_copy(&self, request: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        self.source(request, &request.input.copy_source)
    }
}
