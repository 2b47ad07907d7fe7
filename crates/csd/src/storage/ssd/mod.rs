//! Volumes on namespaces of NVMe SSDs that this process drives itself, past the kernel: over VFIO, or over any other
//! [`Bus`](dcs_drivers::bus::Bus). A volume is a slice of one of them, or stripes over several.
//!
//! Data go through memory that the SSD reaches: a copy on their way, each way. Requests are cut into pieces, of which each SSD has a bounded
//! number at once; the others wait in order.

mod device;
mod requests;

pub use device::{Ssd, SsdBus};

use std::collections::BTreeMap;

use requests::{Piece, Requests};

use super::{Action, Request, Response, Storage, VolumeError, VolumeId, VolumeInfo};

/// SSDs, and volumes on them.
pub struct SsdStorage<B: SsdBus> {
    /// By number; `None` where one was taken out.
    ssds: Vec<Option<Ssd<B>>>,
    volumes: BTreeMap<u32, Volume>,
    next_volume: u32,
    requests: Requests,
}

struct Volume {
    /// The SSDs, and the place on each.
    slices: Vec<(usize, u64)>,
    /// Bytes of a stripe.
    stripe: u64,
    info: VolumeInfo,
}

impl Volume {
    /// Returns the SSD and the place there of a byte of the volume, and the bytes that follow there.
    fn place(&self, at: u64) -> (usize, u64, u64) {
        let (stripe, count, within) = (at / self.stripe, self.slices.len() as u64, at % self.stripe);
        let (ssd, offset) = self.slices[(stripe % count) as usize];
        (ssd, offset + stripe / count * self.stripe + within, self.stripe - within)
    }
}

impl<B: SsdBus> Default for SsdStorage<B> {
    /// Returns a storage without SSDs.
    fn default() -> SsdStorage<B> {
        SsdStorage {
            ssds: Vec::new(),
            volumes: BTreeMap::new(),
            next_volume: 0,
            requests: Requests::default(),
        }
    }
}

impl<B: SsdBus> SsdStorage<B> {
    /// Adds an SSD, and returns its number.
    pub fn add_ssd(&mut self, ssd: Ssd<B>) -> usize {
        let free = self.ssds.iter().position(Option::is_none).unwrap_or_else(|| {
            self.ssds.push(None);
            self.ssds.len() - 1
        });
        self.ssds[free] = Some(ssd);
        free
    }

    /// Takes out an SSD on which no volume has ever been used.
    pub fn take_ssd(&mut self, number: usize) -> Option<Ssd<B>> {
        self.ssds.get_mut(number)?.take()
    }

    /// Returns an SSD.
    pub fn ssd(&self, number: usize) -> Option<&Ssd<B>> {
        self.ssds.get(number)?.as_ref()
    }

    /// Adds a volume of `length` bytes on these SSDs, from this byte of each one's namespace on. On several it is striped: each has as many
    /// bytes of it, and the volume has whole rows of stripes. Returns `None` if the namespaces do not have them, or they are not whole blocks.
    pub fn add(
        &mut self,
        slices: &[(usize, u64)],
        stripe: u64,
        length: u64,
        read_only: bool,
    ) -> Option<VolumeId> {
        for (number, _) in slices {
            let settled = self.ssds.get_mut(*number)?.as_mut()?.settle_blocks();
            settled.then_some(())?;
        }
        let ssds = || slices.iter().filter_map(|(number, _)| self.ssd(*number));
        let info = VolumeInfo {
            length,
            alignment: ssds().map(Ssd::block).max()?,
            // Data are copied, so they may be anywhere.
            memory_alignment: 1,
            volatile_cache: true,
            thin: false,
            takes_hints: ssds().any(Ssd::deallocates),
            read_only,
            writes_zeros: true,
        };
        let stripe = if slices.len() == 1 { u64::MAX } else { stripe };
        let whole = slices.len() == 1 || stripe > 0 && stripe.is_multiple_of(info.alignment);
        let volume = Volume { slices: slices.to_vec(), stripe, info };
        if !whole || !self.fits(&volume, length) {
            return None;
        }
        let id = self.next_volume;
        self.next_volume += 1;
        self.volumes.insert(id, volume);
        Some(VolumeId(id))
    }

    fn fits(&self, volume: &Volume, length: u64) -> bool {
        let count = volume.slices.len() as u64;
        let whole =
            count == 1 || volume.stripe.checked_mul(count).is_some_and(|row| length.is_multiple_of(row));
        let fits = |(number, offset): &(usize, u64)| {
            self.ssd(*number).is_some_and(|ssd| ssd.fits(*offset, length / count))
        };
        whole && volume.slices.iter().all(fits)
    }

    /// Removes a volume. Requests under way on it go on.
    pub fn remove(&mut self, volume: VolumeId) {
        self.volumes.remove(&volume.0);
    }

    /// Changes a volume's length. Returns false if it cannot have that length.
    pub fn resize(&mut self, volume: VolumeId, length: u64) -> bool {
        let fits = self.volumes.get(&volume.0).is_some_and(|held| self.fits(held, length));
        if let Some(held) = self.volumes.get_mut(&volume.0).filter(|_| fits) {
            held.info.length = length;
        }
        fits
    }

    /// Returns true if requests are under way.
    pub fn is_busy(&self) -> bool {
        self.requests.is_busy()
    }

    /// Returns the time by which [`Storage::reap`] is to be called again, by the buses' clock.
    pub fn deadline(&self) -> Option<u64> {
        self.ssds.iter().flatten().filter_map(Ssd::deadline).min()
    }

    /// Checks a request, and cuts it into pieces.
    fn cut(&mut self, request: Request) -> Result<(), (Request, VolumeError)> {
        let Some(volume) = self.volumes.get(&request.volume.0) else {
            return Err((request, VolumeError::Refused));
        };
        let info = &volume.info;
        let end = request.offset.checked_add(request.length);
        let aligned = (request.offset | request.length).is_multiple_of(info.alignment);
        let writes = !matches!(request.action, Action::Read | Action::Flush);
        if !aligned || end.is_none_or(|end| end > info.length) || (writes && info.read_only) {
            return Err((request, VolumeError::Refused));
        }
        let (number, mut pieces) = (self.requests.next(), 0);
        let mut push = |ssd: &mut Ssd<B>, at, position, length| {
            pieces += 1;
            ssd.push(Piece { request: number, at, position, length });
        };
        let mut at = 0;
        match request.action {
            Action::Flush => {
                for (ssd, _) in &volume.slices {
                    if let Some(ssd) = self.ssds[*ssd].as_mut() {
                        push(ssd, 0, 0, 0);
                    }
                }
            }
            action => {
                while at < request.length {
                    let (ssd, position, room) = volume.place(request.offset + at);
                    let ssd = self.ssds[ssd].as_mut().expect("an SSD with volumes is not taken out");
                    let length = room.min(request.length - at).min(ssd.most(action));
                    // Deallocation is a hint: who does not take it has nothing to do.
                    if action != Action::Deallocate || ssd.deallocates() {
                        push(ssd, at, position, length);
                    }
                    at += length;
                }
            }
        }
        self.requests.add(request, pieces);
        Ok(())
    }
}

impl<B: SsdBus> Storage for SsdStorage<B> {
    fn volume(&self, volume: VolumeId) -> Option<VolumeInfo> {
        self.volumes.get(&volume.0).map(|held| held.info)
    }

    fn submit(&mut self, request: Request) {
        if let Err((request, error)) = self.cut(request) {
            self.requests.done.push(Response::refused(request, error));
        }
    }

    fn commit(&mut self) {
        for ssd in self.ssds.iter_mut().flatten() {
            ssd.feed(&mut self.requests);
        }
    }

    fn reap(&mut self, responses: &mut Vec<Response>) {
        for ssd in self.ssds.iter_mut().flatten() {
            ssd.take_answers(&mut self.requests);
            if ssd.has_waiting() {
                ssd.feed(&mut self.requests);
            }
        }
        responses.append(&mut self.requests.done);
    }
}
