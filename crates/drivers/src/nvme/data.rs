//! Descriptions of a command's data, in the two ways that NVMe has: page lists (PRP) and scatter gather lists (SGL). [base 4.1]

use crate::bus::Window;
use dcs_nvme::DataPointer;
use dcs_nvme::identify::Sgl;
use dcs_nvme::sgl::{self, Descriptor};

/// The place of one command's list, in the card's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPlace {
    /// Bus address, aligned so that a list of at most a page crosses no page.
    pub address: u64,
    /// Size in bytes: at most a page, or whole pages.
    pub length: u64,
}

/// The reason why data can't be described to this controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Addresses or lengths that neither kind of list can name.
    Misaligned,
    /// More pieces than the list has room for.
    Pieces,
}

/// Describes `data`, which is not empty, by a page list if possible, otherwise by a scatter gather list if the controller supports them;
/// `prefer_sgl` reverses the order. Puts into `list` what is to be stored at `place`.
pub fn describe(
    data: &[Window],
    page_shift: u32,
    (sgl, prefer_sgl): (Sgl, bool),
    place: ListPlace,
    list: &mut Vec<u8>,
) -> Result<DataPointer, Unfit> {
    if prefer_sgl && let Ok(pointer) = scatter_gather(data, sgl, place, list) {
        return Ok(pointer);
    }
    match pages(data, 1 << page_shift, place, list) {
        Err(unfit) if sgl != Sgl::No => {
            scatter_gather(data, sgl, place, list).map_err(|second| match unfit {
                Unfit::Misaligned => second,
                Unfit::Pieces => unfit,
            })
        }
        done => done,
    }
}

/// Returns the number of entries that fit, with every full page but the last ending in a pointer to the next.
fn room(length: u64, page: u64) -> u64 {
    (length / 8).saturating_sub(length.saturating_sub(1) / page)
}

/// Returns the size in bytes of a list that describes `most` bytes at any offset in a page.
pub fn list_length(most: u64, page: u64) -> u64 {
    let entries = most.div_ceil(page).max(2);
    if entries * 8 <= page {
        return (entries * 8).next_power_of_two();
    }
    (1..).map(|pages| pages * page).find(|length| room(*length, page) >= entries).unwrap_or(page)
}

fn pages(data: &[Window], page: u64, place: ListPlace, list: &mut Vec<u8>) -> Result<DataPointer, Unfit> {
    list.clear();
    let first = data.first().ok_or(Unfit::Misaligned)?.address;
    let most = room(place.length, page) * 8;
    for (i, piece) in data.iter().enumerate() {
        let end = piece.address.checked_add(piece.length).ok_or(Unfit::Misaligned)?;
        let begins = piece.address % if i == 0 { 4 } else { page } == 0;
        let ends = i + 1 == data.len() || end % page == 0;
        if !begins || !ends || piece.length == 0 || piece.length % 4 != 0 {
            return Err(Unfit::Misaligned);
        }
        let mut at = piece.address;
        while at < end {
            if list.len() as u64 > most {
                return Err(Unfit::Pieces);
            }
            list.extend_from_slice(&at.to_le_bytes());
            at = (at | (page - 1)).checked_add(1).unwrap_or(end);
        }
    }
    // The first page is named in the command, and so is the second if it is the last.
    list.drain(..8);
    if list.len() as u64 > most {
        return Err(Unfit::Pieces);
    }
    match <[u8; 8]>::try_from(list.as_slice()) {
        Ok(second) => {
            list.clear();
            Ok(DataPointer::Prp(first, u64::from_le_bytes(second)))
        }
        Err(_) if list.is_empty() => Ok(DataPointer::Prp(first, 0)),
        Err(_) => {
            chain(list, page, place.address);
            Ok(DataPointer::Prp(first, place.address))
        }
    }
}

/// Links the pages of a list that is longer than one: the last entry of each full page becomes the address of the list's next page.
fn chain(list: &mut Vec<u8>, page: u64, address: u64) {
    let (mut begin, page) = (0, page as usize);
    while list.len() - begin > page {
        let last = begin + page - 8;
        begin += page;
        list.splice(last..last, (address + begin as u64).to_le_bytes());
    }
}

fn scatter_gather(
    data: &[Window],
    sgl: Sgl,
    place: ListPlace,
    list: &mut Vec<u8>,
) -> Result<DataPointer, Unfit> {
    list.clear();
    let granule = match sgl {
        Sgl::No => return Err(Unfit::Misaligned),
        Sgl::Bytes => 1,
        Sgl::DoubleWords => 4,
    };
    if data.len() as u64 > place.length / sgl::SIZE as u64 {
        return Err(Unfit::Pieces);
    }
    for piece in data {
        let length = u32::try_from(piece.length).map_err(|_| Unfit::Misaligned)?;
        if length == 0 || piece.address % granule != 0 || piece.length % granule != 0 {
            return Err(Unfit::Misaligned);
        }
        list.extend_from_slice(&Descriptor::data(piece.address, length).bytes());
    }
    if list.len() == sgl::SIZE {
        let only = Descriptor::from_bytes(list);
        list.clear();
        return Ok(DataPointer::Sgl(only));
    }
    Ok(DataPointer::Sgl(Descriptor::last_segment(place.address, list.len() as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcs_nvme::bytes::u64_at;
    use proptest::prelude::*;

    const PLACE: ListPlace = ListPlace { address: 0x100_0000, length: 2 * 4096 };

    /// Walks a pointer as a controller does; returns the pieces, page by page.
    fn walk(pointer: DataPointer, list: &[u8], length: u64, page: u64) -> Vec<Window> {
        let at = |address: u64| u64_at(list, (address - PLACE.address) as usize);
        let mut pieces = Vec::new();
        let mut left = length;
        let mut take = |address: u64, left: &mut u64| {
            let length = (page - address % page).min(*left);
            *left -= length;
            pieces.push(Window { address, length });
        };
        match pointer {
            DataPointer::Prp(first, second) => {
                take(first, &mut left);
                if left > 0 && left <= page {
                    take(second, &mut left);
                }
                let mut entry = second;
                while left > 0 {
                    if entry % page == page - 8 && left > page {
                        entry = at(entry);
                    }
                    assert_eq!(at(entry) % page, 0, "entries of a list begin at a page");
                    take(at(entry), &mut left);
                    entry += 8;
                }
            }
            DataPointer::Sgl(descriptor) => {
                let only = descriptor.bytes();
                let descriptors = if descriptor.kind == sgl::LAST_SEGMENT { list } else { &only };
                assert_eq!(descriptors.len() % sgl::SIZE, 0);
                for one in descriptors.chunks(sgl::SIZE).map(Descriptor::from_bytes) {
                    assert_eq!((one.kind, one.subtype), (sgl::DATA_BLOCK, 0));
                    pieces.push(Window { address: one.address, length: one.length.into() });
                }
            }
            other => panic!("{other:?}"),
        }
        pieces
    }

    fn bytes(pieces: &[Window]) -> Vec<u64> {
        pieces.iter().flat_map(|p| p.address / 4..(p.address + p.length) / 4).collect()
    }

    fn pieces() -> impl Strategy<Value = Vec<Window>> {
        let aligned = (0u64..9, proptest::collection::vec((1u64..0x1000, 1u64..40), 0..6), 0u64..2000)
            .prop_map(|(head, middle, tail)| {
                let mut all = Vec::new();
                if head > 0 {
                    all.push(Window { address: 0x8000_0000 + 0x1000 - head * 4, length: head * 4 });
                }
                for (i, (at, pages)) in middle.into_iter().enumerate() {
                    all.push(Window { address: (i as u64) << 40 | at << 12, length: pages << 12 });
                }
                all.push(Window { address: 0x9000_0000, length: 4 + tail * 4 });
                all
            });
        let any = proptest::collection::vec(
            (0u64..1 << 20, 1u64..5000).prop_map(|(at, n)| Window { address: at * 4, length: n * 4 }),
            1..8,
        );
        prop_oneof![aligned, any]
    }

    proptest! {
        #[test]
        fn what_a_controller_reads_is_what_was_meant(data in pieces(), prefer in any::<bool>(), sgl in 0usize..3) {
            let sgl = [Sgl::No, Sgl::Bytes, Sgl::DoubleWords][sgl];
            let length = data.iter().map(|piece| piece.length).sum();
            let mut list = Vec::new();
            match describe(&data, 12, (sgl, prefer), PLACE, &mut list) {
                Ok(pointer) => {
                    prop_assert!(list.len() as u64 <= PLACE.length);
                    prop_assert_eq!(bytes(&walk(pointer, &list, length, 4096)), bytes(&data));
                }
                Err(unfit) => {
                    prop_assert_eq!((sgl, unfit), (Sgl::No, Unfit::Misaligned));
                    let inside = |w: &[Window]| (w[0].address + w[0].length) | w[1].address;
                    prop_assert!(!data.windows(2).all(|w| inside(w).trailing_zeros() >= 12), "it could have been a page list");
                }
            }
        }
    }

    #[test]
    fn long_lists_are_chained_and_longer_ones_refused() {
        let mut list = Vec::new();
        let place = ListPlace { length: list_length(8 << 20, 4096), ..PLACE };
        assert_eq!(place.length, 5 * 4096);
        let data = [Window { address: 0x1000_0004, length: (8 << 20) - 4 }];
        let pointer = describe(&data, 12, (Sgl::No, false), place, &mut list).unwrap();
        assert_eq!(bytes(&walk(pointer, &list, data[0].length, 4096)), bytes(&data));
        assert_eq!(u64_at(&list, 4088), PLACE.address + 4096);
        let data = [Window { address: 0x1000_0000, length: 1 << 40 }];
        assert_eq!(describe(&data, 12, (Sgl::No, false), place, &mut list), Err(Unfit::Pieces));
        let data = [Window { address: u64::MAX - 4095, length: 4096 }];
        assert_eq!(describe(&data, 12, (Sgl::No, false), place, &mut list), Err(Unfit::Misaligned));
    }

    #[test]
    fn a_list_place_is_large_enough_for_any_offset() {
        for (most, length) in
            [(4096, 16), (64 << 10, 128), (1 << 20, 2048), (2 << 20, 4096), (4 << 20, 12288)]
        {
            assert_eq!(list_length(most, 4096), length, "{most}");
            let place = ListPlace { length, ..PLACE };
            let data = [Window { address: 0x1ffc, length: most }];
            assert!(describe(&data, 12, (Sgl::No, false), place, &mut Vec::new()).is_ok(), "{most}");
        }
    }
}
