//! Runs a job over every file once, on the benchmark's server and client.

use super::dataset::Original;
use crate::harness::cores;
use crate::harness::data::Direction;
use crate::harness::figures::{Cost, Marks};
use crate::harness::process::Helper;
use crate::host::contender::Contender;
use crate::host::job::Job;
use crate::host::measure::{CLIENT, SERVER, agree};
use crate::host::protocol::{
    Account, ClientRound, ClientTask, Extent, Item, Listening, ObjectResult, Piece, Round, Serve,
};
use std::io;
use std::path::Path;
use std::process::Command;

const RECEIVER: &str = include_str!("receiver.py");
/// Every file is moved whole.
const ROUND: Round = Round { length: u64::MAX, extent: Extent::All };

/// A job for one contender.
#[derive(Clone, Debug)]
pub struct Task {
    pub job: Job,
    pub contender: Contender,
    /// The files of each stream, in order; each stream has one connection.
    pub streams: Vec<Vec<Original>>,
}

/// Outcome of a run.
pub struct Run {
    /// Results by stream and file, in order.
    pub files: Vec<Vec<ObjectResult>>,
    /// `None` if Python was the other end.
    pub marks: Option<Marks>,
    /// System calls, if they were counted.
    pub system_calls: Option<nix::Result<u64>>,
}

impl Task {
    pub fn bytes(&self) -> u64 {
        self.streams.iter().flatten().map(|file| file.size).sum()
    }

    /// Returns the cost of a run per input byte: a compressor's output is smaller.
    pub fn cost(&self, run: &Run) -> Option<Cost> {
        run.marks.map(|marks| Cost::of(&marks, self.bytes() as f64))
    }

    /// Runs the job. The receiver discards the data.
    pub fn run(&self) -> io::Result<Run> {
        self.run_against_client(self.start(false)?, None)
    }

    /// Runs the job with its system calls counted, which takes longer.
    pub fn run_traced(&self) -> io::Result<Run> {
        self.run_against_client(self.start(true)?, None)
    }

    /// Runs the job. The receiver stores each stream in a file; it is Python's where one is given.
    pub fn run_stored(&self, folder: &Path, python: bool) -> io::Result<Run> {
        match python && self.job.direction == Direction::Send {
            true => self.run_against_python(self.start(false)?, folder),
            false => self.run_against_client(self.start(false)?, Some(folder)),
        }
    }

    fn start(&self, traced: bool) -> io::Result<Helper> {
        let item = |file: &Original| Item {
            path: match self.job.direction {
                Direction::Send => file.path.clone(),
                Direction::Receive => file.copy.clone(),
            },
            offset: 0,
            length: file.size,
            counter: Some(file.counter),
            expected: Vec::new(),
        };
        let serve = Serve {
            contender: self.contender,
            job: self.job.clone(),
            streams: self.streams.iter().map(|files| files.iter().map(item).collect()).collect(),
            open_once: false,
            cold: false,
            small: false,
            same_operators: true,
            counters: false,
            cores: cores::allowed()?,
        };
        if traced { Helper::start_traced(SERVER, &serve) } else { Helper::start(SERVER, &serve) }
    }

    fn run_against_client(&self, mut server: Helper, store: Option<&Path>) -> io::Result<Run> {
        let piece = |file: &Original| Piece { file: Some(file.path.clone()), offset: 0, length: file.size };
        let task = ClientTask {
            address: server.hear::<Listening>()?.address,
            job: self.job.clone(),
            streams: self.streams.iter().map(|files| files.iter().map(piece).collect()).collect(),
            pool: None,
            server_pid: server.pid(),
            cores: cores::allowed()?,
        };
        let mut client = Helper::start(CLIENT, &task)?;
        let Round { length, extent } = ROUND;
        let store = store.map(Path::to_path_buf);
        client.tell(&ClientRound { length, extent, store, warm_s: 0.0, measure_s: 0.0 })?;
        server.tell(&ROUND)?;
        let marks = Some(client.hear()?);
        let over_the_wire = client.hear()?;
        self.end(&mut server, over_the_wire, marks)
    }

    /// Runs the job with a receiver that shares no code with this program.
    fn run_against_python(&self, mut server: Helper, folder: &Path) -> io::Result<Run> {
        let mut command = Command::new("python3");
        command.args(["-c", RECEIVER]).arg(server.hear::<Listening>()?.address);
        let mut receiver = Helper::spawn(command.arg(self.streams.len().to_string()).arg(folder))?;
        server.tell(&ROUND)?;
        let over_the_wire = receiver.hear()?;
        self.end(&mut server, over_the_wire, None)
    }

    /// Ends a run. Both ends must report the same bytes, and every file.
    fn end(&self, server: &mut Helper, over_the_wire: u64, marks: Option<Marks>) -> io::Result<Run> {
        let account: Account = server.hear()?;
        agree(self.job.direction, &account, over_the_wire)?;
        let files: Vec<Vec<ObjectResult>> = account.streams.into_iter().map(|stream| stream.each).collect();
        let asked = self.streams.iter().map(Vec::len);
        if !files.iter().map(Vec::len).eq(asked) {
            return Err(io::Error::other("not every file has a result"));
        }
        let moved: u64 = files.iter().flatten().map(|file| file.bytes_in).sum();
        if moved != self.bytes() {
            return Err(io::Error::other(format!("{moved} bytes of {} were moved", self.bytes())));
        }
        Ok(Run { files, marks, system_calls: server.system_calls() })
    }
}
