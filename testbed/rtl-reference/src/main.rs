//! The reference of the engine in SystemVerilog: reads commands, as `rtl/test/scenario.py` makes them, from standard input, has the Rust
//! core run one after the other, and writes as JSON how each ended and which operations it took.
//!
//! Devices have no bytes here, only sizes: how much of an operation they do at once, and where they fail, follows from the
//! command's number and the position, so that both cores meet the same devices, whatever the order.
//!
//! # Architecture
//!
//! `main` is the Rust core's owner: it hands entries in, has `device` answer the operations, and writes down how each command ended.
//!
//! # What it doesn't implement
//!
//! Bytes and digests: the bench compares those with a plain program's.
#![forbid(unsafe_code)]

mod device;

use dcs_abi::entry::CompletionEntry;
use dcs_abi::operator::Operator;
use dcs_abi::status::{Stage, Status};
use dcs_engine::{
    Action, Binding, CommandId, Config, Engine, Event, Failure, QueueConfig, QueueId, TransferSpec,
};
use device::World;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::sync::Arc;

/// The operators of which the engine in SystemVerilog has units: `PoolOperator` of `rtl/core_pkg.sv`.
const OPERATORS: [Operator; 8] = [
    Operator::Md5,
    Operator::Sha1,
    Operator::Sha256,
    Operator::Crc32,
    Operator::Crc32c,
    Operator::Crc64Nvme,
    Operator::Aes256Ctr,
    Operator::Aes256Xts,
];

/// The input.
#[derive(Deserialize)]
struct Input {
    queues: Vec<Ring>,
    block_size: u32,
    commands: Vec<Command>,
}

/// A queue pair.
#[derive(Deserialize)]
struct Ring {
    function: u16,
    tenant: u16,
    depth: u16,
    number: u16,
}

/// A command, and the devices behind it.
#[derive(Deserialize)]
struct Command {
    queue: usize,
    entry: String,
    descriptor: String,
    source_size: u64,
    capacity: u64,
    /// The stage that fails, from which byte on, and the status.
    fault: Option<(u64, u64, u16)>,
}

/// Outcome of a command.
#[derive(Serialize)]
struct Answer {
    status: u16,
    stage: u8,
    index: u8,
    delivered: u64,
    /// It wrote a result area.
    result: bool,
    operations: Vec<Vec<u64>>,
}

fn bytes(hexadecimal: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pairs = hexadecimal.as_bytes().chunks_exact(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

/// One command's run.
struct Run<'a> {
    engine: &'a mut Engine,
    entry: [u8; 64],
    descriptor: Vec<u8>,
    world: World<'a>,
    spec: Option<Arc<TransferSpec>>,
    done: Option<CompletionEntry>,
    has_result: bool,
}

impl Run<'_> {
    fn act(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(action) = self.engine.poll_action() {
            self.serve(action)?;
        }
        Ok(())
    }

    fn serve(&mut self, action: Action) -> Result<(), Box<dyn Error>> {
        match action {
            Action::FetchEntry { queue, .. } => {
                let bytes = self.entry;
                self.engine.handle(0, Event::Entry { queue, bytes: &bytes });
            }
            Action::FetchDescriptor { command, length, .. } => {
                let bytes = Some(&*self.descriptor).filter(|bytes| bytes.len() == length as usize);
                self.engine.handle(0, Event::Descriptor { command, bytes });
            }
            Action::Bind { command, spec, .. } => self.bind(command, spec),
            Action::Issue(operation) => {
                let spec = self.spec.as_ref().ok_or("an operation of a command that is not bound")?;
                let outcome = self.world.carry_out(spec, &operation.kind);
                self.engine.handle(0, Event::Done { operation: operation.id, outcome });
            }
            Action::Complete { entry, result, .. } => {
                self.done = Some(entry);
                self.has_result = result.is_some();
                result.into_iter().for_each(|(_, area)| self.engine.recycle(area));
            }
            Action::Unbind { .. } | Action::Abort { .. } => {}
            other => return Err(format!("{other:?} was not expected").into()),
        }
        Ok(())
    }

    fn bind(&mut self, command: CommandId, spec: Arc<TransferSpec>) {
        self.spec = Some(spec);
        let refuses = self.world.fails_to_bind();
        let failure = (Stage::Source, 0, Failure::new(Status::BadHandle));
        let binding = if refuses { Err(failure) } else { Ok(Binding::default()) };
        self.engine.handle(0, Event::Bound { command, binding });
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Input = serde_json::from_reader(std::io::stdin().lock())?;
    let config = Config {
        block_size: asked.block_size,
        blocks: 32,
        cached_blocks: u32::MAX,
        commands: 16,
        queues: 4,
        units: OPERATORS.iter().map(|operator| (*operator, 2)).collect(),
        ..Config::default()
    };
    let mut engine = Engine::new(config)?;
    let mut rings: Vec<(QueueId, u16, u32)> = Vec::new();
    for ring in &asked.queues {
        let config = QueueConfig {
            function: ring.function,
            tenant: ring.tenant,
            depth: ring.depth,
            weight: 1,
            number: Some(ring.number),
        };
        rings.push((engine.add_queue(config).ok_or("no room for a queue")?, ring.depth, 0));
    }
    let mut told = Vec::new();
    for (number, command) in asked.commands.iter().enumerate() {
        let (queue, depth, tail) = rings.get_mut(command.queue).ok_or("no such queue")?;
        let entry = bytes(&command.entry)?.try_into().map_err(|_| "an entry has 64 bytes")?;
        let world = World::new(number as u64, command);
        let descriptor = bytes(&command.descriptor)?;
        *tail = (*tail + 1) % u32::from(*depth);
        engine.handle(0, Event::SubmissionDoorbell { queue: *queue, tail: *tail });
        let mut run =
            Run { engine: &mut engine, entry, descriptor, world, spec: None, done: None, has_result: false };
        run.act()?;
        let result = run.has_result;
        let (done, operations) = (run.done.ok_or("a command did not complete")?, run.world.operations);
        engine.handle(0, Event::CompletionDoorbell { queue: *queue, head: *tail });
        told.push(Answer {
            status: done.status >> 1,
            stage: done.stage,
            index: done.stage_index,
            delivered: done.delivered.value(),
            result,
            operations,
        });
    }
    if !engine.is_idle() {
        return Err("the core kept something".into());
    }
    serde_json::to_writer(std::io::stdout().lock(), &told)?;
    Ok(())
}
