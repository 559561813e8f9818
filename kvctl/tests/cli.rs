//! The command line, as far as it works without a cluster.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn kvctl() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvctl"));
    command.env_remove("TORC_ENDPOINTS").env("NO_COLOR", "1");
    command
}

fn run(args: &[&str]) -> Output {
    kvctl().args(args).stdin(Stdio::null()).output().unwrap()
}

/// An address that refuses connections.
fn closed() -> String {
    format!("http://{}", torc_testkit::free_address().unwrap())
}

fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(text.lines().count(), 1, "one line: {text:?}");
    text.trim_end().to_owned()
}

#[test]
fn a_usage_error_is_one_line_and_exit_code_2() {
    for args in [
        &["get"][..],
        &["no-such-command"],
        &["put", "k"],
        &["get", "k", "--output", "xml"],
        &["load", "no-extension"],
        &["load", "/nonexistent/file.csv"],
        &["get", "zz", "--key-hex"],
        &["--endpoint", "https://localhost:1", "status"],
        &["--tls-cert", "c.pem", "status"],
        &["--tls-ca", "/nonexistent/ca.pem", "status"],
        &["completions", "cobol"],
        &["restore", "file:///backups", "--namespace", "n"],
        &["login", "--endpoint", "http://127.0.0.1:1", "--token", "t"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(one_line(&output.stderr).starts_with("kvctl: "), "{args:?}");
    }
}

#[test]
fn a_missing_file_is_named_whatever_its_format() {
    for args in [
        &["load", "/nonexistent/file"][..],
        &[
            "build",
            "--from",
            "/nonexistent/file",
            "--out",
            "/nonexistent",
        ],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let line = one_line(&output.stderr);
        let expected = "kvctl: cannot read /nonexistent/file: No such file";
        assert!(line.starts_with(expected), "{args:?}: {line}");
    }
}

#[test]
fn a_backup_that_does_not_exist_is_refused_named_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().display());
    let args = ["backup", "verify", &url];
    let newest = run(&args);
    assert_eq!(newest.status.code(), Some(6), "{newest:?}");
    let line = one_line(&newest.stderr);
    assert!(line.contains(&format!("kvctl backup list {url}")), "{line}");
    let named = run(&[&args[..], &["--backup", "20260101-000000-00000000"]].concat());
    assert_eq!(named.status.code(), Some(6), "{named:?}");
}

#[test]
fn limits_are_refused_with_exit_code_6_before_anybody_is_asked() {
    let long = "k".repeat(1025);
    let endpoint = closed();
    let refused = run(&["--endpoint", &endpoint, "get", &long]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    assert!(one_line(&refused.stderr).contains("1025 bytes"));
    let mut put = kvctl()
        .args(["--endpoint", &endpoint, "put", "k", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // kvctl stops reading once it has detected that the value is too long.
    let _ = put.stdin.take().unwrap().write_all(&vec![7; 3 << 20]);
    let refused = put.wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    assert!(one_line(&refused.stderr).contains("1048576"), "{refused:?}");
}

#[test]
fn where_nobody_listens_every_command_is_unavailable() {
    let endpoint = closed();
    for args in [
        &["put", "k", "v"][..],
        &["get", "k"],
        &["delete", "k"],
        &["scan"],
        &["dump"],
        &["status"],
        &["ring"],
        &["explain", "k"],
        &["hot-keys"],
        &["scan", "--contains", "x"],
        &["join-node", "127.0.0.1:1", "--plan"],
        &["leave-node", "1", "--plan"],
        &["bench", "--operations", "1"],
    ] {
        let output = run(&[&["--endpoint", &endpoint, "--timeout", "200ms"], args].concat());
        assert_eq!(output.status.code(), Some(3), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        one_line(&output.stderr);
    }
}

#[test]
fn endpoints_come_from_the_environment_too() {
    let output = kvctl()
        .env("TORC_ENDPOINTS", format!("{},{}", closed(), closed()))
        .args(["get", "k", "--timeout", "200ms"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let output = kvctl()
        .env("TORC_ENDPOINTS", "nonsense")
        .args(["get", "k"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for (misspelt, meant) in [
        ("TORC_ENDPOINT", "TORC_ENDPOINTS"),
        ("TORC_PROFIL", "TORC_PROFILE"),
        ("TORC_TLS_CERTS", "TORC_TLS_CERT"),
    ] {
        let output = kvctl().env(misspelt, closed()).arg("status").output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let line = one_line(&output.stderr);
        assert!(line.contains(&format!("did you mean `{meant}`?")), "{line}");
    }
}

#[test]
fn where_nothing_runs_that_is_said_soon_with_every_endpoint() {
    let began = std::time::Instant::now();
    for args in [&["get", "k"][..], &["status"]] {
        let (one, other) = (closed(), closed());
        let endpoints = ["--endpoint", &one, "--endpoint", &other];
        let output = run(&[&endpoints[..], args].concat());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let line = one_line(&output.stderr);
        for endpoint in [one, other] {
            let address = endpoint.trim_start_matches("http://");
            assert!(line.contains(address), "{line}");
        }
    }
    // Less than twice its default timeout.
    assert!(began.elapsed() < std::time::Duration::from_secs(15));
}

#[test]
fn a_suggestion_is_set_off_from_what_was_wrong() {
    let output = run(&["get", "--keyhex", "a"]);
    let line = one_line(&output.stderr);
    assert!(
        line.contains("found; a similar argument exists: '--key-hex'"),
        "{line}"
    );
}

#[test]
fn a_load_that_cannot_begin_says_where_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "key,value\na,1\nb,2\n").unwrap();
    let path = path.to_str().unwrap();
    let endpoint = closed();
    let global = ["--endpoint", &endpoint, "--timeout", "200ms"];
    let output = run(&[&global[..], &["load", path]].concat());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let line = one_line(&output.stderr);
    assert!(line.contains("stored nothing"), "{line}");
    assert!(line.ends_with("--from-line 2"), "{line}");

    let output = run(&[&global[..], &["load", path, "--output", "json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["complete"], false);
    assert_eq!(json["failed"], 2);
    assert_eq!(json["resume_line"], 2);
}

#[test]
fn a_malformed_first_line_is_named_without_any_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ndjson");
    std::fs::write(&path, "nonsense\n").unwrap();
    let output = run(&["--endpoint", &closed(), "load", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        one_line(&output.stderr).contains("a.ndjson: line 1: "),
        "{output:?}"
    );
}

#[test]
fn help_and_completions_go_to_stdout() {
    for args in [
        &["--help"][..],
        &["help", "load"],
        &["--version"],
        &["completions", "bash"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{args:?}"
        );
    }
    let help = String::from_utf8(run(&["load", "--help"]).stdout).unwrap();
    assert!(
        help.contains("key_base64"),
        "the formats are explained: {help}"
    );
}

#[test]
fn a_ring_is_simulated_without_a_cluster() {
    let simulate = [
        "ring",
        "simulate",
        "--nodes",
        "5",
        "--partitions",
        "256",
        "--output",
        "json",
    ];
    let output = run(&simulate);
    assert!(output.status.success(), "{output:?}");
    let rows: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sizes: Vec<_> = rows
        .iter()
        .map(|row| row["nodes"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [1, 2, 3, 4, 5]);
    for field in [
        "replica_peak_to_mean",
        "lead_peak_to_mean",
        "moved_to_minimum",
    ] {
        assert!(rows.iter().all(|row| row[field].is_f64()), "{field}");
    }
    let weighted = [
        "--weights",
        "100,200",
        "--zones",
        "3",
        "--replicas",
        "3",
        "--positions",
        "16",
    ];
    let output = run(&[&simulate[..6], &weighted].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().lines().count(),
        2 + 5 + 5
    );

    let too_many = run(&["ring", "simulate", "--nodes", "6", "--partitions", "4"]);
    assert_eq!(too_many.status.code(), Some(2), "{too_many:?}");
    one_line(&too_many.stderr);
}

#[test]
fn a_generated_data_set_is_the_same_each_time_and_in_each_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("urls.ndjson");
    let to_stdout = run(&["generate-urls", "--count", "1000", "--seed", "7"]);
    let to_file = run(&[
        "generate-urls",
        "--count",
        "1000",
        "--seed",
        "7",
        "--to",
        path.to_str().unwrap(),
    ]);
    assert!(to_stdout.status.success() && to_file.status.success());
    assert_eq!(
        String::from_utf8_lossy(&to_stdout.stdout).lines().count(),
        1000
    );
    assert_eq!(std::fs::read(&path).unwrap(), to_stdout.stdout);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = kvctl()
        .args(["generate-urls", "--count", "1000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 8];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(&first, b"{\"key\":\"");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_behind_stdout_is_a_failure() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = kvctl()
        .args(["generate-urls", "--count", "1000"])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(one_line(&output.stderr).contains("cannot write to standard output"));
}

/// A generation built from files, and killed at random moments, has every record in the end.
#[test]
fn a_build_that_is_killed_again_and_again_ends_with_the_same_generation() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (urls, whole, killed) = (path("urls.ndjson"), path("whole"), path("killed"));
    let generated = run(&["generate-urls", "--count", "60000", "--to", &urls]);
    assert!(generated.status.success(), "{generated:?}");
    let build = |to: &str| {
        let args = ["build", "--from", &urls, "--out", to, "--output", "json"];
        args.map(str::to_owned)
    };
    let started = std::time::Instant::now();
    let output = kvctl().args(build(&whole)).output().unwrap();
    let took = started.elapsed();
    assert!(output.status.success(), "{output:?}");
    let wanted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(wanted["records"], 60_000);

    let mut kills = 0;
    for attempt in 0.. {
        let mut child = kvctl()
            .args(build(&killed))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Kills a little later each time, so that every stage is hit; the last attempt may
        // complete.
        if attempt < 8 {
            std::thread::sleep(took * (attempt + 1) / 10);
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(found["generation"], wanted["generation"]);
            break;
        }
        assert_eq!(
            output.status.code(),
            None,
            "only a kill ends it: {output:?}"
        );
        kills += 1;
    }
    assert!(kills > 0, "no attempt was killed");
    let verified = run(&["generation", "verify", &killed]);
    assert!(verified.status.success(), "{verified:?}");
    let first = std::fs::read_to_string(&urls).unwrap();
    let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    let key = first["key"].as_str().unwrap();
    let got = run(&["generation", "get", &killed, key]);
    let value = String::from_utf8(got.stdout).unwrap();
    let value: serde_json::Value = serde_json::from_str(&value).unwrap();
    let stored = match &first["value"] {
        serde_json::Value::String(text) => serde_json::from_str(text).unwrap(),
        other => other.clone(),
    };
    assert_eq!(value, stored);
    let absent = run(&["generation", "get", &killed, "no such key"]);
    assert_eq!(absent.status.code(), Some(1), "{absent:?}");
    // Killed after the manifest was written.
    std::fs::create_dir(path("killed/runs")).unwrap();
    let again = kvctl().args(build(&killed)).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(found["generation"], wanted["generation"]);
    assert_eq!(found["rows_resumed"], 60_000);
    assert!(!Path::new(&path("killed/runs")).exists());
}

/// Nobody knows whether a second standard input is the first one.
#[test]
fn a_complete_build_of_standard_input_is_not_taken_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("built");
    let build = |rows: &[u8]| {
        let mut command = kvctl();
        command.args(["build", "--from", "-", "--format", "csv", "--out"]);
        let command = command.arg(&to).stdin(Stdio::piped());
        let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        // It may end before it has read them.
        let _ = child.stdin.take().unwrap().write_all(rows);
        child.wait_with_output().unwrap()
    };
    let first = build(b"key,value\na,1\n");
    assert!(first.status.success(), "{first:?}");
    let second = build(b"key,value\na,2\n");
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    let line = one_line(&second.stderr);
    assert!(line.contains("holds a complete generation"), "{line}");
}

#[test]
fn a_build_of_standard_input_never_continues_another() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("built");
    let to = to.to_str().unwrap();
    let build = |rows: &[u8]| {
        let mut command = kvctl();
        command.args(["build", "--from", "-", "--format", "csv", "--out", to]);
        let command = command.stdin(Stdio::piped());
        let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        child.stdin.take().unwrap().write_all(rows).unwrap();
        child.wait_with_output().unwrap()
    };
    let duplicate = build(b"key,value\na,1\na,2\n");
    assert_eq!(duplicate.status.code(), Some(6), "{duplicate:?}");
    let other = build(b"key,value\nb,3\n");
    assert!(other.status.success(), "{other:?}");
    let read = |key: &str| run(&["generation", "get", to, key]);
    assert_eq!(read("b").stdout.trim_ascii(), b"3");
    assert_eq!(read("a").status.code(), Some(1), "not of this input");
}

#[test]
fn a_build_refuses_what_would_have_no_effect_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (good, bad, out) = (path("good.csv"), path("bad.csv"), path("built"));
    std::fs::write(&good, "key,value\na,1\n").unwrap();
    std::fs::write(&bad, "url,value\nb,1\n").unwrap();
    let no_row = path("no-row.csv");
    std::fs::write(&no_row, "url,value\n").unwrap();
    let json = path("rows.ndjson");
    std::fs::write(&json, "{\"key\":\"a\",\"value\":\"1\"}\n").unwrap();
    for (args, says) in [
        (&["--from", &good, "--from", &bad][..], "bad.csv"),
        (&["--from", &good, "--from", &no_row], "no-row.csv"),
        (&["--from", &json, "--no-header"], "--no-header"),
        (
            &["--from", &good, "--fingerprint-bits", "8"],
            "--fingerprint-bits",
        ),
        (
            &["--from", &good, "--payload-bytes", "8"],
            "--payload-bytes",
        ),
        (
            &["--from", &good, "--shape", "set", "--gate-rate", "0.1"],
            "--gate-rate",
        ),
        (
            &["--from", &good, "--into", "n", "--source", "file:///b"],
            "--source",
        ),
    ] {
        let refused = run(&[&["build", "--out", &out], args].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {refused:?}");
        let line = one_line(&refused.stderr);
        assert!(line.contains(says), "{args:?}: {line}");
        assert!(!Path::new(&out).exists(), "{args:?}: nothing was begun");
    }
}

#[test]
fn a_build_that_the_disk_has_no_room_for_is_refused_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (rows, out) = (path("rows.csv"), path("new/built"));
    let mut text = "url,value\n".to_owned();
    for number in 0..20_000 {
        writeln!(text, "https://example.org/{number},{number}").unwrap();
    }
    // A build that begins all the same ends here.
    text.push_str("\"a\"b,1\n");
    // The rest is a hole. No disk has room for what a build of this length needs.
    std::fs::write(&rows, text).unwrap();
    let file = std::fs::File::options().write(true).open(&rows).unwrap();
    file.set_len(1 << 43).unwrap();
    let refused = run(&["build", "--from", &rows, "--key", "url", "--out", &out]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    let line = one_line(&refused.stderr);
    let shown = dir.path().display();
    assert!(line.contains(&format!("{shown} has ")), "{line}");
    assert!(
        line.contains(" of free disk space, and the build needs about "),
        "{line}"
    );
    assert!(line.contains("nothing was begun"), "{line}");
    assert!(line.contains("--work"), "{line}");
    assert!(!Path::new(&path("new")).exists(), "nothing was begun");
}

#[test]
fn a_build_refuses_what_it_cannot_take_and_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (name, content, code, says) in [
        (
            "twice.csv",
            "key,value\na,1\nb,2\na,3\n",
            6,
            "\"a\" is there more than once",
        ),
        ("bad.csv", "key,value\na,1\nb,\"x\"y\n", 2, "line 3"),
        (
            "ttl.csv",
            "key,value,expires_at_ms\na,1,\nb,2,99\n",
            6,
            "line 3: values of a static",
        ),
        (
            "long.tsv",
            &format!("key\tvalue\n{}\t1\n", "k".repeat(1025)),
            6,
            "line 2",
        ),
    ] {
        std::fs::write(path(name), content).unwrap();
        let to = path(&format!("{name}.built"));
        let refused = run(&["build", "--from", &path(name), "--out", &to]);
        assert_eq!(refused.status.code(), Some(code), "{name}: {refused:?}");
        let line = one_line(&refused.stderr);
        assert!(line.contains(says), "{name}: {line}");
        let none = run(&["generation", "show", &to]);
        assert_eq!(none.status.code(), Some(4), "{name}: no generation is left");
    }
    let kept = run(&[
        "build",
        "--duplicates",
        "last",
        "--from",
        &path("twice.csv"),
        "--out",
        &path("kept"),
    ]);
    assert!(kept.status.success(), "{kept:?}");
    let got = run(&["generation", "get", &path("kept"), "a"]);
    assert_eq!(got.stdout, b"3", "byte for byte");
}

#[test]
fn a_build_reads_the_files_that_match_a_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(path("crawl/new")).unwrap();
    std::fs::write(path("crawl/part-1.csv"), "key,value\na,1\n").unwrap();
    std::fs::write(path("crawl/new/part-2.csv"), "key,value\nb,2\n").unwrap();
    std::fs::write(path("crawl/other.csv"), "not read").unwrap();
    let build = |from: &str| run(&["build", "--from", &path(from), "--out", &path("built")]);
    let refused = build("crawl/*.json");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let line = one_line(&refused.stderr);
    assert!(line.contains("no file matches `"), "{line}");
    assert!(line.contains("crawl/*.json`"), "{line}");
    assert!(!Path::new(&path("built")).exists(), "nothing was begun");
    let built = build("crawl/**/part-[0-9].csv");
    assert!(built.status.success(), "{built:?}");
    for (key, value) in [("a", "1"), ("b", "2")] {
        let got = run(&["generation", "get", &path("built"), key]);
        assert_eq!(got.stdout, value.as_bytes(), "{got:?}");
    }
}

#[test]
fn a_build_reads_the_objects_of_a_url_and_continues_with_the_same_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(path("crawl/new")).unwrap();
    std::fs::write(path("crawl/1.csv"), "key,value\na,1\n").unwrap();
    std::fs::write(path("crawl/new/2.tsv"), "key\tvalue\nb\t2\n").unwrap();
    std::fs::write(path("crawl/new/3.ndjson"), r#"{"key":"c","value":"3"}"#).unwrap();
    std::fs::write(path("crawl/new/_SUCCESS"), "").unwrap();
    let url = format!("file://{}", path("crawl"));
    let build = |from: &str, to: &str| run(&["build", "--from", from, "--out", &path(to)]);
    let built = build(&url, "built");
    assert!(built.status.success(), "{built:?}");
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        let got = run(&["generation", "get", &path("built"), key]);
        assert_eq!(got.stdout, value.as_bytes(), "{got:?}");
    }
    let again = build(&url, "built");
    assert!(again.status.success(), "{again:?}");
    // Of the same length, and another file.
    std::fs::write(path("1.csv"), "key,value\na,9\n").unwrap();
    std::fs::rename(path("1.csv"), path("crawl/1.csv")).unwrap();
    let other = build(&url, "built");
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    let line = one_line(&other.stderr);
    assert!(line.contains("a build with another source"), "{line}");

    let one = build(&format!("{url}/new/2.tsv"), "one");
    assert!(one.status.success(), "{one:?}");
    for (from, says) in [
        (&*format!("{url}/none"), "neither an object"),
        ("gs://bucket/crawl", "without the feature `gcs`"),
        ("https://bucket.s3.amazonaws.com/a.csv", "is not supported"),
    ] {
        let refused = build(from, "none");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let line = one_line(&refused.stderr);
        assert!(line.contains(says), "{line}");
        assert!(!Path::new(&path("none")).exists(), "nothing was begun");
    }
}

#[test]
fn a_build_is_copied_to_a_directory_of_any_name_and_read_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("rows.csv"), "key,value\na,1\nb,2\na,3\n").unwrap();
    let build = |more: &[&str]| {
        let (from, json) = (path("rows.csv"), ["--output", "json"]);
        let args = ["build", "--duplicates", "last", "--from", &from];
        run(&[&args[..], &json, more].concat())
    };
    let refused = build(&["--out", &path("work/gen"), "--work", &path("work")]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    // Killed between the build and its copy.
    assert!(build(&["--out", &path("work")]).status.success());
    let to = path("my gen#3 ~%20.json");
    // A place that cannot be written is named before a row is read.
    std::fs::create_dir_all(path("taken/write-probe/below")).unwrap();
    let refused = build(&["--out", &path("taken"), "--work", &path("none")]);
    let line = one_line(&refused.stderr);
    assert!(line.contains("nothing was built"), "{line}");
    assert!(!Path::new(&path("none")).exists(), "nothing was begun");
    let sent = build(&["--out", &to, "--work", &path("work")]);
    assert!(sent.status.success(), "{sent:?}");
    let sent: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(
        (&sent["records"], &sent["rows_resumed"]),
        (&2.into(), &3.into())
    );
    assert!(!Path::new(&path("work")).exists(), "it is of no more use");
    for at in [to.as_str(), sent["url"].as_str().unwrap()] {
        let verified = run(&["generation", "verify", at]);
        assert!(verified.status.success(), "{at}: {verified:?}");
        let said = String::from_utf8(verified.stdout).unwrap();
        assert!(said.contains(" is intact: 2 keys"), "{said}");
    }
    let got = run(&["generation", "get", &to, "a"]);
    assert_eq!(got.stdout, b"3");
}

#[test]
fn a_keyless_generation_says_probably_and_keeps_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut rows = "key,value\n".to_owned();
    for number in 0..1_000 {
        writeln!(rows, "line-{number:04},{:04}", number % 9).unwrap();
    }
    std::fs::write(path("lines.csv"), rows).unwrap();
    let build = |to: &str, more: &[&str]| {
        let (from, to) = (path("lines.csv"), path(to));
        let mut args = vec!["build", "--from", &from, "--out", &to];
        args.extend_from_slice(more);
        run(&args)
    };
    let keyless = [
        "--shape",
        "keyless",
        "--payload-bytes",
        "4",
        "--fingerprint-bits",
        "32",
    ];
    let built = build("keyless", &keyless);
    assert!(built.status.success(), "{built:?}");
    let got = run(&["generation", "get", &path("keyless"), "line-0014"]);
    assert_eq!(got.stdout, b"0005", "{got:?}");
    assert!(one_line(&got.stderr).starts_with("probably present, as number "));
    let absent = run(&["generation", "get", &path("keyless"), "line-1000"]);
    assert_eq!(absent.status.code(), Some(1));
    for entry in std::fs::read_dir(path("keyless")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let holds_a_key = bytes.windows(9).any(|window| window == b"line-0014");
        assert!(!holds_a_key, "no key is kept");
    }
    let set = build("set", &["--shape", "set"]);
    assert!(set.status.success(), "{set:?}");
    let json = run(&[
        "--output",
        "json",
        "generation",
        "get",
        &path("set"),
        "line-0014",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["value"], "");
    assert!(json["id"].as_u64().unwrap() < 1_000);
    let without = build("none", &["--shape", "keyless"]);
    assert_eq!(
        without.status.code(),
        Some(2),
        "a payload's length is needed: {without:?}"
    );
    let wrong = build("wrong", &["--shape", "keyless", "--payload-bytes", "5"]);
    assert_eq!(wrong.status.code(), Some(6), "{wrong:?}");
    assert!(one_line(&wrong.stderr).contains("line 2: the value has 4 bytes"));
}
