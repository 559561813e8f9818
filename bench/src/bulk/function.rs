//! The functions to build: one per part of the keys, used together as one function.

use anyhow::{Context as _, Result};
use torc_index::paper::Stitched;
use torc_index::paper::gigahash::{Encoding, GigaHash, Settings};
use torc_index::{Mphf, PerfectHash as _};
use torc_record::Digest;

use super::{BUCKETS, PARTITION_BITS};

/// The kind of function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// The function of slices: one per partition.
    Mphf,
    /// The paper's function: one per bucket on the disk, with its own inner buckets of 170 keys.
    GigaHash(Encoding),
}

impl Method {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mphf => "mphf",
            Self::GigaHash(Encoding::BitVector) => "gigahash, bit vector",
            Self::GigaHash(_) => "gigahash, Huffman",
        }
    }

    /// Builds the functions of a bucket's sorted digests.
    pub(super) fn build(self, sorted: &[Digest]) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::Mphf => build_partitions(sorted),
            Self::GigaHash(encoding) => {
                let settings = Settings {
                    prefix_bits: BUCKETS.trailing_zeros() as u8,
                    encoding,
                    ..Settings::default()
                };
                let built = GigaHash::build(sorted, settings);
                Ok(vec![built.context("a function cannot be built")?])
            }
        }
    }
}

fn build_partitions(sorted: &[Digest]) -> Result<Vec<Vec<u8>>> {
    let mut rest = sorted;
    let mut parts = Vec::with_capacity(1 << PARTITION_BITS);
    for partition in 0..1_u64 << PARTITION_BITS {
        let is_mine = |digest: &Digest| {
            digest.high() << BUCKETS.trailing_zeros() >> (u64::BITS - PARTITION_BITS) <= partition
        };
        let (mine, others) = rest.split_at(rest.partition_point(is_mine));
        rest = others;
        parts.push(Mphf::build(mine, 0).context("a function cannot be built")?);
    }
    Ok(parts)
}

/// The functions of all parts, used as one.
#[derive(Debug)]
pub(super) enum Function<'a> {
    Mphf(Stitched<'a>),
    /// Each function with the number of keys before it.
    GigaHash(Vec<(u32, GigaHash<'a>)>),
}

impl<'a> Function<'a> {
    pub(super) fn view(method: Method, parts: &[&'a [u8]]) -> Result<Self> {
        if method == Method::Mphf {
            return Ok(Self::Mphf(Stitched::view(parts)?));
        }
        let mut first = 0;
        let functions = parts.iter().map(|part| {
            let function = GigaHash::view(part)?;
            let at = first;
            first += u32::try_from(function.len())?;
            Ok((at, function))
        });
        Ok(Self::GigaHash(functions.collect::<Result<_>>()?))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Mphf(function) => function.len(),
            Self::GigaHash(parts) => parts.iter().map(|(_, part)| part.len()).sum(),
        }
    }

    /// Appends the slots of digests that are arranged by bucket.
    pub(super) fn slots(&self, digests: &[Digest], out: &mut Vec<u32>) {
        let parts = match self {
            Self::Mphf(function) => return function.slots(digests, out),
            Self::GigaHash(parts) => parts,
        };
        for of_part in digests.chunk_by(|one, other| one.0[0] == other.0[0]) {
            let Some((first, part)) = parts.get(usize::from(of_part[0].0[0])) else {
                continue;
            };
            let from = out.len();
            part.slots(of_part, out);
            out[from..].iter_mut().for_each(|slot| *slot += first);
        }
    }
}
