//! Members of a cluster.

use serde::{Deserialize, Serialize};
use torc_record::NodeSlot;

use super::{Incarnation, MemberState, Release, TopologyError};
use crate::{NodeId, NodeSpec, Weight, Zone};

/// A node's description of itself when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMember {
    /// Name of its data directory.
    pub incarnation: Incarnation,
    /// host:port of gRPC, as clients reach it.
    pub address: String,
    /// host:port of its peer port, as other nodes reach it.
    pub peer_address: String,
    /// host:port of HTTP.
    pub http_address: String,
    /// Failure domain.
    pub zone: Zone,
    /// Share of the load, percent of a normal node.
    pub weight: Weight,
    /// Its release; for a member, that of its last confirmed start.
    pub release: Release,
}

impl NewMember {
    /// Longest address, bytes.
    pub const MAX_ADDRESS_LEN: usize = 256;

    pub(super) fn check(&self) -> Result<(), TopologyError> {
        self.release.check()?;
        Self::check_addresses(&self.address, &self.peer_address, &self.http_address)
    }

    pub(super) fn check_addresses(
        address: &str,
        peer_address: &str,
        http_address: &str,
    ) -> Result<(), TopologyError> {
        let fits = |text: &str| text.len() <= Self::MAX_ADDRESS_LEN;
        let are_there = !address.is_empty() && !peer_address.is_empty();
        if are_there && [address, peer_address, http_address].into_iter().all(fits) {
            return Ok(());
        }
        let allowed = "host:port, at most 256 bytes";
        Err(TopologyError::setting("address", allowed))
    }
}

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number in ballots.
    pub slot: NodeSlot,
    /// Its state.
    pub state: MemberState,
    /// Its description of itself.
    #[serde(flatten)]
    pub identity: NewMember,
}

impl Member {
    pub(super) fn spec(&self, id: NodeId) -> NodeSpec {
        NodeSpec {
            id,
            zone: self.identity.zone.clone(),
            weight: self.identity.weight,
        }
    }
}
