//! Builds the function of one partition.

use torc_record::Digest;

use super::header::Header;
use super::search::search;
use super::shape::{Placing, Shape};
use super::{BuildError, MAX_KEYS, tail};

/// Encodes the function of digests in ascending order.
pub(super) fn build(digests: &[Digest], seed: u64) -> Result<Vec<u8>, BuildError> {
    check(digests)?;
    let keys = digests.len() as u32;
    let shape = Shape::of(keys);
    let mut head = Header {
        shape,
        bumped: 0,
        seed: Header::seed_kept(seed, keys),
        shared_bits: shared_bits(digests),
        attempt: 0,
        low_bits: 0,
    };
    let placing = |digest: &Digest| Placing::of(*digest, head.shared_bits, head.seed);
    let placings: Vec<Placing> = digests.iter().map(placing).collect();
    let found = search(&placings, shape);
    let is_bumped = |placing: &Placing| found.seeds[placing.bucket(found.seeds.len())] == 0;
    let bumped: Vec<Digest> = digests
        .iter()
        .zip(&placings)
        .filter(|(_, placing)| is_bumped(placing))
        .map(|(digest, _)| *digest)
        .collect();
    head.bumped = bumped.len() as u32;
    let free: Vec<usize> = found.taken.free(digests.len()).collect();
    let mut tail = Vec::new();
    head.attempt = tail::build(&bumped, &free, head.keys(), head.seed, &mut tail)?;

    let mut out = Vec::with_capacity(16 + found.seeds.len() + tail.len());
    head.write(&mut out);
    out.extend_from_slice(&found.seeds);
    out.extend_from_slice(&tail);
    Ok(out)
}

/// The leading bits of the token that all digests share.
fn shared_bits(digests: &[Digest]) -> u8 {
    let (Some(first), Some(last)) = (digests.first(), digests.last()) else {
        return 0;
    };
    (first.high() ^ last.high()).leading_zeros().min(63) as u8
}

/// Checks that the digests are strictly ascending and that their number is in range.
fn check(digests: &[Digest]) -> Result<(), BuildError> {
    if digests.len() > MAX_KEYS {
        let digests = digests.len();
        return Err(BuildError::TooMany { digests });
    }
    for (before, pair) in digests.windows(2).enumerate() {
        let at = before + 1;
        match pair[0].cmp(&pair[1]) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return Err(BuildError::Duplicate { at }),
            std::cmp::Ordering::Greater => return Err(BuildError::NotSorted { at }),
        }
    }
    Ok(())
}
