//! `include/dcs.h` as C and C++ compilers see it, and the bytes that C code writes with it.

use dcs_abi::descriptor::{DescriptorHeader, Endpoint, Parameter};
use dcs_abi::entry::{CompletionEntry, SubmissionEntry};
use dcs_abi::register::{cq_head_doorbell, sq_tail_doorbell};
use dcs_abi::result::{DigestSlot, ResultArea, StageTimes};
use dcs_abi::status::{Stage, Status};
use dcs_abi::{U48, descriptor, entry, operator::Operator, result};
use dcs_abi_gen::{api, c};
use std::path::{Path, PathBuf};
use std::process::Command;

const C: [&str; 5] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"];
const CPP: [&str; 5] = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Compiles a file of `tests/c` against a header made for this test, and returns the program or object.
fn compile(name: &str, header: &str, compiler: &str, flags: &[&str], source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("dcs.h"), header).unwrap();
    let out = folder.join("out");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let done =
        Command::new(compiler).args(flags).arg("-I").arg(&folder).arg(source).arg("-o").arg(&out).output();
    let done = done.unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(done.status.success(), "{compiler}: {}", String::from_utf8_lossy(&done.stderr));
    out
}

fn run(program: &Path, input: Option<&Path>) -> Vec<u8> {
    let done = Command::new(program).args(input).output().unwrap();
    assert!(done.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[test]
fn c_and_rust_write_the_same_bytes() {
    let program = compile("fill-c", &c::header(None), "cc", &C, "fill.c");
    let expected = expected();
    assert_eq!(run(&program, None), expected);
    let program =
        compile("fill-cpp", &c::header(None), "c++", &[&CPP[..], &["-x", "c++"]].concat(), "fill.c");
    assert_eq!(run(&program, None), expected);
}

#[test]
fn c_reads_what_rust_writes() {
    let mut completion =
        CompletionEntry { delivered: U48::saturating(0x0102_0304_0506), cid: 0xbeef, ..Default::default() };
    completion.set_status(Status::BadHandle, true);
    let program = compile("read", &c::header(None), "cc", &C, "read.c");
    let input = program.with_file_name("cqe.bin");
    std::fs::write(&input, completion.to_bytes()).unwrap();
    let said = String::from_utf8(run(&program, Some(&input))).unwrap();
    let doorbells = format!("{} {}", sq_tail_doorbell(513), cq_head_doorbell(513));
    assert_eq!(
        said,
        format!(
            "phase 1 BAD_HANDLE dnr 1 delivered {} cid 48879 doorbells {doorbells}\n",
            0x0102_0304_0506u64
        )
    );
}

#[test]
fn the_api_section_keeps_docs_and_defines_no_wire_structure_again() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let sources = [fixtures.join("capi.rs"), fixtures.join("capi/session.rs")];
    let section = api::section(&sources).unwrap().unwrap();
    for part in ["Starts an engine.", "Bytes of a block, 0: the engine's choice.", "struct dcs_engine;"] {
        assert!(section.contains(part), "{part:?} is not in:\n{section}");
    }
    assert!(section.contains("const struct dcs_result *result"), "{section}");
    assert!(!section.contains("struct dcs_digest {"), "{section}");
    let header = c::header(Some(&section));
    compile("api-c", &header, "cc", &[&C[..], &["-c"]].concat(), "api.c");
    compile("api-cpp", &header, "c++", &[&CPP[..], &["-x", "c++", "-c"]].concat(), "api.c");
}

/// Returns the bytes that `fill.c` writes, built in Rust.
fn expected() -> Vec<u8> {
    let mut bytes = submission().to_bytes().to_vec();
    bytes.extend(completion().to_bytes());
    bytes.extend(header().to_bytes());
    bytes.extend(descriptor::Extent { offset: 0x1122_3344_5566_7788, length: 0x99aa }.to_bytes());
    bytes.extend(result().to_bytes());
    bytes
}

fn submission() -> SubmissionEntry {
    SubmissionEntry {
        opcode: entry::OPCODE_TRANSFER,
        nvme_flags: 0x40,
        cid: 0x0102,
        nsid: 0x0304_0506,
        rid: 0x0708_090a,
        descriptor_length: 0x0b0c_0d0e,
        result_address: 0x0f10_1112_1314_1516,
        descriptor_address: 0x1718_191a_1b1c_1d1e,
        op_chain: [
            Operator::Md5 as u8,
            Operator::Aes256Ctr as u8,
            Operator::Crc64Nvme as u8,
            0,
            0,
            0,
            0,
            0x7f,
        ],
        length: entry::LENGTH_TO_END - 1,
        timeout_ms: 0x1f20_2122,
        flags: entry::FLAG_DURABLE | entry::FLAG_MORE,
    }
}

fn completion() -> CompletionEntry {
    let mut completion = CompletionEntry {
        delivered: U48::saturating(0x0605_0403_0201),
        stage: Stage::Operator as u8,
        stage_index: 3,
        sq_head: 0x0405,
        sq_id: 0x0607,
        cid: 0x0809,
        status: 0,
    };
    completion.set_status(Status::CorruptData, true);
    completion
}

fn header() -> DescriptorHeader {
    let endpoint = |kind: descriptor::EndpointKind, seed: u32| Endpoint {
        kind: kind as u8,
        cache: descriptor::Mode::Off as u8,
        zero_copy: descriptor::Mode::On as u8,
        immutable: 0x5a,
        handle: seed,
        extents_offset: seed + 1,
        extents_count: seed + 2,
        rate: 0x0102_0304_0506_0708 + u64::from(seed),
        window_us: seed + 3,
        pacing: descriptor::Pacing::Pcr as u8,
    };
    let parameter = |at: usize| Parameter {
        kind: descriptor::PARAMETER_DIRECT,
        length: 100 + at as u32,
        offset: 0x1_0000_0000 + at as u64,
    };
    DescriptorHeader {
        version: dcs_abi::ABI_VERSION,
        header_length: 256,
        total_length: 0x0001_0203,
        prefix: endpoint(descriptor::EndpointKind::Memory, 0x1000_0000),
        source: endpoint(descriptor::EndpointKind::File, 0x2000_0000),
        destination: endpoint(descriptor::EndpointKind::Flow, 0x3000_0000),
        parameters: std::array::from_fn(parameter),
    }
}

fn result() -> ResultArea {
    let times =
        |at: u64| StageTimes { first_issue: at, last_done: at << 8, busy: at << 16, operations: at << 24 };
    let digest = |at: u8| DigestSlot {
        operator: at,
        size: at + 1,
        covered: 0x0100_0000_0000 + u64::from(at),
        value: std::array::from_fn(|byte| byte as u8 ^ at),
    };
    ResultArea {
        status: Status::PeerReset.code(),
        stage: Stage::Destination as u8,
        stage_index: 7,
        errno: 104,
        path: result::PATH_IO_URING | result::PATH_PEER_TO_PEER,
        bytes_in: 0x0101_0101_0101_0101,
        bytes_out: 0x0202_0202_0202_0202,
        queued: 0x0303_0303_0303_0303,
        started: 0x0404_0404_0404_0404,
        finished: 0x0505_0505_0505_0505,
        stages: std::array::from_fn(|at| times(at as u64 + 1)),
        digests: std::array::from_fn(|at| digest(at as u8)),
    }
}
