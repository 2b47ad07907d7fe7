//! The host-centric design: the ordinary loop, as sparing as it can be. One read past the page cache, the operators in place, one send.

use super::{Asked, Mover, path};
use crate::operate::Operators;
use crate::server::task::{Direction, Item, Stage, Transfer};
use dcs::Op;
use nix::libc::O_DIRECT;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

/// Of a buffer for O_DIRECT.
const ALIGNMENT: usize = 4096;
/// Bytes of the buffer: of one read.
const BUFFER: usize = 1 << 20;

pub struct Loop {
    socket: Option<TcpStream>,
    memory: Vec<u8>,
    from: usize,
}

impl Loop {
    pub fn new() -> Loop {
        let memory = vec![0; BUFFER + ALIGNMENT];
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        Loop { socket: None, memory, from }
    }
}

impl Mover for Loop {
    fn connect(&mut self, client: SocketAddrV4) -> io::Result<()> {
        self.socket = Some(TcpStream::connect(client)?);
        Ok(())
    }

    fn ask(&mut self, item: Item, ops: Vec<Op>) -> io::Result<Asked> {
        let mut stages = Stages { start: Instant::now(), stages: Vec::new() };
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let receives = item.direction == Direction::Receive;
        let file = File::options()
            .read(!receives)
            .write(receives)
            .custom_flags(O_DIRECT)
            .open(path(item.direction, item.file))?;
        let mut chain = Vec::new();
        for op in &ops {
            let name = dcs::Operator::from_number(op.number()).map_or("operator", dcs::Operator::name);
            chain.push((name, Operators::new(std::slice::from_ref(op))?));
        }
        let mut at = 0;
        while at < item.length {
            let length = (item.length - at).min(BUFFER as u64) as usize;
            let buffer = &mut self.memory[self.from..self.from + length];
            let last = at + length as u64 == item.length;
            stages.time("source", || match receives {
                true => socket.read_exact(buffer),
                false => file.read_exact_at(buffer, at),
            })?;
            for (name, operator) in &mut chain {
                stages.time(name, || operator.pass(buffer, last, &mut |_| Ok(())))?;
            }
            stages.time("destination", || match receives {
                true => {
                    file.write_all_at(buffer, at).and_then(|()| if last { file.sync_data() } else { Ok(()) })
                }
                false => socket.write_all(buffer),
            })?;
            at += length as u64;
        }
        Ok(Asked::Done(Transfer {
            digests: chain.iter().flat_map(|(_, operator)| operator.digests()).collect(),
            bytes_in: item.length,
            bytes_out: item.length,
            path: vec!["system calls".into()],
            latency_ns: stages.start.elapsed().as_nanos() as u64,
            stages: stages.stages,
        }))
    }

    fn end(&mut self) -> io::Result<()> {
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        socket.shutdown(Shutdown::Write)?;
        socket.read_exact(&mut [0])
    }
}

/// The clock of the ordinary loop.
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
