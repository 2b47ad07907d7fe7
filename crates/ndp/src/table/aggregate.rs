//! Aggregates of columns: count, sum, minimum, maximum, mean.

use super::expression::ExpressionError;
use super::number;
use super::text::{Column, Format, Row, row_at, without_mark};
use crate::OperatorError;
use crate::lines::{Lines, Selector};
use std::ops::Range;

/// Functions, and their state.
pub(crate) struct Aggregate {
    format: Format,
    functions: Vec<Function>,
    /// True while the header is still to come.
    before_header: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Count,
    Sum,
    Min,
    Max,
    Mean,
}

/// Parses a function and its column; `None` if it has no brackets, which only `count` may lack.
pub(super) fn function(text: &str) -> Result<(Kind, Option<&str>), ExpressionError> {
    let text = text.trim();
    let (name, column) = match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => (name.trim(), Some(rest.strip_suffix(')').ok_or(ExpressionError::Function)?)),
    };
    let kind = match name {
        "count" => Kind::Count,
        "sum" => Kind::Sum,
        "min" => Kind::Min,
        "max" => Kind::Max,
        "mean" => Kind::Mean,
        _ => return Err(ExpressionError::Function),
    };
    if column.is_none() && kind != Kind::Count { Err(ExpressionError::Function) } else { Ok((kind, column)) }
}

struct Function {
    kind: Kind,
    /// Column of the numbers; `None` to count all rows.
    column: Option<Column>,
    count: u64,
    /// Sum, minimum or maximum so far.
    value: i128,
}

impl Function {
    fn parse(text: &str, format: Format) -> Result<Function, ExpressionError> {
        let (kind, column) = function(text)?;
        let column = column.map(Column::parse).transpose()?;
        if !format.header && matches!(column, Some(Column::Named(_))) {
            return Err(ExpressionError::Column);
        }
        Ok(Function { kind, column, count: 0, value: 0 })
    }

    /// Takes a row. Empty fields are ignored.
    fn take(&mut self, row: &Row<'_>) -> Result<(), OperatorError> {
        let Some(column) = &self.column else {
            self.count += 1;
            return Ok(());
        };
        let field = column.of(row)?;
        if field.trim_ascii().is_empty() {
            return Ok(());
        }
        let first = self.count == 0;
        self.count += 1;
        if self.kind == Kind::Count {
            return Ok(());
        }
        let number = number::parse(&field).ok_or(OperatorError::CorruptData)?;
        self.value = match self.kind {
            Kind::Min | Kind::Max if first => number,
            Kind::Min => self.value.min(number),
            Kind::Max => self.value.max(number),
            _ => self.value.checked_add(number).ok_or(OperatorError::CorruptData)?,
        };
        Ok(())
    }

    /// Formats the result: empty if there was no number and the function needs one.
    fn result(&self) -> String {
        match self.kind {
            Kind::Count => self.count.to_string(),
            Kind::Sum => number::format(self.value),
            _ if self.count == 0 => String::new(),
            Kind::Min | Kind::Max => number::format(self.value),
            Kind::Mean => number::format(number::divide(self.value, self.count)),
        }
    }
}

impl Aggregate {
    pub(super) fn new(text: &str, format: Format) -> Result<Lines<Aggregate>, ExpressionError> {
        let functions =
            text.split(';').map(|text| Function::parse(text, format)).collect::<Result<_, _>>()?;
        Ok(Lines::new(Aggregate { format, functions, before_header: format.header }))
    }

    fn take(&mut self, row: Row<'_>) -> Result<(), OperatorError> {
        if row.is_blank() {
            return Ok(());
        }
        if self.before_header {
            self.before_header = false;
            let mut columns = self.functions.iter_mut().filter_map(|function| function.column.as_mut());
            return columns.try_for_each(|column| column.find(&without_mark(row)));
        }
        self.functions.iter_mut().try_for_each(|function| function.take(&row))
    }
}

impl Selector for Aggregate {
    const QUOTED: bool = true;

    fn next(&mut self, text: &[u8], from: usize) -> Result<(Range<usize>, usize), OperatorError> {
        let mut at = from;
        while at < text.len() {
            let (row, end) = row_at::<Self>(text, at, self.format.delimiter)?;
            self.take(row)?;
            at = end;
        }
        Ok((at..at, at))
    }

    /// Returns the results, separated by commas, and a line feed.
    fn finish(&mut self) -> Result<Vec<u8>, OperatorError> {
        // Without a header it is unknown whether the columns exist.
        if self.before_header
            && self.functions.iter().any(|function| matches!(function.column, Some(Column::Named(_))))
        {
            return Err(OperatorError::TruncatedData);
        }
        let results: Vec<_> = self.functions.iter().map(Function::result).collect();
        Ok((results.join(",") + "\n").into_bytes())
    }
}
