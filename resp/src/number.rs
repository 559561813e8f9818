//! Numbers as Redis parses them: no sign except `-`, no spaces, no leading zeros.

/// A whole number of 64 bits.
pub(crate) fn whole(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [] => None,
        b"0" => (digits.len() == text.len()).then_some(0),
        [b'0', ..] => None,
        _ if !digits.iter().all(u8::is_ascii_digit) => None,
        _ => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_has_one_form() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "1 ",
            " 1",
            "1.0",
            "0x1",
            "9223372036854775808",
        ] {
            assert_eq!(whole(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(whole(b"0"), Some(0));
        assert_eq!(whole(b"-9223372036854775808"), Some(i64::MIN));
    }

    proptest! {
        #[test]
        fn every_number_is_read_and_no_other_text(number: i64, text in "[-+0-9 ]{0,4}") {
            prop_assert_eq!(whole(number.to_string().as_bytes()), Some(number));
            let is_form = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
            prop_assert_eq!(whole(text.as_bytes()).is_some(), is_form);
        }
    }
}
