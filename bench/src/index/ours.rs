//! Torc's function: one part per partition, looked up through the table of parts; and one function
//! of all keys.

use anyhow::Result;
use torc_index::paper::Stitched;
use torc_index::{Mphf, PerfectHash};
use torc_record::Digest;

use super::digests;
use super::subject::{BATCH, Function};

const SEED: u64 = 7;

/// The encoded parts, consecutive as in a file.
pub(super) struct Parts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Parts {
    pub(super) fn build(digests: &[Digest], bits: u32) -> Result<Self> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for partition in digests::partitions(digests, bits) {
            bytes.extend_from_slice(&Mphf::build(partition, SEED)?);
            ends.push(bytes.len());
        }
        Ok(Self { bytes, ends })
    }

    pub(super) fn stitch(&self) -> Result<Ours<Stitched<'_>>> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let parts = starts.zip(&self.ends);
        let parts: Vec<&[u8]> = parts
            .map(|(start, end)| &self.bytes[*start..*end])
            .collect();
        let function = Stitched::view(&parts)?;
        Ok(Ours {
            function,
            bytes: self.bytes.len(),
        })
    }
}

/// One function of all keys, encoded.
pub(super) struct OneFunction(Vec<u8>);

impl OneFunction {
    pub(super) fn build(digests: &[Digest]) -> Result<Self> {
        Ok(Self(Mphf::build(digests, SEED)?))
    }

    pub(super) fn view(&self) -> Result<Ours<Mphf<'_>>> {
        Ok(Ours {
            function: Mphf::view(&self.0)?,
            bytes: self.0.len(),
        })
    }
}

/// One of Torc's functions, in encoded form.
pub(super) struct Ours<F> {
    function: F,
    bytes: usize,
}

impl<F: PerfectHash> Function for Ours<F> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn slot(&self, digest: &Digest) -> usize {
        self.function.slot(digest)
    }

    #[inline]
    fn slots(&self, digests: &[Digest; BATCH], out: &mut Vec<u32>) -> bool {
        self.function.slots(digests, out);
        true
    }
}
