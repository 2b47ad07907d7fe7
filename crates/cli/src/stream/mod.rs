//! `dcs stream`: sends files in datagrams, each at its due time, from one engine thread for all streams.
//!
//! | module | contents |
//! |---|---|
//! | [`args`] | the command lines of `dcs stream` and `dcs record`, and their help |
//! | `ends` | addresses and sockets |
//! | `list` | lists of channels |
//! | `channel` | a channel: sends its files, one after the other |
//! | `statistics` | statistics, for people and programs |

pub mod args;
pub mod channel;
pub mod ends;
mod list;
mod statistics;

use crate::card::{self, Device};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::report::Report;
use crate::{nic, nvme};
use channel::{Channel, Settings, TRANSFERS_AT_ONCE};
use dcs::engine::Builder;
use dcs::media::Statistics;
use dcs::session::DEPTH_MAX;
use dcs::{Engine, Session};
use list::{Configuration, List};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Interval at which the list is checked and metrics are written.
const TICK: Duration = Duration::from_secs(1);
/// Size of an engine's block: the bytes that a stream reads at once.
const BLOCK: u32 = 64 * 1024;
/// Fewest blocks of an engine.
const BLOCKS: usize = 32;
/// Most channels of a command: their transfers share a queue with those that are being ended.
pub const CHANNELS_MAX: usize = DEPTH_MAX as usize / (TRANSFERS_AT_ONCE + 1) - 1;
/// Most channels of a card, which has 63 commands at once.
const CHANNELS_OF_CARD: usize = 63 / (TRANSFERS_AT_ONCE + 1);
/// Room for channels if the list has fewer.
const CHANNELS_MIN: usize = 256;

pub fn run(stream: &args::Stream, report: &Report) -> Result<(), Failure> {
    interrupt::install();
    let mut list = stream.list.as_deref().map(|path| List::new(path, stream.window));
    let first = match &mut list {
        Some(list) => list.changed()?.unwrap_or_default(),
        None => {
            let only = single(stream)?;
            // Before a NIC is looked for, and taken.
            only.check(&stream.ciphers)?;
            Configuration { channels: vec![only], invalid: Vec::new() }
        }
    };
    let by = Device::new(nic::requested(&stream.nic)?)?;
    let endless = list.is_some() || first.channels.iter().all(|settings| settings.times.is_none());
    let room = match (&list, &by) {
        (None, _) => 2,
        (_, Device::Card) => CHANNELS_OF_CARD,
        _ => first.channels.len().clamp(CHANNELS_MIN, CHANNELS_MAX),
    };
    let mut streams = Streams::start(stream, by, room, report)?;
    let opened = streams.replace(first);
    if list.is_none() {
        // It is the only stream.
        opened?;
    }
    let guard = interrupt::transferring();
    streams.run(&mut list)?;
    streams.advance_all();
    // A first signal during this does not suppress the report.
    statistics::all("done", &streams.channels, &streams.gone, report);
    drop(guard);
    if interrupt::pressed() && !endless {
        return Err(Failure::new(
            Exit::Interrupted,
            "interrupted; datagrams that were not yet due were not sent",
        ));
    }
    match streams.exit() {
        Some((exit, failed)) if list.is_none() => {
            Err(Failure::new(exit, format!("{failed} of the files could not be sent")))
        }
        _ => Ok(()),
    }
}

/// The channel of a command line without a list.
fn single(stream: &args::Stream) -> Result<Settings, Failure> {
    let usage = |line: String| Failure::usage(line).advise("dcs stream FILE... udp://HOST:PORT");
    let Some((to, files)) = stream.what.split_last().filter(|(_, files)| !files.is_empty()) else {
        return Err(usage("name a file and its destination".to_string()));
    };
    let to = to.to_str().ok_or("the address is not text".to_string()).and_then(str::parse).map_err(usage)?;
    Ok(Settings {
        name: files[0].to_string_lossy().into_owned(),
        to,
        files: files.iter().map(Into::into).collect(),
        alone: true,
        times: match stream.r#loop {
            None => Some(1),
            Some(0) => None,
            times => times,
        },
        rate: stream.rate,
        window: stream.window,
        ttl: stream.ttl,
        interface: stream.interface.clone(),
        through: stream.through.clone(),
        sdp: stream.sdp.clone(),
    })
}

/// Returns the settings of an engine of the kernel backend for this many channels.
fn builder(options: &args::Stream, most: usize) -> Builder {
    Engine::builder()
        .io(options.io.into())
        .realtime(options.realtime.into())
        // The next due time is known, so there is nothing to spin for.
        .spin(Duration::ZERO)
        .block_size(BLOCK)
        .blocks((most * 4).max(BLOCKS) as u32)
        .window(2)
        .commands((most * (TRANSFERS_AT_ONCE + 1)) as u16)
        .sessions(2)
}

/// The channels, and the engine that sends them.
struct Streams<'a> {
    options: &'a args::Stream,
    report: &'a Report,
    // Dropped before their session.
    channels: Vec<Channel>,
    session: Session,
    engine: Engine,
    /// Set if a NIC of the engine, or of its card, sends them.
    by_nic: bool,
    most: usize,
    rids: u32,
    /// Statistics of channels that have ended.
    gone: Statistics,
}

impl<'a> Streams<'a> {
    fn start(
        options: &'a args::Stream,
        by: Device,
        most: usize,
        report: &'a Report,
    ) -> Result<Streams<'a>, Failure> {
        let refused = |error| Failure::refused("stream", error);
        let by_nic = !matches!(by, Device::Kernel);
        let engine = match by {
            Device::Card => card::card()?,
            Device::Kernel => builder(options, most).start().map_err(refused)?,
            Device::Nic(nic) => builder(options, most).nic(nic).start().map_err(nvme::failure)?,
        };
        nic::say(&engine, report);
        let session = engine.session_with_depth(DEPTH_MAX).map_err(refused)?;
        // Created before the first transfer, so that no completion is missed.
        session.event_fd().map_err(refused)?;
        let gone = Statistics::default();
        Ok(Streams { options, report, channels: Vec::new(), session, engine, by_nic, most, rids: 0, gone })
    }

    /// Replaces the channels. Unchanged ones go on, and so do those whose table is invalid now.
    fn replace(&mut self, configuration: Configuration) -> Result<(), Failure> {
        let Configuration { channels, invalid } = configuration;
        let stays = |channel: &Channel| {
            let name = &channel.settings.name;
            channels.contains(&channel.settings) || invalid.iter().any(|(invalid, _)| invalid == name)
        };
        let (kept, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.channels).into_iter().partition(stays);
        self.channels = kept;
        for (name, why) in &invalid {
            let failure = Failure::usage(format!("[{name}]: {}", why.trim_end()));
            self.report.failure(&failure.advise("dcs help stream shows an example"));
        }
        for channel in ended {
            self.report.remark(format_args!("dcs: {} ends", channel.settings.name));
            self.gone = statistics::sum([channel.state(), self.gone_state()].into_iter());
        }
        let mut first = Ok(());
        for settings in channels {
            if self.channels.iter().any(|channel| channel.settings == settings) {
                continue;
            }
            let name = settings.name.clone();
            match self.open(settings) {
                Ok(channel) => self.channels.push(channel),
                Err(failure) if self.options.list.is_none() => first = Err(failure),
                Err(failure) => {
                    self.report.failure(&Failure { line: format!("[{name}]: {}", failure.line), ..failure });
                }
            }
        }
        self.advance_all();
        first
    }

    fn gone_state(&self) -> dcs::media::Sending {
        dcs::media::Sending { counts: self.gone, ..Default::default() }
    }

    fn open(&mut self, settings: Settings) -> Result<Channel, Failure> {
        if self.channels.len() >= self.most {
            let line = format!("there is room for {} channels", self.most);
            return Err(
                Failure::usage(line).advise("restart it with the longer list, or start another dcs stream")
            );
        }
        self.rids = self.rids.checked_add(1).unwrap_or(1);
        let nic = self.by_nic.then_some(&self.engine);
        Channel::open(settings, self.rids, &self.options.ciphers, nic, self.report)
    }

    fn advance_all(&mut self) {
        for channel in &mut self.channels {
            channel.reap(self.report);
            channel.advance(&self.session, &self.options.ciphers, self.report);
        }
    }

    /// Runs until everything is sent, or a signal arrives.
    fn run(&mut self, list: &mut Option<List>) -> Result<(), Failure> {
        let (mut ticked, mut told) = (Instant::now(), Instant::now());
        let mut unwritten = false;
        loop {
            self.advance_all();
            let done = list.is_none() && self.channels.iter().all(Channel::is_done);
            if done || ticked.elapsed() >= TICK {
                ticked = Instant::now();
                if let Some(path) = &self.options.metrics {
                    // The channels go on without them. The failure is reported once, until they can be written again.
                    let failed = statistics::write_metrics(path, &self.channels).err();
                    if let Some(failure) = failed.as_ref().filter(|_| !unwritten) {
                        self.report.failure(failure);
                    }
                    unwritten = failed.is_some();
                }
                match list.as_mut().map(List::changed) {
                    Some(Ok(Some(configuration))) => self.replace(configuration)?,
                    // The present channels go on.
                    Some(Err(failure)) => self.report.failure(&failure),
                    _ => {}
                }
            }
            if done || interrupt::pressed() {
                return Ok(());
            }
            if self.options.every.is_some_and(|every| told.elapsed() >= every) {
                told = Instant::now();
                statistics::all("streaming", &self.channels, &self.gone, self.report);
            }
            self.wait(TICK.saturating_sub(ticked.elapsed()));
        }
    }

    /// Waits until a transfer is done, a signal arrives, or the time has passed.
    fn wait(&self, time: Duration) {
        let Ok(event) = self.session.event_fd() else { return std::thread::sleep(time) };
        let mut fds = vec![PollFd::new(event, PollFlags::POLLIN)];
        fds.extend(interrupt::event().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let time = time.min(self.options.every.unwrap_or(TICK)) + Duration::from_millis(1);
        let _ = nix::poll::poll(&mut fds, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX));
        if fds[0].any() == Some(true) {
            // Cleared before the transfers are checked.
            let _ = nix::unistd::read(event.as_fd(), &mut [0; 8]);
        }
    }

    /// Returns the exit code and the number of files that failed, if any did.
    fn exit(&self) -> Option<(Exit, u64)> {
        let failed = self.channels.iter().map(|channel| channel.failed).sum();
        self.channels.iter().find_map(|channel| channel.worst_exit).map(|exit| (exit, failed))
    }
}
