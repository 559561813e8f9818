//! Runs every example that reads input, with small inputs and known output. `gate_rates` only
//! measures.

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

fn path(name: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    path.to_str().unwrap().to_owned()
}

fn lines(parts: impl Iterator<Item = String>) -> String {
    parts.map(|line| line + "\n").collect::<Vec<_>>().concat()
}

#[test]
fn boilerplate_is_dropped_and_the_book_is_kept() {
    let known = path("boilerplate");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .create(true)
        .write(true)
        .truncate(true)
        .open(&known)
        .unwrap();
    let text = lines((0..1_000).map(|i| format!("This line {i} of the licence is in every book.")));
    file.write_all(text.as_bytes()).unwrap();
    let book = "A line of the book.\n  This line 7 of the licence is in every book.\nAnother.\n";
    let (kept, told) = output("boilerplate", &[&known, "24"], book);
    assert_eq!(kept, "A line of the book.\nAnother.\n");
    assert!(
        told.starts_with("1 lines dropped; 1000 known lines of 46890 bytes in 3"),
        "{told}"
    );
    assert!(!run("boilerplate", &[&known, "40"], book).status.success());
}

#[test]
fn lines_get_slots_of_their_own_from_either_function() {
    let urls = lines((0..500).map(|i| format!("https://example.org/{}", i % 400)));
    for kind in [&[][..], &["--gigahash"]] {
        let file = path(if kind.is_empty() { "mphf" } else { "gigahash" });
        let (built, _) = output("urls_to_mphf", &[&["build", &file], kind].concat(), &urls);
        assert!(built.starts_with("400 lines, "), "{built}");
        let (slots, _) = output("urls_to_mphf", &[&["look-up", &file], kind].concat(), &urls);
        let slots: Vec<usize> = slots.lines().map(|slot| slot.parse().unwrap()).collect();
        assert_eq!(slots[400..], slots[..100], "the same line, the same slot");
        let mut distinct = slots[..400].to_vec();
        distinct.sort_unstable();
        assert!(distinct.into_iter().eq(0..400));
    }
    let file = path("mphf");
    assert!(
        !run("urls_to_mphf", &["look-up", &file, "--gigahash"], "")
            .status
            .success()
    );
}

#[test]
fn a_web_graph_gets_dense_ids_and_ranks() {
    // All pages link to the hub, and the hub to one page.
    let links = lines((0..30).map(|i| format!("page{i}\thub"))) + "hub page7\n";
    let (ids, _) = output("dense_ids", &["--ids"], &links);
    let ids: Vec<(usize, &str)> = ids
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(id, url)| (id.parse().unwrap(), url))
        .collect();
    assert_eq!(ids.len(), 31);
    assert!(ids.iter().map(|(id, _)| *id).eq(0..31));
    let (edges, _) = output("dense_ids", &["--edges"], &links);
    let named = edges.lines().map(|line| {
        let (from, to) = line.split_once(' ').unwrap();
        let url = |id: &str| ids[id.parse::<usize>().unwrap()].1;
        format!("{}\t{}", url(from), url(to))
    });
    assert_eq!(lines(named), links.replace("hub page7", "hub\tpage7"));
    let (ranks, _) = output("dense_ids", &[], &links);
    let ranks: Vec<(&str, &str)> = ranks
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert_eq!((ranks[0].1, ranks[1].1), ("hub", "page7"), "{ranks:?}");
    // All pages but the hub itself link to it: hub = 0.15/31 + 0.85 (1 - hub).
    assert_eq!(ranks[0].0, "0.4621");
    assert!(!run("dense_ids", &[], "three words here\n").status.success());
}
