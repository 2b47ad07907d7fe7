//! Floating-point numbers: sums that depend only on the rows' places, and formatting.

/// Number of partial sums: row n goes to sum n modulo this.
pub(super) const LANES: usize = 8;

/// A sum in twice the precision: rounding errors are added up separately (Knuth's TwoSum; Ogita, Rump and Oishi,
/// "Accurate Sum and Dot Product", 2005), so that the error of the result is about that of rounding it once. It depends
/// on the order of the numbers, never on how their stream was cut.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    sums: [f64; LANES],
    errors: [f64; LANES],
}

impl Sum {
    pub(super) fn new() -> Sum {
        // These zeros don't show: the sum of no numbers, and of negative zeros, is 0.
        Sum { sums: [0.0; LANES], errors: [0.0; LANES] }
    }

    /// Adds a number to one of the sums.
    #[inline(always)]
    pub(super) fn add(&mut self, lane: usize, value: f64) {
        let (sum, error) = two_sum(self.sums[lane], value);
        self.sums[lane] = sum;
        self.errors[lane] += error;
    }

    /// Adds one number to each sum.
    #[inline(always)]
    pub(super) fn add_all(&mut self, values: [f64; LANES]) {
        for (lane, value) in values.into_iter().enumerate() {
            self.add(lane, value);
        }
    }

    pub(super) fn total(&self) -> f64 {
        let plain: f64 = self.sums.iter().sum();
        if !plain.is_finite() {
            // The error of an infinite sum is NaN.
            return plain;
        }
        let (mut sum, mut errors) = (0.0, 0.0);
        for lane in 0..LANES {
            let (next, error) = two_sum(sum, self.sums[lane]);
            sum = next;
            errors += error + self.errors[lane];
        }
        sum + errors
    }
}

/// Returns the rounded sum, and the rounding error.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

/// Formats a number with as few digits as give the same number again; with an exponent if it is large or small.
pub(crate) fn print<F: Into<f64> + Copy + std::fmt::Display + std::fmt::LowerExp>(value: F) -> String {
    let magnitude = value.into().abs();
    match magnitude {
        0.0 => "0".to_string(),
        _ if magnitude.is_finite() && !(1e-5..1e16).contains(&magnitude) => format!("{value:e}"),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_short_and_come_back() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.1, "0.1"),
            (100.0, "100"),
            (1e16, "1e16"),
            (-2.5e-7, "-2.5e-7"),
            (f64::INFINITY, "inf"),
            (f64::MAX, "1.7976931348623157e308"),
        ] {
            assert_eq!(print(value), text);
            assert_eq!(text.parse(), Ok(value));
        }
        assert_eq!(print(0.1f32), "0.1");
        assert_eq!(print(f64::NAN), "NaN");
    }

    #[test]
    fn rounding_errors_do_not_add_up() {
        let mut sum = Sum::new();
        (0..1_000_000).for_each(|at| sum.add(at % LANES, 0.1));
        assert_eq!(sum.total(), 100_000.0);
        let mut sum = Sum::new();
        [1e100, 1.0, -1e100].into_iter().for_each(|value| sum.add(3, value));
        assert_eq!(sum.total(), 1.0);
        sum.add(0, f64::INFINITY);
        assert_eq!(sum.total(), f64::INFINITY);
    }
}
