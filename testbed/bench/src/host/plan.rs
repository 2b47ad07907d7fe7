//! The plan of a run: jobs, streams, sizes, hogs, contenders.

use super::contender::Contender;
use super::job::{JOBS, Job};
use crate::args;
use crate::failure::Failure;
use crate::harness::contender::Named;

/// Default bytes of an object.
const SIZE: u64 = 4 << 20;
/// Most bytes of an object.
const SIZE_MAX: u64 = 1 << 30;
const STREAMS: [usize; 4] = [1, 4, 16, 64];
/// Number of streams at which the default set measures everything.
const STREAMS_USUAL: usize = 16;

/// Scenarios in order.
pub struct Plan {
    pub steps: Vec<Step>,
}

/// A scenario.
#[derive(Debug)]
pub struct Step {
    pub job: Job,
    pub streams: usize,
    pub size: u64,
    pub hogs: usize,
    pub memory_hogs: usize,
    pub contenders: Vec<Contender>,
}

impl Step {
    fn key(&self) -> (&Job, usize, u64, usize, usize) {
        (&self.job, self.streams, self.size, self.hogs, self.memory_hogs)
    }
}

impl Plan {
    pub fn new(options: &args::Host, jobs: &[String]) -> Result<Plan, Failure> {
        let picked = Contender::picked(&options.contenders)?;
        let mut plan = Plan { steps: Vec::new() };
        if jobs.is_empty() && options.size.is_empty() {
            plan.add_default_set(options, &picked)?;
        } else {
            let names: Vec<&str> = match jobs {
                [] => JOBS.iter().map(|(name, _)| *name).collect(),
                jobs => jobs.iter().map(String::as_str).collect(),
            };
            let sizes = if options.size.is_empty() { &[SIZE][..] } else { &options.size };
            for size in sizes {
                for name in &names {
                    plan.add(options, &picked, name, &STREAMS, *size)?;
                }
            }
        }
        match plan.steps.iter().map(|step| step.size).find(|size| !(1..=SIZE_MAX).contains(size)) {
            Some(0) => Err(Failure::usage("--size 0: nothing to move").advise("use 4k, 64k or 4M")),
            Some(_) => {
                Err(Failure::usage("--size: the data are kept in memory as well").advise("use 1G or less"))
            }
            None => Ok(plan),
        }
    }

    /// Adds the plan for a few minutes: the main job at all numbers of streams, the others at one.
    fn add_default_set(&mut self, options: &args::Host, picked: &[Contender]) -> Result<(), Failure> {
        let (main, others) = (JOBS[0].0, &JOBS[1..]);
        let pair = [Contender::Loop, Contender::Engine];
        let few = if picked.is_empty() { &pair[..] } else { picked };
        for streams in STREAMS {
            let contenders = if streams == STREAMS_USUAL { picked } else { few };
            self.add(options, contenders, main, &[streams], SIZE)?;
        }
        for (name, _) in others {
            let is_plain = name.starts_with("file>") && *name != "file>socket";
            self.add(options, if is_plain { few } else { picked }, name, &[STREAMS_USUAL], SIZE)?;
        }
        self.add(options, few, main, &[1, 64], 4 << 10)
    }

    fn add(
        &mut self,
        options: &args::Host,
        picked: &[Contender],
        name: &str,
        streams: &[usize],
        size: u64,
    ) -> Result<(), Failure> {
        let job = Job::parse(name)?;
        let contenders = match picked {
            [] => Contender::usual(&job, options.cold, super::data::is_small(size)),
            picked => picked.iter().copied().filter(|contender| contender.can(&job)).collect(),
        };
        if contenders.is_empty() {
            let names: Vec<_> = picked.iter().map(|contender| contender.name()).collect();
            return Err(Failure::usage(format!("{} cannot do {name}", names.join(", ")))
                .advise("leave --contenders out, or see dcs bench --list"));
        }
        let streams = if options.streams.is_empty() { streams } else { &options.streams };
        let hogs = if options.hogs.is_empty() { &[0][..] } else { &options.hogs };
        let memory_hogs = if options.memory_hogs.is_empty() { &[0][..] } else { &options.memory_hogs };
        let beside = hogs.iter().flat_map(|hogs| memory_hogs.iter().map(|memory_hogs| (*hogs, *memory_hogs)));
        for streams in streams {
            for (hogs, memory_hogs) in beside.clone() {
                let (job, contenders) = (job.clone(), contenders.clone());
                let step = Step { job, streams: *streams, size, hogs, memory_hogs, contenders };
                if self.steps.iter().all(|known| known.key() != step.key()) {
                    self.steps.push(step);
                }
            }
        }
        Ok(())
    }

    /// Returns the sizes in the order of the steps, each once.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes = Vec::new();
        for step in &self.steps {
            if !sizes.contains(&step.size) {
                sizes.push(step.size);
            }
        }
        sizes
    }

    pub fn most_streams(&self, size: u64) -> usize {
        self.steps.iter().filter(|step| step.size == size).map(|step| step.streams).max().unwrap_or(1)
    }
}
