//! Memory that slices are gathered in, used again: what is new to a process has to be mapped
//! and cleared by the kernel first, which takes longer than the copy into it.

use parking_lot::Mutex;

use super::Whole;

/// Bytes that are kept for later at most.
const MAX_IDLE: usize = 16 << 20;

/// Buffers that nobody uses now.
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

    /// Takes a buffer back, unless there is enough of them.
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

    /// Gives all idle ones back to the system: nothing is ingested any more.
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
