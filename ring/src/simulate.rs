//! Simulates the growth of a ring: its balance, and how much moves.
//!
//! For capacity planning without a cluster. Every row is the ring after one more join,
//! by the planner of real clusters, beside a ring of the same size with random
//! positions.

use std::collections::BTreeMap;

use crate::{
    AllocateError, Balance, Change, DEFAULT_REPLICAS, NodeId, NodeSpec, Partitions, Placement,
    Ring, Token, TransitionPlan, Weight, Zone, allocate,
};

/// The ring to grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// Number of nodes, which join one at a time.
    pub nodes: u32,
    /// Positions of a node of normal weight.
    pub positions: u16,
    /// Replicas of every partition.
    pub replicas: u8,
    /// Partitions of the cluster.
    pub partitions: Partitions,
    /// Weights, assigned to the nodes in turn; empty: all nodes are normal.
    pub weights: Vec<Weight>,
    /// Number of zones, assigned to the nodes in turn; 0 or 1: no zones.
    pub zones: u32,
    /// Seed of the random positions beside the allocated ones.
    pub seed: u64,
}

impl Default for Growth {
    /// A hundred normal nodes with the defaults of a cluster, three replicas, no zones.
    fn default() -> Self {
        Self {
            nodes: 100,
            positions: 32,
            replicas: DEFAULT_REPLICAS,
            partitions: Partitions::DEFAULT,
            weights: Vec::new(),
            zones: 1,
            seed: 1,
        }
    }
}

/// The ring at one size.
///
/// Ratios are the busiest node's load over its fair share; moved to minimum is the
/// moves of the last join over the new node's fair share.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Nodes on the ring.
    pub nodes: u32,
    /// Partitions held.
    pub replica_peak_to_mean: f64,
    /// Partitions led.
    pub lead_peak_to_mean: f64,
    /// Partitions held as the first of the list.
    pub primary_peak_to_mean: f64,
    /// Replicas that moved, over the minimum.
    pub moved_to_minimum: f64,
    /// [`Row::replica_peak_to_mean`] with random positions.
    pub random_replica_peak_to_mean: f64,
    /// [`Row::lead_peak_to_mean`] with random positions.
    pub random_lead_peak_to_mean: f64,
    /// [`Row::primary_peak_to_mean`] with random positions.
    pub random_primary_peak_to_mean: f64,
    /// [`Row::moved_to_minimum`] with random positions.
    pub random_moved_to_minimum: f64,
}

/// Grows a ring from nothing, one row per join. Rows are computed lazily: tens of
/// milliseconds at 100 nodes.
///
/// # Errors
/// A row is an [`AllocateError`] if the ring is too small for the node; it is then the last row.
pub fn simulate(growth: Growth) -> impl Iterator<Item = Result<Row, AllocateError>> {
    let mut rows = Simulation::new(growth);
    std::iter::from_fn(move || rows.next_row()).fuse()
}

struct Simulation {
    growth: Growth,
    specs: BTreeMap<NodeId, NodeSpec>,
    ring: Ring,
    placement: Placement,
    random: Ring,
    random_placement: Placement,
    random_state: u64,
    failed: bool,
}

impl Simulation {
    fn new(growth: Growth) -> Self {
        let empty = |growth: &Growth| {
            let (partitions, replicas) = (growth.partitions, growth.replicas);
            Placement::compute(&Ring::new(), partitions, replicas, &BTreeMap::new())
        };
        Self {
            specs: BTreeMap::new(),
            ring: Ring::new(),
            placement: empty(&growth),
            random: Ring::new(),
            random_placement: empty(&growth),
            random_state: growth.seed,
            failed: false,
            growth,
        }
    }

    fn next_row(&mut self) -> Option<Result<Row, AllocateError>> {
        let size = u32::try_from(self.specs.len()).unwrap_or(u32::MAX);
        if self.failed || size >= self.growth.nodes {
            return None;
        }
        let row = self.join(size);
        self.failed = row.is_err();
        Some(row)
    }

    fn join(&mut self, index: u32) -> Result<Row, AllocateError> {
        let spec = self.spec(index);
        let (node, weight) = (spec.id, spec.weight);
        self.specs.insert(node, spec);
        let Growth {
            positions,
            replicas,
            partitions,
            ..
        } = self.growth;
        let change = Change::Join(node);
        self.ring = allocate(
            &self.ring,
            partitions,
            replicas,
            positions,
            &self.specs,
            change,
        )?;
        self.scatter(node, weight);
        let (moved, balance) = self.measure_allocated();
        let (random_moved, random) = self.measure_random();
        Ok(Row {
            nodes: index + 1,
            replica_peak_to_mean: balance.replica_peak_to_mean,
            lead_peak_to_mean: balance.lead_peak_to_mean,
            primary_peak_to_mean: balance.primary_peak_to_mean,
            moved_to_minimum: moved,
            random_replica_peak_to_mean: random.replica_peak_to_mean,
            random_lead_peak_to_mean: random.lead_peak_to_mean,
            random_primary_peak_to_mean: random.primary_peak_to_mean,
            random_moved_to_minimum: random_moved,
        })
    }

    fn spec(&self, index: u32) -> NodeSpec {
        let weights = &self.growth.weights;
        let weight = weights.get(index as usize % weights.len().max(1));
        let zone = Zone::new(format!("zone-{}", index % self.growth.zones.max(1)));
        NodeSpec {
            id: NodeId(u64::from(index)),
            zone: zone.unwrap_or_default(),
            weight: weight.copied().unwrap_or_default(),
        }
    }

    /// Puts a node at random tokens, in proportion to its weight.
    fn scatter(&mut self, node: NodeId, weight: Weight) {
        let count = u64::from(self.growth.positions) * u64::from(weight.percent()) / 100;
        for _ in 0..count.max(1) {
            while self
                .random
                .insert(Token(split_mix(&mut self.random_state)), node)
                .is_err()
            {}
        }
    }

    fn measure_allocated(&mut self) -> (f64, Balance) {
        let after = self.place(&self.ring);
        let before = std::mem::replace(&mut self.placement, after);
        measure(&before, &self.placement)
    }

    fn measure_random(&mut self) -> (f64, Balance) {
        let after = self.place(&self.random);
        let before = std::mem::replace(&mut self.random_placement, after);
        measure(&before, &self.random_placement)
    }

    fn place(&self, ring: &Ring) -> Placement {
        Placement::compute(
            ring,
            self.growth.partitions,
            self.growth.replicas,
            &self.specs,
        )
    }
}

fn measure(before: &Placement, after: &Placement) -> (f64, Balance) {
    let plan = TransitionPlan::between(before, after);
    (plan.moved_to_minimum(), plan.balance_after)
}

/// The next of a sequence of well-mixed numbers (SplitMix64; Steele, Lea, Flood 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Growth {
        Growth {
            nodes: 6,
            positions: 8,
            partitions: Partitions::new(256).unwrap(),
            ..Growth::default()
        }
    }

    #[test]
    fn there_is_one_row_a_join() {
        let rows: Vec<_> = simulate(small()).collect::<Result<_, _>>().unwrap();
        let sizes: Vec<_> = rows.iter().map(|row| row.nodes).collect();
        assert_eq!(sizes, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn allocated_positions_are_more_even_than_random_ones() {
        for row in simulate(small()).skip(3) {
            let row = row.unwrap();
            assert!(
                row.replica_peak_to_mean < row.random_replica_peak_to_mean,
                "{row:?}"
            );
            assert!(
                row.primary_peak_to_mean < row.random_primary_peak_to_mean,
                "{row:?}"
            );
        }
    }

    #[test]
    fn a_ring_that_is_full_ends_the_rows_with_the_reason() {
        let partitions = Partitions::new(2).unwrap();
        let rows: Vec<_> = simulate(Growth {
            partitions,
            ..small()
        })
        .collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[2], Err(AllocateError::NoRoom { partitions: 2 }));
    }

    #[test]
    fn rows_are_json_with_stable_names() {
        let row = simulate(small()).next().unwrap().unwrap();
        let json = serde_json::to_value(row).unwrap();
        for name in [
            "nodes",
            "replica_peak_to_mean",
            "primary_peak_to_mean",
            "lead_peak_to_mean",
            "moved_to_minimum",
            "random_replica_peak_to_mean",
            "random_primary_peak_to_mean",
            "random_lead_peak_to_mean",
            "random_moved_to_minimum",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
    }

    /// The first numbers of the reference implementation for seed 1234567.
    #[test]
    fn the_mixer_is_splitmix64() {
        let mut state = 1_234_567;
        let first: Vec<_> = (0..3).map(|_| split_mix(&mut state)).collect();
        let reference = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, reference);
    }
}
