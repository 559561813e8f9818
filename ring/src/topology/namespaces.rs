//! Creates, alters and drops namespaces. A namespace never changes its mode.
//!
//! Ids are assigned in order and never reused, even after a namespace was dropped: a digest covers
//! the id and the key, and data with an old id may still be on disk. The id also fixes the namespace's
//! [layer](torc_record::Layer) for ever: the base layer if the namespace was created with the same
//! number of replicas, else another layer with that number. The first namespace of a layer gives the
//! layer its partitions.
//!
//! A dropped namespace loses its name at once and is kept under [`dropped_name`], which no request
//! can use. The members that lead its partitions delete its records and report it
//! ([`Topology::sweeps`]); once all have, the namespace is forgotten. The last namespace of a layer
//! stays, because it records the layer's number of replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use torc_record::{Epoch, Layer, NamespaceId};

use super::layers::check_number;
use super::stored::Stored;
use super::{
    Generation, GenerationState, MAX_NAMESPACES, Namespace, NamespaceMode, NewNamespace, Outcome,
    Topology, TopologyError, dropped_name, is_dropped_name, is_hidden_name,
};
use crate::replicas::Config;
use crate::{NodeId, Partition};

impl Topology {
    pub(super) fn create_namespace(&mut self, new: NewNamespace) -> Result<Outcome, TopologyError> {
        let replicas = new.replicas.unwrap_or(self.replicas_in(Layer::BASE));
        check_number(replicas)?;
        if let Some(known) = self.stored.namespaces.get(&new.name) {
            if (known.mode, known.replicas) == (new.mode, replicas) {
                return Ok(Outcome::Done);
            }
            return Err(TopologyError::NamespaceExists { name: new.name });
        }
        self.check_not_coming(&new.name)?;
        self.add_namespace(&new, |_| new.name.clone())?;
        Ok(Outcome::Done)
    }

    /// Adds a namespace under a name that may depend on its id.
    pub(super) fn add_namespace(
        &mut self,
        new: &NewNamespace,
        name: impl FnOnce(NamespaceId) -> String,
    ) -> Result<NamespaceId, TopologyError> {
        let replicas = new.replicas.unwrap_or(self.replicas_in(Layer::BASE));
        check_number(replicas)?;
        if self.stored.namespaces.len() >= MAX_NAMESPACES {
            return Err(TopologyError::TooManyNamespaces);
        }
        let layer = self.layer_for(new)?;
        let id = NamespaceId::in_layer(layer, self.stored.next_namespace);
        self.stored.next_namespace += 1;
        let namespace = Namespace {
            id,
            mode: new.mode,
            replicas,
        };
        self.stored.namespaces.insert(name(id), namespace);
        let epoch = self.advance_epoch();
        if !self.stored.layers.contains(layer) {
            self.use_layer(layer, replicas, epoch);
        }
        self.stored.forget_dropped();
        Ok(id)
    }

    /// Drops a namespace: nodes stop serving it and delete its records.
    pub(super) fn drop_namespace(&mut self, name: &str) -> Result<Outcome, TopologyError> {
        if name == "default" {
            return Err(TopologyError::DefaultStays);
        }
        let unknown = || TopologyError::UnknownNamespace { name: name.into() };
        if is_hidden_name(name) {
            return Err(unknown());
        }
        let namespace = self.stored.namespaces.remove(name).ok_or_else(unknown)?;
        self.begin_drop(name, namespace);
        Ok(Outcome::Done)
    }

    /// Drops a namespace that has lost its name.
    pub(super) fn begin_drop(&mut self, name: &str, namespace: Namespace) {
        let merged = self.stored.generations.values();
        let mut merged = merged.filter(|it| it.state == GenerationState::Merging);
        let was_merged = merged.any(|it| it.namespace == name);
        let stays = |it: &Generation| it.namespace != name || it.is_coming();
        self.stored.generations.retain(|_, it| stays(it));
        if was_merged {
            self.close_merges(namespace.id.layer());
        }
        self.stored.switches.remove(name);
        let name = dropped_name(namespace.id);
        // Slices of generations are dropped by each node for itself.
        if namespace.mode != NamespaceMode::Static {
            self.stored.sweeps.insert(namespace.id, BTreeSet::new());
        }
        self.stored.namespaces.insert(name.clone(), namespace);
        self.stored.forget_dropped();
        self.wait_for_all(name);
    }

    /// Records that a member has deleted a dropped namespace in all partitions that it led in the
    /// topology of `epoch`.
    pub(super) fn swept(&mut self, node: NodeId, namespace: NamespaceId, epoch: Epoch) -> Outcome {
        if epoch < self.stored.swept_since {
            return Outcome::Done;
        }
        if let Some(swept) = self.stored.sweeps.get_mut(&namespace) {
            swept.insert(node);
        }
        let is_over = |swept: &BTreeSet<NodeId>| {
            let members = self.stored.members.keys();
            members
                .filter(|node| !self.stored.dead.contains(node))
                .all(|node| swept.contains(node))
        };
        // During a move, a partition can change from a member that has not swept to one that has.
        if self.stored.transition.is_none()
            && self.stored.sweeps.get(&namespace).is_some_and(is_over)
        {
            self.stored.sweeps.remove(&namespace);
            self.stored.forget_dropped();
            self.advance_epoch();
        }
        Outcome::Done
    }

    /// The namespace of this name, with its own id; routing uses the id of a generation for a
    /// static one.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<Namespace> {
        self.stored.namespaces.get(name).copied()
    }

    /// The number of the next namespace. A namespace with a lower one is in the topology, or was
    /// dropped and forgotten.
    #[must_use]
    pub const fn next_namespace(&self) -> u32 {
        self.stored.next_namespace
    }

    /// The dropped namespaces whose records are being deleted, and the members that have done their part.
    #[must_use]
    pub const fn sweeps(&self) -> &BTreeMap<NamespaceId, BTreeSet<NodeId>> {
        &self.stored.sweeps
    }

    /// The layer of a new namespace. Never one that is being altered: the plan listed the
    /// affected namespaces.
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
        // The plan's sizes were computed without the new layer.
        let has_to_wait = altered == Some(layer) || !layers.contains(layer);
        match &self.stored.transition {
            Some(running) if has_to_wait => Err(TopologyError::Busy {
                transition: running.id,
            }),
            _ => Ok(layer),
        }
    }

    /// Gives the layer of a new namespace its partitions, all empty.
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

impl Stored {
    /// Forgets dropped namespaces without records, except the last one of each layer.
    fn forget_dropped(&mut self) {
        let dropped = self
            .namespaces
            .iter()
            .filter(|(name, it)| is_dropped_name(name) && !self.sweeps.contains_key(&it.id));
        let dropped: Vec<_> = dropped.map(|(name, it)| (name.clone(), it.id)).collect();
        for (name, id) in dropped {
            let mut all = self.namespaces.values();
            let is_beside = |it: &Namespace| it.id.layer() == id.layer() && it.id != id;
            if id.layer() == Layer::BASE || all.any(is_beside) {
                self.namespaces.remove(&name);
            }
        }
    }

    /// After a change of leads: all members must report again that they have deleted dropped
    /// namespaces, by this topology or a later one.
    pub(super) fn sweep_anew(&mut self) {
        self.swept_since = self.epoch;
        self.sweeps.values_mut().for_each(BTreeSet::clear);
    }
}
