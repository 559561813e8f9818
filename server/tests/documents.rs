//! Command lines of the documents: a node accepts their settings, and so does the container of
//! `deploy/README.md`. The cluster tests of `kvctl` run what needs no address of other machines.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails where it panics"
)]

use std::path::{Path, PathBuf};

use clap::{Args as _, FromArgMatches as _};
use torc_ring::topology::Bearer;
use torc_server::config::RawSettings;
use torc_tls::{JoinToken, PinnedToken};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The code blocks, with continued lines joined.
fn code(text: &str) -> String {
    let blocks = text.split("\n```").skip(1).step_by(2);
    let blocks: Vec<&str> = blocks.collect();
    blocks.join("\n").replace("\\\n", " ")
}

/// A join token for the given address.
fn join_token(address: &str) -> String {
    let token = PinnedToken {
        bearer: Bearer::new(7, [0xc0; 32]),
        authority: [0xab; 32].into(),
    };
    let address = address.to_owned();
    JoinToken { token, address }.reveal()
}

/// Whether a node would start with these settings; else why not.
fn check(flags: &[String]) -> Result<(), String> {
    let command = clap::Command::new("serve").no_binary_name(true);
    let matches = RawSettings::augment_args(command).try_get_matches_from(flags);
    let matches = matches.map_err(|error| error.to_string())?;
    let settings = RawSettings::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    settings
        .check()
        .map(drop)
        .map_err(|error| error.to_string())
}

/// The flags of a line that starts a node, with a token and a directory in place of those that it
/// leaves to the reader.
fn flags_of(line: &str) -> Option<Vec<String>> {
    let (before, after) = line
        .split_once("kvd serve ")
        .or_else(|| line.split_once("kvd -- serve "))?;
    let (after, _comment) = after.split_once('#').unwrap_or((after, ""));
    let words = after.split_whitespace().filter(|word| *word != "…");
    let mut flags: Vec<String> = words
        .map(|word| match word.split_once('@') {
            Some(("TOKEN", address)) => join_token(&address.replace("HOST", "db-1")),
            _ => word.to_owned(),
        })
        .collect();
    if before.contains("TORC_JOIN=") {
        flags.push(format!("--join={}", join_token("db-1:7400")));
    }
    if !flags.iter().any(|flag| flag == "--data-dir") {
        flags.push("--data-dir=DIR".to_owned());
    }
    Some(flags)
}

#[test]
fn a_node_accepts_the_settings_of_every_line_that_starts_one() {
    let root = root();
    let mut documents = vec![root.join("README.md"), root.join("deploy/README.md")];
    let pages = std::fs::read_dir(root.join("docs")).unwrap();
    let pages = pages.map(|entry| entry.unwrap().path());
    documents.extend(pages.filter(|path| path.extension().is_some_and(|it| it == "md")));
    let mut seen = 0;
    for document in documents {
        for line in code(&read(&document)).lines() {
            let Some(flags) = flags_of(line) else {
                continue;
            };
            if line.contains("--otlp-endpoint") && cfg!(not(feature = "otlp")) {
                continue;
            }
            seen += 1;
            if let Err(error) = check(&flags) {
                panic!("{}: {line}\n{error}", document.display());
            }
        }
    }
    assert!(seen >= 9, "{seen}: do the documents start no nodes?");
}

/// The variables of a text, `TORC_NAME=value`, as flags, without those that only `kvctl` reads.
fn variables(text: &str) -> impl Iterator<Item = String> {
    let words = text.split_whitespace();
    words.filter_map(|word| {
        let (name, value) = word.strip_prefix("TORC_")?.split_once('=')?;
        let flag = name.to_lowercase().replace('_', "-");
        (flag != "endpoints").then(|| format!("--{flag}={value}"))
    })
}

#[test]
fn the_image_starts_as_its_readme_runs_it() {
    let dockerfile = read(&root().join("deploy/Dockerfile"));
    let readme = code(&read(&root().join("deploy/README.md")));
    let run = readme.lines().find(|line| line.contains("docker run "));
    // What the command says comes later, and wins.
    let of_image: Vec<String> = variables(&dockerfile).collect();
    let of_command: Vec<String> = variables(run.unwrap()).collect();
    assert!(of_image.contains(&"--http-addr=0.0.0.0:7480".to_owned()));
    let name = |flag: &String| flag.split_once('=').map(|(name, _)| name.to_owned());
    let kept = of_image
        .into_iter()
        .filter(|flag| !of_command.iter().any(|it| name(it) == name(flag)));
    let flags: Vec<String> = kept.chain(of_command.iter().cloned()).collect();
    assert_eq!(check(&flags), Ok(()), "{flags:?}");
}

#[test]
fn a_missing_file_of_tls_is_the_one_that_is_named() {
    let files = ["--tls-cert", "--tls-key", "--tls-ca"];
    for missing in files {
        let given = files.iter().filter(|flag| **flag != missing);
        let mut flags: Vec<String> = given.map(|flag| format!("{flag}=f.pem")).collect();
        flags.push("--data-dir=DIR".to_owned());
        let error = check(&flags).unwrap_err();
        assert!(
            error.starts_with(&format!("{missing} is missing")),
            "{error}"
        );
    }
}
