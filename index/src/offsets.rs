//! The packed offsets of a slice's records.
//!
//! The records are stored in slot order, so their offsets ascend. An ascending sequence of `n`
//! numbers below `u` needs about `2 + log2(u / n)` bits per number (Elias 1974, Fano 1971): the
//! lower bits of each unchanged, the upper ones as a unary bit vector. A single very long record
//! costs nothing extra, as it would if every offset had the width of the last one.
//!
//! Layout, little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | `n` |
//! | 1 | `l`, the number of lower bits, at most 56 |
//! | 3 | zero |
//! | 4 + 8·l each | a block of 64 offsets: the position of its first one in the bit vector (4 bytes), then their lower bits; the last block has as many bytes as it needs |
//! | the rest | the bit vector: for each offset as many zeros as its upper part exceeds the one before, then a one |
//!
//! A lookup reads one place in the blocks and one in the bit vector. In addition to the bits above,
//! the positions cost half a bit per number.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a table has at most MAX_LEN offsets, positions fit 32 bits, and usize has 64"
)]

/// Offsets per block.
const BLOCK: usize = 64;
const HEAD_LEN: usize = 8;
const POSITION_LEN: usize = 4;
const MAX_LOW_BITS: usize = 56;
/// Limit on the number of offsets: their positions must fit 32 bits.
const MAX_LEN: usize = 1 << 30;

/// Why there is no table of these offsets, or why these bytes are not a table.
///
/// Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffsetsError {
    /// The offsets do not ascend, or one is not below the end.
    #[error("offset {at} is not above the one before it, or not below the end")]
    NotRising {
        /// Its index.
        at: usize,
    },
    /// There are too many offsets: build several tables.
    #[error("{len} offsets are more than a table can hold")]
    TooMany {
        /// Number of offsets.
        len: usize,
    },
    /// The bytes are damaged: fetch them again.
    #[error("not a table of offsets: {0}")]
    Malformed(&'static str),
}

/// A table of ascending offsets in borrowed bytes. Any bytes are safe: they give some number or
/// `None`.
#[derive(Debug, Clone, Copy)]
pub struct Offsets<'a> {
    len: usize,
    low_bits: usize,
    blocks: &'a [u8],
    high: &'a [u8],
}

impl<'a> Offsets<'a> {
    /// Packs offsets that ascend and stay below `end`. Takes about 5 ns per offset.
    ///
    /// # Errors
    /// [`OffsetsError::NotRising`], [`OffsetsError::TooMany`].
    pub fn build(offsets: &[u64], end: u64) -> Result<Vec<u8>, OffsetsError> {
        let len = offsets.len();
        if len > MAX_LEN {
            return Err(OffsetsError::TooMany { len });
        }
        let low_bits = low_bits(len, end);
        let upper_end = (end >> low_bits) as usize;
        let mut blocks = vec![0; blocks_len(len, low_bits)];
        let mut high = vec![0_u8; (len + upper_end).div_ceil(8)];
        let mut before = None;
        for (at, &offset) in offsets.iter().enumerate() {
            if offset >= end || before.is_some_and(|before| before >= offset) {
                return Err(OffsetsError::NotRising { at });
            }
            before = Some(offset);
            let position = (offset >> low_bits) as usize + at;
            high[position / 8] |= 1 << (position % 8);
            let block = &mut blocks[at / BLOCK * block_len(low_bits)..];
            if at % BLOCK == 0 {
                block[..POSITION_LEN].copy_from_slice(&(position as u32).to_le_bytes());
            }
            let low = offset & mask(low_bits);
            put_bits(&mut block[POSITION_LEN..], at % BLOCK * low_bits, low);
        }
        let mut out = Vec::with_capacity(HEAD_LEN + blocks.len() + high.len());
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.extend_from_slice(&[low_bits as u8, 0, 0, 0]);
        out.extend_from_slice(&blocks);
        out.extend_from_slice(&high);
        Ok(out)
    }

    /// Reads a table in place. Constant time.
    ///
    /// # Errors
    /// [`OffsetsError::Malformed`] if the blocks do not fit the bytes.
    pub fn view(bytes: &'a [u8]) -> Result<Self, OffsetsError> {
        let (head, rest) = bytes
            .split_first_chunk::<HEAD_LEN>()
            .ok_or(OffsetsError::Malformed("its head is cut off"))?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let low_bits = usize::from(head[4]);
        if len > MAX_LEN || low_bits > MAX_LOW_BITS || head[5..] != [0; 3] {
            return Err(OffsetsError::Malformed("its head is impossible"));
        }
        let (blocks, high) = rest
            .split_at_checked(blocks_len(len, low_bits))
            .ok_or(OffsetsError::Malformed("it is cut off"))?;
        Ok(Self {
            len,
            low_bits,
            blocks,
            high,
        })
    }

    /// Reads a table without its head, if the caller knows the head's content. Constant time;
    /// `None` if there are fewer bytes than [`body_len`](Self::body_len).
    #[inline]
    pub(crate) fn view_body(len: usize, low_bits: u8, body: &'a [u8]) -> Option<Self> {
        let low_bits = usize::from(low_bits);
        let (blocks, high) = body.split_at_checked(blocks_len(len, low_bits))?;
        Some(Self {
            len,
            low_bits,
            blocks,
            high,
        })
    }

    /// Length in bytes of a table of `len` offsets below `end` without its head, and its number of
    /// lower bits.
    pub(crate) fn body_len(len: usize, end: u64) -> (usize, u8) {
        let low_bits = low_bits(len, end);
        let high = (len + (end >> low_bits) as usize).div_ceil(8);
        (blocks_len(len, low_bits) + high, low_bits as u8)
    }

    /// The part of a built table after its head.
    pub(crate) fn body(table: &[u8]) -> &[u8] {
        table.get(HEAD_LEN..).unwrap_or_default()
    }

    /// Reads a table again without its head. `len` and [`low_bits`](Self::low_bits) are those of
    /// its first [`view`](Self::view). Constant time; `None` if there are too few bytes. Safe over
    /// any other bytes, but then the answers mean nothing.
    #[must_use]
    #[inline]
    pub fn view_again(bytes: &'a [u8], len: usize, low_bits: u8) -> Option<Self> {
        Self::view_body(len, low_bits, Self::body(bytes))
    }

    /// Bits of an offset that are stored unchanged, which [`view_again`](Self::view_again) needs.
    #[must_use]
    pub fn low_bits(&self) -> u8 {
        self.low_bits as u8
    }

    /// Number of offsets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The offset at this index; `None` after the last one (or if the bytes are damaged). Takes
    /// about 5 ns in cache.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        if index >= self.len {
            return None;
        }
        let block = self
            .blocks
            .get(index / BLOCK * block_len(self.low_bits)..)?;
        let (position, lows) = block.split_first_chunk::<POSITION_LEN>()?;
        let low = bits(lows, index % BLOCK * self.low_bits) & mask(self.low_bits);
        let first = u32::from_le_bytes(*position) as usize;
        let position = nth_one(self.high, first, index % BLOCK)?;
        let upper = (position as u64).checked_sub(index as u64)?;
        Some(upper << self.low_bits | low)
    }

    /// Prefetches what [`get`](Self::get) will read first.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        // The vector has two to three bits per offset.
        let high = index.saturating_mul(self.high.len()) / self.len.max(1);
        self.prefetch_both(index, high);
    }

    /// The same, given also the index's position among all as a fraction of 2^64, which saves a
    /// division.
    #[inline]
    pub(crate) fn prefetch_along(&self, index: usize, along: u64) {
        let high = (u128::from(along) * self.high.len() as u128) >> 64;
        self.prefetch_both(index, high as usize);
    }

    #[inline]
    fn prefetch_both(&self, index: usize, high: usize) {
        let block = (index / BLOCK).saturating_mul(block_len(self.low_bits));
        crate::prefetch(self.blocks, block);
        crate::prefetch(self.high, high);
    }
}

/// The number of lower bits that minimises a table of `len` offsets below `end`.
fn low_bits(len: usize, end: u64) -> usize {
    match end.checked_div(len as u64) {
        Some(mean) if mean > 0 => (mean.ilog2() as usize).min(MAX_LOW_BITS),
        Some(_) => 0,
        // No upper bits either, as nothing has them.
        None => (u64::BITS - end.leading_zeros()).min(MAX_LOW_BITS as u32) as usize,
    }
}

const fn mask(bits: usize) -> u64 {
    (1 << bits) - 1
}

const fn block_len(low_bits: usize) -> usize {
    POSITION_LEN + BLOCK / 8 * low_bits
}

const fn blocks_len(len: usize, low_bits: usize) -> usize {
    let rest = len % BLOCK;
    let last = if rest == 0 {
        0
    } else {
        POSITION_LEN + (rest * low_bits).div_ceil(8)
    };
    len / BLOCK * block_len(low_bits) + last
}

/// Up to 57 bits from a bit position on; zeros after the end.
#[inline]
fn bits(bytes: &[u8], at: usize) -> u64 {
    let byte = at / 8;
    // Near the end, reads the last eight bytes and shifts. Positions are random, so a branch would
    // be mispredicted.
    let from = byte.min(bytes.len().wrapping_sub(8));
    let Some(word) = bytes.get(from..).and_then(<[u8]>::first_chunk) else {
        return few_bits(bytes, at);
    };
    let shift = 8 * (byte - from) + at % 8;
    let word = u64::from_le_bytes(*word) >> (shift & 63);
    if shift < 64 { word } else { 0 }
}

/// The same for fewer than eight bytes.
#[cold]
fn few_bits(bytes: &[u8], at: usize) -> u64 {
    let byte = |place: usize| bytes.get(at / 8 + place).copied().unwrap_or(0);
    u64::from_le_bytes(std::array::from_fn(byte)) >> (at % 8)
}

fn put_bits(bytes: &mut [u8], at: usize, value: u64) {
    let shifted = u128::from(value) << (at % 8);
    for (byte, more) in bytes[at / 8..].iter_mut().zip(shifted.to_le_bytes()) {
        *byte |= more;
    }
}

/// The position of the `n`-th one (from 0) at or after `from`.
#[inline]
fn nth_one(bytes: &[u8], from: usize, mut n: usize) -> Option<usize> {
    let mut at = from / 8 * 8;
    let mut word = bits(bytes, at) & (u64::MAX << (from % 8));
    // Which of the first words holds it is unpredictable, so the next two are counted
    // unconditionally, without a branch.
    for _ in 0..2 {
        let ones = word.count_ones() as usize;
        let next = bits(bytes, at + 64);
        let skip = usize::from(n >= ones);
        n -= ones & skip.wrapping_neg();
        at += 64 * skip;
        word ^= (word ^ next) & (skip as u64).wrapping_neg();
    }
    loop {
        let (place, ones) = nth_one_of(word, n);
        if n < ones {
            return Some(at + place);
        }
        n -= ones;
        at += 64;
        if at / 8 >= bytes.len() {
            return None;
        }
        word = bits(bytes, at);
    }
}

/// The lowest bit of every byte, and the highest.
const LOWEST: u64 = 0x0101_0101_0101_0101;
const HIGHEST: u64 = 0x8080_8080_8080_8080;

/// The position of the `n`-th one of a word, `n` less than 64, and the number of its ones; any
/// position if there are at most `n`. Handles all bytes at once, without a branch (Vigna 2008,
/// broadword selection).
#[inline]
fn nth_one_of(word: u64, n: usize) -> (usize, usize) {
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let eights = (fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    // In each byte, the number of ones up to its end.
    let up_to = eights.wrapping_mul(LOWEST);
    let at = (8 * bytes_not_above(up_to, n as u64)) & 0x38;
    let before = up_to << 8 >> at & 0xff;
    // Each bit of that byte in a separate byte, then the number of ones up to each.
    let apart = (word >> at & 0xff).wrapping_mul(LOWEST) & 0x8040_2010_0804_0201;
    let ones = (apart | ((apart | HIGHEST) - LOWEST)) >> 7 & LOWEST;
    let within = ones.wrapping_mul(LOWEST);
    let place = at + bytes_not_above(within, (n as u64).wrapping_sub(before) & 7);
    (place as usize, (up_to >> 56) as usize)
}

/// Number of bytes of a word that are at most `limit`; both are less than 128.
#[inline]
const fn bytes_not_above(word: u64, limit: u64) -> u64 {
    let not_above = (((limit * LOWEST) | HIGHEST) - word) & HIGHEST;
    (not_above >> 7).wrapping_mul(LOWEST) >> 56
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Vec<u64> {
        let view = Offsets::view(bytes).unwrap();
        (0..view.len()).map(|at| view.get(at).unwrap()).collect()
    }

    fn rising(steps: &[u64]) -> (Vec<u64>, u64) {
        let mut end = 0;
        let offsets = steps.iter().map(|step| {
            let offset = end;
            end += step;
            offset
        });
        (offsets.collect(), end)
    }

    /// Found by the slice fuzzer.
    #[test]
    fn an_index_beyond_all_can_be_prefetched() {
        let (offsets, end) = rising(&[1 << 40; 200]);
        let bytes = Offsets::build(&offsets, end).unwrap();
        let view = Offsets::view(&bytes).unwrap();
        for index in [200, usize::MAX / 2, usize::MAX] {
            view.prefetch(index);
            assert_eq!(view.get(index), None);
        }
    }

    #[test]
    fn records_of_one_length_take_ten_bits_each() {
        let (offsets, end) = rising(&vec![180; 2441]);
        let bytes = Offsets::build(&offsets, end).unwrap();
        assert_eq!(read(&bytes), offsets);
        let bits = bytes.len() as f64 * 8.0 / 2441.0;
        assert!(
            bits < 10.1,
            "{bits} bits an offset: 7 lower, 2.4 upper, 0.5 position"
        );
    }

    #[test]
    fn one_very_long_record_costs_nothing_extra() {
        let mut steps = vec![180; 2441];
        steps[7] = 1 << 20;
        let (offsets, end) = rising(&steps);
        let bytes = Offsets::build(&offsets, end).unwrap();
        assert_eq!(read(&bytes), offsets);
        assert!(bytes.len() * 8 < 2441 * 13, "{} bytes", bytes.len());
    }

    #[test]
    fn the_layout_does_not_change() {
        // 3 offsets below 30: 10 per record, 3 lower bits; the upper parts 0, 1, 2 are 1, 01, 01.
        let bytes = Offsets::build(&[0, 10, 20], 30).unwrap();
        let golden = [
            3,
            0,
            0,
            0,
            3,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0b0001_0000,
            0b1,
            0b0001_0101,
        ];
        assert_eq!(bytes, golden);
        assert_eq!(Offsets::build(&[], 0).unwrap(), [0; 8]);
        for end in [1, 1 << 40, u64::MAX] {
            let none = Offsets::build(&[], end).unwrap();
            assert!(none.len() < 64, "{} bytes for nothing", none.len());
            assert_eq!(Offsets::body(&none).len(), Offsets::body_len(0, end).0);
            assert_eq!(Offsets::view(&none).unwrap().get(0), None);
        }
        assert_eq!(Offsets::view(&[0; 8]).unwrap().get(0), None);
    }

    #[test]
    fn offsets_that_do_not_rise_are_refused() {
        let refused = |offsets: &[u64], end| Offsets::build(offsets, end).unwrap_err();
        assert_eq!(refused(&[0, 0], 9), OffsetsError::NotRising { at: 1 });
        assert_eq!(refused(&[0, 9], 9), OffsetsError::NotRising { at: 1 });
        assert_eq!(refused(&[0], 0), OffsetsError::NotRising { at: 0 });
    }

    #[test]
    fn bytes_that_are_cut_off_are_refused_or_answer_nothing() {
        let (offsets, end) = rising(&vec![90; 200]);
        let good = Offsets::build(&offsets, end).unwrap();
        for len in 0..good.len() {
            if let Ok(view) = Offsets::view(&good[..len]) {
                for (at, offset) in offsets.iter().enumerate() {
                    let found = view.get(at);
                    assert!(found.is_none() || found == Some(*offset), "cut to {len}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_offset_is_read_as_it_was_given(
            steps in proptest::collection::vec(prop_oneof![1_u64..4, 1_u64..2000, 1_u64..(1 << 34)], 0..400),
        ) {
            let (offsets, end) = rising(&steps);
            let bytes = Offsets::build(&offsets, end).unwrap();
            prop_assert_eq!(read(&bytes), offsets.clone());
            let bound = 2.0 + (end.max(1) as f64 / offsets.len().max(1) as f64).log2().max(0.0) + 0.5;
            let most = bound * offsets.len() as f64 / 8.0 + 16.0;
            prop_assert!((bytes.len() as f64) <= most, "{} bytes, at most {most}", bytes.len());
        }

        #[test]
        fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..300), index: u16) {
            if let Ok(view) = Offsets::view(&bytes) {
                let _ = view.get(usize::from(index));
                view.prefetch(usize::from(index));
            }
        }
    }
}
