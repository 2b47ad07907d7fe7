//! Durations, sizes and hexadecimal digits as users write them.

use std::time::Duration;

/// Parses `30s`, `500ms`, `2m`, `1.5h`, `7d`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "us" => 0.000_001,
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err("expected a duration like 30s, 500ms, 2m, 1h or 7d".into()),
    };
    let seconds =
        number.parse::<f64>().map_err(|_| "a duration begins with a number, as in 30s".to_string())?;
    match Duration::try_from_secs_f64(seconds * scale) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a duration must be more than zero, and finite".into()),
    }
}

/// Parses `4096`, `64K`, `64KiB`, `1.5MiB`, `2GB`: K, M, G, T are powers of 1024, KB, MB, GB, TB of 1000.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err("expected a size like 4096, 64KiB, 1M or 2GB".into()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| "that is more than 2^64 bytes".into());
    }
    match number.parse::<f64>().map(|number| number * scale as f64) {
        Ok(bytes) if bytes >= 0.0 && bytes < u64::MAX as f64 => Ok(bytes as u64),
        _ => Err("a size begins with a number, as in 64KiB".into()),
    }
}

/// Parses a number within bounds.
pub fn count<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    let within = text.parse().ok().filter(|count| (MIN..=MAX).contains(count));
    within.ok_or_else(|| format!("expected a number from {MIN} to {MAX}"))
}

/// Parses seconds, which may be fractions: `0.5`.
pub fn seconds(text: &str) -> Result<f64, String> {
    let within = text.parse().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    within.ok_or_else(|| "expected a number of seconds, 0.05 to 3600".into())
}

fn split(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..at], &text[at..])
}

/// Parses hexadecimal digits.
pub fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    text.len().is_multiple_of(2).then(|| text.chunks_exact(2).map(pair).collect())?
}

/// Formats bytes as lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats a number of bytes for people: `1.50 GiB`.
pub fn human(bytes: u64) -> String {
    let scale = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match scale.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.2} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// Returns the rate in GiB per second.
pub fn gib_per_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / (1u64 << 30) as f64 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64KiB"), Ok(65536));
        assert_eq!(size("1.5M"), Ok(3 << 19));
        assert_eq!(size("2GB"), Ok(2_000_000_000));
        assert!(size("1 parsec").is_err() && size("").is_err() && size("-1").is_err());
        assert!(size("18446744073709551615K").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        assert!(duration("0").is_err() && duration("1y").is_err() && duration("s").is_err());
    }

    #[test]
    fn hexadecimal_digits_come_back() {
        assert_eq!(from_hex(b"00fFa5").unwrap(), [0, 0xff, 0xa5]);
        assert_eq!(to_hex(&[0, 0xff, 0xa5]), "00ffa5");
        assert!(from_hex(b"0").is_none() && from_hex(b"0g").is_none());
    }
}
