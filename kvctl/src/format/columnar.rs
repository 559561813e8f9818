//! What Parquet and Arrow have in common: columns by name, and libraries that panic on damaged files.

use std::cell::Cell;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Once};

use bytes::Bytes;
use serde_json::Value;
use torc_record::{Key, MAX_VALUE_LEN, RecordError};

use super::{BadRow, Chosen, ChosenValue, Naming, Problem, ReadError, Row};

/// Columns of other formats that are not read here.
const UNREAD: [&str; 3] = ["key_base64", "value_base64", "expires_at_ms"];

/// The columns to read, and those that a file must not have.
pub(super) fn chosen(naming: &Naming) -> (Arc<Chosen>, &'static [&'static str]) {
    match naming {
        Naming::Chosen(chosen) => (Arc::clone(chosen), &[]),
        Naming::Ours | Naming::None => {
            let key = "key".to_owned();
            let value = ChosenValue::Column("value".to_owned());
            (Arc::new(Chosen { key, value }), &UNREAD)
        }
    }
}

/// A row within the limits of keys and values.
pub(super) fn row(key: Bytes, value: Bytes) -> Result<Row, Problem> {
    let limits = |error: &dyn std::fmt::Display| Problem::OutOfBounds(error.to_string());
    Key::new(key.clone()).map_err(|error| limits(&error))?;
    if value.len() > MAX_VALUE_LEN {
        return Err(limits(&RecordError::ValueTooLong { len: value.len() }));
    }
    Ok(Row {
        key,
        value,
        expires_at_ms: None,
    })
}

/// A number; JSON has no infinity.
pub(super) fn number(column: &str, value: f64) -> Result<Value, Problem> {
    if value.is_finite() {
        return Ok(Value::from(value));
    }
    Err(Problem::NotFinite(column.to_owned()))
}

/// The shortest digits that stand for a number, not those of the nearest double.
pub(super) fn short_number(column: &str, value: f32) -> Result<Value, Problem> {
    number(column, value.to_string().parse().unwrap_or(f64::NAN))
}

pub(super) fn bad(line: u64, problem: Problem) -> ReadError {
    ReadError::Bad(BadRow {
        line,
        last_line: line,
        problem,
        bytes: Bytes::new(),
    })
}

pub(super) fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ReadError {
    ReadError::Io(io::Error::new(io::ErrorKind::InvalidData, error))
}

thread_local! {
    /// Whether this thread catches panics, so they print nothing.
    static IS_CALM: Cell<bool> = const { Cell::new(false) };
}

/// Calls a library; turns a panic into an error.
pub(super) fn calmly<T>(call: impl FnOnce() -> T) -> Result<T, ReadError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_CALM.get() {
                usual(panic);
            }
        }));
    });
    IS_CALM.set(true);
    let called = std::panic::catch_unwind(AssertUnwindSafe(call));
    IS_CALM.set(false);
    called.map_err(|_| invalid("the file is malformed"))
}
