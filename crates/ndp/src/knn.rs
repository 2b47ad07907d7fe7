//! The rows nearest to a vector, by squared Euclidean distance.

use crate::OperatorError;
use crate::parameter::{self, Element, Knn};
use crate::resize::Resize;
use crate::rows::{RowOperator, RowProgress, Rows};
use crate::table::print_float;
use crate::wide;
use std::collections::BinaryHeap;
use std::fmt::Write;

/// Rows whose distances are computed together.
const BATCH: usize = 128;

/// Number of partial sums: element n goes to sum n modulo this, so that a distance is the same on every machine.
const LANES: usize = 8;

/// The search.
struct Neighbours<Q> {
    query: Q,
    /// Bytes in a row.
    width: usize,
    k: usize,
    /// Rows so far.
    rows: u64,
    /// Nearest rows so far, with the farthest of them on top: key of the distance, and index.
    nearest: BinaryHeap<(u64, u64)>,
}

/// A query of one type of elements. Each distance has a key: greater keys are greater distances.
trait Query: Send {
    /// Key of a row that is never a neighbour, because its distance is not a number.
    const NONE: u64 = u64::MAX;

    /// Computes the keys of the rows' distances, one for each row.
    fn measure(&self, rows: &[u8], keys: &mut [u64]);

    /// Formats the distance of a key.
    fn print(key: u64) -> String;
}

/// Makes the operator of a parameter block.
pub(crate) fn new(block: &[u8]) -> Result<Resize, OperatorError> {
    let Knn { element, k, query } = parameter::parse_knn(block)?;
    let (width, k) = (query.len(), k as usize);
    Ok(match element {
        Element::U8 => Resize::new(neighbours(Bytes(query), width, k)),
        Element::F32 => Resize::new(neighbours(Floats(floats(&query).collect()), width, k)),
    })
}

fn neighbours<Q: Query>(query: Q, width: usize, k: usize) -> Rows<Neighbours<Q>> {
    Rows::new(Neighbours { query, width, k, rows: 0, nearest: BinaryHeap::new() }, width)
}

/// Returns the numbers of a row.
pub(crate) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

impl<Q: Query> RowOperator for Neighbours<Q> {
    fn take(&mut self, rows: &[u8], _: &mut [u8]) -> RowProgress {
        let mut keys = [0; BATCH];
        for batch in rows.chunks(self.width * BATCH) {
            let keys = &mut keys[..batch.len() / self.width];
            self.query.measure(batch, keys);
            for (key, index) in keys.iter().zip(self.rows..) {
                // Among rows at the same distance, the first ones count.
                let near = self.nearest.len() < self.k || self.nearest.peek().is_some_and(|far| *key < far.0);
                if near && *key != Q::NONE {
                    if self.nearest.len() == self.k {
                        self.nearest.pop();
                    }
                    self.nearest.push((*key, index));
                }
            }
            self.rows += keys.len() as u64;
        }
        RowProgress { consumed: rows.len(), ..RowProgress::default() }
    }

    /// Writes a line for each, the nearest first.
    fn finish(&mut self) -> Vec<u8> {
        let mut lines = String::new();
        for (key, index) in std::mem::take(&mut self.nearest).into_sorted_vec() {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "{index},{}", Q::print(key));
        }
        lines.into_bytes()
    }
}

/// Query of bytes. The key is the distance itself, which has at most 28 bits.
struct Bytes(Vec<u8>);

impl Query for Bytes {
    fn measure(&self, rows: &[u8], keys: &mut [u64]) {
        wide::run(MeasureBytes { query: &self.0, rows, keys });
    }

    fn print(key: u64) -> String {
        key.to_string()
    }
}

struct MeasureBytes<'a> {
    query: &'a [u8],
    rows: &'a [u8],
    keys: &'a mut [u64],
}

impl wide::Loop for MeasureBytes<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (key, row) in self.keys.iter_mut().zip(self.rows.chunks_exact(self.query.len())) {
            let squares = row.iter().zip(self.query).map(|(element, wanted)| {
                let difference = i32::from(i16::from(*element) - i16::from(*wanted));
                difference * difference
            });
            *key = u64::from(squares.sum::<i32>().unsigned_abs());
        }
    }
}

/// Query of floating-point numbers. Distances are computed in `f64`, in which differences of elements and their squares
/// are nearly exact. Their bits are the key: for positive numbers, greater numbers have greater bits.
struct Floats(Vec<f32>);

impl Query for Floats {
    fn measure(&self, rows: &[u8], keys: &mut [u64]) {
        wide::run(MeasureFloats { query: &self.0, rows, keys });
    }

    fn print(key: u64) -> String {
        print_float(f64::from_bits(key))
    }
}

struct MeasureFloats<'a> {
    query: &'a [f32],
    rows: &'a [u8],
    keys: &'a mut [u64],
}

impl wide::Loop for MeasureFloats<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (query, query_tail) = self.query.as_chunks::<LANES>();
        for (key, row) in self.keys.iter_mut().zip(self.rows.chunks_exact(size_of_val(self.query))) {
            let (row, row_tail) = row.as_chunks::<4>().0.as_chunks::<LANES>();
            let mut sums = [0.0; LANES];
            for (elements, wanted) in row.iter().zip(query) {
                for lane in 0..LANES {
                    sums[lane] += square(elements[lane], wanted[lane]);
                }
            }
            for ((sum, element), wanted) in sums.iter_mut().zip(row_tail).zip(query_tail) {
                *sum += square(*element, *wanted);
            }
            let distance: f64 = sums.iter().sum();
            *key = if distance.is_nan() { Floats::NONE } else { distance.to_bits() };
        }
    }
}

#[inline(always)]
fn square(element: [u8; 4], wanted: f32) -> f64 {
    let difference = f64::from(f32::from_le_bytes(element)) - f64::from(wanted);
    difference * difference
}
