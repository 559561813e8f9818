//! Values in JSON text.

use bytes::Bytes;

use super::Problem;

/// The bytes that a JSON value stands for: those of a string, or else the value's own text.
pub(super) fn raw_value(json: &str) -> Result<Bytes, Problem> {
    match json.as_bytes().first() {
        Some(b'"') => {
            let text: String = serde_json::from_str(json).map_err(|error| json_problem(&error))?;
            Ok(Bytes::from(text))
        }
        Some(b'n') => Err(Problem::NullValue),
        _ => Ok(Bytes::copy_from_slice(json.as_bytes())),
    }
}

/// serde_json's message without its line number: it sees one line at a time.
pub(super) fn json_problem(error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    let column = error.column();
    Problem::Json(format!("{what} (column {column})"))
}

/// A JSON object with its fields in the order given.
pub(super) fn object<T: serde::Serialize>(fields: &[(&str, T)]) -> Result<Bytes, Problem> {
    use serde::ser::{SerializeMap as _, Serializer as _};
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut text);
    let written = serializer
        .serialize_map(Some(fields.len()))
        .and_then(|mut map| {
            for (name, value) in fields {
                map.serialize_entry(name, value)?;
            }
            map.end()
        });
    written.map_err(|error| json_problem(&error))?;
    Ok(text.into())
}
