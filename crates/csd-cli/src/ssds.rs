//! SSDs that the process drives itself: a request starts them before it locks anything, since that may take
//! long.

use crate::layout;
use crate::layout::{KnownSsd, Layout};
use crate::process::{Process, lock};
use crate::refused::Refused;
use dcs_csd_cli::backings::{self, Ssd};
use dcs_csd_cli::spec::Drive;
use dcs_devices::vfio_devices::DriveError;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// Advice if an SSD cannot be driven.
const BINDING: &str =
    "it must be bound to vfio-pci, behind an IOMMU: dcs doctor --bind says how, and what else uses it";

/// Opens and starts the SSD of a PCI function and a namespace; its interrupts signal a descriptor.
type Open = dyn Fn(&str, Option<u32>, BorrowedFd<'_>) -> Result<Ssd, DriveError> + Send + Sync;

/// Starts SSDs.
pub struct Ssds {
    open: Box<Open>,
    /// Held while SSDs are started: two requests may name the same one.
    starting: Mutex<()>,
}

impl Ssds {
    /// SSDs over VFIO.
    pub fn new() -> Ssds {
        Ssds { open: Box::new(backings::open), starting: Mutex::default() }
    }
}

/// SSDs that were started for a request, by PCI function.
pub struct Started<'a> {
    ssds: BTreeMap<String, (Ssd, u32, u64)>,
    _turn: Option<MutexGuard<'a, ()>>,
}

/// Returns the number of the SSD's namespace in a backing.
fn number(path: &Path, namespace: Option<&str>) -> Result<Option<u32>, Refused> {
    let Some(text) = namespace else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| {
        Refused::new(format!("{}: {text:?} is not a namespace; expected a number from 1", path.display()))
    })
}

impl Process {
    /// Starts the SSDs over VFIO on which namespaces will be, unless the process has them already. The
    /// process's lock is not held meanwhile.
    pub(crate) fn start_ssds(&self, spec: &Drive) -> Result<Started<'_>, Refused> {
        let mut started = Started { ssds: BTreeMap::new(), _turn: None };
        for path in spec.namespaces.iter().flat_map(|space| &space.backing) {
            let Some((function, namespace)) = layout::ssd(path) else { continue };
            let wanted = number(path, namespace)?;
            started._turn.get_or_insert_with(|| lock(&self.ssds.starting));
            let known = lock(&self.held).layout.ssds.get(&function).map(|known| known.namespace);
            let known = known.or(started.ssds.get(&function).map(|(_, namespace, _)| *namespace));
            if let Some(known) = known {
                if wanted.is_none_or(|wanted| wanted == known) {
                    continue;
                }
                let why = format!("{function}: namespace {known} is driven already");
                return Err(Refused::new(why).advise("a process drives one namespace of an SSD"));
            }
            let ssd = (self.ssds.open)(&function, wanted, self.wake.as_fd());
            let ssd = ssd.map_err(|error| Refused::new(error).advise(BINDING))?;
            let known = ssd.namespace();
            let (namespace, length) = known.ok_or_else(|| Refused::new(format!("{function} is gone")))?;
            started.ssds.insert(function, (ssd, namespace, length));
        }
        Ok(started)
    }

    /// Gives started SSDs to the loop. They stay with the process until it ends, unless the request is
    /// refused. Returns their functions.
    pub(crate) fn take_ssds(&self, layout: &mut Layout, started: Started<'_>) -> Vec<String> {
        let take = |(function, (ssd, namespace, length)): (String, (Ssd, u32, u64))| {
            let number = self.call(move |drives| drives.storage_mut().add_ssd(ssd));
            layout.ssds.insert(function.clone(), KnownSsd { number, namespace, length });
            function
        };
        started.ssds.into_iter().map(take).collect()
    }

    /// Takes back SSDs of a refused request: no volume on them was ever used. They are stopped when they are
    /// dropped, which may take long.
    pub(crate) fn release_ssds(&self, layout: &mut Layout, taken: Vec<String>) -> Vec<Ssd> {
        let known = taken.iter().filter_map(|function| layout.ssds.remove(function));
        known
            .filter_map(|known| self.call(move |drives| drives.storage_mut().take_ssd(known.number)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    /// A time limit that is never reached.
    const LONG: Duration = Duration::from_secs(60);

    /// Runs it on a thread of its own; returns the receiver of its result.
    fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (told, result) = channel();
        std::thread::spawn(move || told.send(work()));
        result
    }

    /// While an SSD starts, the process carries out all other requests; one that names the same SSD waits.
    #[test]
    fn an_ssd_that_starts_slowly_holds_up_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::File::create(&disk).unwrap().set_len(4 << 20).unwrap();
        let (begun, starts) = channel();
        let (goes_on, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let open = move |function: &str, _: Option<u32>, _: BorrowedFd<'_>| {
            begun.send(function.to_owned()).unwrap();
            let _ = wait.lock().unwrap().recv();
            Err(DriveError::Slow(function.to_owned()))
        };
        let ssds = Ssds { open: Box::new(open), starting: Mutex::default() };
        let process = Process::start(folder.path(), Duration::ZERO, None, ssds).unwrap();
        let spec = |text: &str| Drive::parse(text).unwrap();
        let add = |text: String| {
            let (process, spec) = (process.clone(), spec(&text));
            aside(move || process.add(spec).map_err(|refused| refused.error))
        };
        let on_ssd = |name: &str| add(format!("{name}:size=1M,backing=nvme:0000:01:00.0"));
        let slow = on_ssd("slow");
        assert_eq!(starts.recv_timeout(LONG).unwrap(), "0000:01:00.0");
        let other = add(format!("other:size=1M,block=4096,backing={}", disk.display()));
        assert_eq!(other.recv_timeout(LONG).expect("it waits for the SSD"), Ok(()));
        let same = on_ssd("same");
        let listed = process.clone();
        let listed = aside(move || listed.state().len());
        assert_eq!(listed.recv_timeout(LONG).expect("it waits for the SSD"), 1);
        assert!(starts.try_recv().is_err() && slow.try_recv().is_err() && same.try_recv().is_err());
        goes_on.send(()).unwrap();
        let refused = slow.recv_timeout(LONG).unwrap().unwrap_err();
        assert!(refused.contains("0000:01:00.0"), "{refused}");
        assert_eq!(starts.recv_timeout(LONG).unwrap(), "0000:01:00.0");
        goes_on.send(()).unwrap();
        assert!(same.recv_timeout(LONG).unwrap().is_err());
    }
}
