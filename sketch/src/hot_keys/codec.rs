//! The bytes of an interval, between nodes and in the history.
//!
//! ```text
//! offset  bytes  what, little-endian
//!      0      4  "THKI"
//!      4      4  version, 1
//!      8      8  begin, milliseconds since the epoch
//!     16      8  end
//!     24      4  k
//!     28      8  missed
//!     36     16  majority candidate
//!     52      8  its lead, 0 for none
//!     60      4  n: bytes of the sketch
//!     64      n  the sketch, in its own format
//!              4  candidates, in ascending order of their digests; of each
//!             16  digest
//!              4  namespace
//!              2  length of the key, 0 if it is withheld
//!              …  the key
//! ```

#![expect(
    clippy::cast_possible_truncation,
    reason = "no caller keeps sketches of gigabytes, and a key is at most MAX_KEY_LEN"
)]

use torc_record::{DIGEST_LEN, Digest, MAX_KEY_LEN, NamespaceId};

use super::interval::{Candidate, Interval};
use super::key_name::KeyName;
use crate::bytes::Reader;
use crate::count_min::{CountMin, DecodeError};
use crate::majority::MajorityCounter;

const MAGIC: [u8; 4] = *b"THKI";
const VERSION: u32 = 1;

/// Limits for decoding an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalLimits {
    /// Limit on the counters of its sketch.
    pub counters: usize,
    /// Limit on its candidates.
    pub candidates: usize,
}

pub(super) const fn damaged(what: &'static str) -> DecodeError {
    DecodeError::Damaged { what }
}
pub(super) const CUT_OFF: DecodeError = damaged("they end too early");

impl Interval {
    /// Appends the bytes of the interval. About 2 ns per counter and 20 ns per candidate.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.from_ms.to_le_bytes());
        out.extend_from_slice(&self.to_ms.to_le_bytes());
        out.extend_from_slice(&self.k.to_le_bytes());
        out.extend_from_slice(&self.missed.to_le_bytes());
        let majority = self.majority.candidate();
        out.extend_from_slice(&majority.unwrap_or(Digest([0; DIGEST_LEN])).0);
        out.extend_from_slice(&self.majority.lead().to_le_bytes());
        let len_at = out.len();
        out.extend_from_slice(&[0; 4]);
        self.counts.encode(out);
        // 2^31 counters of 10 bytes would not fit, but no caller keeps a sketch of gigabytes.
        let len = (out.len() - len_at - 4) as u32;
        out[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(self.candidates.len() as u32).to_le_bytes());
        for candidate in &self.candidates {
            encode_candidate(candidate, out);
        }
    }

    /// Reads the output of [`Interval::encode`]. In addition to the bytes, allocates at most as
    /// many counters as `limits` allow.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was created.
    pub fn decode(bytes: &[u8], limits: &IntervalLimits) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.array() != Some(MAGIC) {
            return Err(DecodeError::Magic);
        }
        let version = reader.u32().ok_or(CUT_OFF)?;
        if version != VERSION {
            return Err(DecodeError::Version {
                found: version.to_le_bytes()[0],
            });
        }
        let interval = decode_body(&mut reader, limits)?;
        if !reader.is_empty() {
            return Err(damaged("something follows"));
        }
        Ok(interval)
    }
}

fn decode_body(reader: &mut Reader<'_>, limits: &IntervalLimits) -> Result<Interval, DecodeError> {
    let from_ms = reader.u64().ok_or(CUT_OFF)?;
    let to_ms = reader.u64().ok_or(CUT_OFF)?;
    let k = reader.u32().ok_or(CUT_OFF)?;
    if from_ms > to_ms || k == 0 {
        return Err(damaged("an end before its begin, or no k"));
    }
    let missed = reader.u64().ok_or(CUT_OFF)?;
    let majority = Digest(reader.array().ok_or(CUT_OFF)?);
    let lead = reader.u64().ok_or(CUT_OFF)?;
    let sketch_len = reader.u32().ok_or(CUT_OFF)?;
    let sketch = reader.take(sketch_len as usize).ok_or(CUT_OFF)?;
    let counts = CountMin::decode(sketch, limits.counters)?;
    let candidates = decode_candidates(reader, limits.candidates)?;
    let majority = MajorityCounter::of(majority, lead);
    Ok(Interval {
        from_ms,
        to_ms,
        k,
        counts,
        majority,
        missed,
        candidates,
    })
}

fn encode_candidate(candidate: &Candidate, out: &mut Vec<u8>) {
    let key = candidate.name.key.as_deref().unwrap_or_default();
    // A key that is too long is withheld rather than truncated.
    let key = if key.len() > MAX_KEY_LEN { &[] } else { key };
    out.extend_from_slice(&candidate.digest.0);
    out.extend_from_slice(&candidate.name.namespace.0.to_le_bytes());
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(key);
}

fn decode_candidates(reader: &mut Reader<'_>, limit: usize) -> Result<Vec<Candidate>, DecodeError> {
    let count = reader.u32().ok_or(CUT_OFF)? as usize;
    if count > limit {
        return Err(damaged("more candidates than are taken"));
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for _ in 0..count {
        let candidate = decode_candidate(reader)?;
        if candidates
            .last()
            .is_some_and(|last| last.digest >= candidate.digest)
        {
            return Err(damaged("candidates out of order"));
        }
        candidates.push(candidate);
    }
    Ok(candidates)
}

fn decode_candidate(reader: &mut Reader<'_>) -> Result<Candidate, DecodeError> {
    let digest = Digest(reader.array().ok_or(CUT_OFF)?);
    let namespace = NamespaceId(reader.u32().ok_or(CUT_OFF)?);
    let len = usize::from(u16::from_le_bytes(reader.array().ok_or(CUT_OFF)?));
    if len > MAX_KEY_LEN {
        return Err(damaged("a key longer than keys are"));
    }
    let key = reader.take(len).ok_or(CUT_OFF)?;
    let key = (!key.is_empty()).then(|| Box::from(key));
    Ok(Candidate {
        digest,
        name: KeyName { namespace, key },
    })
}
