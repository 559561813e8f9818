//! Settings of a node: from flags, `TORC_*` variables and a TOML file, in that order
//! of precedence.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use torc_ring::{Partitions, Weight, Zone};

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
    /// Found a new cluster if this node belongs to none
    #[arg(long, env = "TORC_BOOTSTRAP", num_args = 0..=1, default_missing_value = "true")]
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
    /// With --bootstrap: positions on the ring of a node of normal weight [default: 32]
    #[arg(long, env = "TORC_POSITIONS", value_name = "COUNT")]
    pub positions: Option<u16>,
    /// Serve on other addresses than loopback although nothing is encrypted or authenticated
    #[arg(long, env = "TORC_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    pub insecure: Option<bool>,
    /// Most memory for records, MiB; beyond it writes are refused [default: 4096]
    #[arg(long, env = "TORC_OVERLAY_LIMIT_MIB", value_name = "MIB")]
    pub overlay_limit_mib: Option<u64>,
    /// Size of a segment of the commit log, MiB [default: 64]
    #[arg(long, env = "TORC_LOG_SEGMENT_MIB", value_name = "MIB")]
    pub log_segment_mib: Option<u64>,
    /// Log that gathers before a checkpoint is written, MiB [default: 256]
    #[arg(long, env = "TORC_CHECKPOINT_LOG_MIB", value_name = "MIB")]
    pub checkpoint_log_mib: Option<u64>,
    /// Most bytes a second this node sends to new owners of partitions, MiB [default: 256]
    #[arg(long, env = "TORC_TRANSFER_MIB_PER_S", value_name = "MIB")]
    pub transfer_mib_per_s: Option<u64>,
    /// Most partitions this node copies at a time [default: 16]
    #[arg(long, env = "TORC_TRANSFER_PARALLEL", value_name = "COUNT")]
    pub transfer_parallel: Option<usize>,
    /// Most requests under way on one connection [default: 1024]
    #[arg(long, env = "TORC_MAX_STREAMS", value_name = "COUNT")]
    pub max_streams: Option<u32>,
    /// Threads that serve gRPC connections [default: one a core]
    #[arg(long, env = "TORC_WORKER_THREADS", value_name = "COUNT")]
    pub worker_threads: Option<usize>,
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
         bind 127.0.0.1, or add --insecure if the network is trusted"
    )]
    Exposed {
        /// The address in question.
        address: SocketAddr,
    },
}

/// Checked settings of a node.
#[derive(Debug, Clone)]
pub struct Settings {
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
    /// Positions of a node of normal weight, for a new cluster.
    pub positions: u16,
    /// Most memory for records, bytes.
    pub overlay_limit_bytes: u64,
    /// Size of a segment of the commit log, bytes.
    pub log_segment_bytes: u64,
    /// Log between checkpoints, bytes.
    pub checkpoint_log_bytes: u64,
    /// Most bytes a second sent to new owners.
    pub transfer_bytes_per_s: u64,
    /// Most partitions copied at a time.
    pub transfer_parallel: usize,
    /// Most requests under way on one connection.
    pub max_streams: u32,
    /// Threads that serve gRPC connections.
    pub worker_threads: usize,
    /// Whether a non-loopback address is served without protection.
    pub insecure: bool,
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
        toml::from_str(&text).map_err(|source| ConfigError::Malformed {
            file: file.to_owned(),
            source: Box::new(source),
        })
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
            bootstrap: self.bootstrap.or(fallback.bootstrap),
            found_with: self.found_with.or(fallback.found_with),
            zone: self.zone.or(fallback.zone),
            weight: self.weight.or(fallback.weight),
            partitions: self.partitions.or(fallback.partitions),
            positions: self.positions.or(fallback.positions),
            insecure: self.insecure.or(fallback.insecure),
            overlay_limit_mib: self.overlay_limit_mib.or(fallback.overlay_limit_mib),
            log_segment_mib: self.log_segment_mib.or(fallback.log_segment_mib),
            checkpoint_log_mib: self.checkpoint_log_mib.or(fallback.checkpoint_log_mib),
            transfer_mib_per_s: self.transfer_mib_per_s.or(fallback.transfer_mib_per_s),
            transfer_parallel: self.transfer_parallel.or(fallback.transfer_parallel),
            max_streams: self.max_streams.or(fallback.max_streams),
            worker_threads: self.worker_threads.or(fallback.worker_threads),
        }
    }

    /// Fills in defaults and checks everything.
    ///
    /// # Errors
    /// [`ConfigError`] naming the setting.
    pub fn check(self) -> Result<Settings, ConfigError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let settings = Settings {
            data_dir: self
                .data_dir
                .ok_or_else(|| problem("data-dir", "say where to keep the data"))?,
            grpc_addr: self.grpc_addr.unwrap_or(loopback(7400)),
            http_addr: self.http_addr.unwrap_or(loopback(7480)),
            advertise_addr: host_port("advertise-addr", self.advertise_addr)?,
            advertise_http_addr: host_port("advertise-http-addr", self.advertise_http_addr)?,
            bootstrap: self.bootstrap.unwrap_or(false),
            found_with: self.found_with.unwrap_or_default(),
            zone: Zone::new(self.zone.unwrap_or_else(|| "default".to_owned()))
                .map_err(|error| problem("zone", error))?,
            weight: Weight::new(self.weight.unwrap_or(100))
                .map_err(|error| problem("weight", error))?,
            partitions: match self.partitions {
                Some(count) => {
                    Partitions::new(count).map_err(|error| problem("partitions", error))?
                }
                None => Partitions::DEFAULT,
            },
            positions: within("positions", self.positions.unwrap_or(32), 1, 1024)?,
            overlay_limit_bytes: mib("overlay-limit-mib", self.overlay_limit_mib, 4096, 1 << 20)?,
            log_segment_bytes: mib("log-segment-mib", self.log_segment_mib, 64, 1024)?,
            checkpoint_log_bytes: mib("checkpoint-log-mib", self.checkpoint_log_mib, 256, 1 << 20)?,
            transfer_bytes_per_s: mib("transfer-mib-per-s", self.transfer_mib_per_s, 256, 1 << 20)?,
            transfer_parallel: within(
                "transfer-parallel",
                self.transfer_parallel.unwrap_or(16),
                1,
                256,
            )?,
            max_streams: within("max-streams", self.max_streams.unwrap_or(1024), 1, 65_536)?,
            worker_threads: within(
                "worker-threads",
                self.worker_threads.unwrap_or(cores),
                1,
                256,
            )?,
            insecure: self.insecure.unwrap_or(false),
        };
        settings.check_exposure()?;
        settings.check_advertised()?;
        if !settings.found_with.is_empty() && !settings.bootstrap {
            return Err(problem("found-with", "goes with --bootstrap"));
        }
        Ok(settings)
    }
}

impl Settings {
    fn check_exposure(&self) -> Result<(), ConfigError> {
        let exposed = [self.grpc_addr, self.http_addr]
            .into_iter()
            .find(|address| !address.ip().is_loopback());
        match exposed {
            Some(address) if !self.insecure => Err(ConfigError::Exposed { address }),
            _ => Ok(()),
        }
    }
}

impl Settings {
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
        for (setting, bound, advertised) in pairs {
            if bound.ip().is_unspecified() && advertised.is_none() {
                let why =
                    format!("{bound} is no address that others can connect to: say HOST:PORT");
                return Err(problem(setting, why));
            }
        }
        Ok(())
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

fn mib(
    setting: &'static str,
    value: Option<u64>,
    default: u64,
    most: u64,
) -> Result<u64, ConfigError> {
    Ok(within(setting, value.unwrap_or(default), 1, most)? << 20)
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
        let error = toml::from_str::<RawSettings>("zonne = 'b'").unwrap_err();
        assert!(error.to_string().contains("zonne"), "{error}");
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
                "overlay-limit-mib",
                RawSettings {
                    overlay_limit_mib: Some(0),
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
