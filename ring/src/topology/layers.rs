//! Layers in use, with their numbers of replicas and placements.
//!
//! A layer is in use from its first namespace on, for ever. All namespaces of a layer share
//! its number of replicas; an alteration changes it for all of them, because a key's digest
//! fixes its layer. The base layer is always in use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use torc_record::Layer;

use super::{Namespace, TopologyError};
use crate::{
    MAX_REPLICAS, NodeId, Partition, Partitions, Placement, PreferenceList, TransitionPlan,
};

/// Checks a layer's number of replicas.
pub(super) fn check_number(replicas: u8) -> Result<(), TopologyError> {
    if (1..=MAX_REPLICAS).contains(&replicas) {
        return Ok(());
    }
    Err(TopologyError::setting("replicas", "1 to 5"))
}

/// The layers of a cluster that have partitions, each with its number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers(
    /// 0: not in use.
    [u8; Layer::COUNT],
);

impl Layers {
    /// The base layer alone, with this number of replicas.
    #[must_use]
    pub const fn base(replicas: u8) -> Self {
        Self([0; Layer::COUNT]).with(Layer::BASE, replicas)
    }

    /// The base layer with `base` replicas, and the layers of these namespaces; `None` if a
    /// number is not 1 to 5, or namespaces of one layer have different numbers.
    #[must_use]
    pub fn of(base: u8, namespaces: &BTreeMap<String, Namespace>) -> Option<Self> {
        let mut layers = Self::base(base);
        for Namespace { id, replicas, .. } in namespaces.values() {
            let layer = id.layer();
            if layers.contains(layer) && layers.replicas(layer) != *replicas {
                return None;
            }
            layers = layers.with(layer, *replicas);
        }
        let are_right = |layer| (1..=MAX_REPLICAS).contains(&layers.replicas(layer));
        layers.iter().all(are_right).then_some(layers)
    }

    /// These layers, with another number of replicas for one layer.
    #[must_use]
    pub const fn with(mut self, layer: Layer, replicas: u8) -> Self {
        self.0[layer.index()] = replicas;
        self
    }

    /// The number of replicas of a layer's partitions; 0 if it is not in use.
    #[must_use]
    pub const fn replicas(self, layer: Layer) -> u8 {
        self.0[layer.index()]
    }

    /// Whether a layer is in use.
    #[must_use]
    pub const fn contains(self, layer: Layer) -> bool {
        self.replicas(layer) != 0
    }

    /// The number of layers in use.
    #[must_use]
    pub fn count(self) -> usize {
        self.iter().count()
    }

    /// All in order, the base layer first.
    pub fn iter(self) -> impl Iterator<Item = Layer> {
        Layer::all().filter(move |layer| self.contains(*layer))
    }

    /// Every partition of these layers, in the order of their numbers.
    pub fn partitions(self, partitions: Partitions) -> impl Iterator<Item = Partition> {
        self.iter().flat_map(move |layer| {
            partitions
                .iter()
                .map(move |p| partitions.in_layer(layer, p))
        })
    }

    /// The index of a partition in a table of [`Layers::partitions`]; `None` if its layer
    /// is not in use.
    #[must_use]
    pub fn index(self, partitions: Partitions, partition: Partition) -> Option<usize> {
        let layer = partitions.layer(partition)?;
        if !self.contains(layer) {
            return None;
        }
        let before = self.0[..layer.index()]
            .iter()
            .filter(|it| **it != 0)
            .count();
        let arc = partitions.in_layer(Layer::BASE, partition).index();
        Some(before * partitions.count() as usize + arc)
    }

    /// The layer for another namespace with this number of replicas: the first layer in
    /// use with as many, base layer first; else the layer of that number; else any unused
    /// layer. `None` if there is none. Skips the layer `but`.
    pub(super) fn for_another(self, replicas: u8, but: Option<Layer>) -> Option<Layer> {
        let fits = |layer: &Layer| self.replicas(*layer) == replicas && Some(*layer) != but;
        let is_free = |layer: &Layer| !self.contains(*layer);
        let in_use = self.iter().find(fits);
        let own = || Layer::new(replicas).filter(is_free);
        in_use.or_else(own).or_else(|| Layer::all().find(is_free))
    }
}

/// One placement per layer in use.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placements {
    layers: Layers,
    /// In the order of the layers.
    placements: Vec<Placement>,
}

impl Placements {
    pub(super) fn new(layers: Layers, place: impl FnMut(Layer) -> Placement) -> Self {
        let placements = layers.iter().map(place).collect();
        Self { layers, placements }
    }

    /// The nodes of a partition, the primary first; empty if the layer is not in use.
    pub(super) fn nodes(&self, partition: Partition) -> &[NodeId] {
        self.of(partition).map_or(&[], |it| it.nodes(partition))
    }

    pub(super) fn list(&self, partition: Partition) -> PreferenceList {
        self.of(partition)
            .map_or_else(PreferenceList::default, |it| it.list(partition))
    }

    pub(super) fn lead(&self, partition: Partition) -> Option<NodeId> {
        self.of(partition)?.lead(partition)
    }

    /// Every difference to the placements after a change, of all layers.
    pub(super) fn plan_to(&self, after: &Self) -> TransitionPlan {
        let pairs = self.placements.iter().zip(&after.placements);
        let mut plans = self
            .layers
            .iter()
            .zip(pairs)
            .map(|(layer, (before, after))| {
                let mut plan = TransitionPlan::between(before, after);
                plan.put_in(layer, after.partitions());
                plan
            });
        let Some(base) = plans.next() else {
            unreachable!("the base layer is always in use")
        };
        plans.fold(base, TransitionPlan::and)
    }

    fn of(&self, partition: Partition) -> Option<&Placement> {
        let partitions = self.placements.first()?.partitions();
        let at = self.layers.index(partitions, partition)?;
        self.placements.get(at / partitions.count() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_layers_in_use_stand_one_behind_the_other() {
        let partitions = Partitions::new(4).unwrap();
        let layers = Layers::base(3)
            .with(Layer::new(5).unwrap(), 5)
            .with(Layer::new(2).unwrap(), 2);
        let numbers: Vec<u32> = layers.partitions(partitions).map(|p| p.0).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 8, 9, 10, 11, 20, 21, 22, 23]);
        for (at, partition) in layers.partitions(partitions).enumerate() {
            assert_eq!(layers.index(partitions, partition), Some(at));
        }
        for none in [4, 7, 12, 24, 31, 32, u32::MAX] {
            assert_eq!(layers.index(partitions, Partition(none)), None);
        }
    }
}
