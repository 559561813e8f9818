//! `kvd-mutant`, for tests: `kvd`, but it breaks the rule that `TORC_TEST_MUTANT` names.

use std::process::ExitCode;

#[path = "main.rs"]
mod kvd;

fn main() -> ExitCode {
    let broken = std::env::var("TORC_TEST_MUTANT")
        .map_err(|_| "set TORC_TEST_MUTANT to the rule to break".to_owned())
        .and_then(|name| {
            torc_driver::mutants::break_rule(&name).map_err(|error| error.to_string())
        });
    if let Err(problem) = broken {
        eprintln!("kvd-mutant: {problem}");
        return ExitCode::FAILURE;
    }
    kvd::main()
}
