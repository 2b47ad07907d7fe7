//! A channel: sends its files, one after the other.

use super::args::Rate;
use super::ends::{Address, Interface};
use crate::args::CipherOptions;
use crate::chain::{Chain, Counter};
use crate::failure::{Exit, Failure};
use crate::keys::{Counters, Keys};
use crate::names::shown;
use crate::report::{Report, add_completion};
use dcs::media::{Framing, Pace, Sender, Sending, Settings as Datagrams, sdp};
use dcs::{Completion, Engine, Session, Source, Transfer, TransferError};
use serde_json::json;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Transfers of a channel in flight: the one that is being sent, and the next.
pub const TRANSFERS_AT_ONCE: usize = 2;

/// The settings of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub name: String,
    pub to: Address,
    pub files: Vec<PathBuf>,
    /// True if there is no other channel, which would wait for it.
    pub alone: bool,
    /// Number of times to send them; `None`: endless.
    pub times: Option<u32>,
    pub rate: Rate,
    pub window: Duration,
    pub ttl: u8,
    pub interface: Option<Interface>,
    pub through: Vec<String>,
    pub sdp: Option<OsString>,
}

impl Settings {
    fn pace(&self) -> Pace {
        let pace = match self.rate {
            Rate::Pcr => Pace::pcr(),
            Rate::Free => Pace::free(),
            Rate::Bits(bits) => Pace::constant(bits),
        };
        pace.window(self.window)
    }

    /// Opens the sockets of the kernel that send it. Returns its address and this machine's too.
    fn open_by_socket(&self, datagrams: Datagrams) -> Result<(Sender, SocketAddr, IpAddr), Failure> {
        let out = self.to.open(self.ttl, self.interface.as_ref())?;
        let name = format!("dcs@{}", out.from);
        let reports = out.reports.as_ref().map(|reports| (reports as _, name.as_str()));
        let failed = |error| Failure::refused(&self.name, error);
        Ok((Sender::new(&out.socket, reports, datagrams).map_err(failed)?, out.to, out.from))
    }

    /// Opens a stream of the engine's NIC, or of its card's.
    fn open_by_nic(
        &self,
        engine: &Engine,
        datagrams: Datagrams,
    ) -> Result<(Sender, SocketAddr, IpAddr), Failure> {
        if self.interface.is_some() {
            return Err(Failure::usage(format!("{}: interface: the NIC that is driven sends it", self.name))
                .advise("leave out the interface"));
        }
        let to = self.to.resolve_v4()?;
        let sender = Sender::by_nic(engine, to, self.ttl, datagrams)
            .map_err(|error| Failure::new(Exit::Peer, format!("{}: {error}", self.to)))
            .map_err(|failure| failure.advise("check the address, --ttl (1 or more) and --gateway"))?;
        let from = sender.local().unwrap_or(Ipv4Addr::UNSPECIFIED);
        Ok((sender, to.into(), from.into()))
    }

    /// Checks the chain and whether the rate fits it. Returns the chain.
    pub fn check(&self, ciphers: &CipherOptions) -> Result<Chain, Failure> {
        let chain = Chain::new(&self.through, &Keys::new(ciphers), Counters::new(ciphers))?;
        if !chain.keeps_data() && self.rate == Rate::Pcr {
            return Err(Failure::usage(format!(
                "{}: after an operator that changes the data there is no clock",
                self.name
            ))
            .advise("give the rate: --rate 8M"));
        }
        // The same counters would encrypt other bytes.
        if !chain.counters.is_empty() && (self.times != Some(1) || self.files.len() > 1) {
            return Err(Failure::usage(format!("{}: aes256-ctr is for one file, sent once", self.name))
                .advise("encrypt the files first: dcs copy --through aes256-ctr"));
        }
        Ok(chain)
    }
}

/// A transfer in flight.
struct Item {
    transfer: Transfer,
    file: Option<PathBuf>,
    names: Vec<&'static str>,
    counters: Vec<Counter>,
}

/// A channel that runs.
pub struct Channel {
    pub settings: Settings,
    pub sender: Sender,
    rid: u32,
    /// Number of files begun.
    begun: u64,
    items: VecDeque<Item>,
    /// True if the end was submitted.
    ended: bool,
    /// Number of files that failed in a row.
    failed_in_row: usize,
    /// Number of files that failed.
    pub failed: u64,
    /// Number of files that were sent.
    pub sent: u64,
    pub worst_exit: Option<Exit>,
}

impl Channel {
    /// Opens its sockets, or its stream of this engine's NIC. `rid` puts its transfers in order, and is not 0.
    pub fn open(
        settings: Settings,
        rid: u32,
        ciphers: &CipherOptions,
        nic: Option<&Engine>,
        report: &Report,
    ) -> Result<Channel, Failure> {
        settings.check(ciphers)?;
        let random = random()?;
        let datagrams = match settings.to.framing {
            Framing::Plain => Datagrams::plain(),
            Framing::Rtp => Datagrams::rtp(random),
        };
        let (sender, to, from) = match nic {
            Some(engine) => settings.open_by_nic(engine, datagrams)?,
            None => settings.open_by_socket(datagrams)?,
        };
        if let Some(file) = &settings.sdp {
            if settings.to.framing != Framing::Rtp {
                return Err(Failure::usage(format!(
                    "{}: only rtp:// has a description (SDP)",
                    settings.name
                )));
            }
            let session = sdp::Session { name: &settings.name, to, from, ttl: settings.ttl, id: random >> 1 };
            describe(file, &settings.name, &sdp::describe(&session), report)?;
        }
        Ok(Channel {
            settings,
            sender,
            rid,
            begun: 0,
            items: VecDeque::new(),
            ended: false,
            failed_in_row: 0,
            failed: 0,
            sent: 0,
            worst_exit: None,
        })
    }

    /// Returns true if all files were sent or have failed.
    pub fn is_done(&self) -> bool {
        self.ended && self.items.is_empty()
    }

    /// Returns the next file, unless all were sent, or all have failed.
    fn next(&mut self) -> Option<PathBuf> {
        let count = self.settings.files.len() as u64;
        let all = self.settings.times.is_some_and(|times| self.begun >= u64::from(times) * count);
        if all || self.failed_in_row >= self.settings.files.len() {
            return None;
        }
        self.begun += 1;
        self.settings.files.get(((self.begun - 1) % count.max(1)) as usize).cloned()
    }

    /// Submits the next files, up to the number in flight.
    pub fn advance(&mut self, session: &Session, ciphers: &CipherOptions, report: &Report) {
        while self.items.len() < TRANSFERS_AT_ONCE && !self.ended {
            let Some(file) = self.next() else {
                // An empty transfer sends what is left.
                self.ended = true;
                match self.submit(session, None, ciphers) {
                    Ok(item) => self.items.push_back(item),
                    Err(failure) => self.fail(&failure, report),
                }
                return;
            };
            match self.submit(session, Some(file), ciphers) {
                Ok(item) => self.items.push_back(item),
                Err(failure) => self.fail(&failure, report),
            }
        }
    }

    fn submit(
        &self,
        session: &Session,
        file: Option<PathBuf>,
        ciphers: &CipherOptions,
    ) -> Result<Item, Failure> {
        let sink = self.sender.sink(self.settings.pace());
        let refused = |error| Failure::refused(&self.settings.name, error);
        let Some(path) = file else {
            let request = session.request(Source::memory([]), [], sink).rid(self.rid);
            let transfer = request.submit().map_err(refused)?;
            return Ok(Item { transfer, file: None, names: Vec::new(), counters: Vec::new() });
        };
        let opened = self.open_file(&path)?;
        let chain = self.settings.check(ciphers)?;
        let request = session.request(Source::fd(&opened), chain.ops, sink).rid(self.rid).more();
        let transfer = request.submit().map_err(refused)?;
        Ok(Item { transfer, file: Some(path), names: chain.names, counters: chain.counters })
    }

    /// Opens a file. Opening a pipe waits for its other end, and all channels with it, so pipes are sent by themselves.
    fn open_file(&self, path: &Path) -> Result<File, Failure> {
        let failed = |error| Failure::io(shown(path), &error);
        let alone = self.settings.times == Some(1) && self.settings.alone;
        if !alone && std::fs::metadata(path).map_err(failed)?.file_type().is_fifo() {
            let line = format!("{}: a pipe cannot be in a list or in a loop", shown(path));
            return Err(Failure::usage(line).advise("dcs stream PIPE udp://HOST:PORT sends it once"));
        }
        File::open(path).map_err(failed)
    }

    fn fail(&mut self, failure: &Failure, report: &Report) {
        self.failed += 1;
        self.failed_in_row += 1;
        self.worst_exit.get_or_insert(failure.exit);
        report.failure(failure);
    }

    /// Processes transfers that have ended.
    pub fn reap(&mut self, report: &Report) {
        while self.items.front().is_some_and(|item| item.transfer.is_done()) {
            let Some(item) = self.items.pop_front() else { return };
            let Item { transfer, file, names, counters } = item;
            match (transfer.wait(), file) {
                // In a loop it would start again at once, over and over.
                (Ok(completion), Some(file)) if completion.bytes_out == 0 => {
                    let line = format!("{} -> {}: there is nothing to send", shown(&file), self.settings.to);
                    let failure = Failure::new(Exit::Corrupt, line).advise("check whether the file is empty");
                    self.fail(&failure, report);
                }
                (Ok(completion), Some(file)) => {
                    self.failed_in_row = 0;
                    self.sent += 1;
                    self.report_sent(&file, (&names, &counters), &completion, report);
                }
                (Ok(_), None) => {}
                (Err(error), file) => {
                    let name = file.as_ref().unwrap_or(&PathBuf::new()).clone();
                    let name = format!("{} -> {}", shown(&name), self.settings.to);
                    self.fail(&explained(&name, error), report);
                }
            }
        }
    }

    /// Reports a file that was sent, and its digests.
    fn report_sent(
        &self,
        file: &PathBuf,
        (names, counters): (&[&'static str], &[Counter]),
        completion: &Completion,
        report: &Report,
    ) {
        for digest in &completion.digests {
            report.text(format_args!("{}  {digest}  {}", digest.operator.name(), shown(file)));
        }
        for counter in counters.iter().filter(|counter| counter.random) {
            report.text(format_args!("iv  {}  {}", counter.value, shown(file)));
        }
        let mut object = json!({
            "event": "sent", "ok": true, "command": "stream", "channel": self.settings.name,
            "to": self.settings.to.to_string(), "chain": names, "iv": counters,
        });
        crate::names::add_name(&mut object, "source", file);
        add_completion(&mut object, completion);
        report.object(&object);
    }

    /// Returns its statistics. A card or an engine that drives a NIC is asked for them.
    pub fn state(&self) -> Sending {
        self.sender.state()
    }
}

/// Returns the failure of a transfer, with the meaning of errno for streams.
fn explained(name: &str, error: TransferError) -> Failure {
    let errno = error.errno;
    let failure = Failure::transfer(name, error, false);
    match (failure.exit, errno) {
        (Exit::Corrupt, libc_badmsg) if libc_badmsg == nix::errno::Errno::EBADMSG as i32 => {
            Failure { line: format!("{name}: not an MPEG transport stream"), ..failure }
                .advise("send it at a rate: --rate 8M; or convert it: ffmpeg -i FILE -c copy FILE.ts")
        }
        (Exit::Corrupt, libc_nodata) if libc_nodata == nix::errno::Errno::ENODATA as i32 => {
            Failure { line: format!("{name}: the transport stream has no clock (PCR)"), ..failure }
                .advise("give the rate: --rate 8M")
        }
        _ => failure,
    }
}

/// Returns a random number.
pub fn random() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Failed, format!("no random number: {error}")))?;
    Ok(u64::from_ne_bytes(bytes))
}

fn describe(to: &OsString, channel: &str, text: &str, report: &Report) -> Result<(), Failure> {
    if to == "-" {
        text.lines().for_each(|line| report.text(line));
        report.object(&json!({ "event": "sdp", "command": "stream", "channel": channel, "sdp": text }));
        return Ok(());
    }
    std::fs::write(to, text).map_err(|error| Failure::io(shown(to), &error))
}
