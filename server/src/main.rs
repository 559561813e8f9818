//! `kvd`: one node of Torc, or a whole cluster to play with.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use torc_server::config::RawSettings;
use torc_server::node::Node;
use torc_server::playground::{Playground, PlaygroundOptions};
use torc_server::telemetry::{self, LogFormat};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A node of Torc, the distributed key-value service
#[derive(Debug, Parser)]
#[command(name = "kvd", version)]
struct Cli {
    /// How log lines look; RUST_LOG says which are shown
    #[arg(long, env = "TORC_LOG_FORMAT", default_value = "text", global = true)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one node
    Serve {
        /// TOML file of settings; flags and variables go before it
        #[arg(long, env = "TORC_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<RawSettings>,
    },
    /// Run a whole cluster in this process
    Playground {
        /// Number of nodes
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
        nodes: u16,
        /// Keep the data here, and find it again after a restart
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Ports count up from here for gRPC
        #[arg(long, default_value_t = 7401)]
        first_grpc_port: u16,
        /// Ports count up from here for HTTP
        #[arg(long, default_value_t = 7481)]
        first_http_port: u16,
    },
}

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let default = match cli.command {
        Command::Serve { .. } => "info,openraft=off,sled=warn,h2=warn",
        Command::Playground { .. } => "warn,openraft=off,h2=error",
    };
    let ran = telemetry::start(cli.log_format, default)
        .map_err(|error| anyhow::anyhow!("logging: {error}"))
        .and_then(|()| run(cli.command));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kvd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        match command {
            Command::Serve { config, settings } => serve(config, *settings).await,
            Command::Playground {
                nodes,
                data_dir,
                first_grpc_port,
                first_http_port,
            } => {
                let options = PlaygroundOptions {
                    nodes,
                    data_dir,
                    first_grpc_port,
                    first_http_port,
                };
                playground(options).await
            }
        }
    });
    runtime.shutdown_background();
    result
}

async fn serve(config: Option<PathBuf>, flags: RawSettings) -> anyhow::Result<()> {
    let file = config
        .map(|file| RawSettings::read(&file))
        .transpose()?
        .unwrap_or_default();
    let settings = flags.or(file).check()?;
    if settings.insecure {
        tracing::warn!(
            "--insecure: connections are neither encrypted nor authenticated; \
             whoever reaches {} can read and change everything",
            settings.grpc_addr
        );
    }
    let node = Node::start(settings).await?;
    let failed = tokio::select! {
        reason = node.failed() => Some(reason),
        () = stop_signal() => None,
    };
    tracing::info!("stopping");
    let stopped = node.stop().await;
    if let Some(reason) = failed {
        anyhow::bail!("the node stopped itself: {reason}");
    }
    Ok(stopped?)
}

async fn playground(options: PlaygroundOptions) -> anyhow::Result<()> {
    let playground = Playground::start(options).await?;
    // The welcome is what the command is for; nobody may be reading it.
    let _ = std::io::stdout().write_all(playground.welcome().as_bytes());
    stop_signal().await;
    Ok(playground.stop().await?)
}

/// Ctrl-C, or the signal of service managers and container engines.
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
