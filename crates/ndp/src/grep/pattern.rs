//! A regular expression, compiled to find lines: literals by vector instructions, the rest by an automaton whose states
//! are made on demand.

use super::suffix::{Backwards, Suffix};
use regex_automata::hybrid::{LazyStateID, dfa};
use regex_automata::nfa::thompson;
use regex_automata::util::prefilter::Prefilter;
use regex_automata::{Input, MatchKind, Span};
use regex_syntax::ast::{self, Ast};
use regex_syntax::hir::literal::{Extractor, Seq};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{
    Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look, Repetition,
};
use std::ops::Range;

/// Bytes of the longest pattern.
pub(super) const PATTERN_MAX: usize = 1016;

/// Most bytes of an automaton, before its states are made.
pub(super) const AUTOMATON_MAX: usize = 128 << 10;

/// Most places in an automaton. On hostile data, each byte makes a new state of nearly all of them, so the worst time
/// per byte grows with their number. A pattern without repetitions has about one for each of its bytes.
const PLACES_MAX: usize = 1200;

/// Bytes of cached states. When the cache is full it is emptied.
const STATES_MAX: usize = 1 << 20;

/// Deepest nesting of groups.
const NESTING_MAX: u32 = 100;

/// Members of a sequence that are searched for literals, and most of them in one search.
const LITERAL_PLACES: usize = 64;
const LITERAL_MEMBERS: usize = 8;

/// Lines found by literals before their use is judged, and the average bytes between them that make searching for
/// literals worthwhile.
const JUDGED: u64 = 64;
const DISTANCE: u64 = 512;

/// Reason why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern is not a regular expression, or has a feature that is not supported (`docs/operators.md`).
    #[error("{0}")]
    Syntax(String),
    /// The pattern names a line feed, but the lines that are searched have none.
    #[error("it names a line feed, and lines have none")]
    LineFeed,
    /// The pattern uses classes of Unicode, but patterns are of bytes.
    #[error("it asks for Unicode (u), but patterns match bytes")]
    Unicode,
    /// The pattern is empty, or has more than 1,016 bytes.
    #[error("a pattern must have 1 to {PATTERN_MAX} bytes")]
    Length,
    /// Its repetitions make the automaton too large.
    #[error(
        "its automaton has more than {PLACES_MAX} places, or {} KiB: write smaller numbers in {{}}",
        AUTOMATON_MAX >> 10
    )]
    TooLarge,
}

/// A compiled pattern, with its cached states.
pub(super) struct Pattern {
    literals: Option<Prefilter>,
    /// Automaton that says whether a line matches; `None` if the literals decide it.
    automaton: Option<Box<(dfa::DFA, dfa::Cache)>>,
    /// Search by what all matches end with, once the literals are given up.
    suffix: Option<Box<Suffix>>,
    /// State for a line that comes in parts.
    seen: Option<Seen>,
    /// Lines found by literals, and the bytes searched for them.
    asked: u64,
    searched: u64,
}

/// State of the automaton after the parts of a line that have come.
enum Seen {
    At(LazyStateID),
    /// The line matches, whatever follows.
    Match,
}

impl Pattern {
    pub(super) fn new(pattern: &str, ignore_case: bool) -> Result<Pattern, PatternError> {
        if pattern.is_empty() || pattern.len() > PATTERN_MAX {
            return Err(PatternError::Length);
        }
        let tree = ast::parse::ParserBuilder::new().nest_limit(NESTING_MAX).build().parse(pattern);
        let tree = tree.map_err(|error| PatternError::Syntax(error.kind().to_string()))?;
        ast::visit(&tree, Bytes)?;
        let mut translator = TranslatorBuilder::new();
        translator.unicode(false).utf8(false).multi_line(true).case_insensitive(ignore_case);
        let parsed = translator.build().translate(pattern, &tree);
        let parsed = parsed.map_err(|error| PatternError::Syntax(error.kind().to_string()))?;
        let hir = in_a_line(&parsed)?;
        let found = literals(&hir);
        let (literals, exact) = found.map_or((None, false), |(literals, exact)| (Some(literals), exact));
        let automaton = if exact { None } else { Some(Box::new(automaton(&hir)?)) };
        let suffix = if exact { None } else { Suffix::new(&hir).map(Box::new) };
        Ok(Pattern { literals, automaton, suffix, seen: None, asked: 0, searched: 0 })
    }

    /// Returns the next matching line, with its line feed, from the beginning of a line on. `text` ends at the end of a
    /// line. `None` if none is left. Fails if the automaton gives up, which it is configured not to.
    pub(super) fn next(&mut self, text: &[u8], from: usize) -> Result<Option<Range<usize>>, ()> {
        if let Some(seen) = self.seen.take() {
            return Ok(self.ends(&seen, text)?.then_some(0..text.len()));
        }
        let mut at = from;
        loop {
            let Some(literals) = &self.literals else { return self.backwards(text, at) };
            let Some(found) = literals.find(text, Span { start: at, end: text.len() }) else {
                self.searched += (text.len() - at) as u64;
                return Ok(None);
            };
            let line = line_around(text, at, found.start);
            let matches = match &mut self.automaton {
                None => true,
                Some(automaton) => first_match(automaton, text, line.clone())?.is_some(),
            };
            self.judge((line.end - at) as u64);
            at = line.end;
            if matches {
                return Ok(Some(line));
            }
        }
    }

    /// Takes the next part of a line that comes in several. `next` is called with the whole line afterwards, and does
    /// not search again.
    pub(super) fn look(&mut self, part: &[u8]) -> Result<(), ()> {
        let Some(automaton) = &mut self.automaton else { return Ok(()) };
        let (dfa, cache) = &mut **automaton;
        let mut state = match self.seen {
            Some(Seen::Match) => return Ok(()),
            Some(Seen::At(state)) => state,
            None => dfa.start_state_forward(cache, &Input::new(b"")).map_err(|_| ())?,
        };
        for byte in part {
            state = dfa.next_state(cache, state, *byte).map_err(|_| ())?;
            if state.is_match() {
                self.seen = Some(Seen::Match);
                return Ok(());
            }
        }
        self.seen = Some(Seen::At(state));
        Ok(())
    }

    /// Returns true if a line that came in parts matches, now that it is complete.
    fn ends(&mut self, seen: &Seen, line: &[u8]) -> Result<bool, ()> {
        match (seen, &mut self.automaton) {
            (Seen::Match, _) => Ok(true),
            // A match before the line feed was already seen, and one after it is in no line.
            (Seen::At(_), _) if line.ends_with(b"\n") => Ok(false),
            (Seen::At(state), Some(automaton)) => {
                let (dfa, cache) = &mut **automaton;
                Ok(dfa.next_eoi_state(cache, *state).map_err(|_| ())?.is_match())
            }
            (Seen::At(_), None) => Err(()),
        }
    }

    /// Counts a line found by its literals, after this many bytes. Drops the literals if they are so frequent that the
    /// automaton goes over nearly all lines anyway.
    fn judge(&mut self, searched: u64) {
        self.asked += 1;
        self.searched += searched;
        if self.asked < JUDGED || self.automaton.is_none() {
            return;
        }
        if self.searched < JUDGED * DISTANCE {
            self.literals = None;
        }
        (self.asked, self.searched) = (0, 0);
    }

    /// Searches by what all matches end with. Lines with such an end that do not match are searched forwards, as are all from then
    /// on if they are many.
    fn backwards(&mut self, text: &[u8], from: usize) -> Result<Option<Range<usize>>, ()> {
        // The beginning of a line; where to search on; the end of what was looked at backwards.
        let (mut start, mut at, mut looked) = (from, from, from);
        while let Some(suffix) = &mut self.suffix {
            let Some(end) = suffix.find(text, at) else { return Ok(None) };
            match suffix.look(text, start, looked..end)? {
                Backwards::Match => {
                    self.asked = self.asked.saturating_sub(1);
                    return Ok(Some(line_around(text, start, end - 1)));
                }
                // Ends may overlap.
                Backwards::No => (at, looked) = (end - suffix.length() + 1, end),
                Backwards::Unknown => {
                    let line = line_around(text, start, end - 1);
                    let Some(automaton) = &mut self.automaton else { return Err(()) };
                    if first_match(automaton, text, line.clone())?.is_some() {
                        return Ok(Some(line));
                    }
                    (start, at, looked) = (line.end, line.end, line.end);
                }
            }
            self.asked += 1;
            if self.asked >= JUDGED {
                self.suffix = None;
            }
        }
        self.scan(text, start)
    }

    /// Searches without literals: the automaton goes over everything.
    fn scan(&mut self, text: &[u8], from: usize) -> Result<Option<Range<usize>>, ()> {
        let Some(automaton) = &mut self.automaton else { return Err(()) };
        let found = first_match(automaton, text, from..text.len())?;
        // A match at the very end, after the last line feed, is in no line.
        Ok(found.map(|at| line_around(text, from, at)).filter(|line| !line.is_empty()))
    }
}

/// Returns a place in the range where a match is known to end. No match contains a line feed, so the place is in the
/// match's line.
fn first_match(
    automaton: &mut (dfa::DFA, dfa::Cache),
    text: &[u8],
    range: Range<usize>,
) -> Result<Option<usize>, ()> {
    let (dfa, cache) = automaton;
    let input = Input::new(text).range(range).earliest(true);
    let found = dfa.try_search_fwd(cache, &input).map_err(|_| ())?;
    Ok(found.map(|found| found.offset()))
}

/// Returns the line around a place, with its line feed if it has one. It does not begin before `from`.
fn line_around(text: &[u8], from: usize, place: usize) -> Range<usize> {
    let start = memchr::memrchr(b'\n', &text[from..place]).map_or(from, |at| from + at + 1);
    let end = memchr::memchr(b'\n', &text[place..]).map_or(text.len(), |at| place + at + 1);
    start..end
}

/// Visitor that finds flags asking for Unicode. The parser's tables for it may be missing, depending on the rest of the
/// build.
struct Bytes;

impl Bytes {
    fn flags(flags: &ast::Flags) -> Result<(), PatternError> {
        match flags.flag_state(ast::Flag::Unicode) {
            Some(true) => Err(PatternError::Unicode),
            _ => Ok(()),
        }
    }
}

impl ast::Visitor for Bytes {
    type Output = ();
    type Err = PatternError;

    fn finish(self) -> Result<(), PatternError> {
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), PatternError> {
        match tree {
            Ast::Flags(set) => Bytes::flags(&set.flags),
            Ast::Group(group) => group.flags().map_or(Ok(()), Bytes::flags),
            _ => Ok(()),
        }
    }
}

/// Rewrites the expression for a text of many lines: nothing in it matches a line feed, and the beginning and end of
/// the text become those of a line. Groups are dropped.
fn in_a_line(hir: &Hir) -> Result<Hir, PatternError> {
    let all = |hirs: &[Hir]| hirs.iter().map(in_a_line).collect::<Result<Vec<_>, _>>();
    Ok(match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => return Err(PatternError::LineFeed),
        HirKind::Literal(literal) => Hir::literal(literal.0.clone()),
        // Alternatives of one character each become such a class, as in `ä|ö`.
        HirKind::Class(Class::Unicode(class)) => {
            let mut class = class.clone();
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(class)) => {
            let mut class = class.clone();
            class.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Look(look) => Hir::look(look_in_a_line(*look)),
        HirKind::Repetition(Repetition { min, max, greedy, sub }) => Hir::repetition(Repetition {
            min: *min,
            max: *max,
            greedy: *greedy,
            sub: Box::new(in_a_line(sub)?),
        }),
        HirKind::Capture(capture) => in_a_line(&capture.sub)?,
        HirKind::Concat(hirs) => Hir::concat(all(hirs)?),
        HirKind::Alternation(hirs) => Hir::alternation(all(hirs)?),
    })
}

/// Turns the beginning and end of the text into those of a line.
fn look_in_a_line(look: Look) -> Look {
    match look {
        Look::Start => Look::StartLF,
        Look::End => Look::EndLF,
        other => other,
    }
}

/// Returns literals of which every matching line has one, if they are quick to find, and true if every line with one
/// matches.
fn literals(hir: &Hir) -> Option<(Prefilter, bool)> {
    let whole = finite(Extractor::new().extract(hir));
    let exact = |seq: &Seq| seq.is_exact() && hir.properties().look_set().is_empty();
    if let Some(seq) = whole.as_ref().filter(|seq| exact(seq)) {
        return Some((finder(seq)?, true));
    }
    let members = match hir.kind() {
        HirKind::Concat(members) => members.as_slice(),
        _ => &[],
    };
    let tails = (1..members.len().min(LITERAL_PLACES)).filter_map(|at| {
        let end = members.len().min(at + LITERAL_MEMBERS);
        finite(Extractor::new().extract(&Hir::concat(members[at..end].to_vec())))
    });
    // The longest literals are the rarest.
    let best = whole.into_iter().chain(tails).max_by_key(Seq::min_literal_len)?;
    Some((finder(&best)?, false))
}

/// Returns the literals if none is empty.
fn finite(mut seq: Seq) -> Option<Seq> {
    seq.optimize_for_prefix_by_preference();
    seq.min_literal_len().filter(|length| *length > 0).map(|_| seq)
}

fn finder(seq: &Seq) -> Option<Prefilter> {
    Prefilter::new(MatchKind::LeftmostFirst, seq.literals()?).filter(Prefilter::is_fast)
}

fn automaton(hir: &Hir) -> Result<(dfa::DFA, dfa::Cache), PatternError> {
    let config = thompson::Config::new()
        .utf8(false)
        .which_captures(thompson::WhichCaptures::None)
        .nfa_size_limit(Some(AUTOMATON_MAX));
    let nfa = thompson::Compiler::new().configure(config).build_from_hir(hir);
    let nfa = nfa.ok().filter(|nfa| nfa.states().len() <= PLACES_MAX).ok_or(PatternError::TooLarge)?;
    let config = dfa::Config::new().cache_capacity(STATES_MAX).skip_cache_capacity_check(true);
    let dfa = dfa::Builder::new().configure(config).build_from_nfa(nfa);
    let dfa = dfa.map_err(|_| PatternError::TooLarge)?;
    let cache = dfa.create_cache();
    Ok((dfa, cache))
}
