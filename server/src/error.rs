//! Why a node does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

use torc_access::enrolment::EnrolError;
use torc_access::tls_dir::TlsDirError;
use torc_group::{GroupError, RecoverError};
use torc_member::identity::IdentityError;
use torc_ring::topology::TopologyError;
use torc_store::StoreError;
use torc_tls::TlsError;

use crate::data_dir::DataDirError;

/// Why a node did not start. Nothing that was stored is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The store did not open.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The identity of the node is unreadable or contradictory.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The data directory lacks a part, or has one of another.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Another process runs with a copy of the data directory.
    #[error("{0}")]
    Superseded(String),
    /// This release does not work at the cluster's feature level.
    #[error(transparent)]
    Level(TopologyError),
    /// The topology group did not open.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The data directory was not recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Certificate, key or authorities cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The node's own certificates cannot be used.
    #[error(transparent)]
    TlsDir(#[from] TlsDirError),
    /// The node was not admitted to a cluster.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// The data directory was used without TLS. Use certificates from files, or an empty one.
    #[error(
        "{} was used without --secure, and nothing was changed: start with an empty data directory, or with certificates \
         from files (--tls-cert, see `kvctl ca create`)",
        .data_dir.display()
    )]
    NotSecure {
        /// The data directory.
        data_dir: PathBuf,
    },
    /// The node has no certificates yet.
    #[error(
        "{} has no certificates yet: found a cluster with --bootstrap --secure, or join one with --join TOKEN, which \
         `kvctl token create --join` prints",
        .data_dir.display()
    )]
    NotEnrolled {
        /// The data directory.
        data_dir: PathBuf,
    },
    /// The address is unavailable. Is another process using it?
    #[error("cannot serve on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The description of the interface could not be prepared.
    #[error("gRPC reflection: {0}")]
    Reflection(String),
    /// The system failed to start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
