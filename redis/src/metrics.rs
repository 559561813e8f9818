//! Metrics of the server for Redis clients.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use torc_resp::{Reply, SPECS};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ok,
    /// It was refused or failed; nothing was changed.
    Error,
    /// It may have changed something.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    command: &'static str,
    outcome: &'static str,
}

const OUTCOMES: [&str; 3] = ["ok", "error", "unknown"];

/// Counters of the server for Redis clients.
pub struct RespMetrics {
    /// By index in the table of commands; the last entry counts unknown commands.
    commands: Vec<[Counter; OUTCOMES.len()]>,
    pub(super) connections: Gauge,
    pub(super) protocol_errors: Counter,
    pub(super) combined: Counter,
    pub(super) conflicts: Counter,
}

impl RespMetrics {
    /// Registers the counters.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let commands = Family::<Labels, Counter>::default();
        registry.register(
            "resp_commands",
            "Commands of Redis clients, by result",
            commands.clone(),
        );
        let connections = Gauge::default();
        registry.register(
            "resp_connections",
            "Connections of Redis clients",
            connections.clone(),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let names = SPECS.iter().map(|spec| spec.name).chain(["unknown"]);
        Self {
            commands: names
                .map(|command| {
                    OUTCOMES
                        .map(|outcome| commands.get_or_create(&Labels { command, outcome }).clone())
                })
                .collect(),
            connections,
            protocol_errors: counter(
                "resp_protocol_errors",
                "Connections of Redis clients closed because of malformed or too large requests",
            ),
            combined: counter(
                "resp_combined_writes",
                "Read-modify-writes of Redis clients that shared a write with an earlier command on the key",
            ),
            conflicts: counter(
                "resp_write_conflicts",
                "Read-modify-writes of Redis clients that restarted, because their key had changed",
            ),
        }
    }

    /// Counts a command; `None` for an unknown command.
    pub(super) fn ended(&self, command: Option<usize>, reply: &Reply) {
        let outcome = match reply {
            Reply::Error(text) if text.starts_with("OUTCOMEUNKNOWN ") => Outcome::Unknown,
            Reply::Error(_) => Outcome::Error,
            _ => Outcome::Ok,
        };
        let number = command.unwrap_or(SPECS.len());
        if let Some(counters) = self.commands.get(number) {
            counters[outcome as usize].inc();
        }
    }

    /// Commands since the node started.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands.iter().flatten().map(Counter::get).sum()
    }
}
