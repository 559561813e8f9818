//! One JSON object per line: `{"key":"…","value":"…"}`.
//!
//! A value that is a JSON string stands for the bytes of that string. Any other JSON
//! value except null stands for its own text, exactly as in the file, so
//! `{"key":"a","value":{"n": 1}}` stores the eight bytes `{"n": 1}`.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use torc_client::ValueMatch;

use super::json::{json_problem, raw_value};
use super::reading::{Extent, Grammar, Lines};
use super::{BASE64, Chosen, Naming, Problem, Row, decode_base64};

/// A record as JSON: text if it is UTF-8, else base64 in a field of another name.
#[derive(Debug, Serialize)]
pub(crate) struct JsonRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    matches: &'a [ValueMatch],
    #[serde(skip_serializing_if = "Option::is_none")]
    more_matches: Option<bool>,
}

impl<'a> JsonRow<'a> {
    /// A key alone.
    pub(crate) fn key(key: &'a [u8]) -> Self {
        let (key, key_base64) = text_or_base64(key);
        Self {
            key,
            key_base64,
            value: None,
            value_base64: None,
            expires_at_ms: None,
            version: None,
            matches: &[],
            more_matches: None,
        }
    }

    /// Adds the value.
    pub(crate) fn value(mut self, value: &'a [u8]) -> Self {
        (self.value, self.value_base64) = text_or_base64(value);
        self
    }

    /// Adds the expiry, Unix milliseconds.
    pub(crate) fn expires_at_ms(mut self, at: Option<u64>) -> Self {
        self.expires_at_ms = at;
        self
    }

    /// Adds the positions of the matches, and whether there are more.
    pub(crate) fn matches(mut self, matches: &'a [ValueMatch], more: bool) -> Self {
        self.matches = matches;
        self.more_matches = (!matches.is_empty()).then_some(more);
        self
    }

    /// Adds the version.
    pub(crate) fn version(mut self, version: torc_record::Ballot) -> Self {
        self.version = Some(version.to_string());
        self
    }
}

fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(BASE64.encode(bytes))),
    }
}

pub(super) fn write(row: &Row, out: &mut impl Write) -> io::Result<()> {
    let json = JsonRow::key(&row.key)
        .value(&row.value)
        .expires_at_ms(row.expires_at_ms);
    serde_json::to_writer(&mut *out, &json)?;
    out.write_all(b"\n")
}

/// The fields of a line. `version`, which `scan --output json` adds, is ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    key_base64: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    value_base64: Option<Cow<'a, str>>,
    expires_at_ms: Option<u64>,
    #[serde(rename = "version")]
    _version: Option<IgnoredAny>,
}

/// Distinguishes `null` from a missing value.
fn present<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(input).map(Some)
}

/// Rows from lines of JSON. Blank lines are skipped.
#[derive(Debug, Default)]
pub(super) struct Ndjson {
    lines: Lines,
    chosen: Option<Arc<Chosen>>,
}

impl Ndjson {
    pub(super) fn new(naming: &Naming) -> Self {
        let chosen = match naming {
            Naming::Chosen(chosen) => Some(Arc::clone(chosen)),
            Naming::Ours | Naming::None => None,
        };
        Self {
            lines: Lines::default(),
            chosen,
        }
    }
}

impl Grammar for Ndjson {
    fn extent(&mut self, bytes: &[u8], all: bool) -> Extent {
        self.lines.extent(bytes, all)
    }

    fn give_up(&mut self, _bytes: &[u8]) -> Extent {
        self.lines.give_up()
    }

    fn row(&mut self, record: &str) -> Result<Option<Row>, Problem> {
        match record.trim_ascii_end() {
            "" => Ok(None),
            line if line.trim_ascii_start().starts_with('[') => Err(Problem::Array),
            line => match &self.chosen {
                Some(chosen) => chosen.row_of_json(line).map(Some),
                None => parse(line).map(Some),
            },
        }
    }
}

fn parse(text: &str) -> Result<Row, Problem> {
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| json_problem(&error))?;
    let key = match (line.key, line.key_base64) {
        (Some(key), None) => Bytes::from(key.into_owned()),
        (None, Some(base64)) => decode_base64("key", &base64)?,
        (Some(_), Some(_)) => return Err(Problem::Both("key")),
        (None, None) => return Err(Problem::Missing("key")),
    };
    let value = match (line.value, line.value_base64) {
        (Some(value), None) => raw_value(value.get())?,
        (None, Some(base64)) => decode_base64("value", &base64)?,
        (Some(_), Some(_)) => return Err(Problem::Both("value")),
        (None, None) => return Err(Problem::Missing("value")),
    };
    Ok(Row {
        key,
        value,
        expires_at_ms: line.expires_at_ms,
    })
}
