//! Globs of `SCAN … MATCH`: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a literal character.
//!
//! Only the last `*` is ever retried, so a match takes pattern times text steps and no stack: a
//! hostile pattern cannot keep a node busy.

use bytes::Bytes;

/// A glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Bytes);

impl Pattern {
    /// A pattern; any bytes are valid.
    #[must_use]
    pub const fn new(pattern: Bytes) -> Self {
        Self(pattern)
    }

    /// Whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        let pattern = &self.0[..];
        let (mut at, mut in_text) = (0, 0);
        // The position after the last star, and the position in the text where it was tried.
        let mut star = None;
        loop {
            if pattern.get(at) == Some(&b'*') {
                at += 1;
                star = Some((at, in_text));
                continue;
            }
            let step = match (pattern.get(at), text.get(in_text)) {
                (None, None) => return true,
                (Some(_), Some(byte)) => one(&pattern[at..], *byte),
                _ => None,
            };
            if let Some(len) = step {
                at += len;
                in_text += 1;
                continue;
            }
            // The star matches one more byte.
            match star {
                Some((behind, tried)) if tried < text.len() => {
                    at = behind;
                    in_text = tried + 1;
                    star = Some((behind, tried + 1));
                }
                _ => return false,
            }
        }
    }
}

/// The length of the pattern's first element, if it matches the byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (len, matches) = in_class(class, byte);
            matches.then_some(len + 1)
        }
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

/// The length of a class with its `]`, and whether it contains the byte. A class without an end
/// ends with the pattern.
fn in_class(class: &[u8], byte: u8) -> (usize, bool) {
    let not = class.first() == Some(&b'^');
    let mut at = usize::from(not);
    let mut holds = false;
    loop {
        match &class[at..] {
            [] => return (class.len(), holds != not),
            [b']', ..] => return (at + 1, holds != not),
            [b'\\', escaped, ..] => {
                holds |= *escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (low, high) = (from.min(to), from.max(to));
                holds |= (*low..=*high).contains(&byte);
                at += 3;
            }
            [one, ..] => {
                holds |= *one == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(Bytes::copy_from_slice(pattern.as_bytes())).matches(text.as_bytes())
    }

    #[test]
    fn globs_match_as_those_of_redis() {
        let yes = [
            ("*", ""),
            ("", ""),
            ("h?llo", "hello"),
            ("h*llo", "hllo"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hbllo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("\\*", "*"),
            ("[\\]]", "]"),
            ("a*b*c", "a-b-b-c"),
            ("**a", "bba"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        let no = [
            ("", "a"),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("\\*", "a"),
            ("a*b*c", "a-b-b-d"),
            ("a", "ab"),
            ("ab", "a"),
        ];
        for (pattern, text) in no {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_long_time() {
        let (pattern, text) = ("a*".repeat(500) + "b", "a".repeat(1_000));
        assert!(!matches(&pattern, &text));
    }

    proptest! {
        #[test]
        fn any_pattern_ends(pattern: Vec<u8>, text: Vec<u8>) {
            let _ = Pattern::new(pattern.into()).matches(&text);
        }

        #[test]
        fn what_is_escaped_matches_itself_alone(text: Vec<u8>, other: Vec<u8>) {
            let escaped: Vec<u8> = text.iter().flat_map(|byte| [b'\\', *byte]).collect();
            let pattern = Pattern::new(escaped.into());
            prop_assert!(pattern.matches(&text));
            prop_assert_eq!(pattern.matches(&other), text == other);
        }
    }
}
