//! What readers refuse, and where a bad row ends.

use super::*;
use std::fmt::Write as _;

/// The result of reading a text: the keys of rows, and the lines and bytes of bad rows.
fn read_on(format: Format, text: &[u8]) -> Vec<Result<String, (u64, u64, String)>> {
    let rows = format.read(io::Cursor::new(text.to_vec()), Naming::Ours);
    rows.map(|row| match row {
        Ok(numbered) => Ok(String::from_utf8(numbered.row.key.to_vec()).unwrap()),
        Err(ReadError::Bad(row)) => {
            let bytes = String::from_utf8_lossy(&row.bytes).into_owned();
            Err((row.line, row.last_line, bytes))
        }
        Err(error) => panic!("{error}"),
    })
    .collect()
}

fn bad(line: u64, last_line: u64, bytes: &str) -> Result<String, (u64, u64, String)> {
    Err((line, last_line, bytes.to_owned()))
}

#[test]
fn an_unclosed_quote_swallows_no_row() {
    let mut text = "key,value\n".to_owned();
    for row in 0..1_000 {
        let quote = if row == 499 { "\"" } else { "" };
        writeln!(text, "k{row},{quote}v{row}").unwrap();
    }
    let rows = read_on(Format::Csv, text.as_bytes());
    assert_eq!(rows.len(), 1_000);
    assert_eq!(rows[499], bad(501, 501, "k499,\"v499\n"));
    assert_eq!(rows.iter().filter(|row| row.is_err()).count(), 1);
    assert_eq!(
        problem(Format::Csv, text.as_bytes()),
        "line 501: the quote that opens here is never closed"
    );
}

#[test]
fn a_quote_in_the_wrong_place_makes_the_row_bad_to_the_end_of_its_line() {
    for (text, expected) in [
        ("a,\"x\"y\nb,2\n", [bad(2, 2, "a,\"x\"y\n"), Ok("b".into())]),
        ("a,x\"y\nb,2\n", [bad(2, 2, "a,x\"y\n"), Ok("b".into())]),
        ("a,\"x\" \nb,2", [bad(2, 2, "a,\"x\" \n"), Ok("b".into())]),
        ("a, \"x\"\nb,2\n", [bad(2, 2, "a, \"x\"\n"), Ok("b".into())]),
        ("a,x\ry\nb,2\n", [bad(2, 2, "a,x\ry\n"), Ok("b".into())]),
        (
            "a,\"x\ny\"z,\r\nb,2\n",
            [bad(2, 3, "a,\"x\ny\"z,\r\n"), Ok("b".into())],
        ),
        (
            "a,\"x\nb,\"y\"\nc,3\n",
            [bad(2, 3, "a,\"x\nb,\"y\"\n"), Ok("c".into())],
        ),
        ("a,1\r\nb,2\r", [Ok("a".into()), bad(3, 3, "b,2\r")]),
        ("a,1\nb,\"2", [Ok("a".into()), bad(3, 3, "b,\"2")]),
        ("a,1\nb,2\"", [Ok("a".into()), bad(3, 3, "b,2\"")]),
        ("a,1\nb,2,", [Ok("a".into()), bad(3, 3, "b,2,")]),
        ("a,1\n\"\"\n", [Ok("a".into()), bad(3, 3, "\"\"\n")]),
    ] {
        let text = format!("key,value\n{text}");
        assert_eq!(read_on(Format::Csv, text.as_bytes()), expected, "{text:?}");
    }
}

#[test]
fn quotes_in_their_places_are_understood() {
    let text = b"\"key\",value\r\n\"a\"\"b\",\"\"\r\n\r\n\"c\r\nd\",\"\"\"\"";
    let expected: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"a\"b".into(), b"".into()),
        (b"c\r\nd".into(), b"\"".into()),
    ];
    assert_eq!(read_rows(Format::Csv, text), expected);
}

#[test]
fn blanks_are_part_of_a_cell_and_of_a_name() {
    assert_eq!(
        read_rows(Format::Csv, b"key,value\na, 1\n"),
        [(b"a".to_vec(), b" 1".to_vec())]
    );
    assert!(problem(Format::Csv, b"key, value\na, 1\n").contains("lacks `key` or `value`"));
}

#[test]
fn an_expiry_is_digits() {
    for cell in ["+5", " 5", "5.0", "-1", "18446744073709551616", "x"] {
        let text = format!("key,value,expires_at_ms\na,1,{cell}\n");
        assert!(
            problem(Format::Csv, text.as_bytes()).contains("whole number"),
            "{cell}"
        );
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_refused_in_every_format() {
    for (format, text) in [
        (
            Format::Ndjson,
            &b"\n{\"key\":\"\xff\",\"value\":\"\"}\n"[..],
        ),
        (Format::Csv, b"key,value\n\xff,1\n"),
        (Format::Tsv, b"key\tvalue\na\t\xe9\n"),
    ] {
        assert!(
            problem(format, text).starts_with("line 2: not UTF-8"),
            "{format:?}"
        );
    }
}

#[test]
fn a_carriage_return_inside_a_line_of_tsv_is_refused() {
    let text = b"key\tvalue\na\t1\rb\t2\n";
    assert!(problem(Format::Tsv, text).starts_with("line 2: a carriage return"));
}

#[test]
fn cells_beyond_the_columns_are_counted_not_kept() {
    let mut text = b"key,value\n".to_vec();
    text.resize(text.len() + 1_000_000, b',');
    let too_many = problem(Format::Csv, &text);
    assert_eq!(too_many, "line 2: 1000001 cells instead of 2");
    let tsv: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b',' { b'\t' } else { *byte })
        .collect();
    assert_eq!(problem(Format::Tsv, &tsv), too_many);
}

#[test]
fn a_row_without_an_end_is_refused_before_memory_runs_out() {
    let mut text = b"key,value\na,1\nb,\"2\n".to_vec();
    text.resize(3 * MAX_ROW_LEN, b'x');
    text.extend_from_slice(b"\nc,3\n");
    let rows = read_on(Format::Csv, &text);
    assert_eq!(rows[..2], [Ok("a".to_owned()), bad(3, 3, "b,\"2\n")]);
    assert_eq!(rows[3], Ok("c".to_owned()));
    assert!(problem(Format::Csv, &text).contains("never closed"));
    for (format, end) in [
        (Format::Ndjson, "{\"key\":\"c\",\"value\":\"3\"}"),
        (Format::Csv, "c,3,,,"),
        (Format::Tsv, "c\t3\t\t\t"),
    ] {
        let mut text = Vec::new();
        format.write_header(&mut text).unwrap();
        text.resize(2 * MAX_ROW_LEN, b'x');
        text.extend_from_slice(format!("\n{end}").as_bytes());
        let rows: Vec<_> = format.read(io::Cursor::new(text), Naming::Ours).collect();
        let Err(ReadError::Bad(long)) = &rows[0] else {
            panic!("{format:?}: {:?}", rows[0]);
        };
        assert_eq!(
            (&long.problem, long.bytes.len()),
            (&Problem::TooLong, MAX_ROW_LEN)
        );
        let next = rows[1].as_ref().unwrap();
        assert_eq!(
            (next.line, &next.row),
            (long.line + 1, &row(b"c", b"3")),
            "{format:?}"
        );
        assert_eq!(rows.len(), 2);
    }
}

/// Text that consists mostly of CSV's special characters.
fn csv_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\""),
        Just("\"\""),
        Just(","),
        Just("\n"),
        Just("\r\n"),
        Just("\r"),
        Just("a"),
        Just("b,"),
        Just("\"c\""),
        Just("d,\"e\nf\"\n"),
        Just("g,1\n"),
        Just(" "),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// The result of the csv crate, which is lenient.
fn forgivingly(text: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut reader = ::csv::ReaderBuilder::new();
    let mut reader = reader
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let records = reader.byte_records().map(Result::unwrap);
    records
        .map(|record| {
            (
                record[0].to_vec(),
                record.get(1).unwrap_or_default().to_vec(),
            )
        })
        .collect()
}

/// A reader that returns a few bytes at a time.
struct Trickle(io::Cursor<Vec<u8>>, usize);

impl io::Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(self.1);
        self.0.read(&mut buffer[..len])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn csv_is_read_as_others_read_it_or_refused(text in csv_text()) {
        let rows: Result<Vec<Numbered>, ReadError> =
            Format::Csv.read(io::Cursor::new(text.clone().into_bytes()), Naming::None).collect();
        if let Ok(rows) = rows {
            let ours: Vec<_> =
                rows.iter().map(|n| (n.row.key.to_vec(), n.row.value.to_vec())).collect();
            prop_assert_eq!(ours, forgivingly(&text));
        }
    }

    #[test]
    fn what_others_write_as_csv_is_read(rows in vec((any_bytes(1, 40), any_bytes(0, 80)), 0..12)) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let rows: Vec<_> = rows.iter().map(|(key, value)| [text(key), text(value)]).collect();
        let mut writer = ::csv::Writer::from_writer(Vec::new());
        writer.write_record(["key", "value"]).unwrap();
        for row in &rows {
            writer.write_record(row).unwrap();
        }
        let back = read_rows(Format::Csv, &writer.into_inner().unwrap());
        let expected: Vec<_> =
            rows.into_iter().map(|[key, value]| (key.into_bytes(), value.into_bytes())).collect();
        prop_assert_eq!(back, expected);
    }

    #[test]
    fn rows_come_in_order_however_the_file_is_cut(text in csv_text(), step in 1_usize..9) {
        for format in ALL {
            let bytes = format!("key,value\n{text}").into_bytes();
            let whole: Vec<_> = format.read(io::Cursor::new(bytes.clone()), Naming::Ours).collect();
            let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
            let mut next = 1;
            for row in &whole {
                let (first, last) = match row {
                    Ok(numbered) => (numbered.line, numbered.line),
                    Err(ReadError::Bad(row)) => (row.line, row.last_line),
                    Err(error) => panic!("{error}"),
                };
                prop_assert!(next <= first && first <= last && last <= lines);
                next = last + 1;
            }
            let trickle = Trickle(io::Cursor::new(bytes), step);
            let trickled = format.read(trickle, Naming::Ours);
            let show = |row: Result<Numbered, ReadError>| format!("{row:?}");
            let trickled: Vec<_> = trickled.map(show).collect();
            prop_assert_eq!(trickled, whole.into_iter().map(show).collect::<Vec<_>>());
        }
    }
}
