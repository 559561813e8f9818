//! Past intervals: an index of all and the bytes of the last minutes in memory; the
//! bytes of all in sled.
//!
//! Invariants:
//! * All intervals together stay within the budget; the oldest ones are the longest
//!   ([`Retention`]).
//! * An interval counts once: a merged interval is stored before its parts are
//!   removed, and a start removes intervals that lie within another.
//! * Intervals that sled has lost or damaged are forgotten; the rest stays.
//!
//! One task changes the index; any may read it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use torc_record::NamespaceId;
use torc_sketch::CountMin;
use torc_sketch::hot_keys::{
    HotKeysOptions, Interval, IntervalLimits, MAX_STREAM_BYTES, NamespaceIntervals, Retention,
    Span, ThinningStep, covering,
};
use torc_store::Scratch;

const TREE: &str = "hot-keys";
/// Twice the longest window, because a window is compared with the one before.
const KEEP_MS: u64 = 2 * super::MAX_WINDOW_MS;
/// Intervals that ended this recently are also kept in memory: the usual window and the one before.
const RECENT_MS: u64 = 180_000;
/// Attempts to read a window whose intervals are merged meanwhile.
const TRIES: usize = 5;

/// Begin and end, milliseconds since the epoch.
type Key = (u64, u64);
pub(super) type Bytes = Arc<[u8]>;

/// Limit on the candidates of one namespace at one node. That node's k may be larger than ours, but
/// a stream has no space for more keys.
const MAX_CANDIDATES: usize = MAX_STREAM_BYTES / 64;

#[derive(Debug)]
struct Kept {
    len: u64,
    /// `None` if only sled has them.
    bytes: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct History {
    index: Mutex<BTreeMap<Key, Kept>>,
    retention: Retention,
    /// When this process began to count, milliseconds since the epoch.
    since_ms: AtomicU64,
}

/// The bytes of the intervals of a window, and of the window before it.
#[derive(Debug, Default)]
pub(super) struct Windows {
    pub(super) window: Vec<Bytes>,
    pub(super) previous: Vec<Bytes>,
    pub(super) previous_known: bool,
}

/// Limits for decoding an interval.
pub(super) fn limits(options: &HotKeysOptions) -> IntervalLimits {
    IntervalLimits {
        counters: options.shape.counters(),
        candidates: MAX_CANDIDATES,
    }
}

/// Whether it was counted with these options.
fn counts_as<'a>(
    options: &HotKeysOptions,
    mut intervals: impl Iterator<Item = &'a Interval>,
) -> bool {
    let alike = CountMin::new(options.shape, options.seed);
    intervals.all(|it| it.counts().check_combines_with(&alike).is_ok())
}

/// Decodes an interval of one namespace, if it was counted with these options.
pub(super) fn decode(bytes: &[u8], options: &HotKeysOptions) -> Option<Interval> {
    let interval = Interval::decode(bytes, &limits(options)).ok()?;
    counts_as(options, std::iter::once(&interval)).then_some(interval)
}

/// Decodes the intervals of all namespaces.
fn decode_all(bytes: &[u8], options: &HotKeysOptions) -> Option<NamespaceIntervals> {
    let intervals = NamespaceIntervals::decode(bytes, &limits(options)).ok()?;
    counts_as(options, intervals.streams()).then_some(intervals)
}

/// Decodes only the trackers that may have counted accesses to one namespace.
pub(super) fn decode_only(
    bytes: &[u8],
    options: &HotKeysOptions,
    namespace: NamespaceId,
) -> Option<NamespaceIntervals> {
    let limits = limits(options);
    let intervals = NamespaceIntervals::decode_only(bytes, &limits, namespace).ok()?;
    counts_as(options, intervals.streams()).then_some(intervals)
}

impl History {
    pub(super) fn new(budget_bytes: u64) -> Self {
        let retention = Retention {
            keep_ms: KEEP_MS,
            budget_bytes,
        };
        Self {
            index: Mutex::default(),
            retention,
            since_ms: AtomicU64::new(u64::MAX),
        }
    }

    pub(super) fn begin(&self, now_ms: u64) {
        self.since_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether every worker has begun to count.
    pub(super) fn has_begun(&self) -> bool {
        self.since_ms.load(Ordering::Relaxed) != u64::MAX
    }

    /// Size in bytes and number of the intervals.
    pub(super) fn size(&self) -> (u64, u64) {
        let index = self.index.lock();
        (
            index.values().map(|kept| kept.len).sum(),
            index.len() as u64,
        )
    }

    /// Loads the intervals of an earlier process. Removes those that are unreadable, were counted
    /// with other options, or (`redact`) contain keys.
    pub(super) async fn load(&self, scratch: &Scratch, options: &HotKeysOptions, redact: bool) {
        let mut found: BTreeMap<Key, u64> = BTreeMap::new();
        for (key, bytes) in scratch.list(TREE).await {
            let interval = decode_all(&bytes, options);
            let tells_keys = |intervals: &NamespaceIntervals| {
                let mut candidates = intervals.streams().flat_map(Interval::candidates);
                redact && candidates.any(|candidate| candidate.name.key.is_some())
            };
            match (key_of(&key), interval) {
                (Some(key), Some(interval)) if !tells_keys(&interval) => {
                    found.insert(key, bytes.len() as u64);
                }
                _ => scratch.delete(TREE, &key).await,
            }
        }
        for key in contained(&found) {
            found.remove(&key);
            scratch.delete(TREE, &bytes_of(key)).await;
        }
        if !found.is_empty() {
            tracing::info!(intervals = found.len(), "loaded the history of hot keys");
        }
        let found = found
            .into_iter()
            .map(|(key, len)| (key, Kept { len, bytes: None }));
        self.index.lock().extend(found);
    }

    /// Stores an interval; returns its size in bytes.
    pub(super) async fn add(&self, scratch: &Scratch, interval: &NamespaceIntervals) -> u64 {
        let mut bytes = Vec::new();
        interval.encode(&mut bytes);
        let key = (interval.from_ms(), interval.to_ms());
        scratch.put(TREE, &bytes_of(key), &bytes).await;
        let len = bytes.len() as u64;
        let kept = Kept {
            len,
            bytes: Some(bytes.into()),
        };
        self.index.lock().insert(key, kept);
        len
    }

    /// Drops and merges intervals until they meet the limits.
    pub(super) async fn thin(&self, scratch: &Scratch, options: &HotKeysOptions, now_ms: u64) {
        loop {
            let (keys, spans) = self.spans();
            match self.retention.next_step(&spans, now_ms) {
                None => break,
                Some(ThinningStep::Drop(at)) => self.remove(scratch, keys[at]).await,
                Some(ThinningStep::MergeWithNext(at)) => {
                    self.merge(scratch, options, keys[at], keys[at + 1]).await;
                }
            }
        }
        let mut index = self.index.lock();
        let is_old = |(_, to_ms): &Key| to_ms.saturating_add(RECENT_MS) < now_ms;
        let old = index.iter_mut().filter(|(key, _)| is_old(key));
        old.for_each(|(_, kept)| kept.bytes = None);
    }

    async fn merge(&self, scratch: &Scratch, options: &HotKeysOptions, first: Key, next: Key) {
        let mut parts = Vec::new();
        for key in [first, next] {
            let decoded = self
                .bytes(scratch, key)
                .await
                .and_then(|bytes| decode_all(&bytes, options));
            parts.extend(decoded);
        }
        let merged = parts.into_iter().reduce(|mut sum, part| {
            // Cannot fail: both were decoded with the same options.
            let _ = sum.merge(part);
            sum
        });
        let merged_key = match &merged {
            Some(merged) => {
                self.add(scratch, merged).await;
                Some((merged.from_ms(), merged.to_ms()))
            }
            None => None,
        };
        for key in [first, next] {
            if merged_key != Some(key) {
                self.remove(scratch, key).await;
            }
        }
    }

    async fn remove(&self, scratch: &Scratch, key: Key) {
        scratch.delete(TREE, &bytes_of(key)).await;
        self.index.lock().remove(&key);
    }

    /// The bytes of an interval; `None` if they are lost.
    async fn bytes(&self, scratch: &Scratch, key: Key) -> Option<Bytes> {
        let recent = self
            .index
            .lock()
            .get(&key)
            .and_then(|kept| kept.bytes.clone());
        match recent {
            Some(bytes) => Some(bytes),
            None => scratch.get(TREE, &bytes_of(key)).await.map(Bytes::from),
        }
    }

    fn spans(&self) -> (Vec<Key>, Vec<Span>) {
        let index = self.index.lock();
        let span = |(&(from_ms, to_ms), kept): (&Key, &Kept)| Span {
            from_ms,
            to_ms,
            bytes: kept.len,
        };
        (
            index.keys().copied().collect(),
            index.iter().map(span).collect(),
        )
    }

    /// The intervals of the last `window_ms`, and those of the `window_ms` before.
    pub(super) async fn windows(&self, scratch: &Scratch, now_ms: u64, window_ms: u64) -> Windows {
        for _ in 0..TRIES {
            let (keys, spans) = self.spans();
            let (window, previous) = choose(&spans, now_ms, window_ms);
            let start_ms = spans
                .get(window.start)
                .map_or_else(|| now_ms.saturating_sub(window_ms), |span| span.from_ms);
            let earliest_ms = spans.first().map_or(u64::MAX, |span| span.from_ms);
            let since_ms = self.since_ms.load(Ordering::Relaxed).min(earliest_ms);
            let mut lost = Vec::new();
            let mut windows = Windows {
                previous_known: since_ms <= start_ms.saturating_sub(window_ms),
                ..Windows::default()
            };
            for (range, into) in [
                (window, &mut windows.window),
                (previous, &mut windows.previous),
            ] {
                for &key in &keys[range] {
                    match self.bytes(scratch, key).await {
                        Some(bytes) => into.push(bytes),
                        None => lost.push(key),
                    }
                }
            }
            if lost.is_empty() {
                return windows;
            }
            // These are lost for good, or were merged with a neighbour meanwhile.
            let mut index = self.index.lock();
            index.retain(|key, _| !lost.contains(key));
        }
        Windows::default()
    }
}

/// The intervals of the window that ends now, and of the one before. They share no interval.
fn choose(spans: &[Span], now_ms: u64, window_ms: u64) -> (Range<usize>, Range<usize>) {
    // If the clock was set back, some intervals end in the future: they count as recent.
    let window = covering(spans, now_ms.saturating_sub(window_ms), u64::MAX);
    let Some(first) = spans.get(window.start) else {
        let begin_ms = now_ms.saturating_sub(window_ms);
        let previous = covering(spans, begin_ms.saturating_sub(window_ms), begin_ms);
        return (window, previous);
    };
    let before = &spans[..window.start];
    let begin_ms = first.from_ms.saturating_sub(window_ms);
    (window, covering(before, begin_ms, first.from_ms))
}

/// Intervals that lie within others.
fn contained(found: &BTreeMap<Key, u64>) -> Vec<Key> {
    let is_within =
        |inner: &Key, outer: &Key| inner != outer && outer.0 <= inner.0 && inner.1 <= outer.1;
    let mut within = Vec::new();
    let mut widest: Option<Key> = None;
    // By begin, and of those with the same begin the longest first.
    let mut keys: Vec<Key> = found.keys().copied().collect();
    keys.sort_unstable_by_key(|&(from_ms, to_ms)| (from_ms, std::cmp::Reverse(to_ms)));
    for key in keys {
        match widest {
            Some(outer) if is_within(&key, &outer) => within.push(key),
            Some(outer) if outer.1 >= key.1 => {}
            _ => widest = Some(key),
        }
    }
    within
}

fn bytes_of((from_ms, to_ms): Key) -> Vec<u8> {
    [from_ms.to_be_bytes(), to_ms.to_be_bytes()].concat()
}

fn key_of(bytes: &[u8]) -> Option<Key> {
    let (from_ms, to_ms) = bytes.split_first_chunk::<8>()?;
    let to_ms = <[u8; 8]>::try_from(to_ms).ok()?;
    Some((u64::from_be_bytes(*from_ms), u64::from_be_bytes(to_ms)))
}
