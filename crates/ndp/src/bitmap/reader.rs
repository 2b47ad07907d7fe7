//! Reader of Roaring's format (RoaringFormatSpec of the Roaring project, 32 bits) from a stream: container by
//! container, with at most one in memory. Every rule of the format is checked, so that a page is what its writer meant.

use super::page::{PAGE_BYTES, Page};
use crate::OperatorError;
use std::collections::VecDeque;

/// First two bytes of a bitmap that may have run containers; the next two are the number of containers, less one.
const COOKIE: u16 = 12347;
/// First four bytes of a bitmap without runs.
const COOKIE_NO_RUNS: u32 = 12346;
/// Least number of containers for which a bitmap with runs has a table of offsets. A bitmap without runs always has
/// one.
const OFFSETS_FROM: usize = 4;
/// Most containers: one for each key.
const CONTAINERS_MAX: usize = 1 << 16;
/// Most values in an array container.
const ARRAY_MAX: usize = 4096;

/// State of the current bitmap.
pub(super) struct Reader {
    state: State,
    /// Bytes of it so far.
    position: u64,
    /// Part that is being read, as far as it is there.
    kept: Vec<u8>,
    /// Flags of the containers that are runs, if there are any.
    runs: Option<Vec<u8>>,
    /// Containers that are still to come.
    containers: VecDeque<Container>,
    /// Their offsets, if there is a table.
    offsets: VecDeque<u32>,
}

/// Kind of the next bytes.
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
    /// Runs of a container, whose number is known.
    RunsOf {
        runs: usize,
    },
}

#[derive(Clone, Copy)]
struct Container {
    key: u16,
    /// Number of set bits.
    count: usize,
    is_run: bool,
}

/// Result of reading some bytes.
pub(super) enum Event {
    /// Nothing yet.
    None,
    /// The bits of a container; the last one ends the bitmap.
    Page { key: u16, page: Box<Page>, last: bool },
    /// The end of a bitmap without containers.
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

    /// Returns true if the stream may end here.
    pub(super) fn is_between(&self) -> bool {
        self.state == State::Cookie && self.kept.is_empty()
    }

    /// Reads up to the next event. Returns the bytes taken.
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

    /// Returns the bytes of the current part: at least one.
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

    /// Handles a complete part.
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

    /// Begins a bitmap.
    fn begin(&mut self) {
        self.state = State::Cookie;
        self.position = 0;
    }

    /// Reads keys and numbers of bits.
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

    /// Reads a container that is not runs, or the number of its runs.
    fn container(&mut self, part: &[u8], start: u64) -> Result<Event, OperatorError> {
        // Containers must be in order, as all writers put them: a stream cannot be read backwards.
        if self.offsets.pop_front().is_some_and(|offset| u64::from(offset) != start) {
            return Err(OperatorError::CorruptData);
        }
        let container = *self.containers.front().ok_or(OperatorError::InternalError)?;
        if container.is_run {
            let runs = usize::from(u16::from_le_bytes([part[0], part[1]]));
            self.state = State::RunsOf { runs };
            // A container has at least one bit, so it has a run.
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

    /// Returns the page of the first container, which must have this many bits.
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

/// Reads ascending values. Returns their number.
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

/// Reads ascending runs, each a first value and a length less one. Adjacent runs are refused, since they would be one.
/// Returns the number of their bits.
fn read_runs(part: &[u8], page: &mut Page) -> Result<usize, OperatorError> {
    // `least` is the first value that the next run may have.
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

/// Reads four bytes.
fn number(part: &[u8]) -> u32 {
    part.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
