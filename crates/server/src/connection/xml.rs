//! Names in answers. XML 1.0 has no control characters, but objects' names may have any, so references stand for them,
//! as in S3's own answers. Most parsers refuse these; clients that want to read such names use `encoding-type=url`.

use http::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use s3s::Body;

/// Replaces characters that XML text cannot have, or that a parser changes, by references (XML 1.0 sections 2.2, 2.11).
pub fn escape_characters(response: &mut Response<Body>) {
    if response.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != "application/xml") {
        return;
    }
    let referred = response.body().bytes().and_then(|body| referred(std::str::from_utf8(&body).ok()?));
    if let Some(body) = referred {
        // The connection sets the length.
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(bytes::Bytes::from(body));
    }
}

/// Returns the text with references, `None` if it needs none.
fn referred(text: &str) -> Option<String> {
    let is_none = |c: char| (c < ' ' && c != '\t' && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}');
    let mut rest = text;
    let mut referred = String::new();
    while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_none(*c)) {
        referred += &rest[..at];
        referred += &format!("&#x{:X};", u32::from(c));
        rest = &rest[at + c.len_utf8()..];
    }
    (rest.len() < text.len()).then(|| referred + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stand_for_what_xml_has_not() {
        assert_eq!(referred("<Key>a\tb\nc ü \u{7f}</Key>"), None);
        assert_eq!(
            referred("\u{1}<Key>a\rb\u{ffff}</Key>\u{1f}").as_deref(),
            Some("&#x1;<Key>a&#xD;b&#xFFFF;</Key>&#x1F;")
        );
    }
}
