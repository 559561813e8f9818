//! Inline commands: the words of a typed line.
//!
//! `"…"` supports `\n \r \t \b \a \xHH` and keeps any other character after a backslash; `'…'`
//! supports only `\'`. A space or the end must follow a closing quotation mark.

use bytes::Bytes;

use crate::error::ProtocolError;

/// The words of a line.
pub(crate) fn split(line: &[u8], most: usize) -> Result<Vec<Bytes>, ProtocolError> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        if words.len() == most {
            return Err(ProtocolError::ArgumentCount);
        }
        let (word, left) = word(rest)?;
        words.push(word);
        rest = left.trim_ascii_start();
    }
    Ok(words)
}

fn word(mut rest: &[u8]) -> Result<(Bytes, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    while let Some((first, left)) = rest.split_first() {
        match first {
            b'"' | b'\'' => {
                rest = quoted(*first, left, &mut word)?;
                if rest.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                    return Err(ProtocolError::Quotes);
                }
                break;
            }
            space if space.is_ascii_whitespace() => break,
            other => {
                word.push(*other);
                rest = left;
            }
        }
    }
    Ok((word.into(), rest))
}

/// Takes the text before the closing quotation mark; returns the rest.
fn quoted<'a>(mark: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match (mark, rest) {
            (_, []) => return Err(ProtocolError::Quotes),
            (_, [end, left @ ..]) if *end == mark => return Ok(left),
            (b'\'', [b'\\', b'\'', left @ ..]) => {
                word.push(b'\'');
                left
            }
            (b'"', [b'\\', b'x', high, low, left @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) << 4 | hex(*low));
                left
            }
            (b'"', [b'\\', escaped, left @ ..]) => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                left
            }
            (_, [byte, left @ ..]) => {
                word.push(*byte);
                left
            }
        }
    }
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_spaces_that_are_not_quoted() {
        let words = |line: &str| split(line.as_bytes(), 4);
        let expected: [&[u8]; 4] = [b"SET", b"a", b" b\"\xff", b"it's"];
        assert_eq!(words(r#"  SET	a " b\"\xFF" 'it\'s' "#).unwrap(), expected);
        assert_eq!(words("").unwrap(), Vec::<Bytes>::new());
        assert_eq!(words("''").unwrap(), [&b""[..]]);
        for unbalanced in ["\"", "'a", "\"a\"b", "\"\\"] {
            assert_eq!(
                words(unbalanced),
                Err(ProtocolError::Quotes),
                "{unbalanced}"
            );
        }
        assert_eq!(words("a b c d e"), Err(ProtocolError::ArgumentCount));
    }
}
