//! The host-centric design: the ordinary loop, made as cheap as possible. One read past the page cache, the operators in place,
//! one send.

use super::{Design, Submission, at, path};
use crate::guest::task::{Item, Stream, Transfer};
use crate::harness::data::Direction;
use crate::harness::shown::Stage;
use crate::operate::Operators;
use dcs::Op;
use nix::libc::O_DIRECT;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

/// Alignment of a buffer for O_DIRECT.
const ALIGNMENT: usize = 4096;
/// Bytes of the buffer, and of one read.
const BUFFER: usize = 1 << 20;

pub struct Loop {
    sockets: Vec<(TcpStream, usize)>,
    memory: Vec<u8>,
    from: usize,
}

impl Loop {
    pub fn new() -> Loop {
        let memory = vec![0; BUFFER + ALIGNMENT];
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        Loop { sockets: Vec::new(), memory, from }
    }
}

impl Design for Loop {
    fn connect(&mut self, stream: Stream) -> io::Result<()> {
        self.sockets.push((TcpStream::connect(stream.client)?, stream.set));
        Ok(())
    }

    fn submit(&mut self, connection: usize, item: Item, ops: Vec<Op>) -> io::Result<Submission> {
        let mut stages = Stages { start: Instant::now(), stages: Vec::new() };
        let (mut socket, set) = at(&self.sockets, connection).map(|(socket, set)| (socket, *set))?;
        let receives = item.direction == Direction::Receive;
        let file =
            File::options().read(!receives).write(receives).custom_flags(O_DIRECT).open(path(set, item))?;
        let mut chain = Vec::new();
        for op in &ops {
            let name = dcs::Operator::from_number(op.number()).map_or("operator", dcs::Operator::name);
            chain.push((name, Operators::new(std::slice::from_ref(op))?));
        }
        let mut done = 0;
        while done < item.length {
            let length = (item.length - done).min(BUFFER as u64) as usize;
            let buffer = &mut self.memory[self.from..self.from + length];
            let last = done + length as u64 == item.length;
            stages.time("source", || match receives {
                true => socket.read_exact(buffer),
                false => file.read_exact_at(buffer, done),
            })?;
            for (name, operator) in &mut chain {
                stages.time(name, || operator.pass(buffer, last, &mut |_| Ok(())))?;
            }
            stages.time("destination", || match receives {
                true => file
                    .write_all_at(buffer, done)
                    .and_then(|()| if last { file.sync_data() } else { Ok(()) }),
                false => socket.write_all(buffer),
            })?;
            done += length as u64;
        }
        Ok(Submission::Done(Transfer {
            stream: 0,
            digests: chain.iter().flat_map(|(_, operator)| operator.digests()).collect(),
            bytes_in: item.length,
            bytes_out: item.length,
            path: vec!["system calls".into()],
            latency_ns: stages.start.elapsed().as_nanos() as u64,
            stages: stages.stages,
        }))
    }

    fn end(&mut self, connection: usize) -> io::Result<()> {
        let mut socket = &at(&self.sockets, connection)?.0;
        socket.shutdown(Shutdown::Write)?;
        socket.read_exact(&mut [0])
    }
}

/// The ordinary loop's clock for its stages.
struct Stages {
    start: Instant,
    stages: Vec<Stage>,
}

impl Stages {
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let first_ns = self.start.elapsed().as_nanos() as u64;
        let done = work()?;
        let last_ns = self.start.elapsed().as_nanos() as u64;
        let busy_ns = last_ns - first_ns;
        match self.stages.iter_mut().find(|stage| stage.name == name) {
            Some(stage) => {
                (stage.last_ns, stage.busy_ns) = (last_ns, stage.busy_ns + busy_ns);
                stage.operations += 1;
            }
            None => {
                self.stages.push(Stage { name: name.to_owned(), first_ns, last_ns, busy_ns, operations: 1 });
            }
        }
        Ok(done)
    }
}
