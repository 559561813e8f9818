//! `kvctl completions`: a script that completes commands and options in a shell.

use clap_complete::Shell;

use crate::failure::Failure;
use crate::out::Out;

/// Print a shell completion script.
///
/// For bash: `kvctl completions bash > /etc/bash_completion.d/kvctl`; for zsh, into a
/// directory of `$fpath` under the name `_kvctl`; for fish:
/// `kvctl completions fish > ~/.config/fish/completions/kvctl.fish`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for this command line.
pub(crate) fn run(args: &Args, command: &mut clap::Command, out: &mut Out) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "kvctl", &mut script);
    out.raw(&script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut crate::cli::command(), "kvctl", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(
                [
                    "join-node",
                    "replace-node",
                    "namespace",
                    "abort",
                    "if-absent"
                ]
                .iter()
                .all(|word| script.contains(word)),
                "{shell}"
            );
        }
    }
}
