//! Sums of `INCRBYFLOAT`.
//!
//! Redis adds in the processor's 80-bit numbers and prints 17 decimal places. Torc adds numbers of
//! up to 17 decimal places exactly, which prints the same; it adds others as 64-bit numbers and
//! prints them in full.

use crate::error::CommandError;

/// Most decimals of numbers that are added exactly.
const SCALE: u32 = 17;
/// Most digits before the decimal point.
const WHOLE_DIGITS: u32 = 20;

/// The sum of two numbers.
pub(crate) fn add(one: &[u8], other: &[u8]) -> Result<String, CommandError> {
    let (one, other) = (float(one)?, float(other)?);
    if let (Some(one), Some(other)) = (units(one.text), units(other.text)) {
        return Ok(show(one + other));
    }
    let sum = one.value + other.value;
    if sum.is_finite() {
        Ok(format!("{sum}"))
    } else {
        Err(CommandError::NotFinite)
    }
}

/// Refuses text that is not a number.
pub(crate) fn check(text: &[u8]) -> Result<(), CommandError> {
    float(text).map(|_| ())
}

struct Float<'a> {
    text: &'a str,
    value: f64,
}

fn float(text: &[u8]) -> Result<Float<'_>, CommandError> {
    let text = std::str::from_utf8(text).map_err(|_| CommandError::NotFloat)?;
    let value: f64 = text.parse().map_err(|_| CommandError::NotFloat)?;
    if value.is_nan() {
        return Err(CommandError::NotFloat);
    }
    Ok(Float { text, value })
}

/// A decimal number in units of the last digit; `None` if it has too many digits.
fn units(text: &str) -> Option<i128> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = [whole, part].concat();
    let ends = digits.trim_end_matches('0');
    let zeros = i32::try_from(digits.len() - ends.len()).ok()?;
    let part_len = i32::try_from(part.len()).ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    let power = exponent.checked_add(zeros)?.checked_sub(part_len)?;
    let power = u32::try_from(power.checked_add(SCALE.cast_signed())?).ok()?;
    // Without zeros at its end, "0" is empty.
    let size: i128 = format!("0{ends}").parse().ok()?;
    let units = size.checked_mul(10_i128.checked_pow(power)?)?;
    let is_short = units < 10_i128.pow(WHOLE_DIGITS + SCALE);
    is_short.then(|| {
        if number.starts_with('-') {
            -units
        } else {
            units
        }
    })
}

/// Prints it without trailing zeros.
fn show(units: i128) -> String {
    let unit = 10_u128.pow(SCALE);
    let (sign, size) = (if units < 0 { "-" } else { "" }, units.unsigned_abs());
    let part = format!("{:017}", size % unit);
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{part}", size / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(one: &str, other: &str) -> Result<String, CommandError> {
        add(one.as_bytes(), other.as_bytes())
    }

    #[test]
    fn decimal_numbers_are_added_exactly() {
        let cases = [
            ("10.50", "0.1", "10.6"),
            ("0.1", "0.2", "0.3"),
            ("-0.5", "0.5", "0"),
            ("3", "-1.25", "1.75"),
            ("-1", "0.75", "-0.25"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "2e-1", "0.3"),
            ("1E-5", "-2.5e-06", "0.0000075"),
            ("0e9", "1e-17", "0.00000000000000001"),
            (
                "1e17",
                "9.6000000000000001",
                "100000000000000009.6000000000000001",
            ),
            ("1e20", "1", "100000000000000000000"),
            ("17179869184", "1.5", "17179869185.5"),
            ("1000000000000000001", "1", "1000000000000000002"),
            ("99999999999999999999", "-0.5", "99999999999999999998.5"),
        ];
        for (one, other, expected) in cases {
            assert_eq!(sum(one, other).as_deref(), Ok(expected), "{one} {other}");
        }
        for wrong in ["", "a", " 1", "1 ", "nan", "0x1"] {
            assert_eq!(sum(wrong, "1"), Err(CommandError::NotFloat), "{wrong:?}");
        }
        assert_eq!(sum("1e308", "1e308"), Err(CommandError::NotFinite));
        assert_eq!(sum("inf", "1"), Err(CommandError::NotFinite));
    }

    proptest! {
        #[test]
        fn adding_and_taking_away_gives_what_was_there(one: i32, other: i32, part in 0_u32..1000) {
            let before = format!("{one}.{part:03}");
            let sum = add(before.as_bytes(), other.to_string().as_bytes()).unwrap();
            let back = add(sum.as_bytes(), (-i64::from(other)).to_string().as_bytes()).unwrap();
            let same = add(back.as_bytes(), b"0").unwrap();
            prop_assert_eq!(same, add(before.as_bytes(), b"0").unwrap());
        }

        #[test]
        fn any_bytes_are_a_number_or_refused(one: Vec<u8>, other in "[-+.e0-9]{0,40}") {
            let _ = add(&one, other.as_bytes());
            let _ = add(other.as_bytes(), other.as_bytes());
        }
    }
}
