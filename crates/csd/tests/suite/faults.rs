//! Operators that panic, namespaces that are replaced, memory that takes long to free: one guest's troubles
//! do not affect the others.

use std::sync::{Arc, Mutex};

use dcs_abi::operator::Operator;
use dcs_csd::near::{NO_DATA, TO_GUEST};
use dcs_csd::storage::ModelStorage;
use dcs_csd::{Chain, Config, Namespace, Storage, VolumeId, Waste};
use dcs_ndp::OperatorError;
use dcs_ndp::module::{Codec, Module, Step};
use dcs_nvme::command::{Blocks, Command, nvm};
use dcs_nvme::{DataPointer, Status, register};

use crate::near::{Near, PARAMETERS, STREAM, entry, load, machine, open, run, take};
use crate::rig::{DATA, Machine, disk};

/// An operator that panics: when it is made, at work, or when it is dropped.
struct Panics(&'static str);

impl Module for Panics {
    fn start(&self, _: &[u8]) -> Result<Box<dyn Codec>, OperatorError> {
        assert_ne!(self.0, "start", "as a test wants it");
        Ok(Box::new(Panics(self.0)))
    }

    fn memory(&self) -> u64 {
        0
    }
}

impl Codec for Panics {
    fn step(&mut self, _: &[u8], _: &mut [u8], _: bool) -> Step {
        panic!("as a test wants it")
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        // Not where it unwinds already: that would end the process.
        assert!(self.0 != "drop" || std::thread::panicking(), "as a test wants it");
    }
}

#[test]
fn an_operator_that_panics_on_the_loop_fails_its_own_command() {
    let mut machine = machine();
    for (at, when) in ["start", "step", "drop"].into_iter().enumerate() {
        let name = [at as u8 + 100; 32];
        assert!(dcs_ndp::module::install(name, Arc::new(Panics(when))));
        let chain = [(Operator::Module, dcs_ndp::module::parameter(&name, b""))];
        let opened = open(&mut machine, 1, &chain, &[(0, 4096)]);
        if when == "start" {
            assert!(opened.status.is(Status::INTERNAL_ERROR), "{}", opened.status);
        } else {
            assert_eq!(opened.status, Status::SUCCESS);
            assert_eq!(take(&mut machine, opened.result.into(), 4096, 0).0, Status::INTERNAL_ERROR);
            // The chain is not used any more.
            assert_eq!(take(&mut machine, opened.result.into(), 4096, 0).0, Status::INTERNAL_ERROR);
        }
    }
    let other = open(&mut machine, 1, &[(Operator::Md5, vec![])], &[(0, 100)]).result.into();
    assert_eq!(take(&mut machine, other, 4096, 0).1.len(), 100);
}

fn chain(seed: u8) -> Option<Arc<Chain>> {
    Some(Arc::new(Chain::aes256_xts(&std::array::from_fn(|at| seed.wrapping_add(at as u8))).unwrap()))
}

/// Puts another namespace in the place of an encrypted one, with another key.
fn replace(machine: &mut Machine<ModelStorage>, volume: VolumeId, key: u8) {
    let info = machine.drives.storage().volume(volume).unwrap();
    let mut namespace = Namespace::new(2, volume, &info, 4096).unwrap();
    namespace.chain = chain(key);
    machine.controller().detach(2).unwrap();
    machine.controller().attach(namespace, machine.drives.storage()).unwrap();
}

/// A read in progress while its namespace is replaced returns the old bytes, decrypted with the old key; the
/// next one fails. No read returns bytes that were never written.
#[test]
fn a_stream_never_reads_by_another_key_or_from_another_namespace() {
    let mut machine = machine();
    let content: Vec<u8> = (0..8192u32).map(|at| (at / 50) as u8).collect();
    machine.guest.store(DATA, &content);
    let words = Blocks { first: 0, count: 2, durable: false }.words();
    let data = DataPointer::Prp(DATA, DATA + 4096);
    let write = Command { opcode: nvm::WRITE, namespace: 2, data, words, ..Command::default() };
    assert_eq!(machine.run(1, write).status, Status::SUCCESS);
    for volume in [VolumeId(1), VolumeId(0)] {
        replace(&mut machine, VolumeId(1), 0);
        let handle = open(&mut machine, 2, &[], &[(0, 8192)]).result.into();
        machine.guest.store(DATA, &[0xee; 8192]);
        let words = [2048, 0, 0, 0, 0, 0];
        machine.submit_bytes(
            1,
            entry(Near { opcode: TO_GUEST, source: STREAM, handle, words, ..Near::default() }),
        );
        // The blocks are being read.
        while machine.controller().outstanding() == 0 {
            machine.drives.poll();
        }
        replace(&mut machine, volume, 77);
        machine.work();
        let done = machine.reap(1).expect("a completion");
        assert_eq!((done.status, done.result), (Status::SUCCESS, 8192));
        assert!(machine.guest.bytes(DATA, 8192) == content, "by the key of then");
        // A stream that has yet to read.
        let handle = open(&mut machine, 2, &[], &[(0, 8192)]).result.into();
        replace(&mut machine, VolumeId(1), 0);
        machine.guest.store(DATA, &[0xee; 8192]);
        assert!(take(&mut machine, handle, 8192, 0).0.is(Status::INVALID_FIELD));
        assert!(machine.guest.bytes(DATA, 8192) == [0xee; 8192]);
    }
}

/// A frame of zstd: its header asks for a window of `1 << log` bytes; a block of one byte that is repeated.
fn frame(log: u8) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3];
    frame.extend_from_slice(&(1u32 | 1 << 1 | 1000 << 3).to_le_bytes()[..3]);
    frame.push(b'a');
    frame
}

#[test]
fn unzstd_sets_aside_a_window_of_8_mib_and_takes_no_larger_one() {
    let mut machine = machine();
    for (log, is_taken) in [(10, true), (23, true), (24, false), (27, false)] {
        let bytes = frame(log);
        machine.drives.storage_mut().bytes_mut(VolumeId(0))[..bytes.len()].copy_from_slice(&bytes);
        let stream = open(&mut machine, 1, &[(Operator::Unzstd, vec![])], &[(0, bytes.len() as u64)]);
        let taken = machine.controller().operator_memory();
        assert!((9 << 20..11 << 20).contains(&taken), "{taken}");
        let (status, out, _) = take(&mut machine, stream.result.into(), 4096, 0);
        let expected =
            if is_taken { Status::SUCCESS } else { Status(dcs_abi::status::Status::CorruptData.code()) };
        assert_eq!(status, expected, "a window of 2^{log}");
        assert!(!is_taken || out == [b'a'; 1000]);
        let close = Near { opcode: NO_DATA, source: STREAM, handle: stream.result.into(), ..Near::default() };
        assert_eq!(run(&mut machine, close).status, Status::SUCCESS);
        machine.work();
    }
}

/// Memory that takes long to free is freed outside the loop, and counts until then: a guest that resets again
/// and again gets no more than its limit.
#[test]
fn a_reset_leaves_large_memory_to_somebody_else_and_ends_when_it_is_back() {
    let config = Config { memory: 64 << 20, operator_memory: 200 << 20, ..Config::new("large") };
    let mut machine = Machine::new(config, disk(1 << 20), true).up();
    let handed: Arc<Mutex<Vec<Waste>>> = Arc::default();
    let to = handed.clone();
    machine.drives.set_disposal(move |waste| to.lock().unwrap().push(waste));
    let large = [(Operator::Zstd, vec![19])];
    let stream = open(&mut machine, 1, &large, &[(0, 100)]);
    assert_eq!(stream.status, Status::SUCCESS);
    let taken = machine.controller().operator_memory();
    assert!(taken > 90 << 20);
    machine.write32(register::CC, 0);
    machine.work();
    assert_eq!(handed.lock().unwrap().len(), 2, "device memory, and a stream");
    assert_eq!(machine.read32(register::CSTS), 1, "not yet");
    // A guest that resets again meanwhile gets no other memory.
    for _ in 0..3 {
        machine.write32(register::CC, 1);
        machine.write32(register::CC, 0);
        machine.work();
    }
    assert_eq!(handed.lock().unwrap().len(), 2);
    assert!(machine.controller().operator_memory() > 90 << 20);
    handed.lock().unwrap().clear();
    machine.work();
    assert_eq!(machine.read32(register::CSTS), 0);
    assert_eq!(machine.controller().operator_memory(), 0);
    // A command's memory too; a command that needs it meanwhile waits, and is not told to try again.
    machine.enable();
    machine.create(1);
    let handle = load(&mut machine, &[(Operator::Zstd, vec![19]), (Operator::Zstd, vec![19])]).result.into();
    handed.lock().unwrap().clear();
    let digest = Near::digest(handle, 8);
    assert_eq!(run(&mut machine, digest).status, Status::SUCCESS);
    machine.submit_bytes(1, entry(digest));
    machine.work();
    assert!(machine.reap(1).is_none() && handed.lock().unwrap().len() == 1);
    handed.lock().unwrap().clear();
    machine.work();
    assert_eq!(machine.reap(1).expect("a completion").status, Status::SUCCESS);
}

/// Data that a drive keeps for its guest count as its operators' memory: parameters with a handle, and ranges
/// and prefix of a stream. If there is no room for more, the guest is told to try again.
#[test]
fn parameters_and_ranges_count_as_memory() {
    let mut machine = machine();
    let taken = |machine: &Machine<ModelStorage>| machine.controller().operator_memory();
    let slice = [(Operator::Slice, dcs_ndp::parameter::slice(1, 2).to_vec())];
    let handle = load(&mut machine, &slice).result;
    assert_eq!(taken(&machine), 32, "header, head, and two numbers");
    let few = open(&mut machine, 1, &slice, &[(0, 1)]);
    let with_one = taken(&machine);
    let close =
        |handle: u32| Near { opcode: NO_DATA, source: STREAM, handle: handle.into(), ..Near::default() };
    assert_eq!(run(&mut machine, close(few.result)).status, Status::SUCCESS);
    assert_eq!(taken(&machine), 32);
    open(&mut machine, 1, &slice, &[(0, 1); 2001]);
    assert_eq!(taken(&machine), with_one + 2000 * 16);
    let forget = Near { opcode: NO_DATA, source: PARAMETERS, handle: handle.into(), ..Near::default() };
    assert_eq!(run(&mut machine, forget).status, Status::SUCCESS);
    assert_eq!(taken(&machine), with_one + 2000 * 16 - 32);
    // 1 MiB is the least that there is; a stream and some parameters, and no more.
    let mut small =
        Machine::new(Config { operator_memory: 1 << 20, ..Config::new("small") }, disk(1 << 20), true).up();
    let grep = dcs_ndp::parameter::Grep { pattern: "a".repeat(300), ..Default::default() };
    let chain = vec![(Operator::Md5, vec![]); 4];
    assert_eq!(open(&mut small, 1, &chain, &[(0, 1); 3000]).status, Status::SUCCESS);
    assert_eq!(load(&mut small, &[(Operator::Grep, grep.block())]).status.kind(), 7, "never");
    let more = open(&mut small, 1, &chain, &[(0, 1); 3000]).status;
    assert_eq!(more, Status::INTERRUPTED, "as long as there is the other one");
}
