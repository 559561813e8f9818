//! Namespaces: created once, with settings for life.
//!
//! Ids are given in order and never again, even if a namespace could be dropped one day:
//! a digest is of the id and the key, and what an id once meant is on disks. An id also
//! says in which [layer](torc_record::Layer) the namespace lies: in the base layer if it has
//! as many replicas as the cluster, else in the layer of its own number. The first namespace
//! of a number gives that layer its partitions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use torc_record::{Epoch, Layer, NamespaceId};

use super::layers::layer_of;
use super::{Outcome, Topology, TopologyError};
use crate::replicas::Config;
use crate::{MAX_REPLICAS, Partition};

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
        let asked = new.replicas.unwrap_or(cluster);
        let layer = layer_of(asked, cluster).filter(|_| (1..=MAX_REPLICAS).contains(&asked));
        let layer = layer.ok_or_else(|| TopologyError::setting("replicas", "1 to 5"))?;
        let replicas = asked;
        if let Some(known) = self.stored.namespaces.get(&new.name) {
            if (known.mode, known.replicas) == (new.mode, replicas) {
                return Ok(Outcome::Done);
            }
            return Err(TopologyError::NamespaceExists { name: new.name });
        }
        if self.stored.namespaces.len() >= MAX_NAMESPACES {
            return Err(TopologyError::TooManyNamespaces);
        }
        if layer != Layer::BASE {
            self.check_may_use(layer, asked)?;
        }
        let id = NamespaceId::in_layer(layer, self.stored.next_namespace);
        self.stored.next_namespace += 1;
        let namespace = Namespace {
            id,
            mode: new.mode,
            replicas,
        };
        self.stored.namespaces.insert(new.name, namespace);
        let epoch = self.advance_epoch();
        if !self.layers.contains(layer) {
            self.use_layer(layer, epoch);
        }
        Ok(Outcome::Done)
    }

    fn check_may_use(&self, layer: Layer, asked: u8) -> Result<(), TopologyError> {
        let active = self.stored.active();
        if active < usize::from(asked) {
            return Err(TopologyError::TooFewNodesFor { asked, active });
        }
        // What moves was counted without the layer.
        match &self.stored.transition {
            Some(running) if !self.layers.contains(layer) => Err(TopologyError::Busy {
                transition: running.id,
            }),
            _ => Ok(()),
        }
    }

    /// Gives the layer of a namespace that was just created its partitions, all empty.
    fn use_layer(&mut self, layer: Layer, epoch: Epoch) {
        let partitions = self.stored.partitions;
        self.layers = self.layers.with(layer);
        self.current = self.stored.placements(&self.stored.ring);
        let first = partitions.in_layer(layer, Partition(0));
        let at = self.layers.index(partitions, first);
        let founded = partitions.iter().map(|arc| {
            let partition = partitions.in_layer(layer, arc);
            let nodes = self.stored.living_or_all(self.current.nodes(partition));
            Arc::new(Config::founded(partition, epoch, &nodes))
        });
        let founded: Vec<_> = founded.collect();
        let at = at.unwrap_or(self.stored.configs.len());
        self.stored.configs.splice(at..at, founded);
    }
}
