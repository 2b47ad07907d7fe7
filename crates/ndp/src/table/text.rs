//! Rows of comma-separated values (RFC 4180): their fields, and the columns that expressions name.

use std::borrow::Cow;

use super::expression::ExpressionError;
use crate::OperatorError;
use crate::lines::{Selector, line_end};

/// Format of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub header: bool,
    pub delimiter: u8,
}

/// A column, by name and then by place.
#[derive(Clone, Debug)]
pub(super) enum Column {
    Named(String),
    /// Place of the column, from 0.
    At(usize),
}

impl Column {
    pub fn parse(text: &str) -> Result<Column, ExpressionError> {
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
    pub fn find(&mut self, header: &Row<'_>) -> Result<(), OperatorError> {
        let Column::Named(name) = self else { return Ok(()) };
        let is_wanted = |field| unquoted(field).is_ok_and(|field| field.trim_ascii() == name.as_bytes());
        let place = header.fields().position(is_wanted);
        *self = Column::At(place.ok_or(OperatorError::CorruptData)?);
        Ok(())
    }

    /// Returns its field in a row; empty if the row is too short.
    pub fn of<'a>(&self, row: &Row<'a>) -> Result<Cow<'a, [u8]>, OperatorError> {
        match self {
            Column::At(at) => Ok(row.field(*at)?.unwrap_or_default()),
            // The header was parsed before.
            Column::Named(_) => Err(OperatorError::InternalError),
        }
    }
}

/// A row, without the end of its line.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    text: &'a [u8],
    delimiter: u8,
    quoted: bool,
}

impl<'a> Row<'a> {
    pub fn is_blank(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns a field without its quotation marks.
    ///
    /// # Errors
    ///
    /// [`OperatorError::CorruptData`] if quotation marks are inside it, or anything follows them.
    pub fn field(&self, at: usize) -> Result<Option<Cow<'a, [u8]>>, OperatorError> {
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
pub(super) fn row_at<S: Selector>(
    text: &[u8],
    from: usize,
    delimiter: u8,
) -> Result<(Row<'_>, usize), OperatorError> {
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
pub(super) fn without_mark(row: Row<'_>) -> Row<'_> {
    Row { text: row.text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(row.text), ..row }
}
