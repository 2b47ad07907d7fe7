//! The control path of library and engine: transfers of 64 bytes, file -> crc32c -> socket, between handles,
//! on an engine that its caller drives; `control NUMBER prepared` prepares them, `control NUMBER gathered` has 64
//! at once, with md5 in place of crc32c, whose lanes they share. Made to be counted by callgrind: see
//! `tests/instructions.rs`.

use dcs::{Driver, Engine, Handle, Op, Prepared, Session, Sink, Source};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

const BYTES: [u8; 64] = [7; 64];

/// Transfers before the counting: by then every lazy thing is done.
const WARM_UP: usize = 64;

/// Transfers at once, of which the far end takes the bytes then.
const AT_ONCE: usize = 64;

fn one(session: &Session, from: &Handle, to: &Handle) -> bool {
    let source = Source::handle(from, ..BYTES.len() as u64);
    let transfer = session.transfer(source, [Op::Crc32c], Sink::handle(to, 0)).expect("it can be submitted");
    let done = transfer.wait().expect("nothing fails here");
    done.bytes_out == BYTES.len() as u64 && done.digests.len() == 1
}

/// Runs the transfers that are counted. Returns true if all succeed.
#[inline(never)]
fn counted(session: &Session, from: &Handle, to: &Handle, transfers: usize) -> bool {
    (0..transfers).all(|_| one(session, from, to))
}

/// The same, prepared once.
#[inline(never)]
fn counted_prepared(prepared: &mut Prepared, transfers: usize) -> bool {
    let length = BYTES.len() as u64;
    (0..transfers).all(|_| {
        prepared.submit(0, 0, length).expect("it can be submitted");
        let done = prepared.wait().expect("nothing fails here");
        done.bytes_out == length && done.digests.len() == 1
    })
}

/// Transfers with md5, all of them at once.
#[inline(never)]
fn counted_gathered(session: &Session, from: &Handle, to: &Handle, transfers: usize) -> bool {
    let source = || Source::handle(from, ..BYTES.len() as u64);
    let submit = |_| session.transfer(source(), [Op::Md5], Sink::handle(to, 0)).expect("it can be submitted");
    let under_way: Vec<_> = (0..transfers).map(submit).collect();
    under_way.into_iter().all(|transfer| {
        let done = transfer.wait().expect("nothing fails here");
        done.bytes_out == BYTES.len() as u64 && done.digests.len() == 1
    })
}

fn main() -> ExitCode {
    let transfers = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(1);
    let path = std::env::temp_dir().join(format!("dcs-control-{}", std::process::id()));
    File::create_new(&path).expect("a file can be made").write_all(&BYTES).expect("it can be written");
    let file = File::open(&path).expect("it can be read");
    std::fs::remove_file(&path).expect("it is ours");
    let (near, mut far) = UnixStream::pair().expect("sockets can be made");
    near.set_nonblocking(true).expect("it can be set");
    let engine = Engine::builder().driver(Driver::Caller).start().expect("an engine starts");
    let session = engine.session().expect("it has a session");
    let from = Handle::new(&file).expect("a file is an endpoint");
    let to = Handle::new(&near).expect("a socket is an endpoint");
    let mut arrived = vec![0; BYTES.len() * AT_ONCE];
    let mut is_right = |number: usize, sent: bool| {
        let bytes = &mut arrived[..number * BYTES.len()];
        far.read_exact(bytes).expect("all arrive");
        sent && bytes.iter().all(|byte| *byte == BYTES[0])
    };
    let how = std::env::args().nth(2);
    let mut prepared = session
        .prepare(Source::handle(&from, ..), [Op::Crc32c], Sink::handle(&to, 0))
        .expect("it can be prepared");
    let warm = (0..WARM_UP).all(|_| one(&session, &from, &to));
    let mut all = is_right(WARM_UP, warm);
    let mut left = transfers;
    while left > 0 {
        let number = left.min(AT_ONCE);
        let sent = match how.as_deref() {
            Some("prepared") => counted_prepared(&mut prepared, number),
            Some("gathered") => counted_gathered(&session, &from, &to, number),
            _ => counted(&session, &from, &to, number),
        };
        all &= is_right(number, sent);
        left -= number;
    }
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
