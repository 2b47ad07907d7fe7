//! One run of one contender: its server, its objects, the load, the check of its contents.

use super::contender::Contender;
use super::http::Peer;
use super::objects::{self, Objects};
use super::options::Job;
use super::process::Server;
use super::programs::Programs;
use super::protocol::{Load, Measured, Pace, Request};
use super::request::{BUCKET, Writer};
use crate::harness::contender::Named;
use crate::harness::load::Setting;
use crate::harness::pool::Pool;
use crate::harness::process::Helper;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The hidden subcommand of the clients.
pub const LOAD: &str = "bench-load";
/// Objects of which all bytes are checked, in the first run and in each later one.
const CHECKED: [usize; 2] = [4, 1];

/// Set-up that is the same for all contenders and repetitions.
pub struct Scenario<'a> {
    pub job: Job,
    pub objects: &'a Objects,
    pub clients: usize,
    pub setting: Setting,
    pub requests: Option<u64>,
    pub programs: &'a Programs,
    /// Folder with a subfolder for each contender.
    pub folder: PathBuf,
}

impl Scenario<'_> {
    /// Runs a contender once.
    pub fn run(&self, contender: Contender, first: bool) -> io::Result<Measured> {
        let checked = CHECKED[usize::from(!first)];
        match self.job {
            Job::Get => self.get(contender, checked),
            Job::Put => self.put(contender, checked),
        }
    }

    /// Measures GET. The folder keeps its objects for the next repetition.
    fn get(&self, contender: Contender, checked: usize) -> io::Result<Measured> {
        let folder = self.folder.join(contender.name());
        let is_filled = folder.exists();
        let server = Server::start(contender, self.programs, &folder, &self.setting.server_cores)?;
        let writer = Writer::new(&server.address, contender)?;
        if !is_filled {
            self.fill(contender, &server, &folder)?;
        }
        let count = self.objects.count();
        self.check(contender, &server, (0..checked.min(count)).map(|number| (number, number)))?;
        if self.setting.cold {
            objects::drop_from_page_cache(&folder)?;
        }
        let requests: Vec<_> =
            (0..count).map(|number| self.get_request(contender, &writer, number)).collect();
        self.load(&server, requests, Pace::Full)
    }

    /// Measures PUT. Each client overwrites its own object, in a folder for this run.
    fn put(&self, contender: Contender, checked: usize) -> io::Result<Measured> {
        let folder = tempfile::Builder::new().prefix("put.").tempdir_in(&self.folder)?;
        let server = Server::start(contender, self.programs, folder.path(), &self.setting.server_cores)?;
        let writer = Writer::new(&server.address, contender)?;
        let requests = (0..self.clients).map(|client| self.put_request(&writer, client)).collect();
        let measured = self.load(&server, requests, Pace::Full)?;
        let count = self.objects.count();
        let done = (0..self.clients.min(checked)).map(|client| (client, client % count));
        // With few requests, only those objects that were put at all.
        let done = done.take(self.requests.map_or(usize::MAX, |requests| requests as usize));
        self.check(contender, &server, done)?;
        drop(server);
        folder.close()?;
        // Writes back this server's data, so that it does not disturb the next one.
        nix::unistd::sync();
        Ok(measured)
    }

    pub fn get_request(&self, contender: Contender, writer: &Writer, number: usize) -> Request {
        let etag = contender.is_s3().then(|| self.objects.etag(number).to_string());
        Request { head: writer.get(&objects::key(number)), put: None, etag }
    }

    pub fn put_request(&self, writer: &Writer, client: usize) -> Request {
        let number = client % self.objects.count();
        Request {
            head: writer.put(&objects::key(client), self.objects.pool.size),
            put: Some(Pool::offset(number)),
            etag: Some(self.objects.etag(number).to_string()),
        }
    }

    /// Puts all objects into the server.
    pub fn fill(&self, contender: Contender, server: &Server, folder: &Path) -> io::Result<()> {
        let writer = Writer::new(&server.address, contender)?;
        let mut peer = Peer::new(&server.address);
        for number in 0..self.objects.count() {
            let (key, bytes) = (objects::key(number), self.objects.bytes(number));
            if !contender.is_s3() {
                fs::write(folder.join("data").join(BUCKET).join(key), bytes)?;
                continue;
            }
            let answer = peer.ask(&writer.put(&key, self.objects.pool.size), bytes)?;
            if answer.head.status != 200 {
                return Err(io::Error::other(format!("PUT of {key}: {}", answer.refusal())));
            }
        }
        nix::unistd::sync();
        Ok(())
    }

    /// Compares keys with their objects.
    fn check(
        &self,
        contender: Contender,
        server: &Server,
        keys: impl Iterator<Item = (usize, usize)>,
    ) -> io::Result<()> {
        let writer = Writer::new(&server.address, contender)?;
        let mut peer = Peer::new(&server.address);
        for (number, object) in keys {
            let key = objects::key(number);
            let answer = peer.ask(&writer.get(&key), &[])?;
            if answer.head.status != 200 {
                return Err(io::Error::other(format!("GET of {key}: {}", answer.refusal())));
            }
            let etag = answer.head.etag.as_deref().filter(|_| contender.is_s3());
            if let Some(fault) = self.objects.fault(object, &answer.body, etag) {
                return Err(io::Error::other(format!("a wrong object, {key}: {fault}")));
            }
        }
        Ok(())
    }

    pub fn load(&self, server: &Server, requests: Vec<Request>, pace: Pace) -> io::Result<Measured> {
        let load = Load {
            address: server.address.clone(),
            clients: self.clients,
            limit: self.requests.or_else(|| self.setting.cold.then_some(requests.len() as u64)),
            requests,
            size: self.objects.pool.size,
            pool: self.objects.pool.path.clone(),
            pace,
            // Warm data would no longer be cold.
            warm_s: if self.setting.cold { 0.0 } else { self.setting.warm_s },
            measure_s: self.setting.measure_s,
            server_pid: server.pid(),
            cores: self.setting.client_cores.clone(),
        };
        let result: Result<Measured, String> = Helper::start(LOAD, &load)?.hear()?;
        match result {
            Ok(measured) => Ok(Measured { checks_signatures: server.checks_signatures, ..measured }),
            Err(error) => Err(io::Error::other(format!("{error}; its log: {}", server.said()))),
        }
    }
}
