//! Summarises a few measurements, and formats numbers for people.

/// The middle of the values, the mean of the two middle ones if their number is even.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}

/// The smallest and the largest value.
pub(crate) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let smallest = values.iter().copied().min_by(f64::total_cmp)?;
    let largest = values.iter().copied().max_by(f64::total_cmp)?;
    Some((smallest, largest))
}

/// Largest minus smallest value in percent of the median; `None` for a single value.
pub(crate) fn spread_percent(values: &[f64]) -> Option<f64> {
    let middle = median(values).filter(|_| values.len() > 1)?;
    let (smallest, largest) = range(values)?;
    let range = largest - smallest;
    Some(if range == 0.0 {
        0.0
    } else {
        100.0 * range / middle.abs()
    })
}

/// Formats a number with three decimals below ten, one below a hundred, none beyond, and commas
/// from a thousand on. Zero is `0`.
pub(crate) fn readable(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 9.9995 => format!("{value:.3}"),
        size if size < 99.95 => format!("{value:.1}"),
        size if size < 999.5 => format!("{value:.0}"),
        _ => grouped(value),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_follow_an_outlier() {
        assert_eq!(median(&[3.0, 1.0, 900.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_spread_is_relative_to_the_median() {
        assert_eq!(spread_percent(&[90.0, 110.0, 100.0]), Some(20.0));
        assert_eq!(spread_percent(&[5.0]), None, "one round has no spread");
        assert_eq!(spread_percent(&[0.0, 0.0]), Some(0.0));
    }

    #[test]
    fn numbers_are_short() {
        let pairs = [
            (1.0234, "1.023"),
            (9.9996, "10.0"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (0.0, "0"),
        ];
        for (value, text) in pairs {
            assert_eq!(readable(value), text);
        }
    }
}
