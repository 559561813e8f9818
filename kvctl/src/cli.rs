//! The command line as a whole: choice of the command, exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::cmd;
use crate::cmd::maintenance::Maintenance;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::{self, Out};

/// The command line of Torc, a distributed key-value service.
///
/// Data goes to standard output. Messages go to standard error, one line each: what
/// happened and what to do.
///
/// Exit codes: 0 done; 1 key not found; 2 usage; 3 unavailable; 4 condition not met, damage, or
/// problems that `doctor` found; 5 outcome unknown; 6 refused; 130 interrupted.
#[derive(Debug, Parser)]
#[command(
    name = "kvctl",
    version,
    max_term_width = 100,
    subcommand_required = true
)]
#[command(arg_required_else_help = true, infer_long_args = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Similarity, of at most 1, from which the name of a variable counts as a misspelling of another.
/// The variables of `kvd` may be set, too, and those that Kubernetes names after services.
const SIMILAR: f64 = 0.8;

#[derive(Debug, Subcommand)]
enum Command {
    Put(cmd::put::Args),
    Get(cmd::get::Args),
    Delete(cmd::delete::Args),
    Scan(cmd::scan::Args),
    Load(cmd::load::Args),
    Dump(cmd::dump::Args),
    JoinNode(cmd::join_node::Args),
    LeaveNode(cmd::leave_node::Args),
    ReplaceNode(cmd::replace_node::Args),
    ReweightNode(cmd::reweight_node::Args),
    Abort(cmd::abort::Args),
    Namespace(cmd::namespace::Args),
    Status(cmd::status::Args),
    Top(cmd::top::Args),
    Doctor(cmd::doctor::Args),
    Ring(cmd::ring::Args),
    Plan(cmd::plan::Args),
    Explain(cmd::explain::Args),
    /// Write memtables to slices now. Nodes also do this by themselves.
    ///
    /// Afterwards `explain` shows a key's slice, its slot and the Bloom gate's answer.
    Flush(cmd::maintenance::Args),
    /// Compact the slices of every partition into one now.
    ///
    /// Nodes also do this by themselves where it pays. A compaction that outlasts the timeout
    /// (default: 10 minutes) continues.
    Compact(cmd::maintenance::Args),
    HotKeys(cmd::hot_keys::Args),
    Bench(cmd::bench::Args),
    Build(cmd::build::Args),
    Generation(cmd::generation::Args),
    Backup(cmd::backup::Args),
    Restore(cmd::restore::Args),
    Pod(cmd::pod::Args),
    Token(cmd::token::Args),
    Login(cmd::login::Args),
    Profile(cmd::profile::Args),
    Ca(cmd::certificates::AuthorityArgs),
    Cert(cmd::certificates::CertificateArgs),
    GenerateUrls(cmd::generate_urls::Args),
    Completions(cmd::completions::Args),
}

/// The definition of the command line, for completions and tests.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Parses the arguments and runs the command. Returns its exit code.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let result = match Cli::try_parse_from(arguments) {
        Ok(cli) => check_variables(std::env::vars_os()).and_then(|()| run(cli)),
        Err(error) if shows_help(&error) => return print_help(&error),
        Err(error) => Err(Failure::Usage(usage_line(&error))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            out::note(failure.line());
            ExitCode::from(failure.code() as u8)
        }
    }
}

/// Refuses misspelt `TORC_*` variables: the command might go to other nodes than the intended ones.
fn check_variables(set: impl Iterator<Item = (OsString, OsString)>) -> Result<(), Failure> {
    let command = command();
    let commands = std::iter::once(&command).chain(command.get_subcommands());
    let arguments = commands.flat_map(clap::Command::get_arguments);
    let known: Vec<&str> = arguments
        .filter_map(|argument| argument.get_env()?.to_str())
        .collect();
    for (name, _) in set {
        let Some(name) = name.to_str().filter(|name| name.starts_with("TORC_")) else {
            continue;
        };
        let rest = |name: &str| name.trim_start_matches("TORC_").to_owned();
        let similarity =
            |known: &str| strsim::normalized_damerau_levenshtein(&rest(name), &rest(known));
        let nearest = known
            .iter()
            .max_by(|one, other| similarity(one).total_cmp(&similarity(other)));
        if let Some(nearest) =
            nearest.filter(|it| !known.contains(&name) && similarity(it) >= SIMILAR)
        {
            return Err(Failure::Usage(format!(
                "there is no setting `{name}`: did you mean `{nearest}`? Rename the variable or unset it"
            )));
        }
    }
    Ok(())
}

fn run(cli: Cli) -> Result<(), Failure> {
    let mut out = Out::stdout();
    let threads = match &cli.command {
        Command::Bench(args) => args.threads(),
        _ => 1,
    };
    let runtime = runtime(threads)?;
    let result = runtime.block_on(dispatch(cli, &mut out));
    // A name that is slow to resolve keeps a thread busy; the command need not wait for it.
    runtime.shutdown_background();
    // Flush what the command printed before it failed.
    let flushed = out.flush();
    result.and(flushed)
}

/// Only a large benchmark needs more than one thread.
fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().map_err(Failure::Runtime)
}

async fn dispatch(cli: Cli, out: &mut Out) -> Result<(), Failure> {
    let done = carry_out(cli.command, &cli.global, out).await;
    cli.global.learn_authorities();
    done
}

async fn carry_out(command: Command, global: &Global, out: &mut Out) -> Result<(), Failure> {
    match command {
        Command::Put(args) => cmd::put::run(args, global, out).await,
        Command::Get(args) => cmd::get::run(args, global, out).await,
        Command::Delete(args) => cmd::delete::run(args, global, out).await,
        Command::Scan(args) => cmd::scan::run(args, global, out).await,
        Command::Load(args) => cmd::load::run(args, global, out).await,
        Command::Dump(args) => cmd::dump::run(args, global, out).await,
        Command::JoinNode(args) => cmd::join_node::run(args, global, out).await,
        Command::LeaveNode(args) => cmd::leave_node::run(args, global, out).await,
        Command::ReplaceNode(args) => cmd::replace_node::run(args, global, out).await,
        Command::ReweightNode(args) => cmd::reweight_node::run(args, global, out).await,
        Command::Abort(args) => cmd::abort::run(args, global, out).await,
        Command::Namespace(args) => cmd::namespace::run(args, global, out).await,
        Command::Status(args) => cmd::status::run(args, global, out).await,
        Command::Top(args) => cmd::top::run(args, global, out).await,
        Command::Doctor(args) => cmd::doctor::run(args, global, out).await,
        Command::Ring(args) => cmd::ring::run(args, global, out).await,
        Command::Plan(args) => cmd::plan::run(&args, global, out),
        Command::Explain(args) => cmd::explain::run(args, global, out).await,
        Command::Flush(args) => cmd::maintenance::run(Maintenance::Flush, args, global, out).await,
        Command::Compact(args) => {
            cmd::maintenance::run(Maintenance::Compact, args, global, out).await
        }
        Command::HotKeys(args) => cmd::hot_keys::run(args, global, out).await,
        Command::Bench(args) => cmd::bench::run(args, global, out).await,
        Command::Build(args) => cmd::build::run(&args, global, out).await,
        Command::Generation(args) => cmd::generation::run(&args, global, out).await,
        Command::Backup(args) => cmd::backup::run(args, global, out).await,
        Command::Restore(args) => cmd::restore::run(args, global, out).await,
        Command::Pod(args) => cmd::pod::run(args, global).await,
        Command::Token(args) => cmd::token::run(args, global, out).await,
        Command::Login(args) => cmd::login::run(&args, global, out).await,
        Command::Profile(args) => cmd::profile::run(&args, global, out),
        Command::Ca(args) => cmd::certificates::authority(&args, global, out).await,
        Command::Cert(args) => cmd::certificates::certificate(&args, global, out),
        Command::GenerateUrls(args) => cmd::generate_urls::run(&args, out),
        Command::Completions(args) => cmd::completions::run(&args, &mut self::command(), out),
    }
}

fn shows_help(error: &clap::Error) -> bool {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    matches!(
        error.kind(),
        DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion
    )
}

/// Requested help is output; help shown because the command is missing is a usage error.
fn print_help(error: &clap::Error) -> ExitCode {
    // A reader that closes the pipe is not a failure.
    let _ = error.print();
    ExitCode::from(error.exit_code().clamp(0, 2) as u8)
}

/// clap's message of several paragraphs as one line.
fn usage_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let what = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .map(|line| line.trim().replacen("tip: ", "; ", 1))
        .collect::<Vec<_>>()
        .join(" ");
    let what = crate::text::one_line(what.trim_start_matches("error:")).replace(" ; ", "; ");
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    match usage {
        Some(usage) => format!("{what} (usage: {usage})"),
        None => format!("{what} (see `kvctl --help`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, String> {
        let arguments = ["kvctl"].iter().chain(arguments).copied();
        Cli::try_parse_from(arguments).map_err(|error| usage_line(&error))
    }

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn global_options_come_before_or_after_the_command() {
        let before = parse(&["--output", "json", "get", "k"]).unwrap();
        let after = parse(&["get", "k", "--output", "json"]).unwrap();
        assert!(before.global.json() && after.global.json());
    }

    #[test]
    fn endpoints_are_given_several_times_or_separated_by_commas() {
        let endpoints = |arguments: &[&str]| -> Vec<String> {
            let cli = parse(arguments).unwrap();
            cli.global
                .endpoints()
                .iter()
                .map(|e| e.as_str().to_owned())
                .collect()
        };
        let two = ["http://a:1", "http://b:2"];
        assert_eq!(
            endpoints(&["--endpoint", two[0], "--endpoint", two[1], "status"]),
            two
        );
        let both = ["--endpoint", "http://a:1,http://b:2", "status"];
        assert_eq!(endpoints(&both), two);
    }

    #[test]
    fn a_usage_error_is_one_line_that_shows_the_usage() {
        let line = parse(&["get"]).unwrap_err();
        assert!(line.starts_with("the following required arguments were not provided: <KEY>"));
        assert!(line.contains("(usage: kvctl get"), "{line}");
        assert!(!line.contains('\n'));
        assert!(
            parse(&["get", "k", "--nope"])
                .unwrap_err()
                .contains("'--nope'")
        );
    }

    #[test]
    fn arguments_that_contradict_each_other_are_refused() {
        for arguments in [
            &["put", "k", "v", "--file", "f"][..],
            &["put", "k"],
            &["put", "k", "v", "--if-absent", "--if-version", "1.2.3"],
            &["put", "k", "v", "--if-version", "1.2"],
            &["put", "k", "v", "--ttl", "0s"],
            &["get", "k", "--key-hex", "--key-base64"],
            &["get", "k", "--consistency", "strong"],
            &["get", "k", "--quorum", "two"],
            &["leave-node", "n1"],
            &["join-node", "no-port"],
            &["replace-node", "3"],
            &["replace-node", "3", "no-port"],
            &["reweight-node", "3", "0"],
            &["namespace"],
            &["namespace", "create", "n", "--mode", "strong"],
            &["namespace", "create", "n", "--replicas", "6"],
            &["namespace", "alter", "n"],
            &["namespace", "alter", "n", "--replicas", "0"],
            &["--endpoint", "ftp://a:1", "status"],
            &["--timeout", "0s", "status"],
            &["ring", "simulate", "--nodes", "0"],
            &["ring", "simulate", "--nodes", "3", "--partitions", "100"],
            &["ring", "simulate", "--nodes", "3", "--weights", "100,0"],
            &["bench", "--mix", "101"],
            &["hot-keys", "--top", "0"],
            &["hot-keys", "--window", "0s"],
            &["hot-keys", "--node", "0"],
            &["scan", "--contains-hex", "abc"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn values_may_look_like_options_or_numbers() {
        assert!(parse(&["put", "k", "-5"]).is_ok());
        assert!(parse(&["put", "k", "--", "--flag"]).is_ok());
        assert!(parse(&["put", "k", "-"]).is_ok());
        assert!(parse(&["scan", "--contains", "-x", "--contains", "5"]).is_ok());
    }
}
