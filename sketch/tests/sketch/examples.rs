//! Runs every example with small inputs and known output.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a failing test")]

use std::io::Write as _;
use std::path::Path;
use std::process::Output;

use torc_testkit::{example_output, run_example};

fn run(name: &str, args: &[&str], input: &str) -> Output {
    run_example(env!("CARGO_PKG_NAME"), name, args, input).unwrap()
}

/// The output of an example, which must succeed.
fn output(name: &str, args: &[&str], input: &str) -> (String, String) {
    example_output(env!("CARGO_PKG_NAME"), name, args, input)
}

/// Creates a file for this test.
fn file(name: &str, content: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut options = std::fs::OpenOptions::new();
    let opened = options.create(true).write(true).truncate(true).open(&path);
    opened.unwrap().write_all(content.as_bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn concat(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().concat()
}

/// The number before the first `unit` of a text.
fn number_before(text: &str, unit: &str) -> u64 {
    let before = text.split(unit).next().unwrap().trim_end();
    let number = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
    number.parse().unwrap()
}

#[test]
fn heavy_hitters_as_a_judge_feeds_them() {
    // 6 of 12 are a, 3 are b, and 1/4 of 12 is 3.
    let (heavy, _) = output(
        "heavy_hitters",
        &["--judge"],
        "4\nb a a c\na d a\nb a e a b\n",
    );
    assert_eq!(heavy, "a\nb\n");
    let (none, _) = output("heavy_hitters", &["--judge"], "2 a b c");
    assert_eq!(none, "");
    assert!(!run("heavy_hitters", &["--judge"], "").status.success());
    assert!(
        !run("heavy_hitters", &["--judge"], "many a b")
            .status
            .success()
    );
    let (counted, _) = output("heavy_hitters", &["4"], "b a a c a d a b a e a b");
    assert!(
        counted.starts_with("           6  a\n           3  b\nof 12 words"),
        "{counted}"
    );
}

#[test]
fn a_matrix_as_a_judge_feeds_it() {
    let (found, _) = output(
        "matrix_search",
        &["--judge"],
        "3 4\nabab\nbaba\nabab\n2 2\nab\nba\n",
    );
    assert_eq!(found, "0 0\n0 2\n1 1\n");
    let spaced = "2 3\n1 2 1\n2 1 2\n1 2\n1 2\n";
    assert_eq!(
        output("matrix_search", &["--judge"], spaced).0,
        "0 0\n1 1\n"
    );
    assert!(
        !run("matrix_search", &["--judge"], "2 2 abc")
            .status
            .success()
    );
    let (text, pattern) = (file("text", "abc\nbcd\n"), file("pattern", "bc\ncd\n"));
    let (found, _) = output("matrix_search", &[&text, &pattern], "");
    assert_eq!(found, "0 1\n1 occurrences\n");
}

#[test]
fn one_hit_wonders_are_not_stored() {
    // 10 recurring objects, each followed by an object that never occurs again.
    let requests = (0..2_000).map(|i| format!("popular{}\nwonder{i}\n", i % 10));
    let (printed, _) = output("one_hit_wonders", &["12"], &concat(requests));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines[0],
        "4000 requests for 2010 objects, 2000 of them asked for once"
    );
    let plain = number_before(lines[1], " writes");
    let filtered = number_before(lines[2], " writes");
    assert_eq!(
        plain, 4_000,
        "the wonders drive out what is popular: {printed}"
    );
    assert!(
        filtered < 200,
        "one wonder in 50 at most, and what it drives out: {printed}"
    );
    assert!(number_before(lines[2], " hits") > 1_500, "{printed}");
}

#[test]
fn caches_find_in_each_other_what_their_digests_say() {
    // After the first digests, each of 20 objects is in some cache.
    let requests = (0..8_001).map(|i| format!("object{}\n", i % 20));
    let (printed, _) = output("cache_digests", &["3", "100"], &concat(requests));
    let counts: Vec<u64> = printed
        .lines()
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    let [requests, own, sibling, origin, bytes] = counts[..] else {
        panic!("{printed}")
    };
    assert_eq!(requests, 8_001);
    assert_eq!(own + sibling + origin, requests, "{printed}");
    assert!(
        origin <= 60,
        "each cache fetches each object once: {printed}"
    );
    // 8 times 3 digests of 100 keys at 1 %.
    assert!((8 * 3 * 120..8 * 3 * 140).contains(&bytes), "{printed}");
    // Five objects do not stay long in a cache of two, but siblings have them.
    let requests = (0..9_000).map(|i| format!("object{}\n", i % 5 + i / 3_000));
    let (printed, _) = output("cache_digests", &["4", "2"], &concat(requests));
    assert!(printed.contains("answered by a sibling"), "{printed}");
}

#[test]
fn a_bloom_join_is_the_join_and_spares_rows() {
    let small = file("small", "2\tb\n1\ta\n2\tB\n");
    let rows = concat((0..1_000).map(|key| format!("{key}\trow{key}\n")));
    let large = file("large", &rows);
    let (joined, told) = output("bloom_join", &[&small, &large], "");
    assert_eq!(joined, "1\ta\trow1\n2\tb\trow2\n2\tB\trow2\n");
    let sent = number_before(&told, " of 1000 rows");
    // Of 998 other items, 1 % passes: 26 is 5 standard deviations above the mean, and a filter of
    // 64 bits is coarser.
    assert!((2..=60).contains(&sent), "{told}");
    assert!(!run("bloom_join", &[&small], "").status.success());
}

#[test]
fn no_malicious_url_is_called_harmless_and_few_others_are_asked_about() {
    let list = concat((0..1_000).map(|i| format!("http://bad{i}.example\n")));
    let list = file("malicious", &list);
    let urls =
        (0..5_000).map(|i| format!("http://good{i}.example\nhttp://bad{}.example\n", i % 1_000));
    let (printed, told) = output("safe_browsing", &[&list], &concat(urls));
    let verdicts: Vec<(&str, &str)> = printed
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .collect();
    assert_eq!(verdicts.len(), 10_000);
    for (verdict, url) in verdicts {
        let expected = if url.starts_with("http://bad") {
            "malicious"
        } else {
            "harmless"
        };
        assert_eq!(verdict, expected, "{url}");
    }
    let asked = told.split("asked ").nth(1).unwrap();
    let in_vain = number_before(asked, " times") - 5_000;
    // 5,000 other items at 1 %: 50 ± 5 standard deviations.
    assert!((15..=85).contains(&in_vain), "{told}");
}

#[test]
fn prefix_substring_and_concatenation_are_each_used() {
    let (a, b) = (
        file("a", "the same, then one"),
        file("b", "the same, then two"),
    );
    assert_eq!(output("substrings", &["prefix", &a, &b], "").0, "15\n");
    assert_eq!(output("substrings", &["prefix", &a, &a], "").0, "18\n");
    let repeated = file("repeated", "xabcyabcz");
    assert_eq!(
        output("substrings", &["repeat", &repeated], "").0,
        "3 bytes at 1 and 5: \"abc\"\n"
    );
    let all = file("all", "the same, then onethe same, then two");
    let hash = |printed: &str| {
        printed
            .lines()
            .last()
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .to_owned()
    };
    let parts = output("substrings", &["concat", &a, &b], "").0;
    assert_eq!(
        hash(&parts),
        hash(&output("substrings", &["concat", &all], "").0)
    );
    assert_ne!(
        hash(&parts),
        hash(&output("substrings", &["concat", &b, &a], "").0)
    );
    assert!(!run("substrings", &["prefix", &a], "").status.success());
}

#[test]
fn a_string_is_edited_hashed_and_compared() {
    let commands = "insert 0 hello world\nhash 0 5\ninsert 5 , dear\nprint\nlen\nhash 0 5\ndelete 0 7\nprint\n\
                    insert 10 dear\nprint\ncommon 0 10\norder 0 4 10 14\norder 0 4 5 7\norder 5 7 0 4\n";
    let (printed, _) = output("edit", &[], commands);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[1..4], ["hello, dear world", "17", lines[0]]);
    assert_eq!(
        lines[4..],
        [
            "dear world",
            "dear worlddear",
            "4",
            "equal",
            "less",
            "greater"
        ]
    );
    assert!(!run("edit", &[], "insert 1 x\n").status.success());
    assert!(!run("edit", &[], "shout\n").status.success());
}

#[test]
fn patterns_are_found_by_their_hashes_alone() {
    let patterns = file("patterns", "she\nhe\nhers\nabsent\n");
    let (found, told) = output("pattern_hashes", &[&patterns], "ushers");
    assert_eq!(found, "1 0\n2 1\n2 2\n");
    assert!(told.starts_with("4 patterns in "), "{told}");
}

#[test]
fn an_archive_stores_each_chunk_once_and_reads_its_index_for_few_others() {
    let text = concat((0..60_000_u64).map(|i| format!("{}\n", i * i % 99_991)));
    let edited = text.replacen('\n', "\ninserted\n", 1);
    let files = [
        file("archive-a", &text),
        file("archive-b", &text),
        file("archive-c", &edited),
    ];
    let args: Vec<&str> = std::iter::once("archive")
        .chain(files.iter().map(String::as_str))
        .collect();
    let (printed, _) = output("seen_before", &args, "");
    let chunks = number_before(&printed, " chunks");
    let stored = number_before(&printed, " stored");
    let reads = number_before(&printed, " times");
    assert!(
        stored <= chunks / 3 + 3,
        "two copies, and an edit near the start: {printed}"
    );
    assert!(
        reads >= chunks - stored && reads < chunks - stored + 10,
        "{printed}"
    );
}

#[test]
fn a_sender_reaches_as_many_recipients_as_allowed_and_those_again() {
    let mails = "a x\na y\na x\na z\nb z\na y\n";
    let (printed, _) = output("seen_before", &["limit", "2"], mails);
    let expected = "pass a x\npass a y\npass a x\ndefer a z\npass b z\npass a y\n";
    assert_eq!(printed, expected);
}

#[test]
fn nothing_that_was_read_is_recommended() {
    let read = file(
        "read",
        &concat((0..2_000).map(|i| format!("article-{i}\n"))),
    );
    let new = concat((1_000..3_000).map(|i| format!("article-{i}\n")));
    let (printed, _) = output("seen_before", &["unread", &read], &new);
    let shown: Vec<u32> = printed
        .lines()
        .map(|line| line.trim_start_matches("article-").parse().unwrap())
        .collect();
    assert!(shown.iter().all(|number| *number >= 2_000), "none was read");
    assert!(
        shown.len() > 950,
        "of 1,000 some 10 are left out: {}",
        shown.len()
    );
    assert!(!run("seen_before", &[], "").status.success());
}
