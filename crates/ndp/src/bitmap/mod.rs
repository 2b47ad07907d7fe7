//! Run-compressed bitmaps: decompresses one, or combines all bitmaps of the stream by AND or OR.

mod page;
mod reader;

use crate::OperatorError;
use crate::parameter::{self, BitmapOperation};
use crate::resize::{Codec, Step, StepEnd};
use page::{PAGE_BYTES, Page};
use reader::{Event, Reader};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Most pages in a result of AND or OR: 32 MiB.
const PAGES_MAX: usize = 4096;

/// Most bytes of memory: the pages of a result, and the input and output buffers.
pub(crate) const MEMORY: u64 = (PAGES_MAX as u64 + 512) * PAGE_BYTES as u64;

/// Pages of a result by their keys: page n has the bits from n * 65,536 on.
type Pages = BTreeMap<u16, Box<Page>>;

/// State of the stream.
pub(crate) struct Bitmap {
    reader: Reader,
    parameter: parameter::Bitmap,
    /// Number of complete bitmaps.
    bitmaps: u64,
    /// Set bits, if the bitmap is not combined with others.
    count: u64,
    /// Result so far, for AND and OR.
    result: Pages,
    /// Result including the current bitmap so far, for AND.
    next: Pages,
    output: Output,
    ended: bool,
}

/// Pending output: zero bytes, then a page or a line.
#[derive(Default)]
struct Output {
    /// Bytes that came before: the bits' place in the result.
    position: u64,
    zeros: u64,
    bytes: Vec<u8>,
    /// Bytes already handed out.
    done: usize,
}

impl Bitmap {
    pub(crate) fn new(block: &[u8]) -> Result<Bitmap, OperatorError> {
        Ok(Bitmap {
            reader: Reader::new(),
            parameter: parameter::parse_bitmap(block)?,
            bitmaps: 0,
            count: 0,
            result: Pages::new(),
            next: Pages::new(),
            output: Output::default(),
            ended: false,
        })
    }

    fn page(&mut self, key: u16, page: Box<Page>, last: bool) -> Result<(), OperatorError> {
        match self.parameter.operation {
            BitmapOperation::One if self.parameter.count => self.count += u64::from(page.count()),
            BitmapOperation::One => self.output.page(key, &page, last),
            BitmapOperation::And if self.bitmaps > 0 => {
                if let Some(mut both) = self.result.remove(&key) {
                    both.and(&page);
                    if !both.is_empty() {
                        self.next.insert(key, both);
                    }
                }
            }
            BitmapOperation::And | BitmapOperation::Or => {
                let full = self.result.len() == PAGES_MAX;
                match self.result.entry(key) {
                    Entry::Occupied(mut either) => either.get_mut().or(&page),
                    Entry::Vacant(_) if full => return Err(OperatorError::CorruptData),
                    Entry::Vacant(place) => _ = place.insert(page),
                }
            }
        }
        Ok(())
    }

    fn bitmap_ended(&mut self) {
        if self.parameter.operation == BitmapOperation::And && self.bitmaps > 0 {
            self.result = std::mem::take(&mut self.next);
        }
        self.bitmaps += 1;
    }

    /// Produces the end of the stream: the next page of the result, or the number of its bits. Returns false when
    /// nothing is left.
    fn finish(&mut self) -> Result<bool, OperatorError> {
        // An empty stream is not a bitmap.
        if !self.reader.is_between() || self.bitmaps == 0 {
            return Err(OperatorError::TruncatedData);
        }
        if self.parameter.count {
            let of_pages: u64 = self.result.values().map(|page| u64::from(page.count())).sum();
            self.output.line(self.count + of_pages);
            self.ended = true;
            return Ok(true);
        }
        let Some((key, page)) = self.result.pop_first() else { return Ok(false) };
        self.output.page(key, &page, self.result.is_empty());
        Ok(true)
    }

    /// Reads the input of one event.
    fn read(&mut self, input: &[u8]) -> Result<usize, OperatorError> {
        if self.parameter.operation == BitmapOperation::One && self.bitmaps > 0 {
            return Err(OperatorError::CorruptData);
        }
        let (consumed, event) = self.reader.read(input)?;
        match event {
            Event::None => {}
            Event::Page { key, page, last } => {
                self.page(key, page, last)?;
                if last {
                    self.bitmap_ended();
                }
            }
            Event::Empty => self.bitmap_ended(),
        }
        Ok(consumed)
    }
}

impl Codec for Bitmap {
    fn step(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Step {
        let produced = self.output.hand_out(output);
        let step = |consumed, end| Step { consumed, produced, end };
        if produced > 0 {
            return step(0, StepEnd::Open);
        }
        if !input.is_empty() {
            return match self.read(input) {
                Ok(consumed) => step(consumed, StepEnd::Open),
                Err(error) => step(0, StepEnd::Failed(error)),
            };
        }
        if !last {
            return step(0, StepEnd::Open);
        }
        match self.ended.then_some(false).map_or_else(|| self.finish(), Ok) {
            Ok(true) => Step { consumed: 0, produced: self.output.hand_out(output), end: StepEnd::Open },
            Ok(false) => step(0, StepEnd::Finished),
            Err(error) => step(0, StepEnd::Failed(error)),
        }
    }
}

impl Output {
    /// Outputs a page after the others. The last page is cut after its last bit.
    fn page(&mut self, key: u16, page: &Page, last: bool) {
        let start = u64::from(key) * PAGE_BYTES as u64;
        self.zeros = start - self.position;
        page.write(&mut self.bytes);
        if last {
            let end = self.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            self.bytes.truncate(end);
        }
        self.position = start + self.bytes.len() as u64;
    }

    fn line(&mut self, number: u64) {
        self.bytes.extend(format!("{number}\n").bytes());
    }

    fn hand_out(&mut self, output: &mut [u8]) -> usize {
        let zeros = usize::try_from(self.zeros).map_or(output.len(), |zeros| zeros.min(output.len()));
        let (head, tail) = output.split_at_mut(zeros);
        head.fill(0);
        self.zeros -= zeros as u64;
        let rest = &self.bytes[self.done..];
        let length = rest.len().min(tail.len());
        tail[..length].copy_from_slice(&rest[..length]);
        self.done += length;
        if self.done == self.bytes.len() && self.zeros == 0 {
            self.bytes.clear();
            self.done = 0;
        }
        zeros + length
    }
}
