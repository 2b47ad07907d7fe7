//! Completes error answers: adds S3's text where s3s leaves it out, the resource, and the request's id.

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use s3s::Body;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The header with a request's id, in every answer.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// Makes a request's id: 16 digits, in its answer and in the log.
pub fn request_id() -> String {
    /// Starts at a random number, so that a process does not repeat the ids of the one before.
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let mut seed = [0; 8];
        // Without randomness, ids begin at 0 again.
        let _ = getrandom::fill(&mut seed);
        AtomicU64::new(u64::from_le_bytes(seed))
    });
    format!("{:016X}", NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Completes an answer of any kind. Returns the code if it is an error.
pub fn complete(response: &mut Response<Body>, resource: &str, id: &str) -> Option<String> {
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    if response.status().as_u16() < 300 {
        return None;
    }
    let body = response.body().bytes()?;
    let (body, code) = completed(std::str::from_utf8(&body).ok()?, resource, id)?;
    // The connection sets the length.
    response.headers_mut().remove(CONTENT_LENGTH);
    *response.body_mut() = Body::from(Bytes::from(body));
    Some(code)
}

/// Returns s3s's XML error with a message, the resource and the id, and its code. `None` if the body is not such an
/// error.
fn completed(body: &str, resource: &str, id: &str) -> Option<(String, String)> {
    let rest = body.split_once("<Code>")?.1;
    let code = rest.split_once("</Code>")?.0.to_string();
    let mut body = body.to_string();
    if !body.contains("<Message>") {
        let end = body.find("</Code>")? + "</Code>".len();
        body.insert_str(end, &format!("<Message>{}</Message>", text(&code)));
    }
    let end = body.rfind("</Error>")?;
    let resource = escaped(resource);
    body.insert_str(end, &format!("<Resource>{resource}</Resource><RequestId>{id}</RequestId>"));
    Some((body, code))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns S3's text for a code (Amazon S3 API Reference, "Error responses").
fn text(code: &str) -> &'static str {
    match code {
        "AccessDenied" => "Access Denied",
        "BadDigest" => {
            "The Content-MD5 or checksum value that you specified did not match what the server received."
        }
        "BucketAlreadyExists" => {
            "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Specify a different name and try again."
        }
        "BucketAlreadyOwnedByYou" => {
            "Your previous request to create the named bucket succeeded and you already own it."
        }
        "BucketNotEmpty" => "The bucket that you tried to delete is not empty.",
        "EntityTooLarge" => "Your proposed upload exceeds the maximum allowed object size.",
        "IncompleteBody" => {
            "You did not provide the number of bytes specified by the Content-Length HTTP header."
        }
        "InternalError" => "An internal error occurred. Try again.",
        "InvalidAccessKeyId" => "The AWS access key ID that you provided does not exist in our records.",
        "InvalidArgument" => "Invalid Argument",
        "InvalidBucketName" => "The specified bucket is not valid.",
        "InvalidDigest" => "The Content-MD5 or checksum value that you specified is not valid.",
        "InvalidPart" => {
            "One or more of the specified parts could not be found. The part might not have been uploaded, or the specified entity tag might not have matched the part's entity tag."
        }
        "InvalidPartOrder" => {
            "The list of parts was not in ascending order. Parts list must be specified in order by part number."
        }
        "InvalidRange" => "The requested range is not satisfiable",
        "InvalidURI" => "The specified URI couldn't be parsed.",
        "KeyTooLongError" => "Your key is too long.",
        "MalformedPOSTRequest" => "The body of your POST request is not well-formed multipart/form-data.",
        "MalformedXML" => {
            "The XML that you provided was not well formed or did not validate against our published schema."
        }
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "MissingContentLength" => "You must provide the Content-Length HTTP header.",
        "NoSuchBucket" => "The specified bucket does not exist.",
        "NoSuchKey" => "The specified key does not exist.",
        "NoSuchTagSet" => "There is no tag set associated with the bucket.",
        "NoSuchUpload" => {
            "The specified multipart upload does not exist. The upload ID might not be valid, or the multipart upload might have been aborted or completed."
        }
        "NotImplemented" => {
            "A header or query parameter that you provided implies functionality that is not implemented."
        }
        "PreconditionFailed" => "At least one of the preconditions that you specified did not hold.",
        "RequestTimeout" => {
            "Your socket connection to the server was not read from or written to within the timeout period."
        }
        "ServerSideEncryptionConfigurationNotFoundError" => {
            "The server-side encryption configuration was not found."
        }
        "SignatureDoesNotMatch" => {
            "The request signature that the server calculated does not match the signature that you provided. Check your secret access key and signing method."
        }
        "SlowDown" => "Please reduce your request rate.",
        _ => "The request was refused.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_completed() {
        let (body, code) =
            completed("<?xml?><Error><Code>NoSuchKey</Code></Error>", "/b/a&<b>", "0F").unwrap();
        assert_eq!(code, "NoSuchKey");
        let expected = "<?xml?><Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>\
            <Resource>/b/a&amp;&lt;b&gt;</Resource><RequestId>0F</RequestId></Error>";
        assert_eq!(body, expected);
        let own = "<Error><Code>X</Code><Message>why</Message></Error>";
        let (body, _) = completed(own, "/", "0F").unwrap();
        assert!(body.contains("<Message>why</Message><Resource>") && body.matches("<Message>").count() == 1);
        assert!(completed("no XML", "/", "0F").is_none());
    }

    #[test]
    fn ids_differ() {
        let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| request_id()).collect();
        assert!(ids.len() == 1000 && ids.iter().all(|id| id.len() == 16));
    }
}
