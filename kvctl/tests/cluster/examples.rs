//! The client library's examples against real nodes.

use std::collections::BTreeSet;
use std::process::Output;
use std::time::Duration;

use torc_testkit::{example_output, run_example};

use crate::processes::{Cluster, until};

const PACKAGE: &str = "torc-client";

/// Arguments after the cluster's endpoints.
fn arguments<'a>(endpoints: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["--endpoint", endpoints], args].concat()
}

/// The output of an example, which must succeed.
fn output(cluster: &Cluster, name: &str, args: &[&str], input: &str) -> String {
    let endpoints = cluster.endpoints().join(",");
    let (printed, _) = example_output(PACKAGE, name, &arguments(&endpoints, args), input);
    printed
}

fn run(cluster: &Cluster, name: &str, args: &[&str], input: &str) -> Output {
    let endpoints = cluster.endpoints().join(",");
    run_example(PACKAGE, name, &arguments(&endpoints, args), input).unwrap()
}

/// Runs an example once per input, all at the same time.
fn outputs(cluster: &Cluster, name: &str, runs: &[(&[&str], &str)]) -> Vec<String> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = runs
            .iter()
            .map(|(args, input)| scope.spawn(|| output(cluster, name, args, input)))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_known_of_urls_is_stored_shown_and_found_by_its_text() {
    let cluster = Cluster::start_with(3, &["--partitions=256"]).await;
    let page = |number| format!("https://example.org/{number}\t200\t{number}\tPage {number}\n");
    let pages: String = (0..1_200).map(page).collect();
    let run = |args: &[&str], input| output(&cluster, "url_metadata", args, input);
    assert_eq!(run(&["store"], &pages), "1200 pages stored\n");
    let shown = run(
        &["show", "https://example.org/7", "https://example.org/"],
        "",
    );
    assert_eq!(
        shown,
        "https://example.org/7: 200, 7 bytes, Page 7\nhttps://example.org/: not known\n"
    );
    let found = run(&["search", "Page 119"], "");
    assert_eq!(
        found.lines().count(),
        11 + 1,
        "119 and 1190 to 1199: {found}"
    );
    assert!(found.ends_with("11 pages\n"), "{found}");
    let bad = self::run(&cluster, "url_metadata", &["store"], "only-one-column\n");
    assert!(!bad.status.success(), "{bad:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_are_ranked_by_features_and_by_the_average_where_there_are_none() {
    let mut cluster = Cluster::start(3).await;
    let written = output(&cluster, "feature_store", &["write"], "a 1 1 1\nb 0 0 0\n");
    assert_eq!(written, "2 items written\n");
    let rank = ["rank", "20000", "b", "new", "a"];
    let ranked = output(&cluster, "feature_store", &rank, "");
    assert_eq!(
        ranked,
        "a 1.000\nnew 0.500\nb 0.000\n2 of 3 by their features\n"
    );

    cluster.nodes[1].kill_9();
    cluster.nodes[2].kill_9();
    let rank = ["rank", "300", "b", "a"];
    let ranked = output(&cluster, "feature_store", &rank, "");
    assert!(
        ranked.ends_with("0 of 2 by their features\n"),
        "no quorum, and an answer all the same: {ranked}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_new_to_exactly_one_of_three_that_look_at_a_time() {
    let cluster = Cluster::start(3).await;
    let lines = |from: usize| -> Vec<String> {
        let line = |at| format!("line {}", (from + at) % 150);
        (0..150).map(line).collect()
    };
    let inputs = [0, 50, 100].map(|from| lines(from).join("\n"));
    let runs = [
        (&["one"][..], inputs[0].as_str()),
        (&["two"], inputs[1].as_str()),
        (&["three"], inputs[2].as_str()),
    ];
    let printed = outputs(&cluster, "dedup", &runs).concat();
    let new: Vec<&str> = printed.lines().collect();
    let different: BTreeSet<&str> = new.iter().copied().collect();
    assert_eq!((new.len(), different.len()), (150, 150));
    let again = run(&cluster, "dedup", &["four"], "line 3\nline 3\nother\n");
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "other\n");
    let seen = String::from_utf8(again.stderr).unwrap();
    assert!(seen.starts_with("four:1: seen in "), "{seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_by_logout_or_by_itself() {
    let cluster = Cluster::start(1).await;
    let run = |args: &[&str], commands: &str| output(&cluster, "session_cache", args, commands);
    let ids = run(&[], "login ada\nlogin bob\n");
    let (ada, bob) = ids.trim().split_once('\n').unwrap();
    assert_ne!(ada, bob);
    let commands = format!("check {ada}\nlogout {ada}\ncheck {ada}\nlogout {ada}\ncheck {bob}\n");
    assert_eq!(
        run(&[], &commands),
        "ada\nended\nno session\nno session\nbob\n"
    );

    let brief = run(&["--ttl-ms", "700"], "login eve\n");
    let check = format!("check {}\n", brief.trim());
    until("it has ended by itself", async || {
        // A read renews it, so this waits for longer than its lifetime.
        tokio::time::sleep(Duration::from_millis(800)).await;
        run(&["--ttl-ms", "700"], &check) == "no session\n"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_for_all_callers_together() {
    let cluster = Cluster::start(3).await;
    // One more call in ten hours: none within the time of a test.
    let caller = &["ada", "20", "0.1", "10"][..];
    let runs = [(caller, ""); 4];
    let allowed = outputs(&cluster, "rate_limiter", &runs);
    let number = |text: &String| text.split(' ').next().unwrap().parse::<u32>().unwrap();
    assert_eq!(allowed.iter().map(number).sum::<u32>(), 20, "{allowed:?}");
    let other = output(&cluster, "rate_limiter", &["bob", "2", "0.1", "3"], "");
    assert_eq!(other, "2 of 3 allowed\n");
}
