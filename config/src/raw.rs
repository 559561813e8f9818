//! The settings as given: flags, environment variables and keys of the file.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::BoolishValueParser;
use serde::Deserialize;

use super::ConfigError;
use crate::variables;

/// All settings, unchecked. A setting has the same name as a flag
/// (`--grpc-addr`), a variable (`TORC_GRPC_ADDR`) and a key of the file (`grpc-addr`).
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawSettings {
    /// Directory for the node's data; created if missing
    #[arg(long, env = "TORC_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to serve clients' gRPC on [default: 127.0.0.1:7400]
    #[arg(long, env = "TORC_GRPC_ADDR", value_name = "IP:PORT")]
    pub grpc_addr: Option<SocketAddr>,
    /// Address to serve other nodes on [default: port 7500 at the IP address of --grpc-addr, or a free port if
    /// the port of --grpc-addr is 0]
    #[arg(long, env = "TORC_PEER_ADDR", value_name = "IP:PORT")]
    pub peer_addr: Option<SocketAddr>,
    /// Address to serve HTTP on [default: 127.0.0.1:7480]
    #[arg(long, env = "TORC_HTTP_ADDR", value_name = "IP:PORT")]
    pub http_addr: Option<SocketAddr>,
    /// gRPC address of this node as clients reach it [default: the gRPC address]
    #[arg(long, env = "TORC_ADVERTISE_ADDR", value_name = "HOST:PORT")]
    pub advertise_addr: Option<String>,
    /// Address of this node as other nodes reach it [default: the host of --advertise-addr with
    /// the port of --peer-addr, or the peer address]
    #[arg(long, env = "TORC_ADVERTISE_PEER_ADDR", value_name = "HOST:PORT")]
    pub advertise_peer_addr: Option<String>,
    /// HTTP address of this node as clients and nodes reach it [default: the HTTP address]
    #[arg(long, env = "TORC_ADVERTISE_HTTP_ADDR", value_name = "HOST:PORT")]
    pub advertise_http_addr: Option<String>,
    /// Address to serve Redis clients on (docs/redis.md) [default: none, do not serve them]
    #[arg(long, env = "TORC_RESP_ADDR", value_name = "IP:PORT")]
    pub resp_addr: Option<SocketAddr>,
    /// Address of this node as Redis clients reach it [default: the address of --resp-addr]
    #[arg(long, env = "TORC_ADVERTISE_RESP_ADDR", value_name = "HOST:PORT")]
    pub advertise_resp_addr: Option<String>,
    /// Namespaces that Redis clients SELECT by number, separated by commas [default: 0=default]
    #[arg(
        long,
        env = "TORC_RESP_DB",
        value_name = "NUMBER=NAMESPACE,..",
        value_delimiter = ','
    )]
    pub resp_db: Option<Vec<String>>,
    /// File for the audit log of changes and denied requests, JSON lines; at most 8 files of 16 MiB
    /// [default: audit/audit.log in the data directory]
    #[arg(long, env = "TORC_AUDIT_LOG", value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Found a new cluster if this node belongs to none
    #[arg(long, env = "TORC_BOOTSTRAP", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub bootstrap: Option<bool>,
    /// With --bootstrap: found the cluster together with these nodes (their peer or gRPC addresses,
    /// separated by commas); waits until all of them answer. Start them without --bootstrap
    #[arg(
        long,
        env = "TORC_FOUND_WITH",
        value_name = "HOST:PORT,..",
        value_delimiter = ','
    )]
    pub found_with: Option<Vec<String>>,
    /// Failure domain of this node [default: default]
    #[arg(long, env = "TORC_ZONE")]
    pub zone: Option<String>,
    /// Share of the load, percent of a normal node's [default: 100]
    #[arg(long, env = "TORC_WEIGHT", value_name = "PERCENT")]
    pub weight: Option<u32>,
    /// Partitions of the cluster, a power of two; the same on every node, cannot be changed later
    /// [default: 4096]
    #[arg(long, env = "TORC_PARTITIONS", value_name = "COUNT")]
    pub partitions: Option<u32>,
    /// With --bootstrap: replicas of each key, 1 to 5; later, use `kvctl namespace alter` [default:
    /// 3]
    #[arg(long, env = "TORC_REPLICAS", value_name = "COUNT")]
    pub replicas: Option<u8>,
    /// With --bootstrap: ring positions of a node of normal weight [default: 32]
    #[arg(long, env = "TORC_POSITIONS", value_name = "COUNT")]
    pub positions: Option<u16>,
    /// Encrypt every connection: PEM file of this node's certificate, reloaded when it changes
    #[arg(long, env = "TORC_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, env = "TORC_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of the authorities that must have issued the certificates of nodes and clients
    #[arg(long, env = "TORC_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Encrypt every connection with certificates that the node keeps in its data directory. With
    /// --bootstrap, the node creates an authority and prints the first tokens; with --join, it gets
    /// a certificate from its cluster. Restarts need neither [default: whether the data directory
    /// has certificates]
    #[arg(long, env = "TORC_SECURE", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub secure: Option<bool>,
    /// With --secure, for nodes that found a cluster together: directory of the cluster's
    /// authority, ca.pem and ca-key.pem (`kvctl ca create`); read only at the first start
    #[arg(long, env = "TORC_AUTHORITY", value_name = "DIR")]
    pub authority: Option<PathBuf>,
    /// Join a secure cluster with a token from `kvctl token create --join`; `kvctl join-node` then
    /// moves data to the node. Other users of this machine can see the command line, so prefer
    /// TORC_JOIN
    #[arg(
        long,
        env = "TORC_JOIN",
        value_name = "TOKEN@HOST:PORT",
        hide_env_values = true
    )]
    pub join: Option<Secret>,
    /// Also allow TLS 1.2, not only 1.3 [default: false]
    #[arg(long, env = "TORC_TLS_12", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub tls_12: Option<bool>,
    /// Serve on addresses other than loopback without encryption and authentication
    #[arg(long, env = "TORC_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub insecure: Option<bool>,
    /// Memory limit for records that are not flushed yet, MiB: a flush starts at half
    /// of it, and at the limit writes wait for the flush [default: 512]
    #[arg(long, env = "TORC_MEMTABLE_LIMIT_MIB", value_name = "MIB")]
    pub memtable_limit_mib: Option<u64>,
    /// Size of a segment of the commit log, MiB [default: 64]
    #[arg(long, env = "TORC_LOG_SEGMENT_MIB", value_name = "MIB")]
    pub log_segment_mib: Option<u64>,
    /// Flush the memtable when the log has grown by this much since the last flush, MiB [default: 128]
    #[arg(long, env = "TORC_FLUSH_LOG_MIB", value_name = "MIB")]
    pub flush_log_mib: Option<u64>,
    /// Flush the memtable at least this often, in seconds, unless it holds less than 4 MiB [default: 300]
    #[arg(long, env = "TORC_FLUSH_AFTER_S", value_name = "SECONDS")]
    pub flush_after_s: Option<u64>,
    /// Write rate limit of flushes, MiB per second [default: 512]
    #[arg(long, env = "TORC_FLUSH_MIB_PER_S", value_name = "MIB")]
    pub flush_mib_per_s: Option<u64>,
    /// Slices per partition above which they are compacted [default: 8]
    #[arg(long, env = "TORC_MOST_SLICES", value_name = "COUNT")]
    pub most_slices: Option<usize>,
    /// Write rate limit of compaction, MiB per second [default: 128]
    #[arg(long, env = "TORC_COMPACT_MIB_PER_S", value_name = "MIB")]
    pub compact_mib_per_s: Option<u64>,
    /// Approximate amount that one compaction reads, which is also the disk space that it needs,
    /// MiB [default: 256]
    #[arg(long, env = "TORC_COMPACT_JOB_MIB", value_name = "MIB")]
    pub compact_job_mib: Option<u64>,
    /// Compact each partition into one slice after this many seconds without writes [default: 10]
    #[arg(long, env = "TORC_COMPACT_WHEN_IDLE_S", value_name = "SECONDS")]
    pub compact_when_idle_s: Option<u64>,
    /// Start although the end of the commit log is damaged, which may lose acknowledged
    /// writes. Use it only if there are no other replicas or they are lost, too [default:
    /// false]
    #[arg(long, env = "TORC_CUT_DAMAGED_LOG", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub cut_damaged_log: Option<bool>,
    /// False positive rate of Bloom gates, 0.0001 to 0.5 [default: 0.01]
    #[arg(long, env = "TORC_GATE_RATE", value_name = "SHARE")]
    pub gate_rate: Option<f64>,
    /// Rate limit for sending partitions to new owners, fetching generations and writing backups, MiB per second
    /// [default: 256, and 64 while clients are served]
    #[arg(long, env = "TORC_TRANSFER_MIB_PER_S", value_name = "MIB")]
    pub transfer_mib_per_s: Option<u64>,
    /// Partitions that this node copies at a time, at most [default: 16]
    #[arg(long, env = "TORC_TRANSFER_PARALLEL", value_name = "COUNT")]
    pub transfer_parallel: Option<usize>,
    /// Maximum client connections per port; one address gets at most three quarters [default: a
    /// quarter of the process's open file limit, with --resp-addr a fifth; 16 to 10000]
    #[arg(long, env = "TORC_MAX_CONNECTIONS", value_name = "COUNT")]
    pub max_connections: Option<usize>,
    /// Concurrent requests on one connection, at most; more wait at the client [default: 256]
    #[arg(long, env = "TORC_MAX_STREAMS", value_name = "COUNT")]
    pub max_streams: Option<u32>,
    /// Concurrent operations on this node, at most; it refuses more, and clients retry
    /// [default: 4096]
    #[arg(long, env = "TORC_MAX_OPERATIONS", value_name = "COUNT")]
    pub max_operations: Option<usize>,
    /// Memory limit for requests and answers of clients, MiB, at least 64; the node refuses more,
    /// and clients retry [default: 256]
    #[arg(long, env = "TORC_IN_FLIGHT_MIB", value_name = "MIB")]
    pub in_flight_mib: Option<usize>,
    /// Threads that serve gRPC connections [default: one per core]
    #[arg(long, env = "TORC_WORKER_THREADS", value_name = "COUNT")]
    pub worker_threads: Option<usize>,
    /// Count accesses, as `kvctl hot-keys` needs [default: true]
    #[arg(long, env = "TORC_HOT_KEYS", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub hot_keys: Option<bool>,
    /// Time resolution of hot keys, seconds [default: 5]
    #[arg(long, env = "TORC_HOT_KEYS_INTERVAL_S", value_name = "SECONDS")]
    pub hot_keys_interval_s: Option<u64>,
    /// Disk limit for the history of hot keys, MiB; a smaller limit makes older intervals coarser
    /// [default: 16]
    #[arg(long, env = "TORC_HOT_KEYS_HISTORY_MIB", value_name = "MIB")]
    pub hot_keys_history_mib: Option<u64>,
    /// A key is hot if it has 1/K of the accesses to its namespace [default: 1000]
    #[arg(long, env = "TORC_HOT_KEYS_K", value_name = "K")]
    pub hot_keys_k: Option<u32>,
    /// Error bound of estimates, as a share of the namespace's accesses; at most 1/(2k), the
    /// same on all nodes [default: 1/(2k)]. For each namespace in use, at most 8, a worker thread
    /// needs up to k KiB and 16 log2(1/delta)/epsilon bytes; more than 4 MiB per namespace is
    /// refused
    #[arg(long, env = "TORC_HOT_KEYS_EPSILON", value_name = "SHARE")]
    pub hot_keys_epsilon: Option<f64>,
    /// Probability that an estimate exceeds this bound; the same on all nodes [default:
    /// 0.03125]
    #[arg(long, env = "TORC_HOT_KEYS_DELTA", value_name = "PROBABILITY")]
    pub hot_keys_delta: Option<f64>,
    /// Record only digests of hot keys, never keys; enabling this deletes history that
    /// contains keys [default: false]
    #[arg(long, env = "TORC_HOT_KEYS_REDACT", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub hot_keys_redact: Option<bool>,
    /// OTLP gRPC collector to send traces to: http://HOST:PORT, usually port 4317. Set it on every node, or
    /// traces have gaps (docs/traces.md)
    #[arg(long, env = "TORC_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Share of operations to trace, 0 to 1; operations that their client samples are always traced
    /// [default: 0.001]
    #[arg(long, env = "TORC_TRACE_RATIO", value_name = "SHARE")]
    pub trace_ratio: Option<f64>,
    /// Log operations that take this many milliseconds or longer, with their trace ids but not
    /// their keys; at most 20 lines per second [default: log none]
    #[arg(long, env = "TORC_SLOW_MS", value_name = "MS")]
    pub slow_ms: Option<u64>,
    /// For tests: lifetime of certificates that this node issues
    #[arg(
        long,
        env = "TORC_TEST_CERTIFICATE_LIFE_S",
        value_name = "SECONDS",
        hide = true
    )]
    pub test_certificate_life_s: Option<u64>,
    /// For tests: file with the links between nodes to cut
    #[arg(long, env = "TORC_TEST_LINK_FAULTS", value_name = "FILE", hide = true)]
    pub test_link_faults: Option<PathBuf>,
    /// For tests: file with the error of the wall clock
    #[arg(long, env = "TORC_TEST_CLOCK_SHIFT", value_name = "FILE", hide = true)]
    pub test_clock_shift: Option<PathBuf>,
    /// For tests: time for clients to authenticate, and to read a message of a long answer
    #[arg(long, env = "TORC_TEST_IDLE_TIME_MS", value_name = "MS", hide = true)]
    pub test_idle_time_ms: Option<u64>,
    /// For tests: file with the faults of the disk
    #[arg(long, env = "TORC_TEST_DISK_FAULTS", value_name = "FILE", hide = true)]
    pub test_disk_faults: Option<PathBuf>,
}

/// A setting that is never printed.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub(super) String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl RawSettings {
    /// Reads a settings file.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file, and the line where it is malformed.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Unreadable {
            file: file.to_owned(),
            source,
        })?;
        Self::parse(file, &text)
    }

    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let malformed = |error: toml::de::Error| {
            let before = error.span().and_then(|at| text.get(..at.start));
            let lines_before = before.map_or(0, |before| before.matches('\n').count());
            let line = text.lines().nth(lines_before).unwrap_or_default();
            let name = line.split('=').next().unwrap_or_default();
            ConfigError::Malformed {
                file: file.to_owned(),
                line: lines_before + 1,
                name: name.trim().to_owned(),
                why: error.message().replace('\n', ", "),
            }
        };
        let table: toml::Table = text.parse().map_err(malformed)?;
        let args = Self::augment_args(clap::Command::new(""));
        let known: Vec<&str> = args
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        if let Some(name) = table.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(ConfigError::Unknown {
                file: file.to_owned(),
                name: name.clone(),
                nearest: variables::nearest(name, known).map(str::to_owned),
            });
        }
        toml::from_str(text).map_err(malformed)
    }

    /// Fills unset settings from `fallback`.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            data_dir: self.data_dir.or(fallback.data_dir),
            grpc_addr: self.grpc_addr.or(fallback.grpc_addr),
            peer_addr: self.peer_addr.or(fallback.peer_addr),
            http_addr: self.http_addr.or(fallback.http_addr),
            advertise_addr: self.advertise_addr.or(fallback.advertise_addr),
            advertise_peer_addr: self.advertise_peer_addr.or(fallback.advertise_peer_addr),
            advertise_http_addr: self.advertise_http_addr.or(fallback.advertise_http_addr),
            resp_addr: self.resp_addr.or(fallback.resp_addr),
            advertise_resp_addr: self.advertise_resp_addr.or(fallback.advertise_resp_addr),
            audit_log: self.audit_log.or(fallback.audit_log),
            resp_db: self.resp_db.or(fallback.resp_db),
            bootstrap: self.bootstrap.or(fallback.bootstrap),
            found_with: self.found_with.or(fallback.found_with),
            zone: self.zone.or(fallback.zone),
            weight: self.weight.or(fallback.weight),
            partitions: self.partitions.or(fallback.partitions),
            replicas: self.replicas.or(fallback.replicas),
            positions: self.positions.or(fallback.positions),
            tls_cert: self.tls_cert.or(fallback.tls_cert),
            tls_key: self.tls_key.or(fallback.tls_key),
            tls_ca: self.tls_ca.or(fallback.tls_ca),
            tls_12: self.tls_12.or(fallback.tls_12),
            secure: self.secure.or(fallback.secure),
            join: self.join.or(fallback.join),
            authority: self.authority.or(fallback.authority),
            test_certificate_life_s: self
                .test_certificate_life_s
                .or(fallback.test_certificate_life_s),
            insecure: self.insecure.or(fallback.insecure),
            memtable_limit_mib: self.memtable_limit_mib.or(fallback.memtable_limit_mib),
            log_segment_mib: self.log_segment_mib.or(fallback.log_segment_mib),
            flush_log_mib: self.flush_log_mib.or(fallback.flush_log_mib),
            flush_after_s: self.flush_after_s.or(fallback.flush_after_s),
            flush_mib_per_s: self.flush_mib_per_s.or(fallback.flush_mib_per_s),
            most_slices: self.most_slices.or(fallback.most_slices),
            compact_mib_per_s: self.compact_mib_per_s.or(fallback.compact_mib_per_s),
            compact_job_mib: self.compact_job_mib.or(fallback.compact_job_mib),
            compact_when_idle_s: self.compact_when_idle_s.or(fallback.compact_when_idle_s),
            cut_damaged_log: self.cut_damaged_log.or(fallback.cut_damaged_log),
            gate_rate: self.gate_rate.or(fallback.gate_rate),
            transfer_mib_per_s: self.transfer_mib_per_s.or(fallback.transfer_mib_per_s),
            transfer_parallel: self.transfer_parallel.or(fallback.transfer_parallel),
            max_streams: self.max_streams.or(fallback.max_streams),
            max_connections: self.max_connections.or(fallback.max_connections),
            max_operations: self.max_operations.or(fallback.max_operations),
            in_flight_mib: self.in_flight_mib.or(fallback.in_flight_mib),
            worker_threads: self.worker_threads.or(fallback.worker_threads),
            hot_keys: self.hot_keys.or(fallback.hot_keys),
            hot_keys_interval_s: self.hot_keys_interval_s.or(fallback.hot_keys_interval_s),
            hot_keys_history_mib: self.hot_keys_history_mib.or(fallback.hot_keys_history_mib),
            hot_keys_k: self.hot_keys_k.or(fallback.hot_keys_k),
            hot_keys_epsilon: self.hot_keys_epsilon.or(fallback.hot_keys_epsilon),
            hot_keys_delta: self.hot_keys_delta.or(fallback.hot_keys_delta),
            hot_keys_redact: self.hot_keys_redact.or(fallback.hot_keys_redact),
            otlp_endpoint: self.otlp_endpoint.or(fallback.otlp_endpoint),
            trace_ratio: self.trace_ratio.or(fallback.trace_ratio),
            slow_ms: self.slow_ms.or(fallback.slow_ms),
            test_link_faults: self.test_link_faults.or(fallback.test_link_faults),
            test_clock_shift: self.test_clock_shift.or(fallback.test_clock_shift),
            test_idle_time_ms: self.test_idle_time_ms.or(fallback.test_idle_time_ms),
            test_disk_faults: self.test_disk_faults.or(fallback.test_disk_faults),
        }
    }
}
