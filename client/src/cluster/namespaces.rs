//! Namespaces: key spaces with their own settings.

use serde::Serialize;
use torc_proto::{WireError, v1};
use torc_record::NamespaceId;
use torc_ring::topology::{self, NamespaceMode};

use super::{as_text, missing};

/// A namespace of the cluster, from [`Client::namespaces`](crate::Client::namespaces).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Its name; `~` and the id for a dropped namespace.
    pub name: String,
    /// Its id, which is part of records and digests.
    pub id: NamespaceId,
    /// How the replicas of a key agree.
    #[serde(serialize_with = "as_text")]
    pub mode: NamespaceMode,
    /// Replicas of each key; during an alteration, the number before it.
    pub replicas: u32,
    /// Whether it was dropped and nodes still delete its records, or it only stands for the
    /// replicas that similar namespaces will get.
    pub is_dropped: bool,
}

impl Namespace {
    pub(crate) fn of(name: &str, namespace: topology::Namespace) -> Self {
        Self {
            name: name.to_owned(),
            id: namespace.id,
            mode: namespace.mode,
            replicas: namespace.replicas.into(),
            is_dropped: topology::is_dropped_name(name),
        }
    }

    pub(crate) fn from_wire(wire: Option<v1::Namespace>) -> Result<Self, WireError> {
        let wire = wire.ok_or(missing("namespace"))?;
        Ok(Self {
            id: NamespaceId(wire.id),
            mode: wire.mode().into(),
            replicas: wire.replicas,
            is_dropped: topology::is_dropped_name(&wire.name),
            name: wire.name,
        })
    }
}
