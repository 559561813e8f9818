//! Encodes the value of a JSON field so that equal values have equal bytes.
//!
//! | JSON | equal to |
//! |---|---|
//! | string | the same characters, however escaped; no normalisation, no change of case |
//! | number | the same number, however written: 1, 1.0 and 1e0. Beyond 64 bits, and with a fraction, as the nearest double |
//! | boolean | the same boolean |
//! | null, array, object | nothing: they cannot be join keys |
//!
//! A string never equals a number or a boolean.

/// A JSON field: a name at the top level, or a JSON pointer (RFC 6901), which begins with `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field(String);

/// Limit on the length of a name or pointer, bytes.
pub(super) const MAX_FIELD_LEN: usize = 1_024;

/// Why a value cannot be joined on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unjoined {
    /// The value is not JSON.
    NotJson,
    /// The value is not an object or has no such field.
    NoField,
    /// The field is null, an array or an object.
    NotScalar,
}

impl Field {
    /// `None` if the text is empty or too long.
    pub(super) fn new(text: &str) -> Option<Self> {
        let is_one = !text.is_empty() && text.len() <= MAX_FIELD_LEN;
        is_one.then(|| Self(text.to_owned()))
    }

    /// The field's value in this JSON text, encoded for comparison. Of several fields of one name,
    /// the last counts.
    pub(super) fn of(&self, json: &[u8]) -> Result<Vec<u8>, Unjoined> {
        let json: serde_json::Value =
            serde_json::from_slice(json).map_err(|_| Unjoined::NotJson)?;
        let found = if self.0.starts_with('/') {
            json.pointer(&self.0)
        } else {
            json.get(&self.0)
        };
        let (kind, bytes) = match found.ok_or(Unjoined::NoField)? {
            serde_json::Value::String(text) => (b's', text.as_bytes().to_vec()),
            serde_json::Value::Bool(it) => (b'b', vec![u8::from(*it)]),
            serde_json::Value::Number(number) => number_bytes(number),
            _ => return Err(Unjoined::NotScalar),
        };
        Ok([&[kind], &bytes[..]].concat())
    }
}

/// A number that is a 64-bit integer in any notation is encoded exactly, all others as the nearest
/// double.
#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
fn number_bytes(number: &serde_json::Number) -> (u8, Vec<u8>) {
    let double = number.as_f64().unwrap_or(f64::NAN);
    let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
    // Saturates; a double out of range stays out of the range of 64-bit integers.
    let whole = (double.fract() == 0.0).then_some(double as i128);
    let exact = number.as_i64().map(i128::from);
    let exact = exact.or_else(|| number.as_u64().map(i128::from));
    match exact.or(whole).filter(|it| range.contains(it)) {
        Some(integer) => (b'i', integer.to_be_bytes().to_vec()),
        None => (b'd', double.to_bits().to_be_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(field: &str, json: &str) -> Result<Vec<u8>, Unjoined> {
        Field::new(field).unwrap().of(json.as_bytes())
    }

    fn scalar(json: &str) -> Vec<u8> {
        of("x", &format!("{{\"x\":{json}}}")).unwrap()
    }

    #[test]
    fn equal_values_have_equal_bytes_and_others_have_not() {
        let classes: &[&[&str]] = &[
            &["1", "1.0", "1e0", "10E-1"],
            &["-1", "-1.0"],
            &["0", "-0", "0.0", "-0.0"],
            &["0.5", "5e-1"],
            &["18446744073709551615"],
            &["18446744073709551614"],
            &["-9223372036854775808", "-9.223372036854775808e18"],
            &["1e300"],
            &["1000000000000000000", "1e18"],
            &["\"1\"", "\"\\u0031\""],
            &["\"é\"", "\"\\u00e9\""],
            &["\"e\\u0301\""],
            &["\"\""],
            &["true"],
            &["false"],
            &["\"true\""],
            &["\"A\""],
            &["\"a\""],
        ];
        for (at, class) in classes.iter().enumerate() {
            for one in *class {
                for (other_at, other) in classes.iter().enumerate() {
                    for other in *other {
                        let equal = scalar(one) == scalar(other);
                        assert_eq!(equal, at == other_at, "{one} and {other}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_nothing_to_join_on_says_why() {
        for json in ["", "{", "x", "{\"x\":1}}", "\u{1}"] {
            assert_eq!(of("x", json), Err(Unjoined::NotJson), "{json:?}");
        }
        for json in ["{}", "{\"y\":1}", "[1]", "1", "null", "{\"y\":{\"x\":1}}"] {
            assert_eq!(of("x", json), Err(Unjoined::NoField), "{json:?}");
        }
        for json in ["null", "[1]", "{}"] {
            let json = format!("{{\"x\":{json}}}");
            assert_eq!(of("x", &json), Err(Unjoined::NotScalar), "{json}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(of("x", &deep), Err(Unjoined::NotJson), "too deep");
    }

    #[test]
    fn a_pointer_leads_into_objects_and_arrays() {
        let json = r#"{"a":{"b":[0,{"c/d":7}]},"/x":8,"x":1,"x":2}"#;
        assert_eq!(of("/a/b/1/c~1d", json), Ok(scalar("7")));
        assert_eq!(of("/x", json), Ok(scalar("2")), "the last of a name");
        assert_eq!(of("/a/b/2", json), Err(Unjoined::NoField));
        assert_eq!(Field::new(""), None);
        assert_eq!(Field::new(&"x".repeat(MAX_FIELD_LEN + 1)), None);
    }
}
