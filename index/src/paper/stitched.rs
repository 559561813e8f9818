//! Combines the functions of many partitions into one.
//!
//! Partition `p` of 2^k has the digests whose token's top `k` bits are `p`. Slots are numbered
//! through the partitions in order, so the slots of one partition are contiguous, as its records
//! are.

#![expect(
    clippy::cast_possible_truncation,
    reason = "at most 2^24 parts and fewer than 2^32 slots"
)]

use torc_record::Digest;

use crate::mphf::batch::{self, Parts};
use crate::mphf::direct::Direct;
use crate::{Mphf, PerfectHash, ViewError};

/// Why parts cannot be combined into a function. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StitchError {
    /// Their number is not a power of two. Give one part for every partition, even empty ones.
    #[error("{parts} parts: there must be one for every partition, a power of two up to 2^24")]
    Count {
        /// Parts given.
        parts: usize,
    },
    /// More than 2^32 - 1 slots in total. Stitch fewer partitions.
    #[error("more than 2^32 - 1 slots together: stitch fewer partitions")]
    TooMany,
    /// A part cannot be viewed.
    #[error("the function of partition {partition}: {source}")]
    Part {
        /// Index of the part.
        partition: usize,
        /// The problem with it.
        source: ViewError,
    },
}

/// One function of the partitions of a node, over borrowed parts.
/// Keeps 32 bytes per partition, which is all that a lookup needs beside the seeds, and another 64
/// for the few keys that were bumped, so that no header is read.
#[derive(Debug, Clone)]
pub struct Stitched<'a> {
    /// The data of each part that most lookups need, contiguous.
    direct: Vec<Direct<'a>>,
    /// The whole of each part.
    parts: Vec<Mphf<'a>>,
    len: u32,
    /// Bits of a token that name its partition.
    bits: u32,
    /// A mask of as many ones.
    mask: u64,
}

impl<'a> Stitched<'a> {
    /// Stitches the encoded functions of partitions `0, 1, …`, empty ones included.
    ///
    /// # Errors
    /// Their number is not a power of two, one is corrupt, or there are too many slots in total.
    pub fn view(parts: &[&'a [u8]]) -> Result<Self, StitchError> {
        let count = parts.len();
        if !count.is_power_of_two() || count > 1 << 24 {
            return Err(StitchError::Count { parts: count });
        }
        let bits = count.trailing_zeros();
        let mut stitched = Self {
            direct: Vec::new(),
            parts: Vec::with_capacity(count),
            len: 0,
            bits,
            mask: count as u64 - 1,
        };
        for (partition, bytes) in parts.iter().enumerate() {
            let mut part =
                Mphf::view(bytes).map_err(|source| StitchError::Part { partition, source })?;
            let first = stitched.len;
            part.direct.set_first(first);
            stitched.parts.push(part);
            let len = u32::try_from(part.len()).map_err(|_| StitchError::TooMany)?;
            stitched.len = first.checked_add(len).ok_or(StitchError::TooMany)?;
        }
        // A digest of an empty last partition gets a slot of another partition.
        let last = stitched.len.saturating_sub(1);
        for part in &mut stitched.parts {
            part.direct.set_first(part.direct.first().min(last));
        }
        let direct = stitched
            .parts
            .iter()
            .map(|part| part.direct.only_of(bits))
            .collect();
        stitched.direct = direct;
        Ok(stitched)
    }
}

impl Parts for Stitched<'_> {
    #[inline]
    fn place(&self, digest: Digest) -> (u32, u64) {
        // Rotates the partition's bits to the bottom, then masks them.
        let turned = digest.high().rotate_left(self.bits);
        let partition = turned & self.mask;
        (partition as u32, turned ^ partition)
    }

    #[inline]
    fn part(&self, part: u32) -> &Direct<'_> {
        &self.direct[part as usize]
    }

    #[cold]
    #[inline(never)]
    fn slow_slot(&self, digest: Digest) -> u32 {
        let partition = self.place(digest).0 as usize;
        let part = &self.parts[partition];
        if self.direct[partition].is_empty() {
            return part.slot(&digest) as u32;
        }
        part.slow_slot(digest)
    }
}

impl PerfectHash for Stitched<'_> {
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn slot(&self, digest: &Digest) -> usize {
        let (part, along) = self.place(*digest);
        match self.part(part).slot(along, *digest) {
            Some(slot) => slot as usize,
            None => self.slow_slot(*digest) as usize,
        }
    }

    fn slots(&self, digests: &[Digest], out: &mut Vec<u32>) {
        batch::slots(self, digests, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_count_up_through_the_partitions() {
        let digest = |first: u8, last: u8| {
            let mut bytes = [last; 16];
            bytes[0] = first;
            Digest(bytes)
        };
        let lower: Vec<Digest> = (0..50).map(|last| digest(1, last)).collect();
        let upper: Vec<Digest> = (0..30).map(|last| digest(200, last)).collect();
        let parts = [
            Mphf::build(&lower, 1).unwrap(),
            Mphf::build(&upper, 1).unwrap(),
        ];
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let stitched = Stitched::view(&parts).unwrap();
        assert_eq!(stitched.len(), 80);
        let mut slots: Vec<usize> = lower.iter().map(|digest| stitched.slot(digest)).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..50).collect::<Vec<_>>());
        assert!(upper.iter().all(|digest| stitched.slot(digest) >= 50));
    }
}
