//! Tables: rows of comma-separated values (RFC 4180), in `text`, and binary ones of a fixed width, in `fixed`.
//!
//! | module | contents |
//! |---|---|
//! | `aggregate` | aggregates of columns |
//! | `expression` | errors of expressions |
//! | `filter` | rows of a table whose field compares with a constant as wanted |
//! | `number` | exact decimal numbers of up to 18 digits before the point and 18 after it |

mod aggregate;
mod expression;
mod filter;
mod fixed;
mod number;
mod text;

use crate::resize::Resize;
use text::Format;

pub(crate) use expression::EXPRESSION_MAX;
pub use expression::ExpressionError;
pub(crate) use fixed::print_float;

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
