//! Namespaces: created once. The mode is for life; the number of replicas can be altered.
//!
//! Ids are given in order and never again, even if a namespace could be dropped one day:
//! a digest is of the id and the key, and what an id once meant is on disks. An id also
//! says in which [layer](torc_record::Layer) the namespace lies, for ever: in the base layer if
//! it was created with as many replicas as that has, else in another one that has as many. The
//! first namespace of a layer gives it its partitions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use torc_record::{Epoch, Layer, NamespaceId};

use super::alter::check_number;
use super::{Outcome, Topology, TopologyError};
use crate::Partition;
use crate::replicas::Config;

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
    /// Immutable, and replaced as a whole: see [`Generation`](super::Generation).
    Static,
}

/// A namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// What records and digests carry.
    pub id: NamespaceId,
    /// How its replicas agree.
    pub mode: NamespaceMode,
    /// Replicas of each of its keys: those of its layer. While that is altered, those before.
    pub replicas: u8,
}

/// A namespace to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNamespace {
    /// 1 to 64 of `a-z`, `0-9`, `-`, `_` and `.`.
    pub name: String,
    /// How its replicas agree.
    pub mode: NamespaceMode,
    /// Replicas of each key; none: as many as the base layer has.
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
        let replicas = new.replicas.unwrap_or(self.replicas_in(Layer::BASE));
        check_number(replicas)?;
        if let Some(known) = self.stored.namespaces.get(&new.name) {
            if (known.mode, known.replicas) == (new.mode, replicas) {
                return Ok(Outcome::Done);
            }
            return Err(TopologyError::NamespaceExists { name: new.name });
        }
        if self.stored.namespaces.len() >= MAX_NAMESPACES {
            return Err(TopologyError::TooManyNamespaces);
        }
        let layer = self.layer_for(&new)?;
        let id = NamespaceId::in_layer(layer, self.stored.next_namespace);
        self.stored.next_namespace += 1;
        let namespace = Namespace {
            id,
            mode: new.mode,
            replicas,
        };
        self.stored.namespaces.insert(new.name, namespace);
        let epoch = self.advance_epoch();
        if !self.stored.layers.contains(layer) {
            self.use_layer(layer, replicas, epoch);
        }
        Ok(Outcome::Done)
    }

    /// The layer that a namespace is created in. Never one whose replicas are being altered:
    /// which namespaces that changes was told before it began.
    fn layer_for(&self, new: &NewNamespace) -> Result<Layer, TopologyError> {
        let altered = self.altering().map(|(_, layer)| layer);
        let layers = self.stored.layers;
        let layer = match new.replicas {
            None => Layer::BASE,
            Some(asked) => {
                let layer = layers.for_another(asked, altered);
                layer.ok_or(TopologyError::NoLayerLeft { asked })?
            }
        };
        if let Some(asked) = new.replicas.filter(|_| layer != Layer::BASE) {
            self.check_enough_for(asked)?;
        }
        // What moves was counted without a layer that comes.
        let has_to_wait = altered == Some(layer) || !layers.contains(layer);
        match &self.stored.transition {
            Some(running) if has_to_wait => Err(TopologyError::Busy {
                transition: running.id,
            }),
            _ => Ok(layer),
        }
    }

    /// Gives the layer of a namespace that was just created its partitions, all empty.
    fn use_layer(&mut self, layer: Layer, replicas: u8, epoch: Epoch) {
        let partitions = self.stored.partitions;
        self.stored.layers = self.stored.layers.with(layer, replicas);
        self.current = self.stored.placements(&self.stored.ring);
        let first = partitions.in_layer(layer, Partition(0));
        let at = self.stored.layers.index(partitions, first);
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
