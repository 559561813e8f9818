//! Equal arcs of the circle: the unit of placement, epoch, transfer and comparison.
//!
//! Partition `i` of `2^k` holds the tokens whose top `k` bits are `i`. Its border is
//! its inclusive last token: a node with a position there owns the whole partition.
//!
//! The circle has [layers](Layer) of partitions. Those of the base layer have the numbers
//! 0 to `2^k - 1`; those of layer `l` lie on the same arcs and have numbers from `l * 2^k`
//! on. A namespace's keys lie in the partitions of its layer.

use std::fmt;

use serde::{Deserialize, Serialize};
use torc_record::{Layer, NamespaceId};

use crate::Token;

/// Number of a partition: by layer, then in ring order from token 0.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Partition(pub u32);

impl Partition {
    /// As an index into a table with one entry per partition.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of partitions per layer: a power of two from 1 to
/// [`Partitions::MAX_COUNT`], fixed when the cluster is founded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub struct Partitions {
    bits: u8,
}

/// Not a number of partitions. Nothing was changed; choose a power of two from 1 to
/// 65,536.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} partitions are not possible: choose a power of two from 1 to {}",
    Partitions::MAX_COUNT
)]
pub struct PartitionsError {
    /// The refused count.
    pub count: u32,
}

impl std::fmt::Display for Partitions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.count().fmt(f)
    }
}

impl Partitions {
    /// The most partitions a cluster can have.
    pub const MAX_COUNT: u32 = 1 << 16;
    /// 4,096: balanced with 32 positions per node up to about 100 nodes.
    pub const DEFAULT: Self = Self { bits: 12 };

    /// Checks a count.
    ///
    /// # Errors
    /// [`PartitionsError`] unless `count` is a power of two from 1 to
    /// [`Partitions::MAX_COUNT`].
    #[expect(clippy::cast_possible_truncation, reason = "it is at most 31")]
    pub const fn new(count: u32) -> Result<Self, PartitionsError> {
        if count.is_power_of_two() && count <= Self::MAX_COUNT {
            Ok(Self {
                bits: count.trailing_zeros() as u8,
            })
        } else {
            Err(PartitionsError { count })
        }
    }

    /// The number of partitions per layer.
    #[must_use]
    pub const fn count(self) -> u32 {
        1 << self.bits
    }

    /// The partition of the base layer that contains a token: its top bits. Constant time.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is less than the number of partitions"
    )]
    pub const fn of(self, token: Token) -> Partition {
        match token.0.checked_shr(self.token_bits()) {
            Some(index) => Partition(index as u32),
            None => Partition(0),
        }
    }

    /// The partition that holds a namespace's keys at a token. Constant time.
    #[must_use]
    pub const fn holding(self, namespace: NamespaceId, token: Token) -> Partition {
        self.in_layer(namespace.layer(), self.of(token))
    }

    /// The partition of a layer on the same arc as another.
    #[must_use]
    pub const fn in_layer(self, layer: Layer, partition: Partition) -> Partition {
        let arc = partition.0 & (self.count() - 1);
        Partition(((layer.number() as u32) << self.bits) | arc)
    }

    /// The layer of a partition; `None` if there is no such partition.
    #[must_use]
    pub const fn layer(self, partition: Partition) -> Option<Layer> {
        let number = partition.0 >> self.bits;
        if number <= 0xff {
            Layer::new((number & 0xff) as u8)
        } else {
            None
        }
    }

    /// Whether such a partition can exist, in any layer.
    #[must_use]
    pub const fn contains(self, partition: Partition) -> bool {
        self.layer(partition).is_some()
    }

    /// The first token of a partition.
    ///
    /// The same in every layer.
    #[must_use]
    pub const fn start(self, partition: Partition) -> Token {
        let index = (partition.0 & (self.count() - 1)) as u64;
        match index.checked_shl(self.token_bits()) {
            Some(token) => Token(token),
            None => Token(0),
        }
    }

    /// The last token of a partition, inclusive: its border.
    ///
    /// The same in every layer.
    #[must_use]
    pub const fn end(self, partition: Partition) -> Token {
        Token(self.start(partition).0 | self.offset_mask())
    }

    /// The partition that ends at `token`, if one does.
    #[must_use]
    pub const fn ending_at(self, token: Token) -> Option<Partition> {
        if token.0 & self.offset_mask() == self.offset_mask() {
            Some(self.of(token))
        } else {
            None
        }
    }

    /// Every partition of the base layer in ring order.
    #[must_use]
    pub fn iter(self) -> impl ExactSizeIterator<Item = Partition> + DoubleEndedIterator {
        (0..self.count()).map(Partition)
    }

    /// Bits of a token below the partition number: 48 to 64.
    const fn token_bits(self) -> u32 {
        64 - self.bits as u32
    }

    const fn offset_mask(self) -> u64 {
        u64::MAX >> self.bits
    }
}

impl Default for Partitions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl From<Partitions> for u32 {
    fn from(partitions: Partitions) -> Self {
        partitions.count()
    }
}

impl TryFrom<u32> for Partitions {
    type Error = PartitionsError;

    fn try_from(count: u32) -> Result<Self, Self::Error> {
        Self::new(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_powers_of_two_up_to_65536_are_counts() {
        for count in [0, 3, 4095, 1 << 17, u32::MAX] {
            assert_eq!(Partitions::new(count), Err(PartitionsError { count }));
        }
        assert_eq!(Partitions::new(4096), Ok(Partitions::DEFAULT));
    }

    #[test]
    fn one_partition_is_the_whole_circle() {
        let one = Partitions::new(1).unwrap();
        assert_eq!(one.start(Partition(0)), Token::MIN);
        assert_eq!(one.end(Partition(0)), Token::MAX);
        assert_eq!(one.of(Token::MAX), Partition(0));
    }

    #[test]
    fn a_count_travels_as_a_plain_number_and_is_checked_on_arrival() {
        assert_eq!(serde_json::to_string(&Partitions::DEFAULT).unwrap(), "4096");
        assert!(serde_json::from_str::<Partitions>("4097").is_err());
    }

    proptest! {
        #[test]
        fn a_token_lies_between_start_and_end_of_its_partition(bits in 0_u32..=16, token: u64) {
            let partitions = Partitions::new(1 << bits).unwrap();
            let partition = partitions.of(Token(token));
            prop_assert!(partition.0 < partitions.count());
            prop_assert!(partitions.start(partition) <= Token(token));
            prop_assert!(Token(token) <= partitions.end(partition));
        }

        #[test]
        fn every_layer_has_the_same_arcs_under_numbers_of_its_own(
            bits in 0_u32..=16, token: u64, namespace: u32, past: u32,
        ) {
            let partitions = Partitions::new(1 << bits).unwrap();
            let (namespace, token) = (NamespaceId(namespace), Token(token));
            let partition = partitions.holding(namespace, token);
            prop_assert_eq!(partitions.layer(partition), Some(namespace.layer()));
            prop_assert!(partitions.start(partition) <= token);
            prop_assert!(token <= partitions.end(partition));
            prop_assert_eq!(partitions.in_layer(Layer::BASE, partition), partitions.of(token));
            let none = Partition((partitions.count() << 3).saturating_add(past));
            prop_assert!(!partitions.contains(none));
        }

        #[test]
        fn partitions_follow_each_other_without_gap(bits in 0_u32..=16, index: u32) {
            let partitions = Partitions::new(1 << bits).unwrap();
            let here = Partition(index % partitions.count());
            let next = Partition((here.0 + 1) % partitions.count());
            prop_assert_eq!(partitions.end(here).0.wrapping_add(1), partitions.start(next).0);
            prop_assert_eq!(partitions.ending_at(partitions.end(here)), Some(here));
            if bits < 16 {
                prop_assert_eq!(partitions.ending_at(partitions.start(here)), None);
            }
        }
    }
}
