//! One function of many partitions: their parts, side by side, and where each begins.
//!
//! Partition `p` of 2^k is the digests whose token's top `k` bits are `p`. Slots count up
//! through the partitions, so the slots of one are together, as its records are.

#![expect(
    clippy::cast_possible_truncation,
    reason = "at most 2^24 parts and fewer than 2^32 slots"
)]

use torc_record::Digest;

use crate::mphf::batch::{self, Parts};
use crate::mphf::direct::Direct;
use crate::{Mphf, PerfectHash, ViewError};

/// Why parts do not make one function. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StitchError {
    /// Not a power of two. Give one part for every partition, empty ones too.
    #[error("{parts} parts: there must be one for every partition, a power of two up to 2^24")]
    Count {
        /// Parts given.
        parts: usize,
    },
    /// More than 2^32 - 1 slots together. Stitch fewer partitions.
    #[error("more than 2^32 - 1 slots together: stitch fewer partitions")]
    TooMany,
    /// A part cannot be viewed.
    #[error("the function of partition {partition}: {source}")]
    Part {
        /// Index of the part.
        partition: usize,
        /// What is wrong with it.
        source: ViewError,
    },
}

/// One function of the partitions of a node, over borrowed parts.
///
/// It keeps 32 bytes for each partition, all that a lookup needs beside the seeds, and another
/// 64 for the few keys that were bumped, so that no header is read.
#[derive(Debug, Clone)]
pub struct Stitched<'a> {
    /// What most lookups need of each part, dense.
    direct: Vec<Direct<'a>>,
    /// The whole of each part.
    parts: Vec<Mphf<'a>>,
    len: u32,
    /// Bits of a token that name its partition.
    bits: u32,
    /// As many ones.
    mask: u64,
}

impl<'a> Stitched<'a> {
    /// Stitches the encoded functions of partitions `0, 1, …`, empty ones included.
    ///
    /// # Errors
    /// Their number is not a power of two, one is corrupt, or there are too many slots.
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
        // A stranger of an empty partition, for which nothing is left, gets another's slot.
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
        // The partition comes down from the top, and is cut off.
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
