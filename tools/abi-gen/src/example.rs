//! The worked example of `docs/abi.md`: `file -> md5, aes256-ctr -> socket`, from entry to result.
//!
//! The file holds the 14 bytes `message digest`, whose MD5 RFC 1321 gives; key and counter are those of
//! SP 800-38A appendix F.5.5.

use dcs_abi::U48;
use dcs_abi::descriptor::{
    Builder, DESCRIPTOR, DescriptorHeader, EXTENT, Endpoint, EndpointKind, EndpointRole, Extent, NoRoom,
};
use dcs_abi::entry::{COMPLETION, CompletionEntry, OPCODE_TRANSFER, SUBMISSION, SubmissionEntry};
use dcs_abi::layout::{Kind, Layout};
use dcs_abi::operator::Operator;
use dcs_abi::result::{
    DigestSlot, PATH_SOURCE_CACHED, PATH_SYSCALL, RESULT, ResultArea, STAGE_DESTINATION, STAGE_OPERATORS,
    STAGE_SOURCE, StageTimes,
};
use dcs_abi::status::Status;
use std::fmt::Write;

const LENGTH: u64 = 14;
const KEY: [u8; 32] = [
    0x60, 0x3d, 0xeb, 0x10, 0x15, 0xca, 0x71, 0xbe, 0x2b, 0x73, 0xae, 0xf0, 0x85, 0x7d, 0x77, 0x81, 0x1f,
    0x35, 0x2c, 0x07, 0x3b, 0x61, 0x08, 0xd7, 0x2d, 0x98, 0x10, 0xa3, 0x09, 0x14, 0xdf, 0xf4,
];
const MD5: [u8; 16] =
    [0xf9, 0x6b, 0x69, 0x7d, 0x7c, 0xb7, 0x93, 0x8d, 0x52, 0x5a, 0x2f, 0x31, 0xaa, 0xf1, 0x61, 0xd0];
const CHAIN: [u8; 8] = [Operator::Md5 as u8, Operator::Aes256Ctr as u8, 0, 0, 0, 0, 0, 0];

/// Returns the submission entry.
pub fn entry() -> SubmissionEntry {
    SubmissionEntry {
        opcode: OPCODE_TRANSFER,
        cid: 7,
        descriptor_length: descriptor().len() as u32,
        descriptor_address: 0x10_0000,
        result_address: 0x20_0000,
        op_chain: CHAIN,
        length: LENGTH,
        ..Default::default()
    }
}

/// Returns the descriptor: header, one extent, the cipher's parameters.
pub fn descriptor() -> Vec<u8> {
    let mut buffer = [0; 512];
    let used = build(&mut buffer).expect("512 bytes are enough for one extent and one parameter block");
    buffer[..used].to_vec()
}

fn build(buffer: &mut [u8]) -> Result<usize, NoRoom> {
    let counter: [u8; 16] = std::array::from_fn(|at| 0xf0 + at as u8);
    let file = Endpoint { kind: EndpointKind::File as u8, handle: 3, ..Default::default() };
    let socket = Endpoint { kind: EndpointKind::Flow as u8, handle: 4, ..Default::default() };
    let mut builder = Builder::new(buffer)?;
    builder.endpoint(EndpointRole::Source, file, &[Extent { offset: 0, length: LENGTH }])?;
    builder.endpoint(EndpointRole::Destination, socket, &[])?;
    builder.parameter(1, &[&KEY[..], &counter[..]].concat())?;
    Ok(builder.finish())
}

/// Returns the completion entry, in the ring's first round: phase 1.
pub fn completion() -> CompletionEntry {
    let mut entry = CompletionEntry {
        delivered: U48::saturating(LENGTH),
        sq_head: 1,
        sq_id: 1,
        cid: 7,
        ..Default::default()
    };
    entry.set_status(Status::Success, true);
    entry
}

/// Returns the result area; the times are made up.
pub fn result() -> ResultArea {
    let mut result = ResultArea {
        path: PATH_SOURCE_CACHED | PATH_SYSCALL,
        bytes_in: LENGTH,
        bytes_out: LENGTH,
        queued: 1_000,
        started: 1_200,
        finished: 9_000,
        ..Default::default()
    };
    result.stages[STAGE_SOURCE] = times(1_300, 3_300);
    result.stages[STAGE_OPERATORS] = times(3_400, 3_500);
    result.stages[STAGE_OPERATORS + 1] = times(3_500, 3_600);
    result.stages[STAGE_DESTINATION] = times(3_700, 8_700);
    let mut digest = DigestSlot { operator: CHAIN[0], size: 16, covered: LENGTH, ..Default::default() };
    digest.value[..16].copy_from_slice(&MD5);
    result.digests[0] = digest;
    result
}

fn times(first_issue: u64, last_done: u64) -> StageTimes {
    StageTimes { first_issue, last_done, busy: last_done - first_issue, operations: 1 }
}

/// Returns the four listings by name: bytes in memory order, each with its field.
pub fn listings() -> [(&'static str, String); 4] {
    [
        ("example-entry", list(&SUBMISSION, &entry().to_bytes(), 0)),
        ("example-descriptor", descriptor_listing()),
        ("example-completion", list(&COMPLETION, &completion().to_bytes(), 0)),
        ("example-result", list(&RESULT, &result().to_bytes(), 0)),
    ]
}

fn descriptor_listing() -> String {
    let bytes = descriptor();
    let extents = DescriptorHeader::SIZE;
    let parameters = extents + Extent::SIZE;
    let mut out = list(&DESCRIPTOR, &bytes[..extents], 0);
    out += &list(&EXTENT, &bytes[extents..parameters], extents).replace("length\n", "length (source)\n");
    line(&mut out, parameters, &bytes[parameters..parameters + 32], "key of aes256-ctr");
    line(&mut out, parameters + 32, &bytes[parameters + 32..], "counter of aes256-ctr");
    out
}

/// Lists the fields that are not zero, one per line.
fn list(layout: &'static Layout, bytes: &[u8], base: usize) -> String {
    let mut out = String::new();
    walk(&Kind::Struct(layout), bytes, base, "", &mut out);
    out
}

fn walk(kind: &Kind, bytes: &[u8], at: usize, name: &str, out: &mut String) {
    match kind {
        Kind::Struct(layout) => {
            let dot = if name.is_empty() { "" } else { "." };
            for field in layout.fields {
                let part = &bytes[field.offset..field.offset + field.kind.size()];
                walk(&field.kind, part, at + field.offset, &format!("{name}{dot}{}", field.name), out);
            }
        }
        Kind::Array(element @ Kind::Struct(_), _) => {
            for (index, part) in bytes.chunks_exact(element.size()).enumerate() {
                walk(element, part, at + index * element.size(), &format!("{name}[{index}]"), out);
            }
        }
        _ if bytes.iter().all(|byte| *byte == 0) => {}
        _ => line(out, at, bytes, name),
    }
}

/// Writes offset, sixteen bytes and a name; further bytes on the lines below, without trailing rows of zeros.
fn line(out: &mut String, at: usize, bytes: &[u8], name: &str) {
    for (row, chunk) in bytes.chunks(16).enumerate() {
        if row > 0 && chunk.iter().all(|byte| *byte == 0) {
            continue;
        }
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let label = if row == 0 { name } else { "" };
        let text = format!("{:04x}  {:<47}  {label}", at + row * 16, hex.join(" "));
        let _ = writeln!(out, "{}", text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_abi::descriptor::Descriptor;

    #[test]
    fn the_example_is_a_valid_command() {
        let bytes = descriptor();
        let parsed = Descriptor::parse(&bytes).unwrap();
        assert_eq!(parsed.source().length(), LENGTH);
        assert_eq!(parsed.parameter(1).len(), Operator::Aes256Ctr.info().parameter.0);
        assert_eq!(entry().descriptor_length as usize, bytes.len());
        assert!(completion().phase() && completion().status().is_success());
    }

    #[test]
    fn listings_show_every_byte_that_is_not_zero() {
        let whole = [
            entry().to_bytes().to_vec(),
            descriptor(),
            completion().to_bytes().to_vec(),
            result().to_bytes().to_vec(),
        ];
        for ((name, listing), bytes) in listings().into_iter().zip(whole) {
            let mut rebuilt = vec![0; bytes.len()];
            for line in listing.lines() {
                let at = usize::from_str_radix(&line[..4], 16).unwrap();
                let hex = line[6..].split("  ").next().unwrap();
                for (byte, text) in rebuilt[at..].iter_mut().zip(hex.split(' ')) {
                    *byte = u8::from_str_radix(text, 16).unwrap();
                }
            }
            assert_eq!(rebuilt, bytes, "{name}");
        }
    }
}
