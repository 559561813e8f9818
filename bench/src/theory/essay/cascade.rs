//! The discussion's two proposals: compute further hashes only if the first one hits, and use two
//! passes if the set is not known in advance.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use torc_record::Digest;
use torc_sketch::{CountMin, SeedStream, Shape};

use super::super::Sizes;
use super::super::claim::{Claim, Says};
use torc_plot::{Axis, Plot};

/// Hashes after the first, of eight bits each.
const FURTHER: usize = 3;
const MEMBERS: usize = 1_000;
const RATE: f64 = 1.0 / 256.0;

/// "Use f1 to index into a hash table and store the values of f2 … fn in that slot."
struct Cascade {
    slots: Vec<Vec<[u8; FURTHER]>>,
}

/// The hashes of a line. A real implementation would compute them one by one; [`Cascade::ask`]
/// counts as if it did.
fn hashes(line: u64) -> (u64, [u8; FURTHER]) {
    let mut words = SeedStream::new(line);
    let first = words.next_u64();
    let further = words.next_u64().to_le_bytes();
    (first, [further[0], further[1], further[2]])
}

impl Cascade {
    fn new(slots: usize, members: impl Iterator<Item = u64>) -> Self {
        let mut table = Self {
            slots: vec![Vec::new(); slots],
        };
        for member in members {
            let (first, further) = hashes(member);
            table.slots[first as usize % slots].push(further);
        }
        table
    }

    /// Whether the line may be a member, and how many hashes the decision took.
    fn ask(&self, line: u64) -> (bool, usize) {
        let (first, further) = hashes(line);
        let slot = &self.slots[first as usize % self.slots.len()];
        let agreeing = slot.iter().map(|member| {
            let pairs = member.iter().zip(&further);
            pairs.take_while(|(a, b)| a == b).count()
        });
        match agreeing.max() {
            None => (false, 1),
            Some(FURTHER) => (true, 1 + FURTHER),
            Some(agreeing) => (false, 2 + agreeing),
        }
    }
}

/// Expected hashes of a stranger: the second if its slot has a member, each further one if a member
/// agrees so far.
fn expected_calls(load: f64) -> f64 {
    let agrees_with = |hashes: i32| 1.0 - (-load * RATE.powi(hashes)).exp();
    1.0 + (0..FURTHER as i32).map(agrees_with).sum::<f64>()
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new("Essay, discussion: f1 … fn in turn, and two passes");
    let mut plot = Plot::new(
        "Essay: hashes computed for a line that is not boilerplate",
        Axis::log("members a slot"),
        Axis::linear("hashes a line"),
    );
    let (mut expected, mut measured) = (Vec::new(), Vec::new());
    let lines = sizes.of(1_000_000);
    for load_log2 in [-6, -4, -3, -2, -1, 0, 1, 2] {
        let load = 2_f64.powi(load_log2);
        let slots = (MEMBERS as f64 / load) as usize;
        let mut seeds = SeedStream::new(sizes.seed);
        let table = Cascade::new(slots, (0..MEMBERS).map(|_| seeds.next_u64()));
        let (mut calls, mut wrong) = (0, 0);
        for _ in 0..lines {
            let (is_member, taken) = table.ask(seeds.next_u64());
            calls += taken;
            wrong += usize::from(is_member);
        }
        let mean = calls as f64 / lines as f64;
        let exact_load = MEMBERS as f64 / slots as f64;
        let predicted = expected_calls(exact_load);
        expected.push((exact_load, predicted));
        measured.push((exact_load, mean));
        if [-6, -2, 0].contains(&load_log2) {
            let case = format!("{MEMBERS} members in {slots} slots");
            claim.row(
                &case,
                ("hashes a line", "hashes"),
                Says::Is(predicted),
                mean,
            );
            let rate = exact_load * RATE.powi(FURTHER as i32);
            claim.row(
                &case,
                ("lines taken for boilerplate", "share"),
                Says::Is(rate),
                wrong as f64 / lines as f64,
            );
        }
    }
    plot.dashed("1 + the chances that each further one is needed", expected);
    plot.measured("counted", measured);
    claim.plot(&plot);
    two_passes(&mut claim, sizes)?;
    claim.why("\"Only slightly more than one hash call\" holds while the table is mostly empty, as the discussion assumes: 1.02 at 64 slots a member, 1.64 at one.");
    claim.why("Two passes: count-min never counts too little, so the first pass misses no frequent line; the second holds keys of the candidates only and counts them exactly, so nothing wrong is left.");
    claim.why("\"High frequency text is not necessarily boilerplate\": no hash decides that.");
    Ok(claim)
}

/// Documents of 50 lines each: 20 lines come from a pool of 100 that all documents share, the
/// others occur once.
fn two_passes(claim: &mut Claim, sizes: &Sizes) -> Result<()> {
    let documents = sizes.of(4_000) as u64;
    let corpus = || {
        let mut seeds = SeedStream::new(sizes.seed);
        (0..documents * 50).map(move |line| {
            let key = if line % 5 < 2 {
                seeds.below(100)
            } else {
                (1 << 40) + line
            };
            (key, digest(key))
        })
    };
    let threshold = documents / 20;
    // ε = 1/8192 of the lines.
    let mut counts = CountMin::new(Shape::new(14, 4)?, sizes.seed);
    corpus().for_each(|(_, digest)| counts.insert(&digest));
    let is_candidate = |digest: &Digest| counts.estimate(digest) >= threshold as i64;
    let mut exact: HashMap<u64, u64> = HashMap::new();
    for (key, digest) in corpus() {
        if is_candidate(&digest) {
            *exact.entry(key).or_default() += 1;
        }
    }
    let frequent = exact.values().filter(|count| **count >= threshold).count();
    let missed = (0..100).filter(|key| !exact.contains_key(key)).count();
    let distinct: HashSet<u64> = corpus().map(|(key, _)| key).collect();
    let case = format!("two passes over {} lines", documents * 50);
    claim.row(
        &case,
        ("frequent lines found of 100", "lines"),
        Says::Is(100.0),
        frequent as f64,
    );
    claim.row(
        &case,
        ("frequent lines missed by the first pass", "lines"),
        Says::Is(0.0),
        missed as f64,
    );
    let share = 100.0 * exact.len() as f64 / distinct.len() as f64;
    claim.row(
        &case,
        ("different lines held by the second pass", "%"),
        Says::Nothing,
        share,
    );
    Ok(())
}

fn digest(key: u64) -> Digest {
    Digest(SeedStream::new(key).next_u128().to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_and_an_empty_table_takes_one_hash() {
        let table = Cascade::new(10, 0..100);
        assert!((0..100).all(|line| table.ask(line) == (true, 1 + FURTHER)));
        assert_eq!(Cascade::new(10, 0..0).ask(7), (false, 1));
        assert!((expected_calls(0.0) - 1.0).abs() < 1e-12);
    }
}
