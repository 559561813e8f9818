//! The identity of this node: one part drawn once per data directory, the other assigned once by
//! the cluster.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, Incarnation};
use torc_store::{Store, StoreError};

/// The name of the incarnation in the store.
pub const INCARNATION: &str = "incarnation";
/// The name of the membership in the store.
pub const MEMBERSHIP: &str = "membership";

/// The cluster a node belongs to and its id there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node's id in it.
    pub node: NodeId,
}

/// Why the identity of a node is unknown.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file does not hold an identity. Restore it, or start with an empty directory.
    #[error(
        "`{name}` in the data directory does not hold an identity: restore it, or start with an empty directory"
    )]
    Malformed {
        /// The name of the file.
        name: &'static str,
    },
    /// The node belongs to another cluster, or has another id in this one.
    #[error(
        "this node is already node {node} of cluster {cluster}: start it with an empty data directory to join another"
    )]
    Taken {
        /// Its cluster.
        cluster: ClusterId,
        /// Its id there.
        node: NodeId,
    },
}

/// The identity of a node, durable in its store.
#[derive(Debug)]
pub struct Identity {
    /// Drawn once per data directory.
    pub incarnation: Incarnation,
    membership: OnceLock<Membership>,
}

impl Identity {
    /// Reads the identity, or draws an incarnation for a new data directory.
    ///
    /// # Errors
    /// [`IdentityError::Store`], [`IdentityError::Malformed`].
    pub fn load(store: &Store) -> Result<Self, IdentityError> {
        let incarnation = if let Some(bytes) = store.meta_get(INCARNATION)? {
            Incarnation(
                <[u8; 16]>::try_from(&bytes[..])
                    .map_err(|_| IdentityError::Malformed { name: INCARNATION })?,
            )
        } else {
            let drawn = Incarnation(rand::random());
            store.meta_set(INCARNATION, &drawn.0)?;
            drawn
        };
        let membership = OnceLock::new();
        if let Some(bytes) = store.meta_get(MEMBERSHIP)? {
            let stored: Membership = serde_json::from_slice(&bytes)
                .map_err(|_| IdentityError::Malformed { name: MEMBERSHIP })?;
            let _ = membership.set(stored);
        }
        Ok(Self {
            incarnation,
            membership,
        })
    }

    /// `None` if the node belongs to no cluster.
    #[must_use]
    pub fn membership(&self) -> Option<Membership> {
        self.membership.get().copied()
    }

    /// The id in its cluster; `None` if it belongs to none.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        self.membership().map(|membership| membership.node)
    }

    /// Durably makes the node a member. Repeating it with the same membership is harmless.
    ///
    /// # Errors
    /// [`IdentityError::Taken`] if it has another one; [`IdentityError::Store`].
    pub fn enlist(&self, store: &Store, new: Membership) -> Result<(), IdentityError> {
        let taken = |m: Membership| IdentityError::Taken {
            cluster: m.cluster,
            node: m.node,
        };
        match self.membership() {
            Some(present) if present == new => return Ok(()),
            Some(present) => return Err(taken(present)),
            None => {}
        }
        let json =
            serde_json::to_vec(&new).map_err(|_| IdentityError::Malformed { name: MEMBERSHIP })?;
        store.meta_set(MEMBERSHIP, &json)?;
        match self.membership.set(new) {
            Err(_) if self.membership() != Some(new) => Err(self
                .membership()
                .map_or(IdentityError::Malformed { name: MEMBERSHIP }, taken)),
            _ => Ok(()),
        }
    }
}
