//! Runs a crate's example programs in its tests.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs the example `name` of `package` to its end, with `input` as its standard input.
///
/// Uses the program in the directory of the running test. `cargo test` also builds examples, except
/// if only some tests were selected; then this builds the example.
///
/// # Errors
/// The example is missing and cannot be built, or it cannot be started.
pub fn run_example(package: &str, name: &str, args: &[&str], input: &str) -> io::Result<Output> {
    let mut command = Command::new(program(package, name)?);
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

fn program(package: &str, name: &str) -> io::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let missing = || io::Error::other("a test lies in `deps` of its profile's directory");
    let profile = test.parent().and_then(Path::parent).ok_or_else(missing)?;
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let program = profile.join("examples").join(file);
    if !program.exists() {
        build(package, name, profile)?;
    }
    Ok(program)
}

fn build(package: &str, name: &str, profile: &Path) -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", package, "--example", name]);
    // The directory of the profile `dev` is `debug`; other profiles use their own names.
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(profile) => _ = build.args(["--profile", profile]),
    }
    if let Some(target) = profile.parent() {
        build.arg("--target-dir").arg(target);
    }
    if build.status()?.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "the example {name} of {package} was not built"
        )))
    }
}
