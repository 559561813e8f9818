//! The treap of a dynamic string: in string order, and a heap by priority.
//!
//! Invariants: no node is empty or has more than [`PIECE`] bytes; after [`Treap::join`], two
//! neighbours have more than that together; `all` is the fingerprint of the whole subtree.

use std::cmp::Ordering;

use torc_record::to_usize;

use super::{Fingerprint, Modulus, SeedStream};

/// Capacity of a node, bytes.
pub(super) const PIECE: usize = 64;

pub(super) type Link = Option<Box<Node>>;

/// A piece of the string, with the parts before and after it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    priority: u64,
    left: Link,
    right: Link,
    piece: Vec<u8>,
    own: Fingerprint,
    all: Fingerprint,
}

/// The source of priorities and hashes for nodes.
#[derive(Debug, Clone)]
pub(super) struct Treap {
    modulus: Modulus,
    seeds: SeedStream,
}

pub(super) fn len(link: &Link) -> usize {
    link.as_ref().map_or(0, |node| to_usize(node.all.len()))
}

fn all(link: &Link) -> Fingerprint {
    link.as_ref().map_or(Fingerprint::EMPTY, |node| node.all)
}

pub(super) fn byte(link: &Link, mut at: usize) -> Option<u8> {
    let mut link = link;
    while let Some(node) = link {
        let before = len(&node.left);
        if at < before {
            link = &node.left;
        } else if let Some(byte) = node.piece.get(at - before) {
            return Some(*byte);
        } else {
            at -= before + node.piece.len();
            link = &node.right;
        }
    }
    None
}

/// Appends all bytes.
pub(super) fn collect(link: &Link, out: &mut Vec<u8>) {
    if let Some(node) = link {
        collect(&node.left, out);
        out.extend_from_slice(&node.piece);
        collect(&node.right, out);
    }
}

fn last_len(link: &Link) -> usize {
    let mut link = link.as_ref();
    let mut found = 0;
    while let Some(node) = link {
        found = node.piece.len();
        link = node.right.as_ref();
    }
    found
}

fn first_len(link: &Link) -> usize {
    let mut link = link.as_ref();
    let mut found = 0;
    while let Some(node) = link {
        found = node.piece.len();
        link = node.left.as_ref();
    }
    found
}

impl Treap {
    pub(super) const fn new(modulus: Modulus, seeds: SeedStream) -> Self {
        Self { modulus, seeds }
    }

    /// Another one, with different priorities.
    pub(super) const fn fork(&mut self) -> Self {
        Self::new(self.modulus, SeedStream::new(self.seeds.next_u64()))
    }

    pub(super) const fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    fn node(&mut self, piece: Vec<u8>) -> Link {
        if piece.is_empty() {
            return None;
        }
        let own = Fingerprint::of(&self.modulus, &piece);
        let (priority, all) = (self.seeds.next_u64(), own);
        let (left, right) = (None, None);
        Some(Box::new(Node {
            priority,
            left,
            right,
            piece,
            own,
            all,
        }))
    }

    /// Recomputes `all` after a child or the piece has changed.
    fn update(&self, node: &mut Node) {
        let left = all(&node.left).concat(&self.modulus, &node.own);
        node.all = left.concat(&self.modulus, &all(&node.right));
    }

    /// A tree with these bytes.
    pub(super) fn build(&mut self, bytes: &[u8]) -> Link {
        bytes.chunks(PIECE).fold(None, |tree, piece| {
            let node = self.node(piece.to_vec());
            self.merge(tree, node)
        })
    }

    /// The concatenation of both trees. Nodes of strings with one seed have equal priorities: there,
    /// chance decides by the lengths, as in a randomized search tree (Martínez and Roura 1998).
    fn merge(&mut self, first: Link, second: Link) -> Link {
        match (first, second) {
            (tree, None) | (None, tree) => tree,
            (Some(mut first), Some(mut second)) => {
                let is_first = match first.priority.cmp(&second.priority) {
                    Ordering::Greater => true,
                    Ordering::Less => false,
                    Ordering::Equal => {
                        let (before, after) = (first.all.len(), second.all.len());
                        self.seeds.below(before.saturating_add(after)) < before
                    }
                };
                if is_first {
                    first.right = self.merge(first.right.take(), Some(second));
                    self.update(&mut first);
                    Some(first)
                } else {
                    second.left = self.merge(Some(first), second.left.take());
                    self.update(&mut second);
                    Some(second)
                }
            }
        }
    }

    /// Splits into the first `at` bytes and the rest.
    pub(super) fn split(&mut self, link: Link, at: usize) -> (Link, Link) {
        let Some(mut node) = link else {
            return (None, None);
        };
        let before = len(&node.left);
        let until = before + node.piece.len();
        if at <= before {
            let (first, second) = self.split(node.left.take(), at);
            node.left = second;
            self.update(&mut node);
            (first, Some(node))
        } else if at >= until {
            let (first, second) = self.split(node.right.take(), at - until);
            node.right = first;
            self.update(&mut node);
            (Some(node), second)
        } else {
            let rest = self.node(node.piece.split_off(at - before));
            let second = self.merge(rest, node.right.take());
            node.own = Fingerprint::of(&self.modulus, &node.piece);
            self.update(&mut node);
            (Some(node), second)
        }
    }

    /// The concatenation of both trees, without short pieces where they meet: the last piece of the
    /// first and the first piece of the second may have been cut.
    pub(super) fn join(&mut self, first: Link, second: Link) -> Link {
        let cut = len(&first) - last_len(&first);
        let (mut joined, last) = self.split(first, cut);
        let mut rest = second;
        joined = self.push(joined, last);
        let cut = first_len(&rest);
        if cut > 0 {
            let (piece, others) = self.split(rest, cut);
            joined = self.push(joined, piece);
            rest = others;
        }
        while rest.is_some() && last_len(&joined) + first_len(&rest) <= PIECE {
            let cut = first_len(&rest);
            let (piece, others) = self.split(rest, cut);
            joined = self.push(joined, piece);
            rest = others;
        }
        self.merge(joined, rest)
    }

    /// Appends one piece, merging it with the last one if both fit.
    fn push(&mut self, tree: Link, piece: Link) -> Link {
        let cut = last_len(&tree);
        if piece.is_none() || cut == 0 || cut + len(&piece) > PIECE {
            return self.merge(tree, piece);
        }
        let at = len(&tree) - cut;
        let (others, last) = self.split(tree, at);
        let mut bytes = Vec::with_capacity(PIECE);
        collect(&last, &mut bytes);
        collect(&piece, &mut bytes);
        let both = self.node(bytes);
        self.merge(others, both)
    }

    /// The fingerprint of the first `at` bytes.
    pub(super) fn prefix(&self, link: &Link, mut at: usize) -> Fingerprint {
        let mut prefix = Fingerprint::EMPTY;
        let mut link = link;
        while let Some(node) = link {
            let before = len(&node.left);
            if at <= before {
                link = &node.left;
                continue;
            }
            prefix = prefix.concat(&self.modulus, &all(&node.left));
            at -= before;
            let Some(rest) = at.checked_sub(node.piece.len()) else {
                let part = Fingerprint::of(&self.modulus, &node.piece[..at]);
                return prefix.concat(&self.modulus, &part);
            };
            prefix = prefix.concat(&self.modulus, &node.own);
            at = rest;
            link = &node.right;
        }
        prefix
    }

    /// Checks the invariants; returns the depth and the pieces' lengths.
    #[cfg(test)]
    pub(super) fn check(&self, link: &Link, lengths: &mut Vec<usize>) -> usize {
        let Some(node) = link else { return 0 };
        for child in [&node.left, &node.right].into_iter().flatten() {
            assert!(child.priority <= node.priority, "a heap");
        }
        let left = self.check(&node.left, lengths);
        assert!((1..=PIECE).contains(&node.piece.len()));
        lengths.push(node.piece.len());
        let right = self.check(&node.right, lengths);
        let mut bytes = Vec::new();
        collect(link, &mut bytes);
        assert_eq!(node.all, Fingerprint::of(&self.modulus, &bytes));
        1 + left.max(right)
    }
}
