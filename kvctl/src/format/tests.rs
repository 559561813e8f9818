use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use torc_record::MAX_VALUE_LEN;

mod strict;

const ALL: [Format; 3] = [Format::Ndjson, Format::Csv, Format::Tsv];

fn read(format: Format, text: &[u8]) -> Result<Vec<Numbered>, ReadError> {
    format
        .read(io::Cursor::new(text.to_vec()), Naming::Ours)
        .collect()
}

fn read_rows(format: Format, text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = read(format, text).unwrap().into_iter();
    rows.map(|n| (n.row.key.to_vec(), n.row.value.to_vec()))
        .collect()
}

fn problem(format: Format, text: &[u8]) -> String {
    read(format, text).unwrap_err().to_string()
}

fn write(format: Format, rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::new();
    format.write_header(&mut out).unwrap();
    for row in rows {
        format.write_row(row, &mut out).unwrap();
    }
    out
}

fn row(key: &[u8], value: &[u8]) -> Row {
    Row {
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
        expires_at_ms: None,
    }
}

#[test]
fn what_is_written_does_not_change() {
    let rows = [
        row(b"https://example.org/a,b", br#"{"status":200}"#),
        row(b"\xff\x00", b"tab\tline\nquote\" back\\"),
        Row {
            expires_at_ms: Some(1_700_000_000_123),
            ..row(b"k", b"")
        },
    ];
    assert_eq!(
        String::from_utf8(write(Format::Ndjson, &rows)).unwrap(),
        concat!(
            r#"{"key":"https://example.org/a,b","value":"{\"status\":200}"}"#,
            "\n",
            r#"{"key_base64":"/wA=","value":"tab\tline\nquote\" back\\"}"#,
            "\n",
            r#"{"key":"k","value":"","expires_at_ms":1700000000123}"#,
            "\n",
        )
    );
    assert_eq!(
        String::from_utf8(write(Format::Csv, &rows)).unwrap(),
        concat!(
            "key,value,key_base64,value_base64,expires_at_ms\n",
            "\"https://example.org/a,b\",\"{\"\"status\"\":200}\",,,\n",
            ",\"tab\tline\nquote\"\" back\\\",/wA=,,\n",
            "k,,,,1700000000123\n",
        )
    );
    assert_eq!(
        String::from_utf8(write(Format::Tsv, &rows)).unwrap(),
        concat!(
            "key\tvalue\tkey_base64\tvalue_base64\texpires_at_ms\n",
            "https://example.org/a,b\t{\"status\":200}\t\t\t\n",
            "\ttab\\tline\\nquote\" back\\\\\t/wA=\t\t\n",
            "k\t\t\t\t1700000000123\n",
        )
    );
}

#[test]
fn a_json_value_that_is_no_string_is_kept_as_it_is_written() {
    let text = br#"{"key":"a","value": {"n": 1, "s":"\u00e9"} }
{"key":"b","value":[1, 2]}
{"key":"c","value":1.50}
{"key":"d","value":true}
{"key":"\u00e9","value":"\u00e9\n"}
"#;
    let expected: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"a".into(), br#"{"n": 1, "s":"\u00e9"}"#.into()),
        (b"b".into(), b"[1, 2]".into()),
        (b"c".into(), b"1.50".into()),
        (b"d".into(), b"true".into()),
        ("\u{e9}".into(), "\u{e9}\n".into()),
    ];
    assert_eq!(read_rows(Format::Ndjson, text), expected);
}

#[test]
fn what_scan_prints_as_json_can_be_loaded() {
    let text = br#"{"key":"a","value":"1","expires_at_ms":5,"version":"1.2.3"}"#;
    let rows = read(Format::Ndjson, text).unwrap();
    assert_eq!(
        rows[0].row,
        Row {
            expires_at_ms: Some(5),
            ..row(b"a", b"1")
        }
    );
}

#[test]
fn a_malformed_line_is_named() {
    let json = |line: &str| {
        problem(
            Format::Ndjson,
            format!("\n{{\"key\":\"a\",\"value\":\"b\"}}\r\n{line}").as_bytes(),
        )
    };
    assert_eq!(
        json("{"),
        "line 3: unexpected JSON: EOF while parsing an object (column 1)"
    );
    assert_eq!(json(r#"{"key":"a"}"#), "line 3: `value` is missing");
    assert_eq!(json(r#"{"value":"a"}"#), "line 3: `key` is missing");
    assert_eq!(
        json(r#"{"key":"a","key_base64":"YQ==","value":"a"}"#),
        "line 3: both `key` and `key_base64` are set: use one"
    );
    assert_eq!(
        json(r#"{"key":"a","value_base64":"*"}"#),
        "line 3: `value_base64` is not base64"
    );
    assert!(json(r#"{"key":"a","value":null}"#).starts_with("line 3: the value is null"));
    assert!(json(r#"{"key":"a","value":"b","ttl":3}"#).contains("unknown field `ttl`"));
    assert!(json(r#"{"key":"a","key":"b","value":"b"}"#).contains("duplicate field `key`"));
    assert!(json(r#"{"key":"\ud800","value":"b"}"#).starts_with("line 3: unexpected JSON"));
    assert!(json(r#"[{"key":"a","value":"b"}]"#).starts_with("line 3: a JSON array: write"));
    assert!(json(r#"{"key":"a","value":"b"},"#).contains("trailing characters (column 24)"));
}

#[test]
fn a_line_number_counts_the_lines_inside_quotes() {
    let text = b"key,value\na,\"1\n2\n3\"\nb,2\nc\n";
    let rows: Vec<_> = Format::Csv
        .read(io::Cursor::new(text.to_vec()), Naming::Ours)
        .collect();
    let lines: Vec<_> = rows.iter().flatten().map(|n| n.line).collect();
    assert_eq!(lines, [2, 5]);
    let last = rows.last().unwrap().as_ref().unwrap_err();
    assert_eq!(last.to_string(), "line 6: 1 cells instead of 2");
}

#[test]
fn columns_come_in_any_order() {
    assert_eq!(
        read_rows(Format::Csv, b"value,key\n1,a\n"),
        [(b"a".to_vec(), b"1".to_vec())]
    );
    assert_eq!(
        read_rows(Format::Tsv, b"value_base64\tkey\r\n/wA\ta\r\n"),
        [(b"a".to_vec(), b"\xff\x00".to_vec())]
    );
}

#[test]
fn a_missing_header_is_noticed_and_can_be_declared() {
    for (format, text) in [(Format::Csv, &b"a,1\n"[..]), (Format::Tsv, b"a\t1\n")] {
        assert!(problem(format, text).contains("--no-header"), "{format:?}");
        let rows: Vec<_> = format
            .read(io::Cursor::new(text.to_vec()), Naming::None)
            .collect();
        assert_eq!(rows[0].as_ref().unwrap().row, row(b"a", b"1"));
    }
    assert!(problem(Format::Csv, b"key,value,ttl\n").contains("`ttl`"));
    assert!(problem(Format::Csv, b"key,value,key\n").contains("`key`"));
}

#[test]
fn an_unknown_escape_is_an_error_not_a_guess() {
    let text = b"key\tvalue\na\t{\"s\":\"\\u00e9\"}\n";
    assert_eq!(
        problem(Format::Tsv, text),
        "line 2: unknown escape `\\u`: use \\t, \\n, \\r, or \\\\ for a backslash"
    );
    assert!(problem(Format::Tsv, b"key\tvalue\na\t\\").contains("unknown escape `\\`"));
}

#[test]
fn the_largest_value_escaped_at_its_longest_fits_a_line() {
    let rows = [row(b"k", &vec![1; MAX_VALUE_LEN])];
    for format in ALL {
        assert_eq!(
            read(format, &write(format, &rows)).unwrap()[0].row,
            rows[0],
            "{format:?}"
        );
    }
}

#[test]
fn limits_are_checked_before_anything_is_sent() {
    let empty = br#"{"key":"","value":""}"#;
    assert_eq!(
        problem(Format::Ndjson, empty),
        "line 1: a key has at least 1 byte"
    );
    let long = write(Format::Ndjson, &[row(&[b'k'; 1025], b"")]);
    assert!(problem(Format::Ndjson, &long).starts_with("line 1: the key has 1025 bytes"));
    let big = write(Format::Csv, &[row(b"k", &vec![b'v'; MAX_VALUE_LEN + 1])]);
    assert!(problem(Format::Csv, &big).starts_with("line 2: the value has 1048577 bytes"));
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_first_line() {
    assert_eq!(
        read_rows(
            Format::Ndjson,
            b"\xef\xbb\xbf{\"key\":\"a\",\"value\":\"1\"}"
        )
        .len(),
        1
    );
    assert_eq!(
        read_rows(Format::Csv, b"\xef\xbb\xbfkey,value\na,1\n").len(),
        1
    );
    assert_eq!(
        read_rows(Format::Tsv, b"\xef\xbb\xbfkey\tvalue\na\t1\n").len(),
        1
    );
}

#[test]
fn the_extension_tells_the_format() {
    let of = |name: &str| Format::of_path(Path::new(name));
    assert_eq!(of("a.ndjson"), Some(Format::Ndjson));
    assert_eq!(of("dir.csv/a.JSONL"), Some(Format::Ndjson));
    assert_eq!(of("a.csv"), Some(Format::Csv));
    assert_eq!(of("a.tsv"), Some(Format::Tsv));
    assert_eq!(of("a.gz"), None);
    assert_eq!(of("a"), None);
}

/// Bytes of all kinds: text, text with many special characters of the formats, and random bytes.
fn any_bytes(min: usize, max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), min..max),
        vec(
            prop_oneof![
                Just(b','),
                Just(b'"'),
                Just(b'\\'),
                Just(b'\t'),
                Just(b'\n'),
                Just(b'\r'),
                Just(b' '),
                Just(b'n'),
                Just(b't')
            ],
            min..max
        ),
        vec(any::<char>(), min..max)
            .prop_map(|chars| chars.into_iter().collect::<String>().into_bytes()),
    ]
}

fn any_row() -> impl Strategy<Value = Row> {
    (any_bytes(1, 40), any_bytes(0, 80), any::<Option<u64>>()).prop_map(
        |(key, value, expires_at_ms)| Row {
            key: key.into(),
            value: value.into(),
            expires_at_ms,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_written_is_read_back_byte_for_byte(rows in vec(any_row(), 0..12)) {
        for format in ALL {
            let text = write(format, &rows);
            prop_assert!(std::str::from_utf8(&text).is_ok(), "{:?} is valid UTF-8", format);
            let back: Vec<Row> = read(format, &text).unwrap().into_iter().map(|n| n.row).collect();
            prop_assert_eq!(&back, &rows, "{:?}", format);
        }
    }

    #[test]
    fn no_file_makes_a_reader_panic(text in vec(any::<u8>(), 0..300), header: bool) {
        for format in ALL {
            let rows = format.read(io::Cursor::new(text.clone()), Naming::of(header));
            prop_assert!(rows.take(1000).count() <= 300);
        }
    }
}
