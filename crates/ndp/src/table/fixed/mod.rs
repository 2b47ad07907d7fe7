//! Binary rows of a fixed width: the place of a column in them, and the meaning of its bytes.
//!
//! | module | contents |
//! |---|---|
//! | `aggregate` | aggregates of columns |
//! | `filter` | rows whose column compares with a constant as wanted |
//! | `float` | sums that depend only on the rows' places, and formatting |
//! | `number` | numbers of a column, as loops over rows read them, and the whole numbers of constants |

mod aggregate;
mod filter;
mod float;
mod number;

use super::expression::ExpressionError;
use crate::rows::WIDTH_MAX;

pub(super) use aggregate::Aggregate;
pub(super) use filter::Filter;
pub(crate) use float::print as print_float;

/// A column of numbers, or of texts padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column {
    kind: Kind,
    /// True for big-endian numbers.
    big: bool,
    offset: usize,
    /// Bytes in a row.
    width: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    /// Text of this many bytes.
    Text(usize),
}

impl Kind {
    fn size(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::Text(size) => size,
        }
    }
}

/// Parses the width of rows that an option gives.
pub(super) fn width(digits: &str) -> Result<usize, ExpressionError> {
    natural(digits).filter(|width| (1..=WIDTH_MAX).contains(width)).ok_or(ExpressionError::Width)
}

/// Parses digits only: `parse` would take a sign.
fn natural(digits: &str) -> Option<usize> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

impl Column {
    /// Parses `u32@8`, `i16be@0`, `text12@20`.
    fn parse(text: &str, width: usize) -> Result<Column, ExpressionError> {
        let bad = ExpressionError::BinaryColumn;
        let (name, offset) = text.trim().split_once('@').ok_or(bad.clone())?;
        let (name, offset) = (name.trim_end(), natural(offset.trim_start()).ok_or(bad.clone())?);
        let (name, big) = match (name.strip_suffix("be"), name.strip_suffix("le")) {
            (Some(name), _) => (name, true),
            (_, name) => (name.unwrap_or(name_of(text)), false),
        };
        let kind = match (name, name.strip_prefix("text")) {
            ("u8", _) => Kind::U8,
            ("u16", _) => Kind::U16,
            ("u32", _) => Kind::U32,
            ("u64", _) => Kind::U64,
            ("i8", _) => Kind::I8,
            ("i16", _) => Kind::I16,
            ("i32", _) => Kind::I32,
            ("i64", _) => Kind::I64,
            ("f32", _) => Kind::F32,
            ("f64", _) => Kind::F64,
            (_, Some(size)) if name == name_of(text) => {
                Kind::Text(natural(size).filter(|size| *size > 0).ok_or(bad.clone())?)
            }
            _ => return Err(bad),
        };
        let inside = offset.checked_add(kind.size()).is_some_and(|end| end <= width);
        if inside { Ok(Column { kind, big, offset, width }) } else { Err(bad) }
    }

    /// Returns its bytes in each row.
    fn texts<'a>(&self, rows: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (offset, size) = (self.offset, self.kind.size());
        rows.chunks_exact(self.width).map(move |row| &row[offset..offset + size])
    }
}

/// Returns the part before the `@`.
fn name_of(text: &str) -> &str {
    text.split('@').next().unwrap_or_default().trim()
}
