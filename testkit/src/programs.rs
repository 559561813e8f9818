//! Programs and examples of this workspace, for tests that run them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program `name`, in the directory of the running test's profile; built if it is missing.
///
/// # Errors
/// It cannot be built.
pub fn program(name: &str) -> io::Result<PathBuf> {
    // Another set of packages than the tests' would rebuild their dependencies.
    built(name, &["--workspace", "--bin", name])
}

/// Runs the example `name` of `package` to its end, with `input` as its standard input.
///
/// `cargo test` also builds examples, except if only some tests were selected; then this builds the
/// example.
///
/// # Errors
/// The example is missing and cannot be built, or it cannot be started.
pub fn run_example(package: &str, name: &str, args: &[&str], input: &str) -> io::Result<Output> {
    let program = Path::new("examples").join(name);
    let mut command = Command::new(built(program, &["--package", package, "--example", name])?);
    command.args(args).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // A program that refuses its arguments does not read its input; its output is the result
        // then.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    })
}

/// The output of an example: standard output and standard error.
///
/// # Panics
/// If it cannot be run, fails, or prints bytes that are not UTF-8.
#[must_use]
pub fn example_output(package: &str, name: &str, args: &[&str], input: &str) -> (String, String) {
    let output = run_example(package, name, args, input).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name}: {error}");
    (String::from_utf8(output.stdout).unwrap(), error)
}

fn built(file: impl AsRef<Path>, selection: &[&str]) -> io::Result<PathBuf> {
    let file = programs_dir()?.join(file);
    let file = file.with_extension(std::env::consts::EXE_EXTENSION);
    if !file.exists() {
        build(selection)?;
    }
    Ok(file)
}

/// The directory of the running program's profile, which has the other programs. A test lies in
/// `deps` of it.
///
/// # Errors
/// The path of the running program is unknown.
pub fn programs_dir() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let dir = own.ancestors().skip(1).find(|dir| !dir.ends_with("deps"));
    let dir = dir.ok_or_else(|| io::Error::other("this program lies in no directory"));
    dir.map(Path::to_owned)
}

/// Builds what these arguments of `cargo build` select, in the profile of the running program.
///
/// # Errors
/// It does not build.
pub fn build(selection: &[&str]) -> io::Result<()> {
    let dir = programs_dir()?;
    // The directory of the profile `dev` is `debug`; other profiles use their own names.
    let profile = dir.file_name().filter(|name| *name != "debug");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--locked", "--manifest-path"]);
    build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    build
        .arg("--profile")
        .arg(profile.unwrap_or("dev".as_ref()));
    if let Some(target) = dir.parent() {
        build.arg("--target-dir").arg(target);
    }
    if build.args(selection).status()?.success() {
        return Ok(());
    }
    let selection = selection.join(" ");
    Err(io::Error::other(format!(
        "cargo does not build {selection}"
    )))
}
