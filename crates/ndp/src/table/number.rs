//! Exact decimal numbers of up to 18 digits before the point and 18 after it.

/// Units in 1.
pub(super) const ONE: i128 = 10i128.pow(DIGITS as u32);
/// Digits on either side of the point.
const DIGITS: usize = 18;

/// Parses the number in a field, in units of 10^-18: a sign, digits, a point, an exponent. Finer digits are cut off.
/// `None` if it is not a number, or too large.
pub(super) fn parse(field: &[u8]) -> Option<i128> {
    let field = field.trim_ascii();
    let (negative, digits) = match field {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let value = match memchr::memchr2(b'e', b'E', digits) {
        None => fixed(digits)?,
        Some(at) => shifted(&digits[..at], &digits[at + 1..])?,
    };
    Some(if negative { -value } else { value })
}

/// Parses digits with or without a point.
fn fixed(text: &[u8]) -> Option<i128> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[..0]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let zeros = whole.iter().take_while(|byte| **byte == b'0').count();
    let whole = Some(&whole[zeros..]).filter(|whole| whole.len() <= DIGITS)?;
    let (kept, finer) = fraction.split_at(fraction.len().min(DIGITS));
    if !finer.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let behind = i128::from(natural(kept)?) * 10i128.pow((DIGITS - kept.len()) as u32);
    Some(i128::from(natural(whole)?) * ONE + behind)
}

/// Parses up to 18 digits.
fn natural(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| value * 10 + u64::from(digit))
    })
}

/// Parses digits with an exponent, which moves the point.
fn shifted(text: &[u8], exponent: &[u8]) -> Option<i128> {
    let exponent: i32 = std::str::from_utf8(exponent).ok()?.parse().ok()?;
    // This many zeros are possible at most; the unsigned value is used because the least number has no absolute value
    // in its own type.
    if exponent.unsigned_abs() >= 1000 {
        return None;
    }
    let point = memchr::memchr(b'.', text).unwrap_or(text.len());
    let digits: Vec<u8> =
        text.iter().copied().enumerate().filter(|(at, _)| *at != point).map(|(_, byte)| byte).collect();
    if digits.is_empty() {
        return None;
    }
    let point = point as i32 + exponent;
    let before = (-point).max(0) as usize;
    let after = (point - digits.len() as i32).max(0) as usize;
    let mut moved = [vec![b'0'; before], digits, vec![b'0'; after]].concat();
    moved.insert((point.max(0)) as usize, b'.');
    fixed(&moved)
}

/// Formats a number: no trailing zeros in a fraction, and no point without one.
pub(super) fn format(value: i128) -> String {
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let (whole, fraction) = (value / ONE as u128, value % ONE as u128);
    let text = format!("{sign}{whole}.{fraction:018}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Divides by a count, rounding half away from zero.
pub(super) fn divide(sum: i128, count: u64) -> i128 {
    let count = i128::from(count);
    let (quotient, rest) = (sum / count, sum % count);
    if rest.abs() * 2 >= count { quotient + sum.signum() } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_written() {
        for (text, printed) in [
            ("0", "0"),
            ("-0", "0"),
            (" 12.50 ", "12.5"),
            ("+.5", "0.5"),
            ("5.", "5"),
            ("-0.000000000000000001", "-0.000000000000000001"),
            ("999999999999999999.999999999999999999", "999999999999999999.999999999999999999"),
            ("000000000000000000001", "1"),
            ("0.1234567890123456789", "0.123456789012345678"),
            ("1e3", "1000"),
            ("1.5E-3", "0.0015"),
            ("12.34e1", "123.4"),
            ("2e-30", "0"),
            ("-1e0", "-1"),
        ] {
            assert_eq!(parse(text.as_bytes()).map(format).as_deref(), Some(printed), "{text}");
        }
        for wrong in [
            "",
            " ",
            "-",
            ".",
            "1.2.3",
            "1,5",
            "0x10",
            "1e",
            "e5",
            "1e1.5",
            "nan",
            "inf",
            "1000000000000000000",
            "1e18",
            "--1",
            "1 2",
            "0.0000000000000000000x",
            "1e9999999999",
            "1e1000",
            "1e-1000",
            "1e2147483647",
            "1e-2147483647",
            "1e-2147483648",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_mean_is_rounded_half_away_from_zero() {
        let mean = |sum: &str, count| format(divide(parse(sum.as_bytes()).unwrap(), count));
        assert_eq!(mean("10", 4), "2.5");
        assert_eq!(mean("1", 3), "0.333333333333333333");
        assert_eq!(mean("-2", 3), "-0.666666666666666667");
        assert_eq!(mean("0.000000000000000001", 2), "0.000000000000000001");
    }
}
