//! Operators on a GPU, through the whole library: on a stand-in of CUDA's driver
//! (`crates/devices/tests/cuda`), and on a real GPU where there is one.
//!
//! In every test with a fault: a success has the right bytes and the right digests; nothing is written that
//! was not granted; a failure names its stage.

mod gpu_common;
#[path = "../../devices/tests/cuda/stand_in.rs"]
mod stand_in;

use dcs::{Driver, Engine, Error, Op, Operator, Sink, Source, Stage, Status, TransferError};
use dcs_testkit::bytes as data;
use gpu_common::{check, ctr, expected};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const BLOCK: u32 = 16 * 1024;

fn builder() -> dcs::engine::Builder {
    Engine::builder().block_size(BLOCK).blocks(64).sessions(4)
}

/// An engine with that device of the stand-in.
fn engine(device: u32) -> Option<Engine> {
    let library = stand_in::library()?;
    Some(builder().gpu(device).gpu_library(library).start().expect("the stand-in has it"))
}

/// One with a real GPU.
fn real() -> Option<Engine> {
    match builder().gpu(0).start() {
        Ok(engine) => {
            assert!(engine.gpu().is_some_and(|gpu| !gpu.stand_in), "DCS_CUDA_LIBRARY names a stand-in");
            Some(engine)
        }
        Err(error) => {
            assert!(std::env::var_os("DCS_GPU").is_none_or(|value| value != "demand"), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

fn all() -> Vec<Op> {
    vec![Op::Md5, ctr(1), Op::Sha256, Op::Crc32, ctr(2), Op::Crc32c]
}

fn on_gpu(chain: &[Op]) -> Vec<Op> {
    chain.iter().cloned().map(Op::on_gpu).collect()
}

/// Checks that the part which a failed transfer had delivered is the beginning of all that it should have
/// delivered.
fn check_failure(error: &TransferError, chain: &[Op], input: &[u8], delivered: &[u8]) {
    assert_eq!(error.stage, Stage::Operator, "{error}");
    assert!(error.on_gpu && error.operator.is_some(), "{error}");
    assert!(error.to_string().contains("(gpu:"), "{error}");
    let expected = expected(chain, input).output;
    let end = error.completion.bytes_out as usize;
    assert!(expected[..end] == delivered[..end], "{error}");
}

fn operators_on(engine: &Engine) {
    let session = engine.session().unwrap();
    let block = BLOCK as usize;
    for (round, length) in
        [0, 1, 15, 16, 63, 64, 65, 1000, block - 1, block, block + 1, 5 * block + 77].into_iter().enumerate()
    {
        let input = data(length, round as u64);
        let mut chains: Vec<Vec<Op>> = all().into_iter().map(|op| vec![op.on_gpu()]).collect();
        chains.push(on_gpu(&all()));
        chains.push(vec![Op::Md5, ctr(3).on_gpu(), Op::Md5.on_gpu(), ctr(4), Op::Crc32.on_gpu(), Op::Crc32]);
        for chain in chains {
            let source = Source::memory(input.clone());
            let done = session.transfer(source, chain.clone(), Sink::memory(length)).unwrap().wait().unwrap();
            check(&done, done.memory.as_deref().unwrap(), &chain, &input);
            assert!(length == 0 || done.path.has(dcs_abi::result::PATH_GPU));
        }
    }
}

#[test]
fn operators_compute_what_they_compute_on_the_cpu() {
    if let Some(engine) = engine(0) {
        operators_on(&engine);
        assert!(engine.statistics().is_idle && engine.gpu_trouble().is_none());
        assert_eq!(engine.gpu().unwrap().device, 0);
    }
}

#[test]
fn a_real_gpu_computes_what_the_cpu_computes() {
    if let Some(engine) = real() {
        println!("{:?}", engine.gpu());
        operators_on(&engine);
        many_streams_on(&engine);
    }
}

/// Bytes that come off sockets in pieces of any length, and go out on sockets, many streams at a time.
fn many_streams_on(engine: &Engine) {
    let session = engine.session().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pair = || {
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    };
    let streams = 24;
    let mut running = Vec::new();
    for number in 0..streams {
        let ((feeder, source), (sink, taker)) = (pair(), pair());
        let input = data(100_000 + 7919 * number, number as u64);
        let chain = match number % 3 {
            0 => vec![Op::Md5.on_gpu()],
            1 => vec![ctr(number as u8).on_gpu(), Op::Sha256.on_gpu()],
            _ => on_gpu(&all()),
        };
        let bytes = input.clone();
        let feed = std::thread::spawn(move || {
            let mut feeder = feeder;
            let (mut at, mut step) = (0, 1 + number);
            while at < bytes.len() {
                let end = bytes.len().min(at + step);
                feeder.write_all(&bytes[at..end]).unwrap();
                at = end;
                step = step * 3 % 5003 + 1;
            }
        });
        let take = std::thread::spawn(move || {
            let mut taken = Vec::new();
            { taker }.read_to_end(&mut taken).unwrap();
            taken
        });
        let transfer = session.transfer(Source::socket(&source), chain.clone(), Sink::socket(&sink)).unwrap();
        running.push((transfer, chain, input, feed, take, sink));
    }
    for (transfer, chain, input, feed, take, sink) in running {
        let done = transfer.wait().unwrap();
        feed.join().unwrap();
        drop(sink);
        check(&done, &take.join().unwrap(), &chain, &input);
    }
}

#[test]
fn many_streams_at_once_do_not_mix() {
    if let Some(engine) = engine(0) {
        many_streams_on(&engine);
        let counted = engine.statistics();
        assert!(counted.is_idle);
        println!("{} blocks in {} batches", counted.gpu_blocks, counted.gpu_batches);
        assert!(
            counted.gpu_blocks > counted.gpu_batches * 3 / 2,
            "blocks of many streams go together: {counted:?}"
        );
    }
}

#[test]
fn a_caller_may_drive_it() {
    let Some(library) = stand_in::library() else { return };
    let engine = builder().driver(Driver::Caller).gpu(0).gpu_library(library).start().unwrap();
    operators_on(&engine);
}

#[test]
fn a_value_that_is_expected_is_checked_before_the_last_bytes_go_out() {
    let Some(engine) = engine(0) else { return };
    let session = engine.session().unwrap();
    let input = data(3 * BLOCK as usize, 9);
    let value = expected(&[Op::Md5], &input).digests[0].unwrap().as_bytes().to_vec();
    for (value, right) in [(value.clone(), true), (vec![1; 16], false)] {
        let op = Op::Expect { digest: Operator::Md5, value }.on_gpu();
        let done =
            session.transfer(Source::memory(input.clone()), [op], Sink::memory(input.len())).unwrap().wait();
        match done {
            Ok(done) => assert!(right && done.memory.unwrap() == input),
            Err(error) => {
                assert!(!right && error.status == Status::DigestMismatch, "{error}");
                assert!(error.completion.bytes_out < input.len() as u64);
            }
        }
    }
}

#[test]
fn an_engine_without_a_gpu_says_so_and_does_nothing() {
    let engine = builder().start().unwrap();
    let session = engine.session().unwrap();
    let refused = session.transfer(Source::memory(vec![1]), [Op::Md5.on_gpu()], Sink::memory(1)).unwrap_err();
    assert!(matches!(refused, Error::NoGpu("gpu:md5", 0)), "{refused}");
    assert!(refused.to_string().starts_with("gpu:md5: this engine has no GPU"));
    let missing = builder().gpu(0).gpu_library("/no/such/libcuda.so.1").start().unwrap_err().to_string();
    assert!(missing.contains("no GPU: /no/such/libcuda.so.1 cannot be loaded"), "{missing}");
}

#[test]
fn what_no_gpu_does_is_an_unknown_operator() {
    let Some(engine) = engine(0) else { return };
    let session = engine.session().unwrap();
    for op in [Op::Sha1, Op::Gzip { level: 1 }, Op::Slice { skip: 0, take: 1 }] {
        let transfer = session.transfer(Source::memory(vec![1]), [op.on_gpu()], Sink::memory(100)).unwrap();
        let error = transfer.wait().unwrap_err();
        assert_eq!((error.status, error.stage), (Status::UnknownOperator, Stage::Operator));
    }
    let bad = Op::Raw { number: Operator::Aes256Ctr as u8, parameter: vec![1; 47] }.on_gpu();
    let error =
        session.transfer(Source::memory(vec![1]), [bad], Sink::memory(9)).unwrap().wait().unwrap_err();
    assert_eq!(error.status, Status::BadParameter);
}

#[test]
fn a_gpu_that_fails_at_any_moment_fails_transfers_and_nothing_else() {
    let mut lost = 0;
    // The first six: at each of the first asynchronous things; then every few, and calls that are refused
    // from some call on.
    for device in (1001..1007).chain((1007..1200).step_by(13)).chain([1, 3]).chain((3080..3200).step_by(11)) {
        let Some(library) = stand_in::library() else { return };
        let Ok(engine) = builder().gpu(device).gpu_library(library).start() else { continue };
        let session = engine.session().unwrap();
        let (mut running, mut failed) = (Vec::new(), 0);
        for number in 0..12 {
            let input = data(70_000 + number * 1000, u64::from(device) + number as u64);
            let chain =
                if number % 2 == 0 { on_gpu(&all()) } else { vec![Op::Md5.on_gpu(), ctr(9).on_gpu()] };
            let source = Source::memory(input.clone());
            let transfer = session.transfer(source, chain.clone(), Sink::memory(input.len())).unwrap();
            running.push((transfer, chain, input));
        }
        for (transfer, chain, input) in running {
            match transfer.wait() {
                Ok(done) => check(&done, done.memory.as_deref().unwrap(), &chain, &input),
                Err(error) => {
                    failed += 1;
                    assert_eq!(error.status, Status::DeviceReset, "{error}");
                    check_failure(&error, &chain, &input, error.completion.memory.as_deref().unwrap());
                }
            }
        }
        if failed > 0 {
            lost += 1;
            let trouble = engine.gpu_trouble().unwrap();
            assert!(trouble.contains("CUDA_ERROR"), "{trouble}");
        }
        // The engine is as good as new, but for the GPU.
        let input = data(50_000, 1);
        let done = session.transfer(Source::memory(input.clone()), all(), Sink::memory(input.len())).unwrap();
        let done = done.wait().unwrap();
        check(&done, done.memory.as_deref().unwrap(), &all(), &input);
        let counted = engine.statistics();
        assert!(counted.is_idle && counted.blocks_free == counted.blocks, "device {device}: {counted:?}");
    }
    assert!(lost > 20, "{lost}");
}

#[test]
fn a_slow_gpu_holds_up_nobody_else_and_a_transfer_may_give_up() {
    let Some(engine) = engine(4) else { return };
    let session = engine.session().unwrap();
    let input = data(10 * BLOCK as usize, 3);
    let sink = Sink::memory(input.len());
    let slow = session.request(Source::memory(input.clone()), [Op::Md5.on_gpu()], sink);
    let slow = slow.timeout(Duration::from_millis(700)).submit().unwrap();
    let began = std::time::Instant::now();
    for _ in 0..20 {
        let done =
            session.transfer(Source::memory(input.clone()), [Op::Md5], Sink::memory(input.len())).unwrap();
        let done = done.wait().unwrap();
        check(&done, done.memory.as_deref().unwrap(), &[Op::Md5], &input);
    }
    assert!(began.elapsed() < Duration::from_millis(600), "they waited for the GPU: {:?}", began.elapsed());
    let error = slow.wait().unwrap_err();
    assert_eq!(error.status, Status::Timeout, "{error}");
    assert!(engine.statistics().is_idle);
}

/// Cancelled is cancelled, and what was delivered is the beginning of what should have been.
fn check_cancelled(error: &TransferError, chain: &[Op], input: &[u8]) {
    assert_eq!(error.status, Status::Cancelled, "{error}");
    let expected = expected(chain, input).output;
    let delivered = error.completion.memory.as_deref().unwrap();
    assert!(expected[..delivered.len()] == *delivered, "{error}");
}

#[test]
fn transfers_that_are_cancelled_at_any_moment_leave_nothing_behind() {
    let Some(engine) = engine(0) else { return };
    let session = engine.session().unwrap();
    let input = data(9 * BLOCK as usize + 99, 5);
    let (mut done, mut cancelled) = (0, 0);
    for round in 0..40u64 {
        let chain = if round % 2 == 0 { on_gpu(&all()) } else { vec![ctr(round as u8).on_gpu()] };
        let start =
            || session.transfer(Source::memory(input.clone()), chain.clone(), Sink::memory(input.len()));
        let running: Vec<_> = (0..6).map(|_| start().unwrap()).collect();
        for (at, transfer) in running.iter().enumerate() {
            if at % 3 != 0 {
                std::thread::sleep(Duration::from_micros(round * 37 % 900));
                transfer.cancel();
            }
        }
        for transfer in running {
            match transfer.wait() {
                Ok(completion) => {
                    done += 1;
                    check(&completion, completion.memory.as_deref().unwrap(), &chain, &input);
                }
                Err(error) => {
                    cancelled += 1;
                    check_cancelled(&error, &chain, &input);
                }
            }
        }
        assert!(engine.statistics().is_idle);
    }
    assert!(done >= 80 && cancelled > 20, "{done} {cancelled}");
}

#[test]
fn a_gpu_that_answers_when_its_command_has_long_ended_is_not_listened_to() {
    let Some(engine) = engine(5) else { return };
    let session = engine.session().unwrap();
    let input = data(4 * BLOCK as usize, 6);
    let hung = session.request(Source::memory(input.clone()), [ctr(1).on_gpu()], Sink::memory(input.len()));
    let began = std::time::Instant::now();
    let error = hung.timeout(Duration::from_millis(100)).submit().unwrap().wait().unwrap_err();
    // The grace that an engine gives what was aborted is over before the GPU answers.
    assert_eq!(error.status, Status::Timeout, "{error}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    // Other commands are in its place when the answer comes, on the CPU and on the GPU.
    while began.elapsed() < Duration::from_secs(8) {
        for chain in [vec![ctr(2).on_gpu(), Op::Md5.on_gpu()], all()] {
            let source = Source::memory(input.clone());
            let done =
                session.transfer(source, chain.clone(), Sink::memory(input.len())).unwrap().wait().unwrap();
            check(&done, done.memory.as_deref().unwrap(), &chain, &input);
        }
    }
    let counted = engine.statistics();
    assert!(counted.is_idle && counted.blocks_free == counted.blocks, "{counted:?}");
}

#[test]
fn an_engine_ends_while_its_gpu_works() {
    let Some(engine) = engine(4) else { return };
    let session = engine.session().unwrap();
    let input = data(8 * BLOCK as usize, 7);
    let start =
        |op: Op| session.transfer(Source::memory(input.clone()), [op], Sink::memory(input.len())).unwrap();
    let running: Vec<_> = [ctr(1), Op::Md5, Op::Crc32].into_iter().map(|op| start(op.on_gpu())).collect();
    std::thread::sleep(Duration::from_millis(100));
    drop(engine);
    for transfer in running {
        let error = transfer.wait().unwrap_err();
        assert!(matches!(error.status, Status::QueueDeleted | Status::Cancelled), "{error}");
    }
}

#[test]
fn the_kernels_are_what_their_source_compiles_to() {
    // `tools/gpu-kernels --check` compiles them anew, where the compiler can be had; this needs none.
    let source = include_bytes!("../../devices/src/gpu/kernels.cu");
    let digest = expected(&[Op::Sha256], source).digests[0].unwrap().to_string();
    let first = include_str!("../../devices/src/gpu/kernels.ptx").lines().next().unwrap();
    assert!(first.contains(&digest), "kernels.ptx is stale; to mend: tools/gpu-kernels");
}
