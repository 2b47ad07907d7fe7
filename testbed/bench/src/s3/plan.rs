//! The plan of a run: jobs, sizes, clients, contenders.

use super::contender::Contender;
use super::options::{CLIENTS, Job, Options, SIZE_MAX, SIZES};
use crate::failure::Failure;

/// Default sizes and clients.
const USUAL: [(u64, usize); 2] = [(16 << 20, 8), (64 << 10, 64)];
/// Default sizes if only clients are given.
const USUAL_SIZES: [u64; 2] = [64 << 10, 16 << 20];
/// Default clients if only sizes are given.
const USUAL_CLIENTS: [usize; 1] = [8];

/// A scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub job: Job,
    pub size: u64,
    pub clients: usize,
    pub contenders: Vec<Contender>,
}

/// Returns the scenarios in order, those of one size next to each other.
pub fn steps(options: &Options, contenders: &[Contender]) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    for (size, clients) in scenarios(options)? {
        for job in jobs(options) {
            let contenders: Vec<_> = contenders.iter().copied().filter(|one| one.can(job)).collect();
            let step = Step { job, size, clients, contenders };
            if !step.contenders.is_empty() && !steps.contains(&step) {
                steps.push(step);
            }
        }
    }
    match steps.is_empty() {
        true => Err(Failure::usage("none of these contenders does this job")
            .advise("see what each does with dcs bench s3 --list")),
        false => Ok(steps),
    }
}

pub fn jobs(options: &Options) -> Vec<Job> {
    if options.jobs.is_empty() {
        return vec![Job::Put, Job::Get];
    }
    let mut jobs = options.jobs.clone();
    jobs.dedup();
    jobs
}

fn scenarios(options: &Options) -> Result<Vec<(u64, usize)>, Failure> {
    let (sizes, clients) = match (options.size.is_empty(), options.clients.is_empty(), options.all) {
        (true, true, false) => return Ok(USUAL.to_vec()),
        (_, _, true) => (&SIZES[..], &CLIENTS[..]),
        _ => (&USUAL_SIZES[..], &USUAL_CLIENTS[..]),
    };
    let sizes = if options.size.is_empty() { sizes } else { &options.size };
    let clients = if options.clients.is_empty() { clients } else { &options.clients };
    if let Some(size) = sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
        let advice = "use 64k, 1M or 16M, and at most 1G: the objects are also kept in memory";
        return Err(Failure::usage(format!("--size {size}")).advise(advice));
    }
    Ok(sizes.iter().flat_map(|size| clients.iter().map(|clients| (*size, *clients))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, BenchCommand, Command};
    use crate::harness::contender::Named;
    use clap::Parser;

    fn options(line: &str) -> Options {
        let words = ["dcs", "bench", "s3"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Bench(bench) => match bench.command.unwrap() {
                BenchCommand::S3(options) => options,
                _ => panic!("another benchmark"),
            },
            _ => panic!("not a benchmark"),
        }
    }

    fn planned(line: &str) -> Vec<(&'static str, u64, usize)> {
        let options = options(line);
        let steps = steps(&options, &Contender::wanted(&options).unwrap()).unwrap();
        steps.iter().map(|step| (step.job.name(), step.size, step.clients)).collect()
    }

    #[test]
    fn the_usual_set_and_the_grid() {
        let (large, small) = ((16 << 20, 8), (64 << 10, 64));
        let usual = [("put", large), ("get", large), ("put", small), ("get", small)];
        assert_eq!(planned(""), usual.map(|(job, (size, clients))| (job, size, clients)));
        assert_eq!(planned("--all").len(), 2 * 4 * 3);
        assert_eq!(planned("get --all --clients 1").len(), 4);
        assert_eq!(planned("put --size 1M"), [("put", 1 << 20, 8)]);
        assert_eq!(planned("get --clients 2,2 --size 1k"), [("get", 1024, 2)]);
        assert_eq!(planned("--contenders nginx --size 1k"), [("get", 1024, 8)]);
    }

    #[test]
    fn contenders_do_what_they_can() {
        let options = options("--size 1M");
        let steps = steps(&options, &Contender::wanted(&options).unwrap()).unwrap();
        let names = |step: &Step| step.contenders.iter().map(|one| one.name()).collect::<Vec<_>>();
        assert_eq!(names(&steps[0]), ["dcs", "dcs-none", "versitygw", "minio", "rclone"]);
        assert_eq!(names(&steps[1]), ["dcs", "dcs-verify", "versitygw", "minio", "rclone", "nginx"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--size 0", "--size 2G", "put --contenders nginx", "--contenders apache"] {
            let options = options(line);
            let planned = Contender::wanted(&options).and_then(|picked| steps(&options, &picked));
            assert!(planned.unwrap_err().advice.is_some(), "{line}");
        }
    }
}
