//! The tour in the README, pasted from top to bottom, with its own ports and data.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::processes::{Playground, kvctl_path, prepare};

/// Instead of a million.
const RECORDS: &str = "20000";

/// The shell blocks of the tour.
fn blocks() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let (_, tour) = readme.split_once("\n## A tour\n").unwrap();
    let (tour, _) = tour.split_once("\nFrom Rust:\n").unwrap();
    blocks_of(tour, "sh")
}

/// The blocks in a language.
pub(crate) fn blocks_of(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1);
    let blocks = blocks.map(|block| block.split_once("\n```").unwrap().0.to_owned());
    blocks.collect()
}

/// The output of a block, all of whose commands must succeed.
pub(crate) fn paste(block: &str, dir: &Path, endpoint: &str) -> String {
    let bin = kvctl_path().parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash")
        .args(["-euo", "pipefail"])
        .current_dir(dir)
        .env("PATH", path)
        .env("TORC_ENDPOINTS", endpoint)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    shell
        .stdin
        .take()
        .unwrap()
        .write_all(block.as_bytes())
        .unwrap();
    let output = shell.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{block}\n{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_can_be_pasted_from_top_to_bottom() {
    let dir = tempfile::tempdir().unwrap();
    let playground = Playground::start(&dir.path().join("playground")).await;
    let (said, endpoint) = (playground.said(), playground.endpoint());
    assert!(
        !said.contains("WARN"),
        "a newcomer reads this first: {said}"
    );
    let [first, records, serve, join] = &blocks()[..] else {
        panic!("a tour of four blocks");
    };

    let (install, first) = first.split_once('\n').unwrap();
    assert!(
        install.starts_with("cargo install --path kvctl "),
        "{install}"
    );
    let shown = paste(first, dir.path(), &endpoint);
    let slice = shown.lines().find(|line| line.starts_with("slice "));
    let slice = slice.expect("explain shows the slice of the key");
    assert!(
        slice.contains("the Bloom gate says maybe, slot "),
        "{slice}"
    );

    let records = records.replace("1000000", RECORDS);
    let shown = paste(&records, dir.path(), &endpoint);
    assert!(shown.ends_with("the same\n"), "{shown}");

    // As many as the playground has.
    let mut spare = prepare(dir.path(), "node-4", &["--partitions=4096"]);
    for told in [
        "kvd -- serve ",
        " --grpc-addr 127.0.0.1:7404 ",
        "--http-addr ",
    ] {
        assert!(serve.contains(told), "{serve}");
    }
    spare.start().unwrap();
    spare.listens().await.unwrap();
    let join = join.replace("127.0.0.1:7404", &spare.grpc.to_string());
    paste(&join, dir.path(), &endpoint);
}
