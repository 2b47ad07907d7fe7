//! The control path alone: one-block transfers through the core, every action answered at once, nothing else.
//! Made to be counted by callgrind: see `tests/instructions.rs`.
//!
//! It does no I/O and moves no data: what a device would do takes no instruction here.

use dcs_abi::CHAIN_MAX;
use dcs_abi::descriptor::{Builder, Endpoint, EndpointKind, EndpointRole, Extent};
use dcs_abi::entry::{LENGTH_TO_END, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::operator::Operator;
use dcs_abi::result::DigestSlot;
use dcs_engine::{
    Action, Binding, Config, Engine, Event, Operation, OperationKind, Outcome, QueueConfig, QueueId,
};
use std::hint::black_box;
use std::process::ExitCode;

/// Bytes of a transfer: less than a block.
const LENGTH: u64 = 64 * 1024;

/// The submission that the library makes for `file > chain > socket`: an entry, and the descriptor that it
/// points to.
fn command(chain: &[Operator]) -> ([u8; 64], Vec<u8>) {
    let mut descriptor = vec![0; 4096];
    let mut builder = Builder::new(&mut descriptor).expect("a header fits");
    let file = Endpoint { kind: EndpointKind::File as u8, handle: 1, ..Default::default() };
    let extent = [Extent { offset: 0, length: LENGTH }];
    builder.endpoint(EndpointRole::Source, file, &extent).expect("an extent fits");
    let socket = Endpoint { kind: EndpointKind::Flow as u8, handle: 2, ..Default::default() };
    builder.endpoint(EndpointRole::Destination, socket, &[]).expect("it needs no room");
    for (at, operator) in chain.iter().enumerate() {
        builder.parameter(at, &vec![7; operator.info().parameter.0]).expect("parameters fit");
    }
    let length = builder.finish();
    descriptor.truncate(length);
    let mut op_chain = [0; CHAIN_MAX];
    op_chain.iter_mut().zip(chain).for_each(|(number, operator)| *number = *operator as u8);
    let entry = SubmissionEntry {
        opcode: OPCODE_TRANSFER,
        descriptor_length: length as u32,
        descriptor_address: 0x1000,
        result_address: 0x8000,
        op_chain,
        length: LENGTH_TO_END,
        ..Default::default()
    };
    (entry.to_bytes(), descriptor)
}

/// The answer of a device.
fn outcome(operation: &Operation, chain: &[Operator]) -> Outcome {
    match operation.kind {
        OperationKind::Read { length, .. } | OperationKind::Write { length, .. } => {
            Outcome::Moved { bytes: u64::from(length), path: 1, held: false }
        }
        OperationKind::Process { operator, length, last, .. } => {
            let operator = chain[operator as usize];
            let size = operator.digest_size() as u8;
            if last && size > 0 {
                Outcome::Digest(DigestSlot { operator: operator as u8, size, ..Default::default() })
            } else {
                Outcome::Processed { consumed: length, produced: 0, finished: false }
            }
        }
        other => unreachable!("a transfer of one block has no {other:?}"),
    }
}

/// Runs transfers, one at a time. This is what is counted.
#[inline(never)]
fn counted(engine: &mut Engine, queue: QueueId, transfers: u32, chain: &[Operator]) {
    let (entry, descriptor) = command(chain);
    let depth = u32::from(QueueConfig::default().depth);
    let mut now = 0;
    for number in 1..=transfers {
        let slot = number % depth;
        now += 1000;
        engine.handle(now, Event::SubmissionDoorbell { queue, tail: slot });
        while let Some(action) = engine.poll_action() {
            match action {
                Action::FetchEntry { queue, .. } => engine.handle(now, Event::Entry { queue, bytes: &entry }),
                Action::FetchDescriptor { command, .. } => {
                    engine.handle(now, Event::Descriptor { command, bytes: Some(&descriptor) });
                }
                Action::Bind { command, .. } => {
                    engine.handle(now, Event::Bound { command, binding: Ok(Binding::default()) });
                }
                Action::Issue(operation) => {
                    let outcome = outcome(&operation, chain);
                    engine.handle(now, Event::Done { operation: operation.id, outcome });
                }
                Action::Complete { entry, result, .. } => {
                    assert!(entry.status().is_success());
                    let (_, area) = black_box(result).expect("asked for");
                    engine.recycle(area);
                    engine.handle(now, Event::CompletionDoorbell { queue, head: slot });
                }
                Action::Unbind { .. } => {}
                other => unreachable!("a success has no {other:?}"),
            }
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let transfers = arguments.next().and_then(|number| number.parse().ok());
    let chain: Option<Vec<Operator>> = arguments.map(|name| Operator::from_name(&name)).collect();
    let (Some(transfers), Some(chain)) = (transfers, chain) else {
        eprintln!("usage: alone TRANSFERS [OPERATOR]...");
        return ExitCode::FAILURE;
    };
    let mut engine = Engine::new(Config::default()).expect("the default sizes are sound");
    let queue = engine.add_queue(QueueConfig::default()).expect("it is the first");
    counted(&mut engine, queue, transfers, &chain);
    assert!(engine.is_idle() && engine.counters().completions == u64::from(transfers));
    println!("{transfers} transfers, {} operations", engine.counters().operations);
    ExitCode::SUCCESS
}
