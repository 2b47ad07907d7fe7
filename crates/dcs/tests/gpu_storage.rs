//! Files that a GPU reads itself (GPUDirect Storage), through the whole library, on a stand-in of CUDA's
//! driver and of cuFile (`crates/devices/tests/cuda`).
//!
//! In every test with a fault: a success has the right bytes and the right digests; nothing is written that
//! was not granted; a failure names its stage.

mod gpu_common;
#[path = "../../devices/tests/cuda/stand_in.rs"]
mod stand_in;

use dcs::gpu::StorageError;
use dcs::{Driver, Engine, Io, Mode, Op, Sink, Source, Stage, Status};
use dcs_abi::result::{PATH_GPU, PATH_GPU_STORAGE, PATH_SOURCE_CACHED, PATH_SOURCE_DIRECT};
use dcs_testkit::bytes as data;
use gpu_common::{check, ctr, expected};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: u32 = 16 * 1024;

fn builder() -> dcs::engine::Builder {
    Engine::builder().block_size(BLOCK).blocks(64).sessions(4)
}

fn engine(device: u32, mode: Mode) -> Option<Engine> {
    let library = stand_in::library()?;
    let builder = builder().gpu(device).gpu_library(library).gpu_storage(mode).gpu_storage_library(library);
    Some(builder.start().expect("the stand-in has it"))
}

/// A file that the page cache has nothing of.
fn uncached(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    file
}

/// Chains that begin on the GPU. What gzip writes at level 1 is not always the same bytes.
fn chains() -> Vec<Vec<Op>> {
    vec![
        vec![Op::Md5.on_gpu()],
        vec![ctr(1).on_gpu()],
        vec![Op::Md5.on_gpu(), ctr(2).on_gpu()],
        vec![Op::Crc32.on_gpu(), Op::Sha256.on_gpu(), ctr(3).on_gpu(), Op::Md5, Op::Crc32c.on_gpu()],
        vec![Op::Sha256.on_gpu(), Op::Crc32],
        vec![ctr(4).on_gpu(), ctr(5).on_gpu(), Op::Gzip { level: 2 }],
        vec![Op::Crc32c.on_gpu(), Op::Gzip { level: 2 }, Op::Md5.on_gpu()],
    ]
}

/// Room for what a chain makes of this many bytes.
fn room(length: usize) -> Sink {
    Sink::memory(length + length / 100 + 1000)
}

#[test]
fn files_go_to_the_gpu_and_come_to_the_same() {
    let Some(engine) = engine(0, Mode::Auto) else { return };
    assert_eq!(engine.gpu_storage().unwrap().as_ref().unwrap().nvidia_fs, Some((2, 20)));
    let session = engine.session().unwrap();
    let input = data(10 * BLOCK as usize + 3 * 4096 + 77, 1);
    for cache in [Mode::Off, Mode::Auto] {
        for chain in chains() {
            let source = Source::file(&uncached(&input), ..).cache(cache);
            let done = session.transfer(source, chain.clone(), room(input.len())).unwrap().wait().unwrap();
            check(&done, done.memory.as_deref().unwrap(), &chain, &input);
            assert!(
                done.path.has(PATH_GPU | PATH_GPU_STORAGE | PATH_SOURCE_DIRECT),
                "{chain:?} {:?}",
                done.path
            );
        }
    }
    assert!(engine.gpu_trouble().is_none(), "{:?}", engine.gpu_trouble());
    assert!(engine.statistics().is_idle);
}

#[test]
fn whoever_drives_and_however_the_kernel_is_asked() {
    let Some(library) = stand_in::library() else { return };
    let input = data(20 * BLOCK as usize + 5, 4);
    for (driver, io) in [(Driver::Caller, Io::Auto), (Driver::Caller, Io::Plain), (Driver::Thread, Io::Plain)]
    {
        let builder = builder().driver(driver).io(io).gpu(0).gpu_library(library);
        let engine = builder.gpu_storage(Mode::On).gpu_storage_library(library).start().unwrap();
        let session = engine.session().unwrap();
        for chain in chains() {
            let source = Source::file(&uncached(&input), ..).cache(Mode::Off);
            let done = session.transfer(source, chain.clone(), room(input.len())).unwrap().wait().unwrap();
            check(&done, done.memory.as_deref().unwrap(), &chain, &input);
            assert!(done.path.has(PATH_GPU_STORAGE), "{driver:?} {io:?} {:?}", done.path);
        }
    }
}

#[test]
fn who_wants_another_way_gets_it() {
    let (Some(with), Some(without)) = (engine(0, Mode::Auto), engine(0, Mode::Off)) else { return };
    assert!(without.gpu_storage().unwrap().is_err());
    let input = data(3 * BLOCK as usize, 2);
    let cached = || {
        let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        file.write_all(&input).unwrap();
        file
    };
    let on_gpu = vec![ctr(1).on_gpu(), Op::Md5];
    let source = |file: File| Source::file(&file, ..);
    for (engine, source, chain, direct) in [
        (&with, source(uncached(&input)), &on_gpu, true),
        (&with, source(cached()).cache(Mode::Off), &on_gpu, true),
        (&with, source(cached()), &on_gpu, false),
        (&with, source(uncached(&input)).cache(Mode::On), &on_gpu, false),
        (&with, source(uncached(&input)).cache(Mode::Off).zero_copy(Mode::Off), &on_gpu, false),
        (&with, source(uncached(&input)).cache(Mode::Off), &vec![Op::Md5, ctr(1).on_gpu()], false),
        (&with, Source::file(&uncached(&input), 1..).cache(Mode::Off), &on_gpu, false),
        (&with, Source::file(&uncached(&input), ..4095).cache(Mode::Off), &on_gpu, false),
        (&without, source(uncached(&input)).cache(Mode::Off), &on_gpu, false),
    ] {
        let session = engine.session().unwrap();
        let done = session.transfer(source, chain.clone(), room(input.len())).unwrap().wait().unwrap();
        assert_eq!(done.path.has(PATH_GPU_STORAGE), direct, "{:?}", done.path);
        assert!(done.path.has(PATH_GPU) && !(direct && done.path.has(PATH_SOURCE_CACHED)), "{:?}", done.path);
    }
}

/// A file with holes in the page cache, and dirty pages, and what a source of parts of it comes to.
fn parts(round: usize, state: &mut u64) -> (File, Vec<(u64, u64)>, Vec<u8>) {
    let mut next = |below: u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    };
    let mut bytes = data(400_000 + 4096 * round, round as u64);
    let file = uncached(&bytes);
    for _ in 0..next(4) {
        let (at, length) = (next(300_000) as usize, 1 + next(40_000) as usize);
        let other = data(length, at as u64);
        bytes[at..at + length].copy_from_slice(&other);
        file.write_all_at(&other, at as u64).unwrap();
    }
    let whole = |bytes: u64, whole: bool| if whole { bytes / 4096 * 4096 } else { bytes };
    let mut extents = Vec::new();
    for _ in 0..1 + next(3) {
        let aligned = next(4) > 0;
        let offset = whole(next(200_000), aligned);
        extents.push((offset, whole(1 + next(150_000), aligned && next(3) > 0).max(1)));
    }
    let input =
        extents.iter().flat_map(|(at, length)| bytes[*at as usize..(at + length) as usize].iter().copied());
    (file, extents.clone(), input.collect())
}

#[test]
fn any_parts_of_any_files_come_to_what_they_come_to_without_it() {
    let (Some(with), Some(without)) = (engine(0, Mode::On), engine(0, Mode::Off)) else { return };
    let (one, other) = (with.session().unwrap(), without.session().unwrap());
    let (mut state, mut direct) = (7, 0);
    for round in 0..25 {
        let mut running = Vec::new();
        for number in 0..6 {
            let (file, extents, input) = parts(round, &mut state);
            let chain = chains().swap_remove((round + number) % 7);
            let cache = if number % 2 == 0 { Mode::Off } else { Mode::Auto };
            let prefix = data(if number == 5 { 100 + round } else { 0 }, 3);
            let start = |session: &dcs::Session| {
                let source = Source::extents(&file, &extents).cache(cache);
                session
                    .request(source, chain.clone(), room(input.len() + 200))
                    .prefix(prefix.clone())
                    .submit()
                    .unwrap()
            };
            let input = [prefix.clone(), input.clone()].concat();
            running.push((start(&one), start(&other), chain.clone(), input));
        }
        for (one, other, chain, input) in running {
            let (one, other) = (one.wait().unwrap(), other.wait().unwrap());
            check(&one, one.memory.as_deref().unwrap(), &chain, &input);
            check(&other, other.memory.as_deref().unwrap(), &chain, &input);
            direct += usize::from(one.path.has(PATH_GPU_STORAGE));
            assert!(!other.path.has(PATH_GPU_STORAGE));
        }
    }
    assert!(direct > 60, "{direct}");
    assert!(with.gpu_trouble().is_none(), "{:?}", with.gpu_trouble());
    assert!(with.statistics().is_idle && without.statistics().is_idle);
}

#[test]
fn what_fails_at_any_moment_is_read_as_ever_or_fails_where_it_should() {
    let (mut direct, mut lost, mut refused, mut fell_back) = (0, 0, 0, 0);
    let devices = [0, 1, 3, 8, 9].into_iter().chain(1001..1007).chain((1007..1100).step_by(13));
    let devices = devices.chain((3090..3200).step_by(23)).chain((2090..2250).step_by(31));
    let devices = devices.chain(4001..4006).chain(5001..5006).chain(6001..6006).chain(7001..7008);
    for device in devices {
        let Some(library) = stand_in::library() else { return };
        let builder = builder().gpu(device).gpu_library(library).gpu_storage_library(library);
        let Ok(engine) = builder.start() else { continue };
        let is_there = engine.gpu_storage().unwrap().is_ok();
        refused += usize::from(!is_there);
        let session = engine.session().unwrap();
        let mut running = Vec::new();
        for number in 0..8 {
            let input = data(70_000 + number * 4096 + number / 3, u64::from(device) + number as u64);
            let chain = chains().swap_remove(number % 7);
            let source = Source::file(&uncached(&input), ..).cache(Mode::Off);
            running.push((session.transfer(source, chain.clone(), room(input.len())).unwrap(), chain, input));
        }
        for (transfer, chain, input) in running {
            match transfer.wait() {
                Ok(done) => {
                    check(&done, done.memory.as_deref().unwrap(), &chain, &input);
                    let went = done.path.has(PATH_GPU_STORAGE);
                    assert!(is_there || !went, "device {device}");
                    direct += usize::from(went);
                    fell_back += usize::from(is_there && device > 3 && !went);
                }
                Err(error) => {
                    lost += 1;
                    assert_eq!(
                        (error.status, error.stage),
                        (Status::DeviceReset, Stage::Operator),
                        "{device}: {error}"
                    );
                    let expected = expected(&chain, &input).output;
                    let end = error.completion.bytes_out as usize;
                    let delivered = error.completion.memory.as_deref().unwrap();
                    assert!(expected[..end] == delivered[..end], "device {device}: {error}");
                }
            }
        }
        // The engine is as good as new, but for the GPU.
        let input = data(50_000, 1);
        let source = Source::file(&uncached(&input), ..).cache(Mode::Off);
        let done = session.transfer(source, [Op::Md5], room(input.len())).unwrap().wait().unwrap();
        check(&done, done.memory.as_deref().unwrap(), &[Op::Md5], &input);
        let counted = engine.statistics();
        assert!(counted.is_idle && counted.blocks_free == counted.blocks, "device {device}: {counted:?}");
        if [8, 9].contains(&device) || (4000..7000).contains(&device) {
            let trouble = engine.gpu_trouble().unwrap();
            assert!(trouble.contains("GPUDirect Storage"), "device {device}: {trouble}");
        }
    }
    println!("{direct} direct, {lost} lost, {refused} engines without, {fell_back} otherwise");
    assert!(
        direct > 100 && lost > 20 && refused > 2 && fell_back > 10,
        "{direct} {lost} {refused} {fell_back}"
    );
}

#[test]
fn a_file_that_failed_once_is_not_asked_for_again() {
    let Some(library) = stand_in::library() else { return };
    for (device, again) in [(4001, false), (6001, false), (5001, true)] {
        // One block after the other.
        let builder = builder().window(1).gpu(device).gpu_library(library).gpu_storage_library(library);
        let engine = builder.start().unwrap();
        let session = engine.session().unwrap();
        let input = data(5 * BLOCK as usize, 8);
        let source = Source::file(&uncached(&input), ..).cache(Mode::Off);
        let done = session.transfer(source, [ctr(1).on_gpu()], room(input.len())).unwrap().wait().unwrap();
        check(&done, done.memory.as_deref().unwrap(), &[ctr(1)], &input);
        assert_eq!(done.path.has(PATH_GPU_STORAGE), again, "device {device}: {:?}", done.path);
        assert!(engine.gpu_trouble().unwrap().starts_with("GPUDirect Storage: "));
    }
}

#[test]
fn transfers_that_are_cancelled_at_any_moment_leave_nothing_behind() {
    let Some(engine) = engine(0, Mode::On) else { return };
    let session = engine.session().unwrap();
    let input = data(9 * BLOCK as usize + 99, 5);
    let (mut done, mut cancelled) = (0, 0);
    for round in 0..30u64 {
        let chain = chains().swap_remove(round as usize % 7);
        let file = uncached(&input);
        let start = || {
            let source = Source::file(&file, ..).cache(Mode::Off);
            session.transfer(source, chain.clone(), room(input.len())).unwrap()
        };
        let running: Vec<_> = (0..6).map(|_| start()).collect();
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
                    assert_eq!(error.status, Status::Cancelled, "{error}");
                    let expected = expected(&chain, &input).output;
                    let delivered = error.completion.memory.as_deref().unwrap();
                    let end = error.completion.bytes_out as usize;
                    assert!(expected[..end] == delivered[..end], "{error}");
                }
            }
        }
        assert!(engine.statistics().is_idle);
    }
    assert!(done >= 60 && cancelled > 20, "{done} {cancelled}");
}

#[test]
fn a_read_that_answers_when_its_command_has_long_ended_is_not_listened_to() {
    let Some(engine) = engine(12, Mode::On) else { return };
    let session = engine.session().unwrap();
    let input = data(BLOCK as usize, 6);
    let source = || Source::file(&uncached(&input), ..).cache(Mode::Off);
    let hung = session.request(source(), [ctr(1).on_gpu()], room(input.len()));
    let began = Instant::now();
    let error = hung.timeout(Duration::from_millis(100)).submit().unwrap().wait().unwrap_err();
    assert_eq!((error.status, error.stage), (Status::Timeout, Stage::Source), "{error}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    while began.elapsed() < Duration::from_secs(8) {
        for chain in chains() {
            let done = session.transfer(source(), chain.clone(), room(input.len())).unwrap().wait().unwrap();
            check(&done, done.memory.as_deref().unwrap(), &chain, &input);
        }
    }
    let counted = engine.statistics();
    assert!(counted.is_idle && counted.blocks_free == counted.blocks, "{counted:?}");
}

#[test]
fn an_engine_ends_while_files_are_read() {
    let Some(engine) = engine(0, Mode::On) else { return };
    let session = engine.session().unwrap();
    let input = data(64 * BLOCK as usize, 7);
    let start = |chain: Vec<Op>| {
        let source = Source::file(&uncached(&input), ..).cache(Mode::Off);
        session.transfer(source, chain, room(input.len())).unwrap()
    };
    let running: Vec<_> = chains().into_iter().map(start).collect();
    std::thread::sleep(Duration::from_millis(3));
    drop(engine);
    for transfer in running {
        if let Err(error) = transfer.wait() {
            assert!(matches!(error.status, Status::QueueDeleted | Status::Cancelled), "{error}");
        }
    }
}

#[test]
fn what_is_missing_is_said() {
    let Some(library) = stand_in::library() else { return };
    let start = |device, mode, storage: &Path| {
        builder().gpu(device).gpu_library(library).gpu_storage(mode).gpu_storage_library(storage).start()
    };
    for (device, storage, said) in [
        (
            0,
            Path::new("/no/such/libcufile.so.0"),
            "GPUDirect Storage: /no/such/libcufile.so.0 cannot be loaded",
        ),
        (0, Path::new("libc.so.6"), "stand-in"),
        (6, library, "cuFileDriverOpen: the kernel module nvidia-fs is not loaded"),
        (10, library, "cuFileBufRegister: the GPU's memory cannot be pinned"),
    ] {
        let error = start(device, Mode::On, storage).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        let engine = start(device, Mode::Auto, storage).unwrap();
        let why = engine.gpu_storage().unwrap().as_ref().unwrap_err().to_string();
        assert!(error.contains(&why), "{error}: {why}");
    }
    let why = start(7, Mode::Auto, library).unwrap().gpu_storage().unwrap().clone().unwrap_err();
    assert_eq!(why, StorageError::Compatibility);
    assert!(!start(7, Mode::On, library).unwrap().gpu_storage().unwrap().clone().unwrap().is_direct());
    assert!(builder().start().unwrap().gpu_storage().is_none(), "no GPU");
    let only = builder().gpu_storage(Mode::On).start().unwrap();
    assert!(only.gpu().is_none(), "this alone asks for no GPU");
}
