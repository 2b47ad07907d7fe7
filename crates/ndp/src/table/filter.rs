//! Rows of a table whose field compares with a constant as wanted.

use super::expression::ExpressionError;
use super::number;
use super::text::{Column, Format, Row, row_at, without_mark};
use crate::OperatorError;
use crate::lines::{Lines, Selector};
use std::cmp::Ordering;
use std::ops::Range;

/// The filter.
pub(crate) struct Filter {
    format: Format,
    column: Column,
    sign: Sign,
    constant: Constant,
    /// True while the header is still to come.
    before_header: bool,
}

enum Constant {
    Number(i128),
    Text(Vec<u8>),
}

/// A comparison of a field with the constant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    pub(super) allowed: [Ordering; 2],
    /// True if all other results are wanted.
    pub(super) negated: bool,
}

impl Sign {
    pub(super) fn allows(self, ordering: Ordering) -> bool {
        self.allowed.contains(&ordering) != self.negated
    }
}

/// Comparison signs, the longer ones first.
const SIGNS: [(&str, [Ordering; 2], bool); 6] = [
    ("!=", [Ordering::Equal; 2], true),
    ("<=", [Ordering::Less, Ordering::Equal], false),
    (">=", [Ordering::Greater, Ordering::Equal], false),
    ("=", [Ordering::Equal; 2], false),
    ("<", [Ordering::Less; 2], false),
    (">", [Ordering::Greater; 2], false),
];

/// Splits an expression into column, comparison and constant.
pub(super) fn comparison(text: &str) -> Result<(&str, Sign, &str), ExpressionError> {
    let at = text.find(['=', '!', '<', '>']).ok_or(ExpressionError::Comparison)?;
    let (column, rest) = text.split_at(at);
    let found = SIGNS.iter().find(|(sign, ..)| rest.starts_with(sign));
    let (sign, allowed, negated) = found.ok_or(ExpressionError::Comparison)?;
    let sign_of = Sign { allowed: *allowed, negated: *negated };
    Ok((column, sign_of, rest[sign.len()..].trim()))
}

impl Filter {
    pub(super) fn new(text: &str, format: Format) -> Result<Lines<Filter>, ExpressionError> {
        let (column, sign, constant) = comparison(text)?;
        let constant = Constant::parse(constant)?;
        let column = Column::parse(column)?;
        if !format.header && matches!(column, Column::Named(_)) {
            return Err(ExpressionError::Column);
        }
        Ok(Lines::new(Filter { format, column, sign, constant, before_header: format.header }))
    }

    /// Returns true if the row is wanted. A header always is.
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
        Ok(ordering.is_some_and(|ordering| self.sign.allows(ordering)))
    }
}

impl Constant {
    /// Parses a constant: a number if it is one, else a text; between quotation marks, a text.
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

    /// Returns a run of wanted rows.
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
                // The next call meets the error again.
                Err(_) => return Ok((wanted, at)),
            }
        }
        Ok((if wanted.is_empty() { at..at } else { wanted }, at))
    }

    fn finish(&mut self) -> Result<Vec<u8>, OperatorError> {
        Ok(Vec::new())
    }
}
