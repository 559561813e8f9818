//! The keys that a benchmark reads and adds.

use std::collections::BTreeSet;

use super::zipf::Zipf;
use crate::cmd::generate_urls::Random;

/// Exponent of YCSB's Zipf distribution.
const EXPONENT: f64 = 0.99;

/// Distribution of the requests over keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Law {
    /// Every key equally often.
    Uniform,
    /// Zipf's law with exponent 0.99, as in YCSB: one key of a million gets 7 % of the requests.
    Zipf,
    /// Zipf's law with the newest keys first, as in YCSB's workload D.
    Latest,
}

/// A law over a number of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Popularity {
    law: Law,
    /// Keys that exist from the start, at least 1.
    keys: u64,
    zipf: Zipf,
}

impl Popularity {
    pub(super) fn new(law: Law, keys: u64) -> Self {
        Self {
            law,
            keys: keys.max(1),
            zipf: Zipf::new(keys, EXPONENT),
        }
    }

    /// Draws the number of a key, out of `known`. Only the seed decides which keys are popular.
    pub(super) fn number(&self, seed: u64, known: u64, random: &mut Random) -> u64 {
        match self.law {
            Law::Uniform => random.next() % known.max(self.keys),
            // A rank is a position in a permutation of the keys, the same in every run with a seed.
            // Added keys would change the permutation, so it contains only the initial keys.
            Law::Zipf => {
                let rank = self.zipf.rank(|| random.next());
                Random::of(seed, rank).next() % self.keys
            }
            Law::Latest => {
                let known = known.max(self.keys);
                let rank = Zipf::new(known, EXPONENT).rank(|| random.next());
                known - 1 - rank
            }
        }
    }
}

/// Numbers of keys that are added while others are read.
///
/// A key is known once it and all below it were stored or failed. So no request reads a key
/// that is still being stored.
#[derive(Debug)]
pub(super) struct Added {
    next: u64,
    known: u64,
    /// Stored or failed, above `known`.
    beyond: BTreeSet<u64>,
}

impl Added {
    /// Starts after this many keys.
    pub(super) const fn behind(keys: u64) -> Self {
        Self {
            next: keys,
            known: keys,
            beyond: BTreeSet::new(),
        }
    }

    /// Takes the next number.
    pub(super) const fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Marks a key as stored or failed. Nothing retries it.
    pub(super) fn done(&mut self, number: u64) {
        self.beyond.insert(number);
        while self.beyond.remove(&self.known) {
            self.known += 1;
        }
    }

    /// Keys that requests may read.
    pub(super) const fn known(&self) -> u64 {
        self.known
    }

    /// Keys that may exist.
    pub(super) const fn taken(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(law: Law, keys: u64, known: u64) -> Vec<u32> {
        let popularity = Popularity::new(law, keys);
        let mut counts = vec![0; known as usize];
        for draw in 0..100_000 {
            let number = popularity.number(7, known, &mut Random::of(1, draw));
            counts[number as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_keys_come_alike_and_added_ones_too() {
        for count in counts(Law::Uniform, 10, 20) {
            // 5,000, within six standard deviations.
            assert!((4_580..5_420).contains(&count), "{count}");
        }
    }

    #[test]
    fn the_newest_keys_come_most_often_by_the_law() {
        let (known, counts) = (100, counts(Law::Latest, 50, 100));
        let weight = |age: f64| (age + 1.0).powf(-EXPONENT);
        let total: f64 = (0..known).map(|age| weight(f64::from(age))).sum();
        for (age, count) in (0..known).zip(counts.iter().rev()) {
            let wanted = 100_000.0 * weight(f64::from(age)) / total;
            let off = (f64::from(*count) - wanted).abs();
            assert!(off <= 6.0 * wanted.sqrt() + 1.0, "{age}: {count}, {wanted}");
        }
    }

    #[test]
    fn popular_keys_stay_the_same_while_keys_are_added() {
        let hottest = |known| {
            let counts = counts(Law::Zipf, 1_000, known);
            let most = counts.iter().max().copied();
            (counts.iter().position(|count| Some(*count) == most), most)
        };
        assert_eq!(hottest(1_000), hottest(5_000));
        // One in 7.5, by the ranks of 1,000 keys, and perhaps further ranks that map to the same
        // key.
        assert!(hottest(1_000).1 > Some(12_500), "{:?}", hottest(1_000));
    }

    #[test]
    fn a_key_is_known_when_all_before_it_are_done() {
        let mut added = Added::behind(10);
        let numbers = [added.take(), added.take(), added.take()];
        assert_eq!(numbers, [10, 11, 12]);
        added.done(11);
        added.done(12);
        assert_eq!((added.known(), added.taken()), (10, 13));
        added.done(10);
        assert_eq!(added.known(), 13);
    }
}
