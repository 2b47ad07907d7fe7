//! The work of an engine without the engine: one thread reads an object of each stream, takes their MD5s in lanes,
//! and sends them. That is one pread(2) and one send(2) for a small object: no engine that makes them costs less.

use super::loops::finish;
use super::{Object, Prepared};
use crate::host::protocol::StreamAccount;
use crate::host::server::{Latencies, Work};
use dcs::Operator;
use dcs_ndp::{Context, Lanes, Piece};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::Instant;

struct Stream<'a> {
    socket: &'a TcpStream,
    objects: &'a [Object],
    begun: usize,
    /// The object of this turn, when it was begun, and its digest so far.
    current: Option<(&'a Object, Instant, Context)>,
    buffer: Vec<u8>,
    account: StreamAccount,
}

pub fn run(prepared: &Prepared, work: &Work<'_>) -> io::Result<Vec<StreamAccount>> {
    let lanes = Lanes::detect(Operator::Md5);
    let longest = prepared.files.iter().flatten().map(|object| object.item.length).max().unwrap_or(0);
    let mut streams = Vec::new();
    for (socket, objects) in work.sockets.iter().zip(&prepared.files) {
        let (buffer, account) = (vec![0; longest as usize], StreamAccount::default());
        streams.push(Stream { socket, objects, begun: 0, current: None, buffer, account });
    }
    let mut latencies = work.control.latencies();
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for group in streams.chunks_mut(lanes.count()) {
            for stream in &mut *group {
                goes_on |= stream.read(work)?;
            }
            let mut pieces: Vec<_> = group.iter_mut().filter_map(|stream| stream.piece(work)).collect();
            Context::absorb_together(lanes, &mut pieces);
            drop(pieces);
            for stream in &mut *group {
                stream.send(work, &mut latencies)?;
            }
        }
    }
    streams.iter().try_for_each(|stream| finish(stream.socket, true))?;
    Ok(streams.into_iter().map(|stream| stream.account).collect())
}

impl<'a> Stream<'a> {
    /// Reads the next object; returns false if there is none.
    fn read(&mut self, work: &Work<'_>) -> io::Result<bool> {
        if !work.goes_on(self.begun, self.objects.len()) {
            return Ok(false);
        }
        let object: &'a Object = &self.objects[self.begun % self.objects.len()];
        self.begun += 1;
        let begun = Instant::now();
        let length = object.length(work) as usize;
        object.opened(work.serve)?.read_exact_at(&mut self.buffer[..length], 0)?;
        self.current = Some((object, begun, Context::new(Operator::Md5, &[]).map_err(io::Error::other)?));
        Ok(true)
    }

    fn piece(&mut self, work: &Work<'_>) -> Option<Piece<'_>> {
        let (object, _, context) = self.current.as_mut()?;
        Some(Piece { context, data: &self.buffer[..object.length(work) as usize], last: true })
    }

    fn send(&mut self, work: &Work<'_>, latencies: &mut Latencies<'_>) -> io::Result<()> {
        let Some((object, begun, context)) = self.current.take() else { return Ok(()) };
        let length = object.length(work);
        self.socket.write_all(&self.buffer[..length as usize])?;
        let digest = context.value().map(|value| value.as_bytes().to_vec());
        self.account.add(length, length, &Vec::from_iter(digest), object.expected(work));
        latencies.done(begun);
        Ok(())
    }
}
