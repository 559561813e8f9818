//! The function of the bumped keys: a few percent of a part, or all of a tiny one.
//!
//! It uses pilots: keys fall into small buckets, the buckets choose in order of size, and each
//! takes the first pilot that hashes all its keys to free places. There are a few more places than
//! keys. A table maps the places to the remaining slots, which ascend with the places; it is stored
//! as in [`Offsets`], with an unused place repeating its successor. It requires only that the
//! digests differ.

use torc_record::Digest;

use super::hash::{piloted, scale, whole};
use super::{BuildError, Mphf};
use crate::Offsets;

/// Keys per pilot, on average.
const BUCKET_KEYS: u32 = 2;
/// One additional place for this many keys, and another one for each failed attempt.
const KEYS_PER_SPARE: u32 = 16;

/// Number of attempts that the header can encode.
const MAX_ATTEMPTS: u8 = 16;

/// The function of bumped keys, read in place.
#[derive(Debug)]
pub(super) struct Tail<'a> {
    pilots: &'a [u8],
    slots: Offsets<'a>,
    places: u32,
    hash: (u32, u8),
}

fn buckets(keys: u32) -> u32 {
    keys.div_ceil(BUCKET_KEYS)
}

fn places(keys: u32, attempt: u8) -> u32 {
    if keys == 0 {
        return 0;
    }
    keys + keys / KEYS_PER_SPARE * (1 + u32::from(attempt)) + 1
}

/// An upper bound of all table entries, which are slot + place.
fn table_end(keys: u32, places: u32) -> u64 {
    u64::from(keys) + u64::from(places)
}

impl<'a> Tail<'a> {
    /// Length of the tail of `bumped` keys in bytes, and the lower bits of its table.
    pub(super) fn bytes(keys: u32, bumped: u32, attempt: u8) -> (usize, u8) {
        let places = places(bumped, attempt);
        let (table, low_bits) = Offsets::body_len(places as usize, table_end(keys, places));
        if bumped == 0 {
            (0, 0)
        } else {
            (buckets(bumped) as usize + table, low_bits)
        }
    }

    /// The tail in its bytes; `None` if there are too few.
    #[inline]
    pub(super) fn view(function: &Mphf<'a>, bytes: &'a [u8]) -> Option<Self> {
        let (pilots, table) = bytes.split_at_checked(buckets(function.bumped) as usize)?;
        let places = places(function.bumped, function.attempt);
        Some(Self {
            pilots,
            slots: Offsets::view_body(places as usize, function.low_bits, table)?,
            places,
            hash: (function.direct.seed, function.attempt),
        })
    }

    /// The slot of a bumped key; any number for others.
    #[inline]
    pub(super) fn slot(&self, digest: Digest) -> Option<usize> {
        let hash = whole(digest, self.hash.0, self.hash.1);
        let pilot = self.pilots.get(scale(hash, self.pilots.len()))?;
        let along = piloted(hash, *pilot);
        let place = scale(along, self.places as usize);
        // Prefetches both places of the entry at the same time.
        self.slots.prefetch_along(place, along);
        let above = self.slots.get(place)? as usize;
        above.checked_sub(place)
    }
}

/// Appends the function of the bumped keys, whose slots are the free ones of `all` keys; returns the
/// successful attempt.
pub(super) fn build(
    bumped: &[Digest],
    free: &[usize],
    all: u32,
    seed: u32,
    out: &mut Vec<u8>,
) -> Result<u8, BuildError> {
    let keys = bumped.len() as u32;
    if keys == 0 {
        return Ok(0);
    }
    for attempt in 0..MAX_ATTEMPTS {
        let hashes = bumped.iter().map(|digest| whole(*digest, seed, attempt));
        let places = places(keys, attempt);
        let Some((pilots, used)) = place(hashes.collect(), places) else {
            continue;
        };
        let end = table_end(all, places);
        let Ok(table) = Offsets::build(&table(&used, free), end) else {
            continue;
        };
        out.extend_from_slice(&pilots);
        out.extend_from_slice(Offsets::body(&table));
        return Ok(attempt);
    }
    let tries = u32::from(MAX_ATTEMPTS);
    Err(BuildError::NoSeed { tries })
}

/// For every place, its slot plus the place itself, which ascends even over unused places.
fn table(used: &[bool], free: &[usize]) -> Vec<u64> {
    let last = free.len().saturating_sub(1);
    let mut next = 0;
    let slots = used.iter().enumerate().map(|(place, used)| {
        let slot = free[next.min(last)];
        next += usize::from(*used);
        (slot + place) as u64
    });
    slots.collect()
}

/// The pilot of every bucket, and the used places; `None` if a bucket has no pilot.
fn place(mut hashes: Vec<u64>, places: u32) -> Option<(Vec<u8>, Vec<bool>)> {
    let buckets = buckets(hashes.len() as u32) as usize;
    hashes.sort_unstable();
    let same = |a: &u64, b: &u64| scale(*a, buckets) == scale(*b, buckets);
    let mut groups: Vec<&[u64]> = hashes.chunk_by(same).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut pilots = vec![0; buckets];
    let mut used = vec![false; places as usize];
    let mut chosen = Vec::new();
    for group in groups {
        pilots[scale(group[0], buckets)] = first_pilot(group, &used, &mut chosen)?;
        for place in &chosen {
            used[*place] = true;
        }
    }
    Some((pilots, used))
}

/// The first pilot that hashes all keys of a bucket to different free places; leaves these in
/// `chosen`.
fn first_pilot(group: &[u64], used: &[bool], chosen: &mut Vec<usize>) -> Option<u8> {
    (0..=u8::MAX).find(|pilot| {
        chosen.clear();
        for hash in group {
            let place = scale(piloted(*hash, *pilot), used.len());
            if used[place] || chosen.contains(&place) {
                return false;
            }
            chosen.push(place);
        }
        true
    })
}
