//! Everything that the documents name exists: files in code marks, and targets of links.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

const DOCUMENTS: [&str; 27] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    "deploy/README.md",
    "docs/SUMMARY.md",
    "docs/backup.md",
    "docs/clients.md",
    "docs/comparison.md",
    "docs/concepts.md",
    "docs/console.md",
    "docs/failures.md",
    "docs/glossary.md",
    "docs/growing.md",
    "docs/how-it-works.md",
    "docs/kubernetes.md",
    "docs/quick-start.md",
    "docs/redis.md",
    "docs/security.md",
    "docs/sizing.md",
    "docs/traces.md",
    "docs/tuning.md",
    "SECURITY.md",
    "fuzz/README.md",
    "python/README.md",
    "sim/README.md",
    "store/FORMAT.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut documents: Vec<PathBuf> = DOCUMENTS.iter().map(|name| root.join(name)).collect();
    let decisions = std::fs::read_dir(root.join("docs/decisions")).unwrap();
    documents.extend(decisions.map(|entry| entry.unwrap().path()));
    documents
}

/// The text between two marks, outside code blocks.
fn between<'a>(text: &'a str, open: &str, close: char) -> Vec<&'a str> {
    let prose = text.split("```").step_by(2);
    let parts = prose.flat_map(|part| part.split(open).skip(1));
    parts
        .filter_map(|part| part.split_once(close).map(|(it, _)| it))
        .collect()
}

#[test]
fn the_book_has_every_page() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    for folder in ["", "decisions/"] {
        for entry in std::fs::read_dir(docs.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_page = path.extension().is_some_and(|it| it == "md") && name != "SUMMARY.md";
            let link = format!("]({folder}{name})");
            assert!(!is_page || summary.contains(&link), "{folder}{name}");
        }
    }
}

#[test]
fn no_merge_was_left_unfinished() {
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        let is_marker = |line: &&str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
        let found = text.lines().find(is_marker);
        assert_eq!(found, None, "{}", document.display());
    }
}

#[test]
fn links_lead_somewhere() {
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in between(&text, "](", ')') {
            let (path, _) = link.split_once('#').unwrap_or((link, ""));
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let target = document.parent().unwrap().join(path);
            assert!(target.exists(), "{}: {link}", document.display());
        }
    }
}

/// `docs/outside.py` makes pages of files outside docs, so no link leaves the book. It also
/// follows anchors.
#[test]
fn no_link_leaves_the_book() {
    let script = root().join("docs/outside.py");
    let run = Command::new("python3").arg(script).arg("check").output();
    let Ok(checked) = run else {
        eprintln!("skipped: there is no python3");
        return;
    };
    assert!(checked.status.success(), "{checked:?}");
}

/// A path in code marks that begins with a top-level directory.
#[test]
fn files_that_documents_name_are_there() {
    let root = root();
    let (mut seen, mut missing) = (0, Vec::new());
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        // Code marks come in pairs, so every second part is code.
        let parts: Vec<&str> = text.split("```").step_by(2).collect();
        let codes = parts
            .iter()
            .flat_map(|part| part.split('`').skip(1).step_by(2));
        for code in codes {
            let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            let Some((first, rest)) = code.split_once('/') else {
                continue;
            };
            let is_ours = !first.is_empty() && root.join(first).is_dir() && first != "target";
            if !is_ours || rest.is_empty() || !code.chars().all(is_path) {
                continue;
            }
            seen += 1;
            let named = root.join(code);
            // A module may be named without its extension.
            let there = named.exists() || root.join(format!("{code}.rs")).exists();
            if !there {
                missing.push(format!("{}: `{code}`", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(seen > 100, "{seen}: are there no paths any more?");
}

/// The Rust sources below a directory, except tests of their own.
fn sources(dir: &Path, found: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let is_left_out = path
            .file_name()
            .is_some_and(|name| name == "target" || name == "tests");
        if path.is_dir() && !is_left_out {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// A string literal that a backslash continues on the next line becomes one line.
fn joined(source: &str) -> String {
    let mut parts = source.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.trim_start())
}

/// `…` in a quoted text stands for what the program fills in.
#[test]
fn failures_quotes_what_programs_say_and_names_tests_that_are_there() {
    let root = root();
    let text = std::fs::read_to_string(root.join("docs/failures.md")).unwrap();
    let mut source = String::new();
    sources(&root, &mut source);
    let source = joined(&source);
    // `kvctl/tests/cluster/book.rs` compares the first two with what a cluster says.
    let blocks = text.split("```text\n").skip(3);
    let blocks = blocks.filter_map(|it| it.split("```").next());
    let mut seen = 0;
    for line in blocks.flat_map(str::lines) {
        let said = [
            "CRITICAL  ",
            "warning   ",
            "UNAVAILABLE ",
            "OUTCOMEUNKNOWN ",
        ]
        .iter()
        .find_map(|word| line.strip_prefix(word))
        .unwrap_or(line);
        // Shorter parts may be assembled from several literals.
        for part in said.trim().split('…').filter(|part| part.len() > 15) {
            assert!(source.contains(part), "no program says `{part}`: {line}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}: are there no quotes any more?");

    let alerts = std::fs::read_to_string(root.join("deploy/prometheus/alerts.yml")).unwrap();
    let (_, tests) = text.split_once("## The tests that make").unwrap();
    let rows = tests.lines().filter(|line| line.contains(".rs` |"));
    let mut seen = 0;
    for row in rows {
        let marked: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let [name, file, alert @ ..] = &marked[..] else {
            panic!("{row}");
        };
        let tests = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(tests.contains(&format!("fn {name}(")), "{file}: {name}");
        for alert in alert {
            let is_there = alerts.contains(&format!("- alert: {alert}\n"));
            assert!(is_there, "there is no alert {alert}");
        }
        seen += 1;
    }
    assert!(seen > 12, "{seen}: are there no tests any more?");
}

/// Walkthroughs list functions with the file that contains them.
#[test]
fn the_functions_of_the_walks_are_where_they_are_said_to_be() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let walks: Vec<_> = text.split("The functions, in order: ").skip(1).collect();
    assert_eq!(walks.len(), 4, "of a get, its fallback, a put and a join");
    for walk in walks {
        let (walk, _) = walk.split_once("\n\n").unwrap();
        let mut functions = Vec::new();
        for (number, mark) in walk.split('`').enumerate() {
            if number % 2 == 0 {
                continue;
            }
            if !mark.contains('/') {
                functions.push(mark);
                continue;
            }
            let source = std::fs::read_to_string(root().join(mark)).unwrap();
            assert!(!functions.is_empty(), "{mark}: without a function");
            for function in functions.drain(..) {
                let is_there = ["(", "<"]
                    .iter()
                    .any(|open| source.contains(&format!("fn {function}{open}")));
                assert!(is_there, "{mark}: {function}");
            }
        }
        assert!(functions.is_empty(), "{functions:?}: without a file");
    }
}
