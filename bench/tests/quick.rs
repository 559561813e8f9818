//! Quick runs of suites: they end, print their figures and draw them. No figure is judged.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

/// Of a file that is shown in a README.
const LARGEST: usize = 60 * 1024;

fn bench(suite: &str, more: &[&str], plots: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torc-bench"));
    command.args([suite, "--quick", "--rounds", "2", "--plot"]);
    command.arg(plots).args(more).output().unwrap()
}

/// The plots of a suite, one or several.
fn plots(dir: &Path, suite: &str) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let of_suite = |file: &std::path::PathBuf| {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let rest = name.strip_prefix(suite);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let files = files.filter(of_suite);
    files
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect()
}

fn check(suite: &str, more: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new");
    let output = bench(suite, more, &dir);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{suite}: {told}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let drawn = plots(&dir, suite);
    assert!(!drawn.is_empty(), "{suite} has no plot");
    for plot in &drawn {
        assert!(plot.starts_with("<svg ") && plot.ends_with("</svg>\n"));
        assert!(!plot.contains("NaN") && !plot.contains(">inf"), "{plot}");
        assert!(plot.len() < LARGEST, "{suite}: {} bytes", plot.len());
    }
    let drawn = drawn.concat();
    let header: Vec<&str> = printed.lines().next().unwrap().split("  ").collect();
    assert!(
        header.contains(&"torc") || header.contains(&" torc"),
        "{printed}"
    );
    assert!(drawn.contains(">torc</text>"), "{suite} does not draw torc");
    for line in printed.lines().skip(1).take_while(|line| !line.is_empty()) {
        let case = line.split("  ").next().unwrap();
        let escaped = case.replace('<', "&lt;").replace('>', "&gt;");
        assert!(drawn.contains(&escaped), "{suite} does not draw {case}");
    }
}

#[test]
fn the_ring() {
    check("ring", &[]);
}

#[test]
fn the_index() {
    check("index", &[]);
}

#[test]
fn the_sketches() {
    check("sketch", &[]);
}

#[test]
fn a_function_of_keys_on_disk() {
    check("bulk", &[]);
}

#[test]
fn the_port_for_redis_clients() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("skipped: the suite needs two cores");
        return;
    }
    let kvd = torc_testkit::program("kvd").unwrap();
    check("resp", &["--kvd", kvd.to_str().unwrap()]);
}

#[test]
fn a_plot_that_cannot_be_written_is_an_error_after_the_figures() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("ring.svg")).unwrap();
    let output = bench("ring", &[], dir.path());
    assert!(!output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("replica_peak_to_mean"), "{printed}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("cannot write the plot") && told.contains("ring.svg"),
        "{told}"
    );
}
