//! Table of the operations that the server has: the right that each needs, and the parameters and headers that it
//! understands.
//!
//! Anything not in this table is refused. A parameter or header that S3 adds later, or that the server does not
//! implement, must not be ignored: the request would do something else than it says.

use crate::signed;
use crate::users::Right;
use http::{HeaderMap, Method, Uri};
use s3s::{S3Error, S3Result, s3_error};

/// An operation.
#[derive(Debug)]
pub struct Operation {
    name: &'static str,
    /// The right that a request needs on its bucket.
    pub needs: Right,
    /// Parameters that the query may have.
    query: &'static [&'static str],
    /// Groups of headers, in addition to those of every request.
    headers: &'static [&'static [&'static str]],
}

/// A request in XML.
#[derive(Clone, Copy, Debug)]
pub struct Xml {
    /// True if headers may give checksums of the body. Those of a completed upload are the object's.
    pub checksums: bool,
    /// Most tags that it can have, counting end tags.
    pub tags: usize,
}

/// Headers that any request may have.
const ALWAYS: &[&str] = &[
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    // Compared with the bucket's owner.
    "x-amz-expected-bucket-owner",
    // No requester pays here.
    "x-amz-request-payer",
    "x-amz-te",
    "x-amz-trailer",
    "x-amz-user-agent",
];
/// Checksums of small bodies in XML.
const OF_XML: &[&str] = &[
    "x-amz-sdk-checksum-algorithm",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];
const CHECKSUMS: &[&str] = OF_XML;
const CUSTOMER_KEY: &[&str] = &[
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key-md5",
];
/// Properties of a new object.
const NEW_OBJECT: &[&str] = &[
    "x-amz-acl",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write-acp",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-server-side-encryption",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-website-redirect-location",
    META,
];
/// Prefix of user metadata's names.
const META: &str = "x-amz-meta-";
const COPY_SOURCE: &[&str] = &[
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key-md5",
    "x-amz-source-expected-bucket-owner",
];
/// Conditions of a write.
const CONDITIONS: &[&str] = &["if-match", "if-none-match"];
/// Requested states of objects in answers. The server has none.
const OPTIONAL: &[&str] = &["x-amz-optional-object-attributes"];
/// Override of locks. The server has none.
const BYPASS: &[&str] = &["x-amz-bypass-governance-retention"];

const READ_QUERY: &[&str] = &[
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "versionId",
];

const fn of(
    name: &'static str,
    needs: Right,
    query: &'static [&'static str],
    headers: &'static [&'static [&'static str]],
) -> Operation {
    Operation { name, needs, query, headers }
}

const OPERATIONS: &[Operation] = &[
    of("AbortMultipartUpload", Right::Write, &["uploadId"], &[]),
    of(
        "CompleteMultipartUpload",
        Right::Write,
        &["uploadId"],
        &[CHECKSUMS, CUSTOMER_KEY, CONDITIONS, &["x-amz-checksum-type", "x-amz-mp-object-size"]],
    ),
    of(
        "CopyObject",
        Right::Write,
        &[],
        &[
            NEW_OBJECT,
            CUSTOMER_KEY,
            COPY_SOURCE,
            CONDITIONS,
            &["x-amz-checksum-algorithm", "x-amz-metadata-directive", "x-amz-tagging-directive"],
        ],
    ),
    of(
        "CreateBucket",
        Right::Administer,
        &[],
        &[
            OF_XML,
            &[
                "x-amz-acl",
                "x-amz-bucket-object-lock-enabled",
                "x-amz-grant-full-control",
                "x-amz-grant-read",
            ],
            &["x-amz-grant-read-acp", "x-amz-grant-write", "x-amz-grant-write-acp", "x-amz-object-ownership"],
        ],
    ),
    of(
        "CreateMultipartUpload",
        Right::Write,
        &["uploads"],
        &[NEW_OBJECT, CUSTOMER_KEY, &["x-amz-checksum-algorithm", "x-amz-checksum-type"]],
    ),
    of("DeleteBucket", Right::Administer, &[], &[]),
    of("DeleteBucketEncryption", Right::Administer, &["encryption"], &[]),
    of("DeleteBucketTagging", Right::Administer, &["tagging"], &[]),
    of("DeleteObject", Right::Write, &["versionId"], &[BYPASS, &["if-match"]]),
    of("DeleteObjectTagging", Right::Write, &["tagging", "versionId"], &[]),
    of("DeleteObjects", Right::Write, &["delete"], &[OF_XML, BYPASS]),
    of("GetBucketAccelerateConfiguration", Right::Read, &["accelerate"], &[]),
    of("GetBucketAcl", Right::Read, &["acl"], &[]),
    of("GetBucketCors", Right::Read, &["cors"], &[]),
    of("GetBucketEncryption", Right::Read, &["encryption"], &[]),
    of("GetBucketLifecycleConfiguration", Right::Read, &["lifecycle"], &[]),
    of("GetBucketLocation", Right::Read, &["location"], &[]),
    of("GetBucketLogging", Right::Read, &["logging"], &[]),
    of("GetBucketNotificationConfiguration", Right::Read, &["notification"], &[]),
    of("GetBucketOwnershipControls", Right::Read, &["ownershipControls"], &[]),
    of("GetBucketPolicy", Right::Read, &["policy"], &[]),
    of("GetBucketPolicyStatus", Right::Read, &["policyStatus"], &[]),
    of("GetBucketReplication", Right::Read, &["replication"], &[]),
    of("GetBucketRequestPayment", Right::Read, &["requestPayment"], &[]),
    of("GetBucketTagging", Right::Read, &["tagging"], &[]),
    of("GetBucketVersioning", Right::Read, &["versioning"], &[]),
    of("GetBucketWebsite", Right::Read, &["website"], &[]),
    of("GetObject", Right::Read, READ_QUERY, &[CUSTOMER_KEY, &["x-amz-checksum-mode"]]),
    of("GetObjectAcl", Right::Read, &["acl", "versionId"], &[]),
    of(
        "GetObjectAttributes",
        Right::Read,
        &["attributes", "versionId"],
        &[CUSTOMER_KEY, &["x-amz-max-parts", "x-amz-object-attributes", "x-amz-part-number-marker"]],
    ),
    of("GetObjectLockConfiguration", Right::Read, &["object-lock"], &[]),
    of("GetObjectTagging", Right::Read, &["tagging", "versionId"], &[]),
    of("GetPublicAccessBlock", Right::Read, &["publicAccessBlock"], &[]),
    of("HeadBucket", Right::Read, &[], &[]),
    of("HeadObject", Right::Read, READ_QUERY, &[CUSTOMER_KEY, &["x-amz-checksum-mode"]]),
    // All users see the buckets that they may read.
    of("ListBuckets", Right::None, &["bucket-region", "continuation-token", "max-buckets", "prefix"], &[]),
    of(
        "ListMultipartUploads",
        Right::Read,
        &["uploads", "delimiter", "encoding-type", "key-marker", "max-uploads", "prefix", "upload-id-marker"],
        &[],
    ),
    of(
        "ListObjectVersions",
        Right::Read,
        &[
            "versions",
            "delimiter",
            "encoding-type",
            "key-marker",
            "max-keys",
            "metadata",
            "prefix",
            "version-id-marker",
        ],
        &[OPTIONAL],
    ),
    of(
        "ListObjects",
        Right::Read,
        &["delimiter", "encoding-type", "marker", "max-keys", "prefix"],
        &[OPTIONAL],
    ),
    of(
        "ListObjectsV2",
        Right::Read,
        &[
            "list-type",
            // Sent by MinIO's clients, which do without the answer.
            "metadata",
            "continuation-token",
            "delimiter",
            "encoding-type",
            "fetch-owner",
            "max-keys",
            "prefix",
            "start-after",
        ],
        &[OPTIONAL],
    ),
    of("ListParts", Right::Read, &["uploadId", "max-parts", "part-number-marker"], &[CUSTOMER_KEY]),
    of("PutBucketEncryption", Right::Administer, &["encryption"], &[OF_XML]),
    of("PutBucketTagging", Right::Administer, &["tagging"], &[OF_XML]),
    of("PutObject", Right::Write, &[], &[NEW_OBJECT, CUSTOMER_KEY, CHECKSUMS, CONDITIONS]),
    of("PutObjectTagging", Right::Write, &["tagging", "versionId"], &[OF_XML]),
    of("UploadPart", Right::Write, &["partNumber", "uploadId"], &[CUSTOMER_KEY, CHECKSUMS]),
    of(
        "UploadPartCopy",
        Right::Write,
        &["partNumber", "uploadId"],
        &[CUSTOMER_KEY, COPY_SOURCE, &["x-amz-copy-source-range"]],
    ),
];

/// Finds an operation by name.
///
/// # Errors
///
/// Fails if the server does not have it.
pub fn find(name: &str) -> S3Result<&'static Operation> {
    let found = OPERATIONS.iter().find(|operation| operation.name == name);
    found.ok_or_else(|| s3_error!(NotImplemented, "{name} is not implemented"))
}

impl Operation {
    /// Refuses parameters and headers that the operation does not understand. Those that do not change its meaning
    /// pass: headers that are not S3's, and conditions and ranges of a GET that does not support them, which may answer
    /// with everything (RFC 9110 sections 13 and 14.2).
    ///
    /// # Errors
    ///
    /// Names the first that is refused.
    pub fn understands(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
        let safe = matches!(*method, Method::GET | Method::HEAD);
        let query: Vec<_> = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).collect();
        let is_signed = query.iter().any(|(name, _)| name == "X-Amz-Signature");
        for (at, (name, _)) in query.iter().enumerate() {
            // In a presigned URL, these belong to the signature or have become headers.
            if name == "x-id" || (is_signed && signed::is_of_header(name)) {
                continue;
            }
            if !self.query.contains(&&**name) {
                return Err(self.unknown("parameter", name));
            }
            if query[..at].iter().any(|(other, _)| other == name) {
                return Err(s3_error!(InvalidArgument, "the parameter {name} is given twice"));
            }
        }
        for name in headers.keys() {
            let name = name.as_str();
            if (name.starts_with("x-amz-") || (!safe && changes_a_write(name))) && !self.knows(name) {
                return Err(self.unknown("header", name));
            }
            if name.starts_with("x-amz-")
                && headers.get_all(name).iter().nth(1).is_some()
                && !name.starts_with(META)
            {
                // Several lines are one list, and few of these headers are lists.
                if name != "x-amz-object-attributes" {
                    return Err(s3_error!(InvalidArgument, "the header {name} is given twice"));
                }
            }
        }
        Ok(())
    }

    /// Returns the limits of the body, if it is XML.
    pub fn xml(&self) -> Option<Xml> {
        /// Tags of the outermost element, and a few outside the list.
        const FRAME: usize = 32;
        match self.name {
            // 10000 parts: number, ETag, and five checksums.
            "CompleteMultipartUpload" => Some(Xml { checksums: false, tags: 10_000 * 2 * 8 + FRAME }),
            // 1000 objects: key, version, ETag, time and size.
            "DeleteObjects" => Some(Xml { checksums: true, tags: 1000 * 2 * 6 + FRAME }),
            "CreateBucket" | "PutBucketEncryption" | "PutBucketTagging" | "PutObjectTagging" => {
                Some(Xml { checksums: true, tags: 1000 })
            }
            _ => None,
        }
    }

    fn knows(&self, header: &str) -> bool {
        let same = |known: &&str| *known == header || (*known == META && header.starts_with(META));
        ALWAYS.iter().any(same) || self.headers.iter().any(|group| group.iter().any(same))
    }

    fn unknown(&self, what: &str, name: &str) -> S3Error {
        s3_error!(
            NotImplemented,
            "A {what} you provided implies functionality that is not implemented: {name} of {}",
            self.name
        )
    }
}

/// Returns true for HTTP's own headers that change what a write does.
fn changes_a_write(name: &str) -> bool {
    name.starts_with("if-") || name == "content-range" || name == "range"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(operation: &str, method: Method, target: &str, names: &[&'static str]) -> Result<(), String> {
        let headers = names
            .iter()
            .map(|name| (http::HeaderName::from_static(name), http::HeaderValue::from_static("x")));
        let uri = target.parse().unwrap();
        let answer = find(operation).unwrap().understands(&method, &uri, &headers.collect());
        answer.map_err(|error| error.message().unwrap_or_default().to_string())
    }

    #[test]
    fn what_an_operation_knows_is_let_through() {
        asks("PutObject", Method::PUT, "/b/k?x-id=PutObject", &["x-amz-meta-a", "if-match", "accept"])
            .unwrap();
        asks(
            "GetObject",
            Method::GET,
            "/b/k?partNumber=1",
            &["if-none-match", "range", "x-amz-checksum-mode"],
        )
        .unwrap();
        asks("ListObjectsV2", Method::GET, "/b?list-type=2&prefix=a", &["if-none-match"]).unwrap();
        let presigned = "/b/k?X-Amz-Signature=0&X-Amz-Date=0&X-Amz-Checksum-Mode=ENABLED";
        asks("GetObject", Method::GET, presigned, &["x-amz-checksum-mode"]).unwrap();
    }

    #[test]
    fn what_it_does_not_know_is_refused_by_name() {
        let cases: &[(&str, Method, &str, &[&'static str], &str)] = &[
            (
                "PutObject",
                Method::PUT,
                "/b/k",
                &["x-amz-write-offset-bytes"],
                "x-amz-write-offset-bytes of PutObject",
            ),
            ("PutObject", Method::PUT, "/b/k?versionId=1", &[], "versionId"),
            ("PutObject", Method::PUT, "/b/k", &["if-unmodified-since"], "if-unmodified-since"),
            ("PutObject", Method::PUT, "/b/k", &["content-range"], "content-range"),
            ("PutObject", Method::PUT, "/b/k?renameObject", &[], "renameObject"),
            ("GetObject", Method::GET, "/b/k?X-Amz-Date=0", &[], "X-Amz-Date"),
            ("GetObject", Method::GET, "/b/k", &["x-amz-security-token"], "x-amz-security-token"),
            ("DeleteBucket", Method::DELETE, "/b?something-new", &[], "something-new of DeleteBucket"),
            ("DeleteObject", Method::DELETE, "/b/k", &["x-amz-if-match-size"], "x-amz-if-match-size"),
            ("GetObject", Method::GET, "/b/k?partNumber=1&partNumber=2", &[], "twice"),
        ];
        for (operation, method, target, names, expected) in cases {
            let error = asks(operation, method.clone(), target, names).unwrap_err();
            assert!(error.contains(expected), "{target} {names:?}: {error}");
        }
        assert!(find("SelectObjectContent").is_err());
    }

    #[test]
    fn names_are_in_order_and_each_is_there_once() {
        assert!(OPERATIONS.is_sorted_by(|one, next| one.name < next.name));
    }
}
