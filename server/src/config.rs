//! Settings of a node: from flags, `TORC_*` variables and a TOML file, in that order
//! of precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use serde::Deserialize;
use torc_ring::topology::Release;
use torc_ring::{Partitions, Weight, Zone};
use torc_tls::{Files, JoinToken};

use crate::hot::HotSettings;
use crate::spans::TraceSettings;
use crate::tls_dir::TlsDir;
use crate::variables;
use torc_sketch::hot_keys::{HotKeysOptions, OptionsError};

/// How long certificates are valid that a node issues; it renews its own at two thirds.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// One operation in a thousand.
const USUAL_TRACE_RATIO: f64 = 0.001;
/// Numbers that a Redis client may select are below this.
const MOST_DATABASES: u32 = 1_024;
/// Two answers of the largest kind, twice [`torc_proto::MAX_MESSAGE_LEN`] each.
const LEAST_IN_FLIGHT_MIB: usize = (4 * torc_proto::MAX_MESSAGE_LEN) >> 20;

/// Everything that can be set, not yet checked. A name is the same as a flag
/// (`--grpc-addr`), a variable (`TORC_GRPC_ADDR`) and a key of the file (`grpc-addr`).
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawSettings {
    /// Where the node keeps its data; created when missing
    #[arg(long, env = "TORC_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to serve gRPC on [default: 127.0.0.1:7400]
    #[arg(long, env = "TORC_GRPC_ADDR", value_name = "IP:PORT")]
    pub grpc_addr: Option<SocketAddr>,
    /// Address to serve HTTP on [default: 127.0.0.1:7480]
    #[arg(long, env = "TORC_HTTP_ADDR", value_name = "IP:PORT")]
    pub http_addr: Option<SocketAddr>,
    /// How others reach this node's gRPC [default: the gRPC address]
    #[arg(long, env = "TORC_ADVERTISE_ADDR", value_name = "HOST:PORT")]
    pub advertise_addr: Option<String>,
    /// How others reach this node's HTTP [default: the HTTP address]
    #[arg(long, env = "TORC_ADVERTISE_HTTP_ADDR", value_name = "HOST:PORT")]
    pub advertise_http_addr: Option<String>,
    /// Address to serve Redis clients on; not served unless given (docs/redis.md)
    #[arg(long, env = "TORC_RESP_ADDR", value_name = "IP:PORT")]
    pub resp_addr: Option<SocketAddr>,
    /// How others reach this node's address for Redis clients [default: that address]
    #[arg(long, env = "TORC_ADVERTISE_RESP_ADDR", value_name = "HOST:PORT")]
    pub advertise_resp_addr: Option<String>,
    /// The namespace that Redis clients SELECT by a number, comma separated; database 0 is `default`
    /// unless said otherwise [default: 0=default]
    #[arg(
        long,
        env = "TORC_RESP_DB",
        value_name = "NUMBER=NAMESPACE,..",
        value_delimiter = ','
    )]
    pub resp_db: Option<Vec<String>>,
    /// Where to write who changed the cluster and who was denied what, JSON lines; 8 files of 16 MiB at
    /// most [default: audit/audit.log in the data directory]
    #[arg(long, env = "TORC_AUDIT_LOG", value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Found a new cluster if this node belongs to none
    #[arg(long, env = "TORC_BOOTSTRAP", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub bootstrap: Option<bool>,
    /// With --bootstrap: found the cluster together with these nodes (HOST:PORT of their gRPC,
    /// comma separated), waiting until all of them answer
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
    /// Share of the load, percent of a normal node [default: 100]
    #[arg(long, env = "TORC_WEIGHT", value_name = "PERCENT")]
    pub weight: Option<u32>,
    /// Partitions of the cluster, a power of two; the same on every node, fixed for ever
    /// [default: 4096]
    #[arg(long, env = "TORC_PARTITIONS", value_name = "COUNT")]
    pub partitions: Option<u32>,
    /// Copies of every record, 1 to 5, fixed when the cluster is founded [default: 3]
    #[arg(long, env = "TORC_REPLICAS", value_name = "COUNT")]
    pub replicas: Option<u8>,
    /// With --bootstrap: positions on the ring of a node of normal weight [default: 32]
    #[arg(long, env = "TORC_POSITIONS", value_name = "COUNT")]
    pub positions: Option<u16>,
    /// Encrypt every connection: PEM file of this node's certificate, read again when it changes
    #[arg(long, env = "TORC_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, env = "TORC_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of the authorities whose certificates nodes and clients must show
    #[arg(long, env = "TORC_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Encrypt every connection with certificates that the node keeps in its data directory: with --bootstrap
    /// the node makes an authority and prints the first tokens, with --join it gets a certificate from its
    /// cluster; later neither is needed [default: whether the data directory has certificates]
    #[arg(long, env = "TORC_SECURE", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub secure: Option<bool>,
    /// With --secure: a directory with the cluster's authority, ca.pem and ca-key.pem (`kvctl ca create`), for nodes
    /// that found a cluster together; read once, at the first start
    #[arg(long, env = "TORC_AUTHORITY", value_name = "DIR")]
    pub authority: Option<PathBuf>,
    /// Get into a secure cluster with a token that `kvctl token create --join` printed; `kvctl join-node` then
    /// moves data to the node. Others may see the command line: rather use TORC_JOIN
    #[arg(
        long,
        env = "TORC_JOIN",
        value_name = "TOKEN@HOST:PORT",
        hide_env_values = true
    )]
    pub join: Option<Secret>,
    /// Speak TLS 1.2 too, not 1.3 alone [default: false]
    #[arg(long, env = "TORC_TLS_12", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub tls_12: Option<bool>,
    /// Serve on other addresses than loopback although nothing is encrypted or authenticated
    #[arg(long, env = "TORC_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub insecure: Option<bool>,
    /// Most memory for records that are not flushed yet, MiB: a flush starts at half
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
    /// Most bytes per second that flushes write, MiB [default: 512]
    #[arg(long, env = "TORC_FLUSH_MIB_PER_S", value_name = "MIB")]
    pub flush_mib_per_s: Option<u64>,
    /// Most slices of a partition that compaction leaves [default: 8]
    #[arg(long, env = "TORC_MOST_SLICES", value_name = "COUNT")]
    pub most_slices: Option<usize>,
    /// Most bytes per second that compaction writes, MiB [default: 128]
    #[arg(long, env = "TORC_COMPACT_MIB_PER_S", value_name = "MIB")]
    pub compact_mib_per_s: Option<u64>,
    /// About how much one compaction reads, and so the disk space that it needs, MiB [default: 256]
    #[arg(long, env = "TORC_COMPACT_JOB_MIB", value_name = "MIB")]
    pub compact_job_mib: Option<u64>,
    /// Compact each partition into one slice after this many seconds without writes [default: 10]
    #[arg(long, env = "TORC_COMPACT_WHEN_IDLE_S", value_name = "SECONDS")]
    pub compact_when_idle_s: Option<u64>,
    /// Start although the end of the log is damaged and acknowledged writes may be lost: only
    /// where the other replicas are lost too, or there are none [default: false]
    #[arg(long, env = "TORC_CUT_DAMAGED_LOG", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub cut_damaged_log: Option<bool>,
    /// Share of absent keys that a Bloom gate lets through, 0.0001 to 0.5 [default: 0.01]
    #[arg(long, env = "TORC_GATE_RATE", value_name = "SHARE")]
    pub gate_rate: Option<f64>,
    /// Most bytes a second this node sends to new owners of partitions, MiB [default: 256]
    #[arg(long, env = "TORC_TRANSFER_MIB_PER_S", value_name = "MIB")]
    pub transfer_mib_per_s: Option<u64>,
    /// Most partitions this node copies at a time [default: 16]
    #[arg(long, env = "TORC_TRANSFER_PARALLEL", value_name = "COUNT")]
    pub transfer_parallel: Option<usize>,
    /// Most connections of clients at a time, on each port; one address may have three quarters of
    /// them [default: a third of the files that the process may open, with --resp-addr a quarter, at
    /// most 10000]
    #[arg(long, env = "TORC_MAX_CONNECTIONS", value_name = "COUNT")]
    pub max_connections: Option<usize>,
    /// Most requests under way on one connection [default: 1024]
    #[arg(long, env = "TORC_MAX_STREAMS", value_name = "COUNT")]
    pub max_streams: Option<u32>,
    /// Most operations under way on this node; more are refused at once, to be tried again
    /// [default: 4096]
    #[arg(long, env = "TORC_MAX_OPERATIONS", value_name = "COUNT")]
    pub max_operations: Option<usize>,
    /// Most bytes of clients' requests and answers in memory at a time, MiB; more are refused, to be
    /// tried again. At least 64 [default: 256]
    #[arg(long, env = "TORC_IN_FLIGHT_MIB", value_name = "MIB")]
    pub in_flight_mib: Option<usize>,
    /// Threads that serve gRPC connections [default: one a core]
    #[arg(long, env = "TORC_WORKER_THREADS", value_name = "COUNT")]
    pub worker_threads: Option<usize>,
    /// Count accesses, so that hot keys can be asked for [default: true]
    #[arg(long, env = "TORC_HOT_KEYS", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub hot_keys: Option<bool>,
    /// Shortest time of which hot keys are told apart [default: 5]
    #[arg(long, env = "TORC_HOT_KEYS_INTERVAL_S", value_name = "SECONDS")]
    pub hot_keys_interval_s: Option<u64>,
    /// Most disk for the history of hot keys, MiB; with less, older times are kept more
    /// coarsely [default: 16]
    #[arg(long, env = "TORC_HOT_KEYS_HISTORY_MIB", value_name = "MIB")]
    pub hot_keys_history_mib: Option<u64>,
    /// Keys with 1/k of the accesses to their namespace are hot [default: 1000]
    #[arg(long, env = "TORC_HOT_KEYS_K", value_name = "K")]
    pub hot_keys_k: Option<u32>,
    /// How far an estimate may exceed the truth, as a share of the namespace's accesses; at most
    /// 1/(2k), the same at all nodes [default: 1/(2k)]. Each namespace takes k KiB and 16
    /// log2(1/delta)/epsilon bytes at most in each worker thread: together at most 4 MiB, of 8
    /// namespaces at a time
    #[arg(long, env = "TORC_HOT_KEYS_EPSILON", value_name = "SHARE")]
    pub hot_keys_epsilon: Option<f64>,
    /// With what probability an estimate may exceed the truth by more; the same at all nodes
    /// [default: 0.03125]
    #[arg(long, env = "TORC_HOT_KEYS_DELTA", value_name = "PROBABILITY")]
    pub hot_keys_delta: Option<f64>,
    /// Take down the digests of hot keys only, never the keys; a history that tells keys is
    /// removed [default: false]
    #[arg(long, env = "TORC_HOT_KEYS_REDACT", num_args = 0..=1, default_missing_value = "true")]
    #[arg(value_parser = BoolishValueParser::new())]
    pub hot_keys_redact: Option<bool>,
    /// Send traces of operations to this collector, which speaks OTLP by gRPC: http://HOST:PORT, usually port
    /// 4317. The same on every node, or traces have gaps (docs/traces.md)
    #[arg(long, env = "TORC_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Share of operations that are traced if their clients say nothing, 0 to 1; those whose clients say that
    /// they are sampled always are [default: 0.001]
    #[arg(long, env = "TORC_TRACE_RATIO", value_name = "SHARE")]
    pub trace_ratio: Option<f64>,
    /// Log each operation that takes longer than this, with what it was and its trace id, never its key; some
    /// lines a second at most. Not unless given
    #[arg(long, env = "TORC_SLOW_MS", value_name = "MS")]
    pub slow_ms: Option<u64>,
    /// For tests: how long certificates are valid that this node issues
    #[arg(
        long,
        env = "TORC_TEST_CERTIFICATE_LIFE_S",
        value_name = "SECONDS",
        hide = true
    )]
    pub test_certificate_life_s: Option<u64>,
    /// For tests: a file that says which links between nodes are cut
    #[arg(long, env = "TORC_TEST_LINK_FAULTS", value_name = "FILE", hide = true)]
    pub test_link_faults: Option<PathBuf>,
    /// For tests: a file that says how wrong the wall clock is
    #[arg(long, env = "TORC_TEST_CLOCK_SHIFT", value_name = "FILE", hide = true)]
    pub test_clock_shift: Option<PathBuf>,
    /// For tests: a file that says how slow and faulty the disk is
    #[arg(long, env = "TORC_TEST_DISK_FAULTS", value_name = "FILE", hide = true)]
    pub test_disk_faults: Option<PathBuf>,
}

/// A setting that nothing shows.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

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

/// Why a node cannot start with these settings. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the settings in {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file names a setting that there is not.
    #[error("{}: there is no setting `{name}`{}", .file.display(), did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// The file.
        file: PathBuf,
        /// What it names.
        name: String,
        /// A setting of nearly that name.
        nearest: Option<String>,
    },
    /// The file is not TOML of the known settings.
    #[error("{}: {source}", .file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where and what.
        source: Box<toml::de::Error>,
    },
    /// A setting is missing or out of its range.
    #[error("--{setting}: {problem}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// Serving beyond this machine without protection must be asked for.
    #[error(
        "{address} is not a loopback address, and connections are neither encrypted nor authenticated: \
         bind 127.0.0.1, add --secure, give --tls-cert, --tls-key and --tls-ca, or add --insecure if the network is trusted"
    )]
    Exposed {
        /// The address in question.
        address: SocketAddr,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

/// What was set of what a cluster goes by the topology for.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The zone.
    pub zone: Option<Zone>,
    /// The weight, percent.
    pub weight: Option<u32>,
    /// Copies of every record.
    pub replicas: Option<u8>,
}

/// Checked settings of a node.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What was set, where the topology may say otherwise.
    pub given: Given,
    /// Where the node keeps its data.
    pub data_dir: PathBuf,
    /// Address to serve gRPC on; port 0 picks a free one.
    pub grpc_addr: SocketAddr,
    /// Address to serve HTTP on; port 0 picks a free one.
    pub http_addr: SocketAddr,
    /// How others reach gRPC; none: the bound address.
    pub advertise_addr: Option<String>,
    /// How others reach HTTP; none: the bound address.
    pub advertise_http_addr: Option<String>,
    /// Address to serve Redis clients on; none: they are not served.
    pub resp_addr: Option<SocketAddr>,
    /// How others reach it; none: the bound address.
    pub advertise_resp_addr: Option<String>,
    /// Namespaces by the numbers that Redis clients select.
    pub resp_databases: BTreeMap<u32, String>,
    /// The audit log; none: in the data directory.
    pub audit_log: Option<PathBuf>,
    /// Found a cluster if this node belongs to none.
    pub bootstrap: bool,
    /// gRPC addresses of the other founding members.
    pub found_with: Vec<String>,
    /// Failure domain.
    pub zone: Zone,
    /// Share of the load.
    pub weight: Weight,
    /// Partitions of the cluster.
    pub partitions: Partitions,
    /// Copies of every record, for a new cluster.
    pub replicas: u8,
    /// Positions of a node of normal weight, for a new cluster.
    pub positions: u16,
    /// Most memory for records, bytes.
    pub memtable_limit_bytes: u64,
    /// Size of a segment of the commit log, bytes.
    pub log_segment_bytes: u64,
    /// Log between flushes, bytes.
    pub flush_log_bytes: u64,
    /// Longest time between flushes, unless the memtable holds little.
    pub flush_after: Duration,
    /// Most bytes per second that flushes write.
    pub flush_bytes_per_s: u64,
    /// Most slices of a partition that compaction leaves.
    pub most_slices: usize,
    /// Most bytes per second that compaction writes.
    pub compact_bytes_per_s: u64,
    /// About how much one compaction reads, bytes.
    pub compact_job_bytes: u64,
    /// Compact each partition into one slice after this many seconds without writes.
    pub compact_when_idle: Duration,
    /// Whether to start without the last batch of the log if that is damaged.
    pub cut_damaged_log: bool,
    /// Share of absent keys that a Bloom gate lets through.
    pub gate_rate: f64,
    /// Most bytes a second sent to new owners.
    pub transfer_bytes_per_s: u64,
    /// Most partitions copied at a time.
    pub transfer_parallel: usize,
    /// Most requests under way on one connection.
    pub max_streams: u32,
    /// Most connections of clients at a time, on each port.
    pub max_connections: usize,
    /// Most operations under way on the node.
    pub max_operations: usize,
    /// Most bytes of clients' requests and answers in memory at a time.
    pub in_flight_bytes: usize,
    /// Threads that serve gRPC connections.
    pub worker_threads: usize,
    /// Counting accesses.
    pub hot: HotSettings,
    /// Where traces go; none: nothing is traced.
    pub traces: Option<TraceSettings>,
    /// Operations that take longer are logged; none: none is.
    pub slow: Option<Duration>,
    /// What this node says that it runs: this release, but for tests of mixed ones.
    pub release: Release,
    /// For tests: the file of [`Faults`](torc_links::Faults).
    pub test_link_faults: Option<PathBuf>,
    /// For tests: the file that says how many milliseconds the wall clock is ahead.
    pub test_clock_shift: Option<PathBuf>,
    /// For tests: the file that says how slow and faulty the store's disk is.
    pub test_disk_faults: Option<PathBuf>,
    /// Whether a non-loopback address is served without protection.
    pub insecure: bool,
    /// What encrypts and authenticates, if anything does.
    pub tls: Option<TlsSettings>,
    /// The node keeps its certificates itself.
    pub secure: Option<SecureSettings>,
}

/// Of a node that keeps its certificates itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureSettings {
    /// How to get some if there are none; none: make an authority, when bootstrapping.
    pub join: Option<JoinToken>,
    /// Where the authority is instead.
    pub authority: Option<PathBuf>,
    /// How long those are valid that it issues.
    pub certificate_life: Duration,
}

/// What encrypts and authenticates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// Where the certificate, its key and the authorities stand.
    pub files: Files,
    /// Whether TLS 1.2 is spoken too.
    pub tls12: bool,
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

    fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let malformed = |source| ConfigError::Malformed {
            file: file.to_owned(),
            source: Box::new(source),
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

    /// Takes from `fallback` what is not set here.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            data_dir: self.data_dir.or(fallback.data_dir),
            grpc_addr: self.grpc_addr.or(fallback.grpc_addr),
            http_addr: self.http_addr.or(fallback.http_addr),
            advertise_addr: self.advertise_addr.or(fallback.advertise_addr),
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
            test_disk_faults: self.test_disk_faults.or(fallback.test_disk_faults),
        }
    }

    /// Fills in defaults and checks everything.
    ///
    /// # Errors
    /// [`ConfigError`] naming the setting.
    #[expect(clippy::too_many_lines, reason = "one line a setting")]
    pub fn check(self) -> Result<Settings, ConfigError> {
        let hot = self.hot()?;
        let traces = self.traces()?;
        let secure = self.secure()?;
        let tls = self.tls(secure.is_some())?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let zone = self.zone.map(Zone::new).transpose();
        let zone = zone.map_err(|error| problem("zone", error))?;
        let given = Given {
            zone: zone.clone(),
            weight: self.weight,
            replicas: self.replicas,
        };
        let settings = Settings {
            given,
            data_dir: self
                .data_dir
                .ok_or_else(|| problem("data-dir", "say where to keep the data"))?,
            grpc_addr: self.grpc_addr.unwrap_or(loopback(7400)),
            http_addr: self.http_addr.unwrap_or(loopback(7480)),
            advertise_addr: host_port("advertise-addr", self.advertise_addr)?,
            advertise_http_addr: host_port("advertise-http-addr", self.advertise_http_addr)?,
            resp_addr: self.resp_addr,
            advertise_resp_addr: host_port("advertise-resp-addr", self.advertise_resp_addr)?,
            resp_databases: databases(self.resp_db.unwrap_or_default())?,
            audit_log: self.audit_log,
            bootstrap: self.bootstrap.unwrap_or(false),
            found_with: self.found_with.unwrap_or_default(),
            zone: zone.unwrap_or_default(),
            weight: Weight::new(self.weight.unwrap_or(100))
                .map_err(|error| problem("weight", error))?,
            partitions: match self.partitions {
                Some(count) => {
                    Partitions::new(count).map_err(|error| problem("partitions", error))?
                }
                None => Partitions::DEFAULT,
            },
            replicas: within("replicas", self.replicas.unwrap_or(3), 1, 5)?,
            positions: within("positions", self.positions.unwrap_or(32), 1, 1024)?,
            memtable_limit_bytes: mib("memtable-limit-mib", self.memtable_limit_mib, 512, 1 << 20)?,
            log_segment_bytes: mib("log-segment-mib", self.log_segment_mib, 64, 1024)?,
            flush_log_bytes: mib("flush-log-mib", self.flush_log_mib, 128, 1 << 20)?,
            flush_after: seconds("flush-after-s", self.flush_after_s, 300)?,
            flush_bytes_per_s: mib("flush-mib-per-s", self.flush_mib_per_s, 512, 1 << 20)?,
            most_slices: within("most-slices", self.most_slices.unwrap_or(8), 2, 64)?,
            compact_bytes_per_s: mib("compact-mib-per-s", self.compact_mib_per_s, 128, 1 << 20)?,
            compact_job_bytes: mib("compact-job-mib", self.compact_job_mib, 256, 1 << 20)?,
            compact_when_idle: seconds("compact-when-idle-s", self.compact_when_idle_s, 10)?,
            cut_damaged_log: self.cut_damaged_log.unwrap_or(false),
            gate_rate: rate("gate-rate", self.gate_rate.unwrap_or(0.01))?,
            transfer_bytes_per_s: mib("transfer-mib-per-s", self.transfer_mib_per_s, 256, 1 << 20)?,
            transfer_parallel: within(
                "transfer-parallel",
                self.transfer_parallel.unwrap_or(16),
                1,
                256,
            )?,
            max_operations: within(
                "max-operations",
                self.max_operations.unwrap_or(4096),
                1,
                1 << 20,
            )?,
            max_connections: within(
                "max-connections",
                self.max_connections.unwrap_or_else(|| {
                    usual_connections(2 + usize::from(self.resp_addr.is_some()))
                }),
                1,
                1 << 20,
            )?,
            max_streams: within("max-streams", self.max_streams.unwrap_or(1024), 1, 65_536)?,
            in_flight_bytes: within(
                "in-flight-mib",
                self.in_flight_mib.unwrap_or(256),
                LEAST_IN_FLIGHT_MIB,
                1 << 20,
            )? << 20,
            worker_threads: within(
                "worker-threads",
                self.worker_threads.unwrap_or(cores),
                1,
                256,
            )?,
            hot,
            traces,
            slow: self.slow_ms.map(Duration::from_millis),
            release: Release::ours(),
            test_link_faults: self.test_link_faults,
            test_clock_shift: self.test_clock_shift,
            test_disk_faults: self.test_disk_faults,
            insecure: self.insecure.unwrap_or(false),
            tls,
            secure,
        };
        settings.check_exposure()?;
        settings.check_advertised()?;
        if !settings.found_with.is_empty() && !settings.bootstrap {
            return Err(problem("found-with", "goes with --bootstrap"));
        }
        Ok(settings)
    }
}

impl RawSettings {
    /// Where traces go, and of how many operations.
    fn traces(&self) -> Result<Option<TraceSettings>, ConfigError> {
        let ratio = self.trace_ratio.unwrap_or(USUAL_TRACE_RATIO);
        if !(0.0..=1.0).contains(&ratio) {
            return Err(problem(
                "trace-ratio",
                format!("{ratio} is not from 0 to 1"),
            ));
        }
        let Some(endpoint) = self.otlp_endpoint.clone() else {
            let why = "goes with --otlp-endpoint";
            let is_alone = self.trace_ratio.is_some();
            return if is_alone {
                Err(problem("trace-ratio", why))
            } else {
                Ok(None)
            };
        };
        if cfg!(not(feature = "otlp")) {
            let why = "this kvd was built without traces: build it with `--features otlp`, or leave this out";
            return Err(problem("otlp-endpoint", why));
        }
        let uri = endpoint.parse::<http::Uri>();
        let uri =
            uri.map_err(|error| problem("otlp-endpoint", format!("`{endpoint}`: {error}")))?;
        if uri.scheme_str() != Some("http") || uri.port_u16().is_none() {
            let why = format!(
                "`{endpoint}` is not http://HOST:PORT. To send traces encrypted, run a collector on this machine that does"
            );
            return Err(problem("otlp-endpoint", why));
        }
        Ok(Some(TraceSettings { endpoint, ratio }))
    }

    /// What encrypts: the files that were named, unless the node keeps its certificates itself.
    fn tls(&self, is_secure: bool) -> Result<Option<TlsSettings>, ConfigError> {
        if let Some(dir) = self.data_dir.as_deref().filter(|_| is_secure) {
            return Ok(Some(TlsSettings {
                files: TlsDir::of(dir).files(),
                tls12: self.tls_12.unwrap_or(false),
            }));
        }
        let files = [&self.tls_cert, &self.tls_key, &self.tls_ca];
        tls(files.map(Clone::clone), self.tls_12)
    }

    /// Whether the node keeps its certificates itself: because it is to, or because its data directory has some.
    fn secure(&self) -> Result<Option<SecureSettings>, ConfigError> {
        let dir = self.data_dir.as_deref().map(TlsDir::of);
        // The variables of the files are kvctl's, too: they may name the node's own.
        let own = dir.as_ref().map(TlsDir::files);
        let own = own.map(|files| [files.certificate, files.key, files.authorities]);
        let given = [&self.tls_cert, &self.tls_key, &self.tls_ca];
        let of_own = own.map_or([None, None, None], |files| files.map(Some));
        let is_foreign =
            |(given, own): (&Option<PathBuf>, &Option<PathBuf>)| given.is_some() && given != own;
        let has_files = given.into_iter().zip(&of_own).any(is_foreign);
        let is_there = || dir.as_ref().is_some_and(TlsDir::is_complete);
        let join = self.join.as_ref().map(|text| text.0.parse::<JoinToken>());
        let join = join.transpose().map_err(|error| problem("join", error))?;
        let is_asked_for = self.secure == Some(true) || join.is_some() || self.authority.is_some();
        if is_asked_for && has_files {
            let why = "goes without --tls-cert, --tls-key and --tls-ca";
            return Err(problem("secure", why));
        }
        if join.is_some() && self.secure == Some(false) {
            return Err(problem(
                "join",
                "is for secure clusters: leave --secure=false out",
            ));
        }
        if self.authority.is_some() && (join.is_some() || has_files || self.secure == Some(false)) {
            return Err(problem(
                "authority",
                "goes with --secure, and without --join and --tls-cert",
            ));
        }
        if join.is_some() && self.bootstrap == Some(true) {
            let why = "goes without --bootstrap: a node founds a cluster or gets into one";
            return Err(problem("join", why));
        }
        let is_found = self.secure.is_none() && !has_files && is_there();
        if !is_asked_for && !is_found {
            return Ok(None);
        }
        let founds_with = self
            .found_with
            .as_ref()
            .is_some_and(|with| !with.is_empty());
        if founds_with && self.authority.is_none() && !is_there() {
            let why = "the other nodes of a new secure cluster come with --join: leave this out, or give all of them one \
                       --authority";
            return Err(problem("found-with", why));
        }
        let life = self.test_certificate_life_s.map(Duration::from_secs);
        Ok(Some(SecureSettings {
            join,
            authority: self.authority.clone(),
            certificate_life: life.unwrap_or(CERTIFICATE_LIFE),
        }))
    }

    fn hot(&self) -> Result<HotSettings, ConfigError> {
        let counting = counting(self.hot_keys_k, self.hot_keys_epsilon, self.hot_keys_delta)?;
        Ok(HotSettings {
            k: counting.k,
            shape: counting.shape,
            enabled: self.hot_keys.unwrap_or(true),
            interval: seconds("hot-keys-interval-s", self.hot_keys_interval_s, 5)?,
            history_bytes: mib("hot-keys-history-mib", self.hot_keys_history_mib, 16, 1024)?,
            redact: self.hot_keys_redact.unwrap_or(false),
        })
    }
}

impl Settings {
    /// By which names and addresses clients reach the node: as advertised, as bound, and on this machine.
    pub(crate) fn names(&self, bound: impl Iterator<Item = SocketAddr>) -> Vec<String> {
        let advertised = [
            &self.advertise_addr,
            &self.advertise_http_addr,
            &self.advertise_resp_addr,
        ];
        let host = |address: &String| {
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            host.trim_matches(['[', ']']).to_owned()
        };
        let advertised = advertised.into_iter().flatten().map(host);
        let bound = bound.map(|it| it.ip()).filter(|ip| !ip.is_unspecified());
        let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let bound = bound.map(|ip| ip.to_string());
        let names: BTreeSet<_> = advertised.chain(bound).chain(local).collect();
        names.into_iter().collect()
    }

    fn check_exposure(&self) -> Result<(), ConfigError> {
        let exposed = [self.grpc_addr, self.http_addr]
            .into_iter()
            .chain(self.resp_addr)
            .find(|address| !address.ip().is_loopback());
        match exposed {
            Some(address) if !self.insecure && self.tls.is_none() => {
                Err(ConfigError::Exposed { address })
            }
            _ => Ok(()),
        }
    }
}

impl Settings {
    /// What is served to other machines without TLS.
    pub(crate) fn exposed(&self) -> Vec<String> {
        let doors = [
            ("grpc", Some(self.grpc_addr)),
            ("http", Some(self.http_addr)),
            ("resp", self.resp_addr),
        ];
        let is_exposed = |address: SocketAddr| self.tls.is_none() && !address.ip().is_loopback();
        let exposed = doors.iter().filter(|(_, it)| it.is_some_and(is_exposed));
        exposed.map(|(name, _)| (*name).to_owned()).collect()
    }

    /// An address that stands for all of this machine's means nothing to others.
    fn check_advertised(&self) -> Result<(), ConfigError> {
        let pairs = [
            ("advertise-addr", self.grpc_addr, &self.advertise_addr),
            (
                "advertise-http-addr",
                self.http_addr,
                &self.advertise_http_addr,
            ),
        ];
        let resp = self.resp_addr.map(|bound| {
            let advertised = &self.advertise_resp_addr;
            ("advertise-resp-addr", bound, advertised)
        });
        for (setting, bound, advertised) in pairs.into_iter().chain(resp) {
            if bound.ip().is_unspecified() && advertised.is_none() {
                let why =
                    format!("{bound} is no address that others can connect to: say HOST:PORT");
                return Err(problem(setting, why));
            }
        }
        Ok(())
    }
}

/// All three files, or none.
fn tls(
    files: [Option<PathBuf>; 3],
    tls12: Option<bool>,
) -> Result<Option<TlsSettings>, ConfigError> {
    match files {
        [Some(certificate), Some(key), Some(authorities)] => Ok(Some(TlsSettings {
            files: Files {
                certificate,
                key,
                authorities,
            },
            tls12: tls12.unwrap_or(false),
        })),
        [None, None, None] if tls12.is_none() => Ok(None),
        [None, None, None] => Err(problem("tls-12", "goes with --tls-cert")),
        [None, _, _] => Err(problem("tls-cert", "goes with --tls-key and --tls-ca")),
        [_, None, _] => Err(problem("tls-key", "goes with --tls-cert and --tls-ca")),
        [_, _, None] => Err(problem("tls-ca", "goes with --tls-cert and --tls-key")),
    }
}

fn seconds(
    setting: &'static str,
    given: Option<u64>,
    default: u64,
) -> Result<Duration, ConfigError> {
    let week = 7 * 24 * 3600;
    within(setting, given.unwrap_or(default), 1, week).map(Duration::from_secs)
}

/// What hot keys are counted with; the seed is the cluster's.
fn counting(
    k: Option<u32>,
    epsilon: Option<f64>,
    delta: Option<f64>,
) -> Result<HotKeysOptions, ConfigError> {
    HotKeysOptions::new(k.unwrap_or(1000), epsilon, delta, 0).map_err(|error| {
        let setting = match error {
            OptionsError::Shape(_) if delta.is_some() && epsilon.is_none() => "hot-keys-delta",
            OptionsError::Shape(_) | OptionsError::Coarse { .. } => "hot-keys-epsilon",
            _ => "hot-keys-k",
        };
        problem(setting, error)
    })
}

fn rate(setting: &'static str, given: f64) -> Result<f64, ConfigError> {
    if (0.0001..=0.5).contains(&given) {
        Ok(given)
    } else {
        Err(problem(
            setting,
            format!("{given} is not between 0.0001 and 0.5"),
        ))
    }
}

fn problem(setting: &'static str, problem: impl std::fmt::Display) -> ConfigError {
    ConfigError::Setting {
        setting,
        problem: format!("{problem}"),
    }
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    setting: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<T, ConfigError> {
    if value < least || value > most {
        return Err(problem(
            setting,
            format!("{value} is not within {least} to {most}"),
        ));
    }
    Ok(value)
}

/// Files that may be open, divided among the ports, and the store with other nodes.
fn usual_connections(ports: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    (limit / (ports + 1)).clamp(16, 10_000)
}

fn mib(
    setting: &'static str,
    value: Option<u64>,
    default: u64,
    most: u64,
) -> Result<u64, ConfigError> {
    Ok(within(setting, value.unwrap_or(default), 1, most)? << 20)
}

/// `NUMBER=NAMESPACE` of each.
fn databases(given: Vec<String>) -> Result<BTreeMap<u32, String>, ConfigError> {
    let mut databases = BTreeMap::new();
    for text in given {
        let pair = text.split_once('=').and_then(|(number, namespace)| {
            let number = number
                .parse()
                .ok()
                .filter(|number| *number < MOST_DATABASES)?;
            (!namespace.is_empty()).then(|| (number, namespace.to_owned()))
        });
        let (number, namespace) = pair.ok_or_else(|| {
            let why =
                format!("`{text}` is not NUMBER=NAMESPACE with a number below {MOST_DATABASES}");
            problem("resp-db", why)
        })?;
        if databases.insert(number, namespace).is_some() {
            return Err(problem(
                "resp-db",
                format!("database {number} is named twice"),
            ));
        }
    }
    databases.entry(0).or_insert_with(|| "default".to_owned());
    Ok(databases)
}

fn host_port(setting: &'static str, text: Option<String>) -> Result<Option<String>, ConfigError> {
    let Some(text) = text else { return Ok(None) };
    let valid = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if valid && text.len() <= 256 {
        Ok(Some(text))
    } else {
        Err(problem(setting, format!("`{text}` is not HOST:PORT")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimal() -> RawSettings {
        RawSettings {
            data_dir: Some("d".into()),
            ..Default::default()
        }
    }

    #[test]
    fn a_flag_beats_the_file_and_the_file_beats_the_default() {
        let file: RawSettings = toml::from_str("zone = 'b'\nweight = 50").unwrap();
        let flags = RawSettings {
            zone: Some("a".into()),
            ..minimal()
        };
        let settings = flags.or(file).check().unwrap();
        assert_eq!(settings.zone.as_str(), "a");
        assert_eq!(settings.weight.percent(), 50);
        assert_eq!(settings.grpc_addr.port(), 7400);
    }

    #[test]
    fn an_unknown_key_in_the_file_is_refused_with_its_name() {
        let parse = |text| RawSettings::parse(Path::new("torc.toml"), text);
        let told = |text| parse(text).unwrap_err().to_string();
        let expected = "torc.toml: there is no setting `zonne`: did you mean `zone`?";
        assert_eq!(told("zonne = 'b'"), expected);
        let far = "torc.toml: there is no setting `qqq`";
        assert_eq!(told("qqq = 1"), far);
        assert!(parse("zone = 'b'\ndata-dir = '/d'").is_ok());
        assert!(told("zone = 3").contains("zone = 3"));
    }

    #[test]
    fn a_non_loopback_address_needs_insecure_and_a_name_for_others() {
        let exposed = RawSettings {
            grpc_addr: Some(([0, 0, 0, 0], 7400).into()),
            ..minimal()
        };
        assert!(matches!(
            exposed.clone().check(),
            Err(ConfigError::Exposed { .. })
        ));
        let nameless = RawSettings {
            insecure: Some(true),
            ..exposed
        };
        let error = nameless.clone().check().unwrap_err();
        assert!(
            error.to_string().starts_with("--advertise-addr: "),
            "{error}"
        );
        let named = RawSettings {
            advertise_addr: Some("torc-1:7400".into()),
            ..nameless
        };
        assert!(named.check().is_ok());
    }

    #[test]
    fn tls_takes_all_its_files_and_then_any_address_may_be_served_on() {
        let some = |name: &str| Some(PathBuf::from(name));
        let exposed = RawSettings {
            http_addr: Some(([10, 0, 0, 1], 7480).into()),
            tls_cert: some("c.pem"),
            tls_key: some("k.pem"),
            tls_ca: some("ca.pem"),
            ..minimal()
        };
        let settings = exposed.clone().check().unwrap();
        assert!(settings.tls.is_some_and(|tls| !tls.tls12));
        let partial = RawSettings {
            tls_ca: None,
            ..exposed
        };
        let error = partial.check().unwrap_err();
        assert!(error.to_string().starts_with("--tls-ca: "), "{error}");
    }

    #[test]
    fn a_secure_node_finds_its_certificates_and_takes_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let raw = || RawSettings {
            data_dir: Some(dir.path().to_owned()),
            http_addr: Some(([10, 0, 0, 1], 7480).into()),
            ..RawSettings::default()
        };
        let asked = || RawSettings {
            secure: Some(true),
            ..raw()
        };
        assert!(matches!(raw().check(), Err(ConfigError::Exposed { .. })));
        let settings = asked().check().unwrap();
        let files = TlsDir::of(dir.path()).files();
        assert_eq!(settings.tls.unwrap().files, files);
        assert!(settings.secure.is_some());
        let names = asked().check().unwrap();
        let names = names.names([SocketAddr::from(([10, 0, 0, 1], 7480))].into_iter());
        assert_eq!(names, ["10.0.0.1", "127.0.0.1", "::1", "localhost"]);

        let refused = |raw: RawSettings| raw.check().unwrap_err().to_string();
        let with_files = RawSettings {
            tls_cert: Some("c.pem".into()),
            ..asked()
        };
        assert!(refused(with_files).starts_with("--secure: "));
        let with_others = RawSettings {
            bootstrap: Some(true),
            found_with: Some(vec!["a:1".into()]),
            ..asked()
        };
        assert!(refused(with_others).starts_with("--found-with: "));
        let secret = "c0".repeat(32);
        let joining = |text: String| RawSettings {
            bootstrap: Some(true),
            join: Some(text.into()),
            ..raw()
        };
        let token = format!("{:016x}.{secret}.{}@a:1", 1, "ab".repeat(32));
        for text in [format!("1.{secret}"), token] {
            let shown = format!("{:?}", joining(text.clone()));
            let refused = refused(joining(text));
            assert!(refused.starts_with("--join: "), "{refused}");
            assert!(!refused.contains(&secret) && !shown.contains(&secret));
        }

        TlsDir::of(dir.path()).found().unwrap();
        assert!(raw().check().unwrap().secure.is_some(), "it is there");
        let named = RawSettings {
            tls_cert: Some(files.certificate),
            tls_key: Some(files.key),
            tls_ca: Some(files.authorities),
            ..raw()
        };
        assert!(named.check().unwrap().secure.is_some(), "they are its own");
        let plain = RawSettings {
            secure: Some(false),
            ..raw()
        };
        assert!(matches!(plain.check(), Err(ConfigError::Exposed { .. })));
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let bad = [
            ("data-dir", RawSettings::default()),
            (
                "weight",
                RawSettings {
                    weight: Some(0),
                    ..minimal()
                },
            ),
            (
                "partitions",
                RawSettings {
                    partitions: Some(1000),
                    ..minimal()
                },
            ),
            (
                "positions",
                RawSettings {
                    positions: Some(0),
                    ..minimal()
                },
            ),
            (
                "hot-keys-k",
                RawSettings {
                    hot_keys_k: Some(5_000),
                    ..minimal()
                },
            ),
            (
                "hot-keys-epsilon",
                RawSettings {
                    hot_keys_epsilon: Some(0.001),
                    ..minimal()
                },
            ),
            (
                "hot-keys-delta",
                RawSettings {
                    hot_keys_delta: Some(1.5),
                    ..minimal()
                },
            ),
            (
                "memtable-limit-mib",
                RawSettings {
                    memtable_limit_mib: Some(0),
                    ..minimal()
                },
            ),
            (
                "advertise-addr",
                RawSettings {
                    advertise_addr: Some("host".into()),
                    ..minimal()
                },
            ),
            (
                "resp-db",
                RawSettings {
                    resp_db: Some(vec!["1024=urls".into()]),
                    ..minimal()
                },
            ),
            (
                "resp-db",
                RawSettings {
                    resp_db: Some(vec!["1=urls".into(), "1=users".into()]),
                    ..minimal()
                },
            ),
            (
                "found-with",
                RawSettings {
                    found_with: Some(vec!["a:1".into()]),
                    ..minimal()
                },
            ),
        ];
        for (name, raw) in bad {
            let error = raw.check().unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("--{name}: ")),
                "{error}"
            );
        }
    }
}
