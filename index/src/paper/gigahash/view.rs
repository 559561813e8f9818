//! Lookups in borrowed bytes.

use super::MAX_BUCKET_KEYS;
use super::bits::peek;
use super::error::GigaViewError;
use super::hash::{EdgeHash, bucket};
use super::huffman::split;
use super::layout::{Header, group_start, offset_bytes, read_offset};
use super::settings::{Encoding, vertices};
use crate::{PerfectHash, prefetch};
use torc_record::Digest;

/// Lookups in a batch, whose cache misses overlap.
const BATCH: usize = 32;
/// Bytes of a cache line.
const LINE: usize = 64;
/// A window of 57 bits holds this many codes of 12 bits.
const CODES_A_WINDOW: usize = 4;

/// A GigaHash function over borrowed bytes; see the [module](super).
///
/// Building: [`GigaHash::build`], or in parallel with [`super::BuildPlan`]. Lookups:
/// [`PerfectHash`].
#[derive(Debug, Clone, Copy)]
pub struct GigaHash<'a> {
    header: Header,
    table: &'a [u8],
    offsets: &'a [u8],
    data: &'a [u8],
}

/// The offset entry of a bucket, within the bounds of the bytes whatever they contain.
#[derive(Debug, Clone, Copy)]
struct BucketView<'a> {
    first_slot: u64,
    keys: usize,
    attempt: u16,
    data: &'a [u8],
}

/// The cache lines of 64 bytes that a lookup reads, if header, offsets and data each start on one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// Lines of the table of offsets: the entries of the bucket and the next one, with the heads of
    /// their groups.
    pub offset_lines: usize,
    /// Lines of the bucket's values: with a bit vector, those before either vertex, and the values
    /// themselves; with a Huffman code, everything up to the later one.
    pub data_lines: usize,
}

impl<'a> GigaHash<'a> {
    /// Views all of `bytes` as a function. Constant time; parses and copies nothing.
    ///
    /// # Errors
    /// [`GigaViewError`] if no build can have made these bytes.
    pub fn view(bytes: &'a [u8]) -> Result<Self, GigaViewError> {
        let header = Header::read(bytes)?;
        let (table_start, offsets_start) = (super::layout::HEADER_BYTES, header.offsets_start());
        let data_start = header.data_start();
        Ok(Self {
            header,
            table: &bytes[table_start..offsets_start],
            offsets: &bytes[offsets_start..data_start],
            data: &bytes[data_start..],
        })
    }

    #[inline]
    fn bucket_index(&self, digest: &Digest) -> usize {
        bucket(digest, self.header.prefix_bits, self.header.buckets) as usize
    }

    #[inline]
    fn bucket(&self, digest: &Digest) -> BucketView<'a> {
        let index = self.bucket_index(digest);
        let here = read_offset(self.offsets, index);
        let next = read_offset(self.offsets, index + 1);
        let start = usize::try_from(here.data).unwrap_or(usize::MAX);
        BucketView {
            first_slot: here.slot,
            keys: (next.slot.saturating_sub(here.slot) as usize).min(MAX_BUCKET_KEYS),
            attempt: here.attempt,
            data: self.data.get(start..).unwrap_or_default(),
        }
    }

    /// The values of two vertices of a bucket.
    #[inline]
    fn values(&self, data: &[u8], vertices: usize, ends: (usize, usize)) -> (u64, u64) {
        let width = u32::from(self.header.width);
        match self.header.encoding {
            Encoding::Huffman => self.decode(data, 0, Some(ends.0), Some(ends.1)),
            Encoding::BitVector => {
                let value = |vertex| match rank(data, vertex) {
                    None => 0,
                    Some(rank) => {
                        let at = vertices + rank * width as usize;
                        peek(data, at) & ((1 << width) - 1)
                    }
                };
                (value(ends.0), value(ends.1))
            }
            Encoding::BitVectorHuffman => {
                self.decode(data, vertices, rank(data, ends.0), rank(data, ends.1))
            }
        }
    }

    /// The values at two indices of the codes from bit `at` on; `None` stands for a zero.
    #[inline]
    fn decode(
        &self,
        data: &[u8],
        at: usize,
        first: Option<usize>,
        second: Option<usize>,
    ) -> (u64, u64) {
        let mut codes = Codes {
            table: self.table,
            mask: (1 << self.header.width) - 1,
            data,
            at,
            index: 0,
        };
        if first <= second {
            let a = codes.value(first);
            (
                a,
                if first == second {
                    a
                } else {
                    codes.value(second)
                },
            )
        } else {
            let b = codes.value(second);
            (codes.value(first), b)
        }
    }

    /// The memory that the lookup of a digest reads: the paper's "three memory accesses", counted.
    /// For measurements: as slow as a lookup.
    #[must_use]
    pub fn footprint(&self, digest: &Digest) -> Footprint {
        let index = self.bucket_index(digest);
        let bucket = self.bucket(digest);
        let offset_bytes = [index, index + 1].into_iter().flat_map(offset_bytes);
        let mut data_bytes = Vec::new();
        if bucket.keys > 0 {
            let vertices = vertices(bucket.keys, self.header.vertices_per_1024_keys);
            let ends = EdgeHash::new(self.header.seed, bucket.attempt).edge(digest, vertices);
            data_bytes = self.data_bytes(bucket.data, vertices, ends);
        }
        let start = (bucket.data.as_ptr() as usize).wrapping_sub(self.data.as_ptr() as usize);
        Footprint {
            offset_lines: lines(offset_bytes),
            data_lines: lines(data_bytes.into_iter().map(|byte| start + byte)),
        }
    }

    /// The bytes of a bucket that determine the values of two of its vertices.
    fn data_bytes(&self, data: &[u8], vertices: usize, ends: (usize, usize)) -> Vec<usize> {
        let width = usize::from(self.header.width);
        let mut read = Vec::new();
        let has_bits = self.header.encoding.has_bit_vector();
        let index = |end: usize| if has_bits { rank(data, end) } else { Some(end) };
        for end in [ends.0, ends.1] {
            if has_bits {
                read.extend(0..=end / 8);
            }
            let Some(index) = index(end) else { continue };
            let first = if has_bits { vertices } else { 0 };
            let (from, until) = if self.header.encoding.has_code() {
                (first, self.code_end(data, first, index))
            } else {
                (first + index * width, first + (index + 1) * width)
            };
            read.extend(from / 8..until.div_ceil(8));
        }
        read
    }

    /// The bit after code `index` of the codes from bit `at` on.
    fn code_end(&self, data: &[u8], at: usize, index: usize) -> usize {
        let mut codes = Codes {
            table: self.table,
            mask: (1 << self.header.width) - 1,
            data,
            at,
            index: 0,
        };
        (0..=index).for_each(|_| codes.skip(1));
        codes.at
    }

    #[inline]
    fn slot_in(&self, digest: &Digest, bucket: BucketView<'_>) -> usize {
        let last = (self.header.keys as usize).saturating_sub(1);
        if bucket.keys == 0 {
            return (bucket.first_slot as usize).min(last);
        }
        let vertices = vertices(bucket.keys, self.header.vertices_per_1024_keys);
        let hash = EdgeHash::new(self.header.seed, bucket.attempt);
        let ends = hash.edge(digest, vertices);
        let (a, b) = self.values(bucket.data, vertices, ends);
        let label = (a + b) % bucket.keys as u64;
        ((bucket.first_slot + label) as usize).min(last)
    }
}

/// The number of different cache lines among these bytes.
fn lines(bytes: impl Iterator<Item = usize>) -> usize {
    let mut lines: Vec<usize> = bytes.map(|byte| byte / LINE).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.len()
}

/// A run of codes, read from its start.
struct Codes<'a> {
    table: &'a [u8],
    mask: u64,
    data: &'a [u8],
    /// Bit at which code `index` begins.
    at: usize,
    index: usize,
}

impl Codes<'_> {
    /// The value at an index not before the previous call's; 0 for `None`.
    #[inline]
    fn value(&mut self, index: Option<usize>) -> u64 {
        let Some(index) = index else {
            return 0;
        };
        while self.index + CODES_A_WINDOW <= index {
            self.skip(CODES_A_WINDOW);
        }
        self.skip(index - self.index);
        let (symbol, _) = self.split(peek(self.data, self.at));
        u64::from(symbol)
    }

    /// Skips codes within one window.
    #[inline]
    fn skip(&mut self, codes: usize) {
        let mut window = peek(self.data, self.at);
        for _ in 0..codes {
            let (_, length) = self.split(window);
            window >>= length;
            self.at += length as usize;
        }
        self.index += codes;
    }

    #[inline]
    fn split(&self, window: u64) -> (u16, u32) {
        let at = 2 * (window & self.mask) as usize;
        let entry = self.table.get(at..at + 2).unwrap_or_default();
        split(entry.try_into().map_or(0, u16::from_le_bytes))
    }
}

impl PerfectHash for GigaHash<'_> {
    fn len(&self) -> usize {
        self.header.keys as usize
    }

    /// Reads three places in memory: the offsets, and the values of two vertices; with a Huffman
    /// code, everything before them in the bucket.
    #[inline]
    fn slot(&self, digest: &Digest) -> usize {
        self.slot_in(digest, self.bucket(digest))
    }

    fn slots(&self, digests: &[Digest], out: &mut Vec<u32>) {
        out.reserve(digests.len());
        let mut buckets = Vec::with_capacity(BATCH);
        for batch in digests.chunks(BATCH) {
            for digest in batch {
                let start = group_start(self.bucket_index(digest));
                (0..3).for_each(|line| prefetch(self.offsets, start + line * LINE));
            }
            buckets.clear();
            for digest in batch {
                let bucket = self.bucket(digest);
                (0..3).for_each(|line| prefetch(bucket.data, line * LINE));
                buckets.push(bucket);
            }
            let slots = batch.iter().zip(&buckets);
            out.extend(slots.map(|(digest, bucket)| self.slot_in(digest, *bucket) as u32));
        }
    }
}

/// The number of vertices before this one with nonzero values; `None` if its own value is 0.
#[inline]
fn rank(bits: &[u8], vertex: usize) -> Option<usize> {
    if peek(bits, vertex) & 1 == 0 {
        return None;
    }
    let words = (0..vertex / 64).map(|word| peek(bits, 64 * word).count_ones());
    let below = peek(bits, vertex / 64 * 64) & ((1 << (vertex % 64)) - 1);
    Some((words.sum::<u32>() + below.count_ones()) as usize)
}
