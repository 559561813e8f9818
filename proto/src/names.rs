//! The intended recipient of a request, in its gRPC metadata.
//!
//! An address can be reassigned to another node, or to a node of another cluster, whose
//! answers would be wrong without notice. So requests between nodes name the cluster and
//! the recipient, and requests of the client library name the cluster of its topology.
//! Any other node refuses the request without reading it.

use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use torc_ring::NodeId;
use torc_ring::topology::ClusterId;

use crate::{Fault, Reason};

/// The cluster, as 32 hexadecimal digits.
pub const CLUSTER_HEADER: &str = "torc-cluster";
/// The recipient's id, in decimal.
pub const NODE_HEADER: &str = "torc-node";

/// Adds names to every request of a connection.
#[derive(Debug, Clone)]
pub struct Names {
    cluster: AsciiMetadataValue,
    node: Option<AsciiMetadataValue>,
}

impl Names {
    /// For any node of a cluster.
    #[must_use]
    pub fn of_cluster(cluster: ClusterId) -> Self {
        let text = AsciiMetadataValue::try_from(cluster.to_string());
        Self {
            // Hexadecimal digits are always a valid value.
            cluster: text.unwrap_or_else(|_| AsciiMetadataValue::from_static("")),
            node: None,
        }
    }

    /// For one node of a cluster.
    #[must_use]
    pub fn of_node(cluster: ClusterId, node: NodeId) -> Self {
        Self {
            node: Some(node.0.into()),
            ..Self::of_cluster(cluster)
        }
    }

    /// Adds the names.
    pub fn add_to(&self, metadata: &mut MetadataMap) {
        metadata.insert(CLUSTER_HEADER, self.cluster.clone());
        if let Some(node) = &self.node {
            metadata.insert(NODE_HEADER, node.clone());
        }
    }
}

impl Interceptor for Names {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        self.add_to(request.metadata_mut());
        Ok(request)
    }
}

/// `who` belongs to the cluster `found`, but the request is for another one.
#[must_use]
pub fn wrong_cluster(
    who: impl std::fmt::Display,
    found: impl std::fmt::Display,
    wanted: impl std::fmt::Display,
) -> Fault {
    let message = format!(
        "{who} belongs to cluster {found}, but the request is for cluster {wanted}; nothing was \
         changed: check the address"
    );
    Fault::new(Reason::WrongCluster, message)
}
