//! The digests of the keys, and the order of lookups.

use torc_record::Digest;

use crate::records::Random;

/// Random digests in ascending order, the same in every run.
pub(super) fn sorted(count: usize) -> Vec<Digest> {
    let mut random = Random::of(count as u64);
    let mut digests: Vec<Digest> = (0..count).map(|_| digest(&mut random)).collect();
    digests.sort_unstable();
    digests
}

fn digest(random: &mut Random) -> Digest {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random.next().to_be_bytes());
    bytes[8..].copy_from_slice(&random.next().to_be_bytes());
    Digest(bytes)
}

/// `count` of the digests, picked at random.
pub(super) fn queries(digests: &[Digest], count: usize) -> Vec<Digest> {
    let mut random = Random::of(3);
    let pick = |_| digests[random.below(digests.len() as u64) as usize];
    (0..count).map(pick).collect()
}

/// The digests of each of 2^`bits` partitions.
pub(super) fn partitions(digests: &[Digest], bits: u32) -> Vec<&[Digest]> {
    let mut rest = digests;
    let partitions = (0..1_u64 << bits).map(|partition| {
        let within = |digest: &Digest| (digest.high() >> 1) >> (63 - bits) <= partition;
        let (mine, others) = rest.split_at(rest.partition_point(within));
        rest = others;
        mine
    });
    partitions.collect()
}
