//! Real processes, killed, stopped and cut off, while clients record what they see.
//!
//! `TORC_CLUSTER_SECONDS` says for how long, 15 unless it is set. Needs neither root nor
//! network namespaces.
#![cfg(feature = "cluster")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `kvd` lies beside `torc-sim`; it is built if only this package was.
fn kvd() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_torc-sim")).with_file_name("kvd");
    if !path.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "-p", "torc-server", "--bin", "kvd"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "kvd does not build");
    }
    path
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test may be told how long to run"
)]
fn seconds() -> f64 {
    let told = std::env::var("TORC_CLUSTER_SECONDS").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(15.0)
}

#[test]
fn every_key_is_linearizable_while_nodes_are_killed_stopped_and_cut_off() {
    let minutes = (seconds() / 60.0).to_string();
    let run = Command::new(env!("CARGO_BIN_EXE_torc-sim"))
        .args(["cluster", "--seed", "15", "--minutes", &minutes])
        .args(["--only", "kill,stop,cut,cut-one-way", "--json", "--kvd"])
        .arg(kvd())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}{errors}");
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(report["violations"], 0, "{told}");
    assert!(
        report["written"].as_u64() > Some(0),
        "nothing was tested: {told}"
    );
}
