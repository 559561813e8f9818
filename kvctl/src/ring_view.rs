//! The ring as a picture, a table and JSON, from the topology alone.
//!
//! The picture shows the current state: an arc has the colour and letter of the primary
//! of its partitions, so during a join the picture shows the progress.

#![expect(
    clippy::cast_possible_wrap,
    reason = "there are fewer than 2^63 partitions"
)]

mod circle;
mod describe;

use std::ops::Deref;

use serde::Serialize;
use torc_record::Layer;
use torc_ring::NodeId;
use torc_ring::topology::{PartitionState, RingSummary, RoutingTable};

pub(crate) use describe::describe;

/// A ring to be drawn. Serialises to the JSON of `kvctl ring`.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct RingView {
    summary: RingSummary,
    /// By partition: the index in `nodes` of its primary.
    #[serde(skip)]
    owners: Vec<Option<usize>>,
}

impl Deref for RingView {
    type Target = RingSummary;

    fn deref(&self) -> &RingSummary {
        &self.summary
    }
}

impl RingView {
    /// O(partitions x replicas).
    pub(crate) fn of(table: &RoutingTable) -> Self {
        let summary = RingSummary::of(table);
        let place = |id: &NodeId| summary.nodes.iter().position(|node| node.id == *id);
        let is_base = |state: &&PartitionState| {
            table.partitions.layer(state.config.partition) == Some(Layer::BASE)
        };
        let states = table.states.iter().filter(is_base);
        let owners = states.map(|state| state.nodes.first().and_then(place));
        Self {
            owners: owners.collect(),
            summary,
        }
    }

    /// The owner of most partitions from `from` to `to`, both fractions of the circle
    /// (above 1, it starts again). Of equals, the first.
    fn owner_between(&self, from: f64, to: f64) -> Option<usize> {
        let count = self.owners.len() as i64;
        if count == 0 {
            return None;
        }
        let first = (from * count as f64).floor() as i64;
        let last = ((to * count as f64).ceil() as i64 - 1).max(first);
        let mut partitions = vec![0_u32; self.nodes.len()];
        for partition in first..=last {
            if let Some(owner) = self.owners[partition.rem_euclid(count) as usize] {
                partitions[owner] += 1;
            }
        }
        let most = partitions.iter().copied().max().filter(|most| *most > 0)?;
        partitions.iter().position(|count| *count == most)
    }

    /// The middle of a partition as a fraction of the circle.
    fn middle_of(&self, partition: u32) -> f64 {
        let count = self.partitions.max(1);
        (f64::from(partition % count) + 0.5) / f64::from(count)
    }
}

#[cfg(test)]
mod tests;
