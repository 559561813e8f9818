//! Received slices in memory, and reusable buffers to gather them in. The kernel must map and clear memory that is new to a
//! process, which takes longer than copying a slice into it.

use bytes::Bytes;
use parking_lot::Mutex;

/// Limit on the bytes kept for reuse.
const MAX_IDLE: usize = 16 << 20;

/// All bytes of a slice.
#[derive(Debug)]
pub(super) enum Whole {
    /// As received, in one piece.
    Piece(Bytes),
    Gathered(Vec<u8>),
}

impl Whole {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Piece(bytes) => bytes,
            Self::Gathered(bytes) => bytes,
        }
    }
}

/// The unused buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    idle: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// An empty buffer with room for `len` bytes.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.idle.lock().pop().unwrap_or_default();
        buffer.reserve_exact(len);
        buffer
    }

    /// Keeps a buffer for reuse, unless there are enough.
    pub(super) fn give_back(&self, whole: Whole) {
        let Whole::Gathered(mut buffer) = whole else {
            return;
        };
        buffer.clear();
        let mut idle = self.idle.lock();
        let held: usize = idle.iter().map(Vec::capacity).sum();
        if held + buffer.capacity() <= MAX_IDLE {
            idle.push(buffer);
        }
    }

    /// Frees all unused buffers, once no ingest is in progress.
    pub(super) fn clear(&self) {
        self.idle.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_bounded() {
        let buffers = Buffers::default();
        let mut first = buffers.take(1_000);
        first.extend_from_slice(&[1; 1_000]);
        let place = first.as_ptr();
        buffers.give_back(Whole::Gathered(first));
        let again = buffers.take(500);
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), place);
        let many = std::iter::repeat_with(|| Vec::with_capacity(MAX_IDLE / 2));
        for buffer in many.take(5) {
            buffers.give_back(Whole::Gathered(buffer));
        }
        assert_eq!(buffers.idle.lock().len(), 2);
        buffers.clear();
        assert!(buffers.idle.lock().is_empty());
    }
}
