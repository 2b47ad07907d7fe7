//! Finds a command's data: walks PRP lists and SGLs. It reads nothing itself: it returns what to fetch, and takes the bytes.

use dcs_nvme::Status;
use dcs_nvme::sgl::{self, Descriptor, SIZE};

use super::status;

/// A range of bytes at a bus address. Without an address they are dropped: an SGL's bit bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte.
    pub address: Option<u64>,
    /// Length in bytes, not zero.
    pub length: u64,
}

/// Next step of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Fetch these bytes, for [`Walk::feed`].
    Fetch {
        /// Bus address.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
    /// Finished: the places of the data.
    Done(Vec<Segment>),
}

/// A walk along a command's data pointer.
#[derive(Clone, Debug)]
pub struct Walk {
    kind: Kind,
    found: Vec<Segment>,
    /// Bytes of data yet to be found.
    left: u64,
    fetched: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Prp { page: u64 },
    Sgl { last: bool, write: bool, dword: bool },
}

/// Most descriptors of a list that are followed, since a list may be endless.
const DESCRIPTORS_MAX: usize = 1 << 16;

impl Walk {
    /// Begins a walk along both PRP entries of a command [NVMe 1.4, 4.3]. `length` is in bytes, `page` the page size of CC.MPS.
    pub fn prp((first, second): (u64, u64), length: u64, page: u64) -> Result<(Walk, Next), Status> {
        let mut walk = Walk { kind: Kind::Prp { page }, found: Vec::new(), left: length, fetched: 0 };
        if first % 4 != 0 {
            return Err(status::INVALID_PRP_OFFSET);
        }
        walk.add(Some(first), page - first % page)?;
        let next = match walk.left {
            0 => walk.done(),
            left if left <= page => {
                walk.whole_page(second, page)?;
                walk.done()
            }
            _ if second % 8 != 0 => return Err(status::INVALID_PRP_OFFSET),
            _ => walk.fetch_list(second, page),
        };
        Ok((walk, next))
    }

    /// Begins a walk along the SGL that begins with `first` [NVMe 1.4, 4.4]. `write`: data go to the device. `dword`: addresses
    /// and lengths must be multiples of four.
    pub fn sgl(first: Descriptor, length: u64, write: bool, dword: bool) -> Result<(Walk, Next), Status> {
        let kind = Kind::Sgl { last: true, write, dword };
        let mut walk = Walk { kind, found: Vec::new(), left: length, fetched: 0 };
        let next = match walk.descriptor(first, true)? {
            Some(fetch) => fetch,
            None => walk.finish()?,
        };
        Ok((walk, next))
    }

    /// Takes the bytes that were to be fetched.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Next, Status> {
        match self.kind {
            Kind::Prp { page } => self.feed_list(bytes, page),
            Kind::Sgl { .. } => self.feed_segment(bytes),
        }
    }

    /// Adds up to `room` bytes at an address.
    fn add(&mut self, address: Option<u64>, room: u64) -> Result<(), Status> {
        let length = room.min(self.left);
        if length == 0 {
            return Ok(());
        }
        if self.found.len() == DESCRIPTORS_MAX {
            return Err(status::INVALID_SGL_COUNT);
        }
        self.left -= length;
        match (self.found.last_mut(), address) {
            // Consecutive pages form one segment.
            (Some(Segment { address: Some(start), length: before }), Some(address))
                if start.checked_add(*before) == Some(address) =>
            {
                *before += length;
            }
            _ => self.found.push(Segment { address, length }),
        }
        Ok(())
    }

    fn done(&mut self) -> Next {
        Next::Done(std::mem::take(&mut self.found))
    }

    fn whole_page(&mut self, entry: u64, page: u64) -> Result<(), Status> {
        if !entry.is_multiple_of(page) {
            return Err(status::INVALID_PRP_OFFSET);
        }
        self.add(Some(entry), page)
    }

    /// Fetches the rest of the page that a list starts in, or as much as is needed.
    fn fetch_list(&mut self, address: u64, page: u64) -> Next {
        let entries = ((page - address % page) / 8).min(self.left.div_ceil(page));
        Next::Fetch { address, length: entries * 8 }
    }

    fn feed_list(&mut self, bytes: &[u8], page: u64) -> Result<Next, Status> {
        let entries = bytes.chunks_exact(8).map(|entry| u64::from_le_bytes(entry.try_into().expect("eight")));
        let count = entries.len() as u64;
        // If the list continues, its last entry points to the next part.
        let goes_on = self.left.div_ceil(page) > count;
        for (i, entry) in entries.enumerate() {
            if goes_on && i as u64 == count - 1 {
                if entry % page != 0 {
                    return Err(status::INVALID_PRP_OFFSET);
                }
                return Ok(self.fetch_list(entry, page));
            }
            self.whole_page(entry, page)?;
        }
        Ok(self.done())
    }

    fn finish(&mut self) -> Result<Next, Status> {
        if self.left > 0 {
            return Err(status::INVALID_SGL_LENGTH);
        }
        Ok(self.done())
    }

    /// Handles an SGL descriptor. Returns a segment to fetch if it points to one, which only the `last` of a segment may.
    fn descriptor(&mut self, one: Descriptor, last: bool) -> Result<Option<Next>, Status> {
        let Kind::Sgl { write, dword, .. } = self.kind else { unreachable!("an SGL") };
        let (address, length) = (one.address, u64::from(one.length));
        if one.subtype != 0 {
            return Err(status::INVALID_SGL_TYPE);
        }
        if dword && (address % 4 != 0 || length % 4 != 0) {
            return Err(status::INVALID_FIELD);
        }
        match one.kind {
            // A bit bucket takes no bytes from the host [NVMe 1.4, 4.4.1].
            sgl::BIT_BUCKET if write => Ok(None),
            sgl::DATA_BLOCK | sgl::BIT_BUCKET if length > self.left => Err(status::INVALID_SGL_LENGTH),
            sgl::DATA_BLOCK => self.add(Some(address), length).map(|()| None),
            sgl::BIT_BUCKET => self.add(None, length).map(|()| None),
            sgl::SEGMENT | sgl::LAST_SEGMENT if !last || length == 0 || length % SIZE as u64 != 0 => {
                Err(status::INVALID_SGL_SEGMENT)
            }
            sgl::SEGMENT | sgl::LAST_SEGMENT => {
                self.fetched += length as usize / SIZE;
                if self.fetched > DESCRIPTORS_MAX {
                    return Err(status::INVALID_SGL_COUNT);
                }
                self.kind = Kind::Sgl { last: one.kind == sgl::LAST_SEGMENT, write, dword };
                Ok(Some(Next::Fetch { address, length }))
            }
            _ => Err(status::INVALID_SGL_TYPE),
        }
    }

    fn feed_segment(&mut self, bytes: &[u8]) -> Result<Next, Status> {
        let Kind::Sgl { last: final_segment, .. } = self.kind else { unreachable!("an SGL") };
        let count = bytes.len() / SIZE;
        for (i, one) in bytes.chunks_exact(SIZE).map(Descriptor::from_bytes).enumerate() {
            let may_lead_on = !final_segment && i + 1 == count;
            if let Some(next) = self.descriptor(one, may_lead_on)? {
                return Ok(next);
            }
        }
        // A segment other than the last ends in a descriptor of the next one.
        if !final_segment {
            return Err(status::INVALID_SGL_COUNT);
        }
        self.finish()
    }
}
