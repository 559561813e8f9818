//! Solved buckets: what a job returns.

/// A solved bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    pub(super) keys: u16,
    pub(super) attempt: u16,
}

/// The solved buckets of one range.
#[derive(Debug, Clone)]
pub struct SolvedRange {
    pub(super) first: u32,
    pub(super) buckets: Vec<Bucket>,
    /// The values of all vertices, bucket by bucket.
    pub(super) values: Vec<u16>,
}

/// The graph of one bucket, for inspection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SolvedGraph {
    /// One edge per key, in the order of the keys.
    pub edges: Vec<(u16, u16)>,
    /// The value g of each vertex. The slot of an edge is the sum of its ends' values modulo the number of edges.
    pub values: Vec<u16>,
    /// Edges of the 2-core, which cannot be peeled.
    pub core_edges: usize,
    /// Seeds tried.
    pub tries: u32,
}

impl SolvedRange {
    /// Seeds tried for each non-empty bucket.
    pub fn tries(&self) -> impl Iterator<Item = u32> {
        let holding = self.buckets.iter().filter(|bucket| bucket.keys > 0);
        holding.map(|bucket| u32::from(bucket.attempt) + 1)
    }

    /// Vertices of all graphs, and the number of them with the value 0 (or without an edge).
    #[must_use]
    pub fn vertices_and_zeros(&self) -> (usize, usize) {
        let zeros = self.values.iter().filter(|value| **value == 0).count();
        (self.values.len(), zeros)
    }
}
