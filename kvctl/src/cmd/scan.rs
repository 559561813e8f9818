//! `kvctl scan`: prints records in ring order.

use std::ffi::OsString;
use std::pin::pin;

use base64::Engine as _;
use bytes::Bytes;
use futures::StreamExt as _;
use torc_client::{Entry, ScanCursor, ScanOptions, ValueMatch};

use crate::failure::Failure;
use crate::format::{BASE64, JsonRow};
use crate::global::Global;
use crate::out::{Out, note};
use crate::text::escaped;

/// Print the records of the namespace in ring order, which is not key order.
///
/// Each key is read linearizably; the whole is not a snapshot of one moment. A line of
/// text has the key, a tab and the value; control characters and bytes that are not
/// UTF-8 are escaped as `\n` or `\xff`. With `--output json`, a line is an object with
/// key, value, version and `expires_at_ms`, if the value expires. To copy data, use
/// `dump`.
///
/// With --contains, a line ends with a tab and the positions of the bytes in the value, counted
/// from 0: `12`, or `12:1` for the second of several --contains; `…` if there are more than 16. In
/// JSON, the field is `matches`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print at most this many records.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print no values.
    #[arg(long)]
    keys_only: bool,
    /// Continue after an earlier scan with a limit, which printed this position on stderr.
    #[arg(long, value_name = "CURSOR", value_parser = cursor)]
    after: Option<ScanCursor>,
    /// Print only records whose value contains these bytes or, if you repeat the option, at
    /// least one of them. Nodes search and send only the matching records.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    contains: Vec<OsString>,
    /// Like --contains, in hexadecimal digits.
    #[arg(long, value_name = "HEX", value_parser = hex)]
    contains_hex: Vec<Bytes>,
}

fn hex(digits: &str) -> Result<Bytes, String> {
    let bytes = crate::args::hex(digits.as_bytes());
    let bytes = bytes.ok_or_else(|| "use pairs of hexadecimal digits".to_owned())?;
    Ok(bytes.into())
}

fn cursor(text: &str) -> Result<ScanCursor, String> {
    let bytes = BASE64
        .decode(text)
        .map_err(|_| "it is not base64".to_owned())?;
    ScanCursor::from_bytes(&bytes).map_err(|error| error.to_string())
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if args.limit == Some(0) {
        return Ok(());
    }
    let plain = args.contains.into_iter();
    let plain = plain.map(|bytes| Bytes::from(bytes.into_encoded_bytes()));
    let options = ScanOptions {
        limit: args.limit,
        after: args.after,
        keys_only: args.keys_only,
        contains: plain.chain(args.contains_hex).collect(),
    };
    let several = options.contains.len() > 1;
    let client = global.client()?;
    let mut entries = pin!(client.scan(options));
    let mut printed = 0;
    while let Some(entry) = entries.next().await {
        let entry = entry.map_err(|error| after_some(error.into(), printed))?;
        if global.json() {
            out.json(&json(&entry, args.keys_only))?;
        } else {
            out.line(text(&entry, args.keys_only, several))?;
        }
        printed += 1;
        if out.screen().terminal {
            out.flush()?;
        }
    }
    if args.limit == Some(printed) {
        let cursor = entries.cursor();
        note(format_args!(
            "to continue: --after {}",
            BASE64.encode(cursor.as_bytes())
        ));
    }
    Ok(())
}

fn after_some(failure: Failure, printed: u64) -> Failure {
    match printed {
        0 => failure,
        _ => failure.after(format!(
            "printed {}",
            crate::text::counted(printed, "record")
        )),
    }
}

fn text(entry: &Entry, keys_only: bool, several: bool) -> String {
    let key = escaped(&entry.key);
    let record = if keys_only {
        key.into_owned()
    } else {
        format!("{key}\t{}", escaped(&entry.value))
    };
    if entry.matches.is_empty() {
        return record;
    }
    let place = |it: &ValueMatch| {
        if several {
            format!("{}:{}", it.start, it.pattern)
        } else {
            it.start.to_string()
        }
    };
    let more = entry.more_matches.then(|| "…".to_owned());
    let places: Vec<_> = entry.matches.iter().map(place).chain(more).collect();
    format!("{record}\t{}", places.join(" "))
}

fn json(entry: &Entry, keys_only: bool) -> JsonRow<'_> {
    let row = JsonRow::key(&entry.key)
        .expires_at_ms(entry.expires_at_ms)
        .version(entry.version)
        .matches(&entry.matches, entry.more_matches);
    if keys_only {
        row
    } else {
        row.value(&entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &'static [u8], value: &'static [u8]) -> Entry {
        Entry {
            key: Bytes::from_static(key),
            value: Bytes::from_static(value),
            version: "1.2.3".parse().unwrap(),
            expires_at_ms: None,
            matches: Vec::new(),
            more_matches: false,
        }
    }

    #[test]
    fn a_record_is_one_line_whatever_its_bytes() {
        let entry = entry(b"a\tb", b"1\n\xff");
        assert_eq!(text(&entry, false, false), "a\\tb\t1\\n\\xff");
        assert_eq!(text(&entry, true, false), "a\\tb");
    }

    #[test]
    fn matches_follow_the_record_with_their_pattern_where_there_are_several() {
        let places = [(0, 0), (7, 1)];
        let matches = places.map(|(start, pattern)| ValueMatch { start, pattern });
        let found = Entry {
            matches: matches.into(),
            more_matches: true,
            ..entry(b"a", b"b")
        };
        assert_eq!(text(&found, false, false), "a\tb\t0 7 …");
        assert_eq!(text(&found, true, true), "a\t0:0 7:1 …");
        let line = serde_json::to_string(&json(&found, true)).unwrap();
        assert_eq!(
            line,
            r#"{"key":"a","version":"1.2.3","matches":[{"start":0,"pattern":0},{"start":7,"pattern":1}],"more_matches":true}"#
        );
        crate::out::assert_documented(&json(&found, true));
    }

    #[test]
    fn json_tells_text_from_other_bytes() {
        let entry = entry(b"a", b"\xff");
        let line = |keys_only| serde_json::to_string(&json(&entry, keys_only)).unwrap();
        assert_eq!(
            line(false),
            r#"{"key":"a","value_base64":"/w==","version":"1.2.3"}"#
        );
        crate::out::assert_documented(&json(&entry, false));
        assert_eq!(line(true), r#"{"key":"a","version":"1.2.3"}"#);
    }
}
