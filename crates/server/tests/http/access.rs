//! Access: signatures, rights, and what is refused rather than ignored.

use crate::rig::{Answer, Client, Rig, Setting};
use crate::signer::{ask_with, signer};
use dcs_server::access::Anonymous;
use dcs_server::users::Users;
use dcs_testkit::bytes as data;

/// A server with an administrator, a writer, a reader, and a user without rights.
fn with_users() -> Rig {
    let users = "\
        admin secret-of-admin admin\n\
        writer secret-of-writer write:inbox read:photos none:private\n\
        reader secret-of-reader read:* none:private\n\
        guest secret-of-guest none:*\n";
    let users = Users::parse(users).unwrap();
    let rig = Rig::with(Setting { users, anonymous: Anonymous::Nothing, ..Default::default() });
    let mut client = rig.client();
    for bucket in ["inbox", "photos", "private"] {
        let made = signer("admin").ask(&mut client, "PUT", &format!("/{bucket}"), &[], b"");
        assert_eq!(made.status, 200, "{}", made.text());
        let put = signer("admin").ask(&mut client, "PUT", &format!("/{bucket}/key"), &[], bucket.as_bytes());
        assert_eq!(put.status, 200, "{}", put.text());
    }
    rig
}

fn refused(answer: &Answer, status: u16, code: &str, words: &str) {
    let text = answer.text();
    assert_eq!(answer.status, status, "{text}");
    assert!(text.contains(&format!("<Code>{code}</Code>")) && text.contains(words), "{text}");
}

#[test]
fn a_signature_covers_what_changes_the_meaning() {
    let rig = with_users();
    let mut client = rig.client();
    let admin = signer("admin");
    let source = ("x-amz-copy-source", "/private/key");
    // A client with a URL for an upload can't use it to read another object.
    let url = admin.presign("PUT", "/inbox/upload", 600);
    refused(&client.ask("PUT", &url, &[source], b""), 403, "AccessDenied", "not signed: x-amz-copy-source");
    assert_eq!(client.ask("PUT", &url, &[], b"mine").status, 200);
    let begun = admin.ask(&mut client, "POST", "/inbox/parts?uploads", &[], b"").text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    let url = admin.presign("PUT", &format!("/inbox/parts?partNumber=1&uploadId={id}"), 600);
    refused(&client.ask("PUT", &url, &[source], b""), 403, "AccessDenied", "not signed: x-amz-copy-source");
    // A replayed signed head does not work either.
    for left_out in ["host", "x-amz-copy-source", "x-amz-content-sha256"] {
        let fields = admin.sign_but("PUT", "/inbox/copy", &[source], b"", &[left_out]);
        let answer = ask_with(&mut client, "PUT", "/inbox/copy", &fields, b"");
        refused(&answer, 403, "AccessDenied", &format!("not signed: {left_out}"));
    }
    let copied = admin.ask(&mut client, "PUT", "/inbox/copy", &[source], b"");
    assert_eq!(copied.status, 200, "{}", copied.text());
    let got = admin.ask(&mut client, "GET", "/inbox/upload", &[], b"");
    assert_eq!(got.body, b"mine");
}

#[test]
fn presigned_urls_end_within_a_week() {
    let rig = with_users();
    let mut client = rig.client();
    let admin = signer("admin");
    assert_eq!(client.ask("GET", &admin.presign("GET", "/inbox/key", 604_800), &[], b"").body, b"inbox");
    let long = client.ask("GET", &admin.presign("GET", "/inbox/key", 604_801), &[], b"");
    refused(&long, 400, "AuthorizationQueryParametersError", "a week at most");
    // A parameter that stands for a header means what the header means.
    let url = admin.presign("PUT", "/inbox/made?x-amz-meta-colour=blue&x-id=PutObject", 600);
    assert_eq!(client.ask("PUT", &url, &[], b"x").status, 200);
    let head = admin.ask(&mut client, "HEAD", "/inbox/made", &[], b"");
    assert_eq!(head.headers["x-amz-meta-colour"], "blue");
    let url = admin.presign("PUT", "/inbox/made?x-amz-acl=public-read", 600);
    refused(
        &client.ask("PUT", &url, &[], b"x"),
        400,
        "AccessControlListNotSupported",
        "access lists are not supported",
    );
}

#[test]
fn other_signatures_are_refused() {
    let rig = with_users();
    let mut client = rig.client();
    let version_2 =
        [("Authorization", "AWS admin:c2lnbmF0dXJl"), ("Date", "Tue, 27 Mar 2007 19:36:42 +0000")];
    refused(&client.ask("GET", "/inbox/key", &version_2, b""), 400, "InvalidRequest", "AWS4-HMAC-SHA256");
    let target = "/inbox/key?AWSAccessKeyId=admin&Expires=4102444800&Signature=c2lnbmF0dXJl";
    refused(&client.ask("GET", target, &[], b""), 400, "InvalidRequest", "AWS4-HMAC-SHA256");
    let sts = crate::signer::Signer { service: "sts", ..signer("admin") };
    let answer = sts.ask(&mut client, "GET", "/inbox/key", &[], b"");
    refused(&answer, 400, "AuthorizationHeaderMalformed", "service s3");
    let wrong = crate::signer::Signer { secret: "another-secret".into(), ..signer("admin") };
    let answer = wrong.ask(&mut client, "GET", "/inbox/key", &[], b"");
    refused(&answer, 403, "SignatureDoesNotMatch", "does not match the signature");
    let answer = signer("nobody").ask(&mut client, "GET", "/inbox/key", &[], b"");
    refused(&answer, 403, "InvalidAccessKeyId", "does not exist");
}

#[test]
fn users_have_the_rights_of_their_line() {
    let rig = with_users();
    let mut client = rig.client();
    let mut ask = |user: &str, method: &str, target: &str| {
        let fields: &[(&str, &str)] =
            if target.ends_with("copy") { &[("x-amz-copy-source", "/private/key")] } else { &[] };
        let body: &[u8] = match (method, target.contains('?')) {
            ("PUT", true) => b"<Tagging><TagSet></TagSet></Tagging>",
            ("POST", true) => b"<Delete><Object><Key>none</Key></Object></Delete>",
            _ => b"",
        };
        signer(user).ask(&mut client, method, target, fields, body).status
    };
    let cases = [
        ("writer", "GET", "/inbox/key", 200),
        ("writer", "PUT", "/inbox/new", 200),
        ("writer", "POST", "/inbox?delete", 200),
        ("writer", "DELETE", "/inbox/new", 204),
        ("writer", "PUT", "/inbox?tagging", 403),
        ("writer", "DELETE", "/inbox", 403),
        ("writer", "PUT", "/inbox2", 403),
        ("writer", "GET", "/photos/key", 200),
        ("writer", "GET", "/photos", 200),
        ("writer", "PUT", "/photos/new", 403),
        ("writer", "DELETE", "/photos/key", 403),
        ("writer", "POST", "/photos?delete", 403),
        ("writer", "GET", "/private/key", 403),
        ("writer", "HEAD", "/private/key", 403),
        ("writer", "GET", "/private", 403),
        ("writer", "GET", "/nothing", 403),
        // A copy reads its source.
        ("writer", "PUT", "/inbox/copy", 403),
        ("reader", "GET", "/inbox/key", 200),
        ("reader", "GET", "/nothing", 404),
        ("reader", "PUT", "/inbox/new", 403),
        ("reader", "POST", "/inbox/new?uploads", 403),
        ("reader", "PUT", "/inbox/key?tagging", 403),
        ("reader", "GET", "/private/key", 403),
        ("guest", "GET", "/photos/key", 403),
        ("guest", "GET", "/", 200),
        ("admin", "GET", "/private/key", 200),
        ("admin", "PUT", "/inbox/copy", 200),
        ("admin", "PUT", "/made", 200),
        ("admin", "DELETE", "/made", 204),
    ];
    for (user, method, target, status) in cases {
        assert_eq!(ask(user, method, target), status, "{user} {method} {target}");
    }
    let mut buckets = |user: &str, target: &str| -> (Vec<String>, String) {
        let text = signer(user).ask(&mut client, "GET", target, &[], b"").text();
        let names = text.split("<Name>").skip(1).map(|rest| rest.split('<').next().unwrap().into());
        let token =
            text.split("<ContinuationToken>").nth(1).map_or("", |rest| rest.split('<').next().unwrap());
        (names.collect(), token.into())
    };
    assert_eq!(buckets("writer", "/").0, ["inbox", "photos"]);
    assert_eq!(buckets("guest", "/").0, [""; 0]);
    let (names, token) = buckets("admin", "/?max-buckets=2");
    assert_eq!(names, ["inbox", "photos"]);
    assert_eq!(
        buckets("admin", &format!("/?continuation-token={token}&max-buckets=2")),
        (vec!["private".into()], String::new())
    );
}

#[test]
fn who_does_not_sign_may_do_what_the_server_says() {
    let statuses = |anonymous: Anonymous| {
        let users = Users::parse("admin secret-of-admin").unwrap();
        let rig = Rig::with(Setting { users, anonymous, ..Default::default() });
        let mut client = rig.client();
        signer("admin").ask(&mut client, "PUT", "/bucket", &[], b"");
        signer("admin").ask(&mut client, "PUT", "/bucket/key", &[], b"x");
        let asks = [
            ("GET", "/bucket/key"),
            ("GET", "/bucket"),
            ("GET", "/"),
            ("GET", "/bucket?tagging"),
            ("PUT", "/bucket/new"),
            ("DELETE", "/bucket/key"),
        ];
        asks.map(|(method, target)| client.ask(method, target, &[], b"").status)
    };
    assert_eq!(statuses(Anonymous::Nothing), [403; 6]);
    assert_eq!(statuses(Anonymous::Read), [200, 200, 403, 403, 403, 403]);
    assert_eq!(statuses(Anonymous::All), [200, 200, 200, 404, 200, 204]);
}

#[test]
fn users_are_exchanged_while_the_server_runs() {
    let users = Users::parse("admin secret-of-admin").unwrap();
    let rig =
        Rig::with(Setting { users: users.clone(), anonymous: Anonymous::Nothing, ..Default::default() });
    let mut client = rig.client();
    assert_eq!(signer("admin").ask(&mut client, "PUT", "/bucket", &[], b"").status, 200);
    users.replace(&Users::parse("other secret-of-other read:bucket").unwrap());
    assert_eq!(signer("admin").ask(&mut client, "GET", "/bucket", &[], b"").status, 403);
    assert_eq!(signer("other").ask(&mut client, "GET", "/bucket", &[], b"").status, 200);
}

#[test]
fn nothing_is_ignored_in_silence() {
    let rig = Rig::new();
    let mut client = rig.client();
    assert_eq!(client.ask("PUT", "/bucket/key", &[], b"AAAAAAAAAA").status, 200);
    let unknown = |client: &mut Client, method: &str, target: &str, field: &[(&str, &str)], words: &str| {
        let answer = client.ask(method, target, field, b"");
        refused(&answer, 501, "NotImplemented", words);
    };
    let offset = [("x-amz-write-offset-bytes", "10")];
    unknown(&mut client, "PUT", "/bucket/key", &offset, "x-amz-write-offset-bytes");
    unknown(&mut client, "PUT", "/bucket/key", &[("Content-Range", "bytes 3-5/10")], "content-range");
    unknown(&mut client, "PUT", "/bucket/key?append", &[], "append");
    unknown(&mut client, "GET", "/bucket/key?versionId=deadbeef", &[], "versions are not supported");
    unknown(&mut client, "DELETE", "/bucket/key?versionId=deadbeef", &[], "versions are not supported");
    unknown(&mut client, "DELETE", "/bucket?something-new", &[], "something-new of DeleteBucket");
    unknown(&mut client, "PUT", "/other?something-new", &[], "something-new of CreateBucket");
    unknown(&mut client, "GET", "/bucket?something-new", &[], "something-new of ListObjects");
    unknown(&mut client, "DELETE", "/bucket/key", &[("x-amz-if-match-size", "3")], "x-amz-if-match-size");
    let class = client.ask("PUT", "/bucket/key", &[("x-amz-storage-class", "GLACIER")], b"x");
    refused(&class, 400, "InvalidStorageClass", "STANDARD");
    assert_eq!(client.ask("GET", "/bucket/key?versionId=null", &[], b"").body, b"AAAAAAAAAA");
    assert_eq!(client.ask("HEAD", "/bucket/key?versionId=1", &[], b"").status, 501);
    let region = |name: &str| {
        format!(
            "<CreateBucketConfiguration><LocationConstraint>{name}</LocationConstraint></CreateBucketConfiguration>"
        )
    };
    let elsewhere = client.ask("PUT", "/elsewhere", &[], region("eu-central-1").as_bytes());
    refused(&elsewhere, 400, "InvalidLocationConstraint", "us-east-1");
    assert_eq!(client.ask("PUT", "/here", &[], region("us-east-1").as_bytes()).status, 200);
    let head = client.ask("HEAD", "/bucket/key?response-content-type=text/x", &[], b"");
    assert_eq!(head.headers["content-type"], "text/x");
    assert_eq!(client.ask("HEAD", "/other", &[], b"").status, 404, "no bucket was made");
}

#[test]
fn the_expected_owner_is_compared() {
    let rig = with_users();
    let mut client = rig.client();
    let admin = signer("admin");
    for (owner, status) in [("admin", 200), ("111122223333", 403)] {
        let expected = [("x-amz-expected-bucket-owner", owner)];
        assert_eq!(admin.ask(&mut client, "GET", "/inbox/key", &expected, b"").status, status);
        let source = [("x-amz-copy-source", "/inbox/key"), ("x-amz-source-expected-bucket-owner", owner)];
        assert_eq!(admin.ask(&mut client, "PUT", "/photos/copy", &source, b"").status, status);
    }
}

#[test]
fn signed_bodies_are_those_that_were_signed() {
    let rig = with_users();
    let mut client = rig.client();
    let (signed, sent) = (data(10_000, 1), data(10_000, 2));
    let fields = signer("writer").sign("PUT", "/inbox/key", &[], &signed);
    let answer = ask_with(&mut client, "PUT", "/inbox/key", &fields, &sent);
    refused(&answer, 400, "XAmzContentSHA256Mismatch", "SHA-256");
    assert_eq!(ask_with(&mut rig.client(), "PUT", "/inbox/key", &fields, &signed).status, 200);
}

#[test]
fn an_error_says_what_and_about_which_request() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask("PUT", "/bucket/key", &[], b"x");
    let cases = [
        ("GET", "/bucket/none%26", "NoSuchKey", "The specified key does not exist."),
        ("GET", "/nothing", "NoSuchBucket", "The specified bucket does not exist."),
        ("DELETE", "/bucket", "BucketNotEmpty", "The bucket that you tried to delete is not empty."),
        ("PUT", "/No", "InvalidBucketName", "The specified bucket is not valid."),
        ("GET", "/bucket/key?uploadId=1", "NoSuchUpload", "The specified multipart upload does not exist."),
    ];
    let mut ids = std::collections::BTreeSet::new();
    for (method, target, code, words) in cases {
        let answer = client.ask(method, target, &[], b"");
        let text = answer.text();
        let id = &answer.headers["x-amz-request-id"];
        assert!(text.contains(&format!("<Code>{code}</Code><Message>{words}")), "{text}");
        let path = target.split('?').next().unwrap();
        assert!(text.contains(&format!("<Resource>{path}</Resource><RequestId>{id}</RequestId>")), "{text}");
        assert!(ids.insert(id.clone()), "each has its own");
    }
    assert!(client.ask("GET", "/bucket/key", &[], b"").headers.contains_key("x-amz-request-id"));
    assert!(client.ask("GET", "/_dcs/health", &[], b"").headers.contains_key("x-amz-request-id"));
}
