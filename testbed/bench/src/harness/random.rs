//! Pseudo-random numbers, and text made of them. The same seed gives the same.

use std::io::{self, Write};

/// A small, fast generator (splitmix64): quality does not matter, sameness does.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// Lines of a web server's log in JSON.
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
