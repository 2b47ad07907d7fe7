//! Named inputs for the fuzz targets of the command set: one for each case that a parser distinguishes.

use crate::example;
use dcs_abi::descriptor::{Builder, DESCRIPTOR_MAX, Endpoint, EndpointKind, EndpointRole, Extent};
use dcs_abi::entry::{FLAG_INLINE, FLAGS_ALL, LENGTH_TO_END, OPCODE_TRANSFER, SubmissionEntry};
use dcs_abi::inline::InlineEntry;

/// A named input.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Fuzz target of the input.
    pub target: &'static str,
    /// Name of the case.
    pub name: &'static str,
    /// Bytes of the input.
    pub bytes: Vec<u8>,
}

impl Seed {
    /// Returns its path in the repository.
    pub fn path(&self) -> String {
        format!("fuzz/corpus/{}/{}.bin", self.target, self.name)
    }
}

/// Returns every seed.
pub fn all() -> Vec<Seed> {
    let entries = entries().into_iter().map(|(name, bytes)| Seed { target: "entry", name, bytes });
    let descriptors =
        descriptors().into_iter().map(|(name, bytes)| Seed { target: "descriptor", name, bytes });
    entries.chain(descriptors).collect()
}

type Named = (&'static str, Vec<u8>);

/// Returns bytes with some of them replaced.
fn patched(bytes: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

/// An inline entry between ends of these kinds, from this offset on.
fn inline(source_kind: u8, destination_kind: u8, source_offset: u64) -> Vec<u8> {
    let entry = InlineEntry {
        opcode: OPCODE_TRANSFER,
        cid: 7,
        source_handle: 1,
        destination_handle: 2,
        source_offset,
        source_kind,
        destination_kind,
        op_chain: [1, 0],
        length: 4096,
        flags: FLAG_INLINE,
        ..InlineEntry::default()
    };
    entry.to_bytes().to_vec()
}

fn entries() -> Vec<Named> {
    let transfer = example::entry();
    let bytes = transfer.to_bytes();
    let stream =
        SubmissionEntry { length: LENGTH_TO_END, flags: FLAGS_ALL, rid: 9, timeout_ms: 5000, ..transfer };
    let completion = example::completion().to_bytes();
    let failed = dcs_abi::status::Status::EndOfSource.code() << 1;
    vec![
        ("empty", vec![]),
        ("transfer", bytes.to_vec()),
        ("transfer_to_end", stream.to_bytes().to_vec()),
        ("transfer_cut", bytes[..63].to_vec()),
        ("transfer_reserved_prp2", patched(&bytes, 32, &[1])),
        ("transfer_reserved_last", patched(&bytes, 63, &[0x80])),
        ("transfer_trailing_bytes", [&bytes[..], &[0xee; 8]].concat()),
        ("inline_file_to_flow", inline(1, 3, 4096)),
        ("inline_file_to_file", inline(1, 1, 0)),
        ("inline_memory_to_block", inline(4, 2, 512)),
        ("inline_flow_with_position", inline(3, 1, 7)),
        ("inline_kind_unknown", inline(1, 9, 0)),
        ("inline_mode_unknown", patched(&inline(1, 3, 0), 62, &[3])),
        ("cancel", SubmissionEntry::cancel(9, 1, 7).to_bytes().to_vec()),
        ("all_ones", vec![0xff; 64]),
        ("completion", completion.to_vec()),
        ("completion_cut", completion[..15].to_vec()),
        ("completion_other_phase", patched(&completion, 14, &[0])),
        ("completion_failed", patched(&completion, 14, &failed.to_le_bytes())),
        ("completion_unknown_status", patched(&completion, 14, &[0xff, 0x07])),
        ("completion_most_delivered", patched(&completion, 0, &[0xff; 6])),
    ]
}

fn endpoint(kind: EndpointKind, handle: u32) -> Endpoint {
    Endpoint { kind: kind as u8, handle, ..Default::default() }
}

/// Returns a descriptor between two endpoints, each with these extents.
fn between(source: (Endpoint, &[Extent]), destination: (Endpoint, &[Extent]), prefix: &[Extent]) -> Vec<u8> {
    let mut buffer = vec![0; DESCRIPTOR_MAX];
    let mut builder = Builder::new(&mut buffer).expect("the largest buffer");
    if !prefix.is_empty() {
        builder.endpoint(EndpointRole::Prefix, endpoint(EndpointKind::Memory, 5), prefix).expect("room");
    }
    builder.endpoint(EndpointRole::Source, source.0, source.1).expect("room");
    builder.endpoint(EndpointRole::Destination, destination.0, destination.1).expect("room");
    let used = builder.finish();
    buffer.truncate(used);
    buffer
}

fn descriptors() -> Vec<Named> {
    use EndpointKind::{Block, DeviceMemory, File, Flow, Memory, Paced, Stream};
    let one = [Extent { offset: 4096, length: 65536 }];
    let three = [one[0], Extent { offset: 0, length: 100 }, Extent { offset: 1 << 40, length: 1 }];
    let (file, flow) = (endpoint(File, 3), endpoint(Flow, 4));
    let to_flow = |extents: &[Extent]| between((file, extents), (flow, &[]), &[]);
    let forced = Endpoint { cache: 2, zero_copy: 1, ..file };
    let immutable = Endpoint { immutable: 1, ..file };
    let paced = Endpoint { pacing: 1, rate: 8_000_000, window_us: 1000, ..endpoint(Paced, 7) };
    let mut seeds = vec![
        ("file_to_datagrams", between((file, &one), (paced, &[]), &[])),
        ("file_to_flow_chain", example::descriptor()),
        ("three_extents", to_flow(&three)),
        ("empty_file", to_flow(&[Extent::default()])),
        ("modes_forced", between((forced, &one), (flow, &[]), &[])),
        ("immutable", between((immutable, &one), (flow, &[]), &[])),
        ("flow_to_file_with_prefix", between((flow, &[]), (file, &one), &one)),
        ("stream_to_stream", between((endpoint(Stream, 1), &[]), (endpoint(Stream, 2), &[]), &[])),
        ("block_to_memory", between((endpoint(Block, 1), &three), (endpoint(Memory, 2), &one), &[])),
        ("device_memory_to_flow", between((endpoint(DeviceMemory, 1), &one), (flow, &[]), &[])),
        ("longest_extent", to_flow(&[Extent { offset: 0, length: u64::MAX - 1 }])),
    ];
    seeds.extend(refused(&example::descriptor()));
    let far = Extent { offset: u64::MAX, length: 2 };
    seeds.push(("extent_overflows", to_flow(&[far])));
    seeds.push(("length_is_to_end", to_flow(&[Extent { offset: 0, length: LENGTH_TO_END }])));
    seeds.push(("sum_overflows", to_flow(&[Extent { offset: 0, length: u64::MAX - 1 }, three[1]])));
    seeds.push(("empty_among_others", to_flow(&[one[0], Extent::default()])));
    seeds
}

/// Returns the example in variants with one wrong field each.
fn refused(good: &[u8]) -> Vec<Named> {
    let (source, destination, second) = (48, 80, 128);
    vec![
        ("header_cut", good[..255].to_vec()),
        ("other_version", patched(good, 0, &[1])),
        ("other_header_length", patched(good, 2, &[0, 2])),
        ("cut_at_the_end", good[..good.len() - 8].to_vec()),
        ("reserved_in_endpoint", patched(good, source + 29, &[1])),
        ("undefined_immutable", patched(good, source + 3, &[2])),
        ("undefined_kind", patched(good, source, &[8])),
        ("rate_of_a_file", patched(good, source + 16, &[1])),
        ("undefined_mode", patched(good, source + 1, &[3])),
        ("no_source", patched(good, source, &[0; 32])),
        ("flow_with_extents", patched(good, destination + 12, &[1])),
        ("extents_in_header", patched(good, source + 8, &[0, 0])),
        ("extents_not_aligned", patched(good, source + 8, &[1])),
        ("extents_past_the_end", patched(good, source + 12, &[0xff; 4])),
        ("parameter_kind", patched(good, second, &[9])),
        ("parameter_past_the_end", patched(good, second + 4, &[0xff; 4])),
        (
            "parameter_offset_overflows",
            patched(good, second + 8, &[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_abi::descriptor::Descriptor;

    /// Checks this here, since a seed refused for another reason than its name says would pass everywhere else.
    #[test]
    fn seeds_are_refused_from_the_damaged_ones_on() {
        let descriptors = descriptors();
        let first_bad = descriptors.iter().position(|(name, _)| *name == "header_cut").unwrap();
        for (at, (name, bytes)) in descriptors.iter().enumerate() {
            assert_eq!(Descriptor::parse(bytes).is_ok(), at < first_bad, "{name}");
        }
        assert!(descriptors.len() <= 32 && entries().len() <= 30, "a corpus that people can read");
    }
}
