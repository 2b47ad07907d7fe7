//! A regular expression, compiled to find lines: literals by vector instructions, the rest by an automaton
//! whose states are made as they are met.

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

/// Bytes of an automaton at most, before its states are made.
const AUTOMATON_MAX: usize = 128 << 10;

/// Its places at most. On hostile data each byte makes a new state of nearly all of them: the time that a byte takes at
/// worst grows with their number. A pattern that repeats nothing has about one for each of its bytes.
const PLACES_MAX: usize = 1200;

/// Bytes of the states that are kept. When they are full they are made anew.
const STATES_MAX: usize = 1 << 20;

/// Groups in groups.
const NESTING_MAX: u32 = 100;

/// Members of a sequence that are looked at for literals, and how many go into one look.
const LITERAL_PLACES: usize = 64;
const LITERAL_MEMBERS: usize = 8;

/// Lines with the literals that the automaton went over, before that is judged; and the bytes from one to the
/// next that make the look for literals worth while.
const JUDGED: u64 = 64;
const DISTANCE: u64 = 512;

/// A reason why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is no regular expression, or one with something that is not there (`docs/operators.md`).
    #[error("{0}")]
    Syntax(String),
    /// A line is searched, which has no line feed.
    #[error("it names a line feed, and lines have none")]
    LineFeed,
    /// Classes of Unicode are not there: the pattern is one of bytes.
    #[error("it asks for Unicode (u), and matches bytes")]
    Unicode,
    /// It is empty, or has more than 1,016 bytes.
    #[error("a pattern has 1 to {PATTERN_MAX} bytes")]
    Length,
    /// Its repetitions make an automaton that is too large.
    #[error(
        "its automaton has more than {PLACES_MAX} places, or {} KiB: write smaller numbers in {{}}",
        AUTOMATON_MAX >> 10
    )]
    TooLarge,
}

/// A compiled pattern, with the states that it has made.
pub(super) struct Pattern {
    literals: Option<Prefilter>,
    /// Which says whether a line matches; none where the literals say it.
    automaton: Option<Box<(dfa::DFA, dfa::Cache)>>,
    /// Of a line that comes in parts.
    seen: Option<Seen>,
    /// Lines that it was asked about, and bytes among which they were.
    asked: u64,
    searched: u64,
}

/// The automaton behind the parts of a line that have come.
enum Seen {
    At(LazyStateID),
    /// Whatever follows.
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
        Ok(Pattern { literals, automaton, seen: None, asked: 0, searched: 0 })
    }

    /// The next line that matches, from the beginning of a line on, with its line feed. `text` ends where a
    /// line does. None where none is left; an error where the automaton gives up, which it is told not to.
    pub(super) fn next(&mut self, text: &[u8], from: usize) -> Result<Option<Range<usize>>, ()> {
        if let Some(seen) = self.seen.take() {
            return Ok(self.ends(&seen, text)?.then_some(0..text.len()));
        }
        let mut at = from;
        loop {
            let Some(literals) = &self.literals else { return self.scan(text, at) };
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

    /// Takes the next part of a line that comes in several. `next` is called with all of them then, and searches no more.
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

    /// True where a line that came in parts matches, now that it is there as a whole.
    fn ends(&mut self, seen: &Seen, line: &[u8]) -> Result<bool, ()> {
        match (seen, &mut self.automaton) {
            (Seen::Match, _) => Ok(true),
            // A match before the line feed was seen with it, and one behind it is in no line.
            (Seen::At(_), _) if line.ends_with(b"\n") => Ok(false),
            (Seen::At(state), Some(automaton)) => {
                let (dfa, cache) = &mut **automaton;
                Ok(dfa.next_eoi_state(cache, *state).map_err(|_| ())?.is_match())
            }
            (Seen::At(_), None) => Err(()),
        }
    }

    /// One more line was found by its literals, behind this many bytes: the literals are given up where they
    /// are everywhere, and the automaton goes over nearly all lines anyway.
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

    /// Without literals: the automaton goes over everything.
    fn scan(&mut self, text: &[u8], from: usize) -> Result<Option<Range<usize>>, ()> {
        let Some(automaton) = &mut self.automaton else { return Err(()) };
        let found = first_match(automaton, text, from..text.len())?;
        // A match at the very end, behind the last line feed, is in no line.
        Ok(found.map(|at| line_around(text, from, at)).filter(|line| !line.is_empty()))
    }
}

/// A place of that range where a match is known to end. No match has a line feed in it, so it is in the line
/// that it belongs to.
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

/// The line in which a place is, with its line feed if it has one; it begins at `from` or behind.
fn line_around(text: &[u8], from: usize, place: usize) -> Range<usize> {
    let start = memchr::memrchr(b'\n', &text[from..place]).map_or(from, |at| from + at + 1);
    let end = memchr::memchr(b'\n', &text[place..]).map_or(text.len(), |at| place + at + 1);
    start..end
}

/// Finds flags that ask for Unicode. Whether its tables are there depends on what else is built with the
/// parser.
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

/// The expression for a text of many lines: nothing in it matches a line feed, and the beginning and end of
/// the text are those of a line. Groups leave no trace.
fn in_a_line(hir: &Hir) -> Result<Hir, PatternError> {
    let all = |hirs: &[Hir]| hirs.iter().map(in_a_line).collect::<Result<Vec<_>, _>>();
    Ok(match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => return Err(PatternError::LineFeed),
        HirKind::Literal(literal) => Hir::literal(literal.0.clone()),
        // Alternatives of one character each become such a class: `ä|ö`.
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

/// The beginning and the end of the text are those of the line.
fn look_in_a_line(look: Look) -> Look {
    match look {
        Look::Start => Look::StartLF,
        Look::End => Look::EndLF,
        other => other,
    }
}

/// Literals of which every matching line has one, where they are quick to find; and true where every line
/// that has one matches.
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
    // The longest are the rarest.
    let best = whole.into_iter().chain(tails).max_by_key(Seq::min_literal_len)?;
    Some((finder(&best)?, false))
}

/// Literals, none of them empty.
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
