//! Contenders that run in turns, so that all see the same state of the machine; and progress.

use super::contender::Named;
use super::shown::object;
use crate::failure::{Exit, Failure};
use crate::report::Report;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io;
use std::time::Duration;

/// All runs of one contender, in the order of the repetitions.
pub struct Runs<C, R> {
    pub contender: C,
    pub runs: Vec<R>,
}

/// Reports progress and rows.
pub struct Board<'a> {
    report: &'a Report,
    bar: Option<ProgressBar>,
}

impl Board<'_> {
    /// Returns a board for that many runs.
    pub fn new(runs: u64, report: &Report) -> Board<'_> {
        Board { report, bar: (report.shows_progress() && runs > 0).then(|| bar(runs)) }
    }

    pub fn say(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_string());
        }
    }

    /// Runs every contender once in each repetition, beginning with another one each time. `run` is told whether it is the first
    /// repetition.
    pub fn turns<C: Named, R>(
        &self,
        what: &str,
        contenders: &[C],
        repetitions: u32,
        mut run: impl FnMut(C, bool) -> io::Result<R>,
    ) -> Result<Vec<Runs<C, R>>, Failure> {
        let count = contenders.len();
        let mut all: Vec<Runs<C, R>> =
            contenders.iter().map(|one| Runs { contender: *one, runs: Vec::new() }).collect();
        for repetition in 0..repetitions as usize {
            for turn in 0..count {
                let next = &mut all[(turn + repetition) % count];
                self.say(&format!("{what}: {}", next.contender.name()));
                let done = run(next.contender, repetition == 0);
                next.runs.push(done.map_err(|error| failure(what, next.contender, &error))?);
                if let Some(bar) = &self.bar {
                    bar.inc(1);
                }
            }
        }
        Ok(all)
    }

    /// Reports rows: for people as `table` shows them, and for programs.
    pub fn show<R: Serialize>(&self, rows: &[R], table: impl FnOnce(&[R], &Report)) {
        let show = || {
            table(rows, self.report);
            rows.iter().for_each(|row| self.report.object(&object(row)));
        };
        match &self.bar {
            Some(bar) => bar.suspend(show),
            None => show(),
        }
    }
}

impl Drop for Board<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns the failure of a contender that could not do a job, or did it wrong.
pub fn failure(what: &str, contender: impl Named, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{what}, {}: {error}", contender.name()))
}

fn bar(runs: u64) -> ProgressBar {
    let bar = ProgressBar::new(runs);
    bar.enable_steady_tick(Duration::from_millis(100));
    match ProgressStyle::with_template("[{bar:30}] {pos}/{len} runs, {eta} left  {msg}") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Letter {
        A,
        B,
        C,
    }

    impl Named for Letter {
        const ALL: &'static [(Letter, &'static str, &'static str)] =
            &[(Letter::A, "a", "the first"), (Letter::B, "b", "the second"), (Letter::C, "c", "the third")];
    }

    #[test]
    fn each_repetition_has_all_and_another_one_first() {
        let report = Report::silent();
        let mut order = Vec::new();
        let all = Letter::picked(&["a", "b", "c", "a"].map(String::from)).unwrap();
        let runs = Board::new(9, &report).turns("job", &all, 3, |one, first| {
            order.push((one.name(), first));
            Ok(order.len())
        });
        let runs: Vec<_> = runs.unwrap().into_iter().map(|one| (one.contender, one.runs)).collect();
        assert_eq!(order.iter().map(|(name, _)| *name).collect::<String>(), "abcbcacab");
        assert_eq!(order.iter().filter(|(_, first)| *first).count(), 3);
        assert_eq!(
            runs,
            [(Letter::A, vec![1, 6, 8]), (Letter::B, vec![2, 4, 9]), (Letter::C, vec![3, 5, 7])]
        );
    }

    #[test]
    fn a_failure_names_the_job_and_the_contender() {
        let report = Report::silent();
        let board = Board::new(1, &report);
        let failed = board.turns("job", &[Letter::B], 1, |_, _| Err::<(), _>(io::Error::other("too bad")));
        assert_eq!(failed.err().map(|failure| failure.line), Some("job, b: too bad".into()));
        let unknown = Letter::parse("d").unwrap_err();
        assert!(
            unknown.line.contains("\"d\"") && unknown.advice.is_some_and(|advice| advice.contains("a, b, c"))
        );
    }
}
