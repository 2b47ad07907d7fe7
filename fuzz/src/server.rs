//! Targets for the parsers of `dcs-server`: request heads, the chunked coding, the list of users.

use dcs_server::connection::{Chunks, Framing, HEAD_MAX, parse_head};
use dcs_server::users::Users;

/// Parses a request's head. Checks that an accepted one is unambiguous about its body, and is accepted again when it is
/// rewritten.
pub fn head(data: &[u8]) {
    let Ok(head) = parse_head(&data[..data.len().min(HEAD_MAX)]) else { return };
    let headers = head.request.headers();
    let lengths = headers.get_all("content-length").iter().count();
    let codings = headers.get_all("transfer-encoding").iter().count();
    match head.framing {
        Framing::Chunked => assert_eq!((lengths, codings), (0, 1), "two readers may differ about it"),
        Framing::Length(length) => {
            assert_eq!(codings, 0);
            assert!(lengths == 1 || lengths == 0 && length == 0);
        }
    }
    let version = head.request.version();
    assert!(data.ends_with(b"\n"), "nothing behind the head is taken for it");
    let mut again = format!("{} {} {version:?}\r\n", head.request.method(), head.request.uri()).into_bytes();
    for (name, value) in headers {
        again.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    again.extend(b"\r\n");
    // A target without a path gets one, and is longer then.
    if again.len() <= HEAD_MAX {
        let again = parse_head(&again).expect("what was taken is taken again");
        assert_eq!((again.framing, again.close), (head.framing, head.close));
        assert_eq!(again.request.headers(), headers);
    }
}

/// Decodes a body in chunks. The first byte says how it is cut. Checks that cuts change nothing, and the output is no longer than
/// the input.
pub fn chunks(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    let whole = decode(stream, stream.len().max(1));
    assert_eq!(whole, decode(stream, usize::from(cut) + 1), "it depends on how it is cut");
    if let Some((output, taken, _)) = whole {
        assert!(output.len() <= taken && taken <= stream.len());
    }
}

/// Returns the output, the bytes that belong to the body, and true if the body is complete; `None` if the coding is broken.
fn decode(stream: &[u8], cut: usize) -> Option<(Vec<u8>, usize, bool)> {
    let mut chunks = Chunks::default();
    let (mut output, mut taken) = (Vec::new(), 0);
    for piece in stream.chunks(cut) {
        let (bytes, used) = chunks.decode(piece).ok()?;
        output.extend(bytes);
        taken += used;
        assert!(used == piece.len() || chunks.ended(), "what belongs to a body that goes on is taken");
    }
    Some((output, taken, chunks.ended()))
}

/// Parses a list of users. Checks that accepted users are accepted again, and that secrets are not printed.
pub fn users(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(users) = Users::parse(&text) else { return };
    let mut names = users.access_keys();
    names.sort_unstable();
    assert!(!names.is_empty() && names.windows(2).all(|two| two[0] != two[1]));
    assert!(names.iter().all(|name| (3..=128).contains(&name.len()) && !name.contains(char::is_whitespace)));
    // No name has a slash.
    let lines: String = names.iter().map(|name| format!("{name} a/secret/of/theirs\n")).collect();
    let again = Users::parse(&lines).expect("access keys are taken again");
    assert!(!format!("{again:?}").contains("a/secret"));
}
