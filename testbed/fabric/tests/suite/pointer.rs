//! Compares PRP and SGL walks, the model's and the one that controllers for guests use, with a plain reference that
//! sees all of memory.

use std::collections::HashMap;

use dcs_fabric::nvme::{Next, Segment, Walk, status};
use dcs_nvme::sgl::Descriptor;
use dcs_nvme::{DataPointer, Status};
use proptest::prelude::*;

/// Memory of 8-byte words, enough for lists.
type Words = HashMap<u64, u64>;

fn parsed(words: [u64; 2]) -> Descriptor {
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    Descriptor::from_bytes(&bytes)
}

/// Places of data, in order, in as few segments as possible: a length, and an address unless the bytes are dropped.
type Extents = Vec<(Option<u64>, u64)>;

fn add(extents: &mut Extents, address: Option<u64>, length: u64) {
    match extents.last_mut() {
        _ if length == 0 => {}
        Some((Some(start), before)) if Some(*start + *before) == address => *before += length,
        Some((None, before)) if address.is_none() => *before += length,
        _ => extents.push((address, length)),
    }
}

/// Carries a walk out.
fn run(memory: &Words, begun: Result<(Walk, Next), Status>) -> Result<Extents, Status> {
    let (mut walk, mut next) = begun?;
    for _ in 0..100_000 {
        match next {
            Next::Done(segments) => {
                let mut found = Extents::new();
                for Segment { address, length } in segments {
                    assert!(length > 0);
                    add(&mut found, address, length);
                }
                return Ok(found);
            }
            Next::Fetch { address, length } => {
                assert!(length > 0 && length % 8 == 0);
                let words = (0..length / 8).map(|i| memory.get(&(address + 8 * i)).copied().unwrap_or(0));
                let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                next = walk.feed(&bytes)?;
            }
        }
    }
    panic!("a walk without end");
}

/// Carries out the walk of `dcs_nvme`. It reads nothing twice, unless the list leads there twice.
fn controllers_walk(memory: &Words, pointer: DataPointer, length: u64) -> Result<Extents, Status> {
    let mut read = |address: u64, bytes: &mut [u8]| {
        for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
            let at = address.wrapping_add(8 * i as u64);
            word.copy_from_slice(&memory.get(&at).copied().unwrap_or(0).to_le_bytes());
        }
        true
    };
    let mut walk = dcs_nvme::Walk::new(&pointer, length, 4096)?;
    let mut found = Extents::new();
    while let Some(place) = walk.next(&mut read)? {
        add(&mut found, Some(place.address), place.length);
    }
    Ok(found)
}

/// Drops the bit that says a retry is useless.
fn bare(found: Result<Extents, Status>) -> Result<Extents, (u8, u8)> {
    found.map_err(|status| (status.kind(), status.code()))
}

/// Finds the data's pages by the letter of [NVMe 1.4, 4.3], one PRP entry after the other.
fn prp_by_the_letter(memory: &Words, data: [u64; 2], length: u64, page: u64) -> Result<Extents, Status> {
    if !data[0].is_multiple_of(4) {
        return Err(status::INVALID_PRP_OFFSET);
    }
    let mut pages = vec![data[0]];
    let covered = |pages: &Vec<u64>| page - data[0] % page + (pages.len() as u64 - 1) * page;
    if covered(&pages) < length && covered(&pages) + page >= length {
        pages.push(data[1]);
    } else if covered(&pages) < length {
        if !data[1].is_multiple_of(8) {
            return Err(status::INVALID_PRP_OFFSET);
        }
        let mut at = data[1];
        while covered(&pages) < length {
            let entry = memory.get(&at).copied().unwrap_or(0);
            let last_of_list = at % page == page - 8;
            let more_than_one = covered(&pages) + page < length;
            if entry % page != 0 {
                return Err(status::INVALID_PRP_OFFSET);
            }
            if last_of_list && more_than_one {
                at = entry;
            } else {
                pages.push(entry);
                at += 8;
            }
        }
    }
    if pages[1..].iter().any(|entry| entry % page != 0) {
        return Err(status::INVALID_PRP_OFFSET);
    }
    let (mut found, mut left) = (Extents::new(), length);
    for start in pages {
        let piece = left.min(page - start % page);
        add(&mut found, Some(start), piece);
        left -= piece;
    }
    Ok(found)
}

/// Lays out a list of `entries` from `start`, with links at the ends of pages. Each further
/// page of the list is 16 pages on.
fn lay_out(memory: &mut Words, start: u64, page: u64, entries: &[u64]) {
    let mut at = start;
    for (i, entry) in entries.iter().enumerate() {
        if at % page == page - 8 && i + 1 < entries.len() {
            let next = (at / page + 16) * page;
            memory.insert(at, next);
            at = next;
        }
        memory.insert(at, *entry);
        at += 8;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn prp_lists_are_walked_by_the_letter(
        offset in (0u64..1024).prop_map(|dwords| dwords * 4),
        length in 1u64..3_000_000,
        list_slot in 0u64..512,
        pages in proptest::collection::vec((1u64..1 << 30).prop_map(|page| page * 4096), 740),
        spoiled in proptest::option::weighted(0.2, (0usize..740, 1u64..4096)),
    ) {
        let page = 4096;
        let mut memory = Words::new();
        let mut entries = pages[..length.div_ceil(page) as usize].to_vec();
        if let Some((at, by)) = spoiled && at < entries.len() {
            entries[at] += by;
        }
        let list = (1 << 50) + list_slot * 8;
        lay_out(&mut memory, list, page, &entries);
        let first = (1 << 45) + offset;
        let second = if length + offset <= 2 * page { entries[0] } else { list };
        let data = [first, second];
        let found = run(&memory, Walk::prp(data.into(), length, page));
        prop_assert_eq!(found, prp_by_the_letter(&memory, data, length, page));
        let found = controllers_walk(&memory, DataPointer::Prp(data[0], data[1]), length);
        prop_assert_eq!(bare(found), bare(prp_by_the_letter(&memory, data, length, page)));
    }

    #[test]
    fn any_words_as_prps_end_and_agree(
        data in [any::<u64>(), any::<u64>()],
        length in 1u64..200_000,
        words in proptest::collection::vec((0u64..4096).prop_map(|page| page * 4096), 64),
    ) {
        let memory: Words = (0..64).map(|i| ((data[1] & !7).wrapping_add(8 * i), words[i as usize])).collect();
        let data = [data[0] >> 8, data[1] >> 8];
        let found = run(&memory, Walk::prp(data.into(), length, 4096));
        prop_assert_eq!(found, prp_by_the_letter(&memory, data, length, 4096));
        let found = controllers_walk(&memory, DataPointer::Prp(data[0], data[1]), length);
        prop_assert_eq!(bare(found), bare(prp_by_the_letter(&memory, data, length, 4096)));
    }
}

/// An SGL descriptor's two words.
fn descriptor(kind: u64, address: u64, length: u64) -> [u64; 2] {
    [address, length | kind << 60]
}

fn lay_sgl(memory: &mut Words, at: u64, list: &[[u64; 2]]) {
    for (i, words) in list.iter().enumerate() {
        memory.insert(at + 16 * i as u64, words[0]);
        memory.insert(at + 16 * i as u64 + 8, words[1]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn sgls_of_any_shape_give_their_blocks_in_order(
        segments in proptest::collection::vec(
            proptest::collection::vec((0u64..1 << 40, 0u64..5000, proptest::bool::weighted(0.1)), 0..5), 1..6),
        change in -1i64..=1,
        write: bool,
    ) {
        // Each segment leads to the next one; the last one is a last segment.
        let mut memory = Words::new();
        let place = |i: usize| (1u64 << 50) + 0x10000 * i as u64;
        let mut expected = Extents::new();
        let mut sizes = Vec::new();
        for (i, blocks) in segments.iter().enumerate() {
            let more = i + 1 < segments.len();
            sizes.push((blocks.len() + usize::from(more)) as u64 * 16);
        }
        prop_assume!(sizes.iter().all(|size| *size > 0));
        for (i, blocks) in segments.iter().enumerate() {
            let mut list = Vec::new();
            for (address, length, bucket) in blocks {
                list.push(descriptor(u64::from(*bucket), *address, *length));
                match (bucket, write) {
                    (true, true) => {}
                    (true, false) => add(&mut expected, None, *length),
                    (false, _) => add(&mut expected, Some(*address), *length),
                }
            }
            if i + 1 < segments.len() {
                let kind = if i + 2 == segments.len() { 3 } else { 2 };
                list.push(descriptor(kind, place(i + 1), sizes[i + 1]));
            }
            lay_sgl(&mut memory, place(i), &list);
        }
        let kind = if segments.len() == 1 { 3 } else { 2 };
        let length = expected.iter().map(|(_, length)| *length as i64).sum::<i64>() + change;
        prop_assume!(length > 0);
        let first = descriptor(kind, place(0), sizes[0]);
        let found = run(&memory, Walk::sgl(parsed(first), length as u64, write, false));
        let right = if change == 0 { Ok(expected) } else { Err(status::INVALID_SGL_LENGTH) };
        prop_assert_eq!(&found, &right);
        // It has no bit buckets.
        if !segments.iter().flatten().any(|(_, _, bucket)| *bucket) {
            let found = controllers_walk(&memory, DataPointer::Sgl(parsed(first)), length as u64);
            prop_assert_eq!(bare(found), bare(right));
        }
    }
}

fn sgl(memory: &Words, first: [u64; 2], length: u64) -> Result<Extents, Status> {
    let found = run(memory, Walk::sgl(parsed(first), length, false, true));
    // It takes any alignment.
    if found != Err(status::INVALID_FIELD) {
        assert_eq!(
            bare(controllers_walk(memory, DataPointer::Sgl(parsed(first)), length)),
            bare(found.clone())
        );
    }
    found
}

#[test]
fn what_no_sgl_may_be_is_refused() {
    let mut memory = Words::new();
    let at = 0x1000;
    let block = descriptor(0, 0x8000, 64);
    lay_sgl(&mut memory, at, &[block, descriptor(2, 0x2000, 16)]);
    lay_sgl(&mut memory, 0x2000, &[block]);
    // A last segment that leads on; a segment that does not; one that leads on in its middle.
    assert_eq!(sgl(&memory, descriptor(3, at, 32), 128), Err(status::INVALID_SGL_SEGMENT));
    assert_eq!(sgl(&memory, descriptor(2, at, 32), 128), Err(status::INVALID_SGL_COUNT));
    lay_sgl(&mut memory, at, &[descriptor(2, 0x2000, 16), block]);
    assert_eq!(sgl(&memory, descriptor(2, at, 32), 128), Err(status::INVALID_SGL_SEGMENT));
    // Lengths of segments, types, subtypes, alignment.
    assert_eq!(sgl(&memory, descriptor(3, at, 0), 64), Err(status::INVALID_SGL_SEGMENT));
    assert_eq!(sgl(&memory, descriptor(3, at, 24), 64), Err(status::INVALID_SGL_SEGMENT));
    assert_eq!(sgl(&memory, descriptor(4, at, 64), 64), Err(status::INVALID_SGL_TYPE));
    assert_eq!(sgl(&memory, [at, 64 | 1 << 56], 64), Err(status::INVALID_SGL_TYPE));
    assert_eq!(sgl(&memory, descriptor(0, at + 2, 64), 64), Err(status::INVALID_FIELD));
    // Segments that lead to each other endlessly.
    lay_sgl(&mut memory, at, &[descriptor(2, at, 16)]);
    assert_eq!(sgl(&memory, descriptor(2, at, 16), 64), Err(status::INVALID_SGL_COUNT));
}
