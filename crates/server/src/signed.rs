//! Checks, before s3s verifies it, that a request's signature covers everything that changes what the request means
//! (AWS Signature Version 4).
//!
//! s3s verifies that a signature matches what it covers; this module checks that it covers enough. A presigned URL is
//! handed to others: a header that they add must not turn their upload into a copy of somebody else's object.

use crate::connection::range::tidy as tidy_range;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request};
use s3s::{S3Result, s3_error};

/// Longest life of a presigned URL, in seconds: a week, as in S3.
const EXPIRES_MAX: u64 = 7 * 24 * 3600;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Query parameters of a presigned URL that belong to its signature.
const QUERY: [&str; 6] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];

/// Parameters of a version 2 signature in the query; a header may have one too.
const VERSION_2_QUERY: [&str; 2] = ["AWSAccessKeyId", "Signature"];

/// Checks a request before its signature is verified. Parameters of a presigned URL that stand for headers become
/// headers. `secure`: nobody on the way can read the request.
///
/// # Errors
///
/// Fails if the signature is of an unsupported kind or does not cover what it must, or the request carries a key over
/// an insecure connection.
pub fn check(request: &mut Request<()>, secure: bool) -> S3Result<()> {
    if is_form(request) {
        return Err(s3_error!(NotImplemented, "form uploads (POST) are not supported"));
    }
    let query: Vec<(String, String)> =
        form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).into_owned().collect();
    let has = |name: &str| query.iter().any(|(other, _)| other == name);
    if VERSION_2_QUERY.iter().any(|name| has(name)) {
        return Err(other_version());
    }
    let headers = request.headers();
    let is_presigned = has("X-Amz-Signature");
    let signed = match (headers.contains_key(AUTHORIZATION), is_presigned) {
        (true, true) => {
            return Err(s3_error!(
                InvalidArgument,
                "a request must be signed in its header or in its query, not both"
            ));
        }
        (true, false) => Some(signed_in_header(headers)?),
        (false, true) => Some(signed_in_query(&query)?),
        (false, false) => None,
    };
    if let Some(signed) = &signed {
        covers(signed, headers)?;
    }
    if is_presigned {
        hoist(&query, request.headers_mut())?;
    }
    // A header that the signature covers must not change.
    let is_fixed = signed.is_some_and(|signed| signed.iter().any(|name| name == "range"));
    if matches!(*request.method(), Method::GET | Method::HEAD) && !is_fixed {
        tidy_range(request.headers_mut());
    }
    if !secure && request.headers().keys().any(is_customer_key) {
        return Err(s3_error!(
            InvalidRequest,
            "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure connection."
        ));
    }
    Ok(())
}

/// Returns true for a browser's form. s3s would read all of it before it checks who sends it.
fn is_form(request: &Request<()>) -> bool {
    let form = "multipart/form-data";
    let value =
        request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes).trim_ascii_start();
    let begins = value.get(..form.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(form.as_bytes()));
    begins && request.method() == Method::POST
}

fn is_customer_key(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-amz-") && name.as_str().ends_with("server-side-encryption-customer-key")
}

fn other_version() -> s3s::S3Error {
    s3_error!(
        InvalidRequest,
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
    )
}

/// Returns the names in `Authorization: AWS4-HMAC-SHA256 Credential=.., SignedHeaders=.., Signature=..`, with these
/// fields in this order, the only one that s3s takes.
fn signed_in_header(headers: &HeaderMap) -> S3Result<Vec<String>> {
    let malformed = || {
        s3_error!(AuthorizationHeaderMalformed, "the Authorization header is not that of Signature Version 4")
    };
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return Err(malformed()) };
    let text = line.to_str().map_err(|_| malformed())?;
    let (algorithm, fields) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
    if algorithm != ALGORITHM {
        return Err(other_version());
    }
    let names = ["Credential=", "SignedHeaders=", "Signature="];
    // To s3s, a name with a trailing blank is another name, and is not found.
    let fields: Vec<&str> = fields.split(',').map(str::trim_ascii_start).collect();
    let [credential, signed, _] = fields[..] else { return Err(malformed()) };
    if !names.iter().zip(&fields).all(|(name, field)| field.starts_with(name)) {
        return Err(malformed());
    }
    for_this_service(&credential[names[0].len()..])?;
    Ok(signed[names[1].len()..].split(';').map(String::from).collect())
}

fn signed_in_query(query: &[(String, String)]) -> S3Result<Vec<String>> {
    let wrong = |why: String| s3_error!(AuthorizationQueryParametersError, "{why}");
    let once = |name: &str| {
        let mut found = query.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str());
        match (found.next(), found.next()) {
            (Some(value), None) => Ok(value),
            _ => Err(wrong(format!("a presigned URL must have {name} once"))),
        }
    };
    for name in QUERY {
        once(name)?;
    }
    if once("X-Amz-Algorithm")? != ALGORITHM {
        return Err(other_version());
    }
    let expires =
        once("X-Amz-Expires")?.parse::<u64>().ok().filter(|seconds| (1..=EXPIRES_MAX).contains(seconds));
    if expires.is_none() {
        return Err(wrong(format!("X-Amz-Expires must be 1 to {EXPIRES_MAX} seconds, a week at most")));
    }
    for_this_service(once("X-Amz-Credential")?)?;
    Ok(once("X-Amz-SignedHeaders")?.split(';').map(String::from).collect())
}

/// Refuses a signature that the same keys made for another service.
fn for_this_service(credential: &str) -> S3Result<()> {
    match credential.rsplit('/').nth(1) {
        Some("s3") => Ok(()),
        _ => Err(s3_error!(AuthorizationHeaderMalformed, "the credential's scope is not the service s3")),
    }
}

/// Checks that the signed headers are all that change the meaning. Header names are in lower case here, as s3s looks
/// them up.
fn covers(signed: &[String], headers: &HeaderMap) -> S3Result<()> {
    let matters = |name: &HeaderName| *name == http::header::HOST || name.as_str().starts_with("x-amz-");
    let mut missing = Vec::new();
    for (name, value) in headers.iter().filter(|(name, _)| matters(name)) {
        // s3s leaves values that are not text out of the signature.
        if std::str::from_utf8(value.as_bytes()).is_err() {
            return Err(s3_error!(InvalidRequest, "the header {name} is not UTF-8"));
        }
        if !signed.iter().any(|other| other == name.as_str()) && !missing.contains(&name.as_str()) {
            missing.push(name.as_str());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(s3_error!(
        AccessDenied,
        "There were headers present in the request which were not signed: {}",
        missing.join(", ")
    ))
}

/// Returns true if a parameter of a presigned URL belongs to its signature, or stands for a header.
pub fn is_of_header(name: &str) -> bool {
    name.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case("x-amz-"))
}

/// Turns query parameters into headers: SDKs put headers of a presigned request into its query, where the signature
/// covers them.
fn hoist(query: &[(String, String)], headers: &mut HeaderMap) -> S3Result<()> {
    let stands = |name: &str| is_of_header(name) && !QUERY.contains(&name);
    for (name, value) in query.iter().filter(|(name, _)| stands(name)) {
        let wrong = || s3_error!(InvalidArgument, "the parameter {name} can't be a header");
        let header = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
        let value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        if headers.insert(header, value).is_some() {
            return Err(s3_error!(InvalidArgument, "{name} is in the query twice, or also in a header"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap()
    }

    fn refused(method: &str, target: &str, fields: &[(&str, &str)]) -> String {
        let error = check(&mut request(method, target, fields), true).expect_err(target);
        format!("{}: {}", error.code().as_str(), error.message().unwrap_or_default())
    }

    fn authorization(signed: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential=me/20260101/r/s3/aws4_request, SignedHeaders={signed},Signature=00"
        )
    }

    fn presigned(more: &str) -> String {
        format!(
            "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=me%2F20260101%2Fr%2Fs3%2Faws4_request&X-Amz-Date=20260101T000000Z&X-Amz-Signature=00&{more}"
        )
    }

    #[test]
    fn a_header_s_signature_covers_what_matters() {
        let base = [("host", "h"), ("x-amz-date", "d"), ("user-agent", "u")];
        let with = |signed: &str, more: &[(&str, &str)]| {
            let authorization = authorization(signed);
            let mut fields = base.to_vec();
            fields.push(("authorization", &authorization));
            fields.extend(more);
            check(&mut request("PUT", "/b/k", &fields), true)
                .map_err(|error| error.message().unwrap_or_default().to_string())
        };
        assert_eq!(with("host;x-amz-date", &[]), Ok(()));
        assert!(with("x-amz-date", &[]).unwrap_err().ends_with(": host"));
        assert!(with("Host;x-amz-date", &[]).unwrap_err().ends_with(": host"));
        let copy = ("X-Amz-Copy-Source", "/secret/one");
        assert!(with("host;x-amz-date", &[copy]).unwrap_err().ends_with(": x-amz-copy-source"));
        assert_eq!(with("host;x-amz-copy-source;x-amz-date", &[copy]), Ok(()));
        for signed in ["host;x-amz-date;x-amz-copy-source ", "host;x-amz-date; x-amz-copy-source"] {
            assert!(with(signed, &[copy]).unwrap_err().ends_with(": x-amz-copy-source"), "{signed}");
        }
    }

    #[test]
    fn an_authorization_is_what_s3s_takes_it_for() {
        let two = "AWS4-HMAC-SHA256 Credential=me/1/r/s3/aws4_request,SignedHeaders=host;x-amz-acl,SignedHeaders=host,Signature=00";
        let swapped = "AWS4-HMAC-SHA256 SignedHeaders=host,Credential=me/1/r/s3/aws4_request,Signature=00";
        let other = authorization("host").replace("/s3/", "/sts/");
        for bad in [two, swapped, &other, "AWS4-HMAC-SHA256"] {
            assert!(
                refused("GET", "/", &[("authorization", bad)]).starts_with("AuthorizationHeaderMalformed"),
                "{bad}"
            );
        }
        for old in ["AWS me:c2lnbmF0dXJl", "Basic bWU6bWU=", ""] {
            assert!(refused("GET", "/", &[("authorization", old)]).contains("use AWS4-HMAC-SHA256"), "{old}");
        }
        for old in ["/b/k?AWSAccessKeyId=me&Expires=1&Signature=x", "/b/k?Signature=x"] {
            assert!(refused("GET", old, &[]).contains("use AWS4-HMAC-SHA256"), "{old}");
        }
    }

    #[test]
    fn a_presigned_url_lives_a_week_and_covers_what_matters() {
        let host = [("host", "h")];
        let good = presigned("X-Amz-Expires=604800&X-Amz-SignedHeaders=host");
        assert!(check(&mut request("PUT", &good, &host), true).is_ok());
        let copy = [("host", "h"), ("x-amz-copy-source", "/secret/one")];
        assert!(refused("PUT", &good, &copy).ends_with("not signed: x-amz-copy-source"));
        for more in [
            "X-Amz-Expires=604801&X-Amz-SignedHeaders=host",
            "X-Amz-Expires=0&X-Amz-SignedHeaders=host",
            "X-Amz-Expires=-1&X-Amz-SignedHeaders=host",
            "X-Amz-Expires=9",
            "X-Amz-Expires=9&X-Amz-SignedHeaders=host&X-Amz-SignedHeaders=host",
        ] {
            assert!(
                refused("PUT", &presigned(more), &host).starts_with("AuthorizationQueryParametersError"),
                "{more}"
            );
        }
        let both = [("host", "h"), ("authorization", &authorization("host"))];
        assert!(refused("PUT", &good, &both).starts_with("InvalidArgument"));
    }

    #[test]
    fn parameters_of_a_presigned_url_become_headers() {
        let target =
            presigned("X-Amz-Expires=9&X-Amz-SignedHeaders=host&x-amz-acl=public-read&x-id=PutObject");
        let mut asked = request("PUT", &target, &[("host", "h")]);
        check(&mut asked, true).unwrap();
        assert_eq!(asked.headers()["x-amz-acl"], "public-read");
        assert_eq!(asked.headers().len(), 2);
        let twice = format!("{target}&X-Amz-Acl=private");
        assert!(refused("PUT", &twice, &[("host", "h")]).starts_with("InvalidArgument"));
    }

    #[test]
    fn forms_and_keys_in_the_open_are_refused() {
        let form = [("content-type", "Multipart/Form-Data; boundary=x")];
        assert!(refused("POST", "/b", &form).starts_with("NotImplemented"));
        for name in [
            "x-amz-server-side-encryption-customer-key",
            "x-amz-copy-source-server-side-encryption-customer-key",
        ] {
            let mut asked = request("PUT", "/b/k", &[(name, "a2V5")]);
            assert!(check(&mut asked, true).is_ok());
            assert_eq!(check(&mut asked, false).unwrap_err().code().as_str(), "InvalidRequest");
        }
    }
}
