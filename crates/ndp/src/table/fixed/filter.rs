//! Rows whose column compares with a constant as wanted. Every comparison of numbers becomes a range, so that a loop
//! over rows has two comparisons in any case.

use super::number::{self, BATCH, Number};
use super::{Column, Kind};
use crate::rows::{RowOperator, RowProgress, Rows};
use crate::table::expression::ExpressionError;
use crate::table::filter::{Sign, comparison};
use crate::wide;
use std::cmp::Ordering;

/// The filter.
pub(crate) struct Filter {
    column: Column,
    test: Test,
}

/// Test of a row's number or text.
enum Test {
    /// Whole numbers from `from` to `to`, or outside of them. The range is empty if `to` is less.
    Whole { from: i128, to: i128, outside: bool },
    /// Floating-point numbers in a range, or outside of it. NaN is neither inside nor outside.
    Float { from: f64, to: f64, outside: bool },
    /// A text as long as the column; `cut` if the constant is longer.
    Text { constant: Vec<u8>, cut: bool, sign: Sign },
}

impl Filter {
    pub(crate) fn new(expression: &str, width: usize) -> Result<Rows<Filter>, ExpressionError> {
        let (column, sign, constant) = comparison(expression)?;
        let column = Column::parse(column, width)?;
        let test = match column.kind {
            Kind::Text(size) => text(constant, size, sign)?,
            Kind::F32 => floats(constant.parse::<f32>().ok(), sign)?,
            Kind::F64 => floats(constant.parse::<f64>().ok(), sign)?,
            _ => whole(constant, sign)?,
        };
        Ok(Rows::new(Filter { column, test }, width))
    }

    /// Marks the wanted rows.
    fn mark(&self, rows: &[u8], marks: &mut [u8]) {
        let column = self.column;
        match &self.test {
            Test::Whole { from, to, outside } => {
                macro_rules! of {
                    ($number:ident) => {{
                        let (least, most) = (i128::from($number::MIN), i128::from($number::MAX));
                        // An empty range contains nothing, whatever its ends.
                        let empty = from > to || *from > most || *to < least;
                        let range = if empty { [1, 0] } else { [*from.max(&least), *to.min(&most)] };
                        let [from, to] = range.map(|end| end as $number);
                        wide::run(Mark { column, rows, marks, from, to, outside: *outside })
                    }};
                }
                match column.kind {
                    Kind::U8 => of!(u8),
                    Kind::U16 => of!(u16),
                    Kind::U32 => of!(u32),
                    Kind::U64 => of!(u64),
                    Kind::I8 => of!(i8),
                    Kind::I16 => of!(i16),
                    Kind::I32 => of!(i32),
                    _ => of!(i64),
                }
            }
            Test::Float { from, to, outside } if column.kind == Kind::F32 => {
                let (from, to) = (*from as f32, *to as f32);
                wide::run(Mark { column, rows, marks, from, to, outside: *outside });
            }
            Test::Float { from, to, outside } => {
                wide::run(Mark { column, rows, marks, from: *from, to: *to, outside: *outside });
            }
            Test::Text { constant, cut, sign } => {
                for (mark, text) in marks.iter_mut().zip(column.texts(rows)) {
                    let ordering = match text.cmp(constant) {
                        Ordering::Equal if *cut => Ordering::Less,
                        ordering => ordering,
                    };
                    *mark = u8::from(sign.allows(ordering));
                }
            }
        }
    }
}

/// Makes the test for a text. Trailing zeros are not part of a text: the constant is padded to the column's length.
fn text(constant: &str, size: usize, sign: Sign) -> Result<Test, ExpressionError> {
    if constant.is_empty() {
        return Err(ExpressionError::Comparison);
    }
    let inside = constant.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let mut constant =
        inside.map_or(constant.as_bytes().to_vec(), |inside| inside.replace("\"\"", "\"").into_bytes());
    while constant.last() == Some(&0) {
        constant.pop();
    }
    let cut = constant.len() > size;
    constant.resize(size, 0);
    Ok(Test::Text { constant, cut, sign })
}

fn whole(constant: &str, sign: Sign) -> Result<Test, ExpressionError> {
    let (floor, exact) = number::whole(constant).ok_or(ExpressionError::Constant)?;
    let below = if exact { floor.checked_sub(1).ok_or(ExpressionError::Constant)? } else { floor };
    let above = floor.checked_add(1).ok_or(ExpressionError::Constant)?;
    let (from, to) = match (sign.allowed, exact) {
        ([Ordering::Equal, _], true) => (floor, floor),
        ([Ordering::Equal, _], false) => (1, 0),
        ([Ordering::Less, Ordering::Less], _) => (i128::MIN, below),
        ([Ordering::Less, _], _) => (i128::MIN, floor),
        ([Ordering::Greater, Ordering::Greater], _) => (above, i128::MAX),
        ([Ordering::Greater, _], _) => (if exact { floor } else { above }, i128::MAX),
    };
    Ok(Test::Whole { from, to, outside: sign.negated })
}

/// Makes the test for floating-point numbers. The constant has the precision of its column.
fn floats<F: Into<f64> + Steps>(constant: Option<F>, sign: Sign) -> Result<Test, ExpressionError> {
    let constant = constant.filter(|constant| !(*constant).into().is_nan());
    let constant = constant.ok_or(ExpressionError::Constant)?;
    let least = f64::NEG_INFINITY;
    let most = f64::INFINITY;
    let nothing = (most, least);
    let value = constant.into();
    let (from, to) = match sign.allowed {
        [Ordering::Equal, _] => (value, value),
        [Ordering::Less, Ordering::Less] if value == least => nothing,
        [Ordering::Less, Ordering::Less] => (least, constant.before().into()),
        [Ordering::Less, _] => (least, value),
        [Ordering::Greater, Ordering::Greater] if value == most => nothing,
        [Ordering::Greater, Ordering::Greater] => (constant.after().into(), most),
        [Ordering::Greater, _] => (value, most),
    };
    Ok(Test::Float { from, to, outside: sign.negated })
}

/// Neighbours of a number.
trait Steps: Copy {
    fn before(self) -> Self;
    fn after(self) -> Self;
}

macro_rules! steps {
    ($($float:ident)*) => {$(
        impl Steps for $float {
            fn before(self) -> Self {
                self.next_down()
            }

            fn after(self) -> Self {
                self.next_up()
            }
        }
    )*};
}

steps! { f32 f64 }

/// Marks rows whose number is inside a range, or outside.
struct Mark<'a, N> {
    column: Column,
    rows: &'a [u8],
    marks: &'a mut [u8],
    from: N,
    to: N,
    outside: bool,
}

impl<N: Number> wide::Loop for Mark<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Mark { column, rows, marks, from, to, outside } = self;
        let mut numbers = [N::default(); BATCH];
        number::gather(column, rows, &mut numbers[..marks.len()]);
        let marks = marks.iter_mut().zip(numbers);
        if outside {
            // NaN is neither.
            marks.for_each(|(mark, number)| *mark = u8::from(number < from) | u8::from(number > to));
        } else {
            marks.for_each(|(mark, number)| *mark = u8::from(number >= from) & u8::from(number <= to));
        }
    }
}

impl RowOperator for Filter {
    /// Takes as many rows as there is room for, so that no mark is wasted. If there is room for none, the first is
    /// handed out in pieces.
    fn take(&mut self, rows: &[u8], output: &mut [u8]) -> RowProgress {
        let width = self.column.width;
        let mut taken = RowProgress::default();
        let mut marks = [0; BATCH];
        while taken.consumed < rows.len() {
            let rest = &rows[taken.consumed..];
            let room = (output.len() - taken.produced) / width;
            let batch = (rest.len() / width).min(BATCH).min(room.max(1));
            let (rest, marks) = (&rest[..batch * width], &mut marks[..batch]);
            self.mark(rest, marks);
            if room == 0 && marks[0] != 0 {
                taken.pass = width;
                return taken;
            }
            if room > 0 {
                taken.produced += compact(rest, width, marks, &mut output[taken.produced..]);
            }
            taken.consumed += rest.len();
        }
        taken
    }

    fn finish(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// Copies the marked rows, for which there is room. Returns their bytes.
fn compact(rows: &[u8], width: usize, marks: &[u8], output: &mut [u8]) -> usize {
    match width {
        4 => compact_small::<4>(rows, marks, output),
        8 => compact_small::<8>(rows, marks, output),
        16 => compact_small::<16>(rows, marks, output),
        32 => compact_small::<32>(rows, marks, output),
        64 => compact_small::<64>(rows, marks, output),
        _ => compact_runs(rows, width, marks, output),
    }
}

/// Copies small rows: writes every row, and the next one over it if it is not wanted, without an unpredictable branch.
fn compact_small<const WIDTH: usize>(rows: &[u8], marks: &[u8], output: &mut [u8]) -> usize {
    let output = output.as_chunks_mut::<WIDTH>().0;
    let mut produced = 0;
    for (row, mark) in rows.as_chunks::<WIDTH>().0.iter().zip(marks) {
        // There is room for all of them.
        output[produced] = *row;
        produced += usize::from(*mark);
    }
    produced * WIDTH
}

fn compact_runs(rows: &[u8], width: usize, marks: &[u8], output: &mut [u8]) -> usize {
    let (mut produced, mut at) = (0, 0);
    while let Some(start) = memchr::memchr(1, &marks[at..]).map(|skip| at + skip) {
        let end = memchr::memchr(0, &marks[start..]).map_or(marks.len(), |run| start + run);
        let run = &rows[start * width..end * width];
        output[produced..produced + run.len()].copy_from_slice(run);
        produced += run.len();
        at = end;
    }
    produced
}
