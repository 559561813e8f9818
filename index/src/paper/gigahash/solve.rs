//! Finds values for the vertices of a bucket's graph such that all edges have different labels.
//!
//! The label of edge (a, b) is `(g(a) + g(b)) mod n`. The vertices of the 2-core are visited
//! breadth first (Botelho, Kohayakawa, Ziviani 2005). Each takes the smallest value for which its
//! edges to visited vertices get labels that are distinct and free. If there is none, the try has
//! failed. The peeled edges follow in reverse order, each with one end without a value: it takes
//! the smallest value with a free label, which always exists because there are as many labels as
//! edges. Smallest values make zeros and small numbers frequent, which the encodings exploit.

use super::MAX_BUCKET_KEYS;
use super::graph::Graph;

const WORDS: usize = (2 * MAX_BUCKET_KEYS).div_ceil(64) + 1;
const NO_VALUE: u16 = u16::MAX;

/// The labels in use, stored twice in a row so that a rotation is a window.
#[derive(Debug, Default)]
struct Labels {
    words: [u64; WORDS],
    count: usize,
}

impl Labels {
    fn reset(&mut self, count: usize) {
        self.words = [0; WORDS];
        self.count = count;
    }

    fn take(&mut self, label: usize) {
        for bit in [label, label + self.count] {
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Bits `64 * word ..` of the labels rotated down by `by`: bit x says whether `x + by` is in use.
    fn rotated(&self, by: usize, word: usize) -> u64 {
        let (at, shift) = (by / 64 + word, by % 64);
        let low = self.words[at] >> shift;
        // Two shifts, because a single shift by 64 is invalid.
        low | (self.words[at + 1] << 1) << (63 - shift)
    }

    /// The smallest value whose sum with each of `others` is a free label.
    fn smallest(&self, others: &[u16]) -> Option<usize> {
        for word in 0..self.count.div_ceil(64) {
            let taken = (others.iter()).fold(0, |taken, &other| {
                taken | self.rotated(usize::from(other), word)
            });
            let value = 64 * word + (!taken).trailing_zeros() as usize;
            if taken != u64::MAX {
                return (value < self.count).then_some(value);
            }
        }
        None
    }
}

/// The values of the vertices, with buffers that are reused.
#[derive(Debug, Default)]
pub(super) struct Solver {
    /// The value of each vertex; a vertex without edges has 0.
    pub(super) values: Vec<u16>,
    labels: Labels,
    queue: Vec<u16>,
    assigned: Vec<u16>,
}

impl Solver {
    /// Finds the values of a peeled graph. Returns false if the 2-core was not solved.
    pub(super) fn solve(&mut self, graph: &mut Graph) -> bool {
        self.values.clear();
        self.values.resize(graph.vertices, NO_VALUE);
        self.labels.reset(graph.edges.len());
        if graph.core_edges() > 0 {
            graph.collect_core();
            if !self.solve_core(graph) {
                return false;
            }
        }
        self.solve_peeled(graph);
        for value in &mut self.values {
            if *value == NO_VALUE {
                *value = 0;
            }
        }
        true
    }

    fn solve_core(&mut self, graph: &Graph) -> bool {
        self.queue.clear();
        let mut next = 0;
        for root in 0..graph.vertices as u16 {
            if graph.degree[usize::from(root)] == 0 || self.has_value(root) {
                continue;
            }
            self.queue.push(root);
            while let Some(&vertex) = self.queue.get(next) {
                next += 1;
                if !self.has_value(vertex) && !self.visit(graph, vertex) {
                    return false;
                }
            }
        }
        true
    }

    fn has_value(&self, vertex: u16) -> bool {
        self.values[usize::from(vertex)] != NO_VALUE
    }

    /// Chooses the value of a vertex in the 2-core, and the labels of its edges to visited
    /// vertices.
    fn visit(&mut self, graph: &Graph, vertex: u16) -> bool {
        self.assigned.clear();
        for &neighbour in graph.core_neighbours(vertex) {
            let value = self.values[usize::from(neighbour)];
            if value == NO_VALUE {
                self.queue.push(neighbour);
            } else if self.assigned.contains(&value) {
                // Two edges have the same label, whatever the value.
                return false;
            } else {
                self.assigned.push(value);
            }
        }
        let Some(value) = self.labels.smallest(&self.assigned) else {
            return false;
        };
        self.values[usize::from(vertex)] = value as u16;
        for &other in &self.assigned {
            self.labels
                .take((value + usize::from(other)) % self.labels.count);
        }
        true
    }

    fn solve_peeled(&mut self, graph: &Graph) {
        for &(edge, leaf) in graph.peeled.iter().rev() {
            let parent = usize::from(graph.other_end(edge, leaf));
            if self.values[parent] == NO_VALUE {
                self.values[parent] = 0;
            }
            let other = self.values[parent];
            let value = self.labels.smallest(&[other]).unwrap_or_default();
            self.values[usize::from(leaf)] = value as u16;
            self.labels
                .take((value + usize::from(other)) % self.labels.count);
        }
    }
}
