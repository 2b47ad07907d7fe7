//! The rows of a table whose field compares so with a constant.

use super::{Column, ExpressionError, Format, Row, format, number, row_at, without_mark};
use crate::OperatorError;
use crate::lines::{Lines, Selector};
use std::cmp::Ordering;
use std::ops::Range;

/// The filter.
pub(crate) struct Filter {
    format: Format,
    column: Column,
    allowed: [Ordering; 2],
    negated: bool,
    constant: Constant,
    /// The header is still to come.
    before_header: bool,
}

enum Constant {
    Number(i128),
    Text(Vec<u8>),
}

/// Longer ones first.
const COMPARISONS: [(&str, [Ordering; 2], bool); 6] = [
    ("!=", [Ordering::Equal; 2], true),
    ("<=", [Ordering::Less, Ordering::Equal], false),
    (">=", [Ordering::Greater, Ordering::Equal], false),
    ("=", [Ordering::Equal; 2], false),
    ("<", [Ordering::Less; 2], false),
    (">", [Ordering::Greater; 2], false),
];

impl Filter {
    pub(crate) fn new(expression: &str) -> Result<Lines<Filter>, ExpressionError> {
        let (format, text) = format(expression)?;
        let at = text.find(['=', '!', '<', '>']).ok_or(ExpressionError::Comparison)?;
        let (column, rest) = text.split_at(at);
        let found = COMPARISONS.iter().find(|(sign, ..)| rest.starts_with(sign));
        let (sign, allowed, negated) = found.ok_or(ExpressionError::Comparison)?;
        let constant = Constant::parse(rest[sign.len()..].trim())?;
        let column = Column::parse(column)?;
        if !format.header && matches!(column, Column::Named(_)) {
            return Err(ExpressionError::Column);
        }
        let (allowed, negated) = (*allowed, *negated);
        Ok(Lines::new(Filter { format, column, allowed, negated, constant, before_header: format.header }))
    }

    /// A header is passed.
    fn wants(&mut self, row: Row<'_>) -> Result<bool, OperatorError> {
        if row.is_blank() {
            return Ok(false);
        }
        if self.before_header {
            self.column.find(&without_mark(row))?;
            self.before_header = false;
            return Ok(true);
        }
        let field = self.column.of(&row)?;
        let ordering = match &self.constant {
            Constant::Text(text) => Some((*field).cmp(text)),
            Constant::Number(constant) => number::parse(&field).map(|number| number.cmp(constant)),
        };
        Ok(ordering.is_some_and(|ordering| self.allowed.contains(&ordering) != self.negated))
    }
}

impl Constant {
    /// A number where it is one; a text else, and between quotation marks.
    fn parse(text: &str) -> Result<Constant, ExpressionError> {
        let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match inside {
            Some(inside) => Ok(Constant::Text(inside.replace("\"\"", "\"").into_bytes())),
            None if text.is_empty() => Err(ExpressionError::Comparison),
            None => match number::parse(text.as_bytes()) {
                Some(number) => Ok(Constant::Number(number)),
                None => Ok(Constant::Text(text.as_bytes().to_vec())),
            },
        }
    }
}

impl Selector for Filter {
    const QUOTED: bool = true;

    /// A run of rows that are wanted.
    fn next(&mut self, text: &[u8], from: usize) -> Result<(Range<usize>, usize), OperatorError> {
        let mut wanted = from..from;
        let mut at = from;
        while at < text.len() {
            let judged = row_at::<Self>(text, at, self.format.delimiter)
                .and_then(|(row, end)| Ok((self.wants(row)?, end)));
            match judged {
                Ok((true, end)) => {
                    wanted = if wanted.is_empty() { at..end } else { wanted.start..end };
                    at = end;
                }
                Ok((false, end)) if wanted.is_empty() => at = end,
                Ok((false, end)) => return Ok((wanted, end)),
                Err(error) if wanted.is_empty() => return Err(error),
                // The next call comes upon it again.
                Err(_) => return Ok((wanted, at)),
            }
        }
        Ok((if wanted.is_empty() { at..at } else { wanted }, at))
    }

    fn finish(&mut self) -> Result<Vec<u8>, OperatorError> {
        Ok(Vec::new())
    }
}
