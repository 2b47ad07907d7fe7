//! Sends a file over TCP and says its MD5, in one command: file -> md5 -> socket.
//!
//!     cargo run --example send_file -- FILE ADDRESS PORT
//!
//! The bytes go from the page cache or the disk to the socket through the engine; this program never touches
//! them.

use dcs::{Driver, Engine, Op, Sink, Source};
use std::error::Error;
use std::fs::File;
use std::net::TcpStream;
use std::process::ExitCode;

fn send(path: &str, address: &str, port: u16) -> Result<(), Box<dyn Error>> {
    let file = File::open(path)?;
    let peer = TcpStream::connect((address, port))?;

    // One transfer at a time: this thread drives the engine itself while it waits.
    let engine = Engine::builder().driver(Driver::Caller).start()?;
    let session = engine.session()?;
    let transfer = session.transfer(Source::file(&file, ..), [Op::Md5], Sink::socket(&peer))?;
    // A failure says what went wrong, at which stage, and how much had arrived.
    let done = transfer.wait().map_err(|error| format!("{error}; {}", error.advice()))?;

    println!("{} bytes sent, md5 {}", done.bytes_out, done.digests[0]);
    println!("took {:?}, by {:?}", done.breakdown.run, done.path);
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, address, port] = &arguments[..] else {
        eprintln!("usage: send_file FILE ADDRESS PORT");
        return ExitCode::from(2);
    };
    let sent = port.parse().map_err(Into::into).and_then(|port| send(path, address, port));
    match sent {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("send_file: {error}");
            ExitCode::FAILURE
        }
    }
}
