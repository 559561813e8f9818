//! The values of headers that any caller sends.

use std::time::Duration;

/// The token in an `authorization` header, `Bearer TOKEN`. `None` if it has another form.
#[must_use]
pub fn bearer_of(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Parses a `grpc-timeout`: one to eight digits and a unit, as the gRPC protocol specifies.
#[must_use]
pub fn timeout_of(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u32 = digits.parse().ok().filter(|_| is_number)?;
    if digits.len() > 8 {
        return None;
    }
    let count = u64::from(count);
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_timeout_is_read_in_every_unit() {
        assert_eq!(timeout_of("250m"), Some(Duration::from_millis(250)));
        assert_eq!(timeout_of("3S"), Some(Duration::from_secs(3)));
        let longest = Duration::from_secs(99_999_999 * 3600);
        assert_eq!(timeout_of("99999999H"), Some(longest));
        for text in [
            "",
            "m",
            "5",
            "5x",
            "123456789m",
            "000000001m",
            "-1S",
            "+1S",
            "é",
        ] {
            assert_eq!(timeout_of(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_token_follows_its_scheme() {
        for text in ["Bearer a.b", "bearer a.b", "BEARER a.b"] {
            assert_eq!(bearer_of(text), Some("a.b"));
        }
        for text in ["", "Bearer", "Basic a.b", "a.b", " Bearer a.b"] {
            assert_eq!(bearer_of(text), None, "{text:?}");
        }
    }
}
