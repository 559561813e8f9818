//! Namespaces: created once, with settings for life.
//!
//! Ids are given in order and never again, even if a namespace could be dropped one day:
//! a digest is of the id and the key, and what an id once meant is on disks.

use serde::{Deserialize, Serialize};
use torc_record::NamespaceId;

use super::{Outcome, Topology, TopologyError};

/// Most namespaces of a cluster.
pub const MAX_NAMESPACES: usize = 1_000;

const MAX_NAME_LEN: usize = 64;

/// How the replicas of a key agree. Fixed for a namespace's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// Every key is one register.
    #[default]
    Linearizable,
    /// The last writer wins, by hybrid clock.
    Eventual,
}

/// A namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// What records and digests carry.
    pub id: NamespaceId,
    /// How its replicas agree.
    pub mode: NamespaceMode,
    /// Replicas of each of its keys.
    pub replicas: u8,
}

/// A namespace to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNamespace {
    /// 1 to 64 of `a-z`, `0-9`, `-`, `_` and `.`.
    pub name: String,
    /// How its replicas agree.
    pub mode: NamespaceMode,
    /// Replicas of each key; none: as many as the cluster's.
    pub replicas: Option<u8>,
}

impl NewNamespace {
    fn check_name(&self) -> Result<(), TopologyError> {
        let fits = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        if (1..=MAX_NAME_LEN).contains(&self.name.len()) && self.name.bytes().all(fits) {
            return Ok(());
        }
        Err(TopologyError::setting(
            "name",
            "1 to 64 of a-z, 0-9, `-`, `_` and `.`",
        ))
    }
}

impl Topology {
    pub(super) fn create_namespace(&mut self, new: NewNamespace) -> Result<Outcome, TopologyError> {
        new.check_name()?;
        let cluster = self.stored.replicas;
        let replicas = new.replicas.unwrap_or(cluster);
        if replicas != cluster {
            return Err(TopologyError::NamespaceReplicas {
                asked: replicas,
                cluster,
            });
        }
        if let Some(known) = self.stored.namespaces.get(&new.name) {
            if (known.mode, known.replicas) == (new.mode, replicas) {
                return Ok(Outcome::Done);
            }
            return Err(TopologyError::NamespaceExists { name: new.name });
        }
        if self.stored.namespaces.len() >= MAX_NAMESPACES {
            return Err(TopologyError::TooManyNamespaces);
        }
        let id = NamespaceId(self.stored.next_namespace);
        self.stored.next_namespace += 1;
        let namespace = Namespace {
            id,
            mode: new.mode,
            replicas,
        };
        self.stored.namespaces.insert(new.name, namespace);
        self.advance_epoch();
        Ok(Outcome::Done)
    }
}
