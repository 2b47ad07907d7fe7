//! The processors that an engine's threads run on, and the place of their memory.

use crate::error::Error;
use crate::kernel::thread::allowed;
use std::num::NonZeroUsize;
use std::path::Path;

/// A number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// This many.
    Number(NonZeroUsize),
    /// One for each processor that the engine may run on: those of [`Builder::cpus`](super::Builder::cpus),
    /// or of [`Builder::numa_node`](super::Builder::numa_node), or all that the process may use.
    All,
}

impl From<NonZeroUsize> for Cores {
    fn from(number: NonZeroUsize) -> Cores {
        Cores::Number(number)
    }
}

impl std::str::FromStr for Cores {
    type Err = &'static str;

    /// A number from 1 on, or `all`.
    fn from_str(text: &str) -> Result<Cores, &'static str> {
        match text.parse() {
            Ok(number) => Ok(Cores::Number(number)),
            Err(_) if text == "all" => Ok(Cores::All),
            Err(_) => Err("cores are a number from 1 on, or all"),
        }
    }
}

impl Cores {
    /// Number of cores on this machine, for a process that names no processors.
    pub fn count(self) -> usize {
        match self {
            Cores::Number(number) => number.get(),
            Cores::All => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        }
    }
}

/// The place of one thread of an engine and of its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The processors that it may run on; none: all of the process's.
    pub cpus: Vec<usize>,
    /// The NUMA node of its memory.
    pub node: Option<u32>,
}

/// The settings that say where an engine's threads run.
#[derive(Clone, Debug, Default)]
pub(super) struct Where {
    pub cores: Option<Cores>,
    pub cpus: Vec<usize>,
    pub node: Option<u32>,
}

impl Where {
    /// One place for each core.
    pub fn places(&self) -> Result<Vec<Placement>, Error> {
        let mut of_node = self.node.map(|node| cpus_of(Path::new(NODES), node)).transpose()?;
        if let Some(cpus) = &mut of_node {
            // A process that may not use all of the node's stays within what it may.
            let allowed = allowed();
            cpus.retain(|cpu| allowed.contains(cpu));
        }
        let named = if self.cpus.is_empty() { of_node.as_deref().unwrap_or(&[]) } else { &self.cpus };
        let count = match self.cores {
            None => 1,
            Some(Cores::All) if !named.is_empty() => named.len(),
            Some(cores) => cores.count(),
        };
        if !self.cpus.is_empty() && self.cpus.len() != count {
            return Err(Error::Processors(self.cpus.len(), count));
        }
        let place = |at: usize| Placement {
            // Named ones are for a core each; within a node the scheduler chooses.
            cpus: self.cpus.get(at).map_or_else(|| named.to_vec(), |cpu| vec![*cpu]),
            node: self.node,
        };
        Ok((0..count).map(place).collect())
    }
}

/// The folder in which the kernel describes NUMA nodes.
const NODES: &str = "/sys/devices/system/node";

/// The processors of a NUMA node.
fn cpus_of(nodes: &Path, node: u32) -> Result<Vec<usize>, Error> {
    let list = std::fs::read_to_string(nodes.join(format!("node{node}/cpulist")));
    let cpus = list.ok().and_then(|list| parse_list(list.trim()));
    cpus.filter(|cpus| !cpus.is_empty()).ok_or(Error::NumaNode(node))
}

/// A list as the kernel writes it: `0-3,8,10-11`.
fn parse_list(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // As many as the kernel can have.
        if first > last || last >= 1 << 16 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: usize) -> Option<Cores> {
        Some(NonZeroUsize::new(number).unwrap().into())
    }

    #[test]
    fn cores_are_a_number_or_all() {
        assert_eq!("3".parse(), Ok(Cores::Number(NonZeroUsize::new(3).unwrap())));
        assert_eq!("all".parse(), Ok(Cores::All));
        for wrong in ["", "0", "-1", "two", "ALL"] {
            assert!(wrong.parse::<Cores>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn named_processors_are_one_a_core() {
        let places = |cores, cpus: &[usize]| Where { cores, cpus: cpus.to_vec(), node: None }.places();
        assert_eq!(places(None, &[]).unwrap(), [Placement::default()]);
        assert_eq!(places(number(3), &[]).unwrap(), vec![Placement::default(); 3]);
        for cores in [number(2), Some(Cores::All)] {
            let cpus: Vec<_> = places(cores, &[4, 1]).unwrap().into_iter().map(|place| place.cpus).collect();
            assert_eq!(cpus, [[4], [1]]);
        }
        assert!(matches!(places(number(3), &[4, 1]), Err(Error::Processors(2, 3))));
        assert!(matches!(places(None, &[4, 1]), Err(Error::Processors(2, 1))));
    }

    #[test]
    fn a_node_is_as_the_kernel_describes_it() {
        let nodes = tempfile::tempdir().unwrap();
        for (node, list) in [(0, "0-3,8,10-11\n"), (1, "\n"), (2, "3-1\n"), (3, "0-99999999\n"), (4, "x\n")] {
            let folder = nodes.path().join(format!("node{node}"));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("cpulist"), list).unwrap();
        }
        assert_eq!(cpus_of(nodes.path(), 0).unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        for none in 1..6 {
            assert!(matches!(cpus_of(nodes.path(), none), Err(Error::NumaNode(_))), "{none}");
        }
    }
}
