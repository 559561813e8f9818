//! The settings of a node, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use torc_hot::HotSettings;
use torc_ring::topology::Release;
use torc_ring::{Weight, Zone};
use torc_store::StoreOptions;
use torc_telemetry::spans::TraceSettings;
use torc_tls::{Files, JoinToken};

use super::ConfigError;
use super::error::bad_value;

/// Settings for which a cluster's topology may have other values.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The zone.
    pub zone: Option<Zone>,
    /// The weight, percent.
    pub weight: Option<u32>,
    /// Copies of every record.
    pub replicas: Option<u8>,
    /// Positions of a node of normal weight.
    pub positions: Option<u16>,
}

/// Checked settings of a node.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Settings that the topology may override.
    pub given: Given,
    /// Where the node keeps its data.
    pub data_dir: PathBuf,
    /// Address to serve clients' gRPC on; port 0 picks a free one.
    pub grpc_addr: SocketAddr,
    /// Address to serve other nodes on; port 0 picks a free one.
    pub peer_addr: SocketAddr,
    /// Address to serve HTTP on; port 0 picks a free one.
    pub http_addr: SocketAddr,
    /// gRPC address as clients reach it; by default the bound address.
    pub advertise_addr: Option<String>,
    /// Address as other nodes reach it; by default the host of `advertise_addr`, or else the bound
    /// address.
    pub advertise_peer_addr: Option<String>,
    /// HTTP address as clients and nodes reach it; by default the bound address.
    pub advertise_http_addr: Option<String>,
    /// Address to serve Redis clients on; `None` to not serve them.
    pub resp_addr: Option<SocketAddr>,
    /// Address as Redis clients reach it; by default the bound address.
    pub advertise_resp_addr: Option<String>,
    /// Namespaces by the numbers that Redis clients select.
    pub resp_databases: BTreeMap<u32, String>,
    /// The audit log; by default in the data directory.
    pub audit_log: Option<PathBuf>,
    /// Found a cluster if this node belongs to none.
    pub bootstrap: bool,
    /// gRPC addresses of the other founding members.
    pub found_with: Vec<String>,
    /// Failure domain.
    pub zone: Zone,
    /// Share of the load.
    pub weight: Weight,
    /// Copies of every record, for a new cluster.
    pub replicas: u8,
    /// Positions of a node of normal weight, for a new cluster.
    pub positions: u16,
    /// Settings of the store, and the number of partitions. Its directory is the data directory
    /// until the node opens the store in it.
    pub store: StoreOptions,
    /// Rate limit for sending partitions to new owners, fetching generations and writing backups.
    pub transfer_rates: TransferRates,
    /// Limit on the partitions copied at a time.
    pub transfer_parallel: usize,
    /// Limit on the requests under way on one connection.
    pub max_streams: u32,
    /// Limit on the client connections of each port.
    pub max_connections: usize,
    /// Limit on the operations under way on the node.
    pub max_operations: usize,
    /// Memory limit for clients' requests and answers, bytes.
    pub in_flight_bytes: usize,
    /// Threads that serve gRPC connections.
    pub worker_threads: usize,
    /// Settings of hot keys.
    pub hot: HotSettings,
    /// Where to send traces; `None` to trace nothing.
    pub traces: Option<TraceSettings>,
    /// Log operations that take this long or longer; `None` to log none.
    pub slow: Option<Duration>,
    /// The release that this node reports: its own, except in tests of mixed releases.
    pub release: Release,
    /// Time for clients to authenticate, and to read a message of a long answer: fixed, except in
    /// tests.
    pub idle_time: Duration,
    /// For tests: the file of faults of links (`torc_links::Faults`).
    pub test_link_faults: Option<PathBuf>,
    /// For tests: the file with the error of the wall clock.
    pub test_clock_shift: Option<PathBuf>,
    /// For tests: the file with the faults of the store's disk.
    pub test_disk_faults: Option<PathBuf>,
    /// Whether to serve non-loopback addresses without encryption and authentication.
    pub insecure: bool,
    /// TLS from certificate files; `None` without.
    pub tls: Option<TlsSettings>,
    /// Set if the node keeps its own certificates.
    pub secure: Option<SecureSettings>,
}

/// Rate limits, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferRates {
    /// While no client is served.
    pub at_rest: u64,
    /// While clients are served.
    pub serving: u64,
}

/// Settings of a node that keeps its own certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureSettings {
    /// The token to get certificates with; `None` to create an authority when bootstrapping.
    pub join: Option<JoinToken>,
    /// Directory of the cluster's authority, for nodes that found a cluster together.
    pub authority: Option<PathBuf>,
    /// Lifetime of the certificates that it issues.
    pub certificate_life: Duration,
}

/// TLS settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// Paths of the certificate, its key and the authorities.
    pub files: Files,
    /// Whether to allow TLS 1.2 too.
    pub tls12: bool,
}

impl Settings {
    /// Names and addresses by which clients reach the node: advertised, bound, and local.
    pub fn names(&self, bound: impl Iterator<Item = SocketAddr>) -> Vec<String> {
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

    /// The address by which other nodes reach this one, whose peer port is bound to `bound`.
    #[must_use]
    pub fn peer_address(&self, bound: SocketAddr) -> String {
        let advertised = self.advertise_addr.as_deref();
        let host = advertised.and_then(|address| Some(address.rsplit_once(':')?.0));
        match (&self.advertise_peer_addr, host) {
            (Some(address), _) => address.clone(),
            (None, Some(host)) => format!("{host}:{}", bound.port()),
            (None, None) => bound.to_string(),
        }
    }

    /// Refuses a port that two servers would share.
    pub(super) fn check_peer_addr(&self) -> Result<(), ConfigError> {
        let other = [("grpc-addr", self.grpc_addr), ("http-addr", self.http_addr)]
            .into_iter()
            .chain(self.resp_addr.map(|address| ("resp-addr", address)))
            .find(|(_, address)| overlap(*address, self.peer_addr));
        other.map_or(Ok(()), |(name, address)| {
            let why = format!("{address} is also --{name}: the peer port must be different");
            Err(bad_value("peer-addr", why))
        })
    }

    pub(super) fn check_exposure(&self) -> Result<(), ConfigError> {
        let exposed = [self.grpc_addr, self.peer_addr, self.http_addr]
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

    /// The addresses that are served to other machines without TLS.
    #[must_use]
    pub fn exposed(&self) -> Vec<String> {
        let doors = [
            ("grpc", Some(self.grpc_addr)),
            ("peers", Some(self.peer_addr)),
            ("http", Some(self.http_addr)),
            ("resp", self.resp_addr),
        ];
        let is_exposed = |address: SocketAddr| self.tls.is_none() && !address.ip().is_loopback();
        let exposed = doors.iter().filter(|(_, it)| it.is_some_and(is_exposed));
        exposed.map(|(name, _)| (*name).to_owned()).collect()
    }

    /// Refuses to advertise an unspecified address such as 0.0.0.0, which means nothing to other
    /// machines.
    pub(super) fn check_advertised(&self) -> Result<(), ConfigError> {
        let pairs = [
            ("advertise-addr", self.grpc_addr, &self.advertise_addr),
            (
                "advertise-peer-addr",
                self.peer_addr,
                if self.advertise_peer_addr.is_some() {
                    &self.advertise_peer_addr
                } else {
                    &self.advertise_addr
                },
            ),
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
                let why = format!("other nodes cannot connect to {bound}: set HOST:PORT");
                return Err(bad_value(setting, why));
            }
        }
        Ok(())
    }
}

/// Whether two servers cannot bind both addresses.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_same_host =
        one.ip() == other.ip() || [one, other].iter().any(|it| it.ip().is_unspecified());
    one.port() == other.port() && one.port() != 0 && is_same_host
}
