//! Tests the GPU's controller, on a stand-in for CUDA's driver, and on a real GPU if there is one.
//!
//! The reference is `dcs-ndp`'s results, and definitions.

#[path = "cuda/stand_in.rs"]
mod stand_in;

use dcs_abi::status::Status;
use dcs_devices::gpu::{Answer, GpuError, GpuOptions, Job, Work};
use dcs_devices::{Controller, Event, Io, Setup};
use dcs_engine::{BlockId, Failure, OperationId};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BLOCK: usize = 16384;
const BLOCKS: u32 = 40;
const MD5_START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
const CRC32C: u32 = 0x82f6_3b78;

fn setup() -> Setup {
    Setup { blocks: BLOCKS, block_size: BLOCK as u32, io: Io::Plain, by_callers: false }
}

fn controller(device: u32) -> Option<Controller> {
    let library = stand_in::library()?.to_path_buf();
    let mut controller = Controller::new(setup()).unwrap();
    controller
        .attach_gpu(setup(), &GpuOptions { device, library: Some(library), ..GpuOptions::default() })
        .unwrap();
    Some(controller)
}

/// Settings with larger blocks: their jobs take more than one block of the GPU's threads.
fn large() -> Setup {
    Setup { blocks: 8, block_size: 1 << 20, io: Io::Plain, by_callers: false }
}

/// Checks remainders of pieces around whole multiples of what one block of threads takes, all in one batch.
fn check_large_pieces(mut controller: Controller) {
    let unit = 128 << 10;
    let lengths = [unit - 1, unit, unit + 1, 3 * unit - 1, 5 * unit + 1, 8 * unit, 1, 8 * unit - 17];
    let mut expected = Vec::new();
    for (at, length) in lengths.into_iter().enumerate() {
        let bytes = fill(&mut controller, at as u32, length as u32);
        expected.push((at as u64, Ok(Answer::Crc32(crc(CRC32C, &bytes[..length])))));
        let work = Work::Crc32 { polynomial: CRC32C };
        let job = Job { operation: operation(at as u64), block: BlockId(at as u32), piece: 0..length, work };
        controller.compute(job).unwrap();
    }
    assert_eq!(answers(&mut controller, lengths.len()), expected);
}

fn operation(number: u64) -> OperationId {
    OperationId::from_bits(number)
}

fn fill(controller: &mut Controller, block: u32, seed: u32) -> Vec<u8> {
    let bytes = controller.pool.get_mut(BlockId(block)).unwrap().bytes_mut();
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    for byte in bytes.iter_mut() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    bytes.to_vec()
}

/// Returns the answers of this many jobs, by their operations.
fn answers(controller: &mut Controller, jobs: usize) -> Vec<(u64, Result<Answer, Failure>)> {
    let mut events = Vec::new();
    let mut answers = Vec::new();
    let end = Instant::now() + Duration::from_secs(30);
    while answers.len() < jobs {
        assert!(Instant::now() < end, "{} of {jobs} jobs are done", answers.len());
        controller.poll(&mut events);
        let before = answers.len();
        for event in events.drain(..) {
            match event {
                Event::Computed(operation, result) => answers.push((operation.to_bits(), result)),
                other => panic!("{other:?}"),
            }
        }
        if answers.len() == before {
            controller.wait(None);
        }
    }
    answers.sort_by_key(|answer| answer.0);
    controller.poll(&mut events);
    assert!(events.is_empty(), "an operation is answered once");
    answers
}

fn crc(polynomial: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |register, byte| {
        (0..8).fold(register ^ u32::from(*byte), |register, _| {
            register >> 1 ^ if register & 1 == 1 { polynomial } else { 0 }
        })
    })
}

fn all_blocks_are_back(controller: &Controller) -> bool {
    (0..BLOCKS).all(|block| controller.pool.get(BlockId(block)).is_some())
}

#[test]
fn remainders_of_pieces_of_any_length_and_place() {
    let Some(mut controller) = controller(0) else { return };
    let lengths = [1, 2, 15, 16, 17, 100, 1023, 1024, 1025, 4096, 5000, BLOCK - 7, BLOCK];
    for (at, length) in lengths.into_iter().enumerate() {
        let bytes = fill(&mut controller, at as u32, length as u32);
        let start = (BLOCK - length).min(at);
        let piece = start..start + length;
        let work = Work::Crc32 { polynomial: CRC32C };
        let job =
            Job { operation: operation(at as u64), block: BlockId(at as u32), piece: piece.clone(), work };
        controller.compute(job).unwrap();
        assert!(controller.pool.get(BlockId(at as u32)).is_none(), "the GPU has it");
        let done = answers(&mut controller, 1);
        assert_eq!(
            done,
            [(at as u64, Ok(Answer::Crc32(crc(CRC32C, &bytes[piece]))))],
            "{length} from {start}"
        );
        assert_eq!(controller.pool.get(BlockId(at as u32)).unwrap().bytes(), bytes, "it changes nothing");
    }
}

#[test]
fn many_streams_go_together_and_each_has_its_own_state() {
    let Some(mut controller) = controller(0) else { return };
    let mut sums = Vec::new();
    for round in 0..3 {
        let mut before = Vec::new();
        for block in 0..BLOCKS {
            before.push(fill(&mut controller, block, block + 1000 * round));
            let length = (block as usize % 5 + 1) * 64;
            let start = MD5_START.map(|word| word ^ block);
            let work = if block % 3 == 2 { Work::Crc32 { polynomial: CRC32C } } else { Work::Md5(start) };
            let piece = 3..3 + length;
            controller
                .compute(Job { operation: operation(u64::from(block)), block: BlockId(block), piece, work })
                .unwrap();
        }
        let done = answers(&mut controller, BLOCKS as usize);
        for (block, answer) in &done {
            let bytes = &before[*block as usize];
            let length = (*block as usize % 5 + 1) * 64;
            match answer {
                Ok(Answer::Crc32(value)) => assert_eq!(*value, crc(CRC32C, &bytes[3..3 + length])),
                Ok(Answer::Md5(state)) => sums.push((*block, *state)),
                other => panic!("{other:?}"),
            }
            assert_eq!(controller.pool.get(BlockId(*block as u32)).unwrap().bytes(), bytes);
        }
    }
    // No two streams have the same state. MD5 of a stream from its beginning is tested with digests, in crates/dcs.
    sums.sort_unstable();
    sums.dedup_by_key(|sum| sum.1);
    assert_eq!(sums.len(), 3 * (BLOCKS as usize - BLOCKS as usize / 3));
}

#[test]
fn counter_mode_is_its_own_inverse_and_changes_the_piece_alone() {
    let Some(mut controller) = controller(0) else { return };
    let before = fill(&mut controller, 0, 5);
    let work = |skip| Work::Aes256Ctr {
        keys: Box::new(std::array::from_fn(|at| (at as u32).wrapping_mul(2_654_435_761))),
        counter: u128::MAX - 3,
        skip,
    };
    for (skip, piece) in [(0, 0..BLOCK), (7, 5..1005), (15, 100..101), (1, 0..BLOCK)] {
        for round in 0..2 {
            let job =
                Job { operation: operation(1), block: BlockId(0), piece: piece.clone(), work: work(skip) };
            controller.compute(job).unwrap();
            assert_eq!(answers(&mut controller, 1), [(1, Ok(Answer::Changed))]);
            let bytes = controller.pool.get(BlockId(0)).unwrap().bytes();
            assert_eq!(bytes[..piece.start], before[..piece.start]);
            assert_eq!(bytes[piece.end..], before[piece.end..]);
            assert_eq!(bytes == before, round == 1);
        }
    }
}

#[test]
fn a_job_that_waits_can_be_aborted_and_its_block_comes_back() {
    let Some(mut controller) = controller(4) else { return };
    let job = |number: u64| Job {
        operation: operation(number),
        block: BlockId(number as u32),
        piece: 0..64,
        work: Work::Md5(MD5_START),
    };
    controller.compute(job(0)).unwrap();
    controller.compute(job(1)).unwrap();
    // No lane has it: nothing has polled.
    controller.abort(operation(1));
    let done = answers(&mut controller, 2);
    assert!(done[0].1.is_ok());
    assert_eq!(done[1].1, Err(Failure::new(Status::Cancelled)));
    assert!(all_blocks_are_back(&controller));
}

#[test]
fn a_gpu_that_is_lost_fails_what_it_had_and_gives_every_block_back() {
    for device in [1, 1003, 1010, 1017, 2030, 3070, 3075, 3100] {
        let Some(mut controller) = lossy(device) else { continue };
        let failed = (0..20).map(|round| lossy_round(&mut controller, round)).sum::<usize>();
        assert!(failed > 0, "device {device}");
        let trouble = controller.gpu_trouble().unwrap().to_string();
        assert!(trouble.contains("CUDA_ERROR"), "{trouble}");
    }
}

#[test]
fn a_gpu_that_does_not_let_go_keeps_what_it_has() {
    let Some(mut controller) = controller(13) else { return };
    let mut lost = Vec::new();
    for round in 0..3 {
        let mut asked = 0;
        for block in 0..6 {
            fill(&mut controller, block, round);
            // Of two kinds, so that one is in progress when the other fails.
            let work = match block % 2 {
                0 => Work::Crc32 { polynomial: CRC32C },
                _ => Work::Aes256Ctr { keys: Box::new([round; 60]), counter: 1, skip: 0 },
            };
            let job =
                Job { operation: operation(block.into()), block: BlockId(block), piece: 0..BLOCK, work };
            asked += usize::from(controller.compute(job).is_ok());
        }
        let done = answers(&mut controller, asked);
        lost.extend(
            done.iter().filter(|(_, result)| result.is_err()).map(|(block, _)| BlockId(*block as u32)),
        );
        if !lost.is_empty() {
            break;
        }
    }
    assert!(!lost.is_empty() && lost.len() < BLOCKS as usize);
    assert!(controller.gpu_trouble().unwrap().to_string().contains("cuCtxDestroy"));
    let there = |block: &BlockId| controller.pool.get(*block).is_some();
    assert!(!lost.iter().any(there), "they are never used again");
    assert_eq!((0..BLOCKS).map(BlockId).filter(there).count(), BLOCKS as usize - lost.len());
    // The GPU continues with them after that.
    drop(controller);
    std::thread::sleep(Duration::from_millis(20));
}

/// Runs six jobs, some of which change their blocks; returns how many failed.
fn lossy_round(controller: &mut Controller, round: u32) -> usize {
    let (mut before, mut asked, mut failed) = (Vec::new(), 0, 0);
    for block in 0..6 {
        before.push(fill(controller, block, round));
        let work = match block % 2 {
            0 => Work::Crc32 { polynomial: CRC32C },
            _ => Work::Aes256Ctr { keys: Box::new([round; 60]), counter: 1, skip: 0 },
        };
        let job = Job { operation: operation(block.into()), block: BlockId(block), piece: 0..BLOCK, work };
        match controller.compute(job) {
            Ok(()) => asked += 1,
            Err(failure) => {
                assert_eq!(failure.status, Status::DeviceReset);
                assert!(controller.gpu_trouble().is_some());
            }
        }
    }
    for (block, answer) in answers(controller, asked) {
        match answer {
            Ok(Answer::Changed) => assert_eq!(block % 2, 1),
            Ok(answer) => assert_eq!(answer, Answer::Crc32(crc(CRC32C, &before[block as usize]))),
            Err(failure) => {
                assert_eq!(failure.status, Status::DeviceReset);
                failed += 1;
            }
        }
    }
    assert!(all_blocks_are_back(controller));
    let unchanged =
        |block: u32| controller.pool.get(BlockId(block)).unwrap().bytes() == before[block as usize];
    assert!((0..6).step_by(2).all(unchanged), "a digest changes nothing");
    // They are the engine's again: the GPU no longer writes to them.
    for block in 0..6 {
        controller.pool.get_mut(BlockId(block)).unwrap().bytes_mut().fill(0x5a);
    }
    std::thread::sleep(Duration::from_millis(2));
    let mine = |block| controller.pool.get(BlockId(block)).unwrap().bytes().iter().all(|byte| *byte == 0x5a);
    assert!((0..6).all(mine), "bytes of another user");
    failed
}

/// Makes a controller that loses jobs. Jobs lost while it is made fail with an error, which is fine too.
fn lossy(device: u32) -> Option<Controller> {
    let library = stand_in::library()?.to_path_buf();
    let mut controller = Controller::new(setup()).unwrap();
    match controller
        .attach_gpu(setup(), &GpuOptions { device, library: Some(library), ..GpuOptions::default() })
    {
        Ok(_) => Some(controller),
        Err(error) => {
            assert!(matches!(error, GpuError::Call { .. }), "{error}");
            println!("device {device}: {error}");
            None
        }
    }
}

#[test]
fn a_call_that_is_refused_fails_its_batch_alone() {
    let Some(mut controller) = controller(3) else { return };
    let (mut good, mut bad) = (0, 0);
    for round in 0..8 {
        let before = fill(&mut controller, 0, round);
        let work = Work::Aes256Ctr { keys: Box::new([round; 60]), counter: 1, skip: 0 };
        controller
            .compute(Job { operation: operation(1), block: BlockId(0), piece: 0..BLOCK, work })
            .unwrap();
        let after = |controller: &Controller| controller.pool.get(BlockId(0)).unwrap().bytes().to_vec();
        match answers(&mut controller, 1)[0].1 {
            Ok(_) => {
                good += 1;
                assert_ne!(after(&controller), before);
            }
            Err(failure) => {
                bad += 1;
                assert_eq!(failure.status, Status::DeviceReset);
                assert_eq!(after(&controller), before);
            }
        }
    }
    assert_eq!((good, bad), (4, 4));
}

#[test]
fn every_call_may_be_refused() {
    let Some(library) = stand_in::library() else { return };
    let (mut refused, mut started) = (0, 0);
    for call in 1..140 {
        let mut controller = Controller::new(setup()).unwrap();
        let wanted =
            GpuOptions { device: 2000 + call, library: Some(library.to_path_buf()), ..GpuOptions::default() };
        match controller.attach_gpu(setup(), &wanted) {
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("CUDA_ERROR_UNKNOWN"), "{error}");
            }
            Ok(_) => started += 1,
        }
        let bytes = fill(&mut controller, 0, call);
        let work = Work::Crc32 { polynomial: CRC32C };
        if controller
            .compute(Job { operation: operation(1), block: BlockId(0), piece: 0..BLOCK, work })
            .is_ok()
        {
            match answers(&mut controller, 1)[0].1 {
                Ok(answer) => assert_eq!(answer, Answer::Crc32(crc(CRC32C, &bytes))),
                Err(failure) => assert_eq!(failure.status, Status::DeviceReset),
            }
        }
        assert!(all_blocks_are_back(&controller));
    }
    assert!(refused > 20 && started > 20, "{refused} {started}");
}

#[test]
fn what_is_missing_is_said() {
    let mut controller = Controller::new(setup()).unwrap();
    let mut attach = |device, library: Option<PathBuf>| {
        controller.attach_gpu(setup(), &GpuOptions { device, library, ..GpuOptions::default() }).unwrap_err()
    };
    let missing = attach(0, Some("/no/such/libcuda.so.1".into()));
    let text = missing.to_string();
    assert!(text.contains("/no/such/libcuda.so.1") && text.contains("not installed"), "{text}");
    let other = attach(0, Some("libc.so.6".into()));
    assert!(matches!(other, GpuError::OldDriver { .. }), "{other}");
    if let Some(library) = stand_in::library() {
        assert_eq!(attach(77, Some(library.into())), GpuError::NoSuchDevice(77));
        let small = attach(2, Some(library.into())).to_string();
        assert!(small.contains("memory"), "{small}");
    }
}

#[test]
fn pieces_of_many_blocks_of_threads() {
    let Some(library) = stand_in::library() else { return };
    let mut controller = Controller::new(large()).unwrap();
    controller
        .attach_gpu(
            large(),
            &GpuOptions { device: 0, library: Some(library.into()), ..GpuOptions::default() },
        )
        .unwrap();
    check_large_pieces(controller);
}

#[test]
fn a_real_gpu_computes_the_same() {
    let mut larger = Controller::new(large()).unwrap();
    if larger.attach_gpu(large(), &GpuOptions::default()).is_ok() {
        check_large_pieces(larger);
    }
    let mut controller = Controller::new(setup()).unwrap();
    match controller.attach_gpu(setup(), &GpuOptions::default()) {
        Ok(properties) => {
            println!("{properties:?}");
            assert!(!properties.stand_in, "DCS_CUDA_LIBRARY names a stand-in");
        }
        Err(error) if std::env::var_os("DCS_GPU").is_some_and(|value| value == "demand") => panic!("{error}"),
        Err(error) => return println!("skipped: {error}"),
    }
    for block in 0..BLOCKS {
        let length = BLOCK - block as usize;
        let bytes = fill(&mut controller, block, block);
        let work = Work::Crc32 { polynomial: CRC32C };
        let job = Job { operation: operation(1), block: BlockId(block), piece: 0..length, work };
        controller.compute(job).unwrap();
        let done = answers(&mut controller, 1);
        assert_eq!(done[0].1, Ok(Answer::Crc32(crc(CRC32C, &bytes[..length]))));
    }
}
