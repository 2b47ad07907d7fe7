//! The targets for what `dcs-server` parses: request heads, the chunked coding, the list of users.

use dcs_server::connection::{Chunks, Framing, HEAD_MAX, parse_head};
use dcs_server::users::Users;

/// A request's head: it is taken or refused; what is taken says one thing only about its body, and is taken again when it is
/// written down anew.
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

/// A body in chunks. The first byte says how it is cut; that changes nothing, and no more comes out than went in.
pub fn chunks(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    let whole = decode(stream, stream.len().max(1));
    assert_eq!(whole, decode(stream, usize::from(cut) + 1), "it depends on how it is cut");
    if let Some((output, taken, _)) = whole {
        assert!(output.len() <= taken && taken <= stream.len());
    }
}

/// What comes out, how many bytes are the body's, and whether that is all of it; `None` where the coding is broken.
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

/// A list of users: those who are taken are taken again, and their secrets are not printed.
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
