//! Namespaces: key spaces with their own settings.

use serde::Serialize;
use torc_proto::{WireError, v1};
use torc_record::NamespaceId;
use torc_ring::topology;

use super::{Checked, missing};

/// A namespace of the cluster, from [`Client::namespaces`](crate::Client::namespaces).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Its name; `~` and the id for a dropped namespace.
    pub name: String,
    /// Its id, which is part of records and digests.
    pub id: NamespaceId,
    /// How the replicas of a key agree.
    pub mode: NamespaceMode,
    /// Replicas of each key; during an alteration, the number before it.
    pub replicas: u32,
    /// Whether it was dropped and nodes still delete its records, or it only stands for the
    /// replicas that similar namespaces will get.
    pub is_dropped: bool,
}

/// How the replicas of a key agree. A namespace never changes its mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NamespaceMode {
    /// Every read sees the newest acknowledged write of its key.
    #[default]
    Linearizable,
    /// The last writer wins, by hybrid clock.
    Eventual,
    /// Immutable, and replaced as a whole by [`Client::promote`](crate::Client::promote).
    Static,
}

impl Namespace {
    pub(crate) fn of(name: &str, namespace: topology::Namespace) -> Self {
        Self {
            name: name.to_owned(),
            id: namespace.id,
            mode: match namespace.mode {
                topology::NamespaceMode::Linearizable => NamespaceMode::Linearizable,
                topology::NamespaceMode::Eventual => NamespaceMode::Eventual,
                topology::NamespaceMode::Static => NamespaceMode::Static,
            },
            replicas: namespace.replicas.into(),
            is_dropped: topology::is_dropped_name(name),
        }
    }

    pub(crate) fn from_wire(wire: Option<v1::Namespace>) -> Result<Self, WireError> {
        let wire = wire.ok_or(missing("namespace"))?;
        Ok(Self {
            id: NamespaceId(wire.id),
            mode: mode(wire.mode())?,
            replicas: wire.replicas,
            is_dropped: topology::is_dropped_name(&wire.name),
            name: wire.name,
        })
    }
}

fn mode(wire: v1::NamespaceMode) -> Checked<NamespaceMode> {
    match wire {
        v1::NamespaceMode::Linearizable => Ok(NamespaceMode::Linearizable),
        v1::NamespaceMode::Eventual => Ok(NamespaceMode::Eventual),
        v1::NamespaceMode::Static => Ok(NamespaceMode::Static),
        v1::NamespaceMode::Unspecified => Err(missing("mode")),
    }
}

impl NamespaceMode {
    pub(crate) const fn to_wire(self) -> v1::NamespaceMode {
        match self {
            Self::Linearizable => v1::NamespaceMode::Linearizable,
            Self::Eventual => v1::NamespaceMode::Eventual,
            Self::Static => v1::NamespaceMode::Static,
        }
    }
}
