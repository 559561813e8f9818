//! Logs on standard error, as text or JSON. `RUST_LOG` selects lines: `LEVEL` or `TARGET=LEVEL`,
//! separated by commas.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// How a log line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging, with the filter from `RUST_LOG` or else `default`.
///
/// # Errors
/// `RUST_LOG` is malformed, or logging was started before.
pub fn start(
    format: LogFormat,
    default: &str,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let chosen = std::env::var("RUST_LOG").unwrap_or_default();
    let directives = if chosen.is_empty() { default } else { &chosen };
    let malformed = |error| format!("RUST_LOG: `{directives}`: {error}");
    let filter: Targets = directives.parse().map_err(malformed)?;
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter));
    Ok(subscriber.try_init()?)
}
