//! The random graph of one bucket, with a vertex for each value and an edge for each key, and its
//! 2-core.
//!
//! Peeling (Czech, Havas, Majewski 1992) removes an edge with an end of degree one, until there is
//! none. The removed edges can always be labelled, in reverse order. The rest is the 2-core, which
//! must be labelled first and may have no labelling.

use super::hash::EdgeHash;
use torc_record::Digest;

/// Slots of the set that detects parallel edges: at least twice the number of edges.
const SET_SLOTS: usize = 1024;

/// A graph, with buffers that are reused for the next one.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) vertices: usize,
    pub(super) edges: Vec<(u16, u16)>,
    /// Edges in the order in which they were peeled, each with the end of degree one.
    pub(super) peeled: Vec<(u16, u16)>,
    /// Degree of each vertex, in the 2-core once peeled.
    pub(super) degree: Vec<u16>,
    /// Exclusive or of the indices of the edges still at a vertex.
    at_vertex: Vec<u16>,
    leaves: Vec<u16>,
    /// Neighbours in the 2-core of vertex v: `neighbours[starts[v]..starts[v + 1]]`.
    starts: Vec<u16>,
    neighbours: Vec<u16>,
    /// Open addressing: generation and pair of vertices.
    set: Vec<(u32, u32)>,
    generation: u32,
}

impl Graph {
    /// Draws the graph of a try. Returns false if two edges are parallel: their keys would have the
    /// same slot whatever the values.
    pub(super) fn draw(&mut self, keys: &[Digest], vertices: usize, hash: EdgeHash) -> bool {
        self.vertices = vertices;
        self.edges.clear();
        self.set.resize(SET_SLOTS, (0, 0));
        self.generation = self.generation.wrapping_add(1);
        for key in keys {
            let (a, b) = hash.edge(key, vertices);
            let pair = (a.min(b) << 16 | a.max(b)) as u32;
            if !self.insert(pair) {
                return false;
            }
            self.edges.push((a as u16, b as u16));
        }
        true
    }

    /// Adds a pair to the set; returns whether it was new.
    fn insert(&mut self, pair: u32) -> bool {
        let mut slot = (pair.wrapping_mul(0x9e37_79b9) >> 22) as usize;
        loop {
            let held = &mut self.set[slot % SET_SLOTS];
            if held.0 != self.generation {
                *held = (self.generation, pair);
                return true;
            }
            if held.1 == pair {
                return false;
            }
            slot += 1;
        }
    }

    /// Peels the graph down to its 2-core.
    pub(super) fn peel(&mut self) {
        self.count_degrees();
        self.peeled.clear();
        self.leaves.clear();
        self.leaves
            .extend((0..self.vertices as u16).filter(|&v| self.degree[usize::from(v)] == 1));
        while let Some(leaf) = self.leaves.pop() {
            let end = usize::from(leaf);
            if self.degree[end] != 1 {
                continue;
            }
            let edge = self.at_vertex[end];
            self.peeled.push((edge, leaf));
            self.degree[end] = 0;
            let other = self.other_end(edge, leaf);
            let parent = usize::from(other);
            self.degree[parent] -= 1;
            self.at_vertex[parent] ^= edge;
            if self.degree[parent] == 1 {
                self.leaves.push(other);
            }
        }
    }

    fn count_degrees(&mut self) {
        self.degree.clear();
        self.degree.resize(self.vertices, 0);
        self.at_vertex.clear();
        self.at_vertex.resize(self.vertices, 0);
        for (edge, &(a, b)) in self.edges.iter().enumerate() {
            for end in [usize::from(a), usize::from(b)] {
                self.degree[end] += 1;
                self.at_vertex[end] ^= edge as u16;
            }
        }
    }

    /// The other end of an edge.
    pub(super) fn other_end(&self, edge: u16, end: u16) -> u16 {
        let (a, b) = self.edges[usize::from(edge)];
        a ^ b ^ end
    }

    /// Edges of the 2-core.
    pub(super) fn core_edges(&self) -> usize {
        self.edges.len() - self.peeled.len()
    }

    /// Collects the neighbours of every vertex within the 2-core. Call [`Graph::peel`] first.
    pub(super) fn collect_core(&mut self) {
        self.starts.clear();
        self.starts.push(0);
        let mut end = 0;
        for degree in &self.degree {
            end += degree;
            self.starts.push(end);
        }
        self.neighbours.clear();
        self.neighbours.resize(usize::from(end), 0);
        // Filling backwards moves each start down to its final position.
        let (starts, degree) = (&mut self.starts, &self.degree);
        for vertex in 0..self.vertices {
            starts[vertex] += degree[vertex];
        }
        for &(a, b) in &self.edges {
            let (from, to) = (usize::from(a), usize::from(b));
            if degree[from] > 0 && degree[to] > 0 {
                for (vertex, neighbour) in [(from, b), (to, a)] {
                    starts[vertex] -= 1;
                    self.neighbours[usize::from(starts[vertex])] = neighbour;
                }
            }
        }
    }

    /// The neighbours of a vertex in the 2-core. Call [`Graph::collect_core`] first.
    pub(super) fn core_neighbours(&self, vertex: u16) -> &[u16] {
        let vertex = usize::from(vertex);
        &self.neighbours[usize::from(self.starts[vertex])..usize::from(self.starts[vertex + 1])]
    }
}
