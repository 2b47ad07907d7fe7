//! The Range header: one range of bytes, otherwise everything.

use http::header::{HeaderMap, HeaderValue, RANGE};

/// Rewrites the header to one range in the form that s3s takes. Removes it if it is not a range of bytes, or is several
/// (RFC 9110 sections 14.1.2 and 14.2).
pub fn tidy(headers: &mut HeaderMap) {
    let mut values = headers.get_all(RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        headers.remove(RANGE);
        return;
    };
    let one = value.to_str().ok().and_then(one).and_then(|range| HeaderValue::try_from(range).ok());
    match one {
        Some(range) => drop(headers.insert(RANGE, range)),
        None => drop(headers.remove(RANGE)),
    }
}

/// Returns the one range, if there is one. Ends past any object are all the same.
fn one(text: &str) -> Option<String> {
    let (unit, set) = text.split_once('=')?;
    // Elements of a list may be empty (RFC 9110 section 5.6.1).
    let mut specs = set.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty());
    let (Some(spec), None) = (specs.next(), specs.next()) else { return None };
    let (first, last) = spec.split_once('-').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    match (first, last) {
        ("", length) => Some(format!("bytes=-{}", number(length)?)),
        (first, "") => Some(format!("bytes={}-", number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| format!("bytes={first}-{last}"))
        }
    }
}

/// Parses a number of digits only. Returns the greatest that s3s takes for a larger one.
fn number(digits: &str) -> Option<i64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_found_and_anything_else_is_none() {
        let cases = [
            ("bytes=0-499", Some("bytes=0-499")),
            ("Bytes=0-499", Some("bytes=0-499")),
            ("bytes= ,007- , ", Some("bytes=7-")),
            ("bytes=-0", Some("bytes=-0")),
            ("bytes=5-99999999999999999999", Some("bytes=5-9223372036854775807")),
            ("bytes=99999999999999999999-", Some("bytes=9223372036854775807-")),
            ("bytes=0-1,3-4", None),
            ("bytes=5-2", None),
            ("bytes=", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("bytes=1 - 2", None),
            ("bytes:0-1", None),
            ("items=0-1", None),
            ("0-1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(one(text).as_deref(), expected, "{text}");
        }
        let mut twice = HeaderMap::new();
        twice.append(RANGE, HeaderValue::from_static("bytes=0-1"));
        twice.append(RANGE, HeaderValue::from_static("bytes=0-1"));
        tidy(&mut twice);
        assert!(twice.is_empty());
    }
}
