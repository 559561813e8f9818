//! How data moves between this node, the other nodes and storage outside the cluster: the slices of moving partitions,
//! generations of static namespaces, and backups.
//!
//! * [`Transfers`]: what all of this needs of the node.
//! * [`copier`]: copies the slices that this node's replicas ask for; `receive`: receives and verifies them.
//! * [`send`]: streams a partition's slices to another node.
//! * [`reporter`]: reports the facts that advance a move to its next stage.
//! * [`retreat`]: takes back moves to nodes that do not answer.
//! * [`generations`]: fetches the slices of generations, from other nodes or from where they were built.
//! * `backup`, with the feature of that name: this node's part in a backup.
//! * [`throttle`]: the limit on bytes per second that all of these share; [`metrics`]: counters.
//!
//! Absent on purpose: which partitions move and when a stage may end (`torc-ring`), when a replica asks for slices
//! (`torc-driver`), who may ask for a transfer, and the settings.

mod background;
#[cfg(feature = "backup")]
pub mod backup;
pub mod copier;
pub mod generations;
pub mod metrics;
mod receive;
pub mod reporter;
pub mod retreat;
pub mod send;
pub mod throttle;

pub use background::Background;

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use torc_group::TopologyGroup;
use torc_member::LocalMember;
use torc_member::fault::store_fault;
use torc_proto::{Fault, Reason};
use torc_ring::Partitions;
use torc_store::{Store, StoreError};

use crate::generations::Fetches;
use crate::metrics::TransferMetrics;
use crate::throttle::Throttle;

/// What transfers need of their node.
pub struct Transfers {
    /// The node's place in its cluster, and connections to the other members.
    pub member: Arc<LocalMember>,
    /// Where slices go to and come from.
    pub store: Store,
    /// Takes reports, and has what the routing table leaves out.
    pub group: TopologyGroup,
    /// The partitions of a layer.
    pub partitions: Partitions,
    /// For temporary files.
    pub data_dir: PathBuf,
    /// The limit on bytes per second.
    pub throttle: Throttle,
    /// Threads on which ingests are written and verified, and packs of backups filled. With more threads, ingests would
    /// wait for each other's files, each on a thread with its own memory.
    pub background: Background,
    /// What was taken of generations, and why slices of them are missing.
    pub fetches: Fetches,
    /// Counters.
    pub metrics: TransferMetrics,
    /// Cancelled to end all tasks.
    pub cancel: CancellationToken,
}

impl Transfers {
    /// Runs the file work of an ingest.
    async fn ingest<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Fault> {
        let done = self.in_background("receiving a slice", work).await?;
        done.map_err(|error| store_fault(&error))
    }

    /// Runs work that may block and that no client waits for.
    async fn in_background<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let done = self.background.run(work).await;
        done.map_err(|_| failed(what))
    }
}

/// The fault for an error of an object location. An object there is complete or absent.
#[cfg(feature = "objects")]
fn object_fault(error: &torc_objects::ObjectError) -> Fault {
    use torc_objects::ObjectError;
    let reason = match error {
        ObjectError::Url { .. } => Reason::Invalid,
        ObjectError::Damaged { .. } => Reason::Corrupt,
        _ => Reason::NotServing,
    };
    Fault::new(reason, error.to_string())
}

fn failed(what: &str) -> Fault {
    Fault::new(Reason::Internal, format!("{what} failed: report this"))
}
