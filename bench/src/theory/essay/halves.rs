//! "It is simply not true that a 64-bit hash function can be treated safely as two 32-bit hash
//! functions."
//!
//! The two hashes of a key are the lower and the upper half of one hash. The keys are of the kind
//! that the essay warns of: their low bits are zero, like those of page addresses. A Bloom filter
//! of these keys, probed at masked `h1 + i h2`, shows how good the halves are.

use std::ops::Range;

use anyhow::{Context as _, Result};
use torc_record::{Digest, DigestKey, NamespaceId};
use torc_sketch::SeedStream;
use torc_sketch::bloom::{best_probes, classic_rate};
use torc_sketch::hash::MultiplyShift32;
use torc_sketch::hash::prime::random_prime;

use super::super::Sizes;
use super::super::claim::{Claim, Says};
use torc_plot::{Axis, Plot};

const PRIMES: Range<u64> = 1 << 62..u64::MAX;
/// Zero bits at the end of each key; there are 2^14 keys.
const ZERO_BITS: u32 = 18;
const KEYS: u32 = 1 << 14;
/// Bits of the filter: a power of two, for masks, and no more than halves of 16 bits can address.
const BITS: u32 = 1 << 14;
const MEMBERS: u32 = BITS / 10;
/// The essay's c: 2^31.
const C: u32 = 1 << 31;

/// A key's two hashes.
type Halves = Box<dyn Fn(u32) -> (u32, u32)>;

/// A family: a name, the bits of each half, and how to draw a member.
struct Family {
    name: &'static str,
    half_bits: u32,
    draw: fn(&mut SeedStream) -> Result<Halves>,
}

const FAMILIES: [Family; 4] = [
    Family {
        name: "c p mod 2^64, p a random prime",
        half_bits: 32,
        draw: |seeds| {
            let p = prime(seeds)?;
            Ok(Box::new(move |c| split(u64::from(c).wrapping_mul(p))))
        },
    },
    Family {
        name: "(c xor y) p mod 2^64, y random",
        half_bits: 32,
        draw: |seeds| {
            let (p, y) = (prime(seeds)?, seeds.next_u64() as u32);
            Ok(Box::new(move |c| split(u64::from(c ^ y).wrapping_mul(p))))
        },
    },
    Family {
        name: "(a c + b) / 2^32, halves of 16 bits",
        half_bits: 16,
        draw: |seeds| {
            let hash = MultiplyShift32::new(seeds, 32)?;
            Ok(Box::new(move |c| {
                let hash = hash.hash(c);
                (hash & 0xffff, hash >> 16)
            }))
        },
    },
    Family {
        name: "keyed BLAKE3, halves of 64 bits",
        half_bits: 32,
        draw: |seeds| {
            let mut key = DigestKey([0; 32]);
            key.0[..8].copy_from_slice(&seeds.next_u64().to_le_bytes());
            Ok(Box::new(move |c| {
                split(Digest::of(&key, NamespaceId::DEFAULT, &c.to_le_bytes()).low())
            }))
        },
    },
];

fn prime(seeds: &mut SeedStream) -> Result<u64> {
    random_prime(seeds, &PRIMES).context("no prime was drawn")
}

/// The lower and the upper half.
const fn split(hash: u64) -> (u32, u32) {
    (hash as u32, (hash >> 32) as u32)
}

/// Bits in the lower half of the hash of c = 2^31 that are the same for every member of the family.
fn constant_bits(family: &Family, draws: usize, seeds: &mut SeedStream) -> Result<u32> {
    let (mut ones, mut zeros) = (0, 0);
    for _ in 0..draws {
        let (low, _) = (family.draw)(seeds)?(C);
        ones |= low;
        zeros |= !low;
    }
    Ok(family.half_bits - (ones & zeros).count_ones())
}

/// The share of members for which 0 and c = 2^31 have the same lower 16 bits.
fn collisions(family: &Family, draws: usize, seeds: &mut SeedStream) -> Result<f64> {
    let mut colliding = 0;
    for _ in 0..draws {
        let hash = (family.draw)(seeds)?;
        colliding += usize::from((hash(0).0 ^ hash(C).0).trailing_zeros() >= 16);
    }
    Ok(colliding as f64 / draws as f64)
}

/// The share of strangers that a filter of such keys accepts, over some members of the family.
fn let_in(family: &Family, probes: u32, draws: usize, seeds: &mut SeedStream) -> Result<f64> {
    let mut found = 0_u32;
    for _ in 0..draws {
        let hash = (family.draw)(seeds)?;
        let bits = |key: u32| {
            let (first, second) = hash(key << ZERO_BITS);
            (0..probes).map(move |i| first.wrapping_add(i.wrapping_mul(second)) & (BITS - 1))
        };
        let mut filter = vec![false; BITS as usize];
        // Members in no particular order.
        let member = |key: u32| key.wrapping_mul(0x9e37_79b1) % KEYS;
        (0..MEMBERS).for_each(|key| bits(member(key)).for_each(|bit| filter[bit as usize] = true));
        let strangers = (MEMBERS..KEYS).map(member);
        found += strangers
            .filter(|key| bits(*key).all(|bit| filter[bit as usize]))
            .count() as u32;
    }
    Ok(f64::from(found) / (f64::from(KEYS - MEMBERS) * draws as f64))
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new("Essay: a good 64-bit hash is not two good 32-bit hashes");
    let mut plot = Plot::new(
        "Essay: a Bloom filter by two halves of a hash, keys with zero low bits",
        Axis::linear("probes T"),
        Axis::log("false-positive rate"),
    );
    let mut seeds = SeedStream::new(sizes.seed);
    let best = best_probes(10.0);
    let rate = |probes| classic_rate(MEMBERS.into(), BITS.into(), probes);
    plot.dashed(
        "independent hashes",
        (1..=12).map(|t| (f64::from(t), rate(t))).collect(),
    );
    let draws = sizes.of(200);
    for (index, family) in FAMILIES.iter().enumerate() {
        let constant = constant_bits(family, draws, &mut seeds)?;
        let says = [31.0, 0.0, 0.0, 0.0][index];
        let case = family.name;
        claim.row(
            case,
            ("constant bits of the lower half, c = 2^31", "bits"),
            Says::Is(says),
            constant.into(),
        );
        let colliding = collisions(family, draws, &mut seeds)?;
        let says = [1.0, 1.0, 1.0 / 65_536.0, 1.0 / 65_536.0][index];
        claim.row(
            case,
            ("lower 16 bits of 0 and 2^31 agree", "share"),
            Says::Is(says),
            colliding,
        );
        let mut line = Vec::new();
        for probes in 1..=12 {
            let found = let_in(family, probes, (draws / 10).max(2), &mut seeds)?;
            line.push((f64::from(probes), found));
            if probes == best {
                claim.row(
                    case,
                    ("strangers let in, 10 bits and 7 probes a key", "share"),
                    Says::Is(rate(best)),
                    found,
                );
            }
        }
        plot.measured(case, line);
    }
    claim.plot(&plot);
    for reason in [
        "c = 2^31: c p has 31 zero bits at its lower end whatever p is, as the essay says, and the last of the 32 is 1, since p is odd. With y they are those of y p: no constant, but the same for all keys that differ in the highest bit alone.",
        "Hence, under a mask, the lower half is the same for all keys whose low bits agree, and all probes are multiples of the upper half: 24 and 14 times the strangers are let in.",
        "(a c + b) / 2^32 is strongly universal, so any of its bits are; two halves of 16 bits serve. BLAKE3 shows what two hashes instead of seven cost in so small a filter (claim `bloom`).",
        "Keyed BLAKE3 has no structure in any of its bits; Torc's filters, sketches and functions all take parts of one digest.",
    ] {
        claim.why(reason);
    }
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 31 zeros, and the last bit: p is odd.
    #[test]
    fn the_product_has_32_constant_bits_and_the_others_collide_as_the_essay_says() {
        let mut seeds = SeedStream::new(1);
        assert_eq!(constant_bits(&FAMILIES[0], 60, &mut seeds).unwrap(), 32);
        assert!((collisions(&FAMILIES[1], 60, &mut seeds).unwrap() - 1.0).abs() < 1e-9);
        for family in &FAMILIES[2..] {
            assert_eq!(
                constant_bits(family, 60, &mut seeds).unwrap(),
                0,
                "{}",
                family.name
            );
            // 60 draws at 2^-16: one collision with probability 1e-3, two with 4e-7.
            assert!(collisions(family, 60, &mut seeds).unwrap() < 1.5 / 60.0);
        }
    }
}
