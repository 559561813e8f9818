//! Checks raw settings: defaults, bounds and combinations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use torc_access::tls_dir::TlsDir;
use torc_hot::HotSettings;
use torc_ring::topology::Release;
use torc_ring::{DEFAULT_POSITIONS, DEFAULT_REPLICAS, Partitions, Weight, Zone};
use torc_sketch::hot_keys::{HotKeysOptions, OptionsError};
use torc_store::StoreOptions;
use torc_telemetry::spans::TraceSettings;
use torc_tls::{Files, JoinToken};

use super::error::{bad_value, problem};
use super::{
    ConfigError, Given, RawSettings, SecureSettings, Settings, TlsSettings, TransferRates,
};

/// Lifetime of the certificates that a node issues; it renews its own after two thirds.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
const IDLE_TIME: Duration = Duration::from_secs(60);
/// One operation in a thousand.
const USUAL_TRACE_RATIO: f64 = 0.001;
/// Redis clients may select database numbers below this.
const MOST_DATABASES: u32 = 1_024;
const NOT_ALL_OF_TLS: &str = "is missing: TLS needs --tls-cert, --tls-key and --tls-ca together";
/// Two answers of the largest kind, each of twice [`torc_proto::MAX_MESSAGE_LEN`].
const LEAST_IN_FLIGHT_MIB: usize = (4 * torc_proto::MAX_MESSAGE_LEN) >> 20;

impl RawSettings {
    /// Fills in defaults and checks everything.
    ///
    /// # Errors
    /// [`ConfigError`] naming the setting.
    pub fn check(self) -> Result<Settings, ConfigError> {
        let hot = self.hot()?;
        let traces = self.traces()?;
        let secure = self.secure()?;
        let tls = self.tls(secure.is_some())?;
        let store = self.store()?;
        let max_connections = self.max_connections()?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let grpc_addr = self.grpc_addr.unwrap_or(loopback(7400));
        let zone = self.zone.map(Zone::new).transpose();
        let zone = zone.map_err(|error| bad_value("zone", error))?;
        let given = Given {
            zone: zone.clone(),
            weight: self.weight,
            replicas: self.replicas,
            positions: self.positions,
        };
        let settings = Settings {
            given,
            data_dir: self.data_dir.ok_or_else(|| {
                problem(
                    "data-dir",
                    "is required: name a directory for the node's data",
                )
            })?,
            grpc_addr,
            peer_addr: self.peer_addr.unwrap_or_else(|| usual_peer_addr(grpc_addr)),
            http_addr: self.http_addr.unwrap_or(loopback(7480)),
            advertise_addr: host_port("advertise-addr", self.advertise_addr)?,
            advertise_peer_addr: host_port("advertise-peer-addr", self.advertise_peer_addr)?,
            advertise_http_addr: host_port("advertise-http-addr", self.advertise_http_addr)?,
            resp_addr: self.resp_addr,
            advertise_resp_addr: host_port("advertise-resp-addr", self.advertise_resp_addr)?,
            resp_databases: databases(self.resp_db.unwrap_or_default())?,
            audit_log: self.audit_log,
            bootstrap: self.bootstrap.unwrap_or(false),
            found_with: self.found_with.unwrap_or_default(),
            zone: zone.unwrap_or_default(),
            weight: Weight::new(self.weight.unwrap_or(100))
                .map_err(|error| bad_value("weight", error))?,
            replicas: within("replicas", self.replicas.unwrap_or(DEFAULT_REPLICAS), 1, 5)?,
            positions: within(
                "positions",
                self.positions.unwrap_or(DEFAULT_POSITIONS),
                1,
                1024,
            )?,
            store,
            transfer_rates: transfer_rates(self.transfer_mib_per_s)?,
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
            max_connections,
            max_streams: within("max-streams", self.max_streams.unwrap_or(256), 1, 65_536)?,
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
            idle_time: self
                .test_idle_time_ms
                .map_or(IDLE_TIME, Duration::from_millis),
            test_clock_shift: self.test_clock_shift,
            test_disk_faults: self.test_disk_faults,
            insecure: self.insecure.unwrap_or(false),
            tls,
            secure,
        };
        settings.check_peer_addr()?;
        settings.check_exposure()?;
        settings.check_advertised()?;
        if !settings.found_with.is_empty() && !settings.bootstrap {
            return Err(problem("found-with", "needs --bootstrap"));
        }
        Ok(settings)
    }

    fn max_connections(&self) -> Result<usize, ConfigError> {
        let ports = 3 + usize::from(self.resp_addr.is_some());
        let given = self.max_connections;
        let most = given.unwrap_or_else(|| usual_connections(ports));
        within("max-connections", most, 1, 1 << 20)
    }

    /// The settings of the store: its own defaults unless given.
    fn store(&self) -> Result<StoreOptions, ConfigError> {
        let mut store = StoreOptions::new(self.data_dir.clone().unwrap_or_default());
        let most = 1 << 20;
        for (setting, given, bytes, most) in [
            (
                "memtable-limit-mib",
                self.memtable_limit_mib,
                &mut store.memtable_limit_bytes,
                most,
            ),
            (
                "log-segment-mib",
                self.log_segment_mib,
                &mut store.log_segment_bytes,
                1024,
            ),
            (
                "flush-log-mib",
                self.flush_log_mib,
                &mut store.flush_log_bytes,
                most,
            ),
            (
                "flush-mib-per-s",
                self.flush_mib_per_s,
                &mut store.flush_bytes_per_s,
                most,
            ),
            (
                "compact-mib-per-s",
                self.compact_mib_per_s,
                &mut store.compact_bytes_per_s,
                most,
            ),
            (
                "compact-job-mib",
                self.compact_job_mib,
                &mut store.compact_job_bytes,
                most,
            ),
        ] {
            *bytes = mib(setting, given, *bytes >> 20, most)?;
        }
        let flush_after_s = store.flush_after.as_secs();
        store.flush_after = seconds("flush-after-s", self.flush_after_s, flush_after_s)?;
        let idle_s = store.compact_when_idle.as_secs();
        store.compact_when_idle = seconds("compact-when-idle-s", self.compact_when_idle_s, idle_s)?;
        let most_slices = self.most_slices.unwrap_or(store.most_slices);
        store.most_slices = within("most-slices", most_slices, 2, 64)?;
        store.cut_damaged_log = self.cut_damaged_log.unwrap_or(store.cut_damaged_log);
        store.gate_rate = rate("gate-rate", self.gate_rate.unwrap_or(store.gate_rate))?;
        if let Some(count) = self.partitions {
            let partitions = Partitions::new(count);
            store.partitions = partitions.map_err(|error| bad_value("partitions", error))?;
        }
        Ok(store)
    }

    /// The settings of traces, if they are on.
    fn traces(&self) -> Result<Option<TraceSettings>, ConfigError> {
        let ratio = self.trace_ratio.unwrap_or(USUAL_TRACE_RATIO);
        if !(0.0..=1.0).contains(&ratio) {
            let why = format!("must be 0 to 1, not {ratio}");
            return Err(problem("trace-ratio", why));
        }
        let Some(endpoint) = self.otlp_endpoint.clone() else {
            let why = "needs --otlp-endpoint";
            let is_alone = self.trace_ratio.is_some();
            return if is_alone {
                Err(problem("trace-ratio", why))
            } else {
                Ok(None)
            };
        };
        if cfg!(not(feature = "otlp")) {
            let why = "this kvd was built without traces: build it with `--features otlp`, or remove this setting";
            return Err(bad_value("otlp-endpoint", why));
        }
        let uri = endpoint.parse::<http::Uri>();
        let uri =
            uri.map_err(|error| bad_value("otlp-endpoint", format!("`{endpoint}`: {error}")))?;
        if uri.scheme_str() != Some("http") || uri.port_u16().is_none() {
            let why = format!(
                "`{endpoint}` is not http://HOST:PORT. To encrypt traces, send them through a collector on this machine"
            );
            return Err(bad_value("otlp-endpoint", why));
        }
        Ok(Some(TraceSettings { endpoint, ratio }))
    }

    /// The certificate files, unless the node keeps its own certificates.
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

    /// The settings of a secure node: one that must keep its own certificates, or already has them
    /// in its data directory.
    fn secure(&self) -> Result<Option<SecureSettings>, ConfigError> {
        let dir = self.data_dir.as_deref().map(TlsDir::of);
        // kvctl shares the variables for these files, so they may name the node's own files.
        let own = dir.as_ref().map(TlsDir::files);
        let own = own.map(|files| [files.certificate, files.key, files.authorities]);
        let given = [&self.tls_cert, &self.tls_key, &self.tls_ca];
        let of_own = own.map_or([None, None, None], |files| files.map(Some));
        let is_foreign =
            |(given, own): (&Option<PathBuf>, &Option<PathBuf>)| given.is_some() && given != own;
        let has_files = given.into_iter().zip(&of_own).any(is_foreign);
        let is_there = || dir.as_ref().is_some_and(TlsDir::is_complete);
        let join = self.join.as_ref().map(|text| text.0.parse::<JoinToken>());
        let join = join.transpose().map_err(|error| bad_value("join", error))?;
        let is_asked_for = self.secure == Some(true) || join.is_some() || self.authority.is_some();
        if is_asked_for && has_files {
            let why = "cannot be combined with --tls-cert, --tls-key and --tls-ca";
            return Err(problem("secure", why));
        }
        if join.is_some() && self.secure == Some(false) {
            return Err(problem(
                "join",
                "needs a secure cluster: remove --secure=false",
            ));
        }
        if self.authority.is_some() && (join.is_some() || has_files || self.secure == Some(false)) {
            return Err(problem(
                "authority",
                "needs --secure, and cannot be combined with --join or --tls-cert",
            ));
        }
        if join.is_some() && self.bootstrap == Some(true) {
            let why =
                "cannot be combined with --bootstrap: a node either founds a cluster or joins one";
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
            let why = "the other nodes of a new secure cluster use --join: remove this setting, or give all founders the same \
                       --authority";
            return Err(bad_value("found-with", why));
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
        [None, None, None] => Err(problem("tls-12", "needs --tls-cert")),
        [None, _, _] => Err(problem("tls-cert", NOT_ALL_OF_TLS)),
        [_, None, _] => Err(problem("tls-key", NOT_ALL_OF_TLS)),
        [_, _, None] => Err(problem("tls-ca", NOT_ALL_OF_TLS)),
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

/// The settings of hot keys; the seed comes from the cluster.
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
        bad_value(setting, error)
    })
}

fn rate(setting: &'static str, given: f64) -> Result<f64, ConfigError> {
    if (0.0001..=0.5).contains(&given) {
        Ok(given)
    } else {
        Err(problem(
            setting,
            format!("must be 0.0001 to 0.5, not {given}"),
        ))
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
            format!("must be {least} to {most}, not {value}"),
        ));
    }
    Ok(value)
}

/// Port 7500 at the address of the client port, or a free port if that one is a free port.
const fn usual_peer_addr(grpc_addr: SocketAddr) -> SocketAddr {
    let port = if grpc_addr.port() == 0 { 0 } else { 7500 };
    SocketAddr::new(grpc_addr.ip(), port)
}

/// A share of the process's open files, which the ports divide with the store and the connections
/// to other nodes.
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

fn transfer_rates(given: Option<u64>) -> Result<TransferRates, ConfigError> {
    let rate = |default| mib("transfer-mib-per-s", given, default, 1 << 20);
    Ok(TransferRates {
        at_rest: rate(256)?,
        serving: rate(64)?,
    })
}

/// Parses each as `NUMBER=NAMESPACE`.
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
            bad_value("resp-db", why)
        })?;
        if databases.insert(number, namespace).is_some() {
            return Err(bad_value(
                "resp-db",
                format!("database {number} is listed twice"),
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
        Err(bad_value(
            setting,
            format!("`{text}` is not HOST:PORT of at most 256 bytes"),
        ))
    }
}
