//! Text made of random numbers. The same seed gives the same text.

pub use dcs_testkit::Random;
use std::io::{self, Write};

/// Writes lines of a web server's log in JSON.
pub fn text(out: &mut impl Write, size: u64, random: &mut Random) -> io::Result<()> {
    const PATHS: [&str; 6] =
        ["/", "/index.html", "/api/v1/objects", "/login", "/static/app.js", "/search?q="];
    const AGENTS: [&str; 3] = ["curl/8.5.0", "Mozilla/5.0 (X11; Linux x86_64)", "python-requests/2.32"];
    let (mut left, mut time) = (size as usize, 1_700_000_000_000u64);
    while left > 0 {
        let dice = random.next();
        time += dice & 0xff;
        let line = format!(
            "{{\"time\":{time},\"client\":\"10.{}.{}.{}\",\"path\":\"{}{}\",\"status\":{},\"bytes\":{},\"agent\":\"{}\"}}\n",
            dice >> 8 & 3,
            dice >> 10 & 255,
            dice >> 18 & 255,
            PATHS[(dice >> 26) as usize % PATHS.len()],
            dice >> 32 & 1023,
            if dice >> 42 & 15 == 0 { 404 } else { 200 },
            dice >> 46 & 0xffff,
            AGENTS[(dice >> 62) as usize % AGENTS.len()],
        );
        let piece = &line.as_bytes()[..line.len().min(left)];
        out.write_all(piece)?;
        left -= piece.len();
    }
    out.flush()
}
