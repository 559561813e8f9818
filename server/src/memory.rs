//! Returns unused memory from the allocator to the system.
//!
//! mimalloc keeps freed memory for the thread that freed it, and returns pages to the system
//! only during allocations. A node that is idle after a flush would keep all of it.

use mimalloc as _;

/// Returns this thread's free memory and every free page of the process to the system. Takes some
/// milliseconds.
pub(crate) fn release() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc is linked in, and lets any thread call this at any time.
    unsafe { mi_collect(true) }
}
