//! Quantities and bytes as text for people. Programs use `--output json`, where every
//! field has one unit and numbers are never rounded.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use torc_client::NodeId;

/// What to do about a certificate that ends soon.
pub(crate) const RENEWAL: &str = "if the certificate comes from files, replace them: new connections use them within \
     10 s. A node of a --secure cluster renews it by itself: its log says why it did not";

/// `1 replica`, `3 replicas`.
pub(crate) fn replicas(number: u32) -> String {
    format!("{number} replica{}", if number == 1 { "" } else { "s" })
}

/// `1234567` as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number of things, `1 slice` or `2,400 slices`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// `1 access`, `2,400 accesses`.
pub(crate) fn accesses(number: u64) -> String {
    let plural = if number == 1 { "" } else { "es" };
    format!("{} access{plural}", count(number))
}

/// Some nodes by their ids.
pub(crate) fn nodes(nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    let word = if names.len() == 1 { "node" } else { "nodes" };
    format!("{word} {}", names.join(", "))
}

/// Bytes in binary units, three significant digits: `17 B`, `1.50 KiB`, `211 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut scaled = number as f64 / 1024.0;
    let mut unit = 0;
    // 1,023.95 would round to 1024: use the next unit.
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let decimals = match scaled {
        s if s < 9.995 => 2,
        s if s < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$} {}", UNITS[unit])
}

/// A share of one as a percentage with one decimal; `-` when it is not a number.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() {
        format!("{:.1} %", share * 100.0)
    } else {
        "-".to_owned()
    }
}

/// A span of time in its two largest units: `850 ms`, `12.3 s`, `4 min 10 s`, `3 d 2 h`.
pub(crate) fn duration(span: Duration) -> String {
    let ms = span.as_millis();
    let seconds = (ms + 500) / 1000;
    let two = |large: u128, large_name: &str, small: u128, small_name: &str| {
        if small == 0 {
            format!("{large} {large_name}")
        } else {
            format!("{large} {large_name} {small} {small_name}")
        }
    };
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..59_950 => format!("{:.1} s", span.as_secs_f64()),
        _ if seconds < 3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        _ if seconds < 86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// Microseconds as a latency: `85 us`, `1.20 ms`, `2.30 s`.
pub(crate) fn latency_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// Bytes as one line that is safe for a terminal. UTF-8 text stays; control characters,
/// backslashes and bytes that are not UTF-8 become `\n`, `\\` or `\xff`. Different
/// bytes never look the same.
pub(crate) fn escaped(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.chars().any(needs_escape)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        chunk
            .valid()
            .chars()
            .for_each(|c| push_escaped(&mut out, c));
        for byte in chunk.invalid() {
            push_hex(&mut out, *byte);
        }
    }
    Cow::Owned(out)
}

fn needs_escape(c: char) -> bool {
    c.is_control() || c == '\\' || is_bidi_control(c)
}

/// Characters that reorder the text around them: they could make one key look like another.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\\' => out.push_str("\\\\"),
        c if needs_escape(c) => {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                push_hex(out, byte);
            }
        }
        c => out.push(c),
    }
}

fn push_hex(out: &mut String, byte: u8) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

/// As [`escaped`], shortened to at most `max` characters with `…` at the end.
pub(crate) fn shortened(bytes: &[u8], max: usize) -> String {
    let text = escaped(bytes);
    if text.chars().count() <= max {
        return text.into_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Text on one line: each run of white space and control characters becomes one blank.
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The wall clock, Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// A Unix time as RFC 3339 in UTC, to the millisecond.
pub(crate) fn timestamp(unix_ms: u64) -> String {
    match std::time::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)) {
        // humantime refuses years beyond 9999.
        Some(time) if unix_ms < 253_402_300_800_000 => {
            humantime::format_rfc3339_millis(time).to_string()
        }
        _ => format!("{unix_ms} ms after 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_have_three_digits_and_never_show_1024_of_a_unit() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(10 * 1024), "10.0 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1.00 MiB");
        assert_eq!(bytes(211 << 20), "211 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn durations_show_their_two_largest_units() {
        let of_ms = |ms| duration(Duration::from_millis(ms));
        assert_eq!(of_ms(850), "850 ms");
        assert_eq!(of_ms(12_340), "12.3 s");
        assert_eq!(of_ms(59_999), "1 min");
        assert_eq!(of_ms(250_000), "4 min 10 s");
        assert_eq!(of_ms(3_600_000), "1 h");
        assert_eq!(of_ms(266_400_000), "3 d 2 h");
    }

    #[test]
    fn latencies_keep_their_precision() {
        assert_eq!(latency_us(85), "85 us");
        assert_eq!(latency_us(1_204), "1.20 ms");
        assert_eq!(latency_us(2_300_000), "2.30 s");
    }

    #[test]
    fn percentages_of_nothing_are_a_dash() {
        assert_eq!(percent(0.1234), "12.3 %");
        assert_eq!(percent(f64::NAN), "-");
    }

    #[test]
    fn a_terminal_sees_no_control_characters() {
        assert_eq!(escaped(b"plain \xc3\xa9"), "plain \u{e9}");
        assert_eq!(escaped(b"a\tb\\c\x1b[31m\xff"), "a\\tb\\\\c\\x1b[31m\\xff");
        assert_eq!(escaped("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
    }

    #[test]
    fn text_is_shortened_by_characters_not_bytes() {
        assert_eq!(
            shortened("\u{e9}\u{e9}\u{e9}".as_bytes(), 3),
            "\u{e9}\u{e9}\u{e9}"
        );
        assert_eq!(shortened(b"abcdef", 4), "abc\u{2026}");
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line(" a\n  b\x07c \r\n"), "a b c");
    }

    #[test]
    fn timestamps_are_utc_and_never_panic() {
        assert_eq!(timestamp(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert!(timestamp(u64::MAX).ends_with("after 1970"));
    }

    proptest! {
        #[test]
        fn different_bytes_look_different(a: Vec<u8>, b: Vec<u8>) {
            prop_assert_eq!(escaped(&a) == escaped(&b), a == b);
        }

        #[test]
        fn escaped_bytes_are_one_line(bytes: Vec<u8>) {
            prop_assert!(!escaped(&bytes).chars().any(char::is_control));
        }
    }
}
