//! Streams by namespace: a key is hot by its share of its own namespace.
//!
//! One threshold for all namespaces would hide the hot keys of a quiet one. So each namespace is a
//! stream with its own sketch, candidates and error. By linearity, the streams add up to the counts
//! of a single stream over all of them, and a key that is heavy in all of them together is a
//! candidate of its own stream.
//!
//! *Bytes*: those of at most [`MAX_STREAMS`] streams. The namespaces that are accessed first in an
//! interval have one each; the others share one. An answer for a namespace includes the shared
//! stream: it misses no key with N/k, and no estimate is too low, where N includes everything in
//! that stream. With fewer namespaces than streams, nothing is shared.
//!
//! ```text
//! offset  bytes  what, little-endian
//!      0      4  "THKN"
//!      4      4  version, 1
//!      8      8  begin, milliseconds since the epoch
//!     16      8  end
//!     24      4  streams, in ascending order of their namespaces; for each
//!             4  namespace, 0 for the shared stream
//!             4  n
//!             n  an interval in its own format
//! ```

#![expect(
    clippy::cast_possible_truncation,
    reason = "no caller keeps sketches of gigabytes"
)]

use std::collections::BTreeMap;

use torc_record::{Digest, NamespaceId};

use super::IntervalLimits;
use super::codec::{CUT_OFF, damaged};
use super::interval::Interval;
use super::key_name::KeyName;
use super::tracker::{HotKeys, HotKeysOptions};
use crate::bytes::Reader;
use crate::count_min::{CombineError, DecodeError};

/// Limit on the streams of a tracker, an interval or a window, including the shared one.
pub const MAX_STREAMS: usize = 8;

/// No key is in this namespace.
const SHARED: NamespaceId = NamespaceId(0);
const MAGIC: [u8; 4] = *b"THKN";
const VERSION: u32 = 1;

/// Counts the accesses of one node, or of one of its threads, by namespace.
#[derive(Debug, Clone)]
pub struct HotNamespaces {
    options: HotKeysOptions,
    started_ms: u64,
    streams: Vec<(NamespaceId, HotKeys)>,
}

/// The accesses between two points in time, by namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceIntervals {
    from_ms: u64,
    to_ms: u64,
    streams: BTreeMap<NamespaceId, Interval>,
}

impl HotNamespaces {
    /// Starts counting at `now_ms`, milliseconds since the epoch. A stream takes memory from its
    /// first access until the snapshot.
    #[must_use]
    pub const fn new(options: HotKeysOptions, now_ms: u64) -> Self {
        Self {
            options,
            started_ms: now_ms,
            streams: Vec::new(),
        }
    }

    /// Counts one access, see [`HotKeys::record`].
    #[inline]
    pub fn record(
        &mut self,
        namespace: NamespaceId,
        digest: &Digest,
        key: impl FnOnce() -> Option<Box<[u8]>>,
    ) {
        let known = self.streams.iter().position(|(of, _)| *of == namespace);
        let at = known.unwrap_or_else(|| self.begin(namespace));
        self.streams[at].1.record(digest, || KeyName {
            namespace,
            key: key(),
        });
    }

    #[cold]
    fn begin(&mut self, namespace: NamespaceId) -> usize {
        let own = self.streams.len() + 1 < MAX_STREAMS;
        let namespace = if own { namespace } else { SHARED };
        let known = self.streams.iter().position(|(of, _)| *of == namespace);
        known.unwrap_or_else(|| {
            let stream = HotKeys::new(&self.options, self.started_ms);
            self.streams.push((namespace, stream));
            self.streams.len() - 1
        })
    }

    /// Ends the interval at `now_ms` and starts the next.
    pub fn snapshot(&mut self, now_ms: u64) -> NamespaceIntervals {
        let streams = std::mem::take(&mut self.streams).into_iter();
        let streams = streams.map(|(of, mut keys)| (of, keys.snapshot(now_ms)));
        let intervals = NamespaceIntervals {
            from_ms: self.started_ms,
            to_ms: now_ms.max(self.started_ms),
            streams: streams.collect(),
        };
        self.started_ms = intervals.to_ms;
        intervals
    }
}

impl NamespaceIntervals {
    /// Begin, milliseconds since the epoch.
    #[must_use]
    pub const fn from_ms(&self) -> u64 {
        self.from_ms
    }

    /// End; not before the begin.
    #[must_use]
    pub const fn to_ms(&self) -> u64 {
        self.to_ms
    }

    /// Accesses to all namespaces, at most 2^64 - 1.
    #[must_use]
    pub fn total(&self) -> u64 {
        let totals = self.streams.values().map(Interval::total);
        totals.fold(0, u64::saturating_add)
    }

    /// The streams.
    pub fn streams(&self) -> impl Iterator<Item = &Interval> {
        self.streams.values()
    }

    /// Converts each stream to a separate interval.
    pub fn into_streams(self) -> impl Iterator<Item = Interval> {
        self.streams.into_values()
    }

    /// Adds another interval: merges the streams of each namespace. If there are too many streams,
    /// the lightest become shared.
    ///
    /// # Errors
    /// [`CombineError::Shape`] or [`CombineError::Seed`]: nothing was added.
    /// [`CombineError::Overflow`]: some streams may have been added; drop it.
    pub fn merge(&mut self, other: Self) -> Result<(), CombineError> {
        let all = || self.streams.values().chain(other.streams.values());
        if let Some(first) = all().next() {
            all().try_for_each(|stream| first.counts.check_combines_with(&stream.counts))?;
        }
        self.from_ms = self.from_ms.min(other.from_ms);
        self.to_ms = self.to_ms.max(other.to_ms);
        for (namespace, interval) in other.streams {
            self.add(namespace, interval)?;
        }
        while self.streams.len() > MAX_STREAMS {
            let own = self.streams.iter().filter(|(of, _)| **of != SHARED);
            let lightest = own.min_by_key(|(_, it)| it.total()).map(|(of, _)| *of);
            let Some(interval) = lightest.and_then(|of| self.streams.remove(&of)) else {
                break;
            };
            self.add(SHARED, interval)?;
        }
        Ok(())
    }

    fn add(&mut self, namespace: NamespaceId, interval: Interval) -> Result<(), CombineError> {
        if let Some(stream) = self.streams.get_mut(&namespace) {
            return stream.merge(interval);
        }
        self.streams.insert(namespace, interval);
        Ok(())
    }

    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.from_ms.to_le_bytes());
        out.extend_from_slice(&self.to_ms.to_le_bytes());
        out.extend_from_slice(&(self.streams.len() as u32).to_le_bytes());
        for (namespace, interval) in &self.streams {
            out.extend_from_slice(&namespace.0.to_le_bytes());
            let len_at = out.len();
            out.extend_from_slice(&[0; 4]);
            interval.encode(out);
            let len = (out.len() - len_at - 4) as u32;
            out[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
        }
    }

    /// Reads the output of [`NamespaceIntervals::encode`]; `limits` apply to each stream.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was created.
    pub fn decode(bytes: &[u8], limits: &IntervalLimits) -> Result<Self, DecodeError> {
        Self::read(bytes, limits, |_| true)
    }

    /// Reads only the streams that may count accesses to a namespace: its own and the shared one.
    /// Skips the others.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was created.
    pub fn decode_only(
        bytes: &[u8],
        limits: &IntervalLimits,
        namespace: NamespaceId,
    ) -> Result<Self, DecodeError> {
        Self::read(bytes, limits, |of| of == namespace || of == SHARED)
    }

    fn read(
        bytes: &[u8],
        limits: &IntervalLimits,
        wanted: impl Fn(NamespaceId) -> bool,
    ) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.array() != Some(MAGIC) {
            return Err(DecodeError::Magic);
        }
        let version = reader.u32().ok_or(CUT_OFF)?;
        if version != VERSION {
            let found = version.to_le_bytes()[0];
            return Err(DecodeError::Version { found });
        }
        let from_ms = reader.u64().ok_or(CUT_OFF)?;
        let to_ms = reader.u64().ok_or(CUT_OFF)?;
        let count = reader.u32().ok_or(CUT_OFF)? as usize;
        if from_ms > to_ms || count > MAX_STREAMS {
            return Err(damaged("an end before its begin, or too many streams"));
        }
        let mut streams = BTreeMap::new();
        let mut last = None;
        for _ in 0..count {
            let namespace = NamespaceId(reader.u32().ok_or(CUT_OFF)?);
            if last >= Some(namespace) {
                return Err(damaged("streams out of order"));
            }
            last = Some(namespace);
            let len = reader.u32().ok_or(CUT_OFF)? as usize;
            let interval = reader.take(len).ok_or(CUT_OFF)?;
            if wanted(namespace) {
                streams.insert(namespace, Interval::decode(interval, limits)?);
            }
        }
        if !reader.is_empty() {
            return Err(damaged("something follows"));
        }
        Ok(Self {
            from_ms,
            to_ms,
            streams,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::digest;

    const LIMITS: IntervalLimits = IntervalLimits {
        counters: 1 << 16,
        candidates: 1 << 12,
    };

    fn counted(accesses: &[(u32, u64, u64)]) -> NamespaceIntervals {
        let mut tracker = HotNamespaces::new(HotKeysOptions::usual(1), 10);
        for &(namespace, key, times) in accesses {
            for _ in 0..times {
                tracker.record(NamespaceId(namespace), &digest(key), || None);
            }
        }
        tracker.snapshot(20)
    }

    fn sum(intervals: NamespaceIntervals) -> Interval {
        let sum = intervals.into_streams().reduce(|mut sum, interval| {
            sum.merge(interval).unwrap();
            sum
        });
        sum.unwrap()
    }

    /// The interval from which an answer for this namespace is computed.
    fn of(intervals: &NamespaceIntervals, namespace: u32) -> Interval {
        let mut bytes = Vec::new();
        intervals.encode(&mut bytes);
        let only = NamespaceIntervals::decode_only(&bytes, &LIMITS, NamespaceId(namespace));
        sum(only.unwrap())
    }

    fn candidates(interval: &Interval) -> Vec<Digest> {
        let candidates = interval.candidates().iter();
        candidates.map(|candidate| candidate.digest).collect()
    }

    #[test]
    fn a_quiet_namespace_has_its_own_threshold_and_error() {
        let intervals = counted(&[(1, 1, 100_000), (2, 2, 30), (2, 3, 1)]);
        let quiet = of(&intervals, 2);
        let mut expected = [digest(2), digest(3)];
        expected.sort_unstable();
        assert_eq!(candidates(&quiet), expected, "one of 31 is a thousandth");
        assert_eq!((quiet.total(), quiet.counts().error_bound()), (31, 1));
        let all = sum(intervals);
        assert_eq!(candidates(&all), [digest(1)], "hidden by the busy one");
        assert_eq!(all.total(), 100_031);
    }

    #[test]
    fn the_streams_add_up_to_what_one_stream_counts() {
        let accesses: Vec<_> = (0..500_u64)
            .map(|key| (key as u32 % 5 + 1, key, key % 50 + 1))
            .collect();
        let mut one = HotKeys::new(&HotKeysOptions::usual(1), 10);
        for &(namespace, key, times) in &accesses {
            let name = || KeyName {
                namespace: NamespaceId(namespace),
                key: None,
            };
            (0..times).for_each(|_| one.record(&digest(key), name));
        }
        let (one, all) = (one.snapshot(20), sum(counted(&accesses)));
        assert_eq!(one.counts(), all.counts());
        assert_eq!(candidates(&one), candidates(&all));
    }

    #[test]
    fn beyond_the_streams_namespaces_share_one_and_miss_nothing() {
        let accesses: Vec<_> = (1..=20).map(|it| (it, u64::from(it), 100)).collect();
        let mut intervals = counted(&accesses);
        assert_eq!(intervals.streams().count(), MAX_STREAMS);
        // In another order, so that other namespaces have their own streams.
        let reversed: Vec<_> = accesses.iter().rev().copied().collect();
        intervals.merge(counted(&reversed)).unwrap();
        assert_eq!(intervals.streams().count(), MAX_STREAMS);
        assert_eq!(intervals.total(), 4_000);
        for (namespace, key, _) in accesses {
            let own = of(&intervals, namespace);
            assert!(candidates(&own).contains(&digest(key)), "{namespace}");
            assert!(own.counts().estimate(&digest(key)) >= 200);
        }
    }

    #[test]
    fn bytes_come_back_and_no_cut_or_extension_of_them_does() {
        let intervals = counted(&[(1, 1, 5), (7, 2, 5)]);
        let mut bytes = Vec::new();
        intervals.encode(&mut bytes);
        let read = NamespaceIntervals::decode(&bytes, &LIMITS);
        assert_eq!(read.as_ref(), Ok(&intervals));
        assert_eq!((intervals.from_ms(), intervals.to_ms()), (10, 20));
        for len in 0..bytes.len() {
            assert!(NamespaceIntervals::decode(&bytes[..len], &LIMITS).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(NamespaceIntervals::decode(&longer, &LIMITS).is_err());
        bytes[24] = MAX_STREAMS as u8 + 1;
        assert!(NamespaceIntervals::decode(&bytes, &LIMITS).is_err());
    }

    #[test]
    fn what_counts_in_another_way_is_not_added() {
        let mut mine = counted(&[(1, 1, 5)]);
        let mut other = HotNamespaces::new(HotKeysOptions::usual(2), 0);
        other.record(NamespaceId(1), &digest(1), || None);
        let before = mine.clone();
        assert!(mine.merge(other.snapshot(1)).is_err());
        assert_eq!(mine, before);
        // One that differs only in a later stream, as a peer might send.
        let mut mixed = counted(&[(1, 1, 5)]);
        other.record(NamespaceId(2), &digest(1), || None);
        mixed.streams.extend(other.snapshot(1).streams);
        assert!(mine.merge(mixed).is_err());
        assert_eq!(mine, before);
    }
}
