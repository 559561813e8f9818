//! `kvd`: one node of Torc, or a playground cluster.

use std::convert::Infallible;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, CommandFactory as _, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use torc_ring::NodeId;
use torc_server::FirstUse;
use torc_server::config::RawSettings;
use torc_server::node::{self, Node};
use torc_server::playground::{OWN_SETTINGS, Playground, PlaygroundOptions};
use torc_server::variables;
use torc_telemetry::log::{self, LogFormat};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A node of Torc, the distributed key-value service
#[derive(Debug, Parser)]
#[command(name = "kvd", version)]
struct Cli {
    /// Format of log lines; RUST_LOG selects them
    #[arg(long, env = "TORC_LOG_FORMAT", default_value = "text", global = true)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one node
    Serve {
        /// TOML file of settings; flags and environment variables override it
        #[arg(long, env = "TORC_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<RawSettings>,
    },
    /// Found the topology group again from this stopped node, after a majority of its voters was
    /// lost for good
    ///
    /// Shows what it would do and what may be lost; changes nothing without `--force`. Writes
    /// off all members except this node and those of `--keep`: they must never start again with
    /// their data directories. Kept nodes follow by themselves once this one runs.
    Recover {
        /// Data directory of a surviving node: the one with the newest log
        #[arg(long, env = "TORC_DATA_DIR", value_name = "DIR")]
        data_dir: PathBuf,
        /// Id of another surviving node with its data; repeat the option for several
        #[arg(long, value_name = "NODE_ID")]
        keep: Vec<u64>,
        /// Carry it out
        #[arg(long)]
        force: bool,
    },
    /// Run a whole cluster in this process
    #[command(mut_args(hide_own))]
    Playground {
        /// TOML file of settings of every node; flags and environment variables override it
        #[arg(long, env = "TORC_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
        /// Number of nodes
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
        nodes: u16,
        /// gRPC port of the first node; others count up from it
        #[arg(long, default_value_t = 7401, value_parser = first_port())]
        first_grpc_port: u16,
        /// Peer port of the first node, for other nodes; others count up from it
        #[arg(long, default_value_t = 7501, value_parser = first_port())]
        first_peer_port: u16,
        /// HTTP port of the first node; others count up from it
        #[arg(long, default_value_t = 7481, value_parser = first_port())]
        first_http_port: u16,
        /// Port of the first node for Redis clients; others count up from it
        #[arg(long, default_value_t = 7463, value_parser = first_port())]
        first_resp_port: u16,
        /// Settings of every node. With --data-dir, data survives a restart.
        #[command(flatten)]
        settings: Box<RawSettings>,
    },
}

/// Hides a setting that the playground refuses.
fn hide_own(arg: Arg) -> Arg {
    let is_own = |(name, _): &(&str, &str)| arg.get_long() == Some(name);
    let hides = OWN_SETTINGS.iter().any(is_own);
    arg.hide(hides)
}

/// The ports of 16 nodes count up from it.
fn first_port() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=65_520)
}

pub(crate) fn main() -> ExitCode {
    torc_server::return_pages_at_once();
    let cli = Cli::parse();
    let default = match cli.command {
        Command::Serve { .. } => "info,openraft=off,sled=warn,h2=warn",
        Command::Recover { .. } | Command::Playground { .. } => "warn,openraft=off,h2=error",
    };
    let ran = log::start(cli.log_format, default)
        .map_err(|error| anyhow::anyhow!("logging: {error}"))
        .and_then(|()| run(cli.command));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kvd: {}", line_of(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, without repetition: many errors already contain their cause.
fn line_of(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(cause.trim_end()) {
            line = format!("{line}: {}", cause.trim_end());
        }
    }
    line
}

/// Every segment of the store and every connection takes a file descriptor.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // On failure, the node runs with its current limit.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn run(command: Command) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime = torc_server::frugal(&mut tokio::runtime::Builder::new_multi_thread())
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        match command {
            Command::Serve { config, settings } => serve(merged(config, *settings)?).await,
            Command::Recover {
                data_dir,
                keep,
                force,
            } => recover(&data_dir, keep, force),
            Command::Playground {
                config,
                nodes,
                first_grpc_port,
                first_peer_port,
                first_http_port,
                first_resp_port,
                settings,
            } => {
                let options = PlaygroundOptions {
                    nodes,
                    first_grpc_port,
                    first_peer_port,
                    first_http_port,
                    first_resp_port,
                    settings: merged(config, *settings)?,
                };
                playground(options).await
            }
        }
    });
    runtime.shutdown_background();
    result
}

/// The environment variables of all settings.
fn known_variables() -> Vec<String> {
    let cli = Cli::command();
    let commands = std::iter::once(&cli).chain(cli.get_subcommands());
    let variables = commands.flat_map(clap::Command::get_arguments);
    let names = variables.filter_map(clap::Arg::get_env);
    names
        .filter_map(|name| Some(name.to_str()?.to_owned()))
        .collect()
}

/// The settings from flags, environment and file.
fn merged(config: Option<PathBuf>, flags: RawSettings) -> anyhow::Result<RawSettings> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for foreign in variables::check(names, &known_variables())? {
        tracing::warn!("ignored the environment variable `{foreign}`: it is not a setting");
    }
    let file = config
        .map(|file| RawSettings::read(&file))
        .transpose()?
        .unwrap_or_default();
    Ok(flags.or(file))
}

async fn serve(settings: RawSettings) -> anyhow::Result<()> {
    let settings = settings.check()?;
    if settings.insecure {
        tracing::warn!(
            "--insecure: connections are neither encrypted nor authenticated; \
             anyone who reaches a port of this node can read and change everything"
        );
    }
    let data_dir = settings.data_dir.clone();
    let node = Node::start(settings).await?;
    let failed = tokio::select! {
        reason = node.failed() => Some(reason),
        () = stop_signal() => None,
        never = tell_first_use(&node, &data_dir) => match never {},
    };
    tracing::info!("stopping");
    let stopped = node.stop().await;
    if let Some(reason) = failed {
        anyhow::bail!("the node stopped itself: {reason}");
    }
    Ok(stopped?)
}

/// Prints the first tokens of a secure cluster once, never to the log.
async fn tell_first_use(node: &Node, data_dir: &Path) -> Infallible {
    if let Some(first) = node.first_use().await {
        let told = write_first_use(&first).map_err(anyhow::Error::from);
        let told = told.and_then(|()| Ok(node.told_first_use()?));
        if let Err(error) = told {
            tracing::warn!(
                %error,
                "could not print the first tokens: restart the node to print others, or issue a certificate: kvctl cert \
                 issue --client NAME --role admin --ca {}/tls PREFIX",
                data_dir.display()
            );
        }
    }
    std::future::pending().await
}

fn write_first_use(first: &FirstUse) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    write!(
        out,
        "
A secure cluster was founded. These tokens are printed once; keep the first one.

Use the cluster, here or elsewhere (asks for the token):

  kvctl login {address}
  {admin}

Add a node with this token, which admits one node within an hour (more: kvctl token create --join). The second
command moves data to it:

  kvd serve --data-dir DIR --join {join}
  kvctl join-node HOST:PORT

",
        address = first.join.address,
        admin = first.admin.reveal(),
        join = first.join.reveal(),
    )?;
    out.flush()
}

fn recover(data_dir: &Path, keep: Vec<u64>, force: bool) -> anyhow::Result<()> {
    let keep = keep.into_iter().map(NodeId).collect();
    let recovery = node::preview_recovery(data_dir, &keep)?;
    let mut out = std::io::stdout();
    write!(out, "{recovery}")?;
    if !force {
        writeln!(
            out,
            "\nNothing was changed. To carry it out, repeat the command with --force."
        )?;
        return Ok(());
    }
    node::recover(data_dir, &recovery)?;
    let told = writeln!(
        out,
        "
Done. Now:
  1. Start node {}, then the other kept nodes. They follow by themselves.
  2. For each written-off node run `kvctl replace-node ID ADDRESS --dead --force`, or
     `kvctl leave-node ID --dead --force`. If it was joining, run `kvctl abort` before.",
        recovery.node
    );
    // The recovery is done, so a reader that has closed stdout is no failure.
    told.or(Ok(()))
}

async fn playground(options: PlaygroundOptions) -> anyhow::Result<()> {
    let playground = Playground::start(options).await?;
    // A closed stdout is no failure, but then the tokens were not shown.
    let mut out = std::io::stdout();
    let told = out.write_all(playground.welcome().as_bytes());
    if told.and_then(|()| out.flush()).is_ok() {
        playground.told()?;
    }
    stop_signal().await;
    Ok(playground.stop().await?)
}

/// Waits for Ctrl-C or SIGTERM.
async fn stop_signal() {
    let interrupted = tokio::signal::ctrl_c();
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        let _ = interrupted.await;
        return;
    };
    tokio::select! {
        _ = interrupted => {}
        _ = terminated.recv() => {}
    }
}
