//! Roaring's format (RoaringFormatSpec of the Roaring project, 32 bits), from a stream: container by container, and
//! never more than one of them. Every rule of it is checked, so that a page is what its writer meant.

use super::page::{PAGE_BYTES, Page};
use crate::OperatorError;
use std::collections::VecDeque;

/// First two bytes of a bitmap some of whose containers may be runs; the next two have their number, less one.
const COOKIE: u16 = 12347;
/// First four bytes of one without runs.
const COOKIE_NO_RUNS: u32 = 12346;
/// From this many containers on, one with runs has a table of their offsets; one without has it always.
const OFFSETS_FROM: usize = 4;
/// Most containers: one for each key.
const CONTAINERS_MAX: usize = 1 << 16;
/// Most values of a container that is an array.
const ARRAY_MAX: usize = 4096;

/// A bitmap, as far as it has come.
pub(super) struct Reader {
    state: State,
    /// Bytes of it so far.
    position: u64,
    /// The part that is being read, of which this many bytes are there.
    kept: Vec<u8>,
    /// Flags of containers that are runs, where there are some.
    runs: Option<Vec<u8>>,
    /// Containers that are still to come.
    containers: VecDeque<Container>,
    /// Their offsets, where a table told them.
    offsets: VecDeque<u32>,
}

/// What the next bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Cookie,
    Count,
    Runs {
        containers: usize,
    },
    Heads {
        containers: usize,
    },
    Offsets {
        containers: usize,
    },
    Container,
    /// A container's runs, whose number is known.
    RunsOf {
        runs: usize,
    },
}

#[derive(Clone, Copy)]
struct Container {
    key: u16,
    /// Bits that are set.
    count: usize,
    is_run: bool,
}

/// What came of some bytes.
pub(super) enum Event {
    /// Nothing yet.
    None,
    /// The bits of a container; the last one ends the bitmap.
    Page { key: u16, page: Box<Page>, last: bool },
    /// A bitmap that has none has ended.
    Empty,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader {
            state: State::Cookie,
            position: 0,
            kept: Vec::new(),
            runs: None,
            containers: VecDeque::new(),
            offsets: VecDeque::new(),
        }
    }

    /// The stream may end here.
    pub(super) fn is_between(&self) -> bool {
        self.state == State::Cookie && self.kept.is_empty()
    }

    /// Reads up to the next event. Returns the bytes that it took.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<(usize, Event), OperatorError> {
        let needed = self.needed();
        if self.kept.is_empty()
            && let Some(part) = input.get(..needed)
        {
            return Ok((needed, self.part(part)?));
        }
        let consumed = input.len().min(needed - self.kept.len());
        self.kept.extend_from_slice(&input[..consumed]);
        if self.kept.len() < needed {
            return Ok((consumed, Event::None));
        }
        let mut part = std::mem::take(&mut self.kept);
        let event = self.part(&part)?;
        part.clear();
        self.kept = part;
        Ok((consumed, event))
    }

    /// Bytes of the part that is being read: one at least.
    fn needed(&self) -> usize {
        match (self.state, self.containers.front()) {
            (State::Cookie | State::Count, _) => 4,
            (State::Runs { containers }, _) => containers.div_ceil(8),
            (State::Heads { containers } | State::Offsets { containers }, _) => containers * 4,
            (State::Container, Some(container)) if container.is_run => 2,
            (State::Container, Some(container)) if container.count <= ARRAY_MAX => container.count * 2,
            (State::Container, _) => PAGE_BYTES,
            (State::RunsOf { runs }, _) => runs * 4,
        }
    }

    /// A part is there as a whole.
    fn part(&mut self, part: &[u8]) -> Result<Event, OperatorError> {
        let start = self.position;
        self.position += part.len() as u64;
        match self.state {
            State::Cookie => {
                let cookie = number(part);
                if cookie as u16 == COOKIE {
                    self.state = State::Runs { containers: (cookie >> 16) as usize + 1 };
                } else if cookie == COOKIE_NO_RUNS {
                    self.runs = None;
                    self.state = State::Count;
                } else {
                    return Err(OperatorError::CorruptData);
                }
            }
            State::Count => match number(part) as usize {
                0 => {
                    self.begin();
                    return Ok(Event::Empty);
                }
                containers @ 1..=CONTAINERS_MAX => self.state = State::Heads { containers },
                _ => return Err(OperatorError::CorruptData),
            },
            State::Runs { containers } => {
                self.runs = Some(part.to_vec());
                self.state = State::Heads { containers };
            }
            State::Heads { containers } => {
                self.heads(part)?;
                let has_offsets = self.runs.is_none() || containers >= OFFSETS_FROM;
                self.state = if has_offsets { State::Offsets { containers } } else { State::Container };
            }
            State::Offsets { .. } => {
                self.offsets = part.as_chunks().0.iter().map(|offset| u32::from_le_bytes(*offset)).collect();
                self.state = State::Container;
            }
            State::Container => return self.container(part, start),
            State::RunsOf { .. } => {
                let mut page = Page::new();
                let set = read_runs(part, &mut page)?;
                return self.page(page, set);
            }
        }
        Ok(Event::None)
    }

    /// A bitmap is to begin.
    fn begin(&mut self) {
        self.state = State::Cookie;
        self.position = 0;
    }

    /// Keys and numbers of bits.
    fn heads(&mut self, part: &[u8]) -> Result<(), OperatorError> {
        self.containers.clear();
        for (at, [k0, k1, c0, c1]) in part.as_chunks().0.iter().enumerate() {
            let (key, count) = (u16::from_le_bytes([*k0, *k1]), u16::from_le_bytes([*c0, *c1]));
            if self.containers.back().is_some_and(|before| before.key >= key) {
                return Err(OperatorError::CorruptData);
            }
            let is_run = self.runs.as_ref().is_some_and(|runs| runs[at / 8] & 1 << (at % 8) != 0);
            self.containers.push_back(Container { key, count: usize::from(count) + 1, is_run });
        }
        Ok(())
    }

    /// A container that is no runs, or the number of its runs.
    fn container(&mut self, part: &[u8], start: u64) -> Result<Event, OperatorError> {
        // They lie one behind the other, as everybody writes them: in a stream nobody can go back.
        if self.offsets.pop_front().is_some_and(|offset| u64::from(offset) != start) {
            return Err(OperatorError::CorruptData);
        }
        let container = *self.containers.front().ok_or(OperatorError::InternalError)?;
        if container.is_run {
            let runs = usize::from(u16::from_le_bytes([part[0], part[1]]));
            self.state = State::RunsOf { runs };
            // It has a bit, so it has a run.
            return if runs == 0 { Err(OperatorError::CorruptData) } else { Ok(Event::None) };
        }
        let mut page = Page::new();
        let set = if container.count <= ARRAY_MAX {
            read_array(part, &mut page)?
        } else {
            page.read(part);
            page.count() as usize
        };
        self.page(page, set)
    }

    /// The page of the container at the front, with this many bits.
    fn page(&mut self, page: Box<Page>, set: usize) -> Result<Event, OperatorError> {
        let container = self.containers.pop_front().ok_or(OperatorError::InternalError)?;
        if set != container.count {
            return Err(OperatorError::CorruptData);
        }
        let last = self.containers.is_empty();
        if last {
            self.begin();
        } else {
            self.state = State::Container;
        }
        Ok(Event::Page { key: container.key, page, last })
    }
}

/// Rising values. Returns how many they are.
fn read_array(part: &[u8], page: &mut Page) -> Result<usize, OperatorError> {
    let values = part.as_chunks().0;
    let mut before = None;
    for value in values {
        let value = u16::from_le_bytes(*value);
        if before.is_some_and(|before| before >= value) {
            return Err(OperatorError::CorruptData);
        }
        page.set(value);
        before = Some(value);
    }
    Ok(values.len())
}

/// Rising runs, each of a first value and a length less one, none where the one before it ends: those are one
/// run. Returns how many bits they have.
fn read_runs(part: &[u8], page: &mut Page) -> Result<usize, OperatorError> {
    // The first value that the next run may have.
    let (mut least, mut set) = (0, 0);
    for [s0, s1, l0, l1] in part.as_chunks().0 {
        let (from, more) = (u16::from_le_bytes([*s0, *s1]), u16::from_le_bytes([*l0, *l1]));
        let to = from.checked_add(more).ok_or(OperatorError::CorruptData)?;
        if u32::from(from) < least {
            return Err(OperatorError::CorruptData);
        }
        page.set_run(from, to);
        least = u32::from(to) + 2;
        set += usize::from(more) + 1;
    }
    Ok(set)
}

/// Four bytes.
fn number(part: &[u8]) -> u32 {
    part.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
