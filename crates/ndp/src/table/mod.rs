//! Rows of comma-separated values (RFC 4180): their fields, and the columns that expressions name. Binary rows of a
//! fixed width are in `fixed`.

mod aggregate;
mod filter;
mod fixed;
mod number;

use crate::OperatorError;
use crate::lines::{Selector, line_end};
use crate::rows::WIDTH_MAX;
use std::borrow::Cow;

use crate::resize::Resize;

pub(crate) use fixed::print_float;

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

/// Format of a table.
#[derive(Clone, Copy, Debug)]
struct Format {
    header: bool,
    delimiter: u8,
}

/// Layout of rows.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Text(Format),
    /// Binary rows of this many bytes.
    Fixed(usize),
}

/// Makes the operator `filter`.
pub(crate) fn filter(expression: &str) -> Result<Resize, ExpressionError> {
    Ok(match layout(expression)? {
        (Layout::Text(format), text) => Resize::new(filter::Filter::new(text, format)?),
        (Layout::Fixed(width), text) => Resize::new(fixed::Filter::new(text, width)?),
    })
}

/// Makes the operator `aggregate`.
pub(crate) fn aggregate(expression: &str) -> Result<Resize, ExpressionError> {
    Ok(match layout(expression)? {
        (Layout::Text(format), text) => Resize::new(aggregate::Aggregate::new(text, format)?),
        (Layout::Fixed(width), text) => Resize::new(fixed::Aggregate::new(text, width)?),
    })
}

/// Parses the layout that the options name. Returns it with the rest of the expression.
fn layout(text: &str) -> Result<(Layout, &str), ExpressionError> {
    if text.is_empty() || text.len() > EXPRESSION_MAX {
        return Err(ExpressionError::Length);
    }
    let Some(width) = text.strip_prefix("-w") else {
        return format(text).map(|(format, text)| (Layout::Text(format), text));
    };
    let (width, text) = width.split_once(':').ok_or(ExpressionError::Options)?;
    Ok((Layout::Fixed(fixed::width(width)?), text))
}

/// Parses options, if there are any. Returns them with the rest of the expression.
fn format(text: &str) -> Result<(Format, &str), ExpressionError> {
    let mut format = Format { header: true, delimiter: b',' };
    let Some(options) = text.strip_prefix('-') else { return Ok((format, text)) };
    let mut characters = options.char_indices();
    while let Some((at, option)) = characters.next() {
        match option {
            ':' => return Ok((format, &options[at + 1..])),
            'n' => format.header = false,
            't' => format.delimiter = b'\t',
            'd' => {
                let (_, delimiter) = characters.next().ok_or(ExpressionError::Options)?;
                let allowed = delimiter.is_ascii() && !['"', '\n', '\r'].contains(&delimiter);
                format.delimiter =
                    if allowed { delimiter as u8 } else { return Err(ExpressionError::Options) };
            }
            _ => break,
        }
    }
    Err(ExpressionError::Options)
}

/// A column, by name and then by place.
#[derive(Clone, Debug)]
enum Column {
    Named(String),
    /// Place of the column, from 0.
    At(usize),
}

impl Column {
    fn parse(text: &str) -> Result<Column, ExpressionError> {
        let text = text.trim();
        match text.strip_prefix('#') {
            _ if text.is_empty() => Err(ExpressionError::Column),
            None => Ok(Column::Named(text.to_string())),
            Some(number) => match number.parse::<usize>() {
                Ok(number @ 1..=65_536) => Ok(Column::At(number - 1)),
                _ => Err(ExpressionError::Column),
            },
        }
    }

    /// Finds the column in the header.
    fn find(&mut self, header: &Row<'_>) -> Result<(), OperatorError> {
        let Column::Named(name) = self else { return Ok(()) };
        let is_wanted = |field| unquoted(field).is_ok_and(|field| field.trim_ascii() == name.as_bytes());
        let place = header.fields().position(is_wanted);
        *self = Column::At(place.ok_or(OperatorError::CorruptData)?);
        Ok(())
    }

    /// Returns its field in a row; empty if the row is too short.
    fn of<'a>(&self, row: &Row<'a>) -> Result<Cow<'a, [u8]>, OperatorError> {
        match self {
            Column::At(at) => Ok(row.field(*at)?.unwrap_or_default()),
            // The header was parsed before.
            Column::Named(_) => Err(OperatorError::InternalError),
        }
    }
}

/// A row, without the end of its line.
#[derive(Clone, Copy)]
struct Row<'a> {
    text: &'a [u8],
    delimiter: u8,
    quoted: bool,
}

impl<'a> Row<'a> {
    fn is_blank(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns a field without its quotation marks.
    ///
    /// # Errors
    ///
    /// [`OperatorError::CorruptData`] if quotation marks are inside it, or anything follows them.
    fn field(&self, at: usize) -> Result<Option<Cow<'a, [u8]>>, OperatorError> {
        let field = if self.quoted { self.fields().nth(at) } else { self.plain_field(at) };
        field.map(unquoted).transpose()
    }

    fn plain_field(&self, at: usize) -> Option<&'a [u8]> {
        let mut ends = memchr::memchr_iter(self.delimiter, self.text);
        let start = if at == 0 { 0 } else { ends.nth(at - 1)? + 1 };
        Some(&self.text[start..ends.next().unwrap_or(self.text.len())])
    }

    /// Returns all fields, with their quotation marks. A delimiter between those does not separate fields.
    fn fields(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut open, delimiter) = (false, self.delimiter);
        self.text.split(move |byte| {
            open ^= *byte == b'"';
            *byte == delimiter && !open
        })
    }
}

fn unquoted(field: &[u8]) -> Result<Cow<'_, [u8]>, OperatorError> {
    if memchr::memchr(b'"', field).is_none() {
        return Ok(Cow::Borrowed(field));
    }
    let inside = field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let inside = inside.ok_or(OperatorError::CorruptData)?;
    let mut bytes = Vec::with_capacity(inside.len());
    let mut rest = inside.iter();
    while let Some(byte) = rest.next() {
        // A doubled quotation mark stands for one.
        if *byte == b'"' && rest.next() != Some(&b'"') {
            return Err(OperatorError::CorruptData);
        }
        bytes.push(*byte);
    }
    Ok(Cow::Owned(bytes))
}

/// Returns the row at `from`, and the place of the next one.
///
/// # Errors
///
/// [`OperatorError::TruncatedData`] if the text ends between quotation marks.
fn row_at<S: Selector>(text: &[u8], from: usize, delimiter: u8) -> Result<(Row<'_>, usize), OperatorError> {
    let feed = memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |feed| from + feed + 1);
    let quoted = memchr::memchr(b'"', &text[from..feed]).is_some();
    let mut open = false;
    let end = if quoted { line_end::<S>(text, from, &mut open).unwrap_or(text.len()) } else { feed };
    if open {
        return Err(OperatorError::TruncatedData);
    }
    let line = &text[from..end];
    let line = line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
    Ok((Row { text: line, delimiter, quoted }, end))
}

/// Returns the header's row without the byte order mark with which some programs begin a file in UTF-8.
fn without_mark(row: Row<'_>) -> Row<'_> {
    Row { text: row.text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(row.text), ..row }
}
