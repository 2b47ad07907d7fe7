//! Errors of expressions.

use crate::rows::WIDTH_MAX;

/// Bytes of the longest expression.
pub(crate) const EXPRESSION_MAX: usize = 1024;

/// Reason why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The expression is empty, or has more than 1,024 bytes.
    #[error("an expression must have 1 to {EXPRESSION_MAX} bytes")]
    Length,
    /// The expression has an unknown option, or options without a colon after them.
    #[error(
        "options are n (no header), t (tabs) and dC (C between fields), or wN alone (binary rows of N bytes), followed by a colon"
    )]
    Options,
    /// The width of binary rows is invalid.
    #[error("binary rows must have 1 to {WIDTH_MAX} bytes")]
    Width,
    /// A column of binary rows is invalid, or outside of the row.
    #[error(
        "a column of binary rows is u8, u16, u32, u64, i8, i16, i32, i64, f32 or f64, with be behind it where it is \
         big-endian, or textN (N bytes), and @ and its offset in the row: u32@8"
    )]
    BinaryColumn,
    /// A column of numbers is compared with something else.
    #[error("a column of numbers must be compared with a number")]
    Constant,
    /// The column is missing, or its number is invalid.
    #[error("expected a column: its name in the header, or # and its number from 1 on")]
    Column,
    /// The comparison is missing, or its constant is.
    #[error("expected a comparison: COLUMN, one of = != < <= > >=, and a constant")]
    Comparison,
    /// The function is unknown.
    #[error(
        "expected a function: count, count(COLUMN), sum(COLUMN), min(COLUMN), max(COLUMN) or mean(COLUMN); separate several by ;"
    )]
    Function,
}
