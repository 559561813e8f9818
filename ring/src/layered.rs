//! A table with one value per partition, in all layers.

use std::sync::OnceLock;

use torc_record::{Layer, NamespaceId};

use crate::{Partition, Partitions, Token};

/// One value per partition. The values of a layer are created on first use, by default or
/// by the caller: an unused layer costs nothing.
#[derive(Debug)]
pub struct Layered<T> {
    partitions: Partitions,
    layers: [OnceLock<Box<[T]>>; Layer::COUNT],
}

impl<T> Layered<T> {
    /// A table with this number of partitions per layer.
    #[must_use]
    pub fn new(partitions: Partitions) -> Self {
        let layers = std::array::from_fn(|_| OnceLock::new());
        Self { partitions, layers }
    }

    /// The value of a partition; `None` if there is no such partition. `make` creates the
    /// values of a new layer, and must not access that layer.
    #[must_use]
    pub fn get_or(&self, partition: Partition, make: impl Fn(Partition) -> T) -> Option<&T> {
        let layer = self.partitions.layer(partition)?;
        let arc = self.partitions.in_layer(Layer::BASE, partition);
        self.layer(layer, make).get(arc.index())
    }

    /// The partition that holds a namespace's keys at a token.
    #[must_use]
    pub fn partition_holding(&self, namespace: NamespaceId, token: Token) -> Partition {
        self.partitions.holding(namespace, token)
    }

    /// The created values, in the order of their partitions.
    pub fn iter(&self) -> impl Iterator<Item = (Partition, &T)> {
        let partitions = self.partitions;
        Layer::all()
            .zip(&self.layers)
            .filter_map(|(layer, values)| Some((layer, values.get()?)))
            .flat_map(move |(layer, values)| {
                let numbers = partitions.iter();
                let numbers = numbers.map(move |arc| partitions.in_layer(layer, arc));
                numbers.zip(values.iter())
            })
    }

    fn layer(&self, layer: Layer, make: impl Fn(Partition) -> T) -> &[T] {
        self.layers[layer.index()].get_or_init(|| {
            let numbers = self.partitions.iter();
            let numbers = numbers.map(|arc| self.partitions.in_layer(layer, arc));
            numbers.map(make).collect()
        })
    }
}

impl<T: Default> Layered<T> {
    /// The value of the partition that holds a namespace's keys at a token. Constant time,
    /// except for the first of a layer.
    #[must_use]
    pub fn holding(&self, namespace: NamespaceId, token: Token) -> &T {
        let arc = self.partitions.of(token);
        &self.layer(namespace.layer(), |_| T::default())[arc.index()]
    }

    /// The value of a partition; `None` if there is no such partition.
    #[must_use]
    pub fn get(&self, partition: Partition) -> Option<&T> {
        self.get_or(partition, |_| T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn values_are_kept_apart_by_layer_and_found_by_number_and_by_namespace() {
        let partitions = Partitions::new(4).unwrap();
        let table: Layered<AtomicU32> = Layered::new(partitions);
        assert_eq!(table.iter().count(), 0, "nothing was asked for");
        let layer = Layer::new(5).unwrap();
        let namespace = NamespaceId::in_layer(layer, 3);
        table
            .holding(namespace, Token::MAX)
            .store(7, Ordering::Relaxed);
        let last = Partition(5 * 4 + 3);
        assert_eq!(table.get(last).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(
            table.get(Partition(3)).unwrap().load(Ordering::Relaxed),
            0,
            "the same arc of the base layer has its own"
        );
        let made: Vec<u32> = table.iter().map(|(partition, _)| partition.0).collect();
        assert_eq!(made, [0, 1, 2, 3, 20, 21, 22, 23]);
        assert!(table.get(Partition(32)).is_none());
    }

    #[test]
    fn values_can_be_made_of_their_partitions() {
        let partitions = Partitions::new(4).unwrap();
        let table: Layered<u32> = Layered::new(partitions);
        assert_eq!(
            table.get_or(Partition(6), |partition| partition.0),
            Some(&6)
        );
        assert_eq!(table.get_or(Partition(7), |_| unreachable!()), Some(&7));
    }
}
