//! A Python process that answers one question after the other, because it takes long to start. Its program defines a
//! function and calls `serve` with it: byte strings come in, and byte strings go out.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Beginning of every program.
const SERVE: &str = r#"
import sys
def serve(answer):
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while head := stdin.readline():
        parts = answer(*[stdin.read(int(length)) for length in head.split()])
        stdout.write(b" ".join(str(len(part)).encode() for part in parts) + b"\n" + b"".join(parts))
        stdout.flush()
"#;

/// Process of the oracle. It ends with this one, when its questions end.
pub struct Oracle {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    pub fn new(program: &str) -> Oracle {
        let mut command = Command::new("python3");
        command.args(["-c", &[SERVE, program].concat()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is needed for this test");
        let answers = BufReader::new(child.stdout.take().unwrap());
        Oracle { child, answers }
    }

    pub fn ask(&mut self, parts: &[&[u8]]) -> Vec<Vec<u8>> {
        let stdin = self.child.stdin.as_mut().unwrap();
        let lengths: Vec<_> = parts.iter().map(|part| part.len().to_string()).collect();
        stdin.write_all(&[lengths.join(" ").as_bytes(), b"\n", &parts.concat()].concat()).unwrap();
        stdin.flush().unwrap();
        let mut head = String::new();
        self.answers.read_line(&mut head).unwrap();
        assert!(!head.is_empty(), "Python failed");
        let part = |length: &str| {
            let mut bytes = vec![0; length.parse().unwrap()];
            self.answers.read_exact(&mut bytes).unwrap();
            bytes
        };
        head.split_whitespace().map(part).collect()
    }
}
