//! Numbers of a column, as loops over rows read them, and the whole numbers of constants.

use super::Column;
use crate::table::number;

/// A type of binary number.
pub(super) trait Number: Copy + Default + PartialOrd {
    /// Bytes of the number.
    type Bytes: for<'a> TryFrom<&'a [u8]> + Copy;

    /// Reads a number.
    fn read(bytes: Self::Bytes, big: bool) -> Self;
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Number for $number {
            type Bytes = [u8; size_of::<$number>()];

            #[inline(always)]
            fn read(bytes: Self::Bytes, big: bool) -> Self {
                if big { Self::from_be_bytes(bytes) } else { Self::from_le_bytes(bytes) }
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }

/// Rows that loops take together: their numbers fit into the fastest cache.
pub(super) const BATCH: usize = 512;

/// Reads the numbers of a column, from as many rows as there are and have room.
#[inline(always)]
pub(super) fn gather<N: Number>(column: Column, rows: &[u8], numbers: &mut [N]) {
    let (offset, size) = (column.offset, size_of::<N>());
    let mut run = |width: usize, big: bool| {
        for (number, row) in numbers.iter_mut().zip(rows.chunks_exact(width)) {
            // The column is inside the row, as was checked when it was parsed.
            if let Ok(bytes) = N::Bytes::try_from(&row[offset..offset + size]) {
                *number = N::read(bytes, big);
            }
        }
    };
    // A separate loop for each case avoids a test in every row.
    match (column.width == size, column.big) {
        (true, false) => run(size, false),
        (true, true) => run(size, true),
        (false, false) => run(column.width, false),
        (false, true) => run(column.width, true),
    }
}

/// Returns the greatest whole number that is not above a constant, and true if it equals the constant. `None` if that
/// is not a number. Whole numbers have up to 38 digits; others are those of [`number`].
pub(super) fn whole(text: &str) -> Option<(i128, bool)> {
    if let Ok(whole) = text.parse() {
        return Some((whole, true));
    }
    let value = number::parse(text.as_bytes())?;
    Some((value.div_euclid(number::ONE), value.rem_euclid(number::ONE) == 0))
}
