//! `--memory`: peak resident memory of a server while many clients move objects slowly.

use super::contender::Contender;
use super::measure::Scenario;
use super::process::{Server, peak_rss};
use super::protocol::{Pace, Request};
use super::request::Writer;
use crate::harness::contender::Named;
use serde::Serialize;
use std::io;

/// Bytes of an object.
pub const SIZE: u64 = 1 << 20;
/// Seconds that a client takes for an object.
const OBJECT_S: f64 = 4.0;

/// Memory of one server.
#[derive(Clone, Debug, Serialize)]
pub struct Peak {
    pub event: &'static str,
    pub contender: &'static str,
    pub version: String,
    pub clients: usize,
    pub size: u64,
    pub object_s: f64,
    /// Peak RSS of the process and its children, without the page cache.
    pub peak_rss_mib: f64,
    pub requests: u64,
    pub gib_per_s: f64,
}

/// Returns true for contenders that can do both jobs, and differ in memory.
pub fn can(contender: Contender) -> bool {
    contender.is_s3() && !matches!(contender, Contender::DcsNone | Contender::DcsVerify)
}

pub fn run(scenario: &Scenario<'_>, contender: Contender) -> io::Result<Peak> {
    let folder = tempfile::Builder::new().prefix("memory.").tempdir_in(&scenario.folder)?;
    let server = Server::start(contender, scenario.programs, folder.path(), &scenario.setting.server_cores)?;
    scenario.fill(contender, &server, folder.path())?;
    let writer = Writer::new(&server.address, contender)?;
    let request = |client: usize| -> Request {
        match client % 2 {
            0 => scenario.put_request(&writer, client),
            _ => scenario.get_request(contender, &writer, client % scenario.objects.count()),
        }
    };
    let requests = (0..scenario.clients).map(request).collect();
    let measured = scenario.load(&server, requests, Pace::Slow { object_s: OBJECT_S })?;
    let peak = peak_rss(server.pid())?;
    Ok(Peak {
        event: "memory",
        contender: contender.name(),
        version: scenario.programs.version(contender).to_string(),
        clients: scenario.clients,
        size: scenario.objects.pool.size,
        object_s: OBJECT_S,
        peak_rss_mib: peak as f64 / f64::from(1 << 20),
        requests: measured.requests,
        gib_per_s: measured.marks.bytes as f64 / f64::from(1 << 30) / measured.marks.wall_s,
    })
}
