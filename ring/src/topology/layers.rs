//! Layers in use, and who holds the partitions of each.
//!
//! A layer is used from its first namespace on, for ever: the namespaces say which are. The
//! base layer always is.

use std::collections::BTreeMap;

use torc_record::Layer;

use super::Namespace;
use crate::{NodeId, Partition, Partitions, Placement, PreferenceList, TransitionPlan};

/// The layers of a cluster that have partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers(u8);

impl Layers {
    /// The base layer alone.
    pub const BASE: Self = Self(1);

    /// Those that some namespaces lie in, and the base layer.
    #[must_use]
    pub fn of(namespaces: &BTreeMap<String, Namespace>) -> Self {
        let layers = namespaces.values().map(|namespace| namespace.id.layer());
        layers.fold(Self::BASE, Self::with)
    }

    /// These and another one.
    #[must_use]
    pub const fn with(self, layer: Layer) -> Self {
        Self(self.0 | 1 << layer.number())
    }

    /// Whether a layer is in use.
    #[must_use]
    pub const fn contains(self, layer: Layer) -> bool {
        self.0 >> layer.number() & 1 == 1
    }

    /// How many there are.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
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

    /// Where a partition stands in a table of [`Layers::partitions`]; none if its layer is
    /// not in use.
    #[must_use]
    pub fn index(self, partitions: Partitions, partition: Partition) -> Option<usize> {
        let layer = partitions.layer(partition)?;
        if !self.contains(layer) {
            return None;
        }
        let before = self.0 & ((1 << layer.number()) - 1);
        let arc = partitions.in_layer(Layer::BASE, partition).index();
        Some(before.count_ones() as usize * partitions.count() as usize + arc)
    }
}

/// Replicas of the partitions of a layer in a cluster with that many.
pub(super) const fn replicas_in(layer: Layer, cluster: u8) -> u8 {
    match layer.number() {
        0 => cluster,
        replicas => replicas,
    }
}

/// The layer for so many replicas in a cluster with that many; none if there is none.
pub(super) const fn layer_of(replicas: u8, cluster: u8) -> Option<Layer> {
    if replicas == cluster {
        Some(Layer::BASE)
    } else {
        Layer::new(replicas)
    }
}

/// One placement a layer in use.
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

    /// The nodes of a partition, the primary first; nobody where the layer is not in use.
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
        let layers = Layers::BASE
            .with(Layer::new(5).unwrap())
            .with(Layer::new(2).unwrap());
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
