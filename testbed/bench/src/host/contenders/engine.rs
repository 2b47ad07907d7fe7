//! The engine as an application uses it, with one session. For many streams it has a thread of its own. For small objects one at
//! a time, or with all on one core, its caller drives it: a hand-over between threads would cost as much as an object.

use super::loops::finish;
use super::{Object, Prepared as Common};
use crate::harness::data::Direction;
use crate::host::contender::Contender;
use crate::host::protocol::{Extent, Serve, StreamAccount};
use crate::host::server::{Latencies, Work};
use crate::report;
use dcs::{
    Completion, Driver, Engine, Handle, Mode, Op, Session, Sink, Source, Status, Transfer, TransferError,
};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// Transfers of large objects that each stream has in flight: the next is ready while one runs.
const AHEAD: usize = 2;

pub struct Prepared {
    session: Session,
    /// True if its caller drives it.
    driven: bool,
    ahead: usize,
    cache: Mode,
    // Last field: dropped after its session.
    _engine: Engine,
}

/// A stream's transfers in flight.
struct Stream<'a> {
    number: u32,
    socket: Handle,
    objects: &'a [Object],
    submitted: usize,
    in_flight: VecDeque<(Instant, &'a Object, Transfer)>,
    ended: bool,
    account: StreamAccount,
}

impl Prepared {
    pub fn new(serve: &Serve) -> io::Result<Prepared> {
        let nice = serve.contender == Contender::EngineNice;
        let driven = !nice && serve.small && (serve.streams.len() == 1 || serve.cores.len() == 1);
        let ahead = if serve.small { 1 } else { AHEAD };
        let driver = if driven { Driver::Caller } else { Driver::Thread };
        let builder = Engine::builder().driver(driver);
        let builder = if nice { builder.nice(-20) } else { builder };
        let engine = builder.start().map_err(io::Error::other)?;
        let depth = u16::try_from(serve.streams.len() * ahead).map_err(io::Error::other)?;
        let session = engine.session_with_depth(depth).map_err(io::Error::other)?;
        let cache = if serve.contender.is_direct(serve.cold) { Mode::Off } else { Mode::Auto };
        Ok(Prepared { session, driven, ahead, cache, _engine: engine })
    }

    pub fn run(&self, common: &Common, work: &Work<'_>) -> io::Result<Vec<StreamAccount>> {
        work.sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        let mut streams = Vec::new();
        for ((number, socket), objects) in (1..).zip(work.sockets).zip(&common.files) {
            let socket = Handle::new(socket).map_err(io::Error::other)?;
            let (in_flight, account) = (VecDeque::new(), StreamAccount::default());
            streams.push(Stream { number, socket, objects, submitted: 0, in_flight, ended: false, account });
        }
        let mut latencies = work.control.latencies();
        self.run_all(&mut streams, &common.ops, work, &mut latencies)?;
        let sent = work.serve.job.direction == Direction::Send;
        for socket in work.sockets {
            socket.set_nonblocking(false)?;
            finish(socket, sent)?;
        }
        Ok(streams.into_iter().map(|stream| stream.account).collect())
    }

    fn run_all<'a>(
        &self,
        streams: &mut [Stream<'a>],
        ops: &[Op],
        work: &Work<'a>,
        latencies: &mut Latencies<'_>,
    ) -> io::Result<()> {
        let event = if self.driven { None } else { Some(self.session.event_fd().map_err(io::Error::other)?) };
        loop {
            let mut busy = false;
            for stream in &mut *streams {
                busy |= stream.advance(self, ops, work, latencies)?;
            }
            if !busy {
                return Ok(());
            }
            if let Some(event) = event {
                nix::poll::poll(&mut [PollFd::new(event, PollFlags::POLLIN)], PollTimeout::NONE)?;
                nix::unistd::read(event, &mut [0; 8])?;
            }
        }
    }
}

impl<'a> Stream<'a> {
    /// Takes completed transfers (waiting for them drives the engine if its caller drives it) and submits as many as may be in
    /// flight. Returns false at the end.
    fn advance(
        &mut self,
        engine: &Prepared,
        ops: &[Op],
        work: &Work<'a>,
        latencies: &mut Latencies<'_>,
    ) -> io::Result<bool> {
        while self.in_flight.front().is_some_and(|(.., transfer)| engine.driven || transfer.is_done()) {
            let Some((begun, object, transfer)) = self.in_flight.pop_front() else { break };
            self.take(transfer.wait(), object, work)?;
            latencies.done(begun);
        }
        while self.in_flight.len() < engine.ahead
            && !self.ended
            && work.goes_on(self.submitted, self.objects.len())
        {
            let object = &self.objects[self.submitted % self.objects.len()];
            self.submitted += 1;
            let begun = Instant::now();
            let transfer = self.submit(engine, object, ops, work)?;
            self.in_flight.push_back((begun, object, transfer));
        }
        Ok(!self.in_flight.is_empty())
    }

    fn submit(
        &self,
        engine: &Prepared,
        object: &Object,
        ops: &[Op],
        work: &Work<'_>,
    ) -> io::Result<Transfer> {
        let length = object.length(work);
        let ops = object.ops.as_deref().unwrap_or(ops);
        let sends = work.serve.job.direction == Direction::Send;
        let (source, sink) = match (&object.handle, sends) {
            (Some(file), true) => (Source::handle(file, ..length), Sink::handle(&self.socket, 0)),
            (Some(file), false) => (Source::handle(&self.socket, ..), Sink::handle(file, 0)),
            (None, true) => {
                (Source::file(&*object.opened(work.serve)?, ..length), Sink::handle(&self.socket, 0))
            }
            (None, false) => (Source::handle(&self.socket, ..), Sink::file(&*object.opened(work.serve)?, 0)),
        };
        // For a fair comparison with sendfile(2) the engine may lend pages too: these files are not written to. They are not
        // written before a chain either, but jobs with a chain stand for programs that cannot know that.
        let source = if ops.is_empty() && sends { source.immutable() } else { source };
        let (source, sink) =
            if sends { (source.cache(engine.cache), sink) } else { (source, sink.cache(engine.cache)) };
        let request = engine.session.request(source, ops.iter().cloned(), sink);
        // With several transfers on one socket, each waits for the one before.
        let rid = if engine.ahead > 1 { self.number } else { 0 };
        request.length(length).rid(rid).submit().map_err(io::Error::other)
    }

    fn take(
        &mut self,
        result: Result<Completion, TransferError>,
        object: &Object,
        work: &Work<'_>,
    ) -> io::Result<()> {
        match result {
            Ok(done) => {
                let digests: Vec<Vec<u8>> =
                    done.digests.iter().map(|digest| digest.bytes().to_vec()).collect();
                self.account.add(done.bytes_in, done.bytes_out, &digests, object.expected(work));
                if work.round.extent == Extent::All {
                    let path = done.path.names().map(String::from).collect();
                    self.account.tell(done.bytes_in, done.bytes_out, report::breakdown(&done), path);
                }
                Ok(())
            }
            // The other end has no more objects.
            Err(error) if error.status == Status::EndOfSource && error.completion.bytes_in == 0 => {
                self.ended = true;
                Ok(())
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
