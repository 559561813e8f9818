//! Memory that the allocator holds and nobody uses.
//!
//! mimalloc keeps what a thread has freed for that thread, and gives pages back to the system
//! only while somebody allocates. A node that has flushed and is idle would keep all of it.

use mimalloc as _;

/// Gives what the allocator holds for this thread, and every free page of the process, back to
/// the system. Takes some milliseconds.
pub(crate) fn release() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc is linked in, and lets any thread call this at any time.
    unsafe { mi_collect(true) }
}
