//! Walks along a command's data pointer: the locations of its data, piece by piece. [base 4.1]
//!
//! A controller calls [`Walk::next`] until there are no more pieces. Entries of lists are read through a closure, in groups, each once: the
//! checked values are the ones that are used, whatever the host writes meanwhile.

use crate::bytes::{array_at, u64_at};
use crate::command::DataPointer;
use crate::sgl::{DATA_BLOCK, Descriptor, LAST_SEGMENT, SEGMENT, SIZE};
use crate::status::Status;

/// Bytes of a list that are read at once.
const GROUP: usize = 128;
/// Size of an entry of a PRP list in bytes.
const ENTRY: u64 = 8;
/// Most descriptors of a scatter gather list to follow, since a list can be endless.
const DESCRIPTORS_MAX: u32 = 1 << 14;

/// A range of a command's data in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes, not zero.
    pub length: u64,
}

/// A walk in progress.
#[derive(Clone, Debug)]
pub struct Walk {
    kind: Kind,
    /// Bytes of data not found yet.
    left: u64,
    group: [u8; GROUP],
    /// Part of `group` that is not decoded yet.
    unread: core::ops::Range<usize>,
    /// Address in the host's memory at which the list continues.
    list: u64,
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The two entries in the command.
    Prp { first: u64, second: u64, page: u64 },
    /// The second entry of the command, not decoded yet.
    PrpSecond { second: u64, page: u64 },
    /// A list, with the number of entries left of the page that it is in.
    PrpList { page: u64, entries: u64 },
    /// The descriptor in the command.
    Sgl(Descriptor),
    /// A segment: the number of descriptors left, whether it is the last segment, and how many more descriptors may be followed.
    SglSegment { descriptors: u32, last: bool, budget: u32 },
    /// The end: nothing follows.
    End,
}

impl HostRange {
    /// Returns where `length` bytes lie if they are within the first page that `pointer` names, as most commands' are: what a walk would find.
    #[inline]
    pub fn of_one_page(pointer: &DataPointer, length: u64, page: u64) -> Option<HostRange> {
        let DataPointer::Prp(first, _) = *pointer else { return None };
        let fits = length > 0 && first.is_multiple_of(4) && length <= page - (first & (page - 1));
        fits.then_some(HostRange { address: first, length })
    }
}

impl Walk {
    /// Starts a walk along `pointer` to `length` bytes, with memory pages of `page` bytes, a power of two.
    ///
    /// # Errors
    ///
    /// Invalid Field in Command for a pointer of a reserved kind, or with metadata.
    pub fn new(pointer: &DataPointer, length: u64, page: u64) -> Result<Walk, Status> {
        let kind = match *pointer {
            DataPointer::Prp(first, second) => Kind::Prp { first, second, page },
            DataPointer::Sgl(descriptor) => Kind::Sgl(descriptor),
            DataPointer::SglWithMetadata(_) | DataPointer::Reserved(_) => return Err(Status::INVALID_FIELD),
        };
        Ok(Walk { kind, left: length, group: [0; GROUP], unread: 0..0, list: 0, steps: 0 })
    }

    /// Returns the next piece of the data, `None` after the last one. `read` copies from the host's memory, and returns false if it could
    /// not.
    ///
    /// # Errors
    ///
    /// The specification's status for an invalid list; Data Transfer Error if it cannot be read.
    pub fn next(
        &mut self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Option<HostRange>, Status> {
        loop {
            self.steps += 1;
            match self.kind {
                // Only a scatter gather list can be too short.
                Kind::End if self.left > 0 => return Err(Status::INVALID_SGL_LENGTH),
                Kind::End => return Ok(None),
                Kind::Prp { first, second, page } => {
                    if !first.is_multiple_of(4) {
                        return Err(Status::INVALID_PRP_OFFSET);
                    }
                    self.kind = Kind::PrpSecond { second, page };
                    if self.left > 0 {
                        return self.found(first, page - first % page).map(Some);
                    }
                }
                Kind::PrpSecond { second, page } => {
                    if let Some(place) = self.second(second, page)? {
                        return Ok(Some(place));
                    }
                }
                Kind::PrpList { page, entries } => {
                    if let Some(place) = self.entry(page, entries, read)? {
                        return Ok(Some(place));
                    }
                }
                Kind::Sgl(descriptor) => {
                    self.kind = Kind::End;
                    if let Some(place) = self.descriptor(descriptor, true, DESCRIPTORS_MAX)? {
                        return Ok(Some(place));
                    }
                }
                Kind::SglSegment { descriptors, last, budget } => {
                    if let Some(place) = self.of_segment(descriptors, last, budget, read)? {
                        return Ok(Some(place));
                    }
                }
            }
        }
    }

    /// Returns the number of entries and descriptors looked at so far, empty ones too: the work of the walk.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn found(&mut self, address: u64, room: u64) -> Result<HostRange, Status> {
        let length = room.min(self.left);
        self.left -= length;
        Ok(HostRange { address, length })
    }

    /// Interprets the second entry: a page if one suffices, otherwise a list.
    fn second(&mut self, second: u64, page: u64) -> Result<Option<HostRange>, Status> {
        self.kind = Kind::End;
        if self.left == 0 {
            return Ok(None);
        }
        if self.left <= page {
            return self.page(second, page).map(Some);
        }
        if !second.is_multiple_of(ENTRY) {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        self.list = second;
        self.kind = Kind::PrpList { page, entries: (page - second % page) / ENTRY };
        Ok(None)
    }

    fn page(&mut self, address: u64, page: u64) -> Result<HostRange, Status> {
        if !address.is_multiple_of(page) {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        self.found(address, page)
    }

    /// Returns the next entry of a PRP list. The last one of a page names the next page of the list, if there are more data than it could
    /// describe.
    fn entry(
        &mut self,
        page: u64,
        entries: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Option<HostRange>, Status> {
        if self.left == 0 {
            self.kind = Kind::End;
            return Ok(None);
        }
        let needed = self.left.div_ceil(page);
        if self.unread.is_empty() {
            self.fill(entries.min(needed) * ENTRY, read)?;
        }
        let address = u64_at(&self.group, self.unread.start);
        self.unread.start += ENTRY as usize;
        if entries == 1 && needed > 1 {
            if !address.is_multiple_of(page) {
                return Err(Status::INVALID_PRP_OFFSET);
            }
            self.list = address;
            self.kind = Kind::PrpList { page, entries: page / ENTRY };
            return Ok(None);
        }
        self.kind = Kind::PrpList { page, entries: entries - 1 };
        self.page(address, page).map(Some)
    }

    /// Reads more of a list: as much of the next `most` bytes as there is room for.
    fn fill(&mut self, most: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Result<(), Status> {
        let length = most.min(GROUP as u64) as usize;
        if !read(self.list, &mut self.group[..length]) {
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        self.list = self.list.wrapping_add(length as u64);
        self.unread = 0..length;
        Ok(())
    }

    fn of_segment(
        &mut self,
        descriptors: u32,
        last: bool,
        budget: u32,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Option<HostRange>, Status> {
        if descriptors == 0 {
            // A segment that is not the last one ends with a descriptor of the next one.
            if !last {
                return Err(Status::INVALID_SGL_COUNT);
            }
            self.kind = Kind::End;
            return Ok(None);
        }
        if self.unread.is_empty() {
            self.fill(u64::from(descriptors) * SIZE as u64, read)?;
        }
        let bytes: [u8; SIZE] = array_at(&self.group, self.unread.start);
        self.unread.start += SIZE;
        self.kind = Kind::SglSegment { descriptors: descriptors - 1, last, budget };
        self.descriptor(Descriptor::from_bytes(&bytes), !last && descriptors == 1, budget)
    }

    /// Returns the next descriptor. It may lead to a segment only if `may_lead_on` is set.
    fn descriptor(
        &mut self,
        one: Descriptor,
        may_lead_on: bool,
        budget: u32,
    ) -> Result<Option<HostRange>, Status> {
        if one.subtype != 0 {
            return Err(Status::INVALID_SGL_TYPE);
        }
        match one.kind {
            DATA_BLOCK if u64::from(one.length) > self.left => Err(Status::INVALID_SGL_LENGTH),
            DATA_BLOCK if one.length == 0 => Ok(None),
            DATA_BLOCK => self.found(one.address, one.length.into()).map(Some),
            SEGMENT | LAST_SEGMENT
                if !may_lead_on || one.length == 0 || !one.length.is_multiple_of(SIZE as u32) =>
            {
                Err(Status::INVALID_SGL_SEGMENT)
            }
            SEGMENT | LAST_SEGMENT => {
                let descriptors = one.length / SIZE as u32;
                let budget = budget.checked_sub(descriptors).ok_or(Status::INVALID_SGL_COUNT)?;
                (self.list, self.unread) = (one.address, 0..0);
                self.kind = Kind::SglSegment { descriptors, last: one.kind == LAST_SEGMENT, budget };
                Ok(None)
            }
            _ => Err(Status::INVALID_SGL_TYPE),
        }
    }
}
