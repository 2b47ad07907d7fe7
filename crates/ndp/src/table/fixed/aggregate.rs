//! Aggregates of columns: count, sum, minimum, maximum, mean.

use super::float::{self, LANES, Sum};
use super::number::{self, BATCH, Number};
use super::{Column, Kind};
use crate::rows::{RowOperator, RowProgress, Rows};
use crate::table::aggregate::{self, Kind as Wanted};
use crate::table::expression::ExpressionError;
use crate::wide;
use std::fmt::{Display, LowerExp};
use std::marker::PhantomData;

/// Functions, and their state.
pub(crate) struct Aggregate {
    width: usize,
    functions: Vec<Function>,
    /// Rows so far.
    rows: u64,
}

struct Function {
    wanted: Wanted,
    seen: Seen,
}

/// State of a function.
enum Seen {
    /// Number of rows, which is kept once for all.
    Rows,
    /// Number of texts that are not empty.
    Texts(Column, u64),
    /// Whole numbers, which each row has.
    Whole(Column, Whole),
    /// Floating-point numbers, which may be NaN.
    F32(Column, Box<Floats<f32>>),
    F64(Column, Box<Floats<f64>>),
}

impl Aggregate {
    pub(crate) fn new(expression: &str, width: usize) -> Result<Rows<Aggregate>, ExpressionError> {
        let functions =
            expression.split(';').map(|text| Function::parse(text, width)).collect::<Result<_, _>>()?;
        Ok(Rows::new(Aggregate { width, functions, rows: 0 }, width))
    }
}

impl Function {
    fn parse(text: &str, width: usize) -> Result<Function, ExpressionError> {
        let (wanted, column) = aggregate::function(text)?;
        let column = column.map(|column| Column::parse(column, width)).transpose()?;
        let seen = match column {
            None => Seen::Rows,
            Some(column) => match column.kind {
                Kind::Text(_) if wanted == Wanted::Count => Seen::Texts(column, 0),
                Kind::Text(_) => return Err(ExpressionError::Function),
                Kind::F32 => Seen::F32(column, Box::new(Floats::new())),
                Kind::F64 => Seen::F64(column, Box::new(Floats::new())),
                _ => Seen::Whole(column, Whole { sum: 0, least: i128::MAX, most: i128::MIN }),
            },
        };
        Ok(Function { wanted, seen })
    }

    /// Takes up to a batch of rows.
    fn take(&mut self, rows: &[u8], before: u64) {
        let wanted = self.wanted;
        match &mut self.seen {
            Seen::Rows => {}
            Seen::Whole(..) if wanted == Wanted::Count => {}
            Seen::Texts(column, count) => {
                let full = |text: &&[u8]| text.iter().any(|byte| *byte != 0);
                *count += column.texts(rows).filter(full).count() as u64;
            }
            Seen::Whole(column, seen) => {
                let column = *column;
                match column.kind {
                    Kind::U8 => {
                        wide::run(TakeWhole::<u8> { column, rows, wanted, seen, marker: PhantomData })
                    }
                    Kind::U16 => {
                        wide::run(TakeWhole::<u16> { column, rows, wanted, seen, marker: PhantomData })
                    }
                    Kind::U32 => {
                        wide::run(TakeWhole::<u32> { column, rows, wanted, seen, marker: PhantomData })
                    }
                    Kind::U64 => {
                        wide::run(TakeWhole::<u64> { column, rows, wanted, seen, marker: PhantomData })
                    }
                    Kind::I8 => {
                        wide::run(TakeWhole::<i8> { column, rows, wanted, seen, marker: PhantomData })
                    }
                    Kind::I16 => {
                        wide::run(TakeWhole::<i16> { column, rows, wanted, seen, marker: PhantomData })
                    }
                    Kind::I32 => {
                        wide::run(TakeWhole::<i32> { column, rows, wanted, seen, marker: PhantomData })
                    }
                    _ => wide::run(TakeWhole::<i64> { column, rows, wanted, seen, marker: PhantomData }),
                }
            }
            Seen::F32(column, seen) => wide::run(TakeFloats { column: *column, rows, before, wanted, seen }),
            Seen::F64(column, seen) => wide::run(TakeFloats { column: *column, rows, before, wanted, seen }),
        }
    }

    fn result(&self, rows: u64) -> String {
        match (&self.seen, self.wanted) {
            (Seen::Texts(_, count), _) => count.to_string(),
            (Seen::Rows, _) | (Seen::Whole(..), Wanted::Count) => rows.to_string(),
            (Seen::Whole(_, seen), wanted) => seen.result(wanted, rows),
            (Seen::F32(_, seen), wanted) => seen.result(wanted),
            (Seen::F64(_, seen), wanted) => seen.result(wanted),
        }
    }
}

impl RowOperator for Aggregate {
    fn take(&mut self, rows: &[u8], _: &mut [u8]) -> RowProgress {
        for batch in rows.chunks(self.width * BATCH) {
            self.functions.iter_mut().for_each(|function| function.take(batch, self.rows));
            self.rows += (batch.len() / self.width) as u64;
        }
        RowProgress { consumed: rows.len(), ..RowProgress::default() }
    }

    /// Returns the results, separated by commas, and a line feed.
    fn finish(&mut self) -> Vec<u8> {
        let results: Vec<_> = self.functions.iter().map(|function| function.result(self.rows)).collect();
        (results.join(",") + "\n").into_bytes()
    }
}

/// Whole numbers. The sum of as many as possible has fewer than 127 bits.
struct Whole {
    sum: i128,
    least: i128,
    most: i128,
}

impl Whole {
    fn result(&self, wanted: Wanted, count: u64) -> String {
        match wanted {
            Wanted::Sum => self.sum.to_string(),
            _ if count == 0 => String::new(),
            Wanted::Min => self.least.to_string(),
            Wanted::Max => self.most.to_string(),
            _ => mean(self.sum, count),
        }
    }
}

/// Divides a sum by a count: 18 digits after the point, rounded half away from zero, without trailing zeros.
fn mean(sum: i128, count: u64) -> String {
    const ONE: u128 = 10u128.pow(18);
    let (magnitude, count) = (sum.unsigned_abs(), u128::from(count));
    let (whole, rest) = (magnitude / count, magnitude % count);
    let behind = (rest * ONE * 2 + count) / (count * 2);
    let (whole, behind) = (whole + behind / ONE, behind % ONE);
    let sign = if sum < 0 && whole + behind > 0 { "-" } else { "" };
    format!("{sign}{whole}.{behind:018}").trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A type of whole number.
trait WholeNumber: Number + Ord + Into<i128> {
    /// Least and greatest value.
    const ENDS: [Self; 2];

    /// Adds a batch.
    fn sum(numbers: &[Self]) -> i128;
}

macro_rules! whole_numbers {
    ($($number:ident, $halves:expr;)*) => {$(
        impl WholeNumber for $number {
            const ENDS: [Self; 2] = [$number::MIN, $number::MAX];

            #[inline(always)]
            fn sum(numbers: &[Self]) -> i128 {
                if $halves {
                    // The lower 32 bits, unsigned, are added separately, so that neither sum of a batch overflows.
                    let (mut low, mut high) = (0u64, 0i64);
                    for number in numbers {
                        low += *number as u64 & 0xffff_ffff;
                        high += (*number >> (size_of::<$number>() as u32 * 4)) as i64;
                    }
                    (i128::from(high) << 32) + i128::from(low)
                } else {
                    numbers.iter().map(|number| *number as i64).sum::<i64>().into()
                }
            }
        }
    )*};
}

whole_numbers! {
    u8, false; u16, false; u32, false; u64, true; i8, false; i16, false; i32, false; i64, true;
}

struct TakeWhole<'a, N> {
    column: Column,
    rows: &'a [u8],
    wanted: Wanted,
    seen: &'a mut Whole,
    /// Marks the type of the numbers.
    marker: PhantomData<N>,
}

impl<N: WholeNumber> wide::Loop for TakeWhole<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut numbers = [N::default(); BATCH];
        let numbers = &mut numbers[..self.rows.len() / self.column.width];
        number::gather(self.column, self.rows, numbers);
        let [least, most] = N::ENDS;
        let seen = self.seen;
        match self.wanted {
            Wanted::Min => {
                let least = numbers.iter().fold(most, |least, number| least.min(*number));
                seen.least = seen.least.min(least.into());
            }
            Wanted::Max => {
                let most = numbers.iter().fold(least, |most, number| most.max(*number));
                seen.most = seen.most.max(most.into());
            }
            _ => seen.sum += N::sum(numbers),
        }
    }
}

/// Floating-point numbers. NaN is ignored.
struct Floats<F> {
    count: u64,
    sum: Sum,
    least: F,
    most: F,
}

/// A type of floating-point number.
trait Float: Number + Into<f64> + Display + LowerExp {
    const INFINITY: [Self; 2];
}

impl Float for f32 {
    const INFINITY: [f32; 2] = [f32::NEG_INFINITY, f32::INFINITY];
}

impl Float for f64 {
    const INFINITY: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];
}

impl<F: Float> Floats<F> {
    fn new() -> Floats<F> {
        let [least, most] = F::INFINITY;
        Floats { count: 0, sum: Sum::new(), least: most, most: least }
    }

    fn result(&self, wanted: Wanted) -> String {
        match wanted {
            Wanted::Count => self.count.to_string(),
            Wanted::Sum => float::print(self.sum.total()),
            _ if self.count == 0 => String::new(),
            Wanted::Min => float::print(self.least),
            Wanted::Max => float::print(self.most),
            Wanted::Mean => float::print(self.sum.total() / self.count as f64),
        }
    }
}

struct TakeFloats<'a, F> {
    column: Column,
    rows: &'a [u8],
    /// Rows before these.
    before: u64,
    wanted: Wanted,
    seen: &'a mut Floats<F>,
}

impl<F: Float> wide::Loop for TakeFloats<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut numbers = [F::default(); BATCH];
        let numbers = &mut numbers[..self.rows.len() / self.column.width];
        number::gather(self.column, self.rows, numbers);
        let seen = self.seen;
        seen.count += numbers.iter().map(|number| u64::from(!(*number).into().is_nan())).sum::<u64>();
        match self.wanted {
            Wanted::Count => {}
            Wanted::Min => {
                let least = |least, number: &F| if *number < least { *number } else { least };
                seen.least = numbers.iter().fold(seen.least, least);
            }
            Wanted::Max => {
                let most = |most, number: &F| if *number > most { *number } else { most };
                seen.most = numbers.iter().fold(seen.most, most);
            }
            _ => add(&mut seen.sum, numbers, self.before),
        }
    }
}

/// Adds numbers, which come after that many others.
#[inline(always)]
fn add<F: Float>(sum: &mut Sum, numbers: &[F], before: u64) {
    let value = |number: F| {
        let number = number.into();
        if number.is_nan() { 0.0 } else { number }
    };
    let lane = (before % LANES as u64) as usize;
    let (head, rest) = numbers.split_at(((LANES - lane) % LANES).min(numbers.len()));
    for (at, number) in head.iter().enumerate() {
        sum.add(lane + at, value(*number));
    }
    let (all, tail) = rest.as_chunks::<LANES>();
    // A copy, which stays in registers.
    let mut sums = sum.clone();
    all.iter().for_each(|numbers| sums.add_all(numbers.map(value)));
    *sum = sums;
    for (at, number) in tail.iter().enumerate() {
        sum.add(at, value(*number));
    }
}
