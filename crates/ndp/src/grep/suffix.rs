//! Matches by their end: where every match ends with the same bytes, those are found by vector instructions, and an automaton goes
//! backwards from them over the match alone, not over the line.
//!
//! No byte is looked at backwards twice, so that lines full of such ends take linear time too: who would have to look at one again
//! is told so, and searches the line forwards.

use super::pattern::AUTOMATON_MAX;
use memchr::memmem::Finder;
use regex_automata::hybrid::dfa;
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::Hir;
use regex_syntax::hir::literal::{ExtractKind, Extractor};
use std::ops::Range;

/// Fewest bytes of an end that are worth a search.
const LENGTH_MIN: usize = 2;

/// Bytes of cached states.
const STATES_MAX: usize = 256 << 10;

/// The common end of all matches, and an automaton that reads a match from its end.
pub(super) struct Suffix {
    finder: Finder<'static>,
    dfa: dfa::DFA,
    cache: dfa::Cache,
}

/// Outcome of a look backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backwards {
    Match,
    /// No match ends here.
    No,
    /// It is not known without bytes that were looked at before.
    Unknown,
}

impl Suffix {
    /// Returns `None` if matches do not end alike, or the automaton becomes too large.
    pub(super) fn new(hir: &Hir) -> Option<Suffix> {
        let mut ends = Extractor::new().kind(ExtractKind::Suffix).extract(hir);
        ends.optimize_for_suffix_by_preference();
        let end = ends.longest_common_suffix().filter(|end| end.len() >= LENGTH_MIN)?;
        let config = thompson::Config::new()
            .utf8(false)
            .reverse(true)
            .which_captures(thompson::WhichCaptures::None)
            .nfa_size_limit(Some(AUTOMATON_MAX));
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(hir).ok()?;
        let config = dfa::Config::new()
            .match_kind(MatchKind::All)
            .cache_capacity(STATES_MAX)
            .skip_cache_capacity_check(true);
        let dfa = dfa::Builder::new().configure(config).build_from_nfa(nfa).ok()?;
        let cache = dfa.create_cache();
        Some(Suffix { finder: Finder::new(end).into_owned(), dfa, cache })
    }

    /// Returns the place behind the next end.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        let found = self.finder.find(&text[from..])?;
        Some(from + found + self.length())
    }

    /// Bytes of an end.
    pub(super) fn length(&self) -> usize {
        self.finder.needle().len()
    }

    /// Says whether a match ends at the range's end. `line` is the beginning of a line, and the range begins there or behind what
    /// was looked at before. Fails if the automaton gives up, which it is configured not to.
    pub(super) fn look(&mut self, text: &[u8], line: usize, range: Range<usize>) -> Result<Backwards, ()> {
        let (dfa, cache) = (&self.dfa, &mut self.cache);
        let haystack = &text[line..];
        let range = range.start - line..range.end - line;
        let input = Input::new(haystack).range(range.clone()).anchored(Anchored::Yes);
        let mut state = dfa.start_state_reverse(cache, &input).map_err(|_| ())?;
        // A match is told one byte late.
        for byte in haystack[range.clone()].iter().rev() {
            state = dfa.next_state(cache, state, *byte).map_err(|_| ())?;
            if state.is_match() {
                return Ok(Backwards::Match);
            }
            if state.is_dead() {
                return Ok(Backwards::No);
            }
        }
        if range.start > 0 {
            return Ok(Backwards::Unknown);
        }
        let is_match = dfa.next_eoi_state(cache, state).map_err(|_| ())?.is_match();
        Ok(if is_match { Backwards::Match } else { Backwards::No })
    }
}
