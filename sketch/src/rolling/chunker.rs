//! Chunk boundaries that move with the content.
//!
//! A chunk ends where the hash of the last [`CHUNK_WINDOW`] bytes is in the top 1/g of its range, g
//! = average - min; but it has at least `min` and at most `max` bytes. A change therefore moves
//! only the boundaries near it: from the next common boundary on, the chunks of both texts are
//! equal (Rabin's fingerprints as in LBFS, Muthitacharoen et al. 2001).
//!
//! Random content has boundaries with probability 1/g per byte beyond `min`, so the mean chunk has
//! `average` bytes, slightly fewer because `max` ends a share e^-((max - min) / g) of the chunks.
//! Content of one repeated byte has either no boundary (chunks of `max` bytes) or one every `min`
//! bytes; zeros have none.
//!
//! The same modulus and sizes give the same boundaries: both belong to the format of a chunk store.

use super::Modulus;
use super::window::Window;

/// Bytes that determine a boundary.
pub const CHUNK_WINDOW: usize = 64;
/// Largest chunk: 1 GiB.
pub const MAX_CHUNK: usize = 1 << 30;

/// Sizes of chunks, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizes {
    min: usize,
    average: usize,
    max: usize,
}

/// These sizes are impossible. Nothing was created; choose 64 <= min < average < max <= 1 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "chunk sizes {min}, {average}, {max}: {CHUNK_WINDOW} <= min < average < max <= {MAX_CHUNK} is needed"
)]
pub struct ChunkSizesError {
    /// The given value.
    pub min: usize,
    /// The given value.
    pub average: usize,
    /// The given value.
    pub max: usize,
}

impl ChunkSizes {
    /// Chunks of `min` to `max` bytes (the last one of a text may be shorter), with a mean of
    /// `average`.
    ///
    /// # Errors
    /// [`ChunkSizesError`] unless [`CHUNK_WINDOW`] <= min < average < max <= [`MAX_CHUNK`].
    pub const fn new(min: usize, average: usize, max: usize) -> Result<Self, ChunkSizesError> {
        if CHUNK_WINDOW <= min && min < average && average < max && max <= MAX_CHUNK {
            Ok(Self { min, average, max })
        } else {
            Err(ChunkSizesError { min, average, max })
        }
    }

    /// Smallest chunk.
    #[must_use]
    pub const fn min(&self) -> usize {
        self.min
    }

    /// Largest chunk.
    #[must_use]
    pub const fn max(&self) -> usize {
        self.max
    }
}

/// Cuts a stream into chunks. Keeps the last [`CHUNK_WINDOW`] bytes of it.
#[derive(Debug, Clone)]
pub struct Chunker {
    window: Window,
    sizes: ChunkSizes,
    /// A hash of at least this value ends a chunk.
    cutoff: u64,
    /// Less than 2q.
    hash: u64,
    recent: [u8; CHUNK_WINDOW],
    /// Bytes of the chunk so far.
    len: usize,
}

impl Chunker {
    /// Starts at the beginning of a stream. 2 KiB.
    #[must_use]
    pub fn new(modulus: &Modulus, sizes: ChunkSizes) -> Self {
        let gap = (sizes.average - sizes.min) as u64;
        Self {
            window: Window::new(modulus, CHUNK_WINDOW),
            sizes,
            cutoff: modulus.prime() - modulus.prime() / gap,
            hash: 0,
            recent: [0; CHUNK_WINDOW],
            len: 0,
        }
    }

    /// Continues through the next piece of the stream. `Some(n)`: the chunk ends with the first n
    /// bytes of the piece; pass the rest again. `None`: the chunk continues beyond the piece. Takes
    /// 3 to 5 ns per byte beyond `min`; the first `min` bytes of a chunk are free.
    pub fn next_boundary(&mut self, piece: &[u8]) -> Option<usize> {
        // The window must be full when the first boundary is possible; earlier bytes do not matter.
        let ignored = (self.sizes.min - CHUNK_WINDOW)
            .saturating_sub(self.len)
            .min(piece.len());
        self.len += ignored;
        for (at, &byte) in piece.iter().enumerate().skip(ignored) {
            let slot = self.len % CHUNK_WINDOW;
            self.hash = self.window.roll(self.hash, byte, self.recent[slot]);
            self.recent[slot] = byte;
            self.len += 1;
            let is_cut = self.window.canonical(self.hash) >= self.cutoff;
            if self.len >= self.sizes.max || is_cut && self.len >= self.sizes.min {
                self.finish();
                return Some(at + 1);
            }
        }
        None
    }

    /// Ends the stream: returns the length of its last chunk, if any, and starts another stream.
    pub const fn finish(&mut self) -> Option<usize> {
        let len = self.len;
        self.len = 0;
        self.hash = 0;
        self.recent = [0; CHUNK_WINDOW];
        if len == 0 { None } else { Some(len) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SeedStream;

    fn sizes() -> ChunkSizes {
        ChunkSizes::new(256, 1024, 4096).unwrap()
    }

    fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
        let mut seeds = SeedStream::new(seed);
        (0..len).map(|_| seeds.next_u64() as u8).collect()
    }

    /// Lengths of the chunks of a text that arrives in pieces.
    fn lengths(text: &[u8], piece_len: usize) -> Vec<usize> {
        let mut chunker = Chunker::new(&Modulus::random(1), sizes());
        let (mut lengths, mut len) = (Vec::new(), 0);
        for piece in text.chunks(piece_len) {
            let mut rest = piece;
            while let Some(end) = chunker.next_boundary(rest) {
                lengths.push(len + end);
                len = 0;
                rest = &rest[end..];
            }
            len += rest.len();
        }
        assert_eq!(chunker.finish(), (len > 0).then_some(len));
        lengths.extend((len > 0).then_some(len));
        lengths
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (min, average, max) in [
            (63, 100, 200),
            (64, 64, 100),
            (64, 100, 100),
            (64, 100, MAX_CHUNK + 1),
        ] {
            assert!(ChunkSizes::new(min, average, max).is_err());
        }
        let smallest = ChunkSizes::new(64, 65, 66).unwrap();
        let mut chunker = Chunker::new(&Modulus::random(1), smallest);
        assert_eq!(
            chunker
                .next_boundary(&[7; 99])
                .map(|n| n.clamp(64, 66) == n),
            Some(true)
        );
    }

    /// 4 MB of random bytes have about 3,900 chunks; g = 768 and max - min = 5 g, so the mean is
    /// 1,024 - 768 e^-5 = 1,019, with a standard deviation of 768 / 63 = 12 (the chunks are
    /// independent); off by 5.5 of them with probability below 1e-7.
    #[test]
    fn chunks_have_the_sizes_that_were_asked_for() {
        let lengths = lengths(&random_bytes(4_000_000, 1), 4_000_000);
        let (_, whole) = lengths.split_last().unwrap();
        assert!(whole.iter().all(|len| (256..=4096).contains(len)));
        let mean = whole.iter().sum::<usize>() as f64 / whole.len() as f64;
        assert!((mean - 1019.0).abs() < 66.0, "{mean}");
    }

    /// Boundaries of both texts coincide soon after the change, because each chunk is a new
    /// attempt. With these sizes, 20 chunks without success have a probability far below 1e-6.
    #[test]
    fn an_insertion_changes_chunks_near_it_only() {
        let text = random_bytes(400_000, 2);
        let changed = [&text[..100_000], b"inserted", &text[100_000..]].concat();
        let ends = |lengths: Vec<usize>, from_end: usize| -> Vec<usize> {
            lengths
                .iter()
                .scan(0, |end, len| {
                    *end += len;
                    Some(from_end - *end)
                })
                .collect()
        };
        let (before, after) = (
            ends(lengths(&text, 1000), text.len()),
            ends(lengths(&changed, 1000), changed.len()),
        );
        let missing = before.iter().filter(|end| !after.contains(end)).count();
        let until_change = before.iter().filter(|&&end| end > 300_000).count();
        assert!(
            missing - until_change < 20,
            "{} chunks after the change differ",
            missing - until_change
        );
        assert!(before.len() > 350);
    }

    #[test]
    fn zeros_are_cut_at_the_largest_size() {
        assert_eq!(lengths(&[0; 10_000], 10_000), [4096, 4096, 1808]);
        assert_eq!(lengths(&[], 1), []);
    }

    #[test]
    fn golden_boundaries_do_not_change() {
        assert_eq!(lengths(&random_bytes(6000, 3), 6000), GOLDEN);
    }
    /// Computed by dividing the windows as numbers, in a separate program.
    const GOLDEN: [usize; 5] = [440, 2940, 286, 1165, 1169];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn boundaries_do_not_depend_on_the_pieces(seed: u64, len in 0_usize..20_000, piece_len in 1_usize..5000) {
            let text = random_bytes(len, seed);
            prop_assert_eq!(lengths(&text, piece_len), lengths(&text, len.max(1)));
            prop_assert_eq!(lengths(&text, piece_len).iter().sum::<usize>(), len);
        }

        /// The module's definition of a boundary, computed from scratch at every byte.
        #[test]
        fn a_boundary_depends_on_the_window_alone(seed: u64) {
            let (text, modulus) = (random_bytes(6000, seed), Modulus::random(1));
            let cutoff = modulus.prime() - modulus.prime() / 768;
            let mut start = 0;
            for len in lengths(&text, 6000) {
                let ends = |at: usize| {
                    at - start == 4096 || modulus.hash(&text[at - CHUNK_WINDOW..at]) >= cutoff
                };
                let end = (start + 256..=6000).find(|&at| ends(at)).unwrap_or(6000);
                prop_assert_eq!(start + len, end);
                start = end;
            }
        }
    }
}
